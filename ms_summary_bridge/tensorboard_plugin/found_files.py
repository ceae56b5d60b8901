"""Which event files belong to which run of the page, and which of them say the same again.

Imports no tensorboard.

`states` finds runs by names alone. Here the heads of files are read as well: who wrote them, and what process they are
of. That takes longer, and is done again only where it may come to something else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from typing import Final

from ms_summary_bridge.errors import NoEventsError
from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.runs.log_files import LIVE, SOURCE
from ms_summary_bridge.runs.logdir import Logdir, Run, discover
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun, ProcessFiles

__all__ = ["FoundFiles", "file_size", "is_below", "modified_time"]

_SHARE: Final = 20
_SHORTEST_SECS: Final = 20.0


class FoundFiles:
    """The event files below a logdir, by run.

    Args:
        source: The logdir.
        clock: Monotonic seconds.

    Attributes:
        others: Runs that have no file to be watched: of a graph file, or of archives alone.
        problems: What could not be read and belongs to no run.
        has_ours: Whether some of the files are MindSpore's, or were written by this package.
    """

    def __init__(self, source: str, clock: Callable[[], float]) -> None:
        self.others: dict[str, PageRun] = {}
        self.problems: list[str] = []
        self.has_ours = False
        self._source = source
        self._clock = clock
        self._parts: dict[Hashable, ProcessFiles] = {}
        self._known: list[PageRun] = []
        self._paths: list[list[str]] = []
        self._waiting: dict[str, int] = {}  # files that were no event file yet, by size
        self._due = float("-inf")

    def is_due(self, runs: Sequence[PageRun]) -> bool:
        """Whether the heads may tell another thing than before."""
        return (
            self._clock() >= self._due
            or [run.paths for run in runs] != self._paths
            or any(file_size(path) != size for path, size in self._waiting.items())
        )

    def find(self) -> Logdir:
        """Reads the heads of all files."""
        began = self._clock()
        try:
            return discover(self._source)
        except NoEventsError:  # it is not there yet, or not now
            return Logdir(self._source, (), (), (), ())
        finally:
            secs = self._clock() - began
            self._due = self._clock() + max(_SHORTEST_SECS, _SHARE * secs)

    def arrange(self, found: Logdir, runs: Sequence[PageRun]) -> None:
        """Gives each run its files."""
        by_path = {os.path.normpath(path): run for run in runs for path in run.paths}
        by_directory = {os.path.normpath(run.directory): run for run in runs}
        parts: dict[Hashable, ProcessFiles] = {}
        of_run: dict[str, list[ProcessFiles]] = {run.key: [] for run in runs}
        others: dict[str, PageRun] = {}
        for one in found.runs:
            owner = next((by_path[path] for path in _paths_of(one) if path in by_path), None)
            owner = owner or by_directory.get(os.path.normpath(one.directory))
            if owner is None:
                key = f"{one.name}:{one.format}"
                owner = others[key] = self.others.get(key) or PageRun(key, one.name, one.directory, is_seen=True)
                owner.paths = [file.path for file in one.sources]
            identity = (
                one.directory,
                one.format,
                one.role,
                one.host,
                one.rank,
                *(file.path for file in one.graph_files),
            )
            part = parts[identity] = self._parts.get(identity) or ProcessFiles(one, [])
            part.run, part.twins = one, []
            of_run.setdefault(owner.key, []).append(part)
        for twin in found.twins:
            beside = [part for part in parts.values() if part.run.directory == twin.directory]
            if twin.role == LIVE and beside:  # the milestones are there alone
                beside[0].twins.append(twin)
        self._parts, self.others = parts, others
        for run in (*runs, *others.values()):
            run.parts = sorted(of_run[run.key], key=lambda part: (part.run.rank or 0, part.run.name))
        self._sort_problems(found, by_path, {**by_directory, **{run.directory: run for run in others.values()}})
        self.has_ours = any(one.format == MINDSPORE or one.role != SOURCE for one in found.runs)
        taken = {path for one in (*found.runs, *found.twins) for path in _paths_of(one)}
        self._waiting = {path: file_size(path) for path in by_path if path not in taken}
        self._paths = [run.paths for run in runs]

    def _sort_problems(self, found: Logdir, by_path: dict[str, PageRun], by_directory: dict[str, PageRun]) -> None:
        own: dict[str, list[str]] = {}
        self.problems = []
        for problem in found.problems:
            if os.path.normpath(problem.path) in by_path:
                continue  # whoever watches it has said so
            run = by_directory.get(os.path.normpath(os.path.dirname(problem.path)))
            if run is not None:
                own.setdefault(run.key, []).append(f"{problem.path}: {problem.reason}")
            elif problem.may_hide_mindspore:
                self.problems.append(f"{problem.path}: {problem.reason}")
        for run in by_directory.values():
            run.problems = own.get(run.key, [])


def _paths_of(run: Run) -> list[str]:
    return [os.path.normpath(file.path) for file in run.sources]


def file_size(path: str) -> int:
    """Returns the size of a file in bytes; -1 where it is gone."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def modified_time(path: str) -> float:
    """Returns when a file was written to, in seconds since the epoch; 0 where it is gone."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory, or below it."""
    path, directory = os.path.normpath(path), os.path.normpath(directory)
    return path == directory or path.startswith(directory.rstrip(os.sep) + os.sep)
