"""A real training that hangs before it begins, or dies in the middle.

Usage: python tests/monitor_scripts/dying_training.py SAVE_DIR KIND

`hang`: a generator without a length is asked for it before the training begins. `kill`: SIGKILL at step 5. `diverge`:
two trainings, below SAVE_DIR/well and SAVE_DIR/diverge; in the second one the data become others after some steps, with
a learning rate that can follow neither.
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
LONG, CHANGE = 640, 120


def slow_rows() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As a data set that is looked for on a storage which does not answer."""
    time.sleep(5)
    for index in range(BATCH * STEPS):
        yield np.full(3, index % 7 / 7, np.float32), np.ones(1, np.float32)


def shifting_rows(target: float) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    targets = np.where(np.arange(BATCH * LONG) < BATCH * CHANGE, 3, target).astype(np.float32)
    return [(rng.random(3, np.float32), targets[row : row + 1]) for row in range(BATCH * LONG)]


def main() -> None:
    directory, kind = sys.argv[1:]
    mindspore.set_device("CPU")
    if kind == "diverge":
        for name, target in (("well", 3), ("diverge", 5)):
            monitor = MindSporeTransformersMonitor({"save_dir": f"{directory}/{name}", "run_id": "run", "interval": 1})
            data = GeneratorDataset(shifting_rows(target), ["x", "y"], shuffle=False, num_parallel_workers=1)
            train(vector_model(1e-5), LONG, monitor, data=data.batch(BATCH))
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
