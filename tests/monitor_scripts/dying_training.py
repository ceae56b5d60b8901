"""A real training that hangs before it begins, or dies in the middle.

Usage: python tests/monitor_scripts/dying_training.py SAVE_DIR KIND

`hang`: a generator without a length is asked for it before the training begins. `kill`: SIGKILL at step 5. `diverge`:
the data become others after 300 steps, with a learning rate that can follow neither. `well`: they do not.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import mindspore
import numpy as np
from mindspore.dataset import GeneratorDataset
from mindspore.train import ModelCheckpoint
from mindspore.train.callback import CheckpointConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import BATCH, AtStep, train, vector_model

from ms_summary_bridge.monitor import MindSporeTransformersMonitor, build_monitor_callbacks

STEPS = 6
LONG = 800


def slow_rows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As a data set that is looked for on a storage which does not answer."""
    time.sleep(5)
    for index in range(BATCH * STEPS):
        yield np.full(3, index % 7 / 7, np.float32), np.ones(1, np.float32)


def shifting_rows(target: float) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    rows = BATCH * LONG
    return [
        (rng.random(3, np.float32), np.full(1, 3 if row < rows * 3 / 8 else target, np.float32)) for row in range(rows)
    ]


def main() -> None:
    directory, kind = sys.argv[1:]
    mindspore.set_device("CPU")
    if kind in ("diverge", "well"):
        monitor = MindSporeTransformersMonitor({"save_dir": directory, "run_id": "run", "interval": 1})
        rows = shifting_rows(5 if kind == "diverge" else 3)
        data = GeneratorDataset(rows, ["x", "y"], shuffle=False, num_parallel_workers=1).batch(BATCH)
        train(vector_model(1e-5), LONG, monitor, data=data)
        return
    limits = {"compile_limit": 2} if kind == "hang" else {}
    section = {"interval": 0, "save_dir": directory, "metrics": ["loss"], "watchdog": limits}
    if kind == "hang":
        section["backend"] = ["local", "tensorboard"]
        monitor = MindSporeTransformersMonitor(section)
        data = GeneratorDataset(slow_rows, ["x", "y"], shuffle=False).batch(BATCH)
        train(vector_model(), STEPS, monitor, data=data)
        return
    callbacks = build_monitor_callbacks({**section, "run_id": "run"})
    config = CheckpointConfig(save_checkpoint_steps=2)
    saver = ModelCheckpoint(prefix="net", directory=f"{directory}/checkpoints", config=config)

    def die(step: int) -> None:
        if step == 5:
            time.sleep(2)  # by which all of it is in the files
            os.kill(os.getpid(), signal.SIGKILL)

    train(vector_model(), STEPS, *callbacks, saver, AtStep(die))


if __name__ == "__main__":
    main()
