"""Trainings written as articles and tutorials write them, one after the other in one process.

Usage: python tests/bridge_scripts/articles.py DIRECTORY RESULT.json [NAME ...]

tests/callback/test_article_on_summaries.py and tests/monitor/test_article_on_monitoring.py say what must be true of
each; docs/articles.md has a row for what runs otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mindspore.train import MAE, LossMonitor, Metric, ModelCheckpoint, SummaryCollector
from mindspore.train.callback import Callback, CheckpointConfig
from scenario_run import run_all
from small import image_model, images, vector_model, vectors

from ms_summary_bridge import SaveBestCheckpoint, SummaryBridge
from ms_summary_bridge.monitor import build_monitor_callbacks

SCENARIOS: dict[str, Callable[[Path], Any]] = {}

TUTORIAL = {
    "collect_graph": True,
    "collect_trainable_params": True,
    "collect_loss": True,
    "collect_lr": True,
    "collect_landmark": True,
}


def scenario(function: Callable[[Path], Any]) -> Callable[[Path], Any]:
    SCENARIOS[function.__name__] = function
    return function


def raised(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@scenario
def tutorial(directory: Path) -> Any:
    """The tutorial's call, of MindSpore's own class and of the one that takes its place."""
    refused = raised(lambda: SummaryCollector(str(directory / "stock"), collect_freq=1, **TUTORIAL))
    bridge = SummaryBridge(str(directory / "bridge"), collect_freq=1, **TUTORIAL)
    image_model().train(2, images(4), callbacks=[bridge, LossMonitor()], dataset_sink_mode=False)
    return refused


@scenario
def best_checkpoint(directory: Path) -> Any:
    """`CheckpointConfig(save_best_ckpt=True)`, and what to write in its place."""
    config = CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=3, save_best_ckpt=True)
    CheckpointConfig(save_best_ckpt=True)  # said already
    CheckpointConfig(save_checkpoint_step=2)
    CheckpointConfig(incremental=False, enable_redundance=False, exception_save=False)
    CheckpointConfig(save_best_ckpts=False)
    stock = ModelCheckpoint("article", str(directory / "stock"), config)
    best = SaveBestCheckpoint("loss", directory=str(directory / "best"))
    vector_model().train(2, vectors(4), callbacks=[stock, best], dataset_sink_mode=False)
    return {
        "stock": sorted(path.name for path in (directory / "stock").glob("*.ckpt")),
        "best": os.listdir(directory / "best"),
        "wrong": raised(lambda: CheckpointConfig(save_checkpoint_steps="two")),
        "name": CheckpointConfig.__init__.__name__,
    }


class MonitorCallback(Callback):
    """A monitor as articles write it by hand, with the hooks' old names."""

    def __init__(self) -> None:
        Callback.__init__(self)
        self.losses: list[float] = []
        self.epochs: list[int] = []

    def epoch_end(self, run_context: Any) -> None:
        self.epochs.append(run_context.original_args().cur_epoch_num)

    def step_end(self, run_context: Any) -> None:
        self.losses.append(float(run_context.original_args().net_outputs.asnumpy()))


class NewNames(Callback):
    """The same with the hooks' names of now, which `model.fit` asks for."""

    __init__ = MonitorCallback.__init__
    on_train_epoch_end = MonitorCallback.epoch_end
    on_train_step_end = MonitorCallback.step_end


def monitor(directory: Path, **keys: Any) -> list[Any]:
    return build_monitor_callbacks({"interval": 0, "save_dir": str(directory), "run_id": "run", **keys})


@scenario
def by_hand(directory: Path) -> Any:
    """A hand-written monitor beside SummaryBridge, in train and in fit."""
    old, new = MonitorCallback(), NewNames()
    bridges = [SummaryBridge(str(directory / name), collect_freq=1) for name in ("train", "fit", "refused")]
    vector_model().train(2, vectors(4), callbacks=[bridges[0], old], dataset_sink_mode=False)
    model = vector_model(metrics={"mae": MAE()})
    options = {"dataset_sink_mode": False, "valid_dataset_sink_mode": False}
    model.fit(2, vectors(4), vectors(2), callbacks=[bridges[1], new], **options)
    refused = raised(lambda: model.fit(1, vectors(4), vectors(2), callbacks=[bridges[2], MonitorCallback()], **options))
    return {"old": old.losses, "new": new.losses, "epochs": [old.epochs, new.epochs], "refused": refused}


@scenario
def evaluation(directory: Path) -> Any:
    """`model.fit`, whose metrics of each epoch the monitor tells."""
    model = vector_model(metrics={"mae": MAE()})
    options = {"dataset_sink_mode": False, "valid_dataset_sink_mode": False}
    model.fit(3, vectors(4), vectors(2), callbacks=monitor(directory, backend=["local"]), **options)


class EvalCallback(Callback):
    """Evaluates after each epoch, as articles do where `model.fit` was not known yet."""

    def __init__(self, model: Any, data: Any, callbacks: list[Any] | None) -> None:
        super().__init__()
        self.model, self.data, self.callbacks = model, data, callbacks
        self.found: list[float] = []

    def on_train_epoch_end(self, run_context: Any) -> None:
        metrics = self.model.eval(self.data, callbacks=self.callbacks, dataset_sink_mode=False)
        self.found.append(float(metrics["mae"]))


@scenario
def evaluation_by_hand(directory: Path) -> Any:
    """An evaluation that the script calls itself, with our callbacks handed on and without."""
    found = {}
    for name in ("handed", "alone"):
        callbacks = monitor(directory / name)
        model = vector_model(metrics={"mae": MAE()})
        by_hand = EvalCallback(model, vectors(2), callbacks if name == "handed" else None)
        model.train(2, vectors(4), callbacks=[*callbacks, by_hand], dataset_sink_mode=False)
        found[name] = by_hand.found
    return found


@scenario
def nonfinite_evaluation(directory: Path) -> Any:
    """A metric that is no number of JSON, and one for each class."""

    class Odd(Metric):
        def __init__(self, value: Any) -> None:
            super().__init__()
            self.value = value

        def clear(self) -> None:
            pass

        def update(self, *inputs: Any) -> None:
            pass

        def eval(self) -> Any:
            return self.value

    metrics = {"nan": Odd(float("nan")), "recall": Odd(np.array([0.25, 0.5])), "text": Odd("good")}
    model = vector_model(metrics=metrics)
    model.fit(1, vectors(2), vectors(2), callbacks=monitor(directory, backend=["local"]), dataset_sink_mode=False)


@scenario
def sink(directory: Path) -> Any:
    """`dataset_sink_mode=True`, with both callbacks."""
    callbacks = monitor(directory, bridge={"collect_freq": 1})
    vector_model().train(2, vectors(4), callbacks=callbacks, dataset_sink_mode=True)


if __name__ == "__main__":
    run_all(SCENARIOS)
