"""From a loss to a height and a colour: the scale that both drawings of a landscape share."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["ColourScale", "colours_of", "nice_ticks"]

_WIDE: Final = 1e3  # from this ratio on a linear scale shows the largest losses alone
_TICKS: Final = 10

# From the lowest loss to the highest: dark to light, so that it also reads without colour.
_COLOURS: Final = np.array(
    [[42, 22, 96], [48, 66, 148], [32, 118, 160], [30, 160, 140], [110, 196, 94], [200, 218, 60], [254, 240, 110]],
    np.float64,
)


class ColourScale:
    """Maps losses to 0 (lowest) ... 1 (highest): evenly, or by their logarithm where they span too much for that.

    Args:
        losses: Everything that is going to be drawn, at least one of it finite.
    """

    def __init__(self, losses: npt.NDArray[np.float64]) -> None:
        finite = losses[np.isfinite(losses)]
        self.low, self.high = float(finite.min()), float(finite.max())
        size = np.abs(finite)
        with np.errstate(over="ignore"):
            middle = max(float(np.median(size)), 1.0)
        self.kind = "linear"
        if self.low > 0 and self.high / self.low >= _WIDE:
            self.kind = "logarithmic"
        elif not math.isfinite(self.high - self.low) or size.max() >= _WIDE * middle:
            self.kind = "signed logarithmic"
        self._from, self._to = (float(self._bend(np.float64(end))) for end in (self.low, self.high))

    def _bend(self, losses: Any) -> Any:
        if self.kind == "logarithmic":
            return np.log10(losses)
        if self.kind == "signed logarithmic":
            return np.sign(losses) * np.log10(1 + np.abs(losses))
        return losses

    def fractions(self, losses: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns the place of each loss, NaN for one that is not finite, 0.5 everywhere when all are equal."""
        known = np.where(np.isfinite(losses), losses, np.nan)
        if self._to <= self._from:
            return np.where(np.isnan(known), np.nan, 0.5)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((self._bend(known) - self._from) / (self._to - self._from), np.float64)

    def ticks(self) -> list[float]:
        """Returns round losses within the range, ascending."""
        if self.kind == "linear":
            return nice_ticks(self.low, self.high, _TICKS)
        first = math.floor(math.log10(self.low)) if self.kind == "logarithmic" else 0
        largest = max(abs(self.low), abs(self.high))
        last = math.ceil(math.log10(largest))
        stride = max(1, -(-(last - first) // _TICKS))
        powers = [10.0**power for power in range(first, min(last, 308) + 1, stride)]
        if stride == 1 and last - first <= _TICKS // 2:
            powers = sorted([*powers, *(3 * power for power in powers)])
        if self.kind != "logarithmic":
            powers = [*(-power for power in reversed(powers)), 0.0, *powers]
        return [power for power in powers if self.low <= power <= self.high]


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Returns at most about `count` round numbers between two finite bounds."""
    span = high - low
    if not 0 < span < math.inf:
        return [low]
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough)) if rough >= 1e-300 else 0.0
    step = next((power * factor for factor in (1, 2, 5) if power * factor >= rough), power * 10)
    # Not wide enough for numbers that differ when they are written out.
    if step <= 4 * np.spacing(max(abs(low), abs(high))):
        return [low, high]
    return [float(number * step) for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def colours_of(fractions: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """Returns `[..., 3]` RGB for places on the scale; NaN is light grey."""
    place = np.clip(np.nan_to_num(fractions), 0, 1) * (len(_COLOURS) - 1)
    stops = np.arange(len(_COLOURS))
    rgb = np.stack([np.interp(place, stops, _COLOURS[:, channel]) for channel in range(3)], axis=-1)
    rgb[np.isnan(fractions)] = 222
    return np.asarray(np.rint(rgb), np.uint8)
