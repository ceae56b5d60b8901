"""Records a training loop that is written by hand on MindSpore, without `Model.train` and its callbacks.

Usage: python examples/own_loop_mindspore.py DIRECTORY

`Monitor` takes MindSpore's tensors as they are. It reads them when the next step has ended, so the device never waits.
"""

from __future__ import annotations

import sys

import mindspore
import numpy as np
from mindspore import nn

from ms_summary_bridge.monitor import Monitor

STEPS = 40
BATCH = 16


def main(directory: str) -> None:
    """Trains."""
    mindspore.set_seed(0)
    mindspore.set_device("CPU")
    rng = np.random.default_rng(0)
    network = nn.Dense(2, 1)
    loss_of = nn.MSELoss()
    optimizer = nn.SGD(network.trainable_params(), learning_rate=0.1)

    def forward(x: mindspore.Tensor, y: mindspore.Tensor) -> mindspore.Tensor:
        return loss_of(network(x), y)

    step = mindspore.value_and_grad(forward, None, optimizer.parameters)

    config = {"save_dir": directory, "interval": 0, "metrics": ["loss", "lr", "samples_per_second", "update_ratio"]}
    # With the parameters it knows `update_ratio`: how far a step moves them, measured by their size.
    with Monitor(config, parameters=network.trainable_params()) as monitor:
        for _ in range(STEPS):
            x = rng.normal(size=(BATCH, 2)).astype(np.float32)
            y = (x @ np.float32([[2.0], [-1.0]])) + 0.5
            loss, gradients = step(mindspore.Tensor(x), mindspore.Tensor(y))
            optimizer(gradients)
            monitor.step(loss=loss, lr=optimizer.get_lr(), samples=BATCH)
    print("weights:", network.weight.asnumpy().round(3).tolist())


if __name__ == "__main__":
    main(*sys.argv[1:])
