"""Trains for a time, at a pace, with the callback and the monitor; started by the part `soak`.

Usage: python train_soak.py DIRECTORY SECONDS STEPS_PER_SECOND

Leaves each step's loss as float32 in DIRECTORY/losses, as the training had it; a step that could not keep its pace is
not made up for.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Callback, Model

from ms_summary_bridge import SummaryBridge
from ms_summary_bridge.monitor import MindSporeTransformersMonitor

_STEPS_PER_EPOCH = 1000


class Pace(Callback):
    """Keeps the losses, holds the pace and ends the training."""

    def __init__(self, path: Path, seconds: float, pace: float) -> None:
        super().__init__()
        self._file = path.open("wb")
        self._pause = 1 / pace
        self._next = time.monotonic()
        self._end = self._next + seconds

    def on_train_step_end(self, run_context: Any) -> None:
        self._file.write(run_context.original_args().net_outputs.asnumpy().astype("<f4").tobytes())
        now = time.monotonic()
        self._next = max(self._next + self._pause, now - 1)
        if now >= self._end:
            self._file.close()
            run_context.request_stop()
        elif self._next > now:
            time.sleep(self._next - now)


def main(directory: Path, seconds: float, pace: float) -> None:
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)  # a step of PYNATIVE leaves 4.7 KiB behind without any callback
    mindspore.set_seed(1)
    x = np.random.default_rng(0).standard_normal((_STEPS_PER_EPOCH, 1)).astype(np.float32)
    dataset = NumpySlicesDataset((x, 2 * x), shuffle=False, num_parallel_workers=1).batch(1)
    network = nn.Dense(1, 1)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 1e-4))
    bridge = SummaryBridge(
        str(directory / "summary"),
        collect_freq=1,
        collect_trainable_params=False,
        collect_graph=False,
        tensorboard_dir=str(directory / "live"),
        max_file_size=8 << 20,
    )
    monitor = MindSporeTransformersMonitor(
        {
            "backend": ["local"],
            "interval": 1,
            "save_dir": str(directory / "monitor"),
            "project": "soak",
            "run_id": "run",
            "max_journal_bytes": 1 << 20,
        }
    )
    callbacks = [Pace(directory / "losses", seconds, pace), bridge, monitor]
    model.train(1 << 30, dataset, callbacks=callbacks, dataset_sink_mode=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
