"""Real trainings that stop in the middle, one after the other in one process, and one whose phases are noted.

Usage: python tests/monitor_scripts/hanging_training.py DIRECTORY

Each kind of HANGS has DIRECTORY/<kind> for its files, and waits for somebody to write into the pipe
DIRECTORY/<kind>/release. DIRECTORY/phases.json says which phase the heartbeat was in, by place.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore.dataset import GeneratorDataset
from mindspore.train import MAE, Callback, LossMonitor, ModelCheckpoint
from mindspore.train.callback import CheckpointConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import BATCH, AtStep, train, vector_model, vectors

from ms_summary_bridge.monitor import MindSporeTransformersMonitor
from ms_summary_bridge.training.phases import PHASES

HANGS = ("data_worker", "callback", "c_call")
STEPS = 6
AT = 3


def section(directory: Path, **watchdog: Any) -> dict[str, Any]:
    limits = {"floor": 4, "callback_limit": 4, "compile_limit": 600, **watchdog}
    return {"backend": ["local"], "save_dir": str(directory), "run_id": "run", "watchdog": limits}


class Rows:
    """Data that data workers, processes of their own, give out; one row is waited for."""

    def __init__(self, release: str) -> None:
        self._release = release

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if index == BATCH * (STEPS - 1):
            self.wait_in_worker()
        return np.full(3, index, np.float32), np.ones(1, np.float32)

    def wait_in_worker(self) -> None:
        with open(self._release, "rb") as pipe:
            pipe.read(1)


def wait_in_callback(release: str) -> None:
    with open(release, "rb") as pipe:
        pipe.read(1)


def wait_in_c(release: str) -> None:
    """Keeps the GIL."""
    pipe = os.open(release, os.O_RDWR)
    ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)


def hang(directory: Path, kind: str) -> None:
    monitor = MindSporeTransformersMonitor(section(directory))
    release = str(directory / "release")
    if kind == "data_worker":
        data = GeneratorDataset(Rows(release), ["x", "y"], shuffle=False, num_parallel_workers=2).batch(BATCH)
        train(vector_model(), STEPS, monitor, data=data)
        return
    wait = wait_in_callback if kind == "callback" else wait_in_c
    train(vector_model(), STEPS, monitor, AtStep(lambda step: wait(release) if step == AT else None))


def note_phases(directory: Path) -> dict[str, list[str]]:
    """Trains and evaluates with callbacks of every kind; returns the phases of the heartbeat by where they were."""
    monitor = MindSporeTransformersMonitor(section(directory, floor=600))
    seen: dict[str, list[str]] = {}

    def note(where: str) -> None:
        link = monitor._watchdog
        phase = "nobody watches" if link.pid is None else PHASES[link.heartbeat.phase]
        if phase not in seen.setdefault(where, []):
            seen[where].append(phase)

    class Saver(ModelCheckpoint):
        def on_train_step_end(self, run_context: Any) -> None:
            note("saver")
            super().on_train_step_end(run_context)

    class Printer(LossMonitor):
        def on_train_step_end(self, run_context: Any) -> None:
            note("loss monitor")
            super().on_train_step_end(run_context)

    class Other(Callback):
        def on_train_begin(self, run_context: Any) -> None:
            note("begin")

        def on_train_step_begin(self, run_context: Any) -> None:
            note("callback")

        def on_train_epoch_end(self, run_context: Any) -> None:
            note("callback")

        def on_eval_begin(self, run_context: Any) -> None:
            note("evaluation")

        def on_train_end(self, run_context: Any) -> None:
            note("end")

    class Metric(MAE):
        def update(self, *inputs: Any) -> None:
            note("evaluation")
            super().update(*inputs)

    model = vector_model(metrics={"mae": Metric()})
    config = CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=2)
    saver = Saver(prefix="net", directory=str(directory / "checkpoints"), config=config)
    one_step = type(model._train_network)
    call = one_step.__call__

    def noted_call(*inputs: Any) -> Any:
        note("step")
        return call(*inputs)

    one_step.__call__ = noted_call
    try:
        model.fit(2, vectors(4), vectors(2), callbacks=[monitor, saver, Printer(), Other()], dataset_sink_mode=False)
    finally:
        one_step.__call__ = call
    note("afterwards")
    return seen


def main() -> None:
    directory = Path(sys.argv[1])
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    (directory / "phases").mkdir()
    (directory / "phases.json").write_text(json.dumps(note_phases(directory / "phases")))
    for kind in HANGS:
        hang(directory / kind, kind)


if __name__ == "__main__":
    main()
