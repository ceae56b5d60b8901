"""The heartbeat of a training: where it stands and since when, in memory that a process beside it reads.

Linux only (memfd); `Heartbeat` raises OSError elsewhere.

One beat is one number at its place: no system call, no disk that could fail or hang, and nothing to be left behind.
Each place holds 8 bytes that are copied at once, so nobody reads half a number. What belongs together is not written
together: a look at a moment of change may find the step before, and the next look corrects it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from typing import Final

import msgspec

from ms_summary_bridge.training.phases import PHASES, START, number_of

__all__ = ["CALLS", "EPOCH", "STEP", "Beat", "Heartbeat", "HeartbeatReader", "find_beat", "list_descriptors"]

_NAME: Final = "ms_summary_bridge heartbeat"
_PROC: Final = "/proc"

# At the place of each phase: when it last began, in monotonic seconds. The training is in the one that began last.
CALLS: Final = len(PHASES)
STEP: Final = CALLS + 1
EPOCH: Final = CALLS + 2  # 0 for none
_COUNT: Final = CALLS + 3


class Beat(msgspec.Struct, frozen=True):
    """One sign of life.

    `calls` is how many calls of the training network have ended, steps or sinks of many; `step` is the last that has
    ended, and `epoch` its own, from 1. `phase`, one of `PHASES`, began at `monotonic`, in seconds of the clock that is
    never set.
    """

    calls: int
    step: int
    epoch: int | None
    phase: str
    monotonic: float


class Heartbeat:
    """The training's end.

    It counts from `step`. Unless it `is_shared` nothing can fail, and nobody needs to ask whether there is a watchdog.
    """

    def __init__(self, step: int = 0, *, is_shared: bool = True) -> None:
        self.places: list[float] | memoryview[float] = [0.0] * _COUNT
        """Numbers by their place: `CALLS`, `STEP`, `EPOCH`, and for each phase when it last began."""
        self.descriptor = -1
        if is_shared:
            self.descriptor = os.memfd_create(_NAME)
            os.ftruncate(self.descriptor, 8 * _COUNT)
            self.places = memoryview(mmap.mmap(self.descriptor, 8 * _COUNT)).cast("d")
        self.places[STEP] = step
        self.phase = 0
        """Number of what the training is doing. Who writes a place of a phase says so here, for those that return."""
        self.beat(START)

    def turn(self, phase: int, now: float) -> int:
        """Another phase begins at `now`, in monotonic seconds; returns the number of the one before."""
        self.places[phase] = now
        before, self.phase = self.phase, phase
        return before

    def beat(self, phase: str) -> None:
        """Another phase begins."""
        self.turn(number_of(phase), time.monotonic())

    def close(self) -> None:
        """Nobody reads it any more. The memory stays as long as this object: who is on the way out may beat yet."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class HeartbeatReader:
    """The other end."""

    def __init__(self, descriptor: int) -> None:
        self._places = memoryview(mmap.mmap(descriptor, 8 * _COUNT, prot=mmap.PROT_READ)).cast("d")

    def read(self) -> Beat:
        """Returns the last beat."""
        *since, calls, step, epoch = self._places.tolist()
        phase = max(range(CALLS), key=since.__getitem__)
        return Beat(int(calls), int(step), int(epoch) or None, PHASES[phase], since[phase])


def find_beat(pid: int) -> Beat | None:
    """Returns the newest beat of a process; None where there is none, or it is not this user's.

    A process may hold several heartbeats: one training after another, each with a monitor of its own.
    """
    beats = []
    for number, link in list_descriptors(pid):
        if link.startswith(f"/memfd:{_NAME}"):
            with contextlib.suppress(OSError, ValueError):
                descriptor = os.open(f"{_PROC}/{pid}/fd/{number}", os.O_RDONLY)
                try:
                    beats.append(HeartbeatReader(descriptor).read())
                finally:
                    os.close(descriptor)
    return max(beats, key=lambda beat: beat.monotonic, default=None)


def list_descriptors(pid: int) -> list[tuple[str, str]]:
    """Returns what a process has open: numbers and paths. Empty for another user's, and where there is no /proc."""
    found = []
    with contextlib.suppress(OSError):
        for number in os.listdir(f"{_PROC}/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.append((number, os.readlink(f"{_PROC}/{pid}/fd/{number}")))
    return found
