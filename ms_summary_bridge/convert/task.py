"""Run tasks: what decides a conversion, which runs it is made of, and what each is called in the destination."""

from __future__ import annotations

import os
import posixpath
import re
from typing import Literal

import msgspec

from ms_summary_bridge.convert.names import shorten, target_name
from ms_summary_bridge.convert.state import RunState, State
from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.files.arguments import check_choice
from ms_summary_bridge.files.system import fold_name
from ms_summary_bridge.runs.log_files import LIVE, LogFile
from ms_summary_bridge.runs.logdir import Logdir, Run

__all__ = ["ConvertOptions", "NamedTask", "Request", "RunTask", "compile_tags", "make_tasks", "relative_path"]


class ConvertOptions(msgspec.Struct, frozen=True):
    """What decides the output of a conversion."""

    on_restart: Literal["mark", "latest"] = "mark"
    """`mark` keeps every point and marks where a session begins; `latest` leaves out what a restart superseded."""
    tags: str = ""
    """Regular expression; values whose tag it is not found in are left out. Empty keeps all."""
    keep_archive: bool = True
    dry_run: bool = False
    grows: bool = False
    """The source is being followed: what waits for more of it is not written yet."""

    def __post_init__(self) -> None:
        """Refuses what the command line refuses too.

        Raises:
            UsageError: An option cannot be so.
        """
        check_choice("on_restart", self.on_restart, ("mark", "latest"))
        compile_tags(self.tags)
        for name in ("keep_archive", "dry_run", "grows"):
            check_choice(name, getattr(self, name), (False, True))

    def as_state(self) -> dict[str, str]:
        """The options that a later conversion into the same destination must share."""
        return {"on_restart": self.on_restart, "tags": self.tags, "archive": str(self.keep_archive).lower()}


class Request(msgspec.Struct, frozen=True):
    """What `convert_logdir` or `follow_logdir` was asked for; see there."""

    source: str
    destination: str
    to: str | None
    options: ConvertOptions
    workers: int | None
    dask: str | None = None
    force: bool = False


class RunTask(msgspec.Struct):
    """One run to convert; picklable, so that another process can do it."""

    run: Run
    source: str
    destination: str
    options: ConvertOptions
    state: RunState
    live_files: tuple[LogFile, ...] = ()
    """TensorBoard files that the callback wrote beside the run: of them only what users wrote is taken."""
    full_name: str = ""
    """What the run would be called in the destination, if that were not too long for a file system."""
    target: str = ""
    """`tensorboard` or `mindinsight`."""


NamedTask = tuple[str, RunTask]
"""A task with the name of its run in the destination."""


def relative_path(path: str, source: str) -> str:
    """Returns a file's path below the source, the same wherever the source itself has been moved to."""
    if "://" in source or os.path.isfile(source):
        return path.removeprefix(source.rstrip("/") + "/") if path != source else os.path.basename(path)
    return os.path.relpath(path, source).replace(os.sep, "/")


def compile_tags(tags: str) -> re.Pattern[str] | None:
    """Compiles `ConvertOptions.tags`.

    Raises:
        UsageError: It is not a regular expression.
    """
    try:
        return re.compile(tags) if tags != "" else None
    except (re.error, TypeError) as error:
        raise UsageError(f"tags: {tags!r} is not a regular expression: {error}") from error


def make_tasks(
    runs: list[Run], found: Logdir, source: str, destination: str, options: ConvertOptions, state: State
) -> list[NamedTask]:
    """Returns a task for each of the runs that were found, under the name that it has, or gets, in the destination.

    New runs are entered into the destination's state.
    """
    tasks: dict[str, RunTask] = {}
    owners = {file: name for name, known in state.runs.items() for file in _paths_of(known)}
    taken = {fold_name(name) for name, known in state.runs.items() if _paths_of(known)}
    live = {twin.directory: twin.files for twin in found.twins if twin.role == LIVE}
    emptied = {relative_path(problem.path, source) for problem in found.empty} & owners.keys()
    for run in runs:
        # A run keeps the name it was given first, also when a second rank in its directory would now split it.
        paths = [relative_path(file.path, source) for file in run.sources]
        mine = [owners[path] for path in paths if path in owners]
        full = target_name(run)
        # A file that was cut until it has no event says still whose directory it lies in.
        mine = mine or [owners[path] for path in emptied if _lies_beside(path, paths) and owners[path] == shorten(full)]
        name = mine[0] if mine else shorten(full)
        if name in tasks and mine:  # what was one run looks like two now; its output cannot be divided any more
            tasks[name].run = _joined(tasks[name].run, run)
            continue
        if not mine and fold_name(name) in taken and not run.archives:
            others = (f"{full}_{n}" for n in range(2, len(taken) + 3))
            full = next(other for other in others if fold_name(shorten(other)) not in taken)
            name = shorten(full)
        taken.add(fold_name(name))
        known = state.runs.setdefault(name, RunState())
        directory = destination if name == "." else os.path.join(destination, name)
        tasks[name] = RunTask(run, source, directory, options, known, live.pop(run.directory, ()))
        tasks[name].full_name = full if name not in (full, ".") and name == shorten(full) else ""
    return list(tasks.items())


def _lies_beside(path: str, paths: list[str]) -> bool:
    return posixpath.dirname(path) in map(posixpath.dirname, paths)


def _paths_of(state: RunState) -> list[str]:
    return [*state.files, *(state.plan.ends if state.plan is not None else ())]


def _joined(one: Run, other: Run) -> Run:
    return msgspec.structs.replace(
        one,
        files=tuple(sorted((*one.files, *other.files), key=lambda file: file.order)),
        lineage_files=tuple(sorted((*one.lineage_files, *other.lineage_files), key=lambda file: file.order)),
        graph_files=(*one.graph_files, *other.graph_files),
    )
