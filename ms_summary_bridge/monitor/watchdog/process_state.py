"""What the operating system says of a process: its state, where it waits, its threads, its children.

psutil reads the most of it. What it does not have is read here from /proc: where a process waits in the kernel, and
which signals it takes.

Source: proc(5), https://man7.org/linux/man-pages/man5/proc_pid_status.5.html.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import msgspec
import psutil

from ms_summary_bridge.errors import counted

__all__ = ["ProcessState", "catches", "find_descendants", "find_threads", "is_free", "is_same_program", "read_state"]

_WORDS: Final = {
    psutil.STATUS_DISK_SLEEP: "in an uninterruptible wait (driver or disk)",
    psutil.STATUS_TRACING_STOP: "stopped by a debugger",
    psutil.STATUS_ZOMBIE: "ended",
    psutil.STATUS_DEAD: "ended",
}


class ProcessState(msgspec.Struct, frozen=True):
    """One process, or one thread of it.

    `state` is psutil's word, such as `sleeping`. `started`, in seconds since epoch, and `pid` name one process for
    ever. `waits_in` is the function of the kernel in which it waits; empty where it does not or nobody may know.
    """

    pid: int
    name: str
    state: str
    parent: int
    threads: int
    cpu_secs: float
    started: float
    waits_in: str = ""

    @property
    def has_ended(self) -> bool:
        """Whether it only waits to be asked for its exit code."""
        return self.state in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped it on purpose."""
        return self.state in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)

    def describe(self) -> str:
        """Returns it in words."""
        where = f" in {self.waits_in}" if self.waits_in else ""
        threads = f", {counted(self.threads, 'thread')}" if self.threads > 1 else ""
        return f"{self.pid} ({self.name}): {_WORDS.get(self.state, self.state)}{where}{threads}"


def read_state(pid: int) -> ProcessState | None:
    """Returns the state of a process, or of a thread by its own number; None where it is gone."""
    with contextlib.suppress(psutil.Error, OSError):
        return _state_of(psutil.Process(pid))
    return None


def _state_of(process: psutil.Process) -> ProcessState:
    waits_in = _read(f"/proc/{process.pid}/wchan")
    with process.oneshot():
        times = process.cpu_times()
        return ProcessState(
            pid=process.pid,
            name=process.name(),
            state=process.status(),
            parent=process.ppid(),
            threads=process.num_threads(),
            cpu_secs=times.user + times.system,
            started=process.create_time(),
            waits_in="" if waits_in == "0" else waits_in,
        )


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    return ""


def find_descendants(pid: int) -> list[ProcessState]:
    """Returns the children of a process, their children and so on, the oldest first."""
    found: list[ProcessState] = []
    with contextlib.suppress(psutil.Error, OSError):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error, OSError):
                found.append(_state_of(child))
    return sorted(found, key=lambda state: (state.started, state.pid))


def find_threads(pid: int) -> list[int]:
    """Returns the numbers of the threads of a process, the main one first."""
    with contextlib.suppress(psutil.Error, OSError):
        return sorted(
            (thread.id for thread in psutil.Process(pid).threads()), key=lambda number: (number != pid, number)
        )
    return []


def catches(pid: int, signum: int, *, thread: int | None = None) -> bool:
    """Whether a signal would run a handler in a process; without one it would end it. A thread may block it as well."""
    masks = _read_masks(f"/proc/{pid}" if thread is None else f"/proc/{pid}/task/{thread}")
    bit = 1 << (signum - 1)
    return bool(masks.get("SigCgt", 0) & bit) and (thread is None or not masks.get("SigBlk", 0) & bit)


def is_free(signum: int) -> bool:
    """Whether nobody in this process catches, ignores or blocks a signal, be it in Python or in C."""
    masks = _read_masks("/proc/self")
    used = masks.get("SigCgt", -1) | masks.get("SigIgn", -1) | masks.get("SigBlk", -1)
    return not used & 1 << (signum - 1)


def _read_masks(place: str) -> dict[str, int]:
    masks: dict[str, int] = {}
    for line in _read(f"{place}/status").splitlines():
        name, _, value = line.partition(":")
        if name.startswith("Sig") and "/" not in value:
            masks[name] = int(value, 16)
    return masks


def is_same_program(one: int, other: int) -> bool:
    """Whether one process is a fork of the other that runs on in the same program."""
    with contextlib.suppress(psutil.Error, OSError):
        first, second = (psutil.Process(pid).cmdline() for pid in (one, other))
        return bool(first) and first == second
    return False
