"""Real trainings that go wrong, one after the other in one process; the last of them ends the process.

Usage: python tests/monitor_scripts/alarms.py DIRECTORY RESULT.json

RESULT.json has for each training the steps it `trained`, its exit `code`, and whether a callback that stands before the
monitor was told of the end. The process itself ends with the code of the last training.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, nn
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import BATCH, vector_model

from ms_summary_bridge.monitor import build_monitor_callbacks

RESULTS: dict[str, dict[str, Any]] = {}


def data(steps: int, poisoned: int) -> Any:
    """Returns batches of which one, counted from 1, has a target that is NaN."""

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        random = np.random.default_rng(0)
        for row in range(BATCH * steps):
            target = np.nan if row // BATCH + 1 == poisoned else random.random()
            yield random.random(3).astype(np.float32), np.array([target], np.float32)

    return GeneratorDataset(list(generate()), ["x", "y"], shuffle=False, num_parallel_workers=1).batch(BATCH)


class ScaledStep(nn.Cell):
    """Returns loss, overflow and loss scale, as the cells of mixed precision do."""

    def __init__(self, *, overflows: bool = False) -> None:
        super().__init__(auto_prefix=False)
        net = nn.SequentialCell(nn.Dense(3, 2), nn.Dense(2, 1))
        self.optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
        self.step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), self.optimizer)
        self.step.set_train()
        self.flag = Tensor(overflows)
        self.scale = Tensor(1024.0, mindspore.float32)

    def construct(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.step(x, y), self.flag, self.scale


class Watch(Callback):
    """Counts steps, and notices the end."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.ends = 0

    def on_train_step_end(self, run_context: Any) -> None:
        self.steps += 1

    def on_train_end(self, run_context: Any) -> None:
        self.ends += 1


def section(directory: Path, name: str, **keys: Any) -> dict[str, Any]:
    given = {"interval": 0, "backend": ["local"], "save_dir": str(directory), "project": name, "run_id": "run"}
    return {**given, "save_best_ckpt": False, "watchdog": False, **keys}


def run(name: str, result: Path, model: Model, dataset: Any, callbacks: list[Any], epochs: int = 1) -> int | None:
    """Trains; returns the code with which the process is to end."""
    watch = Watch()
    code = None
    try:
        model.train(epochs, dataset, callbacks=[watch, *callbacks], dataset_sink_mode=False)
    except SystemExit as end:
        code = end.code
    RESULTS[name] = {"trained": watch.steps, "code": code, "ends": watch.ends}
    result.write_text(json.dumps(RESULTS))
    return code


def main() -> None:
    directory, result = Path(sys.argv[1]), Path(sys.argv[2])
    mindspore.set_device("CPU")
    stop = {"rule": "nonfinite", "actions": ["log", "stop", "save_checkpoint", "dump_stacks"]}

    healthy = section(directory, "healthy")
    run("healthy", result, vector_model(0.01), data(300, 0), build_monitor_callbacks(healthy))

    tuples = section(directory, "tuples", backend=["local", "tensorboard", "mindinsight"], alerts=[stop], exit_code=17)
    saver = ModelCheckpoint("net", str(directory / "saved"), CheckpointConfig(4, keep_checkpoint_max=2))
    callbacks = [*build_monitor_callbacks(tuples), saver]
    run("tuples", result, Model(ScaledStep()), data(40, 11), callbacks)

    epochs = section(directory, "epochs", alerts=[stop])
    run("epochs", result, vector_model(0.01), data(6, 6), build_monitor_callbacks(epochs), epochs=5)

    skipped = section(directory, "skipped", alerts=[stop, {"rule": "overflow_streak", "steps": 20}])
    run("skipped", result, Model(ScaledStep(overflows=True)), data(60, 3), build_monitor_callbacks(skipped))

    last = section(directory, "last", alerts=[stop], exit_code=42)
    watch = Watch()
    vector_model(0.01).train(1, data(40, 5), callbacks=[*build_monitor_callbacks(last), watch], dataset_sink_mode=False)
    print("this is never said")


if __name__ == "__main__":
    main()
