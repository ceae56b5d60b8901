"""A real training with the bridge and the monitor, that ends well, badly or not at all.

Usage: python tests/bridge_scripts/watched.py DIR well|error|kill|nan
"""

from __future__ import annotations

import os
import signal
import sys

import mindspore
import numpy as np
from mindspore.dataset import NumpySlicesDataset
from small import BATCH, AtStep, train, vector_model

from ms_summary_bridge import SummaryBridge
from ms_summary_bridge.monitor import MindSporeTransformersMonitor

STEPS = 12


def main() -> None:
    directory, kind = sys.argv[1:]

    def end(step: int) -> None:
        if step == 8 and kind == "error":
            raise ValueError("on purpose")
        if step == 8 and kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    mindspore.set_device("CPU")
    rng = np.random.default_rng(0)
    x, y = (rng.random((BATCH * STEPS, width), np.float32) for width in (3, 1))
    if kind == "nan":
        y[BATCH * 5 :] = np.nan
    data = NumpySlicesDataset((x, y), shuffle=False, num_parallel_workers=1).batch(BATCH)
    section = {"interval": 0, "save_dir": f"{directory}/summary/monitor", "run_id": "run", "alerts": ["nonfinite"]}
    bridge = SummaryBridge(f"{directory}/summary", collect_freq=1)
    train(vector_model(), STEPS, bridge, MindSporeTransformersMonitor(section), AtStep(end), data=data)


if __name__ == "__main__":
    main()
