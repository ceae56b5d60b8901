"""A loss landscape in the form that it is drawn from."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ms_summary_bridge.formats.landscapes.scale import ColourScale

__all__ = ["Array", "LossGrid"]

Array: TypeAlias = npt.NDArray[np.float64]


class LossGrid:
    """Losses over two directions, with the path that a training took and where it ended.

    Args:
        x: `[n]` ascending coordinates, n > 1.
        y: `[m]` likewise.
        z: `[m, n]` losses, one of them finite at least.
        decomposition: How the directions were found, such as "PCA".
        unit: What the points of the path count: "epoch" or "step".

    Attributes:
        path: `[k, 3]` x, y and loss; without points outside of the grid. Empty where there is none.
        intervals: The epoch, or step, of each point of the path.
        end: `[3]` the convergence point, or None.
        is_numbered: Coordinates are numbers of points, since their own do not tell them apart.
    """

    def __init__(self, x: Array, y: Array, z: Array, *, decomposition: str = "", unit: str = "") -> None:
        self.x, self.y, self.z = x, y, z
        self.decomposition = decomposition
        self.unit = unit
        self.path: Array = np.empty((0, 3))
        self.intervals: list[int] = []
        self.end: Array | None = None
        self.is_numbered = False

    def set_path(self, x: Array, y: Array, z: Array, intervals: list[int]) -> None:
        """Takes the points of a path that can be drawn; lists of different lengths give none."""
        z = z.ravel()
        if x.size == y.size == z.size:
            points = np.stack([x, y, z], axis=1)
            inside = self._is_inside(points)
            self.path = points[inside]
            self.intervals = [name for name, is_drawn in zip(intervals, inside, strict=True) if is_drawn]

    def set_end(self, x: Array, y: Array, z: Array) -> None:
        """Takes the convergence point, if it can be drawn."""
        z = z.ravel()
        if x.size == y.size == z.size == 1:
            point = np.stack([x, y, z], axis=1)
            self.end = point[0] if self._is_inside(point)[0] else None

    def _is_inside(self, points: Array) -> npt.NDArray[np.bool_]:
        x, y = points[:, 0], points[:, 1]  # comparisons with NaN are false
        return np.asarray((self.x[0] <= x) & (x <= self.x[-1]) & (self.y[0] <= y) & (y <= self.y[-1]))

    def make_scale(self) -> ColourScale:
        """Returns the scale for everything in the landscape."""
        ends = np.empty(0) if self.end is None else self.end[2:]
        return ColourScale(np.concatenate([self.z.ravel(), self.path[:, 2], ends]))

    def interpolate(self, values: Array, x: Array, y: Array) -> Array:
        """Returns values `[m, n]` at points `[k]` between those of the grid: NaN where a neighbour is."""
        left, right = _between(self.x, x)
        below, up = _between(self.y, y)
        low = values[below, left] * (1 - right) + values[below, left + 1] * right
        high = values[below + 1, left] * (1 - right) + values[below + 1, left + 1] * right
        return np.asarray(low * (1 - up) + high * up, np.float64)

    def resample(self, values: Array, x: Array, y: Array) -> Array:
        """Returns values `[m, n]` on a grid of other axes: the same numbers as `interpolate`, in less time."""
        left, right = _between(self.x, x)
        below, up = _between(self.y, y)
        rows = values[:, left] * (1 - right) + values[:, left + 1] * right
        return np.asarray(rows[below] * (1 - up[:, None]) + rows[below + 1] * up[:, None], np.float64)


def _between(axis: Array, points: Array) -> tuple[npt.NDArray[np.int64], Array]:
    """Returns for each point the number of the one before it on the axis, and how far it is to the next: 0 ... 1."""
    place = np.interp(points, axis, np.arange(axis.size))
    before = np.minimum(place.astype(np.int64), axis.size - 2)
    return before, place - before
