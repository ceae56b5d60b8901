"""Series: what the tags of one run have shown so far, to tell repeats and what goes back.

No I/O.

* A **repeat** is a value with the tag, kind, step and bits of its tag's previous one: SummaryCollector writes the last
  step of an epoch twice.
* A tag that goes **back** inside one file is counted.
* At which steps a series has points is held as runs of even steps, so that `restarts` can ask which points a mark
  would hide. Of a series with very many uneven steps the older ones are held as a range in which any step may have one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor, Value

if TYPE_CHECKING:
    import numpy.typing as npt

    from ms_summary_bridge.batches.histograms import Drawn

__all__ = ["Series", "SeriesKey", "SeriesTable", "keys_of"]

SeriesKey: TypeAlias = tuple[str, str]
"""Kind and tag; the kind and nothing of a whole event (a graph); a count's name and the tag of a histogram that has
values which are not finite, because TensorBoard shows these counts as series of their own."""

_COUNTS: Final = ("nan_count", "pos_inf_count", "neg_inf_count")
_MOST_RUNS: Final = 32
_ROOM: Final = 16 << 20  # bytes of images and tensors that are held for their fingerprints
_Steps: TypeAlias = tuple[int, int, int]  # first, last, stride; with the stride 0 any step from first to last


class Series(msgspec.Struct, array_like=True):
    """One series: its last point, and the steps of its points.

    The last of its runs of even steps is `first`, `first + stride`, ... `step`; it has one point where these are equal.
    """

    step: int
    """Of its last point."""
    fingerprint: bytes
    """Of its last point; empty where no value can be its repeat."""
    file: int
    """Number of the source file that the last point is from."""
    first: int
    stride: int = 0
    closed: list[_Steps] = msgspec.field(default_factory=list)
    """The runs before it, in the order they were written."""

    def turn(self, step: int) -> None:
        """Takes note of a step that does not lie one stride behind the last one."""
        if self.first == self.step and step > self.step:
            self.stride = step - self.step
            return
        self.closed.append((self.first, self.step, self.stride))
        if len(self.closed) > _MOST_RUNS:
            one, other = self.closed[:2]
            self.closed[:2] = [(min(one[0], other[0]), max(one[1], other[1]), 0)]
        self.first, self.stride = step, 0

    def take(self, steps: npt.NDArray[np.int64], ahead: npt.NDArray[np.int64]) -> None:
        """Takes note of many steps as `turn` does one by one; `step` itself is left to the caller.

        Args:
            steps: The steps that follow the last one, in the order they were written; not empty.
            ahead: How far each lies behind the one before it, the first behind the last one.
        """
        if not ahead.all():  # the same step again changes nothing
            steps, ahead = steps[ahead != 0], ahead[ahead != 0]
        count = len(steps)
        if not count:
            return
        changed = np.flatnonzero(ahead[1:] != ahead[:-1]) + 1
        changes = [*changed.tolist(), count]

        def end_of(second: int) -> int:
            """Returns the end of the run whose second step this one could be."""
            return changes[bisect_right(changes, second)] if second < count and ahead[second] > 0 else second

        if self.first == self.step:
            begin = end_of(0)
            self.stride = int(ahead[0]) if begin else self.stride
        else:
            begin = changes[0] if ahead[0] == self.stride else 0
        if begin == count:
            return
        self.closed.append((self.first, int(steps[begin - 1]) if begin else self.step, self.stride))
        if len(changes) > 4 * _MOST_RUNS and (ahead > 0).all():
            before, begin = begin, _pass_over(begin, changed)
            self.closed.append((int(steps[before]), int(steps[begin - 1]), 0))
        while begin < count:
            end = end_of(begin + 1)
            stride = int(ahead[begin + 1]) if end > begin + 1 else 0
            self.closed.append((int(steps[begin]), int(steps[end - 1]), stride))
            begin = end
        self.first, _, self.stride = self.closed.pop()
        if len(self.closed) > _MOST_RUNS:
            merged = self.closed[: 1 - _MOST_RUNS]
            self.closed[: len(merged)] = [(min(run[0] for run in merged), max(run[1] for run in merged), 0)]

    @property
    def highest(self) -> int:
        """The highest step that has a point."""
        return max(last for _, last, _ in self._runs())

    def lowest_from(self, step: int) -> int | None:
        """Returns the lowest step, not below `step`, that has a point; a step below that one where it is not known."""
        lows = [
            first if first >= step else step if not stride else first + -(-(step - first) // stride) * stride
            for first, last, stride in self._runs()
            if last >= step
        ]
        return min(lows, default=None)

    def cut(self, step: int) -> bool:
        """Drops the points at `step` and above; returns whether one is left."""
        runs = [
            (first, min(last, first + (step - 1 - first) // stride * stride if stride else step - 1), stride)
            for first, last, stride in self._runs()
            if first < step
        ]
        if runs:
            *self.closed, (self.first, self.step, self.stride) = runs
            self.fingerprint = b""
        return bool(runs)

    def _runs(self) -> list[_Steps]:
        return [*self.closed, (self.first, self.step, self.stride)]


def _pass_over(begin: int, changes: npt.NDArray[np.int64]) -> int:
    """Returns where a later run of even steps begins, behind which there are enough to make one range of the earlier.

    Behind two equal distances, always, and behind every second one where none are equal, a run begins.

    Args:
        begin: Where a run of rising steps begins: at the first of them, or at the first change.
        changes: Numbers of the steps whose distance is another than that before; many more than runs are held.
    """
    bounds = np.append(0, changes)
    near = len(bounds) - 2 * _MOST_RUNS - 2
    equal = np.flatnonzero(np.diff(bounds[: near + 1]) > 1)
    at = int(equal[-1]) + 1 if len(equal) else int(np.searchsorted(bounds, begin))
    return int(bounds[at + (near - at) // 2 * 2])


class SeriesTable:
    """All series of a run; goes on from the `rows` of an earlier session."""

    def __init__(self, rows: list[tuple[str, str, Series]] | None = None) -> None:
        self._series: dict[SeriesKey, Series] = {(kind, tag): series for kind, tag, series in rows or ()}
        # Last values whose fingerprint is not made yet: it is needed only where a step comes twice, and takes long.
        self._unmarked: dict[SeriesKey, Value | Callable[[SeriesKey], Value]] = {}
        self._held: dict[SeriesKey, int] = {}  # bytes of those that are large
        self._room = _ROOM
        self.file = 0
        """Number of the source file that is being read."""
        self.repeated = 0
        """Values passed over because they repeat their tag's previous one."""
        self.went_back: dict[str, int] = {}
        """How often each tag went back to a lower step inside a file."""

    @property
    def rows(self) -> list[tuple[str, str, Series]]:
        """Everything known, for `SeriesTable(rows)`."""
        for key in tuple(self._unmarked):
            self._mark(key)
        return [(kind, tag, series) for (kind, tag), series in self._series.items()]

    def copy(self) -> SeriesTable:
        """Returns a table that may go another way."""
        replace = msgspec.structs.replace
        return SeriesTable([(*key, replace(series, closed=[*series.closed])) for *key, series in self.rows])  # type: ignore[misc]

    def begin_file(self, number: int) -> None:
        """Says that the values that follow are from the source file with this number."""
        self.file = number

    def observe(self, event: Event, summary: Summary) -> Event | None:
        """Takes note of a summary's values.

        Returns:
            The event without its repeats: the same object when it has none, None when nothing else is left.
        """
        step = event.step
        table = self._series
        file = self.file
        fresh: list[TaggedValue] | None = None  # only made when something repeats
        for index, tagged in enumerate(summary.values):
            value = tagged.value
            series = table.get((value.kind, tagged.tag))
            if type(value) is Scalar:
                fingerprint = value.bits
            elif series is not None and step == series.step:
                self._mark((value.kind, tagged.tag))
                fingerprint = value.fingerprint()
            else:
                is_held = self._hold((value.kind, tagged.tag), value, _bytes_of(value))
                fingerprint = b"" if is_held else value.fingerprint()
            if series is None:
                table[value.kind, tagged.tag] = Series(step, fingerprint, file, step)
            else:
                ahead = step - series.step
                if not ahead:
                    # An envelope with unknown fields is only kept whole, so nothing is taken out of it.
                    if fingerprint == series.fingerprint and event.original is None:
                        self.repeated += 1
                        if fresh is None:
                            fresh = list(summary.values[:index])
                        continue
                elif ahead != series.stride:
                    if ahead < 0 and series.file == file:
                        self.went_back[tagged.tag] = self.went_back.get(tagged.tag, 0) + 1
                    series.turn(step)
                series.step = step
                series.file = file
                series.fingerprint = fingerprint
            if type(value) is Histogram and (value.nan_count or value.pos_inf_count or value.neg_inf_count):
                for key in _counts_of(tagged.tag, value):
                    self._observe_step(key, step)
            if fresh is not None:
                fresh.append(tagged)
        if fresh is None:
            return event
        return Event(event.wall_time, step, Summary(tuple(fresh)), event.format) if fresh else None

    def observe_drawn(self, drawn: Drawn, value_of: Callable[[SeriesKey], Value]) -> bool:
        """Takes note of an event that was not taken apart; False, and no note, where it must be.

        Args:
            drawn: The event.
            value_of: Takes the value of a series out of it.
        """
        step, table, file = drawn.step, self._series, self.file
        found = [table.get((kind, tag)) for kind, tag, _ in drawn.values]
        if any(series is None or series.step == step for series in found):
            return False
        if len(found) > 1 and len({(kind, tag) for kind, tag, _ in drawn.values}) < len(found):
            return False
        for (kind, tag, bits), series in zip(drawn.values, found, strict=True):
            assert series is not None
            ahead = step - series.step
            if ahead != series.stride:
                if ahead < 0 and series.file == file:
                    self.went_back[tag] = self.went_back.get(tag, 0) + 1
                series.turn(step)
            series.step, series.file, series.fingerprint = step, file, bits
            size = len(drawn.payload) if kind == Image.kind else 0
            if kind != Scalar.kind and not self._hold((kind, tag), value_of, size):
                series.fingerprint = value_of((kind, tag)).fingerprint()
        return True

    def find_scalar(self, tag: str) -> Series | None:
        """Returns a series of scalars; None before its first point."""
        return self._series.get((Scalar.kind, tag))

    def observe_whole(self, event: Event) -> None:
        """Takes note of an event other than a summary."""
        self._observe_step((event.content.kind, ""), event.step)

    def _observe_step(self, key: SeriesKey, step: int) -> None:
        series = self._series.get(key)
        if series is None:
            self._series[key] = Series(step, b"", self.file, step)
        elif step != series.step:
            if step - series.step != series.stride:
                series.turn(step)
            series.step = step

    def highest(self, key: SeriesKey) -> int | None:
        """Returns the highest step at which a series has a point; None for a series without points."""
        series = self._series.get(key)
        return None if series is None else series.highest

    def lowest_from(self, step: int) -> dict[SeriesKey, int]:
        """Returns the series with points at `step` or above, each with the lowest such step (`Series.lowest_from`)."""
        lows = ((key, series.lowest_from(step)) for key, series in self._series.items())
        return {key: low for key, low in lows if low is not None}

    def _hold(self, key: SeriesKey, value: Value | Callable[[SeriesKey], Value], size: int) -> bool:
        """Holds a last value, whose fingerprint is made when it is asked for; False where there is no room for it."""
        room = self._room + self._held.pop(key, 0)
        self._unmarked.pop(key, None)
        if is_held := size <= room:
            self._unmarked[key] = value
            self._held[key] = size
            room -= size
        self._room = room
        return is_held

    def _mark(self, key: SeriesKey) -> None:
        """Makes the fingerprint of a last value that has none yet."""
        value = self._unmarked.pop(key, None)
        if value is not None:
            self._room += self._held.pop(key, 0)
            self._series[key].fingerprint = (value(key) if callable(value) else value).fingerprint()

    def _let_go(self) -> None:
        self._unmarked.clear()
        self._held.clear()
        self._room = _ROOM

    def restart(self, step: int) -> None:
        """Forgets the points at `step` and above, which are replaced; what replaces them repeats none of them."""
        self._let_go()
        self._series = {key: series for key, series in self._series.items() if series.cut(step)}

    def forget_repeats(self) -> None:
        """Begins anew with repeats: what comes next is another file in the place of the last one."""
        self._let_go()
        for series in self._series.values():
            series.fingerprint = b""


def keys_of(event: Event) -> Iterator[tuple[SeriesKey, TaggedValue | None]]:
    """Yields the series that an event has a point of, each with its value; without one for a whole event."""
    if not isinstance(event.content, Summary):
        yield (event.content.kind, ""), None
        return
    for tagged in event.content.values:
        yield (tagged.value.kind, tagged.tag), tagged
        if isinstance(tagged.value, Histogram):
            for key in _counts_of(tagged.tag, tagged.value):
                yield key, tagged


def _bytes_of(value: Value) -> int:
    if isinstance(value, Image):
        return sum(map(len, value.encoded))
    return value.array.nbytes if isinstance(value, Tensor) else len(value.payload) if isinstance(value, Opaque) else 0


def _counts_of(tag: str, histogram: Histogram) -> list[SeriesKey]:
    return [(name, tag) for name in _COUNTS if getattr(histogram, name)]
