"""What an alarm says: which value was past which bound, where, since when, what it means and what to look at.

The training, the watchdog beside it and every action speak of alarms with this alone.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec

__all__ = ["Alert", "Severity"]

Severity = Literal["info", "warning", "critical"]
"""`info`: an alarm is over. `warning`: somebody should look. `critical`: the training is lost or will be."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One alarm.

    Attributes:
        rule: The rule or detector that raised it, by the name that the configuration has for it.
        metric: Name of the value; empty where it is about none.
        value: What the value was; None where there is none.
        bound: What it was compared with; None where there is none.
        step: Step of the training.
        epoch: From 1; None where nobody says it.
        rank: Global rank of the process.
        wall_time: Seconds since epoch.
        severity: How bad it is.
        message: What happened, in one line, without step and rank.
        advice: What it means and what to look at, in one line.
        since_step: First step of what is going on; None for `step`.
        fields: More for programs, such as the predicted steps to a limit.
    """

    rule: str
    metric: str = ""
    value: float | None = None
    bound: float | None = None
    step: int
    epoch: int | None = None
    rank: int = 0
    wall_time: float
    severity: Severity = "warning"
    message: str
    advice: str = ""
    since_step: int | None = None
    fields: dict[str, Any] = {}

    @property
    def first_step(self) -> int:
        """First step of what is going on."""
        return self.step if self.since_step is None else self.since_step

    def plain(self) -> dict[str, Any]:
        """Returns it as strict JSON holds it: a number that is not finite becomes its text."""
        return {name: _plain(value) for name, value in msgspec.structs.asdict(self).items()}

    @classmethod
    def restore(cls, plain: dict[str, Any]) -> Alert:
        """Returns what `plain` was made of, but for numbers inside of `fields`."""
        numbers = {name: float(plain[name]) for name in ("value", "bound") if isinstance(plain.get(name), str)}
        return msgspec.convert({**plain, **numbers}, cls)

    def headline(self, ranks: str = "") -> str:
        """Returns rule, step, rank and what happened, in one line; `ranks` names those that it is the same for."""
        epoch, ranks = "" if self.epoch is None else f", epoch {self.epoch}", ranks or f"rank {self.rank}"
        return f"{self.severity.upper()} {self.rule}: step {self.step}{epoch}, {ranks}: {self.message}"


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value
