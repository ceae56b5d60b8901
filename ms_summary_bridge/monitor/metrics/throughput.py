"""How fast a training goes, from the steps that could be timed.

All rates are those of this session and of a monotonic clock. The first step compiles and is left out, as are evaluation
and the saving of checkpoints; what cannot be known is no number.
"""

from __future__ import annotations

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.monitor.model.facts import StepFacts, TrainingFacts, Window

__all__ = ["DataTime", "ModelFlopsUtilization", "SamplesPerSecond", "StepTime", "TokensPerSecond"]


def _rate(amount: float | None, secs: float | None) -> float | None:
    return amount / secs if amount is not None and secs is not None and secs > 0 else None


class StepTime(Metric):
    """Seconds of one step, waiting for data included."""

    anywhere = True

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the mean over the steps of one call."""
        return None if facts.secs is None else facts.secs / facts.steps

    def sample(self, window: Window) -> MetricValue:
        """Returns the mean over the interval."""
        return window.secs / window.timed_steps if window.timed_steps else None


class DataTime(Metric):
    """Seconds of one step in which the training waited for data."""

    anywhere = True

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the mean over the steps of one call."""
        return None if facts.secs is None or facts.data_secs is None else facts.data_secs / facts.steps

    def sample(self, window: Window) -> MetricValue:
        """Returns the mean over the interval."""
        return window.data_secs / window.timed_steps if window.timed_steps and window.data_secs is not None else None


class SamplesPerSecond(Metric):
    """Samples per second over all cards."""

    anywhere = True

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the rate of one call."""
        return _rate(facts.samples, facts.secs)

    def sample(self, window: Window) -> MetricValue:
        """Returns the rate of the interval."""
        return _rate(window.samples, window.secs)


class TokensPerSecond(Metric):
    """Tokens per second over all cards."""

    anywhere = True

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the rate of one call."""
        return _rate(facts.tokens, facts.secs)

    def sample(self, window: Window) -> MetricValue:
        """Returns the rate of the interval."""
        return _rate(window.tokens, window.secs)


class ModelFlopsUtilization(Metric):
    """The part of the cards' peak that the model's own operations use. Needs the configuration's figures."""

    anywhere = True

    def __init__(self) -> None:
        self._training = TrainingFacts()

    def begin(self, training: TrainingFacts) -> None:
        """Takes the figures."""
        self._training = training

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the utilization of one call."""
        return self._of(facts.steps, facts.tokens, facts.secs)

    def sample(self, window: Window) -> MetricValue:
        """Returns the utilization of the interval."""
        return self._of(window.timed_steps, window.tokens, window.secs)

    def _of(self, steps: int, tokens: int | None, secs: float | None) -> float | None:
        training = self._training
        done: float | None = None
        if training.model_flops is not None:
            done = training.model_flops * steps
        elif training.flops_per_token is not None and tokens is not None:
            done = training.flops_per_token * tokens
        rate = _rate(done, secs)
        if rate is None or not training.peak_flops:
            return None
        return rate / (training.peak_flops * training.ranks)
