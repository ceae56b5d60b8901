"""One rank of a data parallel training that is killed at a step, as the OOM killer does, to be started by msrun.

Usage: msrun ... tests/monitor_scripts/dying_rank.py SAVE_DIR TOLD

TOLD/rank_<n>.jsonl has what an action of each rank was told, in lines of JSON.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import mindspore
from mindspore.communication import get_rank, init

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import AtStep, train, vector_model, vectors

from ms_summary_bridge.monitor import build_monitor_callbacks

STEPS, LAST = 8, 5
TELL = "import os, sys; open(sys.argv[1], 'a').write(os.environ['ALERT_JSON'] + '\\n')"


def main() -> None:
    directory, told = sys.argv[1:]
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    init()
    mindspore.set_auto_parallel_context(parallel_mode=mindspore.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    rank = get_rank()
    section = {
        "interval": 0,
        "backend": ["local", "tensorboard"],
        "save_dir": directory,
        "run_id": "run",
        "metrics": ["loss"],
        "save_checkpoint_steps": 2,
        "alert_actions": ["log", {"command": [sys.executable, "-c", TELL, f"{told}/rank_{rank}.jsonl"]}],
    }

    def die(step: int) -> None:
        if step == LAST and rank == 1:
            time.sleep(2)  # by which all of it is in the files
            os.kill(os.getpid(), signal.SIGKILL)

    train(vector_model(), STEPS, *build_monitor_callbacks(section), AtStep(die), data=vectors(STEPS))


if __name__ == "__main__":
    main()
