"""What goes to the thread that writes: samples, and notes of what happened."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

__all__ = ["Note", "Sample", "strict_numbers"]


class Sample(msgspec.Struct, kw_only=True):
    """The values of one interval.

    Attributes:
        step: Its last step.
        epoch: From 1.
        step_in_epoch: From 1.
        wall_time: Seconds since epoch, when the last step ended.
        monotonic: Seconds of the clock that is never set.
        interval_steps: How many steps it is about.
        is_first: Whether it is the session's first, in which the graph was compiled.
        values: The value of each metric.
        low: The least of each interval; only of metrics that every step has.
        mean: As `low`, the mean.
        high: As `low`, the greatest.
        nonfinite_steps: In how many steps a metric was NaN or infinite.
        secs_left: Seconds until the end of the training, as it goes.
        data_share: Part of the time in which the training waited for data, 0 to 1.
        pending: Metrics that the writing thread samples.
        of_all: What it says in words, where the values are those of all ranks together, by names below `all/`.
    """

    step: int
    epoch: int | None = None
    step_in_epoch: int | None = None
    wall_time: float = 0.0
    monotonic: float = 0.0
    interval_steps: int = 1
    is_first: bool = False
    values: dict[str, float] = {}
    low: dict[str, float] = {}
    mean: dict[str, float] = {}
    high: dict[str, float] = {}
    nonfinite_steps: dict[str, int] = {}
    secs_left: float | None = None
    data_share: float | None = None
    pending: list[tuple[str, Callable[[], float | Mapping[str, float] | None]]] = []
    of_all: str = ""


class Note(msgspec.Struct, kw_only=True):
    """Something that happened.

    Attributes:
        kind: `start`, `warning`, `alert`, `milestone`, `evaluation`, `end`.
        step: The step at that time.
        wall_time: Seconds since epoch.
        text: For people, in one or more lines.
        fields: For programs.
        level: Of the console; None for none there.
    """

    kind: str
    step: int
    wall_time: float
    text: str
    fields: dict[str, Any] = {}
    level: int | None = logging.INFO


def strict_numbers(values: Mapping[str, float]) -> tuple[dict[str, float | None], dict[str, str]]:
    """Returns numbers that strict JSON can hold, with null for the others, and the names of what those were."""
    numbers: dict[str, float | None] = {}
    others: dict[str, str] = {}
    for name, value in values.items():
        if math.isfinite(value):
            numbers[name] = value
        else:
            numbers[name] = None
            others[name] = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return numbers, others
