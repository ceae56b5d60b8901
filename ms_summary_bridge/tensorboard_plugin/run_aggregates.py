"""What `aggregate` found of the ranks of a run of the page; its shape is in `run_table`.

Imports no tensorboard.
"""

from __future__ import annotations

import glob
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np

from ms_summary_bridge.aggregate.reading import Aggregate, find_aggregate, read_aggregate
from ms_summary_bridge.aggregate.statistics import STATISTICS
from ms_summary_bridge.errors import ReadError
from ms_summary_bridge.tensorboard_plugin.found_files import file_size, is_below, modified_time
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun
from ms_summary_bridge.tensorboard_plugin.run_table import plain

__all__ = ["AggregateReader", "describe_aggregate", "draw_statistics"]

_MOST_KEPT: Final = 8
_MOST_TAGS: Final = 2000
_LINES: Final = ("max", "median", "mean", "min", "std")


class AggregateReader:
    """Finds what `aggregate` wrote of runs, and keeps what was read last."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[object, Aggregate | str]] = OrderedDict()

    def find(self, run: PageRun, runs: Iterable[PageRun]) -> tuple[Aggregate | None, list[str]]:
        """Returns what was computed of a run's ranks, or beside a run that is one of the statistics; None for nothing.

        With it comes what could not be read below the run.

        Args:
            run: The run.
            runs: All runs, below which the statistics may lie.
        """
        problems: list[str] = []
        for path in self._list(run, runs):
            found = self._read(path)
            if isinstance(found, str):
                problems += [found] if is_below(path, run.directory) else []
                continue
            is_own = is_below(run.directory, os.path.dirname(path)) and os.path.basename(run.directory) in STATISTICS
            if is_own or is_below(os.path.realpath(run.directory), os.path.realpath(found.source)):
                return found, problems
        return None, problems

    def _list(self, run: PageRun, runs: Iterable[PageRun]) -> Iterator[str]:
        """Yields files that may be of a run: where it is one of the statistics, beside it, below it, elsewhere."""
        seen: set[str] = set()
        inner = sorted(glob.iglob(os.path.join(glob.escape(run.directory), "*", "")))
        others = (one.directory for one in runs if os.path.basename(one.directory) in STATISTICS)
        for directory in (*map(os.path.dirname, (run.directory, *others)), run.directory, *inner):
            directory = os.path.normpath(directory)
            if directory not in seen and (path := find_aggregate(directory)):
                yield path
            seen.add(directory)

    def _read(self, path: str) -> Aggregate | str:
        mark = file_size(path), modified_time(path)
        kept = self._kept.get(path)
        if kept is None or kept[0] != mark:
            try:
                found: Aggregate | str = read_aggregate(path)
            except ReadError as error:
                found = str(error)
            kept = self._kept[path] = mark, found
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return kept[1]


def describe_aggregate(found: Aggregate) -> dict[str, Any]:
    """Returns what was found of the ranks."""
    bad = {one.rank: one for one in found.first_bad}
    return {
        "path": found.path,
        "tags": sorted(found.statistics)[:_MOST_TAGS],
        "missing": found.missing,
        "ranks": [
            {
                "rank": one.rank,
                "values": one.values,
                "last_step": one.last_step,
                "gaps": one.gaps,
                "last_share": one.last_share,
                "first_bad": msgspec.to_builtins(bad[one.rank]) if one.rank in bad else None,
            }
            for one in found.ranks
        ],
    }


def draw_statistics(found: Aggregate, tag: str, most: int) -> dict[str, Any]:
    """Returns a tag's statistics, in at most so many columns: each of the step at which ranks are farthest apart."""
    if tag not in found.statistics or not len(found.statistics[tag][0]):
        return {"ranks": [], "steps": [], "values": []}
    steps, values = found.statistics[tag]
    spread = values[:, STATISTICS.index("std")]
    spread = np.where(np.isfinite(spread), spread, np.inf)
    starts = np.unique(np.linspace(0, len(steps), min(max(most, 1), len(steps)) + 1).astype(int)[:-1])
    ends = [*starts[1:].tolist(), len(steps)]
    places = [start + int(spread[start:end].argmax()) for start, end in zip(starts.tolist(), ends, strict=True)]
    return {
        "ranks": list(_LINES),
        "steps": steps[starts].tolist(),
        "values": [[plain(value) for value in values[places, STATISTICS.index(name)].tolist()] for name in _LINES],
    }
