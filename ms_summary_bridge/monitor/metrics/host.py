"""What the host says of this process: its memory."""

from __future__ import annotations

import contextlib
from typing import Final

import psutil

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.training.facts import Window

__all__ = ["HostMemory"]

_MIB: Final = 1 << 20


class HostMemory(Metric):
    """Memory of the process on the host and of those it began, such as data workers, MiB.

    Of a child counts what it has alone: most of a fork's pages are the training's own.
    """

    off_thread = True

    def __init__(self) -> None:
        self._process = psutil.Process()

    def sample(self, window: Window) -> MetricValue:
        """Returns the resident size, and what children have beside it."""
        total = self._process.memory_info().rss
        for child in self._process.children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                total += child.memory_full_info().uss
        return float(total) / _MIB
