"""How fast a training goes, from the steps that could be timed; `training.facts` has the formulas.

All rates are those of this session and of a monotonic clock. The first step compiles and is left out, as are evaluation
and the saving of checkpoints; what cannot be known is left out.
"""

from __future__ import annotations

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window

__all__ = ["DataTime", "ModelFlopsUtilization", "SamplesPerSecond", "StepTime", "TokensPerSecond"]


class StepTime(Metric):
    """Seconds of one step, waiting for data included."""

    anywhere = True

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the mean over the steps of one call."""
        return facts.step_time

    def sample(self, window: Window) -> MetricValue:
        """Returns the mean over the interval."""
        return window.step_time


class DataTime(Metric):
    """Seconds of one step in which the training waited for data."""

    anywhere = True

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the mean over the steps of one call."""
        return facts.data_time

    def sample(self, window: Window) -> MetricValue:
        """Returns the mean over the interval."""
        return window.data_time


class SamplesPerSecond(Metric):
    """Samples per second over all cards."""

    anywhere = True

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the rate of one call."""
        return facts.samples_per_second

    def sample(self, window: Window) -> MetricValue:
        """Returns the rate of the interval."""
        return window.samples_per_second


class TokensPerSecond(Metric):
    """Tokens per second over all cards."""

    anywhere = True

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the rate of one call."""
        return facts.tokens_per_second

    def sample(self, window: Window) -> MetricValue:
        """Returns the rate of the interval."""
        return window.tokens_per_second


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
        return self._training.utilization(facts.steps, facts.tokens, facts.secs)

    def sample(self, window: Window) -> MetricValue:
        """Returns the utilization of the interval."""
        return self._training.utilization(window.timed_steps, window.tokens, window.secs)
