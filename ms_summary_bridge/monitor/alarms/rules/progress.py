"""Rules about the way of a loss over many steps: it stands still, or gives back what it had gained."""

from __future__ import annotations

import math
from typing import ClassVar, Final

import numpy as np

from ms_summary_bridge.monitor.alarms.rules import Point, Rule
from ms_summary_bridge.monitor.model.alert import Alert

__all__ = ["Divergence", "NotImproving"]

_GAUSSIAN: Final = 1.4826
_CLEAR: Final = 5.0  # standard errors of a median that count as a difference


class _Blocks:
    """Medians of blocks of steps: one number for many noisy ones.

    Args:
        size: Values of one block.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: list[float] = []
        self.first_step = 0
        self.median = 0.0
        self.error = 0.0
        """How far the median may be off by chance alone."""

    def add(self, value: float, step: int) -> bool:
        """Takes a value; returns whether it ends a block."""
        if not self._values:
            self.first_step = step
        self._values.append(value)
        if len(self._values) < self._size:
            return False
        values = np.array(self._values)
        self._values.clear()
        self.median = float(np.median(values))
        spread = _GAUSSIAN * float(np.median(np.abs(values - self.median)))
        # 1.2533 is the standard error of a median to that of a mean, for normal noise.
        self.error = 1.2533 * spread / math.sqrt(self._size)
        return True


class NotImproving(Rule):
    """A value that has reached no new best for many steps.

    Args:
        metric: Name of the metric.
        patience: How many steps it may take.
        min_delta: By how much a new best must be better.
        mode: Whether less is better, or more.
    """

    name: ClassVar[str] = "not_improving"

    def __init__(
        self, *, metric: str = "loss", patience: int = 10_000, min_delta: float = 0.0, mode: str = "min"
    ) -> None:
        self.metrics = (metric,)
        self._metric = metric
        self._patience = patience
        self._min_delta = min_delta
        self._sign = 1.0 if mode == "min" else -1.0
        # The best of single noisy values is luck: a lucky one would never be reached again.
        self._blocks = _Blocks(max(1, min(100, patience // 10)))
        self._best: tuple[float, int] | None = None

    def observe(self, point: Point) -> Alert | None:
        """See `Rule`."""
        value = point.values.get(self._metric)
        if value is None or point.overflow or not math.isfinite(value):
            return None
        if not self._blocks.add(value, point.step):
            return None
        level = self._sign * self._blocks.median
        if self._best is None or level < self._best[0] - self._min_delta:
            self._best = (level, point.step)
            return None
        best, step = self._best
        passed = point.step - step
        if passed < self._patience:
            return None
        return self.alert(
            point,
            self._metric,
            value,
            f"{self._metric} has not improved for {passed} steps; its best level was {self._sign * best:.6g}",
            "compare with an evaluation: it may have learned what it can; else look at the learning rate and at "
            "whether the data still changes",
            bound=self._sign * best,
            since=step,
        )


class Divergence(Rule):
    """A loss that has given back a part of what it had gained: what creeps up over night passes every spike rule.

    Where a loss began, its best level and where it is now are medians of many steps. So neither its scale nor its sign
    matters, and a loss that never fell cannot be said to rise.

    Args:
        metric: Name of the metric.
        share: Which part of the gain must be lost, 0 to 1.
        window: Steps of one median.
    """

    name: ClassVar[str] = "divergence"

    def __init__(self, *, metric: str = "loss", share: float = 0.5, window: int = 200) -> None:
        self.metrics = (metric,)
        self._metric = metric
        self._share = share
        self._blocks = _Blocks(window)
        self._first: tuple[float, float] | None = None  # level, and how far it may be off
        self._best: tuple[float, float, int] | None = None  # the same, and the step
        self._was_bad = False

    def observe(self, point: Point) -> Alert | None:
        """See `Rule`."""
        value = point.values.get(self._metric)
        if value is None or point.overflow or not math.isfinite(value):
            return None
        blocks = self._blocks
        if not blocks.add(value, point.step):
            return None
        level, error = blocks.median, blocks.error
        if self._first is None or self._best is None:
            self._first, self._best = (level, error), (level, error, point.step)
            return None
        if level < self._best[0]:
            self._best = (level, error, point.step)
        best, best_error, step = self._best
        gain = self._first[0] - best
        noise = _CLEAR * math.hypot(error, best_error)
        is_bad = gain > 2 * _CLEAR * math.hypot(self._first[1], best_error) and level - best > max(
            self._share * gain, noise
        )
        was_bad, self._was_bad = self._was_bad, is_bad
        if not is_bad or not was_bad:  # two medians in a row: a restart of the learning rate comes down again
            return None
        return self.alert(
            point,
            self._metric,
            level,
            f"{self._metric} has risen to {level:.6g} from its best level {best:.6g} at step {step}",
            f"it has lost {min(1.0, (level - best) / gain):.0%} of what it had gained: look at the learning rate and "
            "the gradient norm, and go back to a checkpoint from before the rise",
            bound=best + max(self._share * gain, noise),
            since=step,
            best=best,
        )
