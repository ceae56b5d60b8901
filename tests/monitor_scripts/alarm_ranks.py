"""One rank of a distributed training in which one rank alone sees a NaN, to be started by msrun.

Usage: msrun ... tests/monitor_scripts/alarm_ranks.py SAVE_DIR
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore
from mindspore import Tensor
from mindspore.communication import get_rank, init
from mindspore.train import Callback

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import train, vector_model, vectors

from ms_summary_bridge.monitor import build_monitor_callbacks

STEPS = 20_000
POISONED_RANK = 1
POISONED_STEP = 50


class Poison(Callback):
    """Makes the loss NaN that one rank is shown."""

    def on_train_step_end(self, run_context: Any) -> None:
        parameters = run_context.original_args()
        if get_rank() == POISONED_RANK and parameters.cur_step_num >= POISONED_STEP:
            parameters.net_outputs = Tensor(float("nan"))


def main() -> None:
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    init()
    mindspore.set_auto_parallel_context(parallel_mode=mindspore.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    section = {
        "interval": 30,
        "backend": ["local"],
        "save_dir": sys.argv[1],
        "run_id": "run",
        "save_best_ckpt": False,
        "alerts": [{"rule": "nonfinite", "actions": ["log", "stop"]}],
        "stop_patience": 20,
    }
    train(vector_model(0.001), STEPS, Poison(), *build_monitor_callbacks(section), data=vectors(STEPS))


if __name__ == "__main__":
    main()
