"""Convert: every run below a source becomes a run of the other format below a destination.

Layer: run_conversion, logdir, state, report < **convert**.

Finds the runs, decides the direction, and has each run converted: by this process, by several, or by a Dask cluster,
since runs do not know of each other. What is needed to go on later is in `state`; what was met is in the `report`.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
from contextlib import nullcontext, suppress
from multiprocessing import active_children, get_context
from typing import Final

import msgspec

from ms_summary_bridge.archive import LINEAGE, archive_name, make_decoder
from ms_summary_bridge.errors import BridgeError, LogdirError, MissingDependencyError, NoEventsError, UsageError
from ms_summary_bridge.event_file import peek
from ms_summary_bridge.events import FileVersion
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.logdir import LIVE, Logdir, Run, discover
from ms_summary_bridge.report import Report, RunReport
from ms_summary_bridge.run_conversion import (
    ConvertOptions,
    Progress,
    RunTask,
    compile_tags,
    convert_run,
    relative_path,
)
from ms_summary_bridge.run_sink import WRITER_CONVERT
from ms_summary_bridge.state import STATE_NAME, RunState, State, is_same_file, load_state, locked, save_state

__all__ = ["convert_logdir", "direction_of"]

_TARGETS: Final = {"tensorboard": mindspore.FORMAT, "mindinsight": tensorboard.FORMAT}
_SAVE_SECS: Final = 5.0
_NAMED: Final = 5  # runs named in a note

_Result = tuple[RunReport, RunState]


def convert_logdir(
    source: str,
    destination: str,
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
        destination: A local directory; made if missing.
        to: `tensorboard` or `mindinsight`; found from the files when None.
        options: What decides the output.
        workers: Processes; 1 converts in this one.
        dask: Address of a Dask scheduler whose workers see the same paths; used in place of processes.
        force: Start over: removes what earlier conversions wrote here, and nothing else.
        progress: Called with (source bytes read so far, source bytes in all).

    Returns:
        What was read, written, lost and damaged. Errors of single runs are in their reports.

    Raises:
        LogdirError: The source has no event files, or the destination cannot be used.
        UsageError: The request contradicts the files or the destination.
        MissingDependencyError: `dask` is asked for and not installed.
    """
    options = options or ConvertOptions()
    compile_tags(options.tags)
    found = _discover(source)
    target = to or direction_of(found)
    if target not in _TARGETS:
        raise UsageError(f"no such target: {target!r} (tensorboard or mindinsight)")
    runs = [run for run in found.runs if run.format == _TARGETS[target]]
    report = Report(source, destination, target)
    report.unreadable = [f"{problem.path}: {problem.reason}" for problem in found.problems]
    report.empty = [file.path for file in found.empty]
    if not runs:
        _refuse_empty(found, source, target)
    others = [run.name for run in found.runs if run.format != _TARGETS[target]]
    if others:
        named = ", ".join(others[:_NAMED]) + (f" and {len(others) - _NAMED} more" if len(others) > _NAMED else "")
        report.notes.append(f"already in the target's format, and left where they are: {named}")
    with nullcontext() if options.dry_run else locked(destination):
        state = _prepare_state(destination, source, target, runs, options, force)
        tasks = _make_tasks(runs, found, source, destination, options, state)
        _convert_all(tasks, state, report, workers, dask, progress)
    report.runs.sort(key=lambda run: run.run)
    return report


def _discover(source: str) -> Logdir:
    try:
        return discover(source)
    except LogdirError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise NoEventsError(str(error)) from error
        raise


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


def _prepare_state(
    destination: str, source: str, target: str, runs: list[Run], options: ConvertOptions, force: bool
) -> State:
    if force:
        state = State()
        if not options.dry_run:
            _remove_outputs(destination, runs)
    else:
        state = load_state(destination)
    if state.to and state.to != target:
        raise UsageError(f"{destination}: holds a conversion to {state.to}; use another destination or --force")
    if state.options and state.options != options.as_state():
        differing = ", ".join(f"{k} was {v!r}" for k, v in state.options.items() if options.as_state().get(k) != v)
        raise UsageError(f"{destination}: was made with other options ({differing}); use the same, or --force")
    home = _absolute(source)
    if state.source and state.source != home and not any(_knows(state, run, source) for run in runs):
        raise UsageError(
            f"{destination}: holds the conversion of {state.source}; use another destination, or --force to start over"
        )
    state.to, state.source, state.options = target, home, options.as_state()
    return state


def _absolute(source: str) -> str:
    return source if "://" in source else os.path.abspath(source)


def _knows(state: State, run: Run, source: str) -> bool:
    for known in state.runs.values():
        for file in run.sources:
            file_state = known.files.get(relative_path(file.path, source))
            if file_state is not None and is_same_file(file.path, file.size, file_state):
                return True
    return False


def _remove_outputs(destination: str, runs: list[Run]) -> None:
    """Removes what earlier conversions wrote for these runs and those of the state, if it can be read.

    What a file holds says whether it is ours, not its name: the state may be lost, or speak of a file that somebody
    has put into the place of ours.
    """
    known: dict[str, RunState] = {run.name: RunState() for run in runs}
    with suppress(BridgeError):
        known.update(load_state(destination).runs)
    for name, run in sorted(known.items()):
        directory = os.path.join(destination, name)
        heads = {output.name: output.head for output in run.outputs} | {run.lineage: run.lineage_head}
        try:
            files = [file for file in os.listdir(directory) if _is_ours(directory, file, heads.get(file, ""))]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise LogdirError(f"{directory}: cannot be listed: {error.strerror}") from error
        for file in files:
            _remove(os.path.join(directory, file))
    _remove(os.path.join(destination, STATE_NAME))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise LogdirError(f"{path}: cannot be removed: {error.strerror}") from error


def _is_ours(directory: str, name: str, head: str) -> bool:
    """Says whether a file is one that a conversion wrote: it says so itself, or begins as the state remembers."""
    path = os.path.join(directory, name)
    if not os.path.isfile(path) or os.path.islink(path):
        return False
    try:
        first = peek(path).first
        if first is None:
            return False
        if name in (archive_name(mindspore.FORMAT), archive_name(LINEAGE), archive_name(tensorboard.FORMAT)):
            return True
        if not name.startswith(("events.out.tfevents.", "events.out.events.summary.")):
            return False
        if head and hashlib.blake2b(first.payload, digest_size=16).hexdigest() == head:
            return True
        source = (
            tensorboard.FORMAT if "tfevents" in name else LINEAGE if name.endswith("_lineage") else mindspore.FORMAT
        )
        content = make_decoder(source).decode(first.payload).content
    except BridgeError:
        return False
    return isinstance(content, FileVersion) and WRITER_CONVERT in (content.writer, content.version.partition(" ")[2])


def _make_tasks(
    runs: list[Run], found: Logdir, source: str, destination: str, options: ConvertOptions, state: State
) -> list[tuple[str, RunTask]]:
    tasks: dict[str, RunTask] = {}
    owners = {file: name for name, known in state.runs.items() for file in known.files}
    live = {twin.directory: twin.files for twin in found.twins if twin.role == LIVE}
    for run in runs:
        # A run keeps the name it was given first, also when a second rank in its directory would now split it.
        paths = [relative_path(file.path, source) for file in run.sources]
        mine = [owners[path] for path in paths if path in owners]
        name = mine[0] if mine else _target_name(run)
        if name in tasks and mine:  # what was one run looks like two now; its output cannot be divided any more
            tasks[name].run = _joined(tasks[name].run, run)
            continue
        if not mine and name in state.runs and not run.archives:
            name = next(f"{name}_{n}" for n in range(2, len(state.runs) + 3) if f"{name}_{n}" not in state.runs)
        known = state.runs.setdefault(name, RunState())
        directory = destination if name == "." else os.path.join(destination, name)
        tasks[name] = RunTask(run, source, directory, options, known, live.pop(run.directory, ()))
    return list(tasks.items())


def _target_name(run: Run) -> str:
    """Returns where a run goes below the destination.

    MindInsight lists the directories directly below its base, and no deeper, so a nested name is flattened for it:
    `a/b` becomes `a+b`. A name that was flattened so is unfolded on the way back.
    """
    if run.format == tensorboard.FORMAT:
        if run.role == "convert":
            return run.name
        return run.name.replace("~", "~0").replace("+", "~1").replace("/", "+")
    if run.role != "convert":
        return run.name
    return run.name.replace("+", "/").replace("~1", "+").replace("~0", "~")


def _joined(one: Run, other: Run) -> Run:
    return msgspec.structs.replace(
        one,
        files=tuple(sorted((*one.files, *other.files), key=lambda file: file.order)),
        lineage_files=tuple(sorted((*one.lineage_files, *other.lineage_files), key=lambda file: file.order)),
        graph_files=(*one.graph_files, *other.graph_files),
    )


def _convert_all(
    tasks: list[tuple[str, RunTask]],
    state: State,
    report: Report,
    workers: int,
    dask: str | None,
    progress: Callable[[int, int], None] | None,
) -> None:
    total = sum(_unread_bytes(task) for _, task in tasks)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(done, max(total, done))

    saved = time.monotonic()
    for name, task, run_report, run_state in _results(tasks, workers, dask, advance):
        run_report.run = name
        report.runs.append(run_report)
        state.runs[name] = run_state
        if not task.options.dry_run and time.monotonic() - saved > _SAVE_SECS:
            save_state(report.destination, state)
            saved = time.monotonic()
    if tasks and not tasks[0][1].options.dry_run:
        save_state(report.destination, state)


def _unread_bytes(task: RunTask) -> int:
    files = task.state.files
    known = {path: file.offset for path, file in files.items()}
    return sum(max(0, file.size - known.get(relative_path(file.path, task.source), 0)) for file in task.run.sources)


def _results(
    tasks: list[tuple[str, RunTask]], workers: int, dask: str | None, advance: Progress
) -> Iterator[tuple[str, RunTask, RunReport, RunState]]:
    """Yields each task's result as it is done, by this process, by several, or by a Dask cluster."""
    if dask is not None:
        yield from _dask_results(tasks, dask, advance)
        return
    if workers <= 1 or len(tasks) <= 1:
        for name, task in tasks:
            yield name, task, *convert_run(task, advance)
        return
    # A fresh interpreter for each worker: the caller may hold threads, which a fork would copy in the middle of work.
    # They leave Ctrl-C to this process: its signal mask is theirs, from their first instruction on.
    with ProcessPoolExecutor(min(workers, len(tasks)), mp_context=get_context("spawn")) as pool:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            futures = {pool.submit(convert_run, task): (name, task) for name, task in tasks}
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for future in _or_end_workers(as_completed(futures)):
            name, task = futures[future]
            advance(_unread_bytes(task))
            try:
                result = future.result()
            except BrokenExecutor as error:  # a worker was killed, by want of memory perhaps
                report = RunReport(name, task.run.directory, task.destination, failed=f"a worker process died: {error}")
                result = report, task.state
            yield name, task, *result


def _or_end_workers(futures: Iterator[Future[_Result]]) -> Iterator[Future[_Result]]:
    """Passes the futures on; Ctrl-C ends the workers at once, as it would end this process."""
    try:
        yield from futures
    except KeyboardInterrupt:
        for process in active_children():
            process.terminate()
        raise


def _dask_results(
    tasks: list[tuple[str, RunTask]], address: str, advance: Progress
) -> Iterator[tuple[str, RunTask, RunReport, RunState]]:
    try:
        from distributed import Client
        from distributed import as_completed as dask_as_completed
    except ImportError as error:
        raise MissingDependencyError("--dask needs: pip install 'ms_summary_bridge[dask]'") from error
    try:
        client = Client(address, timeout=10)
    except (OSError, ValueError, TimeoutError) as error:
        raise LogdirError(f"{address}: no Dask scheduler answers: {error}") from error
    with client:
        futures = {client.submit(convert_run, task, pure=False): (name, task) for name, task in tasks}
        for future in dask_as_completed(futures):
            name, task = futures[future]
            advance(_unread_bytes(task))
            yield name, task, *future.result()
