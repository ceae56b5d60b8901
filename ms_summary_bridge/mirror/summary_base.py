"""Summary base: the directory that MindInsight is given, with all runs of a logdir as it can show them.

MindInsight lists a base directory and the directories directly in it, no deeper, and none that is a symbolic link
(measured on MindInsight 2.3.1). So TensorBoard's runs are converted into one in the user's cache, as `convert --follow`
does it, and each of MindSpore's gets a directory there with links to its files (`linked_run`). Both go on while the
logdir grows.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable
from typing import Final

import psutil

from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.convert.follow_scan import Scan, take_scan
from ms_summary_bridge.convert.names import shorten, target_name
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.errors import BridgeError, LogdirError, WriteError
from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.mirror.home import Home, clean, clear_directory, open_home, user_directory
from ms_summary_bridge.mirror.linked_run import holds_conversion, link_run, unlink_run
from ms_summary_bridge.runs.logdir import Run, discover
from ms_summary_bridge.runs.report import Report
from ms_summary_bridge.training.faults import Once

__all__ = ["SummaryBase"]

_LIMIT: Final = 20_000_000_000
_LOCK_SECS: Final = 2.0
_RETRY_SECS: Final = 30.0
_LOOK_SECS: Final = 2.0
_SHARE: Final = 0.005  # of its time that it may look for new files while nothing happens
_SLOWEST_LOOK_SECS: Final = 60.0
_BESIDE: Final = "mindspore"  # in the name of a run whose own is that of a run of TensorBoard's


class SummaryBase:
    """The base directory of one logdir, kept up to date by threads of this process.

    Args:
        source: The logdir; need not exist yet.
        say: Told what a person should know, from these threads; each line once.

    Raises:
        LogdirError: There is no place for it.
    """

    def __init__(self, source: str, say: Callable[[str], None]) -> None:
        self._source = source
        self._tell = Once(say)
        self._home = _open_home(source)
        self.path = self._home.output_of("runs")
        self.workspace = os.path.join(self._home.path, f"workspace.{os.getpid()}")
        """A place for what MindInsight itself writes, for as long as it runs."""
        try:
            os.makedirs(self.path, exist_ok=True)
            _clear_workspaces(self._home)
            os.makedirs(self.workspace, exist_ok=True)
        except OSError as error:
            raise WriteError.of_system(error.filename or self.path, "written", error) from error
        self._stop = threading.Event()
        # As daemons: what they are in the middle of may take long, and goes on from there the next time.
        self._threads = [
            threading.Thread(target=self._work, args=(work,), name=name, daemon=True)
            for name, work in {"convert-runs": self._convert, "link-runs": self._link}.items()
        ]
        self._is_ours = threading.Event()
        self._runs: list[Run] = []

    def start(self) -> None:
        """Starts to convert and to link."""
        threading.Thread(target=self._take, name="hold-summary-base", daemon=True).start()

    def stop(self) -> None:
        """Ends it after the run that is under way, if that is soon."""
        self._stop.set()
        if self._is_ours.is_set():
            for thread in self._threads:
                thread.join(_LOCK_SECS)
        clear_directory(self.workspace)

    def _take(self) -> None:
        """Waits for the right to write: another viewer of this logdir keeps the directory up to date as long."""
        while not self._stop.is_set():
            try:
                if self._home.lock() is not None:
                    break
            except OSError as error:
                self._tell(str(error))
            self._stop.wait(_LOCK_SECS)
        else:
            return
        clean(self._home, _LIMIT)
        for thread in self._threads:
            thread.start()
        self._is_ours.set()

    def _work(self, work: Callable[[bool], None]) -> None:
        """Does one part of the work, again after a pause where it fails, the second time from the beginning."""
        failures = 0
        while not self._stop.is_set():
            try:
                work(failures == 1)
            except Exception as error:  # the disk is full, say; whatever it is, the viewer goes on
                failures += 1
                kind = "" if isinstance(error, BridgeError | OSError) else f"{type(error).__name__}: "
                self._tell(f"{kind}{error}; trying again every {_RETRY_SECS:.0f} s")
                self._stop.wait(_RETRY_SECS)

    # --- TensorBoard's runs

    def _convert(self, is_anew: bool) -> None:
        options = ConvertOptions(keep_archive=False)
        follow_logdir(
            self._source,
            self.path,
            to="mindinsight",
            options=options,
            force=is_anew,
            stop=self._stop,
            on_round=self._tell_losses,
        )

    def _tell_losses(self, report: Report) -> None:
        """Names what MindInsight does not show: a line for each kind and reason, not for each of a thousand tags."""
        for run in report.runs:
            if run.failed:
                self._tell(f"{run.run}: failed: {run.failed}")
            for part in run.damaged:
                self._tell(f"{part.file}: bytes {part.start} to {part.end} hold no whole record: {part.reason}")
            for loss in run.losses:
                self._tell(f"not exact in MindInsight: {loss.kind}: {loss.reason}")
        for line in report.unreadable:
            self._tell(f"not read: {line}")
        if report.failed:
            self._tell(report.failed)

    # --- MindSpore's runs

    def _link(self, is_anew: bool) -> None:
        before: Scan | None = None
        while True:
            began = time.monotonic()
            scan = take_scan(self._source)
            took = time.monotonic() - began
            # A new run of TensorBoard's may have taken a name, so the names are looked at in each round.
            self._link_runs(scan != before)
            before = scan
            if self._stop.wait(min(max(_LOOK_SECS, took / _SHARE), _SLOWEST_LOOK_SECS)):
                return

    def _link_runs(self, is_changed: bool) -> None:
        if is_changed:
            self._runs = self._find_runs()
        names = self._names(self._runs)
        entries = [name for name in os.listdir(self.path) if os.path.isdir(os.path.join(self.path, name))]
        for name in {".", *entries} - names.keys():
            unlink_run(os.path.join(self.path, name))
        for name, run in names.items():
            try:
                link_run(run, os.path.normpath(os.path.join(self.path, name)), self._home.path)
            except OSError as error:
                self._tell(f"{run.name}: cannot be shown: {error}")

    def _find_runs(self) -> list[Run]:
        try:
            found = discover(self._source)
        except LogdirError:  # not there yet, or not any more
            return []
        return list(found.runs)

    def _names(self, runs: list[Run]) -> dict[str, Run]:
        """Returns the directory below the base for each run of MindSpore's, none of which is a conversion's."""
        converted = {shorten(target_name(run)) for run in runs if run.format != MINDSPORE}
        names: dict[str, Run] = {}

        def is_taken(name: str) -> bool:
            return name in names or name in converted or holds_conversion(os.path.join(self.path, name))

        for run in runs:
            if run.format != MINDSPORE:
                continue
            base = run.name.replace("/", "+")
            if is_taken(shorten(base)):
                base = _BESIDE if base == "." else f"{base}+{_BESIDE}"
            name, number = shorten(base), 2
            while is_taken(name):
                name, number = shorten(f"{base}_{number}"), number + 1
            names[name] = run
        return names


def _open_home(source: str) -> Home:
    root = os.path.join(user_directory("XDG_CACHE_HOME", "~/.cache"), "ms_summary_bridge", "mindinsight")
    try:
        return open_home(source, root)
    except LogdirError as error:
        raise LogdirError(f"{error}; name another one in the environment variable XDG_CACHE_HOME") from error


def _clear_workspaces(home: Home) -> None:
    """Removes those of processes that were killed: MindInsight's logs grow to gigabytes."""
    for name in os.listdir(home.path):
        match = re.fullmatch(r"workspace\.(\d+)", name)
        if match is not None and not psutil.pid_exists(int(match[1])):
            clear_directory(os.path.join(home.path, name))
