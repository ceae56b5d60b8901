"""A conversion that holds its destination: it has what is new of each run converted, as often as the source grows.

It may be killed at any moment. So before it writes it makes a plan: up to which byte it reads each file. The next one
first does the same again, and the writers find that the bytes are there already, or complete them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from ms_summary_bridge.convert.destination import locked, prepare_state
from ms_summary_bridge.convert.state import STATE_NAME, Plan, State, save_state
from ms_summary_bridge.convert.task import NamedTask, Request, RunTask, make_tasks, relative_path
from ms_summary_bridge.convert.unread import find_growing, is_same_file, unread_bytes
from ms_summary_bridge.convert.workers import convert_runs
from ms_summary_bridge.errors import LogdirError, UsageError
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.runs.log_files import SOURCE
from ms_summary_bridge.runs.logdir import Logdir, Run
from ms_summary_bridge.runs.msprobe import MSPROBE
from ms_summary_bridge.runs.report import Report, RunReport, failed_run

__all__ = ["TARGETS", "Conversion", "direction_of", "open_conversion", "runs_for"]

TARGETS: Final = {"tensorboard": mindspore.FORMAT, "mindinsight": tensorboard.FORMAT}
"""The format of the source for each target."""
_SAVE_SECS: Final = 5.0
_NAMED: Final = 5  # runs named in a note


def runs_for(found: Logdir, target: str) -> list[Run]:
    """Returns the runs that can be converted to a target."""
    return [run for run in found.runs if run.format in (TARGETS[target], MSPROBE)]


def direction_of(found: Logdir) -> str:
    """Returns the target for what was found: `tensorboard` for MindSpore's files, `mindinsight` for TensorBoard's.

    Tables of msprobe go to TensorBoard, unless somebody says where.

    Raises:
        UsageError: Both kinds are there, and neither is our twin of the other.
    """
    formats = {run.format for run in found.runs if run.role == SOURCE} or {run.format for run in found.runs}
    targets = [target for target, source_format in TARGETS.items() if source_format in formats]
    if len(targets) > 1:
        raise UsageError("MindSpore and TensorBoard files are both there: say --to tensorboard or --to mindinsight")
    return targets[0] if targets else "tensorboard"


@contextmanager
def open_conversion(request: Request, found: Logdir, target: str) -> Iterator[Conversion]:
    """Holds a destination for a conversion of what was found first.

    Raises:
        DestinationBusyError: Another conversion holds the destination.
        LogdirError: It cannot be used.
        OtherConversionError: It holds another conversion than this one.
    """
    with locked(request.destination, is_dry=request.options.dry_run):
        yield Conversion(request, target, *prepare_state(request, target, runs_for(found, target)))


class Conversion:
    """A conversion that holds its destination, so that it can be gone on with as the source grows.

    The runs whose directories are in `blocked` cannot be converted, with the reason given there.
    """

    def __init__(self, request: Request, target: str, state: State, blocked: Mapping[str, LogdirError]) -> None:
        self._request = request
        self._target = target
        self._state = state
        self._blocked = blocked
        self._has_saved = False
        self._save_error = ""

    @property
    def is_waiting(self) -> bool:
        """Whether something is to be done though the source stays as it is.

        A run has failed, events are held, or somebody has removed the destination.
        """
        return self.is_holding or any(run.plan for run in self._state.runs.values()) or self._is_removed()

    @property
    def is_holding(self) -> bool:
        """Whether events of a file that may grow wait until it is known whether they are those of a restart."""
        return any(file.is_held for run in self._state.runs.values() for file in run.files.values())

    def _is_removed(self) -> bool:
        return self._has_saved and not os.path.exists(os.path.join(self._request.destination, STATE_NAME))

    def _save(self) -> None:
        if not self._request.options.dry_run:
            save_state(self._request.destination, self._state)
            self._has_saved = True

    def _save_later(self) -> None:
        """Saves what is in the outputs already; where that fails, the next conversion does it again, and compares."""
        self._save_error = ""
        try:
            self._save()
        except LogdirError as error:
            self._save_error = str(error)

    def convert(
        self,
        found: Logdir,
        *,
        changed: Container[str] | None = None,
        progress: Callable[[int, int], None] | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
        is_last: bool = False,
    ) -> Report:
        """Converts what is new of the runs as they are now; returns what was met.

        Args:
            found: All runs of the source.
            changed: Only runs with one of these files, and those that wait for something; None for all.
            progress: As for `convert_logdir`.
            is_stopped: Asked before each run; when it says so, the other runs are left for the next time.
            is_last: Nothing is left for a next time: of files that grow, too.
        """
        report = self._begin_report(found)
        if self._is_removed():
            report.notes.append(f"{self._request.destination} was removed, and is made again from the start")
            self._state.runs.clear()
            changed = None
        request = self._request
        runs = runs_for(found, self._target)
        tasks = make_tasks(runs, found, request.source, request.destination, request.options, self._state)
        for _, task in tasks:
            task.target = self._target
        if changed is not None:
            tasks = [(name, task) for name, task in tasks if _is_concerned(task, changed)]
        total = sum(unread_bytes(task) for _, task in tasks)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, max(total, done))

        reports: dict[str, RunReport] = {}
        for name, task in tasks:
            if task.destination in self._blocked:
                run_report = RunReport(name, task.run.directory, task.destination)
                reports[name] = failed_run(run_report, self._blocked[task.destination])
        tasks = [(name, task) for name, task in tasks if name not in reports]
        self._run([(name, task) for name, task in tasks if task.state.plan], reports, advance, is_stopped)
        tasks = [(name, task) for name, task in tasks if not task.state.plan]
        # Not by `any`, which would end at the first: each task gets its plan.
        if [name for name, task in tasks if self._make_plan(task, is_last=is_last)]:
            self._save()
        done_runs = self._run(tasks, reports, advance, is_stopped)
        for name, task in tasks:
            if name not in done_runs:  # stopped before it was begun
                task.state.plan = None
        self._save_later()
        report.failed, self._save_error = self._save_error, ""
        report.runs = sorted(reports.values(), key=lambda run: run.run)
        return report

    def new_report(self) -> Report:
        """Returns a report in which nothing was met."""
        return Report(self._request.source, self._request.destination, self._target)

    def _begin_report(self, found: Logdir) -> Report:
        report = self.new_report()
        report.unreadable = [f"{problem.path}: {problem.reason}" for problem in found.problems]
        report.empty = [file.path for file in found.empty]
        others = [run.name for run in found.runs if run.format not in (TARGETS[self._target], MSPROBE)]
        if others:
            named = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED} more" if len(others) > _NAMED else "")
            report.notes.append(f"already in the target's format, and left where they are: {named}")
        return report

    def _make_plan(self, task: RunTask, *, is_last: bool) -> bool:
        """Plans how far a run's files are read; returns whether anything of them is new."""
        files = task.state.files
        ends: dict[str, int] = {}
        is_new = False
        for file in (*task.run.sources, *task.live_files):
            path = relative_path(file.path, task.source)
            ends[path] = file.size
            known = files.get(path)
            if known is None or known.offset != file.size:
                is_new = True
            elif not is_new:
                with suppress(LogdirError):  # gone by now: whoever reads it says so
                    is_new = not is_same_file(file.path, file.size, known)
        growing = find_growing(task) if self._request.options.grows and not is_last else []
        task.state.plan = Plan(ends, self._request.options.grows, growing)
        return is_new

    def _run(
        self,
        tasks: list[NamedTask],
        reports: dict[str, RunReport],
        advance: Callable[[int], None],
        is_stopped: Callable[[], bool],
    ) -> set[str]:
        """Converts runs and collects their reports; returns the names of those that were begun."""
        names = set()
        saved = time.monotonic()
        request = self._request
        results = convert_runs(
            tasks, workers=request.workers, dask=request.dask, advance=advance, is_stopped=is_stopped
        )
        for name, task, run_report, run_state in results:
            run_report.run = name
            names.add(name)
            if name in reports:
                reports[name].add(run_report)
            else:
                reports[name] = run_report
            self._state.runs[name] = task.state = run_state
            if time.monotonic() - saved > _SAVE_SECS:
                self._save_later()
                saved = time.monotonic()
        return names


def _is_concerned(task: RunTask, changed: Container[str]) -> bool:
    paths = [file.path for file in (*task.run.sources, *task.live_files)] + [*task.run.archives]
    return (
        task.state.plan is not None
        or any(file.is_held for file in task.state.files.values())
        or any(path in changed for path in paths)
    )
