"""Trains a small network with SaveBestCheckpoint in many ways, and says what became of it.

Usage: python tests/train_checkpoints.py BASE
       python tests/train_checkpoints.py --sweep SEED

Each training writes to BASE/<name>; BASE/result.json is by the same names. With --sweep there is one
training with the default directory, which says `waiting` before its first step and goes on at a line from its input.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Accuracy, Callback, ConfusionMatrix, Model, Recall

from ms_summary_bridge import SaveBestCheckpoint, SummaryBridge, UsageError
from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.monitor import build_monitor_callbacks

BATCH = 4
STEPS = 8


class Said(logging.Handler):
    """Keeps the warnings of the package."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        logging.getLogger("ms_summary_bridge").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Losses(Callback):
    """Keeps the loss and the weights of each step; replaces the loss at some steps as a fault would."""

    def __init__(self, faults: dict[int, float] | None = None) -> None:
        super().__init__()
        self.losses: list[float] = []
        self.weights: dict[int, list[float]] = {}
        self.faults = faults or {}

    def on_train_step_end(self, run_context: Any) -> None:
        """Keeps."""
        parameters = run_context.original_args()
        step = int(parameters.cur_step_num)
        if step in self.faults:
            parameters.net_outputs = mindspore.Tensor(self.faults[step], mindspore.float32)
        self.losses.append(float(parameters.net_outputs.asnumpy()))
        self.weights[step] = weights_of(parameters.train_network)


class Ended(Exception):
    """What a training dies of here."""


class EndAt(Callback):
    """Ends a training with an exception at a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step

    def on_train_step_end(self, run_context: Any) -> None:
        """Ends it."""
        if run_context.original_args().cur_step_num == self.step:
            raise Ended


class FullDisk(Callback):
    """Takes the place on the disk away during some steps: MindSpore's save fails as it does there."""

    def __init__(self, steps: range) -> None:
        super().__init__()
        self.steps = steps
        self.save = mindspore.save_checkpoint

    def on_train_step_begin(self, run_context: Any) -> None:
        """Fills or frees the disk."""
        is_full = run_context.original_args().cur_step_num in self.steps
        mindspore.save_checkpoint = self.fail if is_full else self.save

    def on_train_end(self, run_context: Any) -> None:
        """Frees the disk."""
        mindspore.save_checkpoint = self.save

    def fail(self, cell: Any, path: str, **options: Any) -> None:
        """Leaves half a file."""
        Path(path).write_text("half")
        raise OSError(28, "No space left on device", path)


class Deeper(nn.Cell):
    """The network with one more layer."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.Dense(3, 2)
        self.weight, self.bias = layer.weight, layer.bias
        self.extra = nn.Dense(2, 2)


def weights_of(cell: Any) -> list[float]:
    """Returns all numbers of a cell that training changes, with the optimizer's."""
    return [float(number) for _, values in sorted(cell.parameters_dict().items()) for number in values.asnumpy().flat]


def dataset(seed: int = 0) -> NumpySlicesDataset:
    """Returns batches of points with their class."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((BATCH * STEPS, 3)).astype(np.float32)
    labels = (x[:, 0] > 0).astype(np.int32)
    return NumpySlicesDataset((x, labels), shuffle=False, num_parallel_workers=1).batch(BATCH)


def make_model(*, seed: int = 1, rate: float = 0.05) -> tuple[Model, nn.Cell, nn.Cell]:
    """Returns a model, its network and its optimizer."""
    mindspore.set_seed(seed)
    network = nn.Dense(3, 2)
    optimizer = nn.Adam(network.trainable_params(), rate)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return Model(network, loss, optimizer, metrics={"accuracy": Accuracy()}), network, optimizer


def shown(saver: SaveBestCheckpoint, directory: Path) -> dict[str, Any]:
    """Returns what a saver has, and what is on the disk."""
    best, last = saver.best, saver.last
    return {
        "best": None if best is None else [best.step, best.epoch, best.value],
        "last": None if last is None else [last.step, last.epoch, last.value],
        "files": sorted(os.listdir(directory)) if directory.exists() else [],
    }


def steps_and_restart(base: Path) -> dict[str, Any]:
    """Trains 8 steps, dies in the second epoch, goes on from the last checkpoint in a new model."""
    directory = base / "restart"
    model, _, _ = make_model()
    saver = SaveBestCheckpoint(directory=directory, save_checkpoint_steps=3, keep_checkpoint_max=2)
    losses = Losses()
    with contextlib.suppress(Ended):
        model.train(2, dataset(), callbacks=[losses, saver, EndAt(14)], dataset_sink_mode=False)
    first = shown(saver, directory)

    model, network, optimizer = make_model()
    last = SaveBestCheckpoint.load_last(directory, network, optimizer)
    loaded = weights_of(optimizer)
    best_network = nn.Dense(3, 2)
    best = SaveBestCheckpoint.load_best(directory, best_network)
    again, more = SaveBestCheckpoint(directory=directory, save_checkpoint_steps=3, keep_checkpoint_max=2), Losses()
    model.train(1, dataset(), callbacks=[more, again], dataset_sink_mode=False)
    return {
        "first": first,
        "losses": losses.losses,
        "weights": losses.weights,
        "loaded": loaded,
        "loaded step": last.step,
        "best step": best.step,
        "best weight": [float(number) for number in best_network.weight.asnumpy().flat],
        "second": shown(again, directory),
        "second losses": more.losses,
    }


def losses_of(epochs: int, *, seed: int = 1, rate: float = 0.05, **options: Any) -> dict[str, Any]:
    """Trains from scratch with checkpoints each 4 steps; returns what the callback has, and its directory."""
    model, network, optimizer = make_model(seed=seed, rate=rate)
    load = options.pop("load", None)
    if load is not None:
        load(network, optimizer)
    more = {name: options.pop(name) for name in ("initial_epoch",) if name in options}
    saver = SaveBestCheckpoint(save_checkpoint_steps=4, keep_checkpoint_max=3, **options)
    callbacks = [Losses(), saver]
    model.train(epochs, dataset(), callbacks=callbacks, dataset_sink_mode=False, **more)
    return {"directory": saver.directory, **shown(saver, Path(saver.directory))}


def rerun(base: Path) -> dict[str, Any]:
    """The same script once more, from scratch and with worse settings; then a third time, and a resume of the third."""
    directory = base / "rerun"
    answer: dict[str, Any] = {"first": losses_of(2, directory=directory)}
    answer["second"] = losses_of(1, rate=0.0001, directory=directory)
    earlier = directory / "checkpoints.earlier-1.json"
    answer["best"] = SaveBestCheckpoint.load_best(directory, nn.Dense(3, 2)).value
    answer["earlier"] = [
        load(earlier, nn.Dense(3, 2)).step for load in (SaveBestCheckpoint.load_best, SaveBestCheckpoint.load_last)
    ]
    answer["third"] = losses_of(1, seed=2, rate=0.0001, directory=directory)
    return answer


def resumes(base: Path) -> dict[str, Any]:
    """Ways in which a training goes on from a checkpoint, each behind 8 steps in a directory of its own."""

    def ours(directory: Path) -> Callable[..., object]:
        return lambda network, optimizer: SaveBestCheckpoint.load_last(directory, network, optimizer)

    def weights_alone(directory: Path) -> Callable[..., object]:
        file = str(directory / "checkpoint_step_4.ckpt")
        return lambda network, optimizer: mindspore.load_param_into_net(network, mindspore.load_checkpoint(file))

    answer = {}
    for name, load in (("ours", ours), ("weights alone", weights_alone), ("initial epoch", None)):
        directory = base / f"resume {name}"
        losses_of(1, directory=directory)
        options: dict[str, Any] = {"initial_epoch": 1} if load is None else {"load": load(directory)}
        answer[name] = losses_of(2, directory=directory, **options)
    model, _, _ = make_model()
    saver = SaveBestCheckpoint(directory=base / "called twice", save_checkpoint_steps=4)
    for _ in range(2):
        model.train(1, dataset(), callbacks=[saver], dataset_sink_mode=False)
    answer["called twice"] = shown(saver, base / "called twice")
    again = SaveBestCheckpoint(directory=base / "called twice", save_checkpoint_steps=4)
    model.train(1, dataset(), callbacks=[again], dataset_sink_mode=False)
    answer["another callback"] = shown(again, base / "called twice")
    return answer


def in_turn(base: Path) -> dict[str, Any]:
    """Two models of one process are trained in turn, each with a callback of its own and the same directory."""
    directory = base / "in_turn"
    models = [make_model(seed=seed)[0] for seed in (1, 2)]
    savers = [SaveBestCheckpoint(directory=directory) for _ in models]
    for _ in range(3):
        for model, saver in zip(models, savers, strict=True):
            model.train(1, dataset(), callbacks=[saver], dataset_sink_mode=False)
    return {
        "directories": [saver.directory for saver in savers],
        "files": [shown(saver, Path(saver.directory)) for saver in savers],
    }


def fit(base: Path) -> dict[str, Any]:
    """Evaluates after the first epoch and the last, and once more behind the training."""
    directory = base / "fit"
    model, _, _ = make_model()
    saver = SaveBestCheckpoint("eval/accuracy", directory=directory, save_epochs=2)
    bridge = SummaryBridge(str(base / "fit_summary"), collect_freq=4)
    seen: list[float] = []

    class Accuracies(Callback):
        def on_eval_end(self, run_context: Any) -> None:
            seen.append(float(run_context.original_args().metrics["accuracy"]))

    callbacks = [saver, bridge, Accuracies()]
    sinks = {"dataset_sink_mode": False, "valid_dataset_sink_mode": False}
    model.fit(5, dataset(), dataset(9), valid_frequency=[1, 5], callbacks=callbacks, **sinks)
    inside = shown(saver, directory)
    written = (directory / "checkpoint_step_40.ckpt").stat().st_ino
    model.eval(dataset(9).take(1), callbacks=[saver, callbacks[-1]], dataset_sink_mode=False)
    is_same = (directory / "checkpoint_step_40.ckpt").stat().st_ino == written
    return {"inside": inside, "is same": is_same, "after": shown(saver, directory), "accuracies": seen}


def no_number(base: Path) -> dict[str, Any]:
    """The loss is NaN from a step on, and once in between."""
    directory = base / "no_number"
    model, _, _ = make_model()
    saver = SaveBestCheckpoint(directory=directory, save_checkpoint_steps=2)
    faults = {1: float("nan"), 6: float("inf"), 7: float("nan"), 8: float("nan")}
    model.train(1, dataset(), callbacks=[Losses(faults), saver], dataset_sink_mode=False)
    return shown(saver, directory)


def full_disk(base: Path) -> dict[str, Any]:
    """The disk is full for some steps."""
    directory = base / "full_disk"
    model, _, _ = make_model()
    saver = SaveBestCheckpoint(directory=directory, save_checkpoint_steps=1, keep_checkpoint_max=1)
    losses = Losses()
    model.train(1, dataset(), callbacks=[FullDisk(range(3, 7)), losses, saver], dataset_sink_mode=False)
    return {"losses": len(losses.losses), **shown(saver, directory)}


def no_directory(base: Path) -> dict[str, Any]:
    """There is a file where the directory should be."""
    (base / "no_directory").write_text("")
    model, _, _ = make_model()
    saver = SaveBestCheckpoint(directory=base / "no_directory" / "inside")
    losses = Losses()
    model.train(1, dataset(), callbacks=[losses, saver], dataset_sink_mode=False)
    return {"losses": len(losses.losses), "last": saver.last, "saved": saver.save()}


def of_a_rank(base: Path) -> dict[str, Any]:
    """As the second of two ranks."""
    launcher = {"RANK_ID": "1", "RANK_SIZE": "2"}
    os.environ.update(launcher)
    try:
        model, network, _ = make_model()
        saver = SaveBestCheckpoint(directory=base / "of_a_rank")
        model.train(1, dataset(), callbacks=[saver], dataset_sink_mode=False)
        return {"loaded step": SaveBestCheckpoint.load_last(base / "of_a_rank", network).step}
    finally:
        for name in launcher:
            del os.environ[name]


def unknown_metric(base: Path) -> dict[str, Any]:
    """The metric is not one of the evaluation's."""
    directory = base / "unknown_metric"
    model, _, _ = make_model()
    saver = SaveBestCheckpoint("eval/f1", directory=directory)
    model.fit(2, dataset(), dataset(9), callbacks=[saver], dataset_sink_mode=False, valid_dataset_sink_mode=False)
    return shown(saver, directory)


def per_class(base: Path) -> dict[str, Any]:
    """A metric with a number for each class: one class of it, the whole of it, and one that is no number."""
    answer: dict[str, Any] = {}
    for monitor in ("eval/recall/1", "eval/recall", "eval/matrix"):
        directory = base / "per_class" / monitor.replace("/", "_")
        mindspore.set_seed(1)
        network = nn.Dense(3, 2)
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        metrics = {"recall": Recall(), "matrix": ConfusionMatrix(2)}
        model = Model(network, loss, nn.Adam(network.trainable_params(), 0.05), metrics=metrics)
        saver, seen = SaveBestCheckpoint(monitor, "max", directory=directory), Evaluations()
        data = {"dataset_sink_mode": False, "valid_dataset_sink_mode": False}
        model.fit(2, dataset(), dataset(9), callbacks=[saver, seen], **data)
        answer[monitor] = {**shown(saver, directory), "recalls": seen.recalls}
    return answer


class Evaluations(Callback):
    """Keeps the recall of each class."""

    def __init__(self) -> None:
        super().__init__()
        self.recalls: list[list[float]] = []

    def on_eval_end(self, run_context: Any) -> None:
        """Keeps it."""
        self.recalls.append([float(number) for number in run_context.original_args().metrics["recall"]])


def configured(base: Path) -> dict[str, Any]:
    """`monitor_config: true`, in a directory of its own because it says no other."""
    here = os.getcwd()
    os.makedirs(base / "configured")
    os.chdir(base / "configured")
    try:
        model, _, _ = make_model()
        callbacks = build_monitor_callbacks({"monitor_config": True})
        model.train(2, dataset(), callbacks=callbacks, dataset_sink_mode=False)
    finally:
        os.chdir(here)
    return {"classes": [type(callback).__name__ for callback in callbacks]}


def configured_keys(base: Path) -> dict[str, Any]:
    """The keys of the section."""
    keys = {"save_checkpoint_steps": 3, "keep_checkpoint_max": 2, "backend": ["local"], "run_id": "run"}
    model, _, _ = make_model()
    callbacks = build_monitor_callbacks({"monitor_config": {"save_dir": str(base / "configured_keys"), **keys}})
    model.train(1, dataset(), callbacks=callbacks, dataset_sink_mode=False)
    return {"classes": [type(callback).__name__ for callback in callbacks]}


def refused(base: Path) -> dict[str, str]:
    """What has no meaning, and what is not there."""

    def why(make: Callable[[], object]) -> str:
        try:
            make()
        except (UsageError, LogdirError) as error:
            return str(error).replace(str(base), "BASE")
        return ""

    return {
        "count": why(lambda: SaveBestCheckpoint(keep_checkpoint_max=0)),
        "monitor": why(lambda: SaveBestCheckpoint("accuracy")),
        "nothing": why(lambda: SaveBestCheckpoint.load_best(base / "nothing")),
        "other shape": why(lambda: SaveBestCheckpoint.load_last(base / "restart", nn.Dense(5, 5))),
        "one more": why(lambda: SaveBestCheckpoint.load_best(base / "restart", Deeper())),
        "other names": why(lambda: SaveBestCheckpoint.load_last(base / "restart", nn.SequentialCell(nn.Dense(1, 1)))),
    }


class Waiting(Callback):
    """Waits before the first step."""

    def on_train_step_begin(self, run_context: Any) -> None:
        """Waits."""
        if run_context.original_args().cur_step_num == 1:
            print("waiting", flush=True)
            sys.stdin.readline()


def sweep(seed: int) -> dict[str, Any]:
    """One training of a sweep, all of which are started from the same directory."""
    said = Said()
    model, _, _ = make_model(seed=seed)
    saver = SaveBestCheckpoint(save_checkpoint_steps=1, keep_checkpoint_max=2)
    model.train(2, dataset(seed), callbacks=[saver, Waiting()], dataset_sink_mode=False)
    directory = Path(saver.directory)
    best, last = (
        load(directory, nn.Dense(3, 2)) for load in (SaveBestCheckpoint.load_best, SaveBestCheckpoint.load_last)
    )
    return {
        "directory": saver.directory,
        "loaded": [best.value, last.step],
        **shown(saver, directory),
        "log": said.lines,
    }


def main() -> None:
    """Trains in every way."""
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    if sys.argv[1] == "--sweep":
        print(json.dumps(sweep(int(sys.argv[2]))))
        return
    base = Path(sys.argv[1])
    said = Said()
    result: dict[str, Any] = {}
    for scenario in (
        *(
            steps_and_restart,
            rerun,
            resumes,
            in_turn,
            fit,
            no_number,
            full_disk,
            no_directory,
            of_a_rank,
            unknown_metric,
            per_class,
        ),
        *(configured, configured_keys, refused),
    ):
        said.lines.clear()
        result[scenario.__name__] = scenario(base)
        result[scenario.__name__]["log"] = [line.replace(str(base), "BASE") for line in said.lines]
    (base / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
