"""Trains some steps on a CPU with MindSpore's profiler, whose output goes to DIRECTORY.

Usage: python tests/columns/profile_training.py DIRECTORY
"""

from __future__ import annotations

import sys
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, profiler
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Callback, Model


class _Steps(Callback):
    def __init__(self, profile: Any) -> None:
        super().__init__()
        self._profile = profile

    def on_train_step_end(self, run_context: Any) -> None:
        self._profile.step()


def main(directory: str) -> None:
    mindspore.set_device("CPU")
    rows = np.linspace(-1, 1, 3 * 4 * 6, dtype=np.float32).reshape(-1, 3)
    columns = {"data": rows, "label": rows.sum(axis=1, keepdims=True)}
    dataset = NumpySlicesDataset(columns, shuffle=False).batch(4)
    network = nn.Dense(3, 1)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), learning_rate=0.01))
    with profiler.profile(
        activities=[profiler.ProfilerActivity.CPU],
        schedule=profiler.schedule(wait=0, warmup=0, active=2, repeat=1),
        on_trace_ready=profiler.tensorboard_trace_handler(directory),
    ) as profile:
        model.train(1, dataset, callbacks=[_Steps(profile)], dataset_sink_mode=False)


if __name__ == "__main__":
    main(sys.argv[1])
