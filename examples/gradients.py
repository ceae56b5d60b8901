"""Records the gradients of a training: a histogram of each parameter and the norm over all, in both viewers.

Usage: python examples/gradients.py SUMMARY_DIR

    tensorboard --logdir SUMMARY_DIR       pages Time Series and Histograms
    mindinsight start --summary-base-dir SUMMARY_DIR
"""

from __future__ import annotations

import sys

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model

from ms_summary_bridge import GradientSummary, SummaryBridge

BATCH = 16
STEPS = 12


def main(summary_dir: str) -> None:
    """Trains."""
    mindspore.set_seed(0)
    mindspore.set_device("CPU")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(STEPS * BATCH, 2)).astype(np.float32)
    y = (x @ np.float32([[2.0], [-1.0]])) + 0.5
    dataset = NumpySlicesDataset((x, y), shuffle=False, num_parallel_workers=1).batch(BATCH)

    network = nn.SequentialCell(nn.Dense(2, 4), nn.Tanh(), nn.Dense(4, 1))
    # It takes the place of nn.TrainOneStepCell, or wraps a training cell of your own.
    cell = GradientSummary(
        nn.WithLossCell(network, nn.MSELoss()),
        nn.SGD(network.trainable_params(), learning_rate=0.05),
        pattern=".*weight",  # of which parameters there is a histogram; the norm is over all
    )
    # The gradients are recorded at the steps that the bridge collects. A plain Model would wrap the cell again.
    bridge = SummaryBridge(summary_dir, collect_freq=3)
    Model(cell).train(1, dataset, callbacks=[bridge], dataset_sink_mode=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
