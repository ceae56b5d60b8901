"""What an input may cost: processor time and memory."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ms_summary_bridge.errors import BridgeError
from tools.fuzzing.target import Target

SECS_PER_BYTE = 1 / (100 << 10)
LEAST_SECS = 1.0
"""Of an input below 100 KiB: what is fixed, a file that is made or a package that is loaded."""
MOST_MEMORY = 64 << 20
"""More than before, for an input of up to 1 MiB, beside what is made of it."""
_LARGE = 64 << 10


class CostError(AssertionError):
    """An input has cost more than it may."""


@dataclass
class Counts:
    """What came of the inputs of a target."""

    tried: int = 0
    refused: int = 0
    """Inputs that ended with a `BridgeError`."""
    slowest: float = 0.0
    """Most seconds of processor time for one input."""
    most_memory: int = 0
    """Most bytes that one input took, as far as that was seen."""


class _Meter:
    """The memory of the input that is being tried."""

    def __init__(self) -> None:
        self.is_large = False
        self.start = self.most = self.made = 0

    def begin(self, size: int) -> None:
        self.is_large = size >= _LARGE
        self.start, self.most, self.made = _peak(anew=self.is_large), 0, 0

    def end(self) -> None:
        """Takes note of the most since the start; it may begin again."""
        self.most = max(self.most, _peak() - self.start - self.made)


_meter = _Meter()


@contextlib.contextmanager
def proof(made: int) -> Iterator[None]:
    """Inside of it, a target looks at what it was given: so many bytes. Neither counts as memory that it took.

    Only for large inputs: of small ones nothing is measured that is less than the most before.
    """
    if not _meter.is_large:
        yield
        return
    _meter.made += made  # from here on: while it was made, there was no more than a part of it
    _meter.end()
    before = _held()
    try:
        yield
    finally:
        left = max(0, _held() - before)  # what the allocator keeps for later
        _peak(anew=True)
        _meter.start += left


def try_input(target: Target, data: bytes, counts: Counts) -> bool:
    """Gives an input to a target.

    Returns:
        Whether it was taken; else it was refused with a `BridgeError`.

    Raises:
        CostError: It took longer, or more memory, than it may.
        Exception: Whatever the target raises but for a `BridgeError`.
    """
    _meter.begin(len(data))
    counts.tried += 1
    began = time.process_time()
    is_taken = True
    try:
        target.take(data)
    except BridgeError:
        counts.refused += 1
        is_taken = False
    except RecursionError as error:
        raise AssertionError("an input makes the stack overflow") from error
    secs = time.process_time() - began
    counts.slowest = max(counts.slowest, secs)
    size = max(len(data), 1)
    if secs > max(LEAST_SECS, size * SECS_PER_BYTE):
        raise CostError(f"{target.name}: {secs:.2f} s of processor time for {size} bytes")
    _meter.end()
    grown = _meter.most
    counts.most_memory = max(counts.most_memory, grown)
    if grown > MOST_MEMORY * max(1.0, size / (1 << 20)):
        raise CostError(f"{target.name}: {grown >> 20} MiB more memory for {size} bytes")
    return is_taken


def _peak(*, anew: bool = False) -> int:
    """Returns the most bytes of memory that this process has had: so far, or from now on.

    Of small inputs only that is seen which is more than ever before: one that needs much raises it.
    """
    if anew:
        with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _held() -> int:
    """Returns the bytes of memory that this process has now; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
