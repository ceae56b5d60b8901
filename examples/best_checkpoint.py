"""Keeps the best and the last checkpoints of a training, whole at any moment, and loads the best one.

Usage: python examples/best_checkpoint.py DIRECTORY

Run a second time with the same DIRECTORY it loads the weights, and goes on with the best value so far.
"""

from __future__ import annotations

import os
import sys

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import MAE, Model

from ms_summary_bridge import LogdirError, SaveBestCheckpoint

BATCH = 16


def make_dataset(seed: int, batches: int) -> NumpySlicesDataset:
    """Returns points of a plane."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(batches * BATCH, 2)).astype(np.float32)
    y = (x @ np.float32([[2.0], [-1.0]])) + 0.5
    return NumpySlicesDataset((x, y), shuffle=False, num_parallel_workers=1).batch(BATCH)


def main(directory: str) -> None:
    """Trains for three epochs, and loads the best one."""
    mindspore.set_seed(0)
    mindspore.set_device("CPU")
    network = nn.Dense(2, 1)
    try:
        print("going on from:", SaveBestCheckpoint.load_last(directory, network).file)
    except LogdirError:
        print("a new training")
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), learning_rate=0.05), metrics={"mae": MAE()})
    # A metric of the evaluation by `eval/<name>`; "loss" takes the training's own. Smaller is better for an error.
    best = SaveBestCheckpoint("eval/mae", "min", directory=directory, save_epochs=1, keep_checkpoint_max=2)
    model.fit(3, make_dataset(0, 10), make_dataset(1, 4), callbacks=[best], dataset_sink_mode=False)

    found = SaveBestCheckpoint.load_best(directory, network)
    print(f"best: {found.file}, eval/mae {found.value:.6f}")
    print("files:", *sorted(name for name in os.listdir(directory) if name.endswith(".ckpt")))


if __name__ == "__main__":
    main(*sys.argv[1:])
