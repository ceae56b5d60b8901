"""What the host says of this process: its memory, its rank.

Layer: monitor.metrics < **monitor.metrics.host**.
"""

from __future__ import annotations

from typing import Final

import psutil

from ms_summary_bridge.monitor.facts import TrainingFacts, Window
from ms_summary_bridge.monitor.metrics import Metric, MetricValue

__all__ = ["GlobalRank", "HostMemory", "resident_mib"]

_MIB: Final = 1 << 20


def resident_mib() -> float | None:
    """Returns the memory of this process that is in the host's RAM, in MiB; None when the system does not say."""
    try:
        return float(psutil.Process().memory_info().rss) / _MIB
    except (psutil.Error, OSError):
        return None


class HostMemory(Metric):
    """Memory of the process on the host, MiB."""

    off_thread = True

    def sample(self, window: Window) -> MetricValue:
        """Returns the resident size."""
        return resident_mib()


class GlobalRank(Metric):
    """The rank of this process among all."""

    def __init__(self) -> None:
        self._rank = 0

    def begin(self, training: TrainingFacts) -> None:
        """Takes the rank."""
        self._rank = training.rank

    def sample(self, window: Window) -> MetricValue:
        """Returns the rank."""
        return float(self._rank)
