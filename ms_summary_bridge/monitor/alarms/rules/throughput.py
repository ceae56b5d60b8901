"""The rule against "fake training": steps go on, but far slower than they did, or on a device that idles."""

from __future__ import annotations

import statistics
from collections import deque
from typing import ClassVar, Final

from ms_summary_bridge.monitor.alarms.rules.rule import Observation, Rule
from ms_summary_bridge.monitor.model.alert import Alert

__all__ = ["ThroughputDrop"]

_SLICES: Final = 6  # a window is looked at whenever a sixth of it is over
_LEAST: Final = 3  # steps of a window: one slow step among very long ones is not a drop
_HISTORY: Final = 60  # windows, of which the median is the speed to compare with
_CREEP: Final = (
    0.8  # of `ratio`: how far below the best of the training a speed is too little that was fallen to slowly
)
_SETTLED: Final = 10  # windows whose median is a speed
_USES: Final = ("npu_utilization", "gpu_utilization", "mfu")
_FEW: Final = 3  # samples of a device's use that are one look at it


class ThroughputDrop(Rule):
    """Steps per second, or the use of the device, that fall below a part of their own median, or of their best one.

    Seconds of evaluation and saving are in no step's time. Slow steps do not enter the median before the drop has
    lasted for as long as the median is about. A speed that creeps down takes the median with it, and so it is compared
    with the best median of the training as well; one that stays low for as long as that is the new measure.
    """

    name: ClassVar[str] = "throughput_drop"
    metrics = ("step_time", *_USES)

    def __init__(self, *, ratio: float = 0.5, secs: float = 60.0, warm_up: int = 2) -> None:
        self._ratio = ratio
        self._slice_secs = secs / _SLICES
        self._warm_up = max(1, warm_up)
        self._window_secs = secs
        self._slices: deque[tuple[float, int, int]] = deque()  # seconds, steps, first step
        self._secs = 0.0
        self._steps = self._first_step = 0
        self._rates: deque[float] = deque(maxlen=_HISTORY * _SLICES)
        self._best = 0.0  # the best median
        self._slow = 0  # slices since it was last reached as far as it must be
        self._uses: dict[str, deque[float]] = {}

    def observe(self, point: Observation) -> Alert | None:
        """Takes one point."""
        values = point.values
        step_secs = values.get("step_time")
        if step_secs is not None:
            return self._observe_step(point, step_secs)
        for metric in _USES:
            value = values.get(metric)
            if value is not None and value == value:
                found = self._observe_use(point, metric, value)
                if found is not None:
                    return found
        return None

    def _observe_step(self, point: Observation, step_secs: float) -> Alert | None:
        if not step_secs > 0.0:
            return None
        if not self._steps:
            self._first_step = point.step
        self._secs += step_secs * point.steps
        self._steps += point.steps
        if self._secs < self._slice_secs:
            return None
        rate = self._steps / self._secs
        slices = self._slices
        slices.append((self._secs, self._steps, self._first_step))
        self._secs, self._steps = 0.0, 0
        while self._is_window(1):
            slices.popleft()
        found = None
        if self._is_window(0) and len(self._rates) >= self._warm_up * _SLICES:
            seconds, steps = sum(part[0] for part in slices), sum(part[1] for part in slices)
            usual, now = statistics.median(self._rates), steps / seconds
            creeps = self._has_crept(now)
            if now < self._ratio * usual or creeps:
                usual = max(usual, self._best if creeps else 0.0)
                found = self.alert(
                    point,
                    "steps_per_second",
                    now,
                    f"{now:.4g} steps per second over {seconds:.0f} s, where {usual:.4g} were usual",
                    "the training goes on, but the device waits: look at the part of the time spent on data, at the "
                    "clock and temperature of the device, at other processes on the host, and at the slowest rank",
                    bound=self._ratio * usual,
                    since=slices[0][2],
                    usual=usual,
                    secs=seconds,
                )
        self._rates.append(rate)
        return found

    def _has_crept(self, now: float) -> bool:
        """Whether a speed is far below the best one, which was not long ago."""
        if len(self._rates) < _SETTLED * _SLICES:
            return False
        lately = statistics.median(list(self._rates)[-_SETTLED * _SLICES :])
        is_low = max(now, lately) < _CREEP * self._ratio * self._best
        self._slow = self._slow + 1 if is_low else 0
        if self._slow > _HISTORY * _SLICES:
            self._best, self._slow = 0.0, 0
        self._best = max(self._best, lately)
        return is_low

    def _is_window(self, left_out: int) -> bool:
        """Whether the slices, without the oldest so many, are long enough to be judged."""
        if len(self._slices) <= left_out:
            return False
        kept = list(self._slices)[left_out:]
        return sum(part[0] for part in kept) >= self._window_secs and sum(part[1] for part in kept) >= _LEAST

    def _observe_use(self, point: Observation, metric: str, value: float) -> Alert | None:
        past = self._uses.setdefault(metric, deque(maxlen=_HISTORY))
        past.append(value)
        if len(past) < _FEW * (self._warm_up + 1):
            return None
        values = list(past)
        now, usual = statistics.median(values[-_FEW:]), statistics.median(values[:-_FEW])
        if usual <= 0.0 or now >= self._ratio * usual:
            return None
        return self.alert(
            point,
            metric,
            now,
            f"{metric} is {now:.4g}, where {usual:.4g} was usual",
            "steps go on while the device is hardly used: look at where the step spends its time, and whether "
            "operators have fallen back to the host",
            bound=self._ratio * usual,
            usual=usual,
        )
