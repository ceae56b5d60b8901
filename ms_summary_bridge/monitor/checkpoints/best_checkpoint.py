"""SaveBestCheckpoint: keeps the best checkpoint of a training and the last few.

Imports mindspore.

Here is *when* to save and what the monitored value is; how files stay whole is in monitor.checkpoint_files.
"""

from __future__ import annotations

import os
import weakref
from functools import partial
from typing import Any, Literal

import mindspore
from mindspore.train.callback import Callback

from ms_summary_bridge.callback.bridge import SummaryBridge
from ms_summary_bridge.callback.step_values import eval_metrics, metric_numbers
from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.monitor.callback import MindSporeTransformersMonitor
from ms_summary_bridge.monitor.checkpoints.checkpoint_files import CheckpointFiles
from ms_summary_bridge.monitor.checkpoints.checkpoint_start import CheckpointStart
from ms_summary_bridge.monitor.checkpoints.checkpoint_state import Checkpoint
from ms_summary_bridge.monitor.checkpoints.checkpoint_value import EVAL, LossWindow, mode_of
from ms_summary_bridge.monitor.checkpoints.checkpoint_weights import load
from ms_summary_bridge.training.faults import Faults, guarded
from ms_summary_bridge.training.measures import read_outputs
from ms_summary_bridge.training.parameters import TrainingParameters

__all__ = ["SaveBestCheckpoint"]


class SaveBestCheckpoint(Callback):
    """Saves checkpoints of the whole training cell, with the optimizer's state, and keeps the best and the last few.

    Every file is whole: a training that is killed at any moment leaves a best and a last checkpoint that can be
    loaded. `checkpoints.json` beside them says which is which.

    A directory belongs to one training at a time: while another one runs there, this one's is `<directory>_2` and so
    on. A training that goes on from a checkpoint there (its weights were loaded, or `initial_step` or `initial_epoch`
    is given) goes on counting steps, and compares with the best value. One that begins from scratch gets a best of its
    own; the best and the last checkpoint of the training before it stay, and `checkpoints.earlier-<n>.json` names them.
    The log says so before the first step.

    A checkpoint is never the best for a value that is not finite, and none is saved while the loss is not.

    Args:
        monitor: `loss`, for the mean over the steps since the last checkpoint, or `eval/<metric>`, for what an
            evaluation during the training or right behind it (`model.fit`, `model.eval` with this callback) says. Of a
            metric with a number for each class it is `eval/<metric>/<class>`, classes counted from 0.
        mode: `min` where less is better, `max` where more is; `auto` to know it by the metric's name.
        directory: Of the checkpoints. In distributed training each rank has `rank_<n>` below it, unless the name ends
            in the number of the rank already, and each decides by its own values which one is the best.
        save_checkpoint_steps: A checkpoint every so many steps.
        save_epochs: A checkpoint every so many epochs; every one, if `save_checkpoint_steps` is not given either.
        keep_checkpoint_max: How many of the last are kept.
        save_best_ckpt: Whether the best is kept beside them.

    Raises:
        UsageError: An argument has no meaning.

    Example:
        `model.fit(10, train_set, test_set, callbacks=[SaveBestCheckpoint("eval/accuracy")])`, and to go on:
        `SaveBestCheckpoint.load_last("./checkpoints", network, optimizer)`
    """

    def __init__(
        self,
        monitor: str = "loss",
        mode: Literal["min", "max", "auto"] = "auto",
        *,
        directory: str | os.PathLike[str] = "./checkpoints",
        save_checkpoint_steps: int | None = None,
        save_epochs: int | None = None,
        keep_checkpoint_max: int = 5,
        save_best_ckpt: bool = True,
    ) -> None:
        super().__init__()
        counts = {
            "save_checkpoint_steps": save_checkpoint_steps,
            "save_epochs": save_epochs,
            "keep_checkpoint_max": keep_checkpoint_max,
        }
        for name, count in counts.items():
            if count is not None and count < 1:
                raise UsageError(f"SaveBestCheckpoint: {name} is a positive number, got {count}")
        self.faults = Faults("SaveBestCheckpoint")
        self._monitor = monitor
        make_files = partial(
            CheckpointFiles,
            monitor=monitor,
            mode=mode_of(monitor, mode),
            keep=keep_checkpoint_max,
            warn=self.faults.say,
        )
        path = os.path.abspath(os.path.expanduser(check_path("directory", directory)))
        self._start = CheckpointStart(path, make_files, self.faults)
        self._steps = save_checkpoint_steps
        self._epochs = 1 if save_epochs is None and save_checkpoint_steps is None else save_epochs
        self._keeps_best = save_best_ckpt
        self._network: weakref.ref[Any] | None = None  # of the last training, for an evaluation behind it
        self._others: list[Any] = []
        self._step = 0
        self._epoch: int | None = None
        self._point = 0
        self._outputs: Any = None
        self._loss = LossWindow()
        self.latest_ckpt_file_name = ""
        """Path of the checkpoint saved last, under the name that ModelCheckpoint has for it."""

    @classmethod
    def load_best(cls, directory: str | os.PathLike[str], *cells: Any) -> Checkpoint:
        """Loads the best checkpoint into cells, such as a network and its optimizer; returns what it is.

        Args:
            directory: Of the training (`directory` of SaveBestCheckpoint), or `checkpoints.earlier-<n>.json` in it.
            cells: Each takes the parameters that are its own.

        Raises:
            LogdirError: None was saved there, or it cannot be read, or does not fit a cell; the parameters are named.
        """
        return load(check_path("directory", directory), cells, "best")

    @classmethod
    def load_last(cls, directory: str | os.PathLike[str], *cells: Any) -> Checkpoint:
        """Loads the newest checkpoint that is whole, as `load_best` does."""
        return load(check_path("directory", directory), cells, "last")

    @property
    def directory(self) -> str:
        """Where the checkpoints are: from the beginning of a training on, the one that it really has."""
        return self._start.directory

    @property
    def best(self) -> Checkpoint | None:
        """The best checkpoint so far."""
        return self._start.files.best if self._start.files is not None else None

    @property
    def last(self) -> Checkpoint | None:
        """The newest checkpoint."""
        return self._start.files.last if self._start.files is not None else None

    def save(self) -> str | None:
        """Saves a checkpoint now, between two steps; returns its path, or None where that failed."""
        checkpoint = self._save(None)
        return None if checkpoint is None or self._start.files is None else self._start.files.path(checkpoint)

    # ------------------------------------------------------------------ called by MindSpore

    def on_train_begin(self, run_context: Any) -> None:
        """Takes the directory, or one of its own beside it."""
        self.faults.is_forked = False  # where a training begins it is recorded, whichever process made the callback
        self._begin(run_context)

    @guarded
    def _begin(self, run_context: Any) -> None:
        parameters = TrainingParameters(run_context.original_args())
        self._others = [callback for callback in parameters.callbacks if callback is not self]
        self._network = weakref.ref(parameters.get("train_network"))
        self._start.begin(parameters)
        self._step = self._point = self._start.began_at + self._start.begins_at
        self._outputs, self._loss = None, LossWindow()

    @guarded
    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Finds what an earlier session has left, before the first step."""
        self._open(run_context)

    @guarded
    def on_train_step_begin(self, run_context: Any) -> None:
        """Reads the loss of the step before, which is there by now, if a mean is asked for."""
        self._open(run_context)
        if self._monitor == "loss":
            self._read_loss()

    @guarded
    def on_train_step_end(self, run_context: Any) -> None:
        """Saves, if it is time."""
        parameters = TrainingParameters(run_context.original_args())
        self._outputs = parameters.get("net_outputs")
        self._step = self._start.began_at + parameters.number("cur_step_num")
        self._epoch = parameters.number("cur_epoch_num") or None
        if self._steps is not None and self._step // self._steps > self._point // self._steps:
            self._save_point()

    @guarded
    def on_train_epoch_end(self, run_context: Any) -> None:
        """Saves, if it is time."""
        epoch = TrainingParameters(run_context.original_args()).number("cur_epoch_num")
        if self._epochs is not None and epoch % self._epochs == 0:
            self._save_point()

    @guarded
    def on_train_end(self, run_context: Any) -> None:
        """Saves what came after the last checkpoint."""
        if self._step > self._point:
            self._save_point(is_whole=False)
        self._others = []
        self._start.end()

    @guarded
    def on_eval_end(self, run_context: Any) -> None:
        """Compares the metric, and saves if it is the best so far."""
        if self._monitor == "loss":
            return
        metrics = eval_metrics(TrainingParameters(run_context.original_args()))
        numbers = metric_numbers(metrics)
        name = self._monitor.removeprefix(EVAL)
        if name in numbers:
            value = numbers[name]
            if self._keeps_best and self._start.files is not None and self._start.files.is_better(value):
                self._save(value)
            return
        what = f"the evaluation has no metric {name!r}"
        if name in metrics:
            is_split = any(other.startswith(f"{name}/") for other in numbers)
            split = f"has a number for each class: give `{self._monitor}/<class>`"
            what = f"the metric {name!r} {split if is_split else 'is not a number'}"
        self.faults.warn("metric", f"{what} (it has {', '.join(sorted(numbers)) or 'none'}): no best is chosen")

    # ------------------------------------------------------------------

    def _open(self, run_context: Any) -> None:
        if not self._start.is_open:
            self._start.open(TrainingParameters(run_context.original_args()))
            self._step = self._point = self._start.began_at + self._start.begins_at

    def _read_loss(self) -> None:
        outputs, self._outputs = self._outputs, None
        loss = None if outputs is None else read_outputs(outputs).loss
        if loss is not None:
            self._loss.add(loss)

    def _save_point(self, *, is_whole: bool = True) -> None:
        """Saves, with the mean over the steps since the last time; over fewer than usual it is not compared."""
        self._read_loss()
        self._point = self._step
        mean = self._loss.take()
        compares = self._monitor == "loss" and (is_whole or self.best is None)
        self._save(mean if compares else None)

    def _save(self, value: float | None) -> Checkpoint | None:
        files, network = self._start.files, self._network() if self._network is not None else None
        if files is None or network is None or not self._start.may_save:
            return None
        self._read_loss()
        if not self._loss.is_finite:
            self.faults.warn(
                "loss", f"the loss is {self._loss.last} at step {self._step}: nothing is saved while that lasts"
            )
            return None
        is_best = self._keeps_best and files.is_better(value)
        # Each rank writes its own part: to merge them is a collective, and ranks need not save at the same step.
        counts = {"step_num": self._step, "epoch_num": self._epoch or 0}
        write = partial(mindspore.save_checkpoint, network, integrated_save=False, append_dict=counts)
        try:
            weights = self._start.weights
            checkpoint = files.save(
                self._step, write, epoch=self._epoch, value=value, weights=weights, may_be_best=self._keeps_best
            )
        except Exception as error:
            self.faults.warn(
                "save", f"no checkpoint could be saved at step {self._step}, those before are kept: {error!r}"
            )
            return None
        self.latest_ckpt_file_name = files.path(checkpoint)
        self._tell(checkpoint, is_best=is_best)
        return checkpoint

    def _tell(self, checkpoint: Checkpoint, *, is_best: bool) -> None:
        """Tells the bridge, which finds saved checkpoints itself, and the monitor."""
        path, value = self.latest_ckpt_file_name, checkpoint.value
        best = f"best {self._monitor} so far {value:.6g}, at step {checkpoint.step}" if is_best else ""
        for other in self._others:
            if best and isinstance(other, SummaryBridge):
                other.landmark("best", best)
            elif isinstance(other, MindSporeTransformersMonitor):
                text = f"checkpoint saved: {path}" + (f" ({best})" if best else "")
                other.milestone(text, checkpoint=path, value=value, is_best=is_best)
