"""The rule about a loss that stands still over many steps."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.alarms.rules.rule import Observation, ValueRule
from ms_summary_bridge.monitor.model.alert import Alert

__all__ = ["NotImproving"]


class NotImproving(ValueRule):
    """A value that has reached no new best for many steps."""

    name: ClassVar[str] = "not_improving"

    def __init__(
        self, *, metric: str = "loss", patience: int = 10_000, min_delta: float = 0.0, mode: str = "min"
    ) -> None:
        super().__init__(metric)
        self._patience = patience
        self._min_delta = min_delta
        self._sign = 1.0 if mode == "min" else -1.0
        # The best of single noisy values is luck and might never be reached again: the medians of blocks are compared.
        self._size = max(1, min(100, patience // 10))
        self._block: list[float] = []
        self._best: tuple[float, int] | None = None

    def _take(self, point: Observation, value: float) -> Alert | None:
        if not math.isfinite(value):
            return None
        self._block.append(value)
        if len(self._block) < self._size:
            return None
        level = self._sign * float(np.median(self._block))
        self._block.clear()
        if self._best is None or level < self._best[0] - self._min_delta:
            self._best = (level, point.step)
            return None
        best, step = self._best
        passed = point.step - step
        if passed < self._patience:
            return None
        return self.alert(
            point,
            self._metric,
            value,
            f"{self._metric} has not improved for {counted(passed, 'step')}; "
            f"its best level was {self._sign * best:.6g}",
            "compare with an evaluation: it may have learned what it can; else look at the learning rate and at "
            "whether the data still changes",
            bound=self._sign * best,
            since=step,
        )
