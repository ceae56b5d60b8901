"""The watchdog: a process beside the training that notices when the training hangs, and says where.

Imports neither mindspore nor numpy.

It is no part of the training's process, so that nothing that stops that one, a C call that holds the GIL for ever
among it, stops the watchdog. It looks a few times in a minute, and ends with the training, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.alarms.actions import Origin
from ms_summary_bridge.monitor.alarms.actions.runner import ActionRunner
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.config import WatchdogConfig
from ms_summary_bridge.monitor.watchdog.hang_limits import Hang, HangDetector, Recovery
from ms_summary_bridge.monitor.watchdog.hang_report import (
    Console,
    Findings,
    HangFiles,
    describe_hang,
    describe_recovery,
    report_text,
)
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat, HeartbeatReader
from ms_summary_bridge.monitor.watchdog.process_state import (
    ProcessState,
    find_descendants,
    is_same_program,
    read_state,
)
from ms_summary_bridge.monitor.watchdog.stacks import Offer, StackReader

__all__ = ["Assignment", "Watchdog", "main", "poll_secs"]

_POLLS_PER_LIMIT: Final = 20
_LEAST_POLL_SECS: Final = 0.05
_MOST_POLL_SECS: Final = 5.0
_CLOSE_SECS: Final = 60.0


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What a watchdog is to watch.

    Attributes:
        pid: The training's process.
        started: When that began, as `ProcessState.started`.
        rank: Global rank.
        thread: The thread that trains, as `threading.get_native_id()`.
        thread_ident: The same, as `threading.get_ident()`.
        heartbeat: Descriptor of the heartbeat.
        offer: How to ask for stacks; None if they cannot be had.
        console: Descriptor of the training's standard error if that is a regular file, else -1.
        config: The limits.
        actions: Commands and webhooks that are told of a hang, and of its end.
        origin: Which training it is; its run is known later.
    """

    pid: int
    started: int
    rank: int
    thread: int
    thread_ident: int
    heartbeat: int
    offer: Offer | None
    console: int
    config: WatchdogConfig
    actions: tuple[ActionConfig, ...]
    origin: Origin


def poll_secs(config: WatchdogConfig) -> float:
    """Returns how long the watchdog waits between two looks: a small part of the shortest limit."""
    limits = (
        config.floor,
        config.compile_limit,
        config.evaluation_limit,
        config.checkpoint_limit,
        config.callback_limit,
    )
    return min(max(min(limits) / _POLLS_PER_LIMIT, _LEAST_POLL_SECS), _MOST_POLL_SECS)


class Watchdog:
    """Watches one training.

    Args:
        assignment: What to watch.
        messages: Descriptor on which the training tells where files go, and that it ends.
    """

    def __init__(self, assignment: Assignment, messages: int) -> None:
        self._assignment = assignment
        self._messages = messages
        self._heard = b""
        self._is_told_to_end = False
        self._poll_secs = poll_secs(assignment.config)
        self._detector = HangDetector(assignment.config, self._poll_secs)
        self._heartbeat = HeartbeatReader(assignment.heartbeat)
        self._stacks = None if assignment.offer is None else StackReader(assignment.offer)
        self._console = Console(assignment.pid, assignment.console)
        self._files: HangFiles | None = None
        self._origin = assignment.origin
        self._runner: ActionRunner | None = None
        self._poll = select.poll()
        self._poll.register(messages, select.POLLIN)
        self._process = -1
        with contextlib.suppress(OSError, AttributeError):  # before Linux 5.3 there is none, and it ends a poll later
            self._process = os.pidfd_open(assignment.pid)
            self._poll.register(self._process, select.POLLIN)
        self._beat: Beat | None = None  # the last one
        self._cpu = (0.0, 0.0)  # when it was first seen, and the processor seconds by then

    def run(self) -> None:
        """Watches until the training ends or says that it does, and until all who are to be told have been."""
        self._watch()
        if self._runner is not None:
            self._runner.close(_CLOSE_SECS)

    def _watch(self) -> None:
        while True:
            process = self._find_process()
            if process is None:
                return
            self._look(process)
            if self._is_told_to_end:
                return
            self._wait(self._poll_secs)

    def _find_process(self) -> ProcessState | None:
        process = read_state(self._assignment.pid)
        if process is None or process.started != self._assignment.started or process.has_ended:
            return None
        return process

    def _wait(self, secs: float) -> None:
        for descriptor, event in self._poll.poll(secs * 1000):
            if descriptor == self._messages:
                self._listen(event)

    def _listen(self, event: int) -> None:
        data = os.read(self._messages, 1 << 16) if event & select.POLLIN else b""
        if not data:  # the training has ended, or has become another program, of which there is nothing to watch
            self._poll.unregister(self._messages)
            self._is_told_to_end = True
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            message = msgspec.json.decode(line)
            if "directory" in message:
                self._files = HangFiles(message["directory"])
                run = os.path.dirname(message["directory"])
                self._origin = msgspec.structs.replace(self._origin, run=os.path.basename(run), run_directory=run)
            self._is_told_to_end = self._is_told_to_end or "end" in message

    def _look(self, process: ProcessState) -> None:
        now, beat = time.monotonic(), self._heartbeat.read()
        if beat != self._beat:
            self._beat, self._cpu = beat, (now, process.cpu_secs)
        event = self._detector.observe(now, beat, is_stopped=process.is_stopped)
        if isinstance(event, Hang):
            try:
                self._report(event)
            finally:
                if self._assignment.config.action == "kill":
                    self._kill()
        elif isinstance(event, Recovery):
            alert = describe_recovery(event, self._assignment.rank, self._assignment.pid)
            self._console.write(f"{alert.headline()}\n")
            self._note("recovered", alert)
            self._act(alert)

    # ------------------------------------------------------------------ a hang

    def _report(self, hang: Hang) -> None:
        assignment = self._assignment
        alert = describe_hang(hang, assignment.rank, assignment.pid)
        findings = self._investigate()
        path = "" if self._files is None else self._files.report_path(alert)
        where = f"  all stacks: {path}\n" if path else ""
        brief = report_text(alert, findings, assignment.thread_ident, is_whole=not path)
        self._console.write(brief + where)
        whole = report_text(alert, findings, assignment.thread_ident, is_whole=True)
        self._note("hang", alert, report=whole, path=path, found=_plain(findings))
        self._act(alert)

    def _act(self, alert: Alert) -> None:
        """Tells those who are to be told; nobody waits for them."""
        if self._runner is None and self._assignment.actions:
            self._runner = ActionRunner(self._origin, self._take_outcome)
        for action in self._assignment.actions:
            assert self._runner is not None
            self._runner.put(action, alert)

    def _take_outcome(self, action: ActionConfig, alert: Alert, problem: str) -> None:
        if problem:
            self._console.write(f"rank {alert.rank}: {action.title}: {problem}\n")
        if self._files is not None:
            self._files.write({"kind": "action", "action": action.title, "problem": problem, "wall_time": time.time()})

    def _investigate(self) -> Findings:
        pid = self._assignment.pid
        process = read_state(pid)
        children = [child for child in find_descendants(pid) if child.pid != os.getpid()]
        since, cpu = self._cpu
        secs = time.monotonic() - since
        return Findings(
            process=process,
            thread=read_state(pid, thread=self._assignment.thread),
            children=children,
            cpu_share=(process.cpu_secs - cpu) / secs if process is not None and secs > 0 else 0.0,
            stacks={} if self._stacks is None else self._stacks.read(children),
        )

    def _note(self, kind: str, alert: Alert, report: str = "", path: str = "", **more: Any) -> None:
        if self._files is not None:
            self._files.write({"kind": kind, **alert.plain(), **more}, report, path)

    def _kill(self) -> None:
        """Ends the training, and the forks of it, which may not notice that it has gone."""
        pid = self._assignment.pid
        forks = [child for child in find_descendants(pid) if is_same_program(pid, child.pid)]
        self._console.write(f"rank {self._assignment.rank}: process {pid} is ended (watchdog action: kill)\n")
        for signum, secs in ((signal.SIGTERM, self._assignment.config.grace), (signal.SIGKILL, self._poll_secs)):
            if self._find_process() is None:
                break
            with contextlib.suppress(OSError):
                os.kill(pid, signum)
            self._wait_for_end(secs)
        for fork in forks:
            there = read_state(fork.pid)
            if there is not None and there.started == fork.started:
                with contextlib.suppress(OSError):
                    os.kill(fork.pid, signal.SIGKILL)

    def _wait_for_end(self, secs: float) -> None:
        deadline = time.monotonic() + secs
        while self._find_process() is not None and time.monotonic() < deadline:
            self._wait(min(self._poll_secs, max(0.0, deadline - time.monotonic())))


def _plain(findings: Findings) -> dict[str, Any]:
    """Returns findings for a line of JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(findings, str_keys=True)
    return plain


def main() -> int:
    """Runs the process: the first line of standard input is the assignment, others are messages."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training; this ends with it
    head = b""
    while not head.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return 0
        head += byte
    watchdog = Watchdog(msgspec.json.decode(head, type=Assignment), 0)
    watchdog.run()
    return 0
