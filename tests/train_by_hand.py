"""Trains on MindSpore with the real SummaryCollector, a step for each line that comes in on stdin, after the first.

Usage: python tests/train_by_hand.py SUMMARY_DIR STEPS

Each step is an epoch, since the collector hands what it has to the file at the end of one (measured on MindSpore 2.10).
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Callback, Model, SummaryCollector


class ByHand(Callback):
    """Waits before each epoch but the first until a line comes."""

    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Waits."""
        if run_context.original_args().cur_epoch_num > 1:
            sys.stdin.readline()


def main() -> None:
    """Trains a line through four points."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("summary_dir")
    parser.add_argument("steps", type=int)
    arguments = parser.parse_args()
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    x = np.linspace(-1, 1, 4, dtype=np.float32).reshape(-1, 1)
    dataset = NumpySlicesDataset((x, 2 * x), shuffle=False, num_parallel_workers=1).batch(4)
    network = nn.Dense(1, 1)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.1))
    collector = SummaryCollector(
        arguments.summary_dir, collect_freq=1, collect_specified_data={"collect_landscape": None}
    )
    model.train(arguments.steps, dataset, callbacks=[collector, ByHand()], dataset_sink_mode=False)


if __name__ == "__main__":
    main()
