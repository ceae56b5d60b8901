"""Run workers: whether the runs of a conversion are converted in this process, in several, or on a Dask cluster.

Runs do not know of each other, so the order in which they are done is free.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from ms_summary_bridge.convert.run import NamedResult, Progress, convert_run
from ms_summary_bridge.convert.task import NamedTask
from ms_summary_bridge.convert.unread import unread_bytes

__all__ = ["convert_runs", "count_cores"]

_WORTH_PROCESSES: Final = 32 << 20  # bytes to read; below it one process is done before another has started
_CPU_MAX: Final = "/sys/fs/cgroup/cpu.max"  # of the container, as it is seen from inside


def count_cores() -> int:
    """Returns how many processor cores this process may use: by its affinity, and by the share its container has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        with open(_CPU_MAX, encoding="ascii") as file:
            share, period = file.read().split()
        return max(1, min(cores, -(-int(share) // int(period))))
    except (OSError, ValueError):  # no container, or `max`: no limit
        return cores


def convert_runs(
    tasks: list[NamedTask],
    *,
    workers: int | None = 1,
    dask: str | None = None,
    advance: Progress,
    is_stopped: Callable[[], bool],
) -> Iterator[NamedResult]:
    """Yields each task's result as it is done; for `workers` and `dask` see `convert_logdir`.

    `advance` is called now and then with the number of bytes read since the last call. Once `is_stopped` says so, the
    runs not yet begun are left out.

    Raises:
        LogdirError: No scheduler answers.
        MissingDependencyError: `dask` is asked for and not installed.
    """
    if dask is not None:
        from ms_summary_bridge.convert.processes import dask_results  # here: one run needs none, and they load slowly

        yield from dask_results(tasks, dask, advance)
        return
    is_little = sum(unread_bytes(task) for _, task in tasks) < _WORTH_PROCESSES
    if is_little and (workers is None or any(task.options.grows for _, task in tasks)):
        workers = 1
    elif workers is None:
        workers = count_cores()
    if workers == 1 or len(tasks) <= 1:
        for name, task in tasks:
            if is_stopped():
                return
            yield name, task, *convert_run(task, advance)
        return
    from ms_summary_bridge.convert.processes import pool_results  # as above

    yield from pool_results(tasks, workers, advance, is_stopped)
