"""Processes of this user: who holds a file open for writing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from typing import Final

import msgspec
import psutil

from ms_summary_bridge.files.file_names import format_of_name
from ms_summary_bridge.monitor.sinks.journal import JOURNAL
from ms_summary_bridge.monitor.watchdog.heartbeat import list_descriptors

__all__ = ["ProcessFacts", "find_process", "find_writers"]

_PROC: Final = "/proc"
_WRITE: Final = os.O_WRONLY | os.O_RDWR
_PROCESSES: Final = 10_000


def find_writers(paths: Collection[str]) -> dict[str, list[int]]:
    """Returns the processes that hold files open for writing, by the real path; Linux only, elsewhere nothing."""
    wanted = {os.path.realpath(path) for path in paths}
    found: dict[str, list[int]] = {}
    if not wanted:
        return found
    with contextlib.suppress(OSError):
        for pid in [int(name) for name in os.listdir(_PROC) if name.isdigit()][:_PROCESSES]:
            for number, link in list_descriptors(pid):
                if link in wanted and _is_written(pid, number) and pid not in found.setdefault(link, []):
                    found[link].append(pid)
    return {path: pids for path, pids in found.items() if pids}


class ProcessFacts(msgspec.Struct, frozen=True):
    """A process that may train."""

    pid: int
    is_alive: bool
    logs: list[str] = []
    """Event files and journals that it and its children write, sorted."""
    environment: dict[str, str] = {}


def find_process(pid: int) -> ProcessFacts:
    """Looks at a process of this user's."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except (psutil.Error, OverflowError):
        return ProcessFacts(pid, is_alive=False)
    logs = {
        link
        for one in family
        for number, link in list_descriptors(one.pid)
        if _is_log(os.path.basename(link)) and _is_written(one.pid, number)
    }
    environment: dict[str, str] = {}
    with contextlib.suppress(psutil.Error, OSError):
        environment = process.environ()
    return ProcessFacts(pid, True, sorted(logs), environment)


def _is_log(name: str) -> bool:
    return name == JOURNAL or bool(format_of_name(name))


def _is_written(pid: int, number: str) -> bool:
    with contextlib.suppress(OSError, ValueError), open(f"{_PROC}/{pid}/fdinfo/{number}", encoding="ascii") as file:
        flags = next((line.split()[1] for line in file if line.startswith("flags:")), "0")
        return bool(int(flags, 8) & _WRITE)
    return False
