"""Rules about values that are lost: NaN and infinity, skipped steps, gradients of nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.alarms.rules.rule import Observation, Rule, Streak, ValueRule, say_number
from ms_summary_bridge.monitor.model.alert import Alert

__all__ = ["GradientVanishing", "Nonfinite", "OverflowStreak"]


class Nonfinite(Rule):
    """A value that is NaN or infinite; not in a step that was skipped for an overflow, since its weights are whole."""

    name: ClassVar[str] = "nonfinite"

    def __init__(self, *, metrics: Sequence[str] = ("loss", "grad_norm"), patience: int = 1) -> None:
        self.metrics = tuple(metrics)
        self._patience = patience
        self._streaks = {metric: Streak() for metric in self.metrics}

    def observe(self, point: Observation) -> Alert | None:
        """Takes one point."""
        if point.overflow:
            return None
        found = None
        for metric in self.metrics:
            value = point.values.get(metric)
            if value is None:
                continue
            streak = self._streaks[metric]
            if streak.add(point, is_on=not math.isfinite(value)) < self._patience or found is not None:
                continue
            since = streak.since
            lasts = f" since step {since}" if since < point.step else ""
            found = self.alert(
                point,
                metric,
                value,
                f"{metric} is {say_number(value)}{lasts}",
                "the weights are lost from this step on: go back to a checkpoint from before it, and look at this "
                "step's data, the learning rate and the gradient norm just before",
                severity="critical",
                since=since,
            )
        return found


class OverflowStreak(Rule):
    """Steps that were skipped one after the other, because their gradients overflowed.

    A dynamic loss scale of 2 ** 24 that finds its level skips two dozen.
    """

    name: ClassVar[str] = "overflow_streak"
    metrics = ("overflow",)

    def __init__(self, *, steps: int = 30) -> None:
        self._steps = steps
        self._streak = Streak()

    def observe(self, point: Observation) -> Alert | None:
        """Takes one point."""
        if point.overflow is None:
            return None
        count = self._streak.add(point, is_on=point.overflow, steps=point.steps)
        if count < self._steps:
            return None
        return self.alert(
            point,
            "overflow",
            float(count),
            f"{counted(count, 'step')} in a row were skipped for an overflow",
            "nothing is learned while every step is skipped: see whether the loss scale still falls, and look for "
            "infinite values in the network's own outputs",
            bound=float(self._steps),
            severity="critical",
            since=self._streak.since,
        )


class GradientVanishing(ValueRule):
    """A gradient norm of almost nothing, for many steps."""

    name: ClassVar[str] = "gradient_vanishing"

    def __init__(self, *, below: float = 1e-9, steps: int = 50) -> None:
        super().__init__("grad_norm")
        self._below = below
        self._steps = steps
        self._streak = Streak()

    def _take(self, point: Observation, value: float) -> Alert | None:
        count = self._streak.add(point, is_on=value < self._below)
        if count < self._steps:
            return None
        return self.alert(
            point,
            "grad_norm",
            value,
            f"the gradient norm is {value:.3g}, below {self._below:g} for {counted(count, 'step')}",
            "the weights do not move any more: look at the loss scale, at saturated activations, at layers that are "
            "frozen, and at whether the optimizer gets the gradients at all",
            bound=self._below,
            since=self._streak.since,
        )
