"""A training loop with a Monitor that ends in one way or another. Imports no mindspore.

Usage: python tests/monitor_scripts/dying_loop.py SAVE_DIR KIND [SECTION_JSON]
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
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
        time.sleep(1)
        if kind in ENDS:
            ENDS[kind]()


if __name__ == "__main__":
    main()
