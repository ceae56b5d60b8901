"""Trains three steps of a tiny network with a configuration: the program that `config check --try` starts.

Imports mindspore; it runs in a process of its own.

Usage: python -m ms_summary_bridge.monitor.trial_training CONFIG.json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import mindspore
import msgspec
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Callback, Model

from ms_summary_bridge.errors import BridgeError
from ms_summary_bridge.monitor.build import build_monitor_callbacks

__all__ = ["OUTCOMES", "STEPS", "main"]

OUTCOMES = "outcomes.json"
"""File beside the section: what became of the commands and webhooks of a test alarm."""

STEPS = 3
_BATCH = 4


class _TestAlarm(Callback):
    """Raises a test alarm in the last step, in which a stop changes nothing. It stands before the monitor."""

    def __init__(self, monitor: Any) -> None:
        super().__init__()
        self._monitor = monitor

    def on_train_step_end(self, run_context: Any) -> None:
        """Raises it."""
        if run_context.original_args().cur_step_num == STEPS:
            self._monitor.raise_test_alarm()


def main(path: str) -> int:
    """Trains with the section in this JSON file; returns the exit code."""
    mindspore.set_device("CPU")  # whatever the cards of this machine are busy with
    mindspore.set_seed(0)
    try:
        callbacks = build_monitor_callbacks(msgspec.json.decode(Path(path).read_bytes()))
    except (BridgeError, TypeError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    monitors = [callback for callback in callbacks if hasattr(callback, "raise_test_alarm")]
    callbacks = [*(_TestAlarm(monitor) for monitor in monitors), *callbacks]
    samples = np.linspace(-1, 1, 3 * _BATCH * STEPS, dtype=np.float32).reshape(-1, 3)
    columns = {"data": samples, "label": samples.sum(axis=1, keepdims=True)}
    dataset = NumpySlicesDataset(columns, shuffle=False).batch(_BATCH)
    network = nn.Dense(3, 1)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), learning_rate=0.01))
    model.train(1, dataset, callbacks=callbacks, dataset_sink_mode=False)
    outcomes = [outcome for monitor in monitors for outcome in monitor.alarm_outcomes]
    Path(path).with_name(OUTCOMES).write_bytes(msgspec.json.encode(outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
