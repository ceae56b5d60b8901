"""Trains a very small network and has MindSpore's own SummaryLandscape compute the loss around its path.

Usage: python tests/train_landscape.py SUMMARY_DIR [--size N] [--operators]

In SUMMARY_DIR is then, beside what SummaryCollector wrote, one more summary file with two landscapes:
`landscape_[1, 6]` with the path of the training (PCA), and `landscape_[6]` around its end (random directions).
Checkpoints are removed. With `--operators` summary operators stand in the network; what they leave while the landscape
is computed is in its file too.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.dataset import GeneratorDataset
from mindspore.train import Loss, Model, SummaryCollector, SummaryLandscape

STEPS = 6
BATCH = 8
FEATURES = 4


def make_dataset() -> GeneratorDataset:
    """Returns batches of points whose class is whether their sum is positive."""

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(0)
        for _ in range(BATCH * STEPS):
            point = rng.standard_normal(FEATURES).astype(np.float32)
            yield point, np.array(point.sum() > 0, np.int32)

    dataset = GeneratorDataset(generate, ["point", "label"], shuffle=False, num_parallel_workers=1)
    return dataset.batch(BATCH)


class Observed(nn.Cell):
    """A network whose output is recorded by summary operators."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__()
        self.network = network
        self.scalar_summary = ops.ScalarSummary()
        self.image_summary = ops.ImageSummary()
        self.tensor_summary = ops.TensorSummary()

    def construct(self, points: mindspore.Tensor) -> mindspore.Tensor:
        """Returns what the network does."""
        out = self.network(points)
        self.scalar_summary("mean", out.mean())
        self.image_summary("output", out.reshape((1, 1, -1, 2)))
        self.tensor_summary("logits", out)
        return out


def make_network() -> nn.Cell:
    """Returns two dense layers."""
    network = nn.SequentialCell(nn.Dense(FEATURES, 6), nn.Tanh(), nn.Dense(6, 2))
    return Observed(network) if "--operators" in sys.argv else network


def make_model() -> tuple[Model, nn.Cell, GeneratorDataset, dict[str, Loss]]:
    """Returns what SummaryLandscape asks for: model, network, data and metrics."""
    network = make_network()
    metrics = {"Loss": Loss()}
    model = Model(network, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), metrics=metrics)
    return model, network, make_dataset(), metrics


def main() -> None:
    """Trains and computes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("summary_dir")
    parser.add_argument("--size", type=int, default=12, help="points along each axis")
    parser.add_argument("--operators", action="store_true", help="with summary operators in the network")
    arguments = parser.parse_args()
    settings = {
        "landscape_size": arguments.size,
        "unit": "step",
        "create_landscape": {"train": True, "result": True},
        "num_samples": BATCH * STEPS,
        "intervals": [list(range(1, STEPS + 1))],
    }
    mindspore.set_seed(0)
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    network = make_network()
    model = Model(
        network,
        nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        nn.Momentum(network.trainable_params(), learning_rate=0.3, momentum=0.9),
    )
    every = 1 if arguments.operators else 10
    collector = SummaryCollector(arguments.summary_dir, every, collect_specified_data={"collect_landscape": settings})
    model.train(1, make_dataset(), callbacks=[collector], dataset_sink_mode=False)
    # The names of summary files have whole seconds, and MindSpore overwrites.
    finished = int(time.time())
    while int(time.time()) == finished:
        time.sleep(0.05)
    landscape = SummaryLandscape(arguments.summary_dir)
    landscape.gen_landscapes_with_multi_process(
        make_model,
        collect_landscape={key: value for key, value in settings.items() if key != "unit"},
        device_ids=[0],
    )
    landscape.clean_ckpt()


if __name__ == "__main__":
    main()
