"""What the training itself says of a step: loss, learning rate, norm, scale, place."""

from __future__ import annotations

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.training.facts import StepFacts, Window

__all__ = ["Epoch", "GradNorm", "LearningRate", "Loss", "LossScale", "Overflow", "Step"]


class Loss(Metric):
    """The loss, as one batch has it."""

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the loss of the step."""
        return facts.loss


class GradNorm(Metric):
    """The norm of all gradients."""

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the norm."""
        return facts.grad_norm


class LossScale(Metric):
    """The factor of mixed precision."""

    def observe(self, facts: StepFacts) -> float | None:
        """Returns the scale that the step used."""
        return facts.loss_scale


class LearningRate(Metric):
    """The learning rate, of each group where they differ. Read at a sample only: a schedule is a small network."""

    anywhere = True

    def sample(self, window: Window) -> MetricValue:
        """Returns the rate of the last step."""
        if window.last.learning_rate is not None:
            return window.last.learning_rate
        return window.learning_rates() if window.learning_rates is not None else None


class Overflow(Metric):
    """How many steps were skipped because their gradients overflowed."""

    anywhere = True

    def sample(self, window: Window) -> MetricValue:
        """Returns the steps since the last sample."""
        return None if window.overflows is None else float(window.overflows)


class Epoch(Metric):
    """The epoch, from 1."""

    anywhere = True

    def sample(self, window: Window) -> MetricValue:
        """Returns the epoch of the last step."""
        return None if window.last.epoch is None else float(window.last.epoch)


class Step(Metric):
    """The step over all epochs and sessions."""

    anywhere = True

    def sample(self, window: Window) -> MetricValue:
        """Returns the last step."""
        return float(window.last.step)
