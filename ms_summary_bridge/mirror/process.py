"""Process: starts the child that keeps a mirror up to date, and lets the viewer go on without it when it cannot.

Runs in the viewer's process, and loads nothing that converts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

from ms_summary_bridge.mirror.home import Home

__all__ = ["keep_up_to_date"]

_STARTS: Final = 3
_LONG_LIFE_SECS: Final = 600.0


def keep_up_to_date(home: Home, limit: int, warn: Callable[[str], None]) -> threading.Thread:
    """Starts the child process of a mirror, which ends when this process does, however that ends.

    A child that dies is started again, a few times; then the mirror leads to the logdir itself for good.

    Args:
        home: The mirror, held by this process.
        limit: Bytes that the converted files of all mirrors may take.
        warn: Told what a person should know, line by line, from a thread.

    Returns:
        The thread that looks after the child; it may be left alone.
    """
    thread = threading.Thread(target=_look_after, args=(home, limit, warn), name="mindspore-mirror", daemon=True)
    thread.start()
    return thread


def _look_after(home: Home, limit: int, warn: Callable[[str], None]) -> None:
    reason = ""
    failures = 0
    while failures < _STARTS:
        began = time.monotonic()
        try:
            reason = _run_child(home, limit, warn)
        except OSError as error:
            reason = str(error)
        failures = failures + 1 if time.monotonic() - began < _LONG_LIFE_SECS else 1
        time.sleep(failures - 1)  # what ended it, want of memory say, may be over
    try:
        home.give_up()
    except OSError as error:
        reason = f"{reason}; {error}"
    warn(f"MindSpore's runs below {home.source} are not followed any more: {reason}")


def _run_child(home: Home, limit: int, warn: Callable[[str], None]) -> str:
    """Runs one child to its end; returns what it ended of."""
    # Nothing is ever written to its stdin: the system closes it when this process ends, also by SIGKILL. Its own
    # session keeps the terminal's Ctrl-C, which is for the viewer, away from it.
    with subprocess.Popen(
        [sys.executable, "-m", "ms_summary_bridge.mirror", home.path, home.source, str(limit)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)},
        encoding="utf-8",
        errors="backslashreplace",
    ) as child:
        assert child.stdout is not None
        last = ""
        for line in child.stdout:
            kind, _, text = line.rstrip("\n").partition(" ")
            if kind == "fault":
                last = text
            else:
                warn(text)
        return last or f"its process ended with {child.wait()}"
