"""Processes: the runs of a conversion in several processes at once, of this machine or of a Dask cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
from multiprocessing import active_children, get_context, parent_process
from typing import Final

from ms_summary_bridge.convert.run import NamedResult, Progress, convert_run
from ms_summary_bridge.convert.state import RunState
from ms_summary_bridge.convert.task import NamedTask, RunTask
from ms_summary_bridge.convert.unread import unread_bytes
from ms_summary_bridge.errors import LogdirError, MissingDependencyError
from ms_summary_bridge.files.system import holding_interrupts
from ms_summary_bridge.runs.report import RunReport, failed_run

__all__ = ["dask_results", "pool_results"]

_IMPLEMENTATION: Final = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
_MOST_PROCESSES: Final = 61  # Windows waits for no more


def pool_results(
    tasks: list[NamedTask], workers: int, advance: Progress, is_stopped: Callable[[], bool]
) -> Iterator[NamedResult]:
    """Yields the results of `workers` processes; the arguments are those of `convert_runs`."""
    # A fresh interpreter for each worker: the caller may hold threads, which a fork would copy in the middle of work.
    # They leave Ctrl-C to this process: its signal mask is theirs, from their first instruction on; on Windows, which
    # has none, from when they have started.
    abandoned: list[NamedTask] = []
    for result in _pool_results(tasks, workers, is_stopped, abandoned):
        advance(unread_bytes(result[1]))
        yield result
    # A worker was killed, by want of memory perhaps, and took all others with it. Each gets a pool of its own now, so
    # that it is known whose fault it was.
    for named in abandoned:
        lost: list[NamedTask] = []
        yield from _pool_results([named], 1, is_stopped, lost)
        for name, task in lost:
            killed = LogdirError(f"{task.run.directory}: the process that converted it was killed")
            yield name, task, *_failed(task, killed)
        advance(unread_bytes(named[1]))


def _pool_results(
    tasks: list[NamedTask], workers: int, is_stopped: Callable[[], bool], abandoned: list[NamedTask]
) -> Iterator[NamedResult]:
    """Yields the results of a pool of processes; the tasks whose process was killed go to `abandoned`."""
    processes = min(workers, len(tasks), _MOST_PROCESSES)
    try:
        pool = ProcessPoolExecutor(processes, get_context("spawn"), _begin_worker)
    except OSError:  # not even the pipes to them can be had
        yield from _results_here(tasks, is_stopped)
        return
    with pool:
        futures: dict[Future[tuple[RunReport, RunState]], NamedTask] = {}
        here: list[NamedTask] = []
        try:
            with holding_interrupts(), _fast_protobuf():
                for name, task in tasks:
                    futures[pool.submit(convert_run, task)] = name, task
        except OSError:  # the system has no process, or no file, for another worker
            here = tasks[len(futures) :]
        except BrokenExecutor:
            abandoned += tasks[len(futures) :]
        for future in _or_end_workers(as_completed(futures)):
            if is_stopped():
                for waiting in futures:
                    waiting.cancel()
            if future.cancelled():
                continue
            name, task = futures[future]
            try:
                yield name, task, *future.result()
            except BrokenExecutor:
                abandoned.append((name, task))
            except Exception as error:  # it cannot be handed over, say
                yield name, task, *_failed(task, error)
        yield from _results_here(here, is_stopped)


def _results_here(tasks: list[NamedTask], is_stopped: Callable[[], bool]) -> Iterator[NamedResult]:
    """Yields the results of this process, for which the system has no other one."""
    for name, task in tasks:
        if not is_stopped():
            yield name, task, *convert_run(task)


def _begin_worker() -> None:
    """Leaves Ctrl-C to the parent, and ends with it: its lock goes when it is killed, and another one may begin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextlib.contextmanager
def _fast_protobuf() -> Iterator[None]:
    """Frees processes started in the block from pure Python protobuf, to which `import mindspore` binds them."""
    implementation = os.environ.pop(_IMPLEMENTATION, None)
    try:
        yield
    finally:
        if implementation is not None:
            os.environ[_IMPLEMENTATION] = implementation


def _failed(task: RunTask, error: Exception) -> tuple[RunReport, RunState]:
    return failed_run(RunReport(task.run.name, task.run.directory, task.destination), error), task.state


def _or_end_workers(
    futures: Iterator[Future[tuple[RunReport, RunState]]],
) -> Iterator[Future[tuple[RunReport, RunState]]]:
    """Passes the futures on; Ctrl-C ends the workers at once, as it would end this process."""
    try:
        yield from futures
    except KeyboardInterrupt:
        for process in active_children():
            process.terminate()
        raise


def dask_results(tasks: list[NamedTask], address: str, advance: Progress) -> Iterator[NamedResult]:
    """Yields the results of a Dask cluster.

    Raises:
        LogdirError: No scheduler answers.
        MissingDependencyError: Dask is not installed.
    """
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
            advance(unread_bytes(task))
            try:
                yield name, task, *future.result()
            except Exception as error:  # the cluster lost the worker, or the worker lacks this package
                yield name, task, *_failed(task, error)
