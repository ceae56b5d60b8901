"""What the training itself says: of each step, of an interval, of this process.

All rates are those of this session and of a monotonic clock; `training.facts` has the formulas. The first step compiles
and is left out, as are evaluation and the saving of checkpoints; what cannot be known is left out.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.monitor.model.metric_names import say_mfu_needs
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window

__all__ = ["GlobalRank", "IntervalNumber", "LearningRate", "ModelFlopsUtilization", "Rate", "StepNumber"]


class StepNumber(Metric):
    """A number of each step: one of StepFacts."""

    def __init__(self, name: str) -> None:
        self._read = attrgetter(name)

    def observe(self, facts: StepFacts) -> Any:
        """Returns that of one call."""
        return self._read(facts)


class IntervalNumber(Metric):
    """A number of an interval, or of its last step: one of Window."""

    anywhere = True

    def __init__(self, name: str) -> None:
        self._read = attrgetter(name)

    def sample(self, window: Window) -> Any:
        """Returns that of the interval."""
        return self._read(window)


class Rate(StepNumber, IntervalNumber):
    """A number that a step and an interval have under one name."""


class LearningRate(Metric):
    """The learning rate, of each group where they differ. Read at a sample only: a schedule is a small network."""

    anywhere = True

    def sample(self, window: Window) -> MetricValue:
        """Returns the rate of the last step."""
        if window.last.learning_rate is not None:
            return window.last.learning_rate
        return window.learning_rates() if window.learning_rates is not None else None


class ModelFlopsUtilization(Metric):
    """The part of all cards' peak that the model's own operations use. Needs the configuration's figures."""

    anywhere = True

    def begin(self, training: TrainingFacts) -> None:
        """Takes the figures."""
        self._training = training
        self._has_tokens = False

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the utilization of one call."""
        return self._training.utilization(facts)

    def sample(self, window: Window) -> MetricValue:
        """Returns the utilization of the interval."""
        self._has_tokens = window.tokens is not None
        return self._training.utilization(window)

    def say_needs(self) -> str:
        """Returns which of the figures is missing."""
        return say_mfu_needs(
            has_peak=bool(self._training.peak_flops),
            has_model=self._training.model_flops is not None,
            has_token=self._training.flops_per_token is not None,
            has_tokens=self._has_tokens,
        )


class GlobalRank(Metric):
    """The rank of this process among all."""

    anywhere = True

    def begin(self, training: TrainingFacts) -> None:
        """Takes the rank."""
        self._rank = training.rank

    def sample(self, window: Window) -> MetricValue:
        """Returns the rank."""
        return self._rank
