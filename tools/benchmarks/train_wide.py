"""Trains a network of about 100 parameters and 1M elements; what `bench callback` times.

Usage: python train_wide.py CALLBACK DIRECTORY STEPS HISTOGRAMS    CALLBACK: none, collector or bridge

Prints one line of JSON: the seconds of `model.train` and the processor seconds of this process and its children.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Model, SummaryCollector

WIDTH = 140  # 50 layers of 140 x 140 weights and 140 biases: 100 parameters, 987,000 elements
LAYERS = 50
BATCH = 8


def make_callbacks(kind: str, directory: str, histograms: bool) -> list[mindspore.train.Callback]:
    """Returns the callback to be measured, collecting at every step: all parameters, or the loss alone."""
    specified = {"collect_landscape": None, "collect_metric": True}
    if histograms:
        specified["histogram_regular"] = ".*"
    options = {"collect_freq": 1, "collect_specified_data": specified, "keep_default_action": False}
    if kind == "collector":
        return [SummaryCollector(directory, **options)]
    if kind == "bridge":
        from ms_summary_bridge import SummaryBridge

        return [SummaryBridge(directory, collect_lr=False, collect_landmark=False, **options)]
    return []


def make_training(steps: int) -> tuple[Model, Callable[[int], GeneratorDataset]]:
    """Returns the model, and what makes a data set of that many steps, at most `steps`; the same at every call."""
    mindspore.set_seed(0)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((steps * BATCH, WIDTH)).astype(np.float32)
    labels = generator.integers(0, WIDTH, steps * BATCH).astype(np.int32)
    network = nn.SequentialCell([cell for _ in range(LAYERS) for cell in (nn.Dense(WIDTH, WIDTH), nn.Tanh())])
    model = Model(
        network,
        nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
        nn.Momentum(network.trainable_params(), 0.001, 0.9),
    )

    def dataset(count: int) -> GeneratorDataset:
        pairs = [(inputs[i], labels[i]) for i in range(count * BATCH)]
        return GeneratorDataset(pairs, ["x", "y"], shuffle=False).batch(BATCH)

    return model, dataset


def processor_secs() -> float:
    """Returns what this process and its ended children have used."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def main() -> None:
    """Trains once to compile, then measures."""
    kind, directory, steps, histograms = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1"
    model, dataset = make_training(steps)
    model.train(1, dataset(2), dataset_sink_mode=False)  # compiles the graph, which is none of the callback's cost
    callbacks = make_callbacks(kind, directory, histograms)
    data = dataset(steps)
    before, begun = processor_secs(), time.perf_counter()
    model.train(1, data, callbacks=callbacks, dataset_sink_mode=False)
    wall = time.perf_counter() - begun
    print(json.dumps({"wall": wall, "cpu": processor_secs() - before}))


if __name__ == "__main__":
    main()
