"""A training loop with a Monitor that ends in one way or another. Imports no mindspore.

Usage: python tests/monitor_scripts/dying_loop.py SAVE_DIR KIND [SECTION_JSON]
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import json
import os
import signal
import sys
import termios
import time

from ms_summary_bridge.monitor import Monitor

ENDS = {
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "os._exit(4)": lambda: os._exit(4),
    "os._exit(0)": lambda: os._exit(0),
    "sys.exit(3)": lambda: sys.exit(3),
    "exception": lambda: 1 / 0,
    "sigterm": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "ctrl-c": lambda: os.kill(os.getpid(), signal.SIGINT),
    "well": lambda: None,
    "hang": lambda: time.sleep(4),
    "hang for long": lambda: time.sleep(120),
}


def wait_for_watchdog(monitor: Monitor) -> None:
    """Returns once the watchdog has looked, however long it takes to start: it listens after its first look."""
    process = monitor._watchdog._process
    assert process is not None
    assert process.stdin is not None
    deadline = time.monotonic() + 60
    unread = array.array("i", [1])
    while unread[0]:
        assert time.monotonic() < deadline, "the watchdog does not listen"
        time.sleep(0.02)
        fcntl.ioctl(process.stdin, termios.FIONREAD, unread)


def main() -> None:
    directory, kind = sys.argv[1:3]
    section = {"interval": 0, "backend": ["local", "tensorboard"], "save_dir": directory, "metrics": ["loss"]}
    monitor = Monitor({**section, "run_id": "run", **(json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})})
    if kind == "sigkill before":
        time.sleep(1)
        ENDS["sigkill"]()
    if kind == "hang before":
        time.sleep(4)
    with monitor:
        for _ in range(3):
            monitor.step(loss=0.5)
        assert monitor.flush()
        wait_for_watchdog(monitor)
        time.sleep(1)
        if kind in ENDS:
            ENDS[kind]()


if __name__ == "__main__":
    main()
