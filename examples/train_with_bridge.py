"""Trains a small network with the script that most MindSpore tutorials share, and records it for both viewers.

Usage: python examples/train_with_bridge.py SUMMARY_DIR [--epochs N]

The only word that differs from such a tutorial is SummaryBridge, which takes the place of SummaryCollector. The data
are made here, so nothing is downloaded; it takes a few seconds on a CPU. While it trains, and afterwards, look at it
with either of

    tensorboard --logdir SUMMARY_DIR
    mindinsight start --summary-base-dir SUMMARY_DIR

What is in SUMMARY_DIR:

* MindSpore's summary and lineage files, as SummaryCollector writes them: the loss, histograms of the first five
  parameters, the pictures, the graph, the lineage of data and training;
* beside them a TensorBoard file with the same values, readable at most five seconds after each step;
* in both, what SummaryCollector does not record: learning rate, step time, samples per second, epoch;
* `checkpoints/`, where ModelCheckpoint saves.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

import mindspore
import numpy as np
import numpy.typing as npt
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import CheckpointConfig, LossMonitor, Model, ModelCheckpoint, TimeMonitor

from ms_summary_bridge import SummaryBridge

SIDE = 12  # pixels of a picture
BATCH = 16
STEPS_PER_EPOCH = 30


def make_dataset() -> GeneratorDataset:
    """Returns batches of pictures `[BATCH, 1, SIDE, SIDE]` with labels `[BATCH]`: does a bar stand or lie?"""

    def generate() -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]]:
        rng = np.random.default_rng(0)
        for _ in range(BATCH * STEPS_PER_EPOCH):
            picture = rng.normal(0, 0.1, (SIDE, SIDE))
            label, place = rng.integers(2), rng.integers(SIDE - 2)
            bar = np.s_[:, place : place + 2] if label == 0 else np.s_[place : place + 2, :]
            picture[bar] += 0.8
            yield np.clip(picture, 0, 1).astype(np.float32)[None], np.array(label, np.int32)

    dataset = GeneratorDataset(generate, ["image", "label"], shuffle=False, num_parallel_workers=1)
    return dataset.batch(BATCH)


class Network(nn.Cell):
    """One convolution and one dense layer, with the loss at their end."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.SequentialCell(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(4 * (SIDE // 2) ** 2, 2)
        )
        self.loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")

    def construct(self, image: mindspore.Tensor, label: mindspore.Tensor) -> mindspore.Tensor:
        """Returns the loss of a batch."""
        return self.loss(self.layers(image), label)


def main() -> None:
    """Trains."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("summary_dir")
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()

    mindspore.set_seed(0)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)  # the graph is only there to be recorded in this mode
    mindspore.set_device("CPU")  # or Ascend, or GPU

    network = Network()
    # A rate that falls: SummaryBridge records the one that each step used.
    steps = arguments.epochs * STEPS_PER_EPOCH
    rates = nn.cosine_decay_lr(0.01, 0.1, steps, STEPS_PER_EPOCH, arguments.epochs)
    model = Model(network, optimizer=nn.Momentum(network.trainable_params(), rates, momentum=0.9))

    checkpoints = CheckpointConfig(save_checkpoint_steps=STEPS_PER_EPOCH, keep_checkpoint_max=2)
    callbacks = [
        LossMonitor(STEPS_PER_EPOCH),
        TimeMonitor(),
        # SummaryCollector(arguments.summary_dir, collect_freq=10) stood here.
        SummaryBridge(arguments.summary_dir, collect_freq=10),
        ModelCheckpoint("bars", os.path.join(arguments.summary_dir, "checkpoints"), checkpoints),
    ]
    # In data sink mode a device takes many steps in one call, and the bridge counts the steps all the same.
    model.train(arguments.epochs, make_dataset(), callbacks=callbacks, dataset_sink_mode=True)


if __name__ == "__main__":
    main()
