"""What the machine says of memory where a process may have died for lack of it: its control group, the kernel's log.

Sources: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events, memory.max, memory.peak),
https://docs.kernel.org/admin-guide/cgroup-v1/memory.html, https://docs.kernel.org/accounting/psi.html (pressure),
https://docs.kernel.org/ABI/testing/dev-kmsg. Each may be missing or closed to us: then it says nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

import psutil

__all__ = ["MemoryWitness"]

_V2: Final = {"limit": "memory.max", "peak": "memory.peak", "events": "memory.events"}
_V1: Final = {"limit": "memory.limit_in_bytes", "peak": "memory.max_usage_in_bytes", "events": "memory.oom_control"}
_MIB: Final = 1 << 20
_NO_LIMIT: Final = 1 << 60  # the old control groups have a number for none
_TOLD: Final = re.compile(r"out of memory|oom-kill|killed process|segfault|general protection|traps:", re.IGNORECASE)
_LINES: Final = 8


class MemoryWitness:
    """Looks at the memory of a process while it lives, so that something is known afterwards."""

    def __init__(self, pid: int, *, groups: str = "/sys/fs/cgroup", kernel_log: str = "/dev/kmsg") -> None:
        self._pid = pid
        self._kernel_log = kernel_log
        self._group, self._names = _find_group(pid, Path(groups))
        self._kills = self._count_kills()
        self._resident = self._available = 0.0

    def look(self) -> None:
        """Remembers what the process and the host have now."""
        with contextlib.suppress(psutil.Error, OSError):
            resident = psutil.Process(self._pid).memory_info().rss / _MIB
            if resident:  # one that is on its way out has given it back before it closes its files and is gone
                self._resident, self._available = resident, psutil.virtual_memory().available / _MIB

    def _number(self, what: str, pattern: str = r"\A(\d+)$") -> int | None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found = re.search(pattern, (self._group / self._names[what]).read_text(encoding="ascii"), re.MULTILINE)
            if found and int(found[1]) < _NO_LIMIT:
                return int(found[1])
        return None

    def _count_kills(self) -> int | None:
        return self._number("events", r"^oom_kill (\d+)$")

    def describe(self, pid: int) -> tuple[list[str], bool]:
        """Returns what is known of memory, in lines, and whether the OOM killer was seen at work."""
        lines = []
        if self._resident:
            lines.append(f"last seen: {self._resident:.0f} MiB resident, {self._available:.0f} MiB left on the host")
        limit, peak = self._number("limit"), self._number("peak")
        if limit is not None:
            most = "" if peak is None else f", the most that was in use {peak / _MIB:.0f} MiB"
            lines.append(f"control group {self._group}: limit {limit / _MIB:.0f} MiB{most}")
        kills = (self._count_kills() or 0) - self._kills if self._kills is not None else 0
        if kills > 0:
            lines.append(f"control group {self._group}: the OOM killer has ended {kills} here")
        with contextlib.suppress(OSError, UnicodeDecodeError):
            pressure = Path("/proc/pressure/memory").read_text(encoding="ascii").partition("\n")[0]
            if "avg10=0.00 avg60=0.00" not in pressure:
                lines.append(f"memory pressure of the host: {pressure}")
        logged = _read_kernel_log(pid, self._kernel_log)
        is_killed = any(re.search(r"(?i)killed process|out of memory|oom-kill", line) for line in logged)
        return lines + [f"kernel log: {line}" for line in logged], kills > 0 or is_killed


def _find_group(pid: int, base: Path) -> tuple[Path, dict[str, str]]:
    """Returns the directory of a process's control group for memory, and the names of the files there."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            is_old = "memory" in controllers.split(",")
            names, root = (_V1, base / "memory") if is_old else (_V2, base)
            # In a container the path is that of the host, and its group is the root that is seen here.
            for place in (root / path.lstrip("/"), root):
                if (is_old or not controllers) and (place / names["events"]).exists():
                    return place, names
    return base, _V2


def _read_kernel_log(pid: int, path: str) -> list[str]:
    """Returns what the kernel's log says of a process's end; nothing where the log is closed to us."""
    found: list[str] = []
    named = re.compile(rf"\b{pid}\b")
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            while record := os.read(descriptor, 1 << 13):
                for line in record.decode(errors="replace").splitlines():
                    text = line.partition(";")[2]
                    if named.search(text) and _TOLD.search(text):
                        found.append(text.strip())
        except BlockingIOError:
            pass  # that was all
        finally:
            os.close(descriptor)
    return found[-_LINES:]
