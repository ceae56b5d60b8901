"""What NVIDIA's management library says of one GPU.

Imports pynvml, of the package nvidia-ml-py, where it is installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from ms_summary_bridge.monitor.metrics.device_sampler import DeviceError, DeviceReading

__all__ = ["Nvml"]

_MIB: Final = 1 << 20


class Nvml:
    """Asks NVML about one GPU, by MindSpore's device id, which is counted among CUDA_VISIBLE_DEVICES."""

    def __init__(self, device_id: int) -> None:
        visible = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
        # An entry is an index, or a UUID that begins with GPU- or MIG-.
        self._device = visible[device_id] if 0 <= device_id < len(visible) else str(device_id)
        self._nvml: Any = None
        self._handle: Any = None

    def read(self) -> DeviceReading:
        """Returns what the GPU says now; figures that it does not have are None.

        Raises:
            DeviceError: nvidia-ml-py, the driver or the GPU is missing.
        """
        if self._nvml is None:
            self._open()
        nvml, handle = self._nvml, self._handle
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        utilization = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        milliwatt = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        temperature = self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
        reading = DeviceReading(
            utilization=None if utilization is None else float(utilization),
            memory_used=None if memory is None else memory.used / _MIB,
            memory_total=None if memory is None else memory.total / _MIB,
            power=None if milliwatt is None else milliwatt / 1000,
            temperature=None if temperature is None else float(temperature),
        )
        if reading == DeviceReading():
            raise DeviceError(f"NVML says nothing of GPU {self._device}")
        return reading

    def close(self) -> None:
        """Nothing waits in NVML, and others in this process may use it too."""

    def _open(self) -> None:
        try:
            nvml = import_module("pynvml")
        except ImportError as error:
            raise DeviceError("pynvml is missing: pip install nvidia-ml-py", is_final=True) from error
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise DeviceError(f"no NVIDIA driver answers: {error}", is_final=True) from error
        try:
            if self._device.isdigit():
                self._handle = nvml.nvmlDeviceGetHandleByIndex(int(self._device))
            else:
                self._handle = nvml.nvmlDeviceGetHandleByUUID(self._device)
        except nvml.NVMLError as error:
            raise DeviceError(f"NVML finds no GPU {self._device}: {error}", is_final=True) from error
        self._nvml = nvml

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Returns the answer; None when this GPU has none (a notebook's has no power, a MIG slice no utilization)."""
        try:
            return question()
        except self._nvml.NVMLError:
            return None
