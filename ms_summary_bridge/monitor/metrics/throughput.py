"""How fast a training goes, from the steps that could be timed; `training.facts` has the formulas.

All rates are those of this session and of a monotonic clock. The first step compiles and is left out, as are evaluation
and the saving of checkpoints; what cannot be known is left out.
"""

from __future__ import annotations

from typing import Any, ClassVar

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window

__all__ = ["DataTime", "ModelFlopsUtilization", "SamplesPerSecond", "StepTime", "TokensPerSecond"]


class _Rate(Metric):
    """A number that a call and an interval have under one name."""

    anywhere = True
    number: ClassVar[str]

    def observe(self, facts: StepFacts) -> Any:
        """Returns that of one call."""
        return getattr(facts, self.number)

    def sample(self, window: Window) -> Any:
        """Returns that of the interval."""
        return getattr(window, self.number)


class StepTime(_Rate):
    """Seconds of one step, waiting for data included."""

    number = "step_time"


class DataTime(_Rate):
    """Seconds of one step in which the training waited for data."""

    number = "data_time"


class SamplesPerSecond(_Rate):
    """Samples per second over all cards."""

    number = "samples_per_second"


class TokensPerSecond(_Rate):
    """Tokens per second over all cards."""

    number = "tokens_per_second"


class ModelFlopsUtilization(Metric):
    """The part of all cards' peak that the model's own operations use. Needs the configuration's figures."""

    anywhere = True

    def __init__(self) -> None:
        self._training = TrainingFacts()

    def begin(self, training: TrainingFacts) -> None:
        """Takes the figures."""
        self._training = training

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the utilization of one call."""
        return self._training.utilization(facts)

    def sample(self, window: Window) -> MetricValue:
        """Returns the utilization of the interval."""
        return self._training.utilization(window)
