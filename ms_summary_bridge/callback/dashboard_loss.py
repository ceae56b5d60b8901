"""The loss under a second tag, where MindInsight's dashboard would draw two metrics of an evaluation in its place.

The dashboard draws the first two scalars of the alphabet (MindInsight 2.3.1: `EventsData.list_tags_by_plugin` sorts
them, and its page takes two). `eval/<metric>` comes before `loss/auto`, and both names are what people look for.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

__all__ = ["DASHBOARD_LOSS", "LOSS", "DashboardLoss"]

LOSS: Final = "loss/auto"
"""The loss, as SummaryCollector calls it."""
DASHBOARD_LOSS: Final = "dashboard/loss"
"""The same numbers, before `eval/` in the alphabet."""
_MOST: Final = 1000  # MindInsight shows no more points of a scalar


class DashboardLoss:
    """Keeps the loss until an evaluation has a second metric; most trainings never need the second tag."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, float, float]] = deque(maxlen=_MOST)
        self._earlier: set[str] = set()
        self.is_needed = False
        """Whether the loss is recorded under both tags from now on."""

    def keep(self, step: int, loss: float) -> None:
        """Remembers the loss of a step that is recorded under its own tag alone."""
        self._kept.append((step, time.time(), loss))

    def note_metrics(self, tags: Iterable[str]) -> Iterator[tuple[int, float, float]]:
        """Takes the scalars of an evaluation; yields (step, wall time, loss) of what is to be recorded now."""
        self._earlier.update(tag for tag in tags if tag < LOSS)
        self.is_needed = len(self._earlier) > 1
        while self.is_needed and self._kept:
            yield self._kept.popleft()
