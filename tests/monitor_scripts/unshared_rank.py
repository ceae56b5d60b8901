"""One rank of two trainings whose other ranks have another disk; its steps need none of them.

Usage: RANK_ID=1 RANK_SIZE=2 python tests/monitor_scripts/unshared_rank.py SAVE_DIR RESULT.json

The first training, below SAVE_DIR/alone, is of no job, and the second, below SAVE_DIR/job, of one.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path

import mindspore

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import train, vector_model, vectors

from ms_summary_bridge.monitor import build_monitor_callbacks


def main() -> None:
    logging.getLogger("ms_summary_bridge").setLevel(logging.INFO)
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    section = {
        "interval": 0,
        "backend": ["local", "tensorboard"],
        "metrics": ["loss"],
        "save_checkpoint_steps": 2,
        "watchdog": {"enable": False},
    }
    build_monitor_callbacks({**section, "save_dir": sys.argv[1] + "-warm", "run_id": "warm"})  # imports are no waiting
    told = {}
    for name in ("alone", "job"):
        if name == "job":
            os.environ["SLURM_JOB_ID"] = "4711"
        print("===", name, flush=True)
        began = time.monotonic()
        callbacks = build_monitor_callbacks({**section, "save_dir": f"{sys.argv[1]}/{name}"})
        told[name] = time.monotonic() - began
        train(vector_model(), 3, *callbacks, data=vectors(3))
    Path(sys.argv[2]).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
