"""The rule about a loss that has gone wrong: it stays far above the best that it had reached.

The reference is that best, and never what came last: a loss that creeps up, or explodes and stays, cannot become what
it is compared with.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any, ClassVar, Final

import numpy as np

from ms_summary_bridge.monitor.alarms.rules.rule import Level, Observation, ValueRule
from ms_summary_bridge.monitor.model.alert import Alert

__all__ = ["Divergence"]

_BLOCK: Final = 20  # steps; with each block all is looked at anew
_LEAST_VALUES: Final = 4  # of a block, where a value stands for several steps
_GROUP: Final = 4  # blocks of which the median is looked at as well: each part of a window must be above
_SHORT: Final = 5  # blocks of the shorter level, which follows a loss that falls fast
_SURE: Final = 3.5  # standard errors of a median beyond which chance is ruled out
_GAIN_SHARE: Final = 0.05  # of what was gained: a loss near zero is never steady by its own measure
_GROUP_SHARE: Final = 0.7  # of the way to the bound that each group must be past
_LARGE, _LARGE_BLOCKS = 3.0, 12  # so many times the size of all that was before need to last for so many blocks only
_HUGE, _HUGE_BLOCKS = 10.0, 3
_LEARNED: Final = 100  # blocks from which it is known how far a loss swings that swings by nature

_Block = np.ndarray[Any, np.dtype[np.float64]]


class _Range:
    """Between which values the median of some values surely lies, whatever their distribution."""

    def __init__(self, blocks: Sequence[_Block]) -> None:
        values = np.sort(np.concatenate(blocks))
        # How many values are below the median is binomial; so it is bounded by ranks, and no spread need be known.
        off, middle = math.ceil(_SURE * math.sqrt(len(values)) / 2), len(values) // 2
        self.median = float(values[middle])
        self.low, self.high = float(values[max(0, middle - off)]), float(values[min(len(values) - 1, middle + off)])


class Divergence(ValueRule):
    """A loss that stays far above its best: what creeps up over night passes every rule about jumps.

    How long it must stay there depends on how far above it is: a curriculum, a restart of the learning rate and a bad
    stretch of data come down again within some hundred steps.

    With the mode `oscillating`, for a loss that swings by nature as those of GANs and of reinforcement learning do, it
    is compared with how far it swung in its first 2,000 steps.
    """

    name: ClassVar[str] = "divergence"

    def __init__(self, *, metric: str = "loss", share: float = 0.5, window: int = 460, mode: str = "falling") -> None:
        super().__init__(metric)
        self._share = share
        self._swings = mode == "oscillating"
        self._size = max(_HUGE_BLOCKS, math.ceil(window / _BLOCK))
        self._blocks: deque[_Block] = deque(maxlen=max(self._size, _LARGE_BLOCKS))
        self._values: list[float] = []
        self._begin = 0  # step with which the block begins
        self._count = 0  # of blocks
        self._first: float | None = None
        self._best: tuple[float, int] | None = None  # level and step
        self._lowest = math.inf
        self._earlier: Level | None = None

    def recall(self, level: Level) -> None:
        """Learns the best of earlier sessions."""
        self._earlier = level

    def _take(self, point: Observation, value: float) -> Alert | None:
        if not math.isfinite(value):
            return None
        values = self._values
        if not values:
            self._begin = point.step - point.steps
        values.append(value)
        if len(values) < _BLOCK and (len(values) < _LEAST_VALUES or point.step - self._begin < _BLOCK):
            return None
        self._blocks.append(np.array(values))
        self._count += 1
        values.clear()
        if self._first is None:
            self._first = _Range(self._blocks).median
        if self._earlier is not None:
            self._remember(self._earlier)
        found = self._judge(point)
        self._learn(point.step)
        return found

    def _last(self, count: int) -> list[_Block]:
        return list(islice(self._blocks, max(0, len(self._blocks) - count), None))

    def _remember(self, earlier: Level) -> None:
        """Takes the best of earlier sessions, once it is known that this one goes on with their weights."""
        if not earlier.is_known and self._count < _SHORT:
            return
        level = _Range(self._blocks).median
        if earlier.is_known or abs(level - earlier.best) < abs(level - earlier.first):
            self._first = max(earlier.first, earlier.best)
            if self._best is None or earlier.best < self._best[0]:
                self._best = (earlier.best, earlier.step)
        self._earlier = None

    def _learn(self, step: int) -> None:
        if self._swings:
            short = _Range(self._last(_SHORT))
            if self._count <= _LEARNED:
                self._lowest = min(self._lowest, short.low)
                if self._best is None or short.high > self._best[0]:
                    self._best = (short.high, step)
            return
        if self._count > self._size and self._count % _GROUP:
            return  # what falls slowly is looked at less often
        # A lucky stretch of a noisy loss is not its level: what counts is where it surely is at the most.
        level = min(_Range(self._last(_SHORT)).high, _Range(self._last(self._size)).high)
        if self._best is None or level < self._best[0]:
            self._best = (level, step)

    def _judge(self, point: Observation) -> Alert | None:
        if self._best is None or self._first is None:
            return None
        best, step = self._best
        size = max(abs(best), self._first - best)
        rise = max(self._share * abs(best), _GAIN_SHARE * (self._first - best))
        if self._swings:
            rise = size = max(abs(best), abs(self._lowest), best - self._lowest)
        tiers = [(_HUGE_BLOCKS, _HUGE * size)]
        if not self._swings or self._count > _LEARNED:
            tiers = [(self._size, rise), (_LARGE_BLOCKS, _LARGE * size), *tiers]
        for count, excess in tiers:
            blocks = self._last(count)
            if len(blocks) < count:
                continue
            level = _Range(blocks)
            if level.median > best + excess and level.low > best:
                groups = [blocks[max(0, end - _GROUP) : end] for end in range(len(blocks), 0, -_GROUP)]
                medians = [float(np.median(np.concatenate(group))) for group in groups]
                # What is on its way down has been far above at first, and no more in the end.
                if medians[0] > best + excess and min(medians) > best + _GROUP_SHARE * excess:
                    return self._say(point, level.median, best + excess, step)
        return None

    def _say(self, point: Observation, level: float, bound: float, step: int) -> Alert:
        assert self._best is not None
        best = self._best[0]
        what = "the highest level that it had swung to" if self._swings else "its best level"
        return self.alert(
            point,
            self._metric,
            level,
            f"{self._metric} has risen to {level:.6g} and stays there; {what} was {best:.6g} at step {step}",
            "look at the learning rate and the gradient norm, and go back to a checkpoint from before the rise",
            bound=bound,
            since=min(step, point.step),
            best=best,
        )
