"""What the page keeps of one tag's series, in bounded memory.

Imports no tensorboard.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from ms_summary_bridge.values import Histogram

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["NonFinite", "ScalarFacts", "Sparkline"]

_MOST_POINTS: Final = 1000  # of one series' counts; half are merged with their neighbours when there are more
_SPARK_POINTS: Final = 64


class NonFinite(msgspec.Struct):
    """How many values of a tag were NaN or infinite: of its histograms, or of its scalars themselves."""

    total: int = 0
    affected: int = 0
    """Points with at least one such value."""
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0
    first_step: int = 0
    """Of the first affected point."""
    last_step: int = 0
    """Of the last point, affected or not."""
    points: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    """`(step, nan, inf)` of affected points; the worst of several that were merged."""

    def add_histogram(self, step: int, value: Histogram) -> None:
        """Takes one histogram."""
        self.total += 1
        self.last_step = step
        self.add(step, value.nan_count, value.pos_inf_count, value.neg_inf_count)

    def add(self, step: int, nan: int, pos_inf: int, neg_inf: int) -> None:
        """Takes what one point, which has been counted, has of them."""
        if not nan and not pos_inf and not neg_inf:
            return
        if not self.affected:
            self.first_step = step
        self.affected += 1
        self.nan += nan
        self.pos_inf += pos_inf
        self.neg_inf += neg_inf
        self.points.append((step, nan, pos_inf + neg_inf))
        if len(self.points) > _MOST_POINTS:
            halves = zip(self.points[::2], [*self.points[1::2], (0, 0, 0)], strict=False)
            self.points = [(one[0], max(one[1], two[1]), max(one[2], two[2])) for one, two in halves]


class ScalarFacts(msgspec.Struct):
    """The points of one tag's scalars."""

    last: float = math.nan
    """The one written last, and its step and wall time."""
    last_step: int = 0
    last_time: float = 0.0
    first_step: int | None = None
    min: float = math.inf
    min_step: int = 0
    max: float = -math.inf
    max_step: int = 0
    sum: float = 0.0
    """Of those that are finite."""
    nonfinite: NonFinite = msgspec.field(default_factory=NonFinite)

    @property
    def count(self) -> int:
        """How many there are."""
        return self.nonfinite.total

    def add(
        self, steps: npt.NDArray[np.int64], times: npt.NDArray[np.float64], values: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Takes points in the order in which they were written, at least one; returns steps and values of new ones.

        What repeats the point before it is none: MindSpore writes the last step of an epoch twice.
        """
        kept = np.empty(len(steps), bool)
        kept[0] = self.first_step is None or not (steps[0] == self.last_step and _is_same(values[0], self.last))
        kept[1:] = (steps[1:] != steps[:-1]) | ~_is_same(values[1:], values[:-1])
        steps, times, values = steps[kept], times[kept], values[kept]
        if not len(steps):
            return steps, values
        if self.first_step is None:
            self.first_step = int(steps[0])
        self.last, self.last_step, self.last_time = float(values[-1]), int(steps[-1]), float(times[-1])
        self.nonfinite.total += len(values)
        self.nonfinite.last_step = self.last_step
        finite = np.isfinite(values)
        for step, value in zip(steps[~finite].tolist(), values[~finite].tolist(), strict=True):
            self.nonfinite.add(step, int(value != value), int(value > 0), int(value < 0))
        if finite.any():
            lows, highs = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
            low, high = int(lows.argmin()), int(highs.argmax())
            self.widen(float(values[low]), int(steps[low]))
            self.widen(float(values[high]), int(steps[high]))
            self.sum += float(values[finite].sum())
        return steps, values

    def widen(self, value: float, step: int) -> None:
        """Takes an extreme: a point, or what is known of points that were not written each by itself."""
        if value < self.min:
            self.min, self.min_step = value, step
        if value > self.max:
            self.max, self.max_step = value, step

    def plain(self) -> dict[str, Any]:
        """Returns the numbers; null for an extreme or a mean where nothing was finite."""
        finite = self.count - self.nonfinite.affected
        return {
            "count": self.count,
            "nonfinite": self.nonfinite.affected,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "last": self.last if math.isfinite(self.last) else str(self.last),
            "min": self.min if finite else None,
            "min_step": self.min_step if finite else None,
            "max": self.max if finite else None,
            "max_step": self.max_step if finite else None,
            "mean": self.sum / finite if finite and math.isfinite(self.sum) else None,
        }


class Sparkline:
    """A curve in at most 64 points, each the mean of as many points one after the other."""

    def __init__(self) -> None:
        self._size = 1
        self._points: list[tuple[int, float | None]] = []
        self._open: tuple[int, float, int, int] | None = None  # step, sum, finite ones, all

    def add(self, steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64]) -> None:
        """Takes points in the order in which they were written."""
        for step, value in zip(steps.tolist(), values.tolist(), strict=True):
            first, total, finite, count = self._open or (step, 0.0, 0, 0)
            is_finite = math.isfinite(value)
            self._open = first, total + value if is_finite else total, finite + is_finite, count + 1
            if count + 1 == self._size:
                self._close()

    def _close(self) -> None:
        assert self._open is not None
        step, total, finite, _ = self._open
        self._open = None
        self._points.append((step, total / finite if finite else None))
        if len(self._points) == _SPARK_POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=True)
            self._points = [(one[0], _mean(one[1], two[1])) for one, two in pairs]
            self._size *= 2

    def replace(self, step: int) -> None:
        """Forgets the points at and behind a step, since a training that began again replaces them."""
        if self._open is not None and self._open[0] >= step:
            self._open = None
        self._points = [point for point in self._points if point[0] < step]
        if not self._points and self._open is None:
            self._size = 1

    def plain(self) -> list[tuple[int, float | None]]:
        """Returns `(step, value)`; null where none was finite. So small a line shows no more than four digits."""
        points = list(self._points)
        if self._open is not None:
            step, total, finite, _ = self._open
            points.append((step, total / finite if finite else None))
        return [(step, None if value is None else float(f"{value:.4g}")) for step, value in points]


def _is_same(one: Any, two: Any) -> Any:
    return (one == two) | ((one != one) & (two != two))


def _mean(one: float | None, two: float | None) -> float | None:
    if one is None or two is None:
        return two if one is None else one
    return one / 2 + two / 2
