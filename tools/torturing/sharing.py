"""Time that is shared out among things that run side by side: what one does not need, those after it get."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_Result = TypeVar("_Result")


class Shares:
    """The time of some workers, for things with weights.

    Args:
        seconds: That each worker has.
        jobs: Workers.
        weights: Of each thing: what it may take beside the others.
    """

    def __init__(
        self, seconds: float, jobs: int, weights: Mapping[str, float], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._until = clock() + seconds
        self._jobs = jobs
        self._weights = dict(weights)  # of those that have not begun
        self._promised: dict[str, float] = {}  # until when those that run may
        self._lock = threading.Lock()

    def begin(self, name: str) -> float:
        """Returns the seconds that a thing may take from now on."""
        with self._lock:
            now = self._clock()
            running = sum(max(0.0, until - now) for until in self._promised.values())
            free = max(0.0, self._jobs * (self._until - now) - running)
            share = free * self._weights[name] / sum(self._weights.values())
            del self._weights[name]
            share = min(share, max(0.0, self._until - now))
            self._promised[name] = now + share
            return share

    def end(self, name: str) -> None:
        """Says that a thing has ended: what is left of its time is free."""
        with self._lock:
            del self._promised[name]


def run_shared(
    names: Iterable[str],
    do: Callable[[str, float], _Result],
    *,
    seconds: float,
    jobs: int,
    weights: Mapping[str, float],
) -> dict[str, _Result]:
    """Does all, those of the largest weights first and so many at a time; returns what each gave, in the order given.

    Args:
        do: Gets a name and the seconds that it may take.
        weights: 1 for those that are not in it.
    """
    names = [*names]
    shares = Shares(seconds, jobs, {name: weights.get(name, 1.0) for name in names})

    def run(name: str) -> _Result:
        try:
            return do(name, shares.begin(name))
        finally:
            shares.end(name)

    with ThreadPoolExecutor(jobs) as pool:
        ordered = sorted(names, key=lambda name: -weights.get(name, 1.0))
        results = dict(zip(ordered, pool.map(run, ordered), strict=True))
    return {name: results[name] for name in names}
