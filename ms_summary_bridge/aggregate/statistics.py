"""Statistics over ranks, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ms_summary_bridge.columns.growing import Columns

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["STATISTICS", "Carried", "Row", "align", "summarise"]

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


def align(
    parts: list[Columns], tag: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Puts the values of one tag beside each other.

    Args:
        parts: The rows of each rank.
        tag: Number of the tag.

    Returns:
        The steps that any rank has, ascending; values and wall times of shape [steps, ranks]; which of them are there.
        Of two values of one rank at one step the later one counts.
    """
    chosen = [(part[2][at], part[3][at], part[4][at]) for part in parts for at in (part[1] == tag,)]
    steps = np.unique(np.concatenate([own for own, _, _ in chosen]))
    shape = (len(steps), len(parts))
    values, times, has = np.full(shape, np.nan), np.full(shape, -np.inf), np.zeros(shape, bool)
    for rank, (own, when, what) in enumerate(chosen):
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
