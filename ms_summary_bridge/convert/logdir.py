"""Convert: every run below a source becomes a run of the other format below a destination.

Finds the runs, decides the direction, and has each run converted. What is needed to go on later is in `state`; what was
met is in the `report`.

A conversion may be killed at any moment. So before it writes it makes a plan: up to which byte it reads each file. The
next one first does the same again, and the writers find that the bytes are there already, or complete them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from ms_summary_bridge.convert.destination import prepare_state
from ms_summary_bridge.convert.state import STATE_NAME, Plan, State, is_same_file, locked, save_state
from ms_summary_bridge.convert.task import ConvertOptions, NamedTask, RunTask, make_tasks, relative_path
from ms_summary_bridge.convert.unread import find_growing
from ms_summary_bridge.convert.workers import convert_runs, unread_bytes
from ms_summary_bridge.errors import LogdirError, NoEventsError, UsageError
from ms_summary_bridge.files.arguments import check_choice, check_number, check_path
from ms_summary_bridge.files.event_file import Path
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.runs.logdir import Logdir, Run, discover
from ms_summary_bridge.runs.report import Report, RunReport, failed_run

__all__ = ["Conversion", "check_request", "convert_logdir", "direction_of", "open_conversion", "runs_for"]

_TARGETS: Final = {"tensorboard": mindspore.FORMAT, "mindinsight": tensorboard.FORMAT}
_SAVE_SECS: Final = 5.0
_NAMED: Final = 5  # runs named in a note


def convert_logdir(
    source: Path,
    destination: Path,
    *,
    to: str | None = None,
    options: ConvertOptions | None = None,
    workers: int = 1,
    dask: str | None = None,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Converts every run below `source` into `destination`; again into the same destination adds what is new.

    Args:
        source: A file, a run, a tree of runs, or an fsspec URL.
        destination: A local directory, not a URL; made if missing.
        to: `tensorboard` or `mindinsight`; found from the files when None.
        options: What decides the output.
        workers: Processes; 1 converts in this one.
        dask: Address of a Dask scheduler whose workers see the same paths; used in place of processes.
        force: Start over: removes what earlier conversions wrote here, and nothing else.
        progress: Called with (source bytes read so far, source bytes in all).

    Returns:
        What was read, written, lost and damaged. Errors of single runs are in their reports; so is the error that
        kept what was done from being remembered, in `Report.failed`.

    Raises:
        LogdirError: The source has no event files, or the destination cannot be used.
        UsageError: An argument cannot be so, or contradicts the files or the destination.
        MissingDependencyError: `dask` is asked for and not installed.
    """
    source, destination = check_request(source, destination, to, options, workers, dask)
    found = discover(source)
    target = to or direction_of(found)
    if not runs_for(found, target):
        _refuse_empty(found, source, target)
    with open_conversion(source, destination, found, target, options, workers, dask, force) as conversion:
        return conversion.convert(found, progress=progress)


def check_request(
    source: Path,
    destination: Path,
    to: str | None,
    options: ConvertOptions | None,
    workers: int,
    dask: str | None = None,
) -> tuple[str, str]:
    """Refuses arguments that cannot be so; for what they mean see `convert_logdir`.

    Returns:
        Source and destination as text.

    Raises:
        UsageError: One cannot be so.
    """
    check_choice("to", to, (None, *_TARGETS))
    check_number("workers", workers, 1)
    if dask is not None and (type(dask) is not str or not dask):
        raise UsageError(f"dask: must be the address of a scheduler, not {dask!r}")
    if options is not None and not isinstance(options, ConvertOptions):
        raise UsageError(f"options: must be a ConvertOptions, not {options!r}")
    return check_path("source", source), check_path("destination", destination, is_local=True)


def runs_for(found: Logdir, target: str) -> list[Run]:
    """Returns the runs that can be converted to a target."""
    return [run for run in found.runs if run.format == _TARGETS[target]]


def direction_of(found: Logdir) -> str:
    """Returns the target for what was found: `tensorboard` for MindSpore's files, `mindinsight` for TensorBoard's.

    Raises:
        UsageError: Both kinds are there, and neither is our twin of the other.
    """
    formats = {run.format for run in found.runs if run.role == "source"} or {run.format for run in found.runs}
    targets = [target for target, source_format in _TARGETS.items() if source_format in formats]
    if len(targets) > 1:
        raise UsageError("MindSpore and TensorBoard files are both there: say --to tensorboard or --to mindinsight")
    return targets[0] if targets else "tensorboard"


def _refuse_empty(found: Logdir, source: str, target: str) -> None:
    """Ends a conversion that has no run: harmless when files are there that hold nothing yet."""
    if found.runs:
        kinds = ", ".join(sorted({run.format for run in found.runs}))
        raise UsageError(f"{source}: only {kinds} files are there, nothing to convert to {target}")
    if not found.empty:
        reasons = "".join(f"\n  {problem.path}: {problem.reason}" for problem in found.problems[:10])
        raise NoEventsError(f"{source}: no event files found (names hold 'summary.<seconds>' or 'tfevents'){reasons}")


@contextmanager
def open_conversion(
    source: str,
    destination: str,
    found: Logdir,
    target: str,
    options: ConvertOptions | None = None,
    workers: int = 1,
    dask: str | None = None,
    force: bool = False,
) -> Iterator[Conversion]:
    """Holds a destination for a conversion of what was found first; for the arguments see `Conversion`.

    Raises:
        DestinationBusyError: Another conversion holds the destination.
        LogdirError: It cannot be used.
        OtherConversionError: It holds another conversion than this one.
    """
    options = options or ConvertOptions()
    with locked(destination, is_dry=options.dry_run):
        state, blocked = prepare_state(destination, source, target, runs_for(found, target), options, force)
        yield Conversion(source, destination, target, state, options, workers, dask, blocked)


class Conversion:
    """A conversion that holds its destination, so that it can be gone on with as the source grows.

    Args:
        source: As for `convert_logdir`.
        destination: As for `convert_logdir`.
        target: `tensorboard` or `mindinsight`.
        state: What the destination holds.
        options: What decides the output.
        workers: As for `convert_logdir`.
        dask: As for `convert_logdir`.
        blocked: Runs that cannot be converted, by their directories, with the reason.
    """

    def __init__(
        self,
        source: str,
        destination: str,
        target: str,
        state: State,
        options: ConvertOptions,
        workers: int = 1,
        dask: str | None = None,
        blocked: Mapping[str, LogdirError] | None = None,
    ) -> None:
        self.source = source
        self.destination = destination
        self.target = target
        self._state = state
        self._has_saved = False
        self._save_error = ""
        self._options = options
        self._workers = workers
        self._dask = dask
        self._blocked = dict(blocked or {})

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
        return self._has_saved and not os.path.exists(os.path.join(self.destination, STATE_NAME))

    def _save(self, *, sync: bool = True) -> None:
        if not self._options.dry_run:
            save_state(self.destination, self._state, sync=sync)
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
        """Converts what is new.

        Args:
            found: The source's runs as they are now.
            changed: Only runs with one of these files, and those that wait for something; None for all.
            progress: Called with (source bytes read so far, source bytes in all).
            is_stopped: Asked before each run; when it says so, the other runs are left for the next time.
            is_last: Nothing is left for a next time: of files that grow, too.

        Returns:
            What was met in the runs that were looked at.
        """
        report = self._begin_report(found)
        if self._is_removed():
            report.notes.append(f"{self.destination} was removed, and is made again from the start")
            self._state.runs.clear()
            changed = None
        tasks = make_tasks(
            runs_for(found, self.target), found, self.source, self.destination, self._options, self._state
        )
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
            self._save(sync=False)
        done_runs = self._run(tasks, reports, advance, is_stopped)
        for name, task in tasks:
            if name not in done_runs:  # stopped before it was begun
                task.state.plan = None
        self._save_later()
        report.failed, self._save_error = self._save_error, ""
        report.runs = sorted(reports.values(), key=lambda run: run.run)
        return report

    def _begin_report(self, found: Logdir) -> Report:
        report = Report(self.source, self.destination, self.target)
        report.unreadable = [f"{problem.path}: {problem.reason}" for problem in found.problems]
        report.empty = [file.path for file in found.empty]
        others = [run.name for run in found.runs if run.format != _TARGETS[self.target]]
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
        growing = find_growing(task) if self._options.grows and not is_last else []
        task.state.plan = Plan(ends, self._options.grows, growing)
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
        results = convert_runs(tasks, workers=self._workers, dask=self._dask, advance=advance, is_stopped=is_stopped)
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
