"""Rules about jumps: a loss far above what it was, and gradients that explode."""

from __future__ import annotations

import math
from collections import deque
from typing import ClassVar, Final

import numpy as np

from ms_summary_bridge.monitor.alarms.rules.rule import Observation, ValueRule, say_number
from ms_summary_bridge.monitor.model.alert import Alert

__all__ = ["GradientExplosion", "RunningSpread", "Spike"]

_REFRESH: Final = 32  # values; the median of a few hundred does not move in fewer, and costs more than all the rest
_RECENT: Final = 5  # of so many values in a row
_NEEDED: Final = 2  # so many must be far off: a single bad batch is not worth an alarm
_AT_ONCE: Final = 5.0  # times the bound: beyond this one value is enough
_LEAST_SHARE: Final = 0.01  # of the median: the least spread that is believed
_GAUSSIAN: Final = 1.4826  # of the median absolute deviation, and
_GAUSSIAN_MEAN: Final = 1.2533  # of the mean one, to the standard deviation of a normal distribution


class RunningSpread:
    """Median and spread of the last values.

    The spread is the greater of two, the median absolute deviation and the mean one: of a loss that is zero in most
    steps the former is zero. A value that is far off is put in as the bound that it passed, so that a jump does not
    hide the next one, and yet a new level is learned.

    `warm_up` is how many values there must be before anything is said.
    """

    def __init__(self, window: int, warm_up: int) -> None:
        self._values = np.zeros(window)
        self._count = 0
        self._warm_up = min(warm_up, window)
        self.median = 0.0
        self.spread = 0.0

    @property
    def is_ready(self) -> bool:
        """Whether there are enough values."""
        return self._count >= self._warm_up

    def add(self, value: float) -> None:
        """Takes a value, which must be finite."""
        self._values[self._count % len(self._values)] = value
        self._count += 1
        if self._count % _REFRESH == 0 or self._count == self._warm_up:
            values = np.sort(self._values[: self._count])
            self.median = float(values[len(values) // 2])
            off = np.abs(values - self.median)
            off.sort()
            spread = max(_GAUSSIAN * float(off[len(off) // 2]), _GAUSSIAN_MEAN * float(off.mean()))
            self.spread = max(spread, _LEAST_SHARE * abs(self.median))


class Spike(ValueRule):
    """A value far above the median of those before it, in terms of their spread.

    With a `reach` it must jump beyond all that the value was so far, by so many times of that. A curriculum, a restart
    of the learning rate and a bad batch jump back as far as the training came from, and recover; 0 to hear of each.
    """

    name: ClassVar[str] = "spike"

    def __init__(
        self, *, metric: str = "loss", factor: float = 12.0, window: int = 300, warm_up: int = 100, reach: float = 3.0
    ) -> None:
        super().__init__(metric)
        self._factor = factor
        self._reach = reach
        self._highest, self._lowest = -math.inf, math.inf
        self._last_far = -math.inf
        self._past = RunningSpread(window, warm_up)
        self._far: deque[int] = deque(maxlen=_NEEDED)  # steps of the last values that were too far
        self._count = 0  # of values
        self._counts: deque[int] = deque(maxlen=_NEEDED)

    def _take(self, point: Observation, value: float) -> Alert | None:
        if not math.isfinite(value):
            return None  # another rule tells of it, and it never enters the window
        self._count += 1
        past = self._past
        if not past.is_ready or past.spread <= 0.0:
            past.add(value)
            self._see(value)
            return None
        excess = value - past.median
        noise = bound = self._factor * past.spread
        if excess > noise and self._reach:
            highest = self._highest
            bound = max(noise, highest - past.median + self._reach * max(abs(highest), highest - self._lowest))
        if excess <= bound:
            past.add(value if excess <= noise else past.median + noise)
            if not self._lowest <= value <= self._highest:
                self._see(value)
            return None
        past.add(past.median + noise)
        self._far.append(point.step)
        self._counts.append(self._count)
        is_again = len(self._counts) == _NEEDED and self._count - self._counts[0] < _RECENT
        last, self._last_far = self._last_far, value
        if not is_again:
            self._see(last)  # it stood alone: the training is such that this comes
            if excess <= _AT_ONCE * bound:
                return None
        return self.alert(
            point,
            self._metric,
            value,
            f"{self._metric} jumped to {say_number(value)}; the median before was {past.median:.6g}",
            "look at the data of these steps, the learning rate and the gradient norm; if it does not come down "
            "again, go back to a checkpoint from before it",
            bound=past.median + bound,
            since=self._far[0] if is_again else point.step,
            median=past.median,
            spread=past.spread,
        )

    def _see(self, value: float) -> None:
        if value > self._highest:
            self._highest = value
        if -math.inf < value < self._lowest:
            self._lowest = value


class GradientExplosion(ValueRule):
    """A gradient norm that is many times its own median.

    Norms are compared as logarithms: they are never negative, and ten times more is as far as ten times less.
    """

    name: ClassVar[str] = "gradient_explosion"

    def __init__(self, *, factor: float = 50.0, window: int = 300, warm_up: int = 100) -> None:
        super().__init__("grad_norm")
        self._factor = factor
        self._past = RunningSpread(window, warm_up)
        self._count = 0  # of values
        self._last: tuple[int, int] | None = None  # number and step of the last value that was too much

    def _take(self, point: Observation, value: float) -> Alert | None:
        if not 0.0 < value < math.inf:
            return None
        self._count += 1
        past = self._past
        if not past.is_ready:
            past.add(math.log(value))
            return None
        median = math.exp(past.median)
        bound = self._factor * median
        if value <= bound:
            past.add(math.log(value))
            return None
        past.add(math.log(bound))
        last, self._last = self._last, (self._count, point.step)
        is_again = last is not None and self._count - last[0] < _RECENT
        if not is_again and value <= _AT_ONCE * bound:
            return None
        return self.alert(
            point,
            "grad_norm",
            value,
            f"the gradient norm is {value:.4g}, {value / median:.3g} times its median of {median:.4g}",
            "clip gradients by their norm, lower the learning rate or lengthen its warm-up, and look at the data of "
            "this step",
            bound=bound,
            since=last[1] if is_again and last is not None else point.step,
            median=median,
        )
