"""A real training of a second with the bridge and the monitor; prints how many steps it has trained."""

import sys

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, Model

from ms_summary_bridge import SummaryBridge
from ms_summary_bridge.monitor.callback import MindSporeTransformersMonitor

STEPS = 24


class Count(Callback):
    steps = 0

    def on_train_step_end(self, run_context: object) -> None:
        Count.steps += 1


def samples():
    for number in range(STEPS):
        yield np.full(4, number / 8, np.float32), np.full(1, number, np.float32)


if __name__ == "__main__":
    mindspore.set_seed(1)
    out = sys.argv[1]
    network = nn.Dense(4, 1)
    section = {"save_dir": f"{out}/runs", "backend": ["local", "tensorboard"], "interval": 0, "metrics": ["loss"]}
    callbacks = [
        SummaryBridge(f"{out}/summary", collect_freq=1, flush_secs=0.5, fsync=True),
        MindSporeTransformersMonitor(section),
        Count(),
    ]
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.001))
    model.train(1, GeneratorDataset(samples, ["x", "y"]).batch(1), callbacks=callbacks, dataset_sink_mode=False)
    print(f"trained {Count.steps} steps")
