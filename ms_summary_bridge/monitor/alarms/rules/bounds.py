"""Rules with bounds that somebody has set: a threshold of any metric, and the overload of a device."""

from __future__ import annotations

from typing import ClassVar, Final

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.alarms.rules.rule import Observation, Rule, Streak, ValueRule, say_number
from ms_summary_bridge.monitor.model.alert import Alert

__all__ = ["Overload", "Threshold"]


class Threshold(ValueRule):
    """A value that is past a bound, several times in a row."""

    name: ClassVar[str] = "threshold"

    def __init__(
        self, *, metric: str = "loss", above: float | None = None, below: float | None = None, times: int = 1
    ) -> None:
        super().__init__(metric)
        self.watched = (metric,)
        self._above = above
        self._below = below
        self._times = times
        self._streak = Streak()

    def _take(self, point: Observation, value: float) -> Alert | None:
        is_high = self._above is not None and value > self._above
        bound, way = (self._above, "above") if is_high else (self._below, "below")
        is_past = is_high or (self._below is not None and value < self._below)
        count = self._streak.add(point, is_on=is_past)
        if bound is None or count < self._times:
            return None
        often = f", {counted(count, 'time')} in a row" if self._times > 1 else ""
        message = f"{self._metric} is {say_number(value)}, {way} {bound:g}{often}"
        advice = f"the bound was set in the configuration; see what {self._metric} did before"
        return self.alert(point, self._metric, value, message, advice, bound=bound, since=self._streak.since)


_KINDS: Final = {
    "temperature": ("temperature",),
    "memory": ("npu_memory", "gpu_memory", "memory_usage"),
    "utilization": ("npu_utilization", "gpu_utilization"),
}
_UNITS: Final = {"temperature": "degrees Celsius", "memory": "MiB", "utilization": "per cent"}
_ADVICE: Final = {
    "temperature": "look at the cooling of the host and at what else runs on it; a hot device is throttled, then stops",
    "memory": "make the batch or the sequence smaller, or recompute activations, before an allocation fails",
    "utilization": "see with npu-smi info or nvidia-smi whether another process computes on this device",
}


class Overload(Rule):
    """A device that is past what it stands, without a break for some time."""

    name: ClassVar[str] = "overload"

    def __init__(
        self,
        *,
        temperature: float | None = 95.0,
        memory: float | None = None,
        utilization: float | None = None,
        secs: float = 60.0,
    ) -> None:
        given = {"temperature": temperature, "memory": memory, "utilization": utilization}
        self._bounds = {
            metric: (kind, bound) for kind, bound in given.items() if bound is not None for metric in _KINDS[kind]
        }
        self.metrics = tuple(self._bounds)
        self.watched = tuple(_KINDS[kind][0] for kind, bound in given.items() if bound is not None)
        self._secs = secs
        self._since: dict[str, tuple[float, int]] = {}  # when each value went past its bound, and at which step

    def observe(self, point: Observation) -> Alert | None:
        """Takes one point."""
        found = None
        for metric, (kind, bound) in self._bounds.items():
            value = point.values.get(metric)
            if value is None:
                continue
            if not value > bound:
                self._since.pop(metric, None)
                continue
            began, step = self._since.setdefault(metric, (point.monotonic, point.step))
            passed = point.monotonic - began
            if passed < self._secs or found is not None:
                continue
            message = f"{metric} is {value:.6g} {_UNITS[kind]}, above {bound:g} for {passed:.0f} s"
            found = self.alert(
                point, metric, value, message, _ADVICE[kind], bound=bound, severity="critical", since=step, secs=passed
            )
        return found
