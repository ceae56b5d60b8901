"""A training loop with a Monitor that goes on until a signal comes. Imports no mindspore.

Usage: python tests/monitor_scripts/endless.py SAVE_DIR

After each step its number is added to SAVE_DIR/steps; the journal is in SAVE_DIR/default/run/rank_0.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from pathlib import Path

from ms_summary_bridge.monitor import Monitor


def main() -> None:
    directory = Path(sys.argv[1])
    steps = os.open(directory / "steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    section = {"interval": 0, "backend": ["local"], "save_dir": str(directory), "run_id": "run", "metrics": ["loss"]}
    with Monitor(section) as monitor:
        for step in count(1):
            monitor.step(loss=1.0 / step)
            os.write(steps, b"%d %.3f\n" % (step, time.time()))
            time.sleep(0.001)


if __name__ == "__main__":
    main()
