"""Columns that grow: scalars gathered from events and batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.values import Scalar

if TYPE_CHECKING:
    import numpy.typing as npt


__all__ = ["Columns", "GrowingColumns", "join_columns", "keep_newest"]

_TYPES: Final = (np.int32, np.int32, np.int64, np.float64, np.float64)
_GATHERED: Final = 50_000  # scalars that are held as Python objects


class Columns(NamedTuple):
    """Scalars as columns of one length."""

    run: npt.NDArray[np.int32]
    """Number of the run."""
    tag: npt.NDArray[np.int32]
    """Number of the tag."""
    step: npt.NDArray[np.int64]
    wall_time: npt.NDArray[np.float64]
    value: npt.NDArray[np.float64]


class GrowingColumns:
    """The columns as they grow.

    Args:
        is_wanted: Whether scalars with a tag are kept.

    Attributes:
        tags: The tags met, in the order of their numbers.
        rows: Scalars kept so far.
    """

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        self.tags: list[str] = []
        self.rows = 0
        self._is_wanted = is_wanted
        self._codes: dict[str, int] = {}
        self._run = 0
        self._single: list[tuple[int, int, int, float, float]] = []
        self._parts: list[Columns] = []

    def begin_run(self, number: int) -> None:
        """Says which run the rows that follow are of."""
        self._gather()
        self._run = number

    def add_event(self, event: Event) -> None:
        """Adds the scalars of an event."""
        if not isinstance(event.content, Summary):
            return
        for tagged in event.content.values:
            if isinstance(tagged.value, Scalar) and not tagged.derived:
                code = self.code(tagged.tag)
                if code >= 0:
                    self._single.append((self._run, code, event.step, event.wall_time, tagged.value.value))
                    self.rows += 1
        if len(self._single) >= _GATHERED:
            self._gather()

    def add_batch(self, batch: Batch) -> None:
        """Adds the rows of a batch: those of an event one behind the other."""
        self._gather()
        scan, first, count = batch.scan, batch.first, batch.events
        sizes = np.zeros(count, np.int64)
        parts = []
        for group, part in batch.groups():
            rows = group.rows[part] - first
            codes = np.array([self.code(tag) for tag in group.form.shape.tags], np.int32)
            sizes[rows] = len(codes)
            parts.append((rows, codes, group.floats[part]))
        ends = np.cumsum(sizes)
        total = int(ends[-1])
        tags = np.empty(total, np.int32)
        bits = np.empty(total, np.uint32)
        for rows, codes, floats in parts:
            places = (ends[rows] - len(codes))[:, None] + np.arange(len(codes))
            tags[places] = codes
            bits[places] = floats
        rows = np.repeat(np.arange(count), sizes) if total != count else np.arange(count)
        steps, times = scan.steps[first : batch.last][rows], scan.wall_times[first : batch.last][rows]
        with np.errstate(invalid="ignore"):  # a signalling NaN
            values = bits.view(np.float32).astype(np.float64)
        if (tags < 0).any():
            kept = tags >= 0
            tags, steps, times, values = tags[kept], steps[kept], times[kept], values[kept]
        self._parts.append(Columns(np.full(len(tags), self._run, np.int32), tags, steps, times, values))
        self.rows += len(tags)

    def take(self) -> Columns:
        """Returns the rows that came since the last call, and lets go of them."""
        self._gather()
        parts, self._parts = self._parts, []
        return join_columns(parts)

    def code(self, tag: str) -> int:
        """Returns the number of a tag, a new one where it was not met before; -1 where it is not wanted."""
        code = self._codes.get(tag)
        if code is None:
            if self._is_wanted(tag):
                code = len(self.tags)
                self.tags.append(tag)
            else:
                code = -1
            self._codes[tag] = code
        return code

    def _gather(self) -> None:
        if self._single:
            runs, tags, steps, times, values = zip(*self._single, strict=True)
            self._parts.append(
                Columns(
                    np.array(runs, np.int32),
                    np.array(tags, np.int32),
                    np.array(steps, np.int64),
                    np.array(times, np.float64),
                    np.array(values, np.float64),
                )
            )
            self._single.clear()


def join_columns(parts: list[Columns]) -> Columns:
    """Puts columns below each other."""
    columns = list(zip(*parts, strict=True)) if parts else [()] * 5
    return Columns(
        *(
            np.concatenate(column) if column else np.empty(0, dtype)
            for column, dtype in zip(columns, _TYPES, strict=True)
        )
    )


def keep_newest(points: Columns, starts: Sequence[int]) -> Columns:
    """Returns points without those that a training replaces which began after them, in a file of its own.

    As in TensorBoard a series loses what is at the first step of the newer one or behind it. An evaluation, which has
    one point, replaces none, nor does a writer that writes at the same time.

    Args:
        points: Of one run, in the order of writing.
        starts: How many of them stand before each of the files.
    """
    if len({*starts} - {0, len(points.step)}) == 0:
        return points
    kept = np.ones(len(points.step), bool)
    order = np.argsort(points.tag, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(points.tag[order])) + 1):
        steps, times = points.step[places], points.wall_time[places]
        for start, end in itertools.pairwise([*np.searchsorted(places, starts), len(places)]):
            if start and end - start > 1 and times[start:end].min() >= times[:start].max():
                kept[places[:start]] &= steps[:start] < steps[start:end].min()
    return Columns(*(column[kept] for column in points))
