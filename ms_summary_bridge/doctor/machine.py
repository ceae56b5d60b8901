"""The machine: ports of the viewers, disk space, and whether a directory can be written to."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final

import msgspec
import psutil

from ms_summary_bridge.doctor.finding import Finding, fault, good
from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.viewers.address import choose_port

__all__ = ["DiskFacts", "PortFacts", "check_disk", "check_ports", "find_disk", "find_ports"]

_PORTS: Final = {6006: "TensorBoard", 8080: "MindInsight"}
_LEAST_BYTES: Final = 100 << 20  # MindSpore's writer gives up below 32 times a record's size, and a graph may have 3 MB
_FEW_BYTES: Final = 1 << 30
_LOCAL: Final = "127.0.0.1"


class PortFacts(msgspec.Struct, frozen=True):
    """A port that somebody listens at."""

    port: int
    pid: int = 0
    """0 where the system does not tell whose it is."""
    command: tuple[str, ...] = ()
    directory: str = ""
    """Where that process stands."""


class DiskFacts(msgspec.Struct, frozen=True):
    """The file system of a directory, or of the nearest one that exists."""

    path: str
    free_bytes: int
    free_files: int
    """-1 where the file system does not count them."""
    is_writable: bool


def find_ports() -> list[PortFacts]:
    """Returns the viewers' ports that are taken."""
    taken = [port for port in _PORTS if _is_taken(port)]
    found = {port: PortFacts(port) for port in taken}
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp") if taken else ():
            port = connection.laddr.port if connection.laddr else 0
            if port in found and connection.status == psutil.CONN_LISTEN and connection.pid:
                with contextlib.suppress(psutil.Error, OSError):
                    process = psutil.Process(connection.pid)
                    found[port] = PortFacts(port, connection.pid, tuple(process.cmdline()), process.cwd())
    return [*found.values()]


def find_disk(path: str) -> DiskFacts:
    """Looks at the file system of a path; writes nothing."""
    place = os.path.abspath(path)
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    is_writable = os.access(place, os.W_OK | os.X_OK)
    if sys.platform == "win32":
        return DiskFacts(place, psutil.disk_usage(place).free, -1, is_writable)
    else:
        status = os.statvfs(place)
        files = status.f_favail if status.f_files else -1
        is_writable = is_writable and not status.f_flag & os.ST_RDONLY
        return DiskFacts(place, status.f_bavail * status.f_frsize, files, is_writable)


def _is_taken(port: int) -> bool:
    try:
        return choose_port(_LOCAL, port) != port
    except UsageError:  # a machine where nobody can listen at all
        return False


def check_ports(taken: list[PortFacts], target: str = "") -> Iterator[Finding]:
    """Yields what there is to say of the viewers' ports; `target` is the directory that a person wants to see."""
    if not taken:
        yield good("machine.ports", f"ports {' and '.join(map(str, _PORTS))} are free")
    for facts in taken:
        shown = _shown_directory(facts)
        text = f"port {facts.port} ({_PORTS[facts.port]}'s) is taken"
        if shown and target and not _holds(shown, target):
            yield fault(
                "machine.ports",
                "warning",
                f"{text} by a viewer of {shown} (pid {facts.pid}), which does not show {target}",
                f"ms-summary-bridge view {target} takes the next free port",
            )
        elif shown:
            yield good("machine.ports", f"{text} by a viewer of {shown} (pid {facts.pid})")
        else:
            who = f" by pid {facts.pid} ({os.path.basename(facts.command[0])})" if facts.command else ""
            yield fault(
                "machine.ports",
                "warning",
                text + who,
                "ms-summary-bridge view takes the next free port; a viewer by hand takes --port",
            )


def _shown_directory(facts: PortFacts) -> str:
    """Returns the directory that a viewer was started with; empty for another program."""
    words = list(facts.command)
    for number, word in enumerate(words):
        for option in ("--logdir", "--summary-base-dir"):
            value = word.removeprefix(f"{option}=") if word.startswith(f"{option}=") else ""
            if word == option and number + 1 < len(words):
                value = words[number + 1]
            if value:
                return os.path.normpath(os.path.join(facts.directory, value))
    return ""


def _holds(directory: str, target: str) -> bool:
    outer, inner = os.path.realpath(directory), os.path.realpath(target)
    return os.path.commonpath([outer, inner]) == outer


def check_disk(facts: DiskFacts) -> Iterator[Finding]:
    """Yields what there is to say of the disk."""
    room = f"{facts.free_bytes / (1 << 30):.1f} GB free at {facts.path}"
    mend = "free some, or write to another disk"
    if facts.free_files == 0:
        yield fault("machine.disk", "wrong", f"no more files can be made at {facts.path} (no inode is left)", mend)
    elif facts.free_bytes < _LEAST_BYTES:
        yield fault("machine.disk", "wrong", f"{room}: MindSpore's writer stops without a word when it is full", mend)
    elif facts.free_bytes < _FEW_BYTES:
        yield fault("machine.disk", "warning", room, mend)
    else:
        yield good("machine.disk", room)
