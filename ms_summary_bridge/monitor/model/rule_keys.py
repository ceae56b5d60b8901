"""The parameters of each rule: arguments of its class in `monitor.alarms.rules`, which has their defaults."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from msgspec import Meta

from ms_summary_bridge.monitor.model.keys import AboveZero, Count, MetricKey, NotNegative, Share, ZeroOrMore, key

__all__ = ["RULE_KEYS", "Mode", "Swing"]

Mode = Literal["min", "max"]
Swing = Literal["falling", "oscillating"]

_Metric = Annotated[MetricKey, key("the metric")]
_Kept = Annotated[int, Meta(ge=16, le=100_000)]  # steps that a rule keeps in memory
_Window = Annotated[_Kept, key("of how many steps median and spread are")]
_WarmUp = Annotated[_Kept, key("how many steps are only learned from")]
_Above1 = Annotated[float, Meta(gt=1)]

RULE_KEYS: Final[dict[str, dict[str, Any]]] = {
    "threshold": {
        "metric": _Metric,
        "above": Annotated[float, key("highest value that is right")],
        "below": Annotated[float, key("lowest value that is right")],
        "times": Annotated[Count, key("how often in a row it must be past its bound")],
    },
    "nonfinite": {
        "metrics": Annotated[tuple[MetricKey, ...], key("metrics that must be finite numbers", one=True)],
        "patience": Annotated[Count, key("how many steps in a row are not finite before it is said")],
    },
    "overflow_streak": {"steps": Annotated[Count, key("how many steps in a row may be skipped")]},
    "spike": {
        "metric": _Metric,
        "factor": Annotated[AboveZero, key("how many spreads above the median is too far")],
        "window": _Window,
        "warm_up": _WarmUp,
        "reach": Annotated[NotNegative, key("times all that it was so far that it must jump beyond; 0 for each jump")],
    },
    "gradient_explosion": {
        "factor": Annotated[_Above1, key("how many times the median is too much")],
        "window": _Window,
        "warm_up": _WarmUp,
    },
    "gradient_vanishing": {
        "below": Annotated[AboveZero, key("the norm under which nothing moves")],
        "steps": Annotated[Count, key("for how many steps in a row")],
    },
    "divergence": {
        "metric": _Metric,
        "share": Annotated[Share, key("by which part of its best it must have risen")],
        "window": Annotated[_Kept, key("for how many steps it must stay there")],
        "mode": Annotated[Swing, key("oscillating for a loss that swings by nature")],
    },
    "not_improving": {
        "metric": _Metric,
        "patience": Annotated[Count, key("steps without a new best")],
        "min_delta": Annotated[NotNegative, key("by how much a new best must be better")],
        "mode": Annotated[Mode, key("whether less is better, or more")],
    },
    "throughput_drop": {
        "ratio": Annotated[Share, key("which part of the usual speed is too little")],
        "secs": Annotated[AboveZero, key("seconds of steps that are looked at together")],
        "warm_up": Annotated[Count, key("how many such looks are only learned from")],
    },
    "memory_trend": {
        "limit": Annotated[AboveZero, key("MiB at which the memory is used up; that of host or device if not given")],
        "hours": Annotated[AboveZero, key("said when so many hours or fewer are left")],
        "warm_up": Annotated[ZeroOrMore, key("steps at the beginning that are left out")],
    },
    "overload": {
        "temperature": Annotated[AboveZero, key("highest right temperature of the device, degrees Celsius")],
        "memory": Annotated[AboveZero, key("most memory of the device that may be in use, MiB")],
        "utilization": Annotated[AboveZero, key("how busy the device may be, per cent")],
        "secs": Annotated[NotNegative, key("seconds for which it must be past a bound")],
    },
}
