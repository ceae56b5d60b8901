"""Trains three steps of a tiny network with a configuration: the program that `config check --try` starts.

Layer: monitor.build < **monitor.trial_training**. Imports mindspore; it runs in a process of its own.

Usage: python -m ms_summary_bridge.monitor.trial_training CONFIG.json
"""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore
import msgspec
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model

from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.monitor.build import build_monitor_callbacks

__all__ = ["STEPS", "main"]

STEPS = 3
_BATCH = 4


def main(path: str) -> int:
    """Trains with the section in this JSON file; returns the exit code."""
    mindspore.set_device("CPU")  # whatever the cards of this machine are busy with
    mindspore.set_seed(0)
    try:
        callbacks = build_monitor_callbacks(msgspec.json.decode(Path(path).read_bytes()))
    except (BridgeError, TypeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    samples = np.linspace(-1, 1, 3 * _BATCH * STEPS, dtype=np.float32).reshape(-1, 3)
    columns = {"data": samples, "label": samples.sum(axis=1, keepdims=True)}
    dataset = NumpySlicesDataset(columns, shuffle=False).batch(_BATCH)
    network = nn.Dense(3, 1)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), learning_rate=0.01))
    model.train(1, dataset, callbacks=callbacks, dataset_sink_mode=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
