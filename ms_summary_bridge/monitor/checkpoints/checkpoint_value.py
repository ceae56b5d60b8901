"""By which value one checkpoint is better than another.

Imports no mindspore.
"""

from __future__ import annotations

import math
import re
from typing import Final, Literal

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import Mode

__all__ = ["EVAL", "LossWindow", "mode_of"]

EVAL: Final = "eval/"
"""What the name of a metric of an evaluation begins with; SummaryBridge records it under the same tag."""

_LESS_IS_BETTER: Final = {"loss", "error", "err", "mae", "mse", "rmse", "perplexity", "ppl", "wer", "cer"}
_MORE_IS_BETTER: Final = {"acc", "accuracy", "precision", "recall", "f1", "auc", "bleu", "dice", "iou", "miou", "map"}


def mode_of(monitor: str, mode: Literal["min", "max", "auto"]) -> Mode:
    """Returns which of two values is the better one: for `auto`, by the words in the name of the metric.

    Raises:
        UsageError: The monitor is neither, or its name does not say which is better.
    """
    name = monitor.removeprefix(EVAL)
    if monitor != "loss" and name in ("", monitor):
        raise UsageError(f"SaveBestCheckpoint: monitor is `loss` or `eval/<metric>`, got {monitor!r}")
    if mode not in ("min", "max", "auto"):
        raise UsageError(f"SaveBestCheckpoint: mode is `min`, `max` or `auto`, got {mode!r}")
    if mode != "auto":
        return mode
    words = re.split("[-_/]", name.lower())
    if _LESS_IS_BETTER.intersection(words):
        return "min"
    if _MORE_IS_BETTER.intersection(words) or any(word.startswith("top") for word in words):
        return "max"
    raise UsageError(f"SaveBestCheckpoint: nothing says whether more or less of {monitor!r} is better: give mode")


class LossWindow:
    """The mean loss over the steps since the last checkpoint: one step's loss alone is noise."""

    def __init__(self) -> None:
        self.last: float | None = None
        """Of the newest step; None before the first."""
        self._sum = 0.0
        self._count = 0

    def add(self, loss: float) -> None:
        """Takes the loss of one step."""
        self.last = loss
        self._sum += loss
        self._count += 1

    def take(self) -> float | None:
        """Returns the mean, and begins anew; None without a step. One NaN makes it NaN."""
        mean = self._sum / self._count if self._count else None
        self._sum, self._count = 0.0, 0
        return mean

    @property
    def is_finite(self) -> bool:
        """Whether the newest loss is a number that a training can go on from."""
        return self.last is None or math.isfinite(self.last)
