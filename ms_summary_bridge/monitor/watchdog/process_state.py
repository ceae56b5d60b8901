"""What the operating system says of a process: its state, where it waits, its threads, its children.

Reads /proc alone, so that it costs next to nothing and asks nobody.

Source: proc(5), https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html and proc_pid_status.5.html.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["ProcessState", "catches", "find_descendants", "find_threads", "is_free", "is_same_program", "read_state"]

_STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "in an uninterruptible wait (driver or disk)",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended",
    "X": "ended",
    "I": "idle",
}
_TICKS: Final = os.sysconf("SC_CLK_TCK")

# Fields after the name in parentheses, counted from 0.
_STATE, _PARENT, _USER_TICKS, _SYSTEM_TICKS, _THREADS, _STARTED = 0, 1, 11, 12, 17, 19


class ProcessState(msgspec.Struct, frozen=True):
    """One process, or one thread of it.

    Attributes:
        pid: Number of the process, or of the thread.
        name: As the kernel has it, 15 characters.
        state: One letter, such as `S`.
        parent: Process it came from.
        threads: How many it has.
        cpu_secs: Processor time it has used.
        started: When it began, in ticks since the machine did: with the pid it names one process for ever.
        waits_in: Function of the kernel in which it waits; empty where it does not or nobody may know.
    """

    pid: int
    name: str
    state: str
    parent: int
    threads: int
    cpu_secs: float
    started: int
    waits_in: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether it only waits to be asked for its exit code."""
        return self.state in ("Z", "X")

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped it on purpose."""
        return self.state in ("T", "t")

    def describe(self) -> str:
        """Returns it in words."""
        where = f" in {self.waits_in}" if self.waits_in else ""
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"{self.pid} ({self.name}): {_STATES.get(self.state, self.state)}{where}{threads}"


def read_state(pid: int, *, thread: int | None = None, proc: str = "/proc") -> ProcessState | None:
    """Returns the state of a process, or of one of its threads; None if there is none."""
    place = Path(proc, str(pid)) if thread is None else Path(proc, str(pid), "task", str(thread))
    try:
        head, _, tail = (place / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")
        fields = tail.split()
        waits_in = ""
        with contextlib.suppress(OSError):
            waits_in = (place / "wchan").read_text(encoding="ascii", errors="replace").strip()
        return ProcessState(
            pid=pid if thread is None else thread,
            name=head.partition("(")[2],
            state=fields[_STATE],
            parent=int(fields[_PARENT]),
            threads=int(fields[_THREADS]),
            cpu_secs=(int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS,
            started=int(fields[_STARTED]),
            waits_in="" if waits_in == "0" else waits_in,
        )
    except (OSError, ValueError, IndexError):
        return None


def find_descendants(pid: int, *, proc: str = "/proc") -> list[ProcessState]:
    """Returns the children of a process, their children and so on, the oldest first."""
    children: dict[int, list[ProcessState]] = {}
    for number in _numbers(proc):
        state = read_state(number, proc=proc)
        if state is not None:
            children.setdefault(state.parent, []).append(state)
    found: list[ProcessState] = []
    waiting = [pid]
    while waiting:
        there = children.pop(waiting.pop(), [])
        found += there
        waiting += [state.pid for state in there]
    return sorted(found, key=lambda state: (state.started, state.pid))


def find_threads(pid: int, *, proc: str = "/proc") -> list[ProcessState]:
    """Returns the threads of a process, the main one first."""
    states = (read_state(pid, thread=number, proc=proc) for number in _numbers(f"{proc}/{pid}/task"))
    return [state for state in states if state is not None]


def _numbers(directory: str) -> list[int]:
    with contextlib.suppress(OSError):
        return sorted(int(name) for name in os.listdir(directory) if name.isdigit())
    return []


def catches(pid: int, signum: int, *, thread: int | None = None, proc: str = "/proc") -> bool:
    """Whether a signal would run a handler in a process; without one it would end it. A thread may block it as well."""
    place = f"{proc}/{pid}" if thread is None else f"{proc}/{pid}/task/{thread}"
    masks = _read_masks(f"{place}/status")
    bit = 1 << (signum - 1)
    return bool(masks.get("SigCgt", 0) & bit) and (thread is None or not masks.get("SigBlk", 0) & bit)


def is_free(signum: int, *, proc: str = "/proc") -> bool:
    """Whether nobody in this process catches, ignores or blocks a signal, be it in Python or in C."""
    masks = _read_masks(f"{proc}/self/status")
    used = masks.get("SigCgt", -1) | masks.get("SigIgn", -1) | masks.get("SigBlk", -1)
    return not used & 1 << (signum - 1)


def _read_masks(path: str) -> dict[str, int]:
    masks: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.startswith("Sig") and "/" not in value:
                masks[name] = int(value, 16)
    return masks


def is_same_program(one: int, other: int, *, proc: str = "/proc") -> bool:
    """Whether one process is a fork of the other that runs on in the same program."""
    with contextlib.suppress(OSError):
        first, second = (Path(proc, str(pid), "cmdline").read_bytes() for pid in (one, other))
        return bool(first) and first == second
    return False
