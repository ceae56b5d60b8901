"""Curves of tags, read from the files when somebody asks for them; their shape is in `run_table`.

Imports no tensorboard.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np

from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.columns.growing import GrowingColumns, keep_newest
from ms_summary_bridge.columns.read import iter_items
from ms_summary_bridge.events import FileVersion
from ms_summary_bridge.monitor.sinks.journal import read_journal
from ms_summary_bridge.runs.logdir import Run
from ms_summary_bridge.runs.reading import RunReading
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun

if TYPE_CHECKING:
    import numpy.typing as npt

    Curve: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]

__all__ = ["CurveReader", "CurveSource", "draw_ranks", "read_journal_curve", "read_run_curve", "thin_curve"]

_CHUNK_BYTES: Final = 1 << 20
_MOST_KEPT: Final = 64
_MOST_POINTS: Final = 5000
_NONFINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class CurveSource(NamedTuple):
    """Where the curve of a tag is read."""

    mark: object
    """Is another where the curve may be."""
    tag: str
    run: Run | None
    journal: str
    """Path of a journal, where it is in no event file."""

    def read(self) -> Curve:
        """Reads it. Raises as `read_run_curve`."""
        if self.run is not None:
            return read_run_curve(self.run, self.tag)
        return read_journal_curve(self.journal, self.tag)


class CurveReader:
    """Reads curves, and keeps the last ones in as many points as they were asked for."""

    def __init__(self) -> None:
        self._kept: OrderedDict[object, dict[str, Any]] = OrderedDict()

    def find(self, run: PageRun, tag: str) -> CurveSource | None:
        """Returns where a run has a tag's curve; None where it has none."""
        main = run.main
        for part in run.parts:
            if part.facts is main and tag in main.scalars:
                return CurveSource((run.key, main.changes), tag, part.run, "")
        for journal in reversed(run.journals):
            if tag in journal.scalars:
                return CurveSource((run.key, journal.changes), tag, None, journal.path)
        return None

    def find_ranks(self, run: PageRun, tag: str) -> dict[int, CurveSource]:
        """Returns the same of each rank: in event files, else in the journals of the ranks."""
        own = [part for part in run.parts if tag in part.facts.scalars]
        if len(own) > 1 or not run.rank_journals:
            return {part.run.rank or 0: CurveSource(None, tag, part.run, "") for part in own}
        return {rank: CurveSource(None, tag, None, path) for rank, path in run.rank_journals.items()}

    def read(self, source: CurveSource, most: int) -> dict[str, Any]:
        """Returns a curve in at most about so many points. Raises as `read_run_curve`."""
        key = source.mark, source.tag, most
        kept = self._kept.get(key)
        if kept is None:
            kept = _plain_curve(thin_curve(source.read(), min(max(most, 2), _MOST_POINTS)))
            self._kept[key] = kept
            while len(self._kept) > _MOST_KEPT:
                with contextlib.suppress(KeyError):  # another question was faster
                    self._kept.popitem(last=False)
        return kept

    def read_ranks(self, sources: dict[int, CurveSource], most: int) -> dict[str, Any]:
        """Returns the heat map of curves. Raises as `read_run_curve`."""
        return draw_ranks({rank: source.read() for rank, source in sources.items()}, min(most, _MOST_POINTS))


def read_run_curve(run: Run, tag: str) -> Curve:
    """Returns steps, wall times and values of a tag's scalars in a run's event files, in the order of writing.

    Raises:
        LogdirError: A file cannot be read.
    """
    columns = GrowingColumns(lambda other: other == tag)
    starts: list[int] = []
    for item in iter_items(run, RunReading(), chunk_bytes=_CHUNK_BYTES):
        if isinstance(item, Batch):
            columns.add_batch(item)
        elif isinstance(item.content, FileVersion):
            starts.append(columns.rows)
        else:
            columns.add_event(item)
    found = keep_newest(columns.take(), starts)
    return found.step, found.wall_time, found.value


def read_journal_curve(path: str, metric: str) -> Curve:
    """Returns the same of a metric in the samples of a journal.

    Raises:
        LogdirError: It cannot be read.
    """
    points: list[tuple[int, float, float]] = []
    for line in read_journal(path):
        values, others = line.get("values"), line.get("nonfinite")
        if line.get("kind") != "sample" or not isinstance(values, dict) or metric not in values:
            continue
        value = values[metric]
        if value is None and isinstance(others, dict):
            value = _NONFINITE.get(str(others.get(metric)))
        if isinstance(value, int | float) and isinstance(line.get("step"), int):
            points.append((line["step"], float(line.get("wall_time") or 0.0), float(value)))
    steps, times, values = zip(*points, strict=True) if points else ((), (), ())
    return np.array(steps, np.int64), np.array(times, np.float64), np.array(values, np.float64)


def thin_curve(curve: Curve, most: int) -> Curve:
    """Returns at most about so many points: of each part the lowest, the highest, and one that is not finite."""
    values = curve[2]
    if len(values) <= most:
        return curve
    chosen: list[int] = [0, len(values) - 1]
    edges = np.linspace(0, len(values), max(most // 2, 1) + 1).astype(int)
    for start, end in itertools.pairwise(edges.tolist()):
        part = values[start:end]
        finite = np.isfinite(part)
        if not finite.all():
            chosen.append(int(start + np.flatnonzero(~finite)[0]))
        if finite.any():
            chosen.append(int(start + np.where(finite, part, np.inf).argmin()))
            chosen.append(int(start + np.where(finite, part, -np.inf).argmax()))
    kept = np.unique(chosen)
    return curve[0][kept], curve[1][kept], values[kept]


def _plain_curve(curve: Curve) -> dict[str, Any]:
    """Returns a curve for strict JSON; null where a value is not finite."""
    values = [value if math.isfinite(value) else None for value in curve[2].tolist()]
    return {"steps": curve[0].tolist(), "times": curve[1].tolist(), "values": values}


def draw_ranks(curves: dict[int, Curve], most: int) -> dict[str, Any]:
    """Returns the heat map of a tag, rank by step, in at most so many columns.

    Args:
        curves: Those of each rank; of two points at one step the one written last counts.
        most: Columns.
    """
    ranks = sorted(rank for rank, curve in curves.items() if len(curve[0]))
    steps = np.unique(np.concatenate([curves[rank][0] for rank in ranks])) if ranks else np.empty(0, np.int64)
    if not len(steps):
        return {"ranks": [], "steps": [], "values": []}
    there = np.zeros((len(ranks), len(steps)), bool)
    values = np.full((len(ranks), len(steps)), np.nan)
    for row, rank in enumerate(ranks):
        places = np.searchsorted(steps, curves[rank][0])
        there[row, places] = True
        values[row, places] = curves[rank][2]
    finite = np.isfinite(values)
    middle = np.zeros(len(steps))
    known = finite.any(axis=0)
    middle[known] = np.nanmedian(np.where(finite, values, np.nan)[:, known], axis=0)
    with np.errstate(invalid="ignore"):
        distance = np.where(finite, np.abs(values - middle), np.where(there, np.inf, -1.0))
    starts = np.unique(np.linspace(0, len(steps), min(max(most, 1), len(steps)) + 1).astype(int)[:-1])
    drawn: list[list[Any]] = [[] for _ in ranks]
    for start, end in zip(starts, [*starts[1:], len(steps)], strict=True):
        for row, place in enumerate((start + distance[:, start:end].argmax(axis=1)).tolist()):
            value = float(values[row, place])
            shown: Any = value if math.isfinite(value) else str(value)
            drawn[row].append(shown if there[row, place] else None)
    return {"ranks": ranks, "steps": steps[starts].tolist(), "values": drawn}
