"""How far a step moves the weights: the norm of the update by the norm of the weights.

A healthy training is near 1e-3. It needs the weights of two steps in a row, as copies: `Parameter.asnumpy()` shares
memory with the live parameter (measured on MindSpore 2.0 to 2.10).
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window
from ms_summary_bridge.training.measures import to_array

__all__ = ["UpdateRatio"]

_MAX_ELEMENTS: Final = 1 << 24  # 64 MiB of copies: of a large model the first parameters stand for all


class UpdateRatio(Metric):
    """The norm of one update by the norm of the weights: that of the first whole step after each sample."""

    at_once = True  # it reads the weights

    def __init__(self) -> None:
        self._parameters: list[Any] = []
        self._before: list[npt.NDArray[Any]] | None = None
        self._step_before = 0
        self._is_wanted = True
        self._ratio: float | None = None

    def begin(self, training: TrainingFacts) -> None:
        """Chooses the parameters."""
        self._parameters = []
        elements = 0
        for parameter in training.parameters() if training.parameters is not None else ():
            elements += math.prod(getattr(parameter, "shape", ()))
            if self._parameters and elements > _MAX_ELEMENTS:
                break
            self._parameters.append(parameter)

    def observe(self, facts: StepFacts) -> float | None:
        """Takes the weights after one step, and compares them after the next."""
        if not self._is_wanted or not self._parameters:
            return None
        before, self._before = self._before, None
        if before is not None and facts.step - self._step_before == facts.steps == 1:
            self._ratio = self._compare(before)
            self._is_wanted = False
            return self._ratio
        if facts.steps == 1:  # in data sink mode there is no call between two steps
            self._before = [array.astype(np.float32) for array in self._arrays()]  # which copies
            self._step_before = facts.step
        return None

    def sample(self, window: Window) -> MetricValue:
        """Returns the ratio of the step that was compared since the last sample."""
        ratio, self._ratio = self._ratio, None
        self._is_wanted = True
        return ratio

    def _arrays(self) -> list[npt.NDArray[Any]]:
        arrays = (to_array(parameter) for parameter in self._parameters)
        return [array for array in arrays if array is not None]

    def _compare(self, before: list[npt.NDArray[Any]]) -> float | None:
        moved = held = 0.0
        for old, new in zip(before, self._arrays(), strict=True):
            held += float(np.vdot(old, old))
            difference = new.astype(np.float32) - old
            moved += float(np.vdot(difference, difference))
        return math.sqrt(moved / held) if held > 0 else None

    def close(self) -> None:
        """Lets go of the parameters."""
        self._parameters = []
        self._before = None
