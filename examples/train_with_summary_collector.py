"""Trains a small CNN to tell five shapes apart, and records the training with MindSpore's SummaryCollector.

Usage: python examples/train_with_summary_collector.py SUMMARY_DIR [--callback bridge] [--epochs N] [--seed N]

The pictures are drawn here, so nothing is downloaded. It takes about half a minute on a CPU. Afterwards
SUMMARY_DIR holds what a training of your own would leave there:

* scalars: the loss (`loss/auto`, which the collector finds by itself) and the accuracy of each batch (`accuracy`);
* histograms of every parameter, and of what the last hidden layer puts out (`features`);
* images: the pictures of a batch, in one mosaic (`input_data/auto`);
* tensors: the scores that the network gave (`logits`);
* the graph of the network, and the lineage of the data, the training and the evaluation.

To look at it in TensorBoard:

    ms-summary-bridge convert SUMMARY_DIR TENSORBOARD_DIR
    tensorboard --logdir TENSORBOARD_DIR

With `--callback bridge`, SummaryBridge takes the collector's place, with the very same arguments. Then SUMMARY_DIR
holds a TensorBoard file as well, which grows with the training, and more scalars: learning rate, step time, samples
per second, epoch, and the evaluation's accuracy. `tools/quickstart` trains so.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import mindspore
import numpy as np
import numpy.typing as npt
from mindspore import nn, ops
from mindspore.dataset import GeneratorDataset
from mindspore.train import Accuracy, Model, SummaryCollector

from ms_summary_bridge import SummaryBridge

SHAPES = ("disc", "ring", "square", "triangle", "cross")
SIDE = 28  # pixels of a picture
BATCH = 32
STEPS_PER_EPOCH = 75


def draw(shape: str, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Returns a picture, `[1, SIDE, SIDE]` float32 from 0 to 1: a shape of random size and place, under noise."""
    size = rng.uniform(6, 10)
    x_middle, y_middle = rng.uniform(size, SIDE - size, 2)
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32)
    x, y = (x - x_middle) / size, (y - y_middle) / size  # the shape now lies between -1 and 1
    inside = {
        "disc": x**2 + y**2 < 1,
        "ring": abs(x**2 + y**2 - 0.75) < 0.25,
        "square": np.maximum(abs(x), abs(y)) < 0.85,
        "triangle": (abs(x) < (y + 1) / 2) & (y < 1),
        "cross": (np.minimum(abs(x), abs(y)) < 0.25) & (np.maximum(abs(x), abs(y)) < 1),
    }[shape]
    picture = inside * rng.uniform(0.6, 1.0) + rng.normal(0, 0.15, (SIDE, SIDE))
    clipped: npt.NDArray[np.float32] = np.clip(picture, 0, 1).astype(np.float32)
    return clipped[None]


def make_dataset(seed: int, steps: int) -> GeneratorDataset:
    """Returns batches of pictures `[BATCH, 1, SIDE, SIDE]` with labels `[BATCH]`."""

    def generate() -> Iterator[tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]]:
        rng = np.random.default_rng(seed)
        for label in rng.integers(len(SHAPES), size=steps * BATCH):
            yield draw(SHAPES[label], rng), np.array(label, np.int32)

    dataset = GeneratorDataset(generate, ["image", "label"], shuffle=False, num_parallel_workers=1)
    return dataset.batch(BATCH)


class Network(nn.Cell):
    """Two convolutions and two dense layers.

    The summary operators put values on record that the collector does not find by itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.SequentialCell(
            nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2, 2),
            nn.Flatten(), nn.Dense(16 * (SIDE // 4) ** 2, 32), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Dense(32, len(SHAPES))
        self.histogram_summary = ops.HistogramSummary()
        self.tensor_summary = ops.TensorSummary()

    def construct(self, pictures: mindspore.Tensor) -> mindspore.Tensor:
        """Returns a score for each shape, `[batch, len(SHAPES)]`."""
        features = self.layers(pictures)
        logits = self.head(features)
        self.histogram_summary("features", features)
        self.tensor_summary("logits", logits)
        return logits


class LossWithAccuracy(nn.Cell):
    """Cross entropy; on the way it records how many pictures of the batch were recognised."""

    def __init__(self) -> None:
        super().__init__()
        self.cross_entropy = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        self.scalar_summary = ops.ScalarSummary()

    def construct(self, logits: mindspore.Tensor, labels: mindspore.Tensor) -> mindspore.Tensor:
        """Returns the mean loss of the batch."""
        is_right = ops.equal(ops.argmax(logits, dim=1).astype(mindspore.int32), labels)
        self.scalar_summary("accuracy", is_right.astype(mindspore.float32).mean())
        return self.cross_entropy(logits, labels)


CALLBACKS = {"collector": SummaryCollector, "bridge": SummaryBridge}


def make_callback(name: str, summary_dir: str) -> mindspore.train.Callback:
    """Returns the callback that writes into SUMMARY_DIR: either one, with the same arguments."""
    return CALLBACKS[name](
        summary_dir,
        collect_freq=2,  # every second step; the default is 10
        collect_specified_data={
            "histogram_regular": ".*",  # all parameters; the default is the first five
            "collect_landscape": None,  # the collector's loss landscape is on by default, and saves 19 checkpoints
        },
        collect_tensor_freq=20,
        custom_lineage_data={"example": "shapes", "batch": BATCH},
    )


def main() -> None:
    """Trains, evaluates, and says how well it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("summary_dir", metavar="SUMMARY_DIR", help="where to write; made if missing")
    parser.add_argument("--callback", choices=CALLBACKS, default="collector", help="what records it (collector)")
    parser.add_argument("--epochs", type=int, default=2, metavar="N", help=f"of {STEPS_PER_EPOCH} steps each (2)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another one gives another training (1)")
    arguments = parser.parse_args()

    mindspore.set_seed(arguments.seed)
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)  # the graph is recorded in this mode only

    network = Network()
    model = Model(
        network,
        LossWithAccuracy(),
        nn.Adam(network.trainable_params(), learning_rate=0.005),
        metrics={"accuracy": Accuracy()},
    )
    callback = make_callback(arguments.callback, arguments.summary_dir)
    print(f"training for {arguments.epochs} x {STEPS_PER_EPOCH} steps on {', '.join(SHAPES)}", flush=True)
    model.train(
        arguments.epochs,
        make_dataset(arguments.seed, steps=STEPS_PER_EPOCH),
        callbacks=[callback],
        dataset_sink_mode=False,
    )
    # Given to the evaluation as well, it records the result: in the lineage, and the bridge also as a scalar.
    result = model.eval(
        make_dataset(arguments.seed + 1, steps=10),  # pictures it has not seen
        callbacks=[callback],
        dataset_sink_mode=False,
    )
    print(f"recognises {result['accuracy']:.0%} of new pictures", flush=True)


if __name__ == "__main__":
    main()
