"""Proposes limits for `warn_on_value` from the journal of a healthy run.

A limit is a quarter beyond the worst value of the run, and more where the values scatter widely, so that the run itself
would not have warned. Median and median deviation are used because one odd sample does not move them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import UsageError, counted
from ms_summary_bridge.monitor.model.metric_names import METRICS, Way

__all__ = ["EVERY_STEP", "Limit", "Suggestion", "suggest_limits", "write_suggestion"]

_LEAST_SAMPLES: Final = 10
_WARM_UP: Final = 0.1  # part of the samples at the beginning, in which loss and speed are not yet what they will be
_MARGIN: Final = 0.25
_STEADY_MARGIN: Final = 0.1  # of what hardly moves in a healthy run
_STEADY: Final = {"memory_usage", "host_memory", "npu_memory", "gpu_memory", "temperature", "npu_power"}
_DEVIATIONS: Final = 3.0
_TO_SIGMA: Final = 1.4826  # median deviation of a normal distribution, as its standard deviation
EVERY_STEP: Final = {"loss", "local_loss", "grad_norm", "loss_scale"}
"""Metrics of which every step is compared with the limit; of the others, the value of an interval is."""
_LONE: Final = 3.0  # a value so many times worse than all others is left out
_LEAST_FOR_LONE: Final = 20


class Limit(msgspec.Struct, frozen=True):
    """One proposed limit of a metric, where it comes from in one line, and whether it warns above or below it."""

    name: str
    way: Way
    value: float
    reason: str


class Suggestion(msgspec.Struct, frozen=True):
    """What a journal says: limits, how many steps of the beginning were left out, and what its run was.

    `doubts` are what makes one doubt that the run was healthy.
    """

    limits: list[Limit]
    warn_after_steps: int
    samples: int
    last_step: int
    run: str
    doubts: list[str]


def suggest_limits(lines: Iterable[Mapping[str, Any]]) -> Suggestion:
    """Returns limits from the lines of a journal.

    Raises:
        UsageError: There are too few samples.
    """
    samples: list[Mapping[str, Any]] = []
    run = ""
    warnings = 0
    first: float = math.inf
    nonfinite: set[str] = set()
    for line in lines:
        kind = line.get("kind")
        if kind == "header":
            run = "/".join(str(line[key]) for key in ("project", "run") if line.get(key))
        elif kind == "warning":
            warnings += 1
        elif kind == "sample" and isinstance(line.get("step"), int) and isinstance(line.get("values"), dict):
            nonfinite |= set(line.get("nonfinite") or {})
            first = min(first, line["step"])
            if not line.get("is_first"):
                samples.append(line)
    if len(samples) < _LEAST_SAMPLES:
        raise UsageError(
            f"the journal has {counted(len(samples), 'sample')} after its first step, too few to learn from: "
            f"{_LEAST_SAMPLES} are needed"
        )
    samples.sort(key=lambda line: int(line["step"]))
    skipped = max(1, int(len(samples) * _WARM_UP))
    limits = [limit for name in METRICS if (limit := _suggest(name, samples[skipped:])) is not None]
    doubts = [f"it gave {counted(warnings, 'warning')}"] if warnings else []
    doubts += [f"{name} was not finite at times" for name in sorted(nonfinite)]
    # Steps of a training that was resumed count on, but each session warms up anew.
    warm_up = int(samples[skipped - 1]["step"] - first + 1)
    return Suggestion(limits, warm_up, len(samples), samples[-1]["step"], run, doubts)


def _suggest(name: str, samples: list[Mapping[str, Any]]) -> Limit | None:
    way = METRICS[name].bad
    if way is None:
        return None
    groups = ("mean", "max" if way == "above" else "min") if name in EVERY_STEP else ("values", "values")
    middles, worst = (_numbers(samples, (group, "values"), name) for group in groups)
    worst.sort(reverse=way == "below")
    if len(worst) < _LEAST_SAMPLES - 1 or not any(worst):
        return None
    median = statistics.median(middles)
    sigma = _TO_SIGMA * statistics.median(abs(number - median) for number in middles)
    left_out = _count_lone(worst, way)
    extreme = worst[-1 - left_out]
    margin = max((_STEADY_MARGIN if name in _STEADY else _MARGIN) * abs(extreme), _DEVIATIONS * sigma)
    value = extreme + margin if way == "above" else extreme - margin
    if way == "below" and value <= 0 < extreme:
        value = extreme / 2
    if way == "below" and extreme <= 0:
        return None  # it was at its worst already
    word = "highest" if way == "above" else "lowest"
    reason = f"median {median:.4g}, {word} {extreme:.4g}, in {counted(len(worst), 'sample')}"
    if left_out:
        reason += f" without {left_out} far from all others"
    return Limit(name, way, _round(value, up=way == "above"), reason)


def _numbers(samples: list[Mapping[str, Any]], groups: tuple[str, ...], name: str) -> list[float]:
    """Returns a metric's number of each sample, from the first group that has it."""
    found = []
    for sample in samples:
        for group in groups:
            numbers = sample.get(group)
            number = numbers.get(name) if isinstance(numbers, dict) else None
            if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
                found.append(float(number))
                break
    return found


def _count_lone(worst: list[float], way: Way) -> int:
    """Returns how many of the worst values stand alone; `worst` has the worst one last."""
    most = max(1, len(worst) // 100)
    if len(worst) < _LEAST_FOR_LONE:
        return 0
    extreme, next_one = worst[-1], worst[-1 - most]
    is_lone = extreme > _LONE * next_one > 0 if way == "above" else 0 <= extreme < next_one / _LONE
    return most if is_lone else 0


def _round(value: float, *, up: bool) -> float:
    """Returns a number of two digits, away from the run's own values."""
    if value == 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(abs(value))) - 1)
    rounded = (math.ceil if up else math.floor)(value / unit) * unit
    return float(f"{rounded:.3g}")


def write_suggestion(suggestion: Suggestion) -> str:
    """Returns the limits as a section, with their reasons as comments."""
    lines = [
        f"# From {counted(suggestion.samples, 'sample')}"
        + (f" of {suggestion.run!r}" if suggestion.run else "")
        + f", up to step {suggestion.last_step}.",
        *(f"# Was this run healthy? {doubt}." for doubt in suggestion.doubts),
        "# Put these lines into the training's section, or name this file there: extends: limits.yaml",
        "monitor_config:",
        "  callback:",
        "    params:",
        f"      warn_after_steps: {suggestion.warn_after_steps}  # the first {_WARM_UP:.0%} of the samples left out",
    ]
    if suggestion.limits:
        lines.append("      warn_on_value:")
    for limit in suggestion.limits:
        lines.append(f"        {limit.name}: {{{limit.way}: {limit.value!r}}}  # {limit.reason}")
    return "\n".join(lines) + "\n"
