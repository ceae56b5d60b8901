"""Statistics over ranks, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from ms_summary_bridge.columns.growing import Columns

if TYPE_CHECKING:
    import numpy.typing as npt

    Points: TypeAlias = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64]]
    """Steps, wall times and values of one tag on one rank."""

__all__ = ["STATISTICS", "ByTag", "Carried", "Row", "align", "summarise"]

STATISTICS: Final = ("mean", "min", "max", "std", "median")
"""What is computed, in float64: std is that of the ranks as a whole (divided by their number)."""


class Row(msgspec.Struct, frozen=True):
    """One tag at one step."""

    step: int
    wall_time: float
    """The latest of the ranks'."""
    tag: str
    ranks: int
    """How many ranks have a value of their own here."""
    mean: float
    min: float
    max: float
    std: float
    median: float


class Carried:
    """The last value of each tag on each rank, for steps at which a rank has none."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._last: dict[int, npt.NDArray[np.float64]] = {}
        self._has: dict[int, npt.NDArray[np.bool_]] = {}

    def of(self, tag: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Returns the last values of a tag, and which ranks have one; both are to be brought up to date."""
        if tag not in self._last:
            self._last[tag] = np.full(self._ranks, np.nan)
            self._has[tag] = np.zeros(self._ranks, bool)
        return self._last[tag], self._has[tag]


class ByTag:
    """The rows of one rank by the number of their tag, each in their order."""

    def __init__(self, part: Columns) -> None:
        order = np.argsort(part.tag, kind="stable")
        self.tags, self._starts = np.unique(part.tag[order], return_index=True)
        self._ends = np.append(self._starts[1:], len(order))
        self._steps, self._times, self._values = part.step[order], part.wall_time[order], part.value[order]

    def points(self, tag: int) -> Points | None:
        """Returns the steps, wall times and values of a tag; None where it has none."""
        at = int(np.searchsorted(self.tags, tag))
        if at == len(self.tags) or self.tags[at] != tag:
            return None
        rows = slice(self._starts[at], self._ends[at])
        return self._steps[rows], self._times[rows], self._values[rows]


def align(
    parts: list[Points | None],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Puts the values of one tag beside each other.

    Args:
        parts: Its points on each rank; None for a rank that has none.

    Returns:
        The steps that any rank has, ascending; values and wall times of shape [steps, ranks]; which of them are there.
        Of two values of one rank at one step the later one counts.
    """
    steps = np.unique(np.concatenate([part[0] for part in parts if part is not None]))
    shape = (len(steps), len(parts))
    values, times, has = np.full(shape, np.nan), np.full(shape, -np.inf), np.zeros(shape, bool)
    for rank, part in enumerate(parts):
        if part is None:
            continue
        own, when, what = part
        rows = np.searchsorted(steps, own)
        values[rows, rank], times[rows, rank], has[rows, rank] = what, when, True
    return steps, values, times, has


def summarise(values: npt.NDArray[np.float64], has: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Returns the `STATISTICS` of each row of `[steps, ranks]` values, shape [steps, 5].

    A NaN makes mean, std and median NaN; min and max are those of the other ranks.
    """
    out = np.full((len(values), 5), np.nan)
    with np.errstate(all="ignore"):
        complete = has.all(axis=1)
        if complete.any():
            out[complete] = _summarise(values[complete])
        for row in np.flatnonzero(~complete & has.any(axis=1)).tolist():
            out[row] = _summarise(values[row][has[row]][None])[0]
    return out


def _summarise(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    low, high = np.fmin.reduce(values, axis=1), np.fmax.reduce(values, axis=1)
    median = np.median(values, axis=1)
    return np.stack([values.mean(axis=1), low, high, values.std(axis=1), median], axis=1)
