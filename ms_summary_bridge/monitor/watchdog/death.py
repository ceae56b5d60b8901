"""How a process ended that said nothing: its signal or code, and what is told of that.

Source: pidfd_open(2) and PIDFD_GET_INFO in include/uapi/linux/pidfd.h: `exit_code` after the end, since Linux 6.15;
proc_pid_stat(5), the last field, while nobody has asked for the code.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import signal
import struct
from pathlib import Path
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.sinks.journal import json_lines
from ms_summary_bridge.monitor.watchdog.hang_report import HANG_LOG, PEER_ADVICE, alert_at, say_lost
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat

__all__ = ["Ending", "describe_death", "find_lost_peers", "read_ending"]

_GET_INFO: Final = 0xC0000000 | 64 << 16 | 0xFF << 8 | 11  # _IOWR(0xFF, 11, 64 bytes)
_EXIT_INFO: Final = 1 << 3
_EXIT_CODE: Final = 60  # its place in struct pidfd_info
_ASKED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_ADVICE: Final = {
    "killed": "the process could not say why: look at its memory, then for a scheduler or a person that killed it",
    "crashed": "native code failed: look at the console's last lines and the core file; `python -X faulthandler` tells "
    "the Python line",
    "code": "something called exit in C or os._exit: look at the console's last lines",
    "peer": PEER_ADVICE,
    "unknown": "the kernel of this host does not say how: look at its memory, and ask the launcher for its code",
}


class Ending(msgspec.Struct, frozen=True):
    """How a process ended.

    `signum` and `code` are None for none, and where nobody knows.
    """

    signum: int | None = None
    code: int | None = None

    @property
    def is_asked_for(self) -> bool:
        """Whether somebody asked it to end, with Ctrl-C or as launchers and schedulers do, or it ended well."""
        return self.signum in _ASKED or self.code == 0

    @property
    def title(self) -> str:
        """What it is called where people read it."""
        if self.signum is not None:
            with contextlib.suppress(ValueError):
                return signal.Signals(self.signum).name
            return f"signal {self.signum}"
        return "an unknown end" if self.code is None else f"exit code {self.code}"


def read_ending(pid: int, pidfd: int) -> Ending:
    """Returns how a process ended.

    Its code may have been taken already. `pidfd` was opened while it lived; -1 for none.
    """
    status: int | None = None
    with contextlib.suppress(OSError, ValueError):
        info = bytearray(struct.pack("<Q", _EXIT_INFO) + bytes(56))
        fcntl.ioctl(pidfd, _GET_INFO, info)
        if struct.unpack_from("<Q", info)[0] & _EXIT_INFO:
            (status,) = struct.unpack_from("<i", info, _EXIT_CODE)
    if status is None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            status = int(fields[-1]) if fields[0] in "ZX" else None
    if status is None:
        return Ending()
    signum = status & 0x7F
    return Ending(signum=signum) if signum else Ending(code=status >> 8 & 0xFF)


def find_lost_peers(run_directory: str, rank: int, since: float, until: float) -> list[dict[str, Any]]:
    """Returns what the watchdogs of other ranks wrote of deaths between two moments, the first one first."""
    found = []
    for path in glob.glob(os.path.join(glob.escape(run_directory), "rank_*", HANG_LOG)):
        with contextlib.suppress(OSError):
            for line in json_lines(Path(path).read_bytes().splitlines()):
                if line.get("kind") == "gone" and line["rank"] != rank and since <= line["wall_time"] < until:
                    found.append(line)
    return sorted(found, key=lambda line: line["wall_time"])


def describe_death(
    ending: Ending,
    beat: Beat,
    *,
    rank: int,
    pid: int,
    memory: list[str],
    was_oom: bool,
    checkpoint: tuple[int, str] | None,
    peers: list[dict[str, Any]],
    cann_log: list[str] | None = None,
) -> Alert:
    """Returns the alarm of a process that died without a word.

    `memory` and `was_oom` are from `MemoryWitness.describe`, and `peers` from `find_lost_peers`. `checkpoint` is step
    and path of the last one that is known, and `cann_log` what CANN's logs say that is wrong.
    """
    cann_log = cann_log or []
    how = "was ended by " if ending.signum is not None else "ended with "
    message = f"process {pid} {how}{ending.title} without a word, after step {beat.step} ({beat.phase})"
    message += say_lost(peers)
    if peers:
        kind = "peer"
    elif ending.signum == signal.SIGKILL:
        kind = "killed"
        message += "; the OOM killer was at work" if was_oom else ""
    else:
        kind = "crashed" if ending.signum is not None else "unknown" if ending.code is None else "code"
    saved = (
        "no checkpoint is known" if checkpoint is None else f"last checkpoint: step {checkpoint[0]}, {checkpoint[1]}"
    )
    return alert_at(
        beat,
        rank,
        rule="death",
        severity="critical",
        message=f"{message}; {saved}",
        advice=". ".join([_ADVICE[kind], *memory, *(f"CANN's log: {line}" for line in cann_log)]),
        fields={
            "pid": pid,
            "ending": ending.title,
            "signal": ending.signum,
            "exit_code": ending.code,
            "phase": beat.phase,
            "was_oom": was_oom,
            "memory": memory,
            "checkpoint": None if checkpoint is None else {"step": checkpoint[0], "path": checkpoint[1]},
            "lost_ranks": [peer["rank"] for peer in peers],
            "cann_log": cann_log,
        },
    )
