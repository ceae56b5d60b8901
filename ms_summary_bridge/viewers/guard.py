"""Guard: runs one program, and ends it with all its children once the process that asked for it is gone.

Started as a file: `python guard.py COMMAND...`.

It leads a session of its own, so all that the program starts is in its process group, servers that outlive the program
too (`mindinsight start` leaves a gunicorn behind); on Windows it knows the program's children alone. Nothing
is ever written to its stdin: the system closes it when the process at the other end goes, also by SIGKILL.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Final

import psutil

__all__ = ["main"]

_GRACE_SECS: Final = 5.0
_LOOK_SECS: Final = 2.0
_SIGNALS: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main(command: list[str]) -> int:
    """Runs a program until nothing of it is left, or stdin ends; returns its exit code."""
    for number in _SIGNALS:
        # A handler and not SIG_IGN, which the program would inherit.
        signal.signal(number, lambda number, frame: None)
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return 127
    threading.Thread(target=_end_with_owner, daemon=True).start()
    code = program.wait()
    while code == 0 and _others():
        time.sleep(_LOOK_SECS)
    _end_others()
    return code


def _end_with_owner() -> None:
    while os.read(0, 1):
        pass
    _end_others()
    os._exit(0)


def _others() -> list[psutil.Process]:
    """Returns all processes of the group but this one, without those that have ended and wait for their parent."""
    if sys.platform == "win32":  # which has no groups
        found = psutil.Process().children(recursive=True)
    else:
        found = [each for each in psutil.process_iter() if each.pid != os.getpid() and _is_in_group(each.pid)]
    return list(filter(_is_alive, found))


def _is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):  # it has ended
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def _is_in_group(pid: int) -> bool:
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # it has ended
            return os.getpgid(pid) == os.getpgrp()
    return False


def _end_others() -> None:
    deadline = time.monotonic()
    if sys.platform != "win32":  # where a program can only be killed
        deadline += _GRACE_SECS
        os.killpg(0, signal.SIGTERM)
    while others := _others():
        if time.monotonic() > deadline:
            for process in others:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
