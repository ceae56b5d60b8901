"""SummaryBridge: one callback in the place of SummaryCollector, for both viewers.

Imports mindspore.

Here is *when* to collect; what and how are in the modules below. Nothing of ours may stop or slow a training: every
call from MindSpore is guarded, and says once what went wrong.

The file is longer than others because all that a user sees of the callback is here: its arguments and its hooks.
"""

from __future__ import annotations

import atexit
import copy
import functools
import os
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import mindspore
import numpy.typing as npt
from mindspore.train.callback import Callback, SummaryCollector

from ms_summary_bridge.callback.arguments import (
    check_bytes,
    check_directory,
    check_seconds,
    check_switch,
    refuse_overrides,
    specified_data,
)
from ms_summary_bridge.callback.callback_list import refuse_others, saved_checkpoints
from ms_summary_bridge.callback.collector import has_seam, quiet_learning_rate, without_training
from ms_summary_bridge.callback.gradient_summary import GradientSummary
from ms_summary_bridge.callback.live_collection import LiveCollection
from ms_summary_bridge.callback.record import Record
from ms_summary_bridge.callback.recording import Recording
from ms_summary_bridge.callback.step_count import StepCount
from ms_summary_bridge.callback.step_values import StepValues
from ms_summary_bridge.callback.user_values import UserValues
from ms_summary_bridge.errors import UsageError, counted
from ms_summary_bridge.training.checkpoint_config import hear_checkpoint_configs
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.hook_names import HookNames
from ms_summary_bridge.training.parameters import callbacks_of

if TYPE_CHECKING:
    from ms_summary_bridge.callback.fallback import Fallback
    from ms_summary_bridge.callback.tensorboardx import BridgeSummaryWriter
    from ms_summary_bridge.live_writer.link import WriterLink

__all__ = ["SummaryBridge"]

_QUEUE_BYTES: Final = 512 << 20

hear_checkpoint_configs()

_Hook = TypeVar("_Hook", bound=Callable[..., None])


def _guarded(hook: _Hook) -> _Hook:
    """A fault in one of our hooks is logged once for each kind; it never reaches the training."""
    _, mode, old = hook.__name__.split("_", 2)

    @functools.wraps(hook)
    def call(self: SummaryBridge, run_context: Any) -> None:
        if old in self._overridden and self._is_done_by_old_name(mode, old, run_context):
            return
        if old == "begin":
            self._move_here()
        if not self._is_ours():
            return
        try:
            hook(self, run_context)
        except UsageError:
            raise  # a wrong set of callbacks: told before the first step
        except Exception as error:
            self._faults.fail(hook.__name__, error)

    return call  # type: ignore[return-value]


class SummaryBridge(HookNames, Callback, UserValues):
    """Writes MindInsight summary files and TensorBoard event files while a model trains.

    It takes every argument of `mindspore.train.SummaryCollector` under the same name and with the same meaning, except
    where noted, and in the same order; its own are given by name. It replaces it: the two cannot be used together. A
    subclass may override the hooks under their old names (`step_end`) and use `self._record`, as one of
    SummaryCollector does.

    Args:
        summary_dir: Directory for MindSpore's summary files. In distributed training each rank writes to
            `rank_<n>` below it, because both viewers take a directory for one run; unless the name ends in the
            number of the rank already.
        collect_freq: Collect at the first step that reaches each multiple of this. Steps are counted in data sink mode
            too (SummaryCollector counts epochs there).
        num_process: Taken for compatibility; one writer process is used whatever it says.
        collect_specified_data: As for SummaryCollector, but that `collect_landscape` is off unless it is given:
            it saves 19 checkpoints by default.
        keep_default_action: As for SummaryCollector.
        custom_lineage_data: As for SummaryCollector.
        collect_tensor_freq: As for SummaryCollector.
        max_file_size: Bytes after which both files are continued in a new one (SummaryCollector drops what follows).
        export_options: As for SummaryCollector.
        tensorboard_dir: Directory for the TensorBoard file; `summary_dir` when None.
        collect_graph: Switch for `collect_graph` and `collect_dataset_graph`; None leaves them as they are.
        collect_trainable_params: True for histograms of all trainable parameters, False for none; None for the first
            five, or as `histogram_regular` says.
        collect_loss: Switch for `collect_metric`.
        collect_lr: Record learning rates, step time, samples per second, loss scale, gradient norm and device memory.
        collect_landmark: Record milestones as text in TensorBoard.
        flush_secs: Longest time in seconds until a collected value can be read by others.
        fsync: Each flush also waits until the disk has the values, so that a loss of power costs no more than a kill:
            at most one fsync of a file in `flush_secs`, in the writer's process, and one for each `flush` of yours.
        queue_bytes: Most memory in bytes for values that wait to be written. Beyond it, arrays are dropped and counted.

    Raises:
        ValueError: An argument that SummaryCollector refuses. A subclass overrides what is never called.
        TypeError: As SummaryCollector.

    Example:
        `model.train(10, dataset, callbacks=[SummaryBridge("./summary_dir")])`
    """

    def __init__(
        self,
        summary_dir: str | os.PathLike[str],
        collect_freq: int = 10,
        num_process: int = 32,
        collect_specified_data: dict[str, Any] | None = None,
        keep_default_action: bool = True,
        custom_lineage_data: dict[str, Any] | None = None,
        collect_tensor_freq: int | None = None,
        max_file_size: int | None = None,
        export_options: dict[str, str | None] | None = None,
        *,
        tensorboard_dir: str | os.PathLike[str] | None = None,
        collect_graph: bool | None = None,
        collect_trainable_params: bool | None = None,
        collect_loss: bool | None = None,
        collect_lr: bool = True,
        collect_landmark: bool = True,
        flush_secs: float = 5.0,
        fsync: bool = False,
        queue_bytes: int = _QUEUE_BYTES,
    ) -> None:
        super().__init__()
        refuse_overrides(type(self), SummaryBridge)
        if isinstance(collect_freq, (str, os.PathLike)):
            raise TypeError(
                f"collect_freq: must be an int, not {collect_freq!r}; the directory of the TensorBoard file is given "
                f"by name: tensorboard_dir={os.fspath(collect_freq)!r}"
            )
        check_switch("collect_graph", collect_graph, or_none=True)
        check_switch("collect_trainable_params", collect_trainable_params, or_none=True)
        check_switch("collect_loss", collect_loss, or_none=True)
        check_switch("collect_lr", collect_lr)
        check_switch("collect_landmark", collect_landmark)
        check_seconds("flush_secs", flush_secs)
        check_switch("fsync", fsync)
        check_bytes("queue_bytes", queue_bytes)
        directory = check_directory("summary_dir", summary_dir)
        self._make_run_files = functools.partial(
            Recording,
            directory,
            check_directory("tensorboard_dir", summary_dir if tensorboard_dir is None else tensorboard_dir),
            max_file_size=max_file_size,
            flush_secs=float(flush_secs),
            fsync=fsync,
            queue_bytes=queue_bytes,
        )
        self._collector = self._make_collector(
            summary_dir=directory,
            collect_freq=collect_freq,
            num_process=num_process,
            collect_specified_data=specified_data(
                collect_specified_data, keep_default_action, collect_graph, collect_trainable_params, collect_loss
            ),
            keep_default_action=keep_default_action,
            custom_lineage_data=custom_lineage_data,
            collect_tensor_freq=collect_tensor_freq,
            max_file_size=max_file_size,
            export_options=export_options,
        )
        if collect_lr and self._collector is not None:
            quiet_learning_rate(self._collector)
        self._make_values = functools.partial(
            StepValues,
            self._collector._collect_specified_data if self._collector is not None else {},
            collects_histograms=collect_trainable_params is not False,
            collects_lr=collect_lr,
        )
        self._collects_landmark = collect_landmark
        self._steps = StepCount(collect_freq)
        self._start_here()

    def _start_here(self) -> None:
        """Takes up work in this process: nothing of another one's is used."""
        self._faults = Faults("SummaryBridge")
        self._run_files = self._make_run_files()
        self._record = Record(self._add, self.flush, self._faults.warn, self._run_files.summary_dir)
        self._collection: LiveCollection | Fallback = LiveCollection(
            self._collector, self._run_files, self._steps, self._put_added, self._faults.warn
        )
        self._summary_writer: BridgeSummaryWriter | None = None
        self._depth = 0
        self._mode = ""
        self._steps.reset()
        self._reset_training()
        atexit.register(_close_at_exit, weakref.ref(self))  # weakly: it would keep every model ever trained in memory

    def _move_here(self) -> None:
        """Takes up work in a forked child of the process that made the bridge, where a training begins."""
        if self._faults.is_forked:
            if isinstance(self._collection, LiveCollection):  # the parent's training is not this one's
                self._collection.close()
            if self._collector is not None:
                self._collector = without_training(self._collector)
            self._start_here()

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy, in this process or another one, begins with: what was asked for, and nothing open."""
        state = {name: value for name, value in vars(self).items() if name not in _OF_PROCESS}
        if self._collector is not None:
            state["_collector"] = without_training(self._collector)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._steps = copy.copy(self._steps)  # a shallow copy of the bridge counts for itself
        self._start_here()

    @staticmethod
    def _make_collector(*, summary_dir: str, **arguments: Any) -> SummaryCollector | None:
        """Makes the SummaryCollector inside; None when its directory cannot be made, which is said once."""
        try:
            return SummaryCollector(summary_dir=summary_dir, **arguments)
        except (OSError, TypeError) as error:  # MindSpore makes a TypeError of "permission denied"
            if not isinstance(error, OSError) and not isinstance(error.__cause__, OSError):
                raise
            Faults("SummaryBridge").warn(
                "summary_dir", f"nothing is recorded: {summary_dir} cannot be written: {error}"
            )
            return None

    def _reset_training(self) -> None:
        """Lets go of a training's network and optimizer."""
        self._checkpoints: dict[int, str] = {}
        self._values = self._make_values(warn=self._faults.warn)

    def training_options(self, parameters: Any) -> Mapping[str, Any]:
        """Returns what a framework around MindSpore knows of this training, as that of the monitor does."""
        return {}

    def _is_ours(self) -> bool:
        """Whether this is the process that made the bridge: a forked child must neither write nor wait."""
        return self._collector is not None and not self._faults.is_forked

    # ------------------------------------------------------------------ for users

    @property
    def summary_writer(self) -> BridgeSummaryWriter:
        """A tensorboardX `SummaryWriter` on the run's TensorBoard file."""
        if self._summary_writer is None:
            from ms_summary_bridge.callback.tensorboardx import BridgeSummaryWriter

            directory = self._run_files.open().config.tensorboard_dir
            self._summary_writer = BridgeSummaryWriter(directory, lambda: self.link, self.flush)
        return self._summary_writer

    @property
    def link(self) -> WriterLink | None:
        """What hands values to the writer process; None where nothing is recorded."""
        return self._run_files.open() if self._is_ours() else None

    @property
    def steps_behind(self) -> int:
        """The step of the trainings before behind which this training's steps are recorded."""
        return self._steps.behind

    @property
    def _step(self) -> int:
        return self._steps.step

    def _put_user_value(self, plugin: str, tag: str, array: npt.NDArray[Any], step: int) -> None:
        if self._is_ours():
            self._run_files.put_value(plugin, tag, array, step)

    def _put_added(self) -> None:
        self._record.record(self._steps.step)

    def landmark(self, kind: str, text: str) -> None:
        """Records a milestone as text in TensorBoard, under `milestones/<kind>`; not if `collect_landmark` is off."""
        if self._collects_landmark and self._is_ours():
            self._collection.put_milestone(kind, text)

    def flush(self, timeout: float = 30.0) -> bool:
        """Waits until all that was collected so far is in the files; False if that takes over `timeout` seconds."""
        return not self._is_ours() or self._run_files.flush(timeout)

    def close(self) -> None:
        """Ends the session: all is in the files when this returns. The next value begins new ones."""
        if self._is_ours():
            self._collection.close()
            self._run_files.close()

    # ------------------------------------------------------------------ called by MindSpore

    def __enter__(self) -> SummaryBridge:
        # model.fit enters every callback again for each evaluation, so this counts.
        self._move_here()
        self._depth += 1
        return self

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth > 0:
            return
        self._depth = 0
        mode, self._mode = self._mode, ""
        try:
            if self._is_ours():
                if error and error[0] is not None and mode:
                    self.landmark("error", f"{mode} ended by {error[0].__name__}: {error[1]}")
                    if mode == "train":
                        self._collection.put_failure()
                self._collection.close(*error)
        except Exception as failure:
            self._faults.warn("exit", f"the end of the training could not be recorded: {failure!r}")
        try:
            self.close()
        except Exception as failure:
            self._faults.warn("close", f"the files could not be closed: {failure!r}")
        self._values.measuring.leave()
        self._reset_training()

    @_guarded
    def on_train_begin(self, run_context: Any) -> None:
        """Opens the files and looks at what there is to collect."""
        parameters = run_context.original_args()
        self._begin("train", run_context)
        self._values.measuring.leave()
        self._reset_training()
        others = [callback for callback in callbacks_of(parameters) if callback is not self]
        self._values.begin_training(parameters, others, self.training_options(parameters))
        self._steps.begin_training(int(parameters.get("cur_step_num") or 0))
        self._checkpoints = dict(enumerate(saved_checkpoints(parameters)))  # of an earlier training
        epochs, steps = parameters.get("epoch_num"), parameters.get("batch_num")
        size = f"{counted(epochs, 'epoch')} of {counted(steps, 'step')}"
        self.landmark("training", f"training begins: {size}")

    @_guarded
    def on_train_epoch_begin(self, run_context: Any) -> None:
        """Notes the time."""
        self._values.measuring.step_clock.resume(time.monotonic())

    @_guarded
    def on_train_step_begin(self, run_context: Any) -> None:
        """Notes the time."""
        self._values.begin_step(time.monotonic())
        parameters = run_context.original_args()
        self._note_checkpoints(parameters)  # saved after the last step, by whichever callback
        network = parameters.get("train_network")
        if isinstance(network, GradientSummary):
            number = int(parameters.cur_step_num)
            network.begin_step(number, is_collected=self._steps.is_due(self._steps.last, number))

    @_guarded
    def on_train_step_end(self, run_context: Any) -> None:
        """Collects, if this step is the first or reaches a multiple of `collect_freq`."""
        parameters = run_context.original_args()
        now = time.monotonic()
        number = int(parameters.cur_step_num)
        last = self._steps.end_step(number)
        if last is None and self._steps.overlapped is not None:
            self._warn_of_overlap(number, self._steps.overlapped)
        self._values.end_step(last, number, now, parameters)
        self._collection.end_step(run_context, last, number, self._values)

    def _warn_of_overlap(self, first: int, reached: int) -> None:
        if self._steps.can_move:
            what = f"they are recorded behind step {reached} of the one before, which the viewers would hide otherwise"
        else:
            what = f"MindSpore's own writer records them so, and the viewers hide the one before, up to step {reached}"
        self._faults.warn(
            "steps",
            f"this training counts its steps from {first} again: {what}. For a run of its own give each training a "
            "new SummaryBridge with another directory",
        )

    @_guarded
    def on_train_epoch_end(self, run_context: Any) -> None:
        """Notes the epoch, the checkpoint, the best loss."""
        parameters = run_context.original_args()
        self._values.measuring.step_clock.pause(time.monotonic())
        self._collection.end_epoch(run_context)
        self._note_checkpoints(parameters)
        best = self._values.take_best_loss()
        better = "" if best is None else f", best loss so far {best:.6g}"
        self.landmark("epoch", f"epoch {parameters.get('cur_epoch_num')} ends{better}")

    @_guarded
    def on_train_end(self, run_context: Any) -> None:
        """Collects the training's lineage."""
        self._note_checkpoints(run_context.original_args())
        self._collection.end_training(run_context)
        self.landmark("training", f"training ends at step {self._steps.step}")
        self._mode = ""

    @_guarded
    def on_eval_begin(self, run_context: Any) -> None:
        """Opens the files, if this is no evaluation inside a training."""
        self._values.measuring.begin_evaluation()
        if not self._mode:
            self._begin("eval", run_context)

    @_guarded
    def on_eval_end(self, run_context: Any) -> None:
        """Records the metrics under `eval/`, and the evaluation's lineage."""
        self._values.measuring.end_evaluation()
        self._collection.end_evaluation(run_context, is_alone=self._mode == "eval")
        if self._mode == "eval":
            self._mode = ""

    def _begin(self, mode: str, run_context: Any) -> None:
        refuse_others(self, SummaryBridge, run_context.original_args())
        self._mode = mode
        if not has_seam():
            self._fall_back()
        self._collection.begin(mode, run_context)

    def _fall_back(self) -> None:
        """Leaves the collecting to MindSpore: what is inside of it is not known to this version."""
        self._faults.warn(
            "seam",
            f"MindSpore {mindspore.__version__} is not known to this version: its own writer is used, and its file "
            "is followed for TensorBoard",
        )
        from ms_summary_bridge.callback.fallback import Fallback  # here: it brings the whole converter

        self._collection.close()
        self._collection = Fallback(
            self._collector,
            self._run_files.summary_dir,
            self._run_files.tensorboard_dir,
            self._run_files.flush_secs,
            self._put_added,
        )
        self._steps.can_move = False

    def _note_checkpoints(self, parameters: Any) -> None:
        for place, path in enumerate(saved_checkpoints(parameters)):
            if path and path != self._checkpoints.get(place):
                self._checkpoints[place] = path
                self.landmark("checkpoint", f"checkpoint saved: {path}")


_OF_PROCESS: Final = frozenset(
    ("_faults", "_run_files", "_record", "_collection", "_summary_writer", "_values", "_checkpoints")
)
"""Attributes that `_start_here` makes anew, and no copy has."""


def _close_at_exit(reference: weakref.ref[SummaryBridge]) -> None:
    bridge = reference()
    if bridge is not None:
        bridge.close()
