"""Two legs measured in turn, and what comes of it.

The machine may be shared and its speed may change from one minute to the next; so the two legs alternate, each pair
gives one ratio, and the median of the ratios counts.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

Leg: TypeAlias = Callable[[], object]


class Seconds(msgspec.Struct, frozen=True):
    """How long one leg took."""

    wall: float
    cpu: float
    """Processor time of the whole process, that of background threads included."""


class Pairs(msgspec.Struct):
    """How long two legs took, pair by pair."""

    ours: list[Seconds]
    theirs: list[Seconds]

    @property
    def ratios(self) -> list[float]:
        """How many times faster ours was, in each pair."""
        return [theirs.wall / ours.wall for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def cpu_ratios(self) -> list[float]:
        """How many times less processor time ours took, in each pair."""
        return [theirs.cpu / ours.cpu for ours, theirs in zip(self.ours, self.theirs, strict=True)]


class Spread(msgspec.Struct):
    """The least, the middle and the greatest of some numbers."""

    min: float
    median: float
    max: float

    def __str__(self) -> str:
        return f"{self.min:.2f} / {self.median:.2f} / {self.max:.2f}"


def spread(numbers: list[float]) -> Spread:
    """Returns the spread of the numbers."""
    return Spread(min(numbers), statistics.median(numbers), max(numbers))


def measure(leg: Leg) -> Seconds:
    """Runs a leg once, with nothing left to collect from what ran before."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    leg()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def measure_pairs(ours: Leg, theirs: Leg, pairs: int, note: Callable[[str], Any]) -> Pairs:
    """Runs the legs in turn: ours, theirs, ours, theirs, ..."""
    result = Pairs([], [])
    for number in range(pairs):
        result.ours.append(measure(ours))
        result.theirs.append(measure(theirs))
        note(f"pair {number + 1}: {result.ours[-1].wall:.2f} s against {result.theirs[-1].wall:.2f} s")
    return result
