"""The rule that sees a memory leak long before the memory is used up."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.alarms.rules.rule import Observation, Rule
from ms_summary_bridge.monitor.model.alert import Alert

__all__ = ["MemoryTrend"]

_POINTS: Final = 48  # kept of each metric; when there are more, every second one goes
_LEAST: Final = 16  # points that a trend takes
_AGREE: Final = 0.85  # of all pairs of points that must rise: what has found its level does not
_LEAST_SECS: Final = 600.0  # that a trend takes, and
_REACH: Final = 10.0  # it says nothing of what is farther ahead than so many times what was seen
_STEADY: Final = 0.7  # of the slope at first that must be left at last: what fills up and comes to rest does not leak
_FAST: Final = 4  # points in a row, each above the one before, that are enough where
_FAST_SECS: Final = 300.0  # no more is left than these, and
_FAST_SHARE: Final = 0.4  # so much of the limit is in use already: what fills at the beginning comes to rest
_FAST_STEADY: Final = 0.5  # of the mean rise that each one has at least
_NAMES: Final = {
    "memory_usage": "memory of the process on its device",
    "host_memory": "memory of the process on the host",
    "npu_memory": "NPU memory",
    "gpu_memory": "GPU memory",
}


class _Trend:
    """Points of one metric, ever wider apart."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float, float]] = []
        """Step, monotonic seconds and value of each."""
        self._stride = 1
        self._skipped = 0

    def add(self, point: Observation, value: float) -> bool:
        """Takes a value; returns whether it was kept."""
        self._skipped += 1
        if self._skipped < self._stride:
            return False
        self._skipped = 0
        self.points.append((float(point.step), point.monotonic, value))
        if len(self.points) > _POINTS:
            # The older half goes thinner, the beginning goes first: allocators grow at the start, and are done then.
            self._stride *= 2
            del self.points[::2]
        return True


class MemoryTrend(Rule):
    """Memory that rises steadily towards a limit.

    The slope is the median of the slopes between all pairs of points (Theil and Sen), which single peaks do not move.

    `limits` is what host and device have, MiB by metric, where no `limit` is given.
    """

    name: ClassVar[str] = "memory_trend"
    metrics = tuple(_NAMES)
    watched = ("memory_usage",)

    def __init__(
        self,
        *,
        limit: float | None = None,
        hours: float = 24.0,
        warm_up: int = 50,
        limits: Mapping[str, float] | None = None,
    ) -> None:
        self._limit = limit
        self._limits = {} if limits is None else limits
        self._hours = hours
        self._warm_up = warm_up
        self._begin: int | None = None
        self._trends: dict[str, _Trend] = {}
        self._last: dict[str, deque[tuple[float, float, int]]] = {}  # the last seconds, values and steps

    def observe(self, point: Observation) -> Alert | None:
        """Takes one point."""
        if self._begin is None:
            self._begin = point.step
        is_warm = point.step - self._begin >= self._warm_up
        for metric in _NAMES:
            value = point.values.get(metric)
            if value is None or not math.isfinite(value) or value <= 0.0:
                continue
            limit = self._limit if self._limit is not None else self._limits.get(metric)
            found = None if limit is None else self._judge_fast(point, metric, value, limit)
            if found is not None:
                return found
            if not is_warm:
                continue
            trend = self._trends.get(metric)
            if trend is None:
                trend = self._trends[metric] = _Trend()
            if trend.add(point, value) and limit is not None and len(trend.points) >= _LEAST:
                found = self._judge(point, metric, trend, limit)
                if found is not None:
                    return found
        return None

    def _judge_fast(self, point: Observation, metric: str, value: float, limit: float) -> Alert | None:
        """Sees memory that is used up within minutes, for which no trend has the time."""
        last = self._last.setdefault(metric, deque(maxlen=_FAST))
        last.append((point.monotonic, value, point.step))
        secs = last[-1][0] - last[0][0]
        if len(last) < _FAST or secs <= 0.0 or value < _FAST_SHARE * limit:
            return None
        rises = [second[1] - first[1] for first, second in pairwise(last)]
        rise = sum(rises) / len(rises)
        if min(rises) < _FAST_STEADY * rise or rise <= 0.0:
            return None
        left = max(0.0, limit - value) / (rise * len(rises) / secs)
        if left > _FAST_SECS:
            return None
        steps = max(1, last[-1][2] - last[0][2])
        return self._say(point, metric, value, limit, rise * len(rises) / steps, left / 3600.0, last[0][2])

    def _judge(self, point: Observation, metric: str, trend: _Trend, limit: float) -> Alert | None:
        steps, times, values = np.array(trend.points).T
        first, second = np.triu_indices(len(values), 1)
        rise, apart, secs = values[second] - values[first], steps[second] - steps[first], times[second] - times[first]
        if not np.all(apart > 0) or not np.all(secs > 0):
            return None  # a clock or a count that went back
        span = float(times[-1] - times[0])
        if span < _LEAST_SECS or np.mean(rise > 0) < _AGREE:
            return None
        low, middle, high = (float(np.median(part)) for part in np.array_split(values, 3))
        early, halfway, late = (float(np.mean(part)) for part in np.array_split(times, 3))
        if not (high - middle) / (late - halfway) >= _STEADY * (middle - low) / (halfway - early) > 0.0:
            return None
        per_step, per_sec = float(np.median(rise / apart)), float(np.median(rise / secs))
        value = float(np.median(values[-3:]))
        hours_left = max(0.0, limit - value) / per_sec / 3600.0
        if hours_left > min(self._hours, _REACH * span / 3600.0):
            return None
        return self._say(point, metric, value, limit, per_step, hours_left, int(steps[0]))

    def _say(
        self,
        point: Observation,
        metric: str,
        value: float,
        limit: float,
        per_step: float,
        hours_left: float,
        since: int,
    ) -> Alert:
        steps_left = max(0.0, limit - value) / per_step
        lasting = f"{hours_left:.1f} hours" if hours_left >= 1 else counted(hours_left * 60, "minute")
        return self.alert(
            point,
            metric,
            value,
            f"the {_NAMES[metric]} grows by {per_step * 1000:.4g} MiB per 1000 steps: {value:.0f} of {limit:.0f} MiB "
            f"are in use, and the rest lasts for {counted(steps_left, 'step')}, {lasting}",
            "look for tensors that a list, a callback or a cache keeps alive, and for data set workers that grow; "
            "save a checkpoint before the memory is used up",
            bound=limit,
            severity="critical" if hours_left < 1 else "warning",
            since=since,
            mib_per_step=per_step,
            steps_left=steps_left,
            hours_left=hours_left,
        )
