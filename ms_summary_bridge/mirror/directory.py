"""One directory with MindSpore files: what of it must be converted, and its conversion.

The files are converted through a view, a directory of links to those of this one directory, so that each directory has
a state and an output of its own: what grows costs nothing for the others, and what is damaged stays alone.

A directory that our callback wrote to holds the same data twice, and its TensorBoard file is shown as it is. Only when
that does not cover all (a training was resumed without the callback) the conversion, which takes the user's own values
from there, is shown in its place.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Final

import msgspec

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
from ms_summary_bridge.files.atomic import replace_link
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD, format_of_name
from ms_summary_bridge.mirror.home import Home, clear_directory, size_of
from ms_summary_bridge.mirror.overlay import Shown
from ms_summary_bridge.runs.log_files import LIVE, SOURCE
from ms_summary_bridge.runs.logdir import Logdir, Run, discover
from ms_summary_bridge.runs.report import Report

__all__ = ["FileFact", "MirroredDirectory"]

_ANEW: Final = (OutputChangedError, DamagedStateError, OtherConversionError)
"""Errors of an output that is of no use any more. Another one, a full disk say, is no reason to throw away what is
there: the conversion goes on from it later."""
_ANEW_NAMES: Final = frozenset({FileTakenError.__name__, *(kind.__name__ for kind in _ANEW)})
_DECIDED_BYTES: Final = 4096
_GROWING_SECS: Final = 3600.0
_BESIDE: Final = "mindspore"  # the run's name where somebody else's TensorBoard file has the directory's


class FileFact(msgspec.Struct, frozen=True):
    """What a look at a file says about it, without opening it."""

    path: str
    size: int
    modified: float
    inode: int

    @property
    def name(self) -> str:
        """Its name in the directory."""
        return os.path.basename(self.path)

    @property
    def is_of_tensorboard(self) -> bool:
        """Whether its name is one of TensorBoard's."""
        return format_of_name(self.name) == TENSORBOARD

    @property
    def mark(self) -> tuple[str, int, float, int]:
        """What changes when the file must be looked at again: of TensorBoard's the beginning alone says what it is."""
        if self.is_of_tensorboard:
            return self.path, min(self.size, _DECIDED_BYTES), 0.0, self.inode
        return self.path, self.size, self.modified, self.inode


class MirroredDirectory:
    """One directory.

    Args:
        home: Where its view and its output are kept.
        name: Its path below the logdir; `.` for the logdir itself.
    """

    def __init__(self, home: Home, name: str) -> None:
        key = hashlib.blake2b(os.fsencode(name), digest_size=12).hexdigest()
        self.name = name
        self.view = home.view_of(key)
        self.output = home.output_of(key)
        self._scratch = home.path
        self._directory = os.path.normpath(os.path.join(home.source, name))
        self._hidden: frozenset[str] = frozenset()
        self._is_beside = False
        self._is_converted = False
        self._grows = True
        self.size = size_of(self.output)
        """Bytes that it takes."""
        self.has_failed = False
        """Whether the last conversion of it should be tried again."""
        self.problems: list[str] = []
        """Files that cannot be read at all, each with the reason."""

    @property
    def shown(self) -> Shown | None:
        """What it has become so far; None when there is nothing to show in its place."""
        if not self._is_converted:
            return None
        files: dict[str, list[str]] = {}
        for directory, _, names in os.walk(self.output):
            paths = [os.path.join(directory, name) for name in sorted(names) if "tfevents" in name]
            if paths:
                files[self._free_name(os.path.relpath(directory, self.output))] = paths
        return Shown(self.name, files, self._hidden) if files else None

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
        """Looks at the files, and decides what is shown.

        Args:
            files: All event files and graph files that are directly in the directory.

        Returns:
            Whether there is something to convert.

        Raises:
            BridgeError: The files cannot be looked at.
            OSError: The view cannot be written.
        """
        self._link(files)
        newest = max((file.modified for file in files if not file.is_of_tensorboard), default=0.0)
        self._grows = time.time() - newest < _GROWING_SECS
        found = discover(self.view)
        self.problems = [
            f"{os.path.join(self._directory, os.path.basename(problem.path))}: {problem.reason}"
            for problem in (*found.problems, *(() if self._grows else found.empty))
            if format_of_name(os.path.basename(problem.path)) == MINDSPORE  # another `*.pb`, say, is no fault
        ]
        self._is_converted = self._decide(found)
        if not self._is_converted:
            self.remove_output()
        return self._is_converted

    def convert(self, progress: Callable[[], None]) -> list[str]:
        """Converts what is new.

        Args:
            progress: Called now and then while it goes on.

        Returns:
            What could not be read or written, for a person to know.

        Raises:
            BridgeError: Nothing could be converted.
        """
        try:
            report = self._convert(progress)
        except NoEventsError:  # removed since it was looked at
            return []
        finally:
            self.size = size_of(self.output)
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
        if any(format_of_name(name) != TENSORBOARD for name in gone):  # its points must not stay behind
            clear_directory(self.output)

    def _decide(self, found: Logdir) -> bool:
        """Finds out whether the directory must be converted, and beside what."""
        mindspore = [run for run in found.runs if run.format == MINDSPORE]
        ours = [run for run in (*found.runs, *found.twins) if run.format == TENSORBOARD and run.role != SOURCE]
        if not mindspore or _is_covered(mindspore, [run for run in ours if run.role == LIVE]):
            return False
        self._hidden = frozenset(os.path.basename(file.path) for run in ours for file in run.files)
        others = {name for name in os.listdir(self.view) if format_of_name(name) == TENSORBOARD} - self._hidden
        # One run cannot hold both: TensorBoard's slow loader follows the last file of a run alone.
        self._is_beside = bool(others)
        return True

    def _convert(self, progress: Callable[[], None]) -> Report:
        try:
            report = self._go_on(progress)
            if not any(run.error in _ANEW_NAMES for run in report.failures):
                return report
        except _ANEW:
            pass
        clear_directory(self.output)
        return self._go_on(progress)

    def _go_on(self, progress: Callable[[], None]) -> Report:
        options = ConvertOptions(keep_archive=False, grows=self._grows)
        return convert_logdir(
            self.view, self.output, to="tensorboard", options=options, progress=lambda done, total: progress()
        )

    def _tell(self, report: Report) -> list[str]:
        """Returns a line for each run with trouble."""
        lines = [report.failed] if report.failed else []
        for run in report.runs:
            if run.failed:
                lines.append(run.failed.replace(self.view, self._directory))
            for part in run.damaged[:1]:
                path = os.path.join(self._directory, part.file)
                lines.append(f"{path}: damaged ({part.reason}) from byte {part.start} on, which is passed over")
        return lines

    def remove_output(self) -> None:
        """Forgets what was converted; what is converted later is shown again."""
        self.size = 0
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
