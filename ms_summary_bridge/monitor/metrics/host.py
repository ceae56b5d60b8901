"""What the host says of this process: its memory, its rank."""

from __future__ import annotations

from typing import Final

import psutil

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.training.facts import TrainingFacts, Window

__all__ = ["GlobalRank", "HostMemory"]

_MIB: Final = 1 << 20


class HostMemory(Metric):
    """Memory of the process on the host, MiB."""

    off_thread = True

    def __init__(self) -> None:
        self._process = psutil.Process()

    def sample(self, window: Window) -> MetricValue:
        """Returns the resident size."""
        return float(self._process.memory_info().rss) / _MIB


class GlobalRank(Metric):
    """The rank of this process among all."""

    anywhere = True

    def __init__(self) -> None:
        self._rank = 0

    def begin(self, training: TrainingFacts) -> None:
        """Takes the rank."""
        self._rank = training.rank

    def sample(self, window: Window) -> MetricValue:
        """Returns the rank."""
        return float(self._rank)
