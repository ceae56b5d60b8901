"""The key `alerts`: rules with their parameters."""

from __future__ import annotations

from typing import Any, Final

from ms_summary_bridge.monitor.config.action_kinds import (
    Actions,
    Parameter,
    check_keys,
    describe_keys,
    object_schema,
)
from ms_summary_bridge.monitor.config.kinds import Choice, Flag, Number, OneOrMore, Whole
from ms_summary_bridge.monitor.config.metric_kinds import MetricEntry
from ms_summary_bridge.monitor.config.problems import INVALID, Problems, check_mapping, nearest
from ms_summary_bridge.monitor.config.yaml_text import join_path
from ms_summary_bridge.monitor.model.alert_config import AlertConfig

__all__ = ["RULE_KEYS", "Alerts"]


class _MetricName(MetricEntry):
    """The name of a metric, alone."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if not isinstance(value, str):
            problems.add(path, "must be the name of a metric")
            return INVALID
        found = super().check(value, path, problems)
        return found if found is INVALID else found.name

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        names: dict[str, Any] = super().schema()["anyOf"][0]
        return names


class _Share(Number):
    """A number between 0 and 1."""

    def __init__(self) -> None:
        super().__init__(above=0)

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        number = super().check(value, path, problems)
        if number is not INVALID and number > 1:
            problems.add(path, f"must be between 0 and 1, got {number:g}")
            return INVALID
        return number

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {**super().schema(), "maximum": 1}


_ABOVE_ZERO: Final = Number(above=0)
_METRIC: Final = Parameter(_MetricName(), "the metric")
_LONGEST: Final = 100_000  # steps that a rule keeps in memory
_WINDOW: Final = Parameter(Whole(16, most=_LONGEST), "of how many steps median and spread are")
_WARM_UP: Final = Parameter(Whole(16, most=_LONGEST), "how many steps are only learned from")

RULE_KEYS: Final[dict[str, dict[str, Parameter]]] = {
    "threshold": {
        "metric": _METRIC,
        "above": Parameter(Number(), "highest value that is right"),
        "below": Parameter(Number(), "lowest value that is right"),
        "times": Parameter(Whole(1), "how often in a row it must be past its bound"),
    },
    "nonfinite": {
        "metrics": Parameter(OneOrMore(_MetricName()), "metrics that must be numbers"),
        "patience": Parameter(Whole(1), "in how many steps in a row they may be none before it is said"),
    },
    "overflow_streak": {"steps": Parameter(Whole(1), "how many steps in a row may be skipped")},
    "spike": {
        "metric": _METRIC,
        "factor": Parameter(_ABOVE_ZERO, "how many spreads above the median is too far"),
        "window": _WINDOW,
        "warm_up": _WARM_UP,
    },
    "gradient_explosion": {
        "factor": Parameter(Number(above=1), "how many times the median is too much"),
        "window": _WINDOW,
        "warm_up": _WARM_UP,
    },
    "gradient_vanishing": {
        "below": Parameter(_ABOVE_ZERO, "the norm under which nothing moves"),
        "steps": Parameter(Whole(1), "for how many steps in a row"),
    },
    "divergence": {
        "metric": _METRIC,
        "share": Parameter(_Share(), "which part of what was gained must be lost"),
        "window": Parameter(Whole(16, most=_LONGEST), "steps of one median"),
    },
    "not_improving": {
        "metric": _METRIC,
        "patience": Parameter(Whole(1), "steps without a new best"),
        "min_delta": Parameter(Number(least=0), "by how much a new best must be better"),
        "mode": Parameter(Choice(("min", "max")), "whether less is better, or more"),
    },
    "throughput_drop": {
        "ratio": Parameter(_Share(), "which part of the usual speed is too little"),
        "secs": Parameter(_ABOVE_ZERO, "seconds of steps that a look is about"),
        "warm_up": Parameter(Whole(1), "how many such looks are only learned from"),
    },
    "memory_trend": {
        "limit": Parameter(_ABOVE_ZERO, "MiB at which the memory is used up; that of host or device if not given"),
        "hours": Parameter(_ABOVE_ZERO, "said when so many hours or fewer are left"),
        "warm_up": Parameter(Whole(0), "steps at the beginning that are left out"),
    },
    "overload": {
        "temperature": Parameter(_ABOVE_ZERO, "highest right temperature of the device, degrees Celsius"),
        "memory": Parameter(_ABOVE_ZERO, "most memory of the device that may be in use, MiB"),
        "utilization": Parameter(_ABOVE_ZERO, "how busy the device may be, per cent"),
        "secs": Parameter(Number(least=0), "seconds for which it must be past a bound"),
    },
}
"""The parameters of each rule: arguments of its class in `monitor.alarms.rules`, which has their defaults."""


_COMMON: Final[dict[str, Parameter]] = {
    "enable": Parameter(Flag(), "false switches a rule off that is on by default"),
    "actions": Parameter(Actions(), "what is done; alert_actions if not given"),
    "cool_down": Parameter(Number(least=0), "seconds in which it is not repeated"),
    "after_steps": Parameter(Whole(0), "steps of the session in which it says nothing"),
}


class Alerts:
    """The rules: true for those that are on by default, false for none, or a list that changes and adds to these."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`. Returns the rules that are named, with None for the parameters of one that is switched off."""
        if isinstance(value, bool):
            return value
        if not isinstance(value, list):
            problems.add(path, "must be true, false or a list of rules, like [{rule: spike, factor: 20}]")
            return INVALID
        found = [self._check_one(given, join_path(path, number), problems) for number, given in enumerate(value)]
        return INVALID if INVALID in found else tuple(found)

    def _check_one(self, value: Any, path: str, problems: Problems) -> Any:
        given = check_mapping({"rule": value} if isinstance(value, str) else value, path, problems, "{rule: spike}")
        if given is None:
            return INVALID
        rule = given.pop("rule", None)
        if not isinstance(rule, str) or rule not in RULE_KEYS:
            hint = (rule is not None and nearest(rule, RULE_KEYS)) or f"; there are {', '.join(RULE_KEYS)}"
            said = "names no rule" if rule is None else f"there is no rule {str(rule)[:30]!r}"
            problems.add(join_path(path, "rule"), said + hint)
            return INVALID
        values = check_keys(given, {**RULE_KEYS[rule], **_COMMON}, path, problems)
        if values is None:
            return INVALID
        is_on = values.pop("enable", True)
        common = {name: values.pop(name) for name in ("actions", "cool_down", "after_steps") if name in values}
        if rule == "threshold" and is_on and not self._check_threshold(values, path, problems):
            return INVALID
        return (rule, AlertConfig(rule=rule, params=values, **common) if is_on else None)

    def _check_threshold(self, values: dict[str, Any], path: str, problems: Problems) -> bool:
        above, below = values.get("above"), values.get("below")
        if "metric" not in values:
            problems.add(path, "threshold must name a metric")
        elif above is None and below is None:
            problems.add(path, "threshold has no bound: write above: 1.0 or below: 1.0")
        elif above is not None and below is not None and above < below:
            problems.add(path, f"every value is above {above:g} or below {below:g}: the two are the wrong way round")
        else:
            return True
        return False

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        one = [
            object_schema(
                {"rule": {"enum": [rule]}, **describe_keys({**keys, **_COMMON})},
                required=["rule", "metric"] if rule == "threshold" else ["rule"],
            )
            for rule, keys in RULE_KEYS.items()
        ]
        names = {"enum": [rule for rule in RULE_KEYS if rule != "threshold"]}
        return {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"anyOf": [names, *one]}}]}
