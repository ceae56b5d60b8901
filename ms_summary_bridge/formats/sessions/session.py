"""A training session, free of any format: with what it trained, how well, and how it ended.

MindSpore calls it lineage, TensorBoard an HParams session.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from ms_summary_bridge.values import Scalar

__all__ = ["EVAL", "SESSION_KINDS", "STATUSES", "TRAIN_LOSS", "HParam", "Session", "shortest"]

HParam: TypeAlias = str | float | bool

SESSION_KINDS: Final = ("train_lineage", "evaluation_lineage", "user_defined_info")
"""The records of a MindSpore lineage file that tell of a session."""
EVAL: Final = "eval/"
"""Before the name of an evaluation's metric, as the tag of its scalar."""
TRAIN_LOSS: Final = "train/loss"
"""Tag of the loss that a training ended with."""
STATUSES: Final = ("unknown", "success", "failure", "running")
"""By the numbers that TensorBoard gives them."""


class Session(msgspec.Struct):
    """One session. What its source does not say is empty."""

    hparams: dict[str, HParam] = msgspec.field(default_factory=dict)
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    """By the tag of their scalar."""
    status: str = "unknown"
    """One of `STATUSES`."""
    start_time: float = 0.0
    """Seconds since the epoch; 0 when not known."""
    end_time: float = 0.0
    model_uri: str = ""
    """Path of the last checkpoint."""
    left_out: list[str] = msgspec.field(default_factory=list)
    """What could not be read, one text for each item."""

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing, so that there is nothing to show."""
        return not self.hparams and not self.metrics and self.status == STATUSES[0]


def shortest(scalar: Scalar) -> float:
    """Returns the number with the fewest digits that is this float32: 0.01, and not 0.009999999776482582."""
    value = scalar.value
    if scalar.is_float32:  # nine digits tell all of them apart
        for digits in range(1, 9):
            number = float(f"{value:.{digits}g}")
            if Scalar.from_float32(number).bits == scalar.bits:
                return number
        return float(f"{value:.9g}")
    return value
