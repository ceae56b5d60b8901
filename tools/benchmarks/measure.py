"""Legs measured in turn, here or as processes of their own, and what comes of it.

The machine may be shared and its speed may change from one minute to the next; so the two legs alternate, each pair
gives one ratio, and the median of the ratios counts.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

Leg: TypeAlias = Callable[[], object]


class Seconds(msgspec.Struct, frozen=True):
    """How long one leg took."""

    wall: float
    cpu: float
    """Processor time of the whole process, that of background threads and of the processes it waited for included."""


class Pairs(msgspec.Struct):
    """How long two legs took, pair by pair."""

    ours: list[Seconds]
    theirs: list[Seconds]

    @property
    def ratios(self) -> list[float]:
        """How many times faster ours was, in each pair."""
        return [theirs.wall / ours.wall for ours, theirs in zip(self.ours, self.theirs, strict=True)]

    @property
    def cpu_ratios(self) -> list[float]:
        """How many times less processor time ours took, in each pair."""
        return [theirs.cpu / ours.cpu for ours, theirs in zip(self.ours, self.theirs, strict=True)]


class Spread(msgspec.Struct):
    """The least, the middle and the greatest of some numbers."""

    min: float
    median: float
    max: float

    def __str__(self) -> str:
        return f"{self.min:.2f} / {self.median:.2f} / {self.max:.2f}"


def spread(numbers: list[float]) -> Spread:
    """Returns the spread of the numbers."""
    return Spread(min(numbers), statistics.median(numbers), max(numbers))


def measure(leg: Leg) -> Seconds:
    """Runs a leg once, with nothing left to collect from what ran before."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    leg()
    return Seconds(time.perf_counter() - wall, time.process_time() - cpu)


def measure_pairs(ours: Leg, theirs: Leg, pairs: int, note: Callable[[str], Any]) -> Pairs:
    """Runs the legs in turn: ours, theirs, ours, theirs, ..."""
    result = Pairs([], [])
    for number in range(pairs):
        result.ours.append(measure(ours))
        result.theirs.append(measure(theirs))
        note(f"pair {number + 1}: {result.ours[-1].wall:.2f} s against {result.theirs[-1].wall:.2f} s")
    return result


def measure_process(command: Sequence[str], env: Mapping[str, str], *, until: str = "") -> tuple[Seconds, str]:
    """Runs a command to its end, start-up included; returns how long it took, and what it printed.

    Args:
        command: The command.
        env: Its environment.
        until: What a program that does not end by itself says on stderr when it is done; its stdin is closed then.

    Raises:
        ChildProcessError: It failed.
    """
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.PIPE if until else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if until else subprocess.PIPE,
            stderr=subprocess.PIPE if until else errors,
        )
        output = b""
        wall = 0.0
        if process.stdout is not None:
            output = process.stdout.read()
        elif process.stdin is not None and process.stderr is not None:
            for line in process.stderr:
                output += line
                if until.encode() in line:
                    wall = time.perf_counter() - begin
                    process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        wall = wall or time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        if process.returncode and not until:
            errors.seek(0)
            said = errors.read().decode(errors="replace")[-2000:]
            raise ChildProcessError(f"{' '.join(command)}: exit code {process.returncode}: {said}")
    return Seconds(wall, usage.ru_utime + usage.ru_stime), output.decode(errors="replace")
