"""Asks a device how it is, on a thread of its own, so that no training step ever waits for the answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ms_summary_bridge.errors import BridgeError

__all__ = ["DeviceError", "DeviceReading", "DeviceSampler", "DeviceSource"]

_LOG: Final = logging.getLogger("ms_summary_bridge")
_PERIOD_SECS: Final = 10.0
_LONGEST_PAUSE_SECS: Final = 600.0
_JOIN_SECS: Final = 2.0


class DeviceError(BridgeError):
    """A device's tool does not say how the device is; with `is_final` asking again is of no use."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class DeviceReading(msgspec.Struct, frozen=True, kw_only=True):
    """How a device is at one moment. None for what it does not say.

    Attributes:
        utilization: How busy its cores are, per cent.
        memory_used: Memory in use by all processes, MiB.
        memory_total: All its memory, MiB.
        power: Watt.
        temperature: Degrees Celsius.
    """

    utilization: float | None = None
    memory_used: float | None = None
    memory_total: float | None = None
    power: float | None = None
    temperature: float | None = None


class DeviceSource(Protocol):
    """What can be asked: `npu_smi.NpuSmi`, `gpu.Nvml`."""

    def read(self) -> DeviceReading:
        """Returns how the device is now, and takes its time.

        Raises:
            DeviceError: It does not say.
        """

    def close(self) -> None:
        """Has a question that is being asked fail soon. Called from another thread."""


class DeviceSampler:
    """Keeps the last reading of a device, for the metrics `names`.

    That there is none is said once; the source is then asked again at growing intervals, without a word.
    """

    def __init__(
        self,
        source: DeviceSource,
        names: str,
        period_secs: float = _PERIOD_SECS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._names = names
        self._period_secs = period_secs
        self._clock = clock
        self._last: tuple[float, DeviceReading] | None = None
        self._failures = 0
        self._is_said = False
        self._asked = threading.Event()  # an answer or a failure has come
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def latest(self) -> DeviceReading | None:
        """Returns the last reading, at once; the first call starts the thread.

        None before the first answer, and when the last one is so old that it says nothing of now.
        """
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="ms_summary_bridge device", daemon=True)
            self._thread.start()
        if self._last is None:
            return None
        answered, reading = self._last
        return reading if self._clock() - answered <= 3 * self._period_secs + 30 else None

    def wait(self, timeout_secs: float) -> bool:
        """Waits until the source has answered or failed once; returns whether it has."""
        self.latest()
        return self._asked.wait(timeout_secs)

    def close(self) -> None:
        """Ends the thread. One whose source still hangs is left behind; it ends with the process."""
        self._stopped.set()
        self._source.close()
        if self._thread is not None:
            self._thread.join(_JOIN_SECS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                reading = self._source.read()
            except Exception as error:  # a driver's module raises what it likes; no thread ends with a traceback
                if self._stopped.is_set():  # the source was closed: this is not its answer
                    return
                if not self._is_said:
                    self._is_said = True
                    _LOG.warning("%s: unavailable: %s", self._names, error)
                self._failures += 1
                if isinstance(error, DeviceError) and error.is_final:
                    self._stopped.set()
            else:
                self._last = (self._clock(), reading)
                self._failures = 0
            self._asked.set()
            self._stopped.wait(min(self._period_secs * 2 ** min(self._failures, 10), _LONGEST_PAUSE_SECS))
