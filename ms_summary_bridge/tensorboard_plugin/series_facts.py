"""What the dashboard keeps of one tag's series, in bounded memory.

Imports no tensorboard.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ms_summary_bridge.values import Histogram

__all__ = ["NonFinite"]

_MOST_POINTS: Final = 1000  # of one histogram's counts; half are merged with their neighbours when there are more


class NonFinite(msgspec.Struct):
    """How many values of a tag's histograms were NaN or infinite."""

    histograms: int = 0
    affected: int = 0
    """Histograms with at least one such value."""
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0
    first_step: int = 0
    """Of the first affected histogram."""
    last_step: int = 0
    """Of the last histogram, affected or not."""
    points: list[tuple[int, int, int]] = msgspec.field(default_factory=list)
    """`(step, nan, inf)` of affected histograms; the worst of several that were merged."""

    def add(self, step: int, value: Histogram) -> None:
        """Takes one histogram."""
        self.histograms += 1
        self.last_step = step
        infinite = value.pos_inf_count + value.neg_inf_count
        if not value.nan_count and not infinite:
            return
        if not self.affected:
            self.first_step = step
        self.affected += 1
        self.nan += value.nan_count
        self.pos_inf += value.pos_inf_count
        self.neg_inf += value.neg_inf_count
        self.points.append((step, value.nan_count, infinite))
        if len(self.points) > _MOST_POINTS:
            halves = zip(self.points[::2], [*self.points[1::2], (0, 0, 0)], strict=False)
            self.points = [(one[0], max(one[1], two[1]), max(one[2], two[2])) for one, two in halves]
