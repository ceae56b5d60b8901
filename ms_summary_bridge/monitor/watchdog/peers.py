"""How the watchdogs of one training ask each other who is to blame: by files in the directory of the run.

Nobody waits for an answer for long, and no rank's training takes part.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from ms_summary_bridge.errors import BridgeError

__all__ = ["CALL", "call_peers", "find_blamed", "has_called"]

CALL: Final = ".hang"
"""Is written anew when a rank hangs: the watchdogs of ranks that stand still as well tell where."""

_TAIL_BYTES: Final = 1 << 16  # read of each journal


def call_peers(run_directory: str) -> None:
    """Asks the watchdogs of all ranks that stand still to tell where."""
    with contextlib.suppress(OSError), open(os.path.join(run_directory, CALL), "w", encoding="ascii") as file:
        file.write("a rank hangs\n")


def has_called(run_directory: str, since: float) -> bool:
    """Whether a rank has told since then that it hangs."""
    with contextlib.suppress(OSError):
        return os.stat(os.path.join(run_directory, CALL)).st_mtime >= since
    return False


def find_blamed(run_directory: str, since: float) -> str:
    """Returns in words who is to blame, of what was told since then; empty for nobody."""
    from ms_summary_bridge.diagnose.diagnosis import diagnose_ranks  # here: most watchdogs never need it

    with contextlib.suppress(BridgeError, OSError):
        diagnosis = diagnose_ranks(run_directory, since=since, tail_bytes=_TAIL_BYTES)
        return diagnosis.findings[0].text if diagnosis.findings else ""
    return ""
