"""The heartbeat of a training: where it stands and since when, in memory that a process beside it reads.

Layer: errors < **monitor.heartbeat**. Linux only (memfd); `Heartbeat` raises OSError elsewhere.

One beat is a copy of some bytes: no system call, no disk that could fail or hang, and nothing to be left behind.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from typing import Final

import msgspec

from ms_summary_bridge.monitor.breakdown import KINDS

__all__ = ["END", "PHASES", "START", "Beat", "Heartbeat", "HeartbeatReader"]

START: Final = "start"
END: Final = "end"
PHASES: Final = (START, *KINDS, END)
"""What a training can be doing."""

# count, calls, step, epoch (0 for none), phase, monotonic seconds
_LAYOUT: Final = struct.Struct("<QQqqqd")
_SIZE: Final = _LAYOUT.size + 4  # and a checksum
_NUMBERS: Final = {phase: number for number, phase in enumerate(PHASES)}


class Beat(msgspec.Struct, frozen=True):
    """One sign of life.

    Attributes:
        count: How many there have been; two that are alike are one and the same.
        calls: How many calls of the training network have ended: steps, or sinks of many.
        step: The last step that has ended.
        epoch: Of that step, from 1; None where nobody says it.
        phase: What began at that moment, one of `PHASES`.
        monotonic: Seconds of the clock that is never set, when it began.
    """

    count: int
    calls: int
    step: int
    epoch: int | None
    phase: str
    monotonic: float


class Heartbeat:
    """The training's end.

    Args:
        step: Step from which the training counts.
    """

    def __init__(self, step: int = 0) -> None:
        self.descriptor = os.memfd_create("ms_summary_bridge heartbeat")
        os.ftruncate(self.descriptor, _SIZE)
        self._memory = mmap.mmap(self.descriptor, _SIZE)
        self._count = self._calls = self._epoch = 0
        self._step = step
        self.phase = START
        """What the training is doing."""
        self.beat(START)

    def end_step(self, step: int, epoch: int | None) -> None:
        """A call of the network has ended; the next beat says so."""
        self._calls += 1
        self._step, self._epoch = step, epoch or 0

    def beat(self, phase: str) -> None:
        """Another phase begins."""
        self.phase = phase
        self._count = count = self._count + 1
        beat = _LAYOUT.pack(count, self._calls, self._step, self._epoch, _NUMBERS[phase], time.monotonic())
        # A checksum, since the reader may see a part of what is copied at that moment, in any order.
        self._memory[:] = beat + zlib.crc32(beat).to_bytes(4, "little")

    def close(self) -> None:
        """Nobody reads it any more. The memory stays as long as this object: who is on the way out may beat yet."""
        os.close(self.descriptor)


class HeartbeatReader:
    """The other end.

    Args:
        descriptor: That of the heartbeat, inherited.
    """

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, _SIZE, prot=mmap.PROT_READ)

    def read(self) -> Beat | None:
        """Returns the last beat; None if one is being written at this moment."""
        data = self._memory[:]
        beat = data[: _LAYOUT.size]
        if zlib.crc32(beat) != int.from_bytes(data[_LAYOUT.size :], "little"):
            return None
        count, calls, step, epoch, phase, monotonic = _LAYOUT.unpack(beat)
        return Beat(count, calls, step, epoch or None, PHASES[phase], monotonic)
