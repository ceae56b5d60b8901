"""A watch from its first look to its exit code: what is looked at, what is printed, what is run for an alert."""

from __future__ import annotations

import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.live import Live
from rich.text import Text

from ms_summary_bridge.cli.keys import KeyReader
from ms_summary_bridge.cli.output import ended_by, fold_text, make_console, print_bytes, printable, say
from ms_summary_bridge.cli.watch_page import render_page, render_table
from ms_summary_bridge.cli.watch_view import WatchView
from ms_summary_bridge.diagnose.finding import group_by
from ms_summary_bridge.errors import LogdirError, UsageError, counted
from ms_summary_bridge.monitor.alarms.actions.command import run_command
from ms_summary_bridge.monitor.alarms.actions.message import ActionError, AlertSource
from ms_summary_bridge.monitor.model.alert_config import CommandConfig
from ms_summary_bridge.states.alerts import NewAlerts, RunAlert, find_alerts, fold_alerts
from ms_summary_bridge.states.run_state import RunState
from ms_summary_bridge.states.watcher import RunWatcher

__all__ = ["run_session"]

_ALERT_CODE: Final = 5
_PARTIAL_CODE: Final = 3
_LOOK_SECS: Final = 2.0
_PLAIN_SECS: Final = 10.0
_BUSY_SHARE: Final = 10  # a look may take one part in so many of the time
_BUDGET_SECS: Final = 0.5
_KEY_SECS: Final = 0.25
_COMMAND_SECS: Final = 30.0
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def run_session(
    source: str, *, stall_after: float | None, is_once: bool, is_json: bool, command: str | None, since: str
) -> int:
    """Watches; returns the exit code. The arguments are those of the command.

    Raises:
        LogdirError: There is nothing to look at.
        UsageError: `since` is no time.
    """
    session = _Session(RunWatcher(source, stall_after), source, _parse_since(since, time.time()), command)
    is_page = not is_json and sys.stdout.isatty() and sys.stdin is not None and sys.stdin.isatty()

    def end() -> None:
        raise KeyboardInterrupt

    numbers = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    try:
        with ended_by(numbers, end):
            if is_page and not is_once:
                _show_page(session)
            else:
                _print_looks(session, is_json=is_json, is_once=is_once)
    except KeyboardInterrupt:
        pass
    finally:
        session.close()
    for note in session.notes:
        say(printable(note))
    if session.has_alerted:
        return _ALERT_CODE
    return _PARTIAL_CODE if session.is_partial else 0


def _parse_since(text: str, now: float) -> float:
    """Returns seconds since the epoch; 0 for an empty text."""
    if not text:
        return 0.0
    if (match := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())) is not None:
        return now - float(match[1]) * _UNITS[match[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(
            f"--since {text!r}: give a span such as 90s, 30m, 12h, 7d, or a time such as 2026-11-30T18:00"
        ) from None


class _Session:
    """What is known by now, and what was done about it."""

    def __init__(self, watcher: RunWatcher, source: str, since: float, command: str | None) -> None:
        self.watcher = watcher
        self.source = source
        self.runs: list[RunState] = []
        self.alerts: list[RunAlert] = []
        self.notes: list[str] = []
        self.has_alerted = False
        self._since = since
        self._new = NewAlerts()
        self._commands = None if command is None else _Commands(command, self.notes.append)
        self._is_first = True

    def look(self, budget_secs: float | None) -> None:
        """Looks once.

        Raises:
            LogdirError: The first look found nothing to look at.
        """
        try:
            runs = self.watcher.look(time.time(), budget_secs=budget_secs)
        except LogdirError as error:
            if self._is_first:
                raise
            self._say(str(error))
            return
        self._is_first = False
        self.runs = [run for run in runs if not self._since or run.last_time >= self._since]
        self.alerts = list(find_alerts(self.runs, self._since))
        for one in self._new.take(self.alerts):
            self.has_alerted = True
            if self._commands is not None:
                self._commands.put(one)
        for problem in self.watcher.problems:
            self._say(problem)

    def _say(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @property
    def is_partial(self) -> bool:
        """Whether something could not be read."""
        return bool(self.watcher.problems) or any(run.is_partial for run in self.runs)

    def close(self) -> None:
        """Waits for commands that still run."""
        if self._commands is not None:
            self._commands.close()


class _Commands:
    """Runs a command for one alert after the other, in a thread of its own."""

    def __init__(self, command: str, say: Callable[[str], None]) -> None:
        self._config = CommandConfig(argv=("sh", "-c", command), timeout=_COMMAND_SECS)
        self._say = say
        self._queue: queue.SimpleQueue[RunAlert | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="watch-on-alert", daemon=True)
        self._thread.start()

    def put(self, one: RunAlert) -> None:
        """Takes an alert."""
        self._queue.put(one)

    def close(self) -> None:
        """Waits until all are done; Ctrl-C ends that."""
        self._queue.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (one := self._queue.get()) is not None:
            run = one.run
            host = next((rank.host for rank in run.ranks if rank.rank == one.alert.rank), "")
            origin = AlertSource(run=run.name, run_directory=run.directory, host=host, ranks=len(run.ranks))
            try:
                run_command(self._config, one.alert, origin)
            except ActionError as error:
                self._say(f"--on-alert for {run.name}, {one.alert.rule}: {error}")


# ---------------------------------------------------------------- output


def _print_looks(session: _Session, *, is_json: bool, is_once: bool) -> None:
    while True:
        began = time.monotonic()
        session.look(None)
        _print(session, is_json=is_json)
        if is_once:
            return
        time.sleep(max(_PLAIN_SECS, _BUSY_SHARE * (time.monotonic() - began)))


def _print(session: _Session, *, is_json: bool) -> None:
    now = time.time()
    if is_json:
        report: dict[str, Any] = {
            "source": session.source,
            "time": now,
            "runs": [run.plain() for run in session.runs],
            "alerts": [{"run": one.run.name, **one.alert.plain()} for one in session.alerts],
            "problems": session.watcher.problems,
        }
        print_bytes(msgspec.json.encode(report) + b"\n")
        return
    console = make_console()
    rows = WatchView(sort="name").choose(session.runs)
    lines = render_table(rows, console.width, now, is_ascii=_is_ascii(console))
    if not rows:
        lines.append(Text("no run"))
    said = []
    for its in group_by(session.alerts, lambda one: one.run.directory).values():
        alarms = [one.alert for one in its if one.alert.rule != one.run.state]
        said += [f"alarm in {its[0].run.name}: {headline}" for _, headline in fold_alerts(alarms)]
    said += [f"problem: {problem}" for run in session.runs for problem in run.problems]
    for text in map(printable, said):
        lines += fold_text(Text(text), console.width) if sys.stdout.isatty() else [Text(text)]
    with console.capture() as capture:
        for line in lines:
            line.rstrip()
            console.print(line, highlight=False, soft_wrap=True)
        console.print()
    print_bytes(capture.get().encode(sys.stdout.encoding or "utf-8", "backslashreplace"))


def _is_ascii(console: Console) -> bool:
    return not console.encoding.lower().startswith("utf")


def _show_page(session: _Session) -> None:
    console, view = make_console(), WatchView()
    session.look(_BUDGET_SECS)  # before the screen is taken: a directory that is not there is an error like any other
    began, pause = time.monotonic(), _KEY_SECS
    with KeyReader() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        shown: object = None
        while not view.is_over:
            if time.monotonic() >= began + pause:
                began = time.monotonic()
                session.look(_BUDGET_SECS)
                pause = max(_LOOK_SECS, _BUSY_SHARE * (time.monotonic() - began))
                pause = _KEY_SECS if session.watcher.unread else pause
                shown = None
            size = (console.size.width, console.size.height)
            if shown != (size, int(time.time())):  # the ages of all runs change with each second
                shown = size, int(time.time())
                _draw(live, session, view, size, _is_ascii(console))
            for key in keys.read(max(0.0, min(_KEY_SECS, began + pause - time.monotonic()))):
                view.press(key, session.runs)
                shown = None


def _draw(live: Live, session: _Session, view: WatchView, size: tuple[int, int], is_ascii: bool) -> None:
    notes = list(session.notes)
    if session.watcher.unread:
        notes.append(f"{counted(session.watcher.unread, 'run has', 'runs have')} not been read yet")
    page = render_page(session.runs, view, size, time.time(), source=session.source, notes=notes, is_ascii=is_ascii)
    live.update(page, refresh=True)
