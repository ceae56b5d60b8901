"""Metrics of the device: memory as MindSpore counts it, and what the device's own tool says.

Looks at mindspore only where the training has imported it.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Final, Literal

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.monitor.metrics.device_sampler import DeviceSampler
from ms_summary_bridge.monitor.metrics.gpu import Nvml
from ms_summary_bridge.monitor.metrics.host import HostMemory
from ms_summary_bridge.monitor.metrics.npu_smi import NpuSmi
from ms_summary_bridge.training.facts import TrainingFacts, Window
from ms_summary_bridge.training.measures import device_memory

__all__ = ["DeviceFigure", "MemoryUsage", "memory_totals"]

_Tool = Literal["npu-smi", "nvml"]
_MEMORY: Final[dict[_Tool, str]] = {"npu-smi": "npu_memory", "nvml": "gpu_memory"}


class MemoryUsage(Metric):
    """MiB that this process holds on its device; on a CPU, which has none of its own, `HostMemory`."""

    def __init__(self) -> None:
        self._host = HostMemory()

    def begin(self, training: TrainingFacts) -> None:
        """Leaves the host to the writing thread; the device is asked where the training runs."""
        self.off_thread = training.device.startswith("CPU")

    def sample(self, window: Window) -> MetricValue:
        """Returns what MindSpore has allocated, without waiting for the device."""
        mindspore = None if self.off_thread else sys.modules.get("mindspore")
        figures = device_memory(mindspore) if mindspore is not None else {}
        allocated = figures.get("memory/allocated_mib")
        return self._host.sample(window) if allocated is None else allocated


class _Samplers:
    """One sampler for each tool and device, however many metrics ask it, for as long as one of them does."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begins anew, in a forked child, which has neither the threads nor the holder of the lock."""
        self._lock = threading.Lock()
        self._users: dict[tuple[_Tool, int], tuple[DeviceSampler, int]] = {}

    def take(self, key: tuple[_Tool, int]) -> DeviceSampler:
        tool, device_id = key
        with self._lock:
            sampler, users = self._users.get(key, (None, 0))
            if sampler is None:
                source = NpuSmi(device_id) if tool == "npu-smi" else Nvml(device_id)
                sampler = DeviceSampler(source, f"metrics of {tool}")
            self._users[key] = (sampler, users + 1)
        return sampler

    def give_back(self, key: tuple[_Tool, int]) -> None:
        with self._lock:
            sampler, users = self._users.pop(key)
            if users > 1:
                self._users[key] = (sampler, users - 1)
                return
        sampler.close()

    def memory_totals(self) -> dict[str, float]:
        with self._lock:
            latest = [(_MEMORY[tool], sampler.latest()) for (tool, _), (sampler, _) in self._users.items()]
        return {name: reading.memory_total for name, reading in latest if reading and reading.memory_total}


_SAMPLERS: Final = _Samplers()
if sys.platform != "win32":
    os.register_at_fork(after_in_child=_SAMPLERS.forget)


def memory_totals() -> dict[str, float]:
    """Returns all memory of the devices whose memory is measured, MiB by metric."""
    return _SAMPLERS.memory_totals()


class DeviceFigure(Metric):
    """A figure of DeviceReading, by a tool, or by the one of the training's device; `sample` never waits for it."""

    anywhere = True

    def __init__(self, figure: str, tool: _Tool | None = None) -> None:
        self._figure = figure
        self._tool = tool
        self._key: tuple[_Tool, int] | None = None
        self._sampler: DeviceSampler | None = None
        self._is_waiting = False  # at its end

    def begin(self, training: TrainingFacts) -> None:
        """Begins to ask the tool."""
        self.close()
        tool = self._tool or ("nvml" if training.device.upper().startswith("GPU") else "npu-smi")
        self._key = (tool, training.device_id)
        self._sampler = _SAMPLERS.take(self._key)
        self._sampler.latest()

    def sample(self, window: Window) -> MetricValue:
        """Returns the figure; None where the tool does not give it."""
        latest = None if self._sampler is None else self._sampler.latest()
        figure: float | None = None if latest is None else getattr(latest, self._figure)
        return figure

    def is_waiting(self) -> bool:
        """Whether the tool has neither answered nor failed."""
        return self._is_waiting if self._sampler is None else not self._sampler.wait(0)

    def close(self) -> None:
        """Stops asking, if no other metric asks too."""
        self._is_waiting = self.is_waiting()
        key, self._key, self._sampler = self._key, None, None  # first: a tool that is ended has not answered
        if key is not None:
            _SAMPLERS.give_back(key)
