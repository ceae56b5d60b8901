"""One rank of a distributed training with the monitor, to be started by msrun.

Usage: msrun ... tests/monitor_scripts/ranks.py SAVE_DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore
from mindspore.communication import init

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import train, vector_model, vectors

from ms_summary_bridge.monitor import build_monitor_callbacks


def main() -> None:
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    init()
    mindspore.set_auto_parallel_context(parallel_mode=mindspore.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    section = {
        "interval": 0,
        "backend": ["local", "tensorboard"],
        "save_dir": sys.argv[1],
        "metrics": ["loss", "step_time", "samples_per_second", "global_rank"],
        "bridge": {"collect_freq": 1},
    }
    train(vector_model(), 3, *build_monitor_callbacks(section), data=vectors(3))


if __name__ == "__main__":
    main()
