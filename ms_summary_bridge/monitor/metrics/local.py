"""What a rank's own numbers are before the ranks reduce them: loss, norm of the gradients, parts of the loss.

In (semi-)automatic parallel mode MindSpore reduces the loss and the gradients inside the network (measured on 2.9 and
2.10): what it returns there is no rank's own, and is never taken for it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window
from ms_summary_bridge.training.measures import to_array

__all__ = ["LocalGradientNorm", "LocalGradientNorms", "LocalLoss", "SubLosses"]

_NORMS: Final = "local_grad_norms/"
_PARTS: Final = "sub_losses/"


class LocalLoss(Metric):
    """The loss of this rank's own batch: what the network returns where that is nobody else's, or is told beside it."""

    def begin(self, training: TrainingFacts) -> None:
        """Finds out whether the network's loss is this rank's own."""
        is_own = training.is_local or training.ranks == 1
        self._is_own = is_own and training.rank in training.loss_ranks

    def observe(self, facts: StepFacts) -> float | None:
        """Returns that of one call."""
        return facts.local_loss if facts.local_loss is not None else facts.loss if self._is_own else None


class SubLosses(Metric):
    """The parts of the loss of the last step, by their names."""

    anywhere = True

    def sample(self, window: Window) -> MetricValue:
        """Returns those of the last step."""
        return {f"{_PARTS}{name}": value for name, value in window.last.sub_losses.items()} or None


class LocalGradientNorm(Metric):
    """The norm of this rank's own gradients in the last step of the interval that has it.

    Read at a sample alone, one small tensor, by the thread that writes.
    """

    off_thread = True

    def begin(self, training: TrainingFacts) -> None:
        """Finds out whether gradients are this rank's own."""
        self._is_own = training.is_local or training.ranks == 1
        self._training = training

    def sample(self, window: Window) -> MetricValue:
        """Returns the norm over all parameters."""
        squares = self._read(window)
        return None if squares is None else float(np.sqrt(squares.sum()))

    def _read(self, window: Window) -> npt.NDArray[np.float64] | None:
        if window.local_squares is None or not self._is_own:
            return None
        array = to_array(window.local_squares)
        return None if array is None else np.asarray(array, dtype=np.float64).reshape(-1)


class LocalGradientNorms(LocalGradientNorm):
    """The same of each parameter, by its name."""

    _names: list[str] | None = None

    def sample(self, window: Window) -> MetricValue:
        """Returns the norms; None where it is not known which parameters they are of."""
        squares = self._read(window)
        if squares is None:
            return None
        if self._names is None and self._training.gradient_names is not None:
            self._names = self._training.gradient_names()
        if self._names is None or len(self._names) != len(squares):
            return None
        return {f"{_NORMS}{name}": float(norm) for name, norm in zip(self._names, np.sqrt(squares), strict=True)}
