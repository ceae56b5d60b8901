"""Metrics of the device: memory as MindSpore counts it, and what the device's own tool says.

Looks at mindspore only where the training has imported it.
"""

from __future__ import annotations

import sys
import threading
from typing import ClassVar, Final, Literal

from ms_summary_bridge.monitor.metrics import Metric, MetricValue
from ms_summary_bridge.monitor.metrics.device_sampler import DeviceReading, DeviceSampler
from ms_summary_bridge.monitor.metrics.gpu import Nvml
from ms_summary_bridge.monitor.metrics.host import HostMemory
from ms_summary_bridge.monitor.metrics.npu_smi import NpuSmi
from ms_summary_bridge.training.facts import TrainingFacts, Window
from ms_summary_bridge.training.measures import device_memory

__all__ = [
    "GpuMemory",
    "GpuUtilization",
    "MemoryUsage",
    "NpuMemory",
    "NpuPower",
    "NpuUtilization",
    "Temperature",
    "memory_totals",
]


_Tool = Literal["npu-smi", "nvml"]


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

    def readings(self) -> list[tuple[_Tool, DeviceReading]]:
        with self._lock:
            samplers = [(key[0], sampler) for key, (sampler, _) in self._users.items()]
        latest = [(tool, sampler.latest()) for tool, sampler in samplers]
        return [(tool, reading[0]) for tool, reading in latest if reading is not None]


_SAMPLERS: Final = _Samplers()


def memory_totals() -> dict[str, float]:
    """Returns all memory of the devices whose memory is measured, MiB by metric."""
    totals: dict[str, float] = {}
    for tool, reading in _SAMPLERS.readings():
        if reading.memory_total:
            totals["npu_memory" if tool == "npu-smi" else "gpu_memory"] = reading.memory_total
    return totals


class _DeviceMetric(Metric):
    """A figure that the device's tool gives. `sample` returns the last answer and never waits for one."""

    anywhere = True
    figure: ClassVar[str]  # of DeviceReading
    tool: ClassVar[_Tool | None] = "npu-smi"  # None: the one of the training's device

    def __init__(self) -> None:
        self._key: tuple[_Tool, int] | None = None
        self._sampler: DeviceSampler | None = None
        self._is_waiting = False  # at its end

    def begin(self, training: TrainingFacts) -> None:
        """Begins to ask the tool."""
        self.close()
        tool = self.tool or ("nvml" if training.device.upper().startswith("GPU") else "npu-smi")
        self._key = (tool, training.device_id)
        self._sampler = _SAMPLERS.take(self._key)
        self._sampler.latest()

    def sample(self, window: Window) -> MetricValue:
        """Returns the figure; None where the tool does not give it."""
        latest = None if self._sampler is None else self._sampler.latest()
        figure: float | None = None if latest is None else getattr(latest[0], self.figure)
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


class NpuUtilization(_DeviceMetric):
    """How busy the AI cores are, per cent."""

    figure = "utilization"


class NpuMemory(_DeviceMetric):
    """MiB of the NPU's memory that are in use, by whatever process."""

    figure = "memory_used"


class NpuPower(_DeviceMetric):
    """Watt that the NPU takes."""

    figure = "power"


class Temperature(_DeviceMetric):
    """Degrees Celsius of the device."""

    figure = "temperature"
    tool = None


class GpuUtilization(_DeviceMetric):
    """How busy the GPU is, per cent."""

    figure = "utilization"
    tool = "nvml"


class GpuMemory(_DeviceMetric):
    """MiB of the GPU's memory that are in use, by whatever process."""

    figure = "memory_used"
    tool = "nvml"
