"""What all rules share, and how one is found by its name.

No files, no clocks, no mindspore: a rule knows what it has been shown.

A rule says what it sees at every point. That an alarm is not repeated at each step is the affair of `alarms.alarms`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, Final

import msgspec

from ms_summary_bridge.monitor.model.alert import Alert, Severity

__all__ = ["Level", "Observation", "Rule", "Streak", "ValueRule", "find_rule", "make_rule", "rule_names", "say_number"]


class Observation(msgspec.Struct):
    """Numbers of one step, or of one sample.

    `monotonic` is of the clock that is never set, `steps` is how many steps it is about, `epoch` counts from 1, and
    `overflow` is whether the step was skipped for one; None where nobody says it.
    """

    step: int
    values: Mapping[str, float]
    monotonic: float
    wall_time: float = 0.0
    steps: int = 1
    epoch: int | None = None
    rank: int = 0
    overflow: bool | None = None


class Streak:
    """How often in a row something was seen, and since which step."""

    def __init__(self) -> None:
        self.count = 0
        self.since = 0

    def add(self, point: Observation, *, is_on: bool, steps: int = 1) -> int:
        """Takes whether it is seen at a point, which counts for so many; returns the count."""
        if is_on and not self.count:
            self.since = point.step
        self.count = self.count + steps if is_on else 0
        return self.count


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """What earlier sessions of a run had reached in a value.

    `first` is its level when the run began, `best` its lowest one, and `step` when that was. `is_known` is whether this
    session is known to go on with their weights; else its own first level tells.
    """

    first: float
    best: float
    step: int
    is_known: bool = False


class Rule:
    """What all rules share.

    `name` is what a configuration calls it (`model.rule_keys` describes the arguments), `metrics` are those that it
    looks at, and `watched` those of them that must be measured for it; a step has the others anyway.
    """

    name: ClassVar[str]
    metrics: tuple[str, ...]
    watched: tuple[str, ...] = ()

    def observe(self, point: Observation) -> Alert | None:
        """Takes one point; returns what is wrong with it, or None."""
        raise NotImplementedError

    def recall(self, level: Level) -> None:
        """Learns what earlier sessions of the run had reached in the first of its metrics."""

    def alert(
        self,
        point: Observation,
        metric: str,
        value: float,
        message: str,
        advice: str,
        *,
        bound: float | None = None,
        severity: Severity = "warning",
        since: int | None = None,
        **fields: Any,
    ) -> Alert:
        """Returns an alert of this rule at a point."""
        return Alert(
            rule=self.name,
            metric=metric,
            value=value,
            bound=bound,
            step=point.step,
            epoch=point.epoch,
            rank=point.rank,
            wall_time=point.wall_time,
            severity=severity,
            message=message,
            advice=advice,
            since_step=since,
            fields=fields,
        )


class ValueRule(Rule):
    """A rule about one metric; it does not look at steps that were skipped for an overflow."""

    def __init__(self, metric: str) -> None:
        self.metrics = (metric,)
        self._metric = metric

    def observe(self, point: Observation) -> Alert | None:
        """Takes the value of one point, if it has one."""
        value = point.values.get(self._metric)
        return None if value is None or point.overflow else self._take(point, value)

    def _take(self, point: Observation, value: float) -> Alert | None:
        raise NotImplementedError


_HOMES: Final[dict[str, tuple[str, str]]] = {
    "threshold": ("bounds", "Threshold"),
    "overload": ("bounds", "Overload"),
    "nonfinite": ("numbers", "Nonfinite"),
    "overflow_streak": ("numbers", "OverflowStreak"),
    "spike": ("spike", "Spike"),
    "gradient_explosion": ("spike", "GradientExplosion"),
    "gradient_vanishing": ("numbers", "GradientVanishing"),
    "divergence": ("divergence", "Divergence"),
    "not_improving": ("progress", "NotImproving"),
    "throughput_drop": ("throughput", "ThroughputDrop"),
    "memory_trend": ("memory_trend", "MemoryTrend"),
}


def rule_names() -> tuple[str, ...]:
    """Returns the names of all rules."""
    return tuple(_HOMES)


def find_rule(name: str) -> type[Rule]:
    """Returns the class of a rule; KeyError for none of that name."""
    module, class_name = _HOMES[name]
    found: type[Rule] = getattr(import_module(f"{__package__}.{module}"), class_name)
    return found


def make_rule(name: str, params: Mapping[str, Any]) -> Rule:
    """Returns a new rule; `params` are the arguments of its class."""
    return find_rule(name)(**params)


def say_number(value: float) -> str:
    """Returns a number as a message shows it."""
    if math.isfinite(value):
        return f"{value:.6g}"
    return "NaN" if math.isnan(value) else "infinite" if value > 0 else "minus infinite"
