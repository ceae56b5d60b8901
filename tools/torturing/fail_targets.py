"""What is made to fail: convert, follow, the callback's files and its way to them, the monitor, what `view` shows."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import typer

from ms_summary_bridge.cli import app
from ms_summary_bridge.cli.ending import exit_code_of
from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD
from ms_summary_bridge.live_writer.link import WriterLink
from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.live_writer.run_config import LiveRunConfig
from ms_summary_bridge.mirror.home import open_home
from ms_summary_bridge.mirror.mirror import Mirror
from ms_summary_bridge.monitor.loop import Monitor
from ms_summary_bridge.monitor.sinks.journal import read_journal
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.report import Report
from ms_summary_bridge.viewers import view
from ms_summary_bridge.viewers.program import Program
from tests.log_samples import MINDSPORE_LOGS, TENSORBOARD_LOGS
from tests.mindspore_run import scalars, write_summary
from torturing.reading import files_below, visible

_START = 1_700_000_000


class Target(ABC):
    """Something that is run once while calls fail. Its files lie below `base`."""

    keeps_open = False
    """Whether descriptors may stay open, until the process ends."""
    uses_processes = False
    """Whether these descriptors are those of multiprocessing, which it must not miss."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.told: list[str] = []
        """Losses that were counted, and errors that were clear."""

    @abstractmethod
    def run(self) -> Iterator[str]:
        """Runs it, while a call may fail; yields what is wrong."""

    def settle(self) -> Iterator[str]:
        """Does what the user would do when the reason is gone; yields what is wrong then."""
        yield from ()


@functools.cache
def _command_line() -> Any:
    """Returns the command line, as `app.main` makes it for each call."""
    return typer.main.get_command(app.app)


class _Converted(Target):
    """`ms-summary-bridge convert` of a log with all kinds, twice: of a part of it, and when it has grown."""

    to = "tensorboard"
    log = staticmethod(MINDSPORE_LOGS["every kind under one tag"])

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.source, self.out = base / "source", base / "out"
        type(self).log(self.source)

    def _command(self, *more: str) -> tuple[int, str]:
        said = io.StringIO()
        words = ["convert", str(self.source), str(self.out), "--to", self.to, *more]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = exit_code_of(lambda: int(_command_line().main(words, "ms-summary-bridge", standalone_mode=False)))
        return code, said.getvalue()

    def run(self) -> Iterator[str]:
        code, said = self._command()
        if "Traceback" in said:
            yield f"a traceback: {said[-400:]}"
        if code:
            self.told.append(said)
            if not said.strip():
                yield f"exit code {code} and not a word"

    def settle(self) -> Iterator[str]:
        if not self.told and not verify_logdirs(str(self.source), str(self.out)).is_equal:
            yield "nothing was told, and not all is there"
        code, said = self._command()
        if code:
            yield f"the next conversion has exit code {code}: {said[-400:]}"
        elif not verify_logdirs(str(self.source), str(self.out)).is_equal:
            yield "after the next conversion not all is there"


class _ConvertedToMindSpore(_Converted):
    to = "mindinsight"
    log = staticmethod(TENSORBOARD_LOGS["every plugin"])


def _two_runs(directory: Path) -> None:
    for name in "ab":
        write_summary(directory / name, scalars("loss", range(6)))


class _ConvertedByProcesses(_Converted):
    """Runs in two processes: what starts them fails."""

    log = staticmethod(_two_runs)
    keeps_open = uses_processes = True

    def _command(self, *more: str) -> tuple[int, str]:
        return super()._command("--workers", "2")


class _Followed(_Converted):
    """A follower that looks a few times."""

    def _follow(self) -> list[str]:
        stop, looks, trouble = threading.Event(), [0], []

        def wait(_: float) -> None:
            looks[0] += 1
            if looks[0] > 3:
                stop.set()

        def told(report: Report) -> None:
            trouble.extend([report.failed] * bool(report.failed))
            trouble.extend([*report.unreadable, *(run.failed for run in report.failures)])

        hour = iter(range(0, 10**9, 3600))  # each look is at a time when all is tried again
        follow_logdir(
            str(self.source), str(self.out), to=self.to, stop=stop, wait=wait, on_round=told, clock=lambda: next(hour)
        )
        return trouble

    def run(self) -> Iterator[str]:
        try:
            self.told += self._follow()
        except BridgeError as error:
            self.told.append(str(error))
        yield from ()

    def settle(self) -> Iterator[str]:
        if not self.told and not verify_logdirs(str(self.source), str(self.out)).is_equal:
            yield "nothing was told, and not all is there"
        if trouble := self._follow():
            yield f"the next follower tells of {trouble}"
        if not verify_logdirs(str(self.source), str(self.out)).is_equal:
            yield "after the next follower not all is there"


def steps_below(directory: str, file_format: str, tag: str) -> Counter[int]:
    """Returns how often each step of a tag is in the files of a format."""
    steps: Counter[int] = Counter()
    for _, path in files_below(directory, file_format):
        with EventFileReader(path, make_decoder(file_format)) as reader:
            for event in reader:
                if isinstance(event, Event) and isinstance(event.content, Summary):
                    steps.update(event.step for value in event.content.values if value.tag == tag)
    return steps


class _LiveFiles(Target):
    """The writer process of the callback, seen from inside: values come, are flushed, and what is lost is counted."""

    steps = 24
    fsync = True

    def run(self) -> Iterator[str]:
        directory = str(self.base / "run")
        config = LiveRunConfig(directory, directory, _START, float(_START), 0, "host", 42, 2500, fsync=self.fsync)
        self.live = LiveRun(config, lambda kind, text: self.told.append(text))
        for step in range(self.steps):
            self.live.write_values(step, _START + step, {"scalar": [{"tag": "loss", "value": np.asarray(step / 8)}]})
            if step % 4 == 3:
                self.live.flush()
        self.live.close()
        yield from ()

    def settle(self) -> Iterator[str]:
        """Every value is in the file, or in the count of those that are not."""
        for file_format, file in ((MINDSPORE, self.live.summary), (TENSORBOARD, self.live.event_file)):
            seen = steps_below(str(self.base / "run"), file_format, "loss")
            if twice := [step for step, count in seen.items() if count > 1]:
                yield f"{file_format}: twice there are {twice}"
            missing = self.steps - len(seen)
            if missing > file.dropped:
                yield f"{file_format}: {missing} values are missing, {file.dropped} are counted"
            if missing and not self.told:
                yield f"{file_format}: {missing} values are missing without a word"


class _Link(Target):
    """The callback's end: shared memory, pipes and the start of the writer process fail; the training goes on."""

    steps = 10
    killed_at = -1

    def run(self) -> Iterator[str]:
        directory = str(self.base / "run")
        config = LiveRunConfig(directory, directory, _START, float(_START), 0, "host", os.getpid(), flush_secs=0.2)
        self.link = WriterLink(config, queue_bytes=1 << 20)
        for step in range(self.steps):
            self.link.put_values(step, _START + step, {"scalar": [{"tag": "loss", "value": np.asarray(step / 8)}]})
            if step == self.killed_at and self.link.writer is not None:
                self.link.flush(5.0)
                self.link.writer.process.kill()
                self.link.writer.process.wait()
        self.link.flush(5.0)
        self.link.close(10.0)
        yield from ()

    def settle(self) -> Iterator[str]:
        seen = steps_below(str(self.base / "run"), MINDSPORE, "loss")
        counted = sum(self.link.dropped.values())
        counted += self.link.result["dropped"] if self.link.result else 0
        self.told += ["dropped"] * counted
        if self.steps - len(seen) > counted:
            yield f"{self.steps - len(seen)} values are missing, {counted} are counted"


class _LinkOfTheKilled(_Link):
    """The writer process is killed, and another one is started in its place."""

    killed_at = 5


class _Monitored(Target):
    """A loop that the monitor records, with all files it can write; a loss is told, and the loop never sees one."""

    steps = 12
    backends: tuple[str, ...] = ("local", "prometheus")
    has_watchdog = False

    def run(self) -> Iterator[str]:
        config: dict[str, Any] = {
            "interval": 0,
            "metrics": ["loss", "step_time", "lr"],
            "save_dir": str(self.base / "runs"),
            "run_id": "run",
            "backend": list(self.backends),
            "auto_print": False,
            "csv": True,
            "watchdog": {"enable": self.has_watchdog},
        }
        began = time.monotonic()
        with Monitor(config) as monitor:
            for step in range(1, self.steps + 1):
                monitor.step(loss=step / 8, lr=0.1)
        self.secs = time.monotonic() - began
        yield from ()

    def settle(self) -> Iterator[str]:
        steps: Counter[int] = Counter()
        for path in self.base.glob("runs/*/run*/rank_0"):
            with contextlib.suppress(BridgeError):  # none was made
                steps.update(line["step"] for line in read_journal(path) if line["kind"] == "sample")
        self.steps_seen = steps
        if twice := [step for step, count in steps.items() if count > 1]:
            yield f"the journal has twice {twice}"


class _MonitoredFiles(_Monitored):
    def settle(self) -> Iterator[str]:
        yield from super().settle()
        missing = self.steps - len(self.steps_seen)
        if missing:
            self.told.append(f"{missing} samples are missing")


class _MonitoredWithViewers(_Monitored):
    backends = ("local", "tensorboard")
    has_watchdog = True
    keeps_open = True


class _Mirrored(Target):
    """What `view` and the plugin keep up to date for a viewer: a few rounds, and then it is whole."""

    format = TENSORBOARD
    least = 12
    log = staticmethod(MINDSPORE_LOGS["every kind under one tag"])

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.source = base / "source"
        self.mirror: Mirror | None = None
        type(self).log(self.source)
        for path in self.source.rglob("*"):
            os.utime(path, (_START, _START))

    keeps_open = True

    def _rounds(self) -> None:
        if self.mirror is None:
            self.home = open_home(str(self.source), str(self.base / "cache"), viewer="v")
            self.mirror = Mirror(self.home, self.format, 1 << 40, self.told.append, retry_secs=0.0, space_secs=0.0)
            self.home.lock()
        for _ in range(4):
            self.mirror.round()

    def run(self) -> Iterator[str]:
        try:
            self._rounds()
        except (BridgeError, OSError) as error:  # the process says it, and is started again
            self.told.append(str(error))
            self.mirror = None
        yield from ()

    def settle(self) -> Iterator[str]:
        """The same process, where it goes on, shows all when the reason is gone."""
        self._rounds()
        shown = self.home.logdir if self.format == TENSORBOARD else self.home.base
        if len(visible(shown, self.format)) < self.least:
            yield f"afterwards not all is shown: {self.told[-3:]}"


class _MirroredForMindInsight(_Mirrored):
    format = MINDSPORE
    least = 9
    log = staticmethod(TENSORBOARD_LOGS["a tree with other files"])


class _Viewed(Target):
    """The command `view` with a stand-in for TensorBoard: it shows the address, or says why it cannot."""

    _VIEWER = (
        "import http.server as h, sys; "
        "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()"
    )

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.source = base / "source"
        MINDSPORE_LOGS["repeats"](self.source)

    def run(self) -> Iterator[str]:
        shown: list[str] = []

        def show(url: str) -> None:
            shown.append(url)
            raise KeyboardInterrupt  # the user has seen it

        def start(stack: Any, source: str, host: str, port: int, say: Any) -> Program:
            program = Program("TensorBoard", [sys.executable, "-c", self._VIEWER, str(port)])
            stack.callback(program.stop)
            return program

        before = view._start_tensorboard
        view._start_tensorboard = start
        try:
            view.view_logdir(self.source, viewer="tensorboard", port=0, say=lambda text: None, show=show)
        except BridgeError as error:
            self.told.append(str(error))
        finally:
            view._start_tensorboard = before
        if not shown and not self.told:
            yield "it ended without an address and without a word"


TARGETS: dict[str, Callable[[Path], Target]] = {
    "convert to TensorBoard": _Converted,
    "convert to MindSpore, with an archive": _ConvertedToMindSpore,
    "convert by two processes": _ConvertedByProcesses,
    "follow": _Followed,
    "callback: the files": _LiveFiles,
    "callback: the way to the writer process": _Link,
    "callback: a writer process that is killed": _LinkOfTheKilled,
    "monitor: the files": _MonitoredFiles,
    "monitor with both viewers and the watchdog": _MonitoredWithViewers,
    "view: the command": _Viewed,
    "view: the mirror for TensorBoard": _Mirrored,
    "view: the mirror for MindInsight": _MirroredForMindInsight,
}
