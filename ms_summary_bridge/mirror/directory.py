"""One directory of a logdir: what of it must be converted for a viewer, and its conversion.

The files are converted through a view, a directory of links to those of this one directory, so that each directory has
a state and an output of its own: what grows costs nothing for the others, and what is damaged stays alone.

A directory that our callback wrote to holds the same data twice, and each viewer is shown its own file. Only when that
of TensorBoard does not cover all (a training was resumed without the callback) the conversion, which takes the user's
own values from there, is shown in its place.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Final

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.names import shorten
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.errors import (
    DamagedStateError,
    FileTakenError,
    NoEventsError,
    OtherConversionError,
    OutputChangedError,
)
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD, format_of_name
from ms_summary_bridge.files.links import replace_link
from ms_summary_bridge.mirror.home import Home, clear_directory, size_of
from ms_summary_bridge.mirror.look import FileFact
from ms_summary_bridge.runs.log_files import LIVE, SOURCE
from ms_summary_bridge.runs.logdir import Logdir, Run, discover
from ms_summary_bridge.runs.report import Report

__all__ = ["MirroredDirectory"]

_ANEW: Final = (OutputChangedError, DamagedStateError, OtherConversionError)
"""Errors of an output that is of no use any more. Another one, a full disk say, is no reason to throw away what is
there: the conversion goes on from it later."""
_ANEW_NAMES: Final = frozenset({FileTakenError.__name__, *(kind.__name__ for kind in _ANEW)})
_VIEWERS: Final = {TENSORBOARD: "tensorboard", MINDSPORE: "mindinsight"}
_GROWING_SECS: Final = 3600.0
_BESIDE: Final = "mindspore"  # the run's name where somebody else's TensorBoard file has the directory's


class MirroredDirectory:
    """The directory `name` below the logdir, `.` for the logdir itself, for a viewer that reads the format `target`."""

    def __init__(self, home: Home, name: str, target: str) -> None:
        key = hashlib.blake2b(os.fsencode(name), digest_size=12).hexdigest()
        self.name = name
        self.view = home.view_of(key)
        self.output = home.output_of(key)
        self._target = target
        self._scratch = home.path
        self._directory = os.path.normpath(os.path.join(home.source, name))
        self.hidden: frozenset[str] = frozenset()
        """Names in the directory that must not be seen: files that hold the same data again."""
        self._is_beside = False
        self._is_converted = False
        self.native_runs: list[Run] = []
        """Its runs that the viewer reads as they are."""
        self._converted_runs: list[Run] | None = None  # looked for again once the conversion has gone on
        self._grows = True
        self.size = size_of(self.output)
        """Bytes that it takes."""
        self.has_failed = False
        """Whether the last conversion of it should be tried again."""
        self.may_pass = False
        """Whether one of its files could not be read, which may be over though nothing of it changes."""
        self.problems: list[str] = []
        """Files that cannot be read at all, each with the reason."""

    @property
    def converted_runs(self) -> list[Run]:
        """What the others have become so far."""
        if self._converted_runs is None:
            if not (self._is_converted and os.path.isdir(self.output)):
                return []
            found = discover(self.output)
            if any(problem.may_pass for problem in found.problems):
                return list(found.runs)
            self._converted_runs = list(found.runs)
        return self._converted_runs

    @property
    def converted_files(self) -> dict[str, list[str]]:
        """Paths of TensorBoard files, by the run's path below the directory; `.` for the directory itself."""
        files: dict[str, list[str]] = {}
        for directory, _, names in os.walk(self.output) if self._is_converted else ():
            paths = [os.path.join(directory, name) for name in sorted(names) if "tfevents" in name]
            if paths:
                files[self._free_name(os.path.relpath(directory, self.output).replace(os.sep, "/"))] = paths
        return files

    def _free_name(self, part: str) -> str:
        """Returns the path of a run below the directory; a directory that is there already keeps its name."""
        if self._is_beside:
            part = _BESIDE if part == "." else f"{_BESIDE}/{part}"
        if part == ".":
            return part
        first, _, rest = part.partition("/")
        free, number = first, 2
        while os.path.lexists(os.path.join(self._directory, free)):
            free, number = shorten(f"{first}_{number}"), number + 1
        return f"{free}/{rest}" if rest else free

    def prepare(self, files: list[FileFact]) -> bool:
        """Looks at the files that are directly in the directory; returns whether there is something to convert.

        Raises:
            BridgeError: The files cannot be looked at.
            OSError: The view cannot be written.
        """
        self._link(files)
        newest = max((file.modified for file in files if file.format != self._target), default=0.0)
        self._grows = time.time() - newest < _GROWING_SECS
        found = discover(self.view)
        self.problems = [
            f"{os.path.join(self._directory, os.path.basename(problem.path))}: {problem.reason}"
            for problem in (*found.problems, *(() if self._grows else found.empty))
            if format_of_name(os.path.basename(problem.path)) not in ("", self._target)  # another `*.pb` is no fault
        ]
        self.may_pass = any(problem.may_pass for problem in found.problems)
        self.native_runs = [run for run in found.runs if run.format == self._target]
        self._is_converted = self._decide(found)
        self._converted_runs = None
        if not self._is_converted:
            self.remove_output()
        return self._is_converted

    def convert(self, progress: Callable[[], None]) -> list[str]:
        """Converts what is new, and calls `progress` now and then; returns what a person should know of it.

        Raises:
            BridgeError: Nothing could be converted.
        """

        def show(done: int, total: int) -> None:
            self._converted_runs = None
            progress()

        try:
            report = self._convert(show)
        except NoEventsError:  # removed since it was looked at, or not to be read just now
            self.has_failed = True
            return []
        finally:
            self.size = size_of(self.output)
            self._converted_runs = None
        self.has_failed = bool(report.failed) or any(run.failed or run.held for run in report.runs)
        return self._tell(report)

    def _link(self, files: list[FileFact]) -> None:
        wanted = {file.name: file.path for file in files}
        os.makedirs(self.view, exist_ok=True)
        for name, path in wanted.items():
            replace_link(os.path.join(self.view, name), path, self._scratch)
        gone = [name for name in os.listdir(self.view) if name not in wanted]
        for name in gone:
            os.unlink(os.path.join(self.view, name))
        if any(format_of_name(name) != self._target for name in gone):  # its points must not stay behind
            clear_directory(self.output)

    def _decide(self, found: Logdir) -> bool:
        """Finds out whether the directory must be converted, and beside what."""
        if self._target == MINDSPORE:
            return len(found.runs) > len(self.native_runs)
        mindspore = [run for run in found.runs if run.format == MINDSPORE]
        ours = [run for run in (*found.runs, *found.twins) if run.format == TENSORBOARD and run.role != SOURCE]
        if not mindspore or _is_covered(mindspore, [run for run in ours if run.role == LIVE]):
            return False
        self.hidden = frozenset(os.path.basename(file.path) for run in ours for file in run.files)
        others = {name for name in os.listdir(self.view) if format_of_name(name) == TENSORBOARD} - self.hidden
        # One run cannot hold both: TensorBoard's slow loader follows the last file of a run alone.
        self._is_beside = bool(others)
        return True

    def _convert(self, progress: Callable[[int, int], None]) -> Report:
        try:
            report = self._go_on(progress)
            if not any(run.error in _ANEW_NAMES for run in report.failures):
                return report
        except _ANEW:
            pass
        clear_directory(self.output)
        return self._go_on(progress)

    def _go_on(self, progress: Callable[[int, int], None]) -> Report:
        options = ConvertOptions(keep_archive=False, grows=self._grows)
        return convert_logdir(self.view, self.output, to=_VIEWERS[self._target], options=options, progress=progress)

    def _tell(self, report: Report) -> list[str]:
        """Returns a line for each run with trouble."""
        lines = [report.failed] if report.failed else []
        for run in report.runs:
            if run.failed:
                lines.append(run.failed.replace(self.view, self._directory))
            for part in run.damaged[:1]:
                path = os.path.join(self._directory, part.file)
                lines.append(f"{path}: damaged ({part.reason}) from byte {part.start} on, which is passed over")
            if self._target == MINDSPORE:  # a line for each kind and reason, not for each of a thousand tags
                lines += [f"not exact in MindInsight: {loss.kind}: {loss.reason}" for loss in run.losses]
        return lines

    def remove_output(self) -> None:
        """Forgets what was converted; what is converted later is shown again."""
        self.size = 0
        self._converted_runs = None
        clear_directory(self.output)

    def remove(self) -> None:
        """Forgets the directory."""
        self.remove_output()
        clear_directory(self.view)


def _is_covered(mindspore: list[Run], live: list[Run]) -> bool:
    """Whether the callback has written every training to a TensorBoard file too.

    It gives both files of a training the same seconds; when it begins a new MindSpore file for one that is full, that
    has the next second (`live_writer.live_run`).
    """
    begun = {file.created for run in live for file in run.files}
    for created in sorted({file.created for run in mindspore for file in run.files}):
        if created not in begun and created - 1 not in begun:
            return False
        begun.add(created)
    return bool(live)
