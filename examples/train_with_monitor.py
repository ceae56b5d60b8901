"""Trains with the monitor, which one section of a YAML file describes.

Usage: MONITOR_DIR=DIRECTORY python examples/train_with_monitor.py [CONFIG]

CONFIG is examples/monitor.yaml unless another file is named. Rank 0 tells on the console how it goes. Below
DIRECTORY/bars/<run> are the journal (`metrics.jsonl`), a table (`metrics.csv`) and files for both viewers (`summary`).
"""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model

from ms_summary_bridge.monitor import build_monitor_callbacks

CONFIG = Path(__file__).with_name("monitor.yaml")
BATCH = 16


def make_dataset(batches: int = 20) -> NumpySlicesDataset:
    """Returns points of a plane: what the network is to learn."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(batches * BATCH, 2)).astype(np.float32)
    y = (x @ np.float32([[2.0], [-1.0]])) + 0.5
    return NumpySlicesDataset((x, y), shuffle=False, num_parallel_workers=1).batch(BATCH)


def main(config: str = str(CONFIG)) -> None:
    """Trains."""
    mindspore.set_seed(0)
    mindspore.set_device("CPU")  # or Ascend, or GPU
    network = nn.Dense(2, 1)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), learning_rate=0.1))
    # One line for all that the file asks for: the monitor, and the callbacks that it needs beside it.
    model.train(2, make_dataset(), callbacks=build_monitor_callbacks(config), dataset_sink_mode=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
