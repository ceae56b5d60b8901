"""SummaryBridge: one callback in the place of SummaryCollector, for both viewers.

Imports mindspore.

Here is *when* to collect; what and how are in the modules below. Nothing of ours may stop or slow a training: every
call from MindSpore is guarded, and says once what went wrong.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import mindspore
import numpy.typing as npt
from mindspore.train.callback import Callback, SummaryCollector

from ms_summary_bridge.callback.arguments import check_bytes, check_directory, check_seconds, check_switch
from ms_summary_bridge.callback.collector import StockCollector, has_seam, without_training
from ms_summary_bridge.callback.gradient_summary import GradientSummary
from ms_summary_bridge.callback.record import Record
from ms_summary_bridge.callback.recording import Recording
from ms_summary_bridge.callback.step_values import StepValues, metric_items
from ms_summary_bridge.callback.user_values import UserValues
from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.training.hook_names import HookNames

if TYPE_CHECKING:
    from ms_summary_bridge.callback.fallback import Fallback
    from ms_summary_bridge.callback.tensorboardx import BridgeSummaryWriter
    from ms_summary_bridge.live_writer.link import WriterLink

__all__ = ["SummaryBridge"]

_LOG: Final = logging.getLogger("ms_summary_bridge")
_CLOSE_SECS: Final = 600.0  # as long as a slow disk may need for what waits at the end of a training
_QUEUE_BYTES: Final = 512 << 20

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
            self._warn(
                f"{hook.__name__} {type(error).__name__}", f"{hook.__name__} failed, training goes on: {error!r}"
            )

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
        queue_bytes: int = _QUEUE_BYTES,
    ) -> None:
        super().__init__()
        self._refuse_overrides()
        if isinstance(collect_freq, (str, os.PathLike)):
            raise TypeError(
                f"collect_freq: must be an int, not {collect_freq!r}; the directory of the TensorBoard file is given "
                f"by name: tensorboard_dir={os.fspath(collect_freq)!r}"
            )
        for name, switch in (
            ("graph", collect_graph),
            ("trainable_params", collect_trainable_params),
            ("loss", collect_loss),
        ):
            check_switch(f"collect_{name}", switch, or_none=True)
        check_switch("collect_lr", collect_lr)
        check_switch("collect_landmark", collect_landmark)
        check_seconds("flush_secs", flush_secs)
        check_bytes("queue_bytes", queue_bytes)
        self._summary_dir = check_directory("summary_dir", summary_dir)
        board = summary_dir if tensorboard_dir is None else tensorboard_dir
        self._tensorboard_dir = check_directory("tensorboard_dir", board)
        self._warned: set[str] = set()
        self._max_file_size = max_file_size
        self._flush_secs = float(flush_secs)
        self._queue_bytes = queue_bytes
        self._collects_lr = collect_lr
        self._collects_landmark = collect_landmark
        specified = _specified(
            collect_specified_data, keep_default_action, collect_graph, collect_trainable_params, collect_loss
        )
        self._collector = self._make_collector(
            collect_freq=collect_freq,
            num_process=num_process,
            collect_specified_data=specified,
            keep_default_action=keep_default_action,
            custom_lineage_data=custom_lineage_data,
            collect_tensor_freq=collect_tensor_freq,
            max_file_size=max_file_size,
            export_options=export_options,
        )
        self._collects_histograms = collect_trainable_params is not False
        self._collect_freq = collect_freq
        self._reached = 0  # the last step of the trainings so far, as it was recorded
        self._start_here()

    def _start_here(self) -> None:
        """Takes up work in this process: nothing of another one's is used."""
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._session: Recording | None = None
        self._stock: StockCollector | None = None
        self._fallback: Fallback | None = None
        self._summary_writer: BridgeSummaryWriter | None = None
        self._own_record: Record | None = None
        self._depth = 0
        self._mode = ""
        self._step = 0
        self._behind = 0  # what the steps of this training are recorded behind
        self._reset_training()
        atexit.register(_close_at_exit, weakref.ref(self))  # weakly: it would keep every model ever trained in memory

    def _move_here(self) -> None:
        """Takes up work in a forked child of the process that made the bridge, where a training begins."""
        if os.getpid() != self._pid:
            if self._stock is not None:  # the parent's training is not this one's
                with contextlib.suppress(Exception):
                    self._stock.close()
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
        self._start_here()

    # ------------------------------------------------------------------ construction

    def _refuse_overrides(self) -> None:
        """Refuses a subclass that overrides what SummaryCollector calls inside, and a bridge never does.

        Raises:
            UsageError: It does.
        """
        for kind in type(self).__mro__[: type(self).__mro__.index(SummaryBridge)]:
            for name in vars(kind):
                if name in vars(SummaryCollector) and not hasattr(SummaryBridge, name):
                    raise UsageError(
                        f"{kind.__name__} overrides {name} of SummaryCollector, which SummaryBridge does not call: "
                        "write on_train_step_end, or another hook, and self.add_scalar(tag, value) in its place"
                    )

    def _make_collector(self, **arguments: Any) -> SummaryCollector | None:
        """Makes the SummaryCollector inside; None when its directory cannot be made, which is said once."""
        try:
            return SummaryCollector(summary_dir=self._summary_dir, **arguments)
        except (OSError, TypeError) as error:  # MindSpore makes a TypeError of "permission denied"
            if not isinstance(error, OSError) and not isinstance(error.__cause__, OSError):
                raise
            self._warn("summary_dir", f"nothing is recorded: {self._summary_dir} cannot be written: {error}")
            return None

    def _reset_training(self) -> None:
        self._last_step: int | None = None
        self._tensor_steps = range(0)
        self._checkpoints: dict[int, str] = {}
        specified = self._collector._collect_specified_data if self._collector is not None else {}
        self._values = StepValues(
            specified, collects_histograms=self._collects_histograms, collects_lr=self._collects_lr, warn=self._warn
        )

    def training_options(self, parameters: Any) -> Mapping[str, Any]:
        """Returns what a framework around MindSpore knows of this training, as that of the monitor does."""
        return {}

    def _is_ours(self) -> bool:
        """Whether this is the process that made the bridge: a forked child must neither write nor wait."""
        return os.getpid() == self._pid and self._collector is not None

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            _LOG.warning("SummaryBridge: %s", message)

    # ------------------------------------------------------------------ for users

    @property
    def summary_writer(self) -> BridgeSummaryWriter:
        """A tensorboardX `SummaryWriter` on the run's TensorBoard file."""
        if self._summary_writer is None:
            from ms_summary_bridge.callback.tensorboardx import BridgeSummaryWriter

            directory = self._open_session().config.tensorboard_dir
            self._summary_writer = BridgeSummaryWriter(directory, self._link, self.flush)
        return self._summary_writer

    def _link(self) -> WriterLink | None:
        return self._open_session().link if self._is_ours() else None

    def _put_user_value(self, plugin: str, tag: str, array: npt.NDArray[Any], step: int) -> None:
        if self._is_ours():
            self._open_session().put_value(plugin, tag, array, step)

    @property
    def _record(self) -> Record:
        """What sub-classes of SummaryCollector call `add_value` on."""
        if self._own_record is None:
            self._own_record = Record(self._add, self.flush, self._warn, self._summary_dir)
        return self._own_record

    def _put_added(self) -> None:
        if self._own_record is not None:
            self._own_record.record(self._step)

    def landmark(self, kind: str, text: str) -> None:
        """Records a milestone as text in TensorBoard, under `milestones/<kind>`; not if `collect_landmark` is off."""
        if self._collects_landmark and self._is_ours() and self._fallback is None:
            self._open_session().put_milestone(self._step, kind, text)

    def flush(self, timeout: float = 30.0) -> bool:
        """Waits until all that was collected so far is in the files; False if that takes over `timeout` seconds."""
        return self._session is None or not self._is_ours() or self._session.link.flush(timeout)

    def close(self) -> None:
        """Ends the session: all is in the files when this returns. The next value begins new ones."""
        if not self._is_ours():
            return
        with self._lock:
            session, self._session = self._session, None
            stock, self._stock = self._stock, None
            if stock is not None:
                with contextlib.suppress(Exception):
                    stock.close()
            if session is not None:
                session.link.close(_CLOSE_SECS)

    def _open_session(self) -> Recording:
        with self._lock:
            if self._session is None:
                self._session = Recording(
                    self._summary_dir,
                    self._tensorboard_dir,
                    max_file_size=self._max_file_size,
                    flush_secs=self._flush_secs,
                    queue_bytes=self._queue_bytes,
                )
            return self._session

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
        try:
            if error and error[0] is not None and self._mode:
                self.landmark("error", f"{self._mode} ended by {error[0].__name__}: {error[1]}")
                if self._mode == "train" and self._session is not None and self._is_ours() and not self._fallback:
                    self._session.put_failure()
            if self._fallback is not None and self._is_ours():
                self._fallback.close(*error)
        except Exception as failure:
            self._warn("exit", f"the end of the training could not be recorded: {failure!r}")
        self._mode = ""
        try:
            self.close()
        except Exception as failure:
            self._warn("close", f"the files could not be closed: {failure!r}")
        self._values.measuring.leave()
        self._reset_training()  # lets go of the network and its optimizer

    @_guarded
    def on_train_begin(self, run_context: Any) -> None:
        """Opens the files and looks at what there is to collect."""
        parameters = run_context.original_args()
        self._begin("train", run_context)
        self._values.measuring.leave()
        self._reset_training()
        others = [callback for callback in _callbacks_of(parameters) if callback is not self]
        self._values.begin_training(parameters, others, self.training_options(parameters))
        first = int(parameters.get("cur_step_num") or 0)
        self._behind = max(0, self._reached - first) if self._fallback is None else 0
        self._step = first + self._behind
        self._checkpoints = dict(enumerate(_saved_checkpoints(parameters)))  # of an earlier training
        size = f"{parameters.get('epoch_num')} epochs of {parameters.get('batch_num')} steps"
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
            step = int(parameters.cur_step_num)
            network.begin_step(step, is_collected=self._is_due(self._last_step, step))

    @_guarded
    def on_train_step_end(self, run_context: Any) -> None:
        """Collects, if this step is the first or reaches a multiple of `collect_freq`."""
        parameters = run_context.original_args()
        now = time.monotonic()
        step = int(parameters.cur_step_num)
        last, self._last_step = self._last_step, step
        if last is None:
            self._place_steps(step)
        self._step = step + self._behind
        self._reached = max(self._reached, self._step)
        self._values.end_step(step, now, parameters)
        if self._fallback is not None:
            self._fallback.collector.step_end(run_context)
            self._put_added()
            return
        if parameters.get("dataset_sink_mode"):
            self._warn("sink", "in data sink mode MindSpore calls back once for each sink: there is one point for each")
        if last is None:
            self._begin_collecting(parameters)
        if self._stock is not None:
            self._stock.save_landscape_checkpoint(parameters, "step")
        is_due = self._is_due(last, step)
        takes_tensors = last is None or _reaches(self._tensor_steps, last, step)
        if is_due or takes_tensors:
            self._put_added()
            self._collect(parameters, is_due=is_due, takes_tensors=takes_tensors)

    @_guarded
    def on_train_epoch_end(self, run_context: Any) -> None:
        """Notes the epoch, the checkpoint, the best loss."""
        parameters = run_context.original_args()
        self._values.measuring.step_clock.pause(time.monotonic())
        if self._fallback is not None:
            self._fallback.collector.epoch_end(run_context)
            return
        if self._stock is not None:
            self._stock.save_landscape_checkpoint(parameters, "epoch")
        self._note_checkpoints(parameters)
        best = self._values.take_best_loss()
        better = "" if best is None else f", best loss so far {best:.6g}"
        self.landmark("epoch", f"epoch {parameters.get('cur_epoch_num')} ends{better}")

    @_guarded
    def on_train_end(self, run_context: Any) -> None:
        """Collects the training's lineage."""
        if self._fallback is not None:
            self._fallback.collector.end(run_context)
            return
        parameters = run_context.original_args()
        self._put_added()
        self._note_checkpoints(parameters)
        self._end("train", parameters)
        self.landmark("training", f"training ends at step {self._step}")
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
        parameters = run_context.original_args()
        if self._fallback is not None:
            if self._mode == "eval":
                self._fallback.collector.end(run_context)
            return
        metrics = dict(parameters.get("metrics") or {})
        metrics.update(parameters.get("eval_results") or {})
        collected: dict[str, list[dict[str, Any]]] = {}
        for name, value in metrics.items():
            for plugin, items in metric_items(name, value, self._warn).items():
                collected.setdefault(plugin, []).extend(items)
        self._put_added()
        self._send(self._step, collected)
        if self._mode == "eval":
            self._end("eval", parameters)
            self._mode = ""

    # ------------------------------------------------------------------ collecting

    def _begin(self, mode: str, run_context: Any) -> None:
        parameters = run_context.original_args()
        for other in _callbacks_of(parameters):
            if other is not self and isinstance(other, (SummaryCollector, SummaryBridge)):
                name = type(other).__name__
                raise UsageError(
                    f"{name} is in the list of callbacks beside SummaryBridge, which replaces it: remove one"
                )
        assert self._collector is not None
        self._mode = mode
        if not has_seam():
            self._warn(
                "seam",
                f"MindSpore {mindspore.__version__} is not known to this version: its own writer is used, and its file "
                "is followed for TensorBoard",
            )
            from ms_summary_bridge.callback.fallback import Fallback  # here: it brings the whole converter

            self._fallback = Fallback(self._collector, self._summary_dir, self._tensorboard_dir, self._flush_secs)
            self._fallback.begin(run_context)
            return
        self._open_session()
        if self._stock is None:
            stock = StockCollector(self._collector, self._warn)
            try:
                stock.open(mode, is_sink=bool(parameters.get("dataset_sink_mode")))
            except (RuntimeError, OSError) as error:
                self._warn("record", f"graph, input, lineage and summary operators are left out: {error}")
            else:
                self._stock = stock

    def _is_due(self, last: int | None, step: int) -> bool:
        """Whether a step is collected: the first, and each that reaches a multiple of `collect_freq`."""
        return last is None or step // self._collect_freq > last // self._collect_freq

    def _place_steps(self, first: int) -> None:
        """Lets a training that counts from the beginning again go on behind the one before, which else is hidden.

        Both viewers drop the points of a tag that a lower step overtakes. A training that goes on by itself, from a
        checkpoint, is left as it is.
        """
        if self._behind and first > self._reached:
            self._behind = 0
        if self._behind:
            self._warn(
                "steps",
                f"this training counts its steps from {first} again: they are recorded behind step {self._reached} of "
                "the one before, which the viewers would hide otherwise. For a run of its own give each training a "
                "new SummaryBridge with another directory",
            )

    def _begin_collecting(self, parameters: Any) -> None:
        """Does what only the first step can tell."""
        if self._stock is not None:
            self._stock.begin_train(parameters)
            self._tensor_steps = self._stock.tensor_steps(parameters)

    def _collect(self, parameters: Any, *, is_due: bool, takes_tensors: bool) -> None:
        collected: dict[str, list[dict[str, Any]]] = {}
        if self._stock is not None:
            keeps = None if is_due and takes_tensors else (lambda plugin: (plugin == "tensor") == takes_tensors)
            self._stock.collect_step(parameters, keeps)
        if is_due:
            collected["scalar"] = self._values.scalars(parameters)
            collected["histogram"] = self._values.histograms()
        self._send(self._step, collected)

    def _send(self, step: int, collected: dict[str, list[dict[str, Any]]]) -> None:
        """Sends what was collected, by SummaryCollector and by us, as one event."""
        session = self._open_session()
        merged = self._stock.take() if self._stock is not None else {}
        for plugin, items in collected.items():
            merged.setdefault(plugin, []).extend(items)
        session.put_collected(step, merged)

    def _end(self, mode: str, parameters: Any) -> None:
        if self._stock is not None:
            self._stock.end(parameters, mode)
            self._send(0, {})

    def _note_checkpoints(self, parameters: Any) -> None:
        for place, path in enumerate(_saved_checkpoints(parameters)):
            if path and path != self._checkpoints.get(place):
                self._checkpoints[place] = path
                self.landmark("checkpoint", f"checkpoint saved: {path}")


_OF_PROCESS: Final = frozenset(
    (
        *("_pid", "_lock", "_session", "_stock", "_fallback", "_summary_writer", "_own_record"),
        *("_values", "_checkpoints", "_tensor_steps"),
    )
)
"""Attributes that `_start_here` makes anew, and no copy has."""


def _close_at_exit(reference: weakref.ref[SummaryBridge]) -> None:
    bridge = reference()
    if bridge is not None:
        bridge.close()


def _specified(
    given: Any,
    keeps_default: bool,
    collect_graph: bool | None,
    collect_trainable_params: bool | None,
    collect_loss: bool | None,
) -> Any:
    """Returns `collect_specified_data` with the switches put in, and the landscape off unless it was asked for."""
    if given is not None and not isinstance(given, dict):
        return given  # SummaryCollector says what is wrong with it
    data = dict(given or {})
    if keeps_default:
        data.setdefault("collect_landscape", None)
    if collect_graph is not None:
        data.setdefault("collect_graph", collect_graph)
        data.setdefault("collect_dataset_graph", collect_graph)
    if collect_trainable_params:
        data.setdefault("histogram_regular", ".*")
    if collect_loss is not None:
        data.setdefault("collect_metric", collect_loss)
    return data or given


def _callbacks_of(parameters: Any) -> list[Any]:
    callbacks = parameters.get("list_callback") or []
    return list(getattr(callbacks, "_callbacks", callbacks))


def _saved_checkpoints(parameters: Any) -> list[str]:
    """Returns the file that each ModelCheckpoint in the list saved last, empty where there is none."""
    return [str(getattr(callback, "latest_ckpt_file_name", None) or "") for callback in _callbacks_of(parameters)]


def _reaches(steps: range, last: int, step: int) -> bool:
    """Whether one of `steps` lies above `last` and not above `step`."""
    if not steps or step < steps[0] or last >= steps[-1]:
        return False
    return (min(step, steps[-1]) - steps[0]) // steps.step > (last - steps[0]) // steps.step
