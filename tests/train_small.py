"""Trains a very small network on MindSpore with the real SummaryCollector or the bridge, and evaluates it.

Usage: python tests/train_small.py SUMMARY_DIR [--epochs N] [--freq N] [--mode graph|pynative]
           [--callback collector|bridge]

What is then in SUMMARY_DIR, with the default of 2 epochs of 8 steps each:

* scalars `loss/auto` and `mean`, images `input_data/auto` and `input`, histograms `activation` and one for each
  parameter (`<name>/auto`), the tensor `logits`: each at every step, the automatic ones of an epoch's last step twice;
* the graph of the network (graph mode only);
* lineage of the data set, the training, the evaluation, and the user's own (`custom_lineage_data`).

The numbers are the same in every run on one machine; the times are not.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.dataset import GeneratorDataset
from mindspore.train import Accuracy, Callback, Model, SummaryCollector

from ms_summary_bridge import SummaryBridge

SIDE = 16  # pixels of an image
CLASSES = 3
BATCH = 8
STEPS_PER_EPOCH = 8


class Network(nn.Cell):
    """One convolution and one dense layer; every kind of summary operator stands in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 4, 3)
        self.activation = nn.ReLU()
        self.flatten = nn.Flatten()
        self.dense = nn.Dense(4 * SIDE * SIDE, CLASSES)
        self.scalar_summary = ops.ScalarSummary()
        self.histogram_summary = ops.HistogramSummary()
        self.image_summary = ops.ImageSummary()
        self.tensor_summary = ops.TensorSummary()

    def construct(self, images: mindspore.Tensor) -> mindspore.Tensor:
        """Returns the logits, `[batch, CLASSES]`, of images `[batch, 1, SIDE, SIDE]`."""
        active = self.activation(self.convolution(images))
        logits = self.dense(self.flatten(active))
        self.scalar_summary("mean", logits.mean())
        self.histogram_summary("activation", active)
        self.image_summary("input", images)
        self.tensor_summary("logits", logits)
        return logits


def make_dataset() -> GeneratorDataset:
    """Returns batches of random images with labels."""

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(0)
        for index in range(BATCH * STEPS_PER_EPOCH):
            yield rng.random((1, SIDE, SIDE)).astype(np.float32), np.array(index % CLASSES, np.int32)

    # One worker thread: MindSpore's default is to fork more, for 64 tiny images.
    dataset = GeneratorDataset(generate, ["image", "label"], shuffle=False, num_parallel_workers=1)
    return dataset.batch(BATCH)


def make_collector(summary_dir: str, freq: int, callback: str) -> Callback:
    """Returns a collector of everything but the loss landscape: MindSpore's own, or the bridge in its place.

    That one is on by default and saves a checkpoint at most of the first steps; only an explicit None stops it.
    """
    collector = SummaryBridge if callback == "bridge" else SummaryCollector
    return collector(
        summary_dir,
        collect_freq=freq,
        collect_specified_data={"collect_landscape": None, "histogram_regular": ".*"},
        collect_tensor_freq=freq,
        custom_lineage_data={"purpose": "test", "seed": 0},
    )


def main() -> None:
    """Trains and evaluates."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("summary_dir")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--freq", type=int, default=1, help="collect at every N-th step")
    parser.add_argument("--mode", choices=["graph", "pynative"], default="graph")
    parser.add_argument("--callback", choices=["collector", "bridge"], default="collector")
    arguments = parser.parse_args()

    mindspore.set_seed(0)
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE if arguments.mode == "graph" else mindspore.PYNATIVE_MODE)
    network = Network()
    model = Model(
        network,
        nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        nn.Momentum(network.trainable_params(), learning_rate=0.01, momentum=0.9),
        metrics={"accuracy": Accuracy()},
    )
    model.train(
        arguments.epochs,
        make_dataset(),
        callbacks=[make_collector(arguments.summary_dir, arguments.freq, arguments.callback)],
        dataset_sink_mode=False,
    )
    # The names of summary files have whole seconds, and MindSpore overwrites: within the same second the evaluation's
    # lineage would take the place of the training's.
    finished = int(time.time())
    while int(time.time()) == finished:
        time.sleep(0.05)
    model.eval(
        make_dataset(),
        callbacks=[make_collector(arguments.summary_dir, arguments.freq, arguments.callback)],
        dataset_sink_mode=False,
    )


if __name__ == "__main__":
    main()
