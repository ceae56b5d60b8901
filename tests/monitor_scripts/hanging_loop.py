"""A training loop with a Monitor that stops in the middle, in one way or another. Imports no mindspore.

Usage: python tests/monitor_scripts/hanging_loop.py SAVE_DIR KIND [WATCHDOG_JSON]

It reads from the pipe SAVE_DIR/release, which a test makes, and goes on when somebody writes there. The number of the
watchdog's process is in SAVE_DIR/watchdog.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from ms_summary_bridge.monitor import Monitor, loop, recorder
from ms_summary_bridge.monitor.watchdog import watchdog_link
from ms_summary_bridge.training.distributed import ProcessRank


def wait_in_python(release: str) -> None:
    """Waits as Python code does, without the GIL."""
    with open(release, "rb") as pipe:
        pipe.read(1)


def wait_in_c(release: str) -> None:
    """Waits in a C call that keeps the GIL, so that no other Python thread runs either."""
    pipe = os.open(release, os.O_RDWR)
    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)


def main() -> None:
    directory, kind = Path(sys.argv[1]), sys.argv[2]
    watchdog = {"floor": 2, "compile_limit": 60, **(json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})}
    section = {"interval": 0, "backend": ["local"], "save_dir": str(directory), "run_id": "run", "metrics": ["loss"]}
    release = str(directory / "release")
    if kind == "evaluation on Ascend":  # as far as the watchdog knows
        place = ProcessRank(rank=0, ranks=2, device="Ascend", source="test", host="host")
        for module in (loop, recorder, watchdog_link):
            module.find_process_rank = lambda: place
    if kind == "stubborn":
        signal.signal(signal.SIGTERM, lambda *_: None)
    with Monitor({**section, "watchdog": watchdog}) as monitor:
        (directory / "watchdog.new").write_text(str(monitor._watchdog.pid))
        (directory / "watchdog.new").rename(directory / "watchdog")
        for _ in range(3):
            monitor.step(loss=0.5)
        assert monitor.flush()
        if kind == "python":
            wait_in_python(release)
        elif kind in ("c", "stubborn"):
            wait_in_c(release)
        elif kind.startswith("evaluation"):
            with monitor.timing("evaluation"):
                wait_in_python(release)
        elif kind == "first step of another":
            with Monitor({**section, "run_id": "other", "watchdog": {"floor": 600, "compile_limit": 1}}):
                wait_in_python(release)
        elif kind == "another program":
            code = "import sys; print('another program runs', flush=True); open(sys.argv[1])"
            os.execv(sys.executable, [sys.executable, "-c", code, release])
        elif kind == "thread":  # somebody else keeps the GIL, and the training waits for it
            thread = threading.Thread(target=wait_in_c, args=(release,))
            thread.start()
            while thread.is_alive():
                time.sleep(0.001)
                monitor.step(loss=0.5)
        monitor.step(loss=0.25)
    print("done", flush=True)


if __name__ == "__main__":
    main()
