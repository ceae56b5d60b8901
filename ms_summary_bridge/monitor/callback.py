"""MindSporeTransformersMonitor: the monitor as a callback of MindSpore's `Model`.

Imports mindspore.

Nothing of ours may stop or slow a training: every call from MindSpore is guarded, and says once what went wrong.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from time import monotonic
from typing import Any

import mindspore
from mindspore.train.callback import Callback, RunContext

from ms_summary_bridge.callback.step_values import eval_metrics, metric_numbers
from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor.alarm_commands import AlarmCommands
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.session import MonitorSession
from ms_summary_bridge.monitor.steps.beside import Beside
from ms_summary_bridge.monitor.steps.neighbours import (
    find_bridge,
    find_gradient_summary,
    meet_loss_monitors,
    save_checkpoint,
    trainable_parameters,
)
from ms_summary_bridge.monitor.steps.step_tap import StepTap
from ms_summary_bridge.monitor.steps.training_facts import find_facts
from ms_summary_bridge.training.checkpoint_config import hear_checkpoint_configs
from ms_summary_bridge.training.distributed import find_process_rank
from ms_summary_bridge.training.faults import guarded
from ms_summary_bridge.training.hook_names import HookNames
from ms_summary_bridge.training.learning_rate import find_optimizer, rate_reader
from ms_summary_bridge.training.measuring import Measuring, join
from ms_summary_bridge.training.parameters import (
    TrainingParameters,
    complete_facts,
    steps_of_first_call,
)

__all__ = ["MindSporeTransformersMonitor"]

hear_checkpoint_configs()


class MindSporeTransformersMonitor(HookNames, MonitorSession, Callback):
    """Records a training: values at intervals, console lines, a journal, and warnings.

    In a pipeline only the ranks of the last stage have the training's loss, so the console of rank 0, which is in the
    first, shows another number. The run's own metrics.jsonl takes the loss of those that have it.

    Args:
        config: A `monitor_config` section as a dict, the path of a file that holds one, or a checked configuration.
        options: The keys of the section one by one, in the place of `config`; both together are an error.

    Raises:
        ConfigError: The configuration has problems; it names all of them.
        MissingDependencyError: A backend needs a package that is not installed.

    Example:
        `model.train(10, dataset, callbacks=[MindSporeTransformersMonitor({"interval": 30})])`
    """

    _depth = 0
    _is_first = True  # whether the step to come is the first of this training
    _tap: StepTap | None = None  # while a training is recorded by this process
    _context: Any = None  # MindSpore's own, which has the same parameters at each call
    _parameters: Mapping[str, Any] = {}
    _of_training = ("_commands", "_gathering", "_depth", "_is_first", "_tap", "_context", "_parameters")

    def __init__(
        self,
        config: Mapping[str, Any] | str | os.PathLike[str] | MonitorConfig | bool | None = None,
        **options: Any,
    ) -> None:
        if config is not None and options:
            raise ConfigError([f"$.{name}: is not read beside config: move it there" for name in options])
        super().__init__(options if config is None else config)
        self._gathers = bool(self._config.aggregate)

    def training_options(self, parameters: Any) -> Mapping[str, Any]:
        """Returns what a framework around MindSpore knows of this training, by the names of MonitorConfig.

        A subclass looks for `global_batch_size`, `seq_length`, `initial_step`, `micro_batch_num`,
        `micro_batch_interleave_num`, `gradient_accumulation_steps` and `calculate_per_token_loss`, and for `epochs` and
        `steps_per_epoch` where MindSpore's own are not those of the training. What it returns goes before the
        configuration. It is asked once, at the beginning of a training.

        Args:
            parameters: MindSpore's callback parameters, behind `get(name, default)`.
        """
        return {}

    def milestone(self, text: str, **fields: Any) -> None:
        """Notes in the journal something that happened in the training."""
        if self._recorder.is_open:
            self._recorder.notes.milestone(text, **fields)

    @guarded
    def raise_test_alarm(self) -> None:
        """Raises an alarm about nothing, with every action of the configuration: `config check --try` does so."""
        if self._recorder.is_open:
            self._recorder.alarms.raise_test(self._recorder.step, time.time())

    @property
    def alarm_outcomes(self) -> list[tuple[str, str]]:
        """What became of the commands and webhooks of alarms: what it was, and the problem, empty for none."""
        sink = self._recorder.alarm_sink
        return [] if sink is None else list(sink.outcomes)

    # ------------------------------------------------------------------ called by MindSpore

    def __enter__(self) -> MindSporeTransformersMonitor:
        # model.fit enters every callback again for each evaluation, so this counts.
        self._move_here()
        self._depth += 1
        return self

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._depth = 0
            # Here, and not at the end of the training: all other callbacks have ended theirs, and those around this one
            # are still left in good order.
            self._exit(error)

    def on_train_begin(self, run_context: Any) -> None:
        """Begins to record, and to be watched."""
        self._gathering = None
        try:
            self._move_here()
            self._begin(TrainingParameters(run_context.original_args()), is_watched=True)
        except Exception as error:
            self.faults.fail("on_train_begin", error)

    @guarded
    def on_train_epoch_begin(self, run_context: Any) -> None:
        """What follows is waiting for the epoch's first data."""
        if self._recorder.is_open:
            self._watchdog.beat("data")
            self._recorder.resume()

    # These two are called between all steps of a training, when everything of ours has left the processor's caches:
    # what counts is not how long they run but how much code they touch. So they are guarded where they stand.

    def on_train_step_begin(self, run_context: Any) -> None:
        """Reads the step before this one."""
        tap = self._tap
        if tap is not None:
            try:
                tap.begin_step(monotonic())
            except Exception as error:
                self.faults.fail("on_train_step_begin", error)

    def on_train_step_end(self, run_context: Any) -> None:
        """Keeps what the step returned, unread."""
        now = monotonic()
        try:
            tap = self._tap
            if tap is not None and run_context is self._context:
                parameters = self._parameters
                step = parameters["cur_step_num"] + tap.initial_step
                tap.end_step(step, now, parameters["net_outputs"], parameters["cur_epoch_num"])
                is_asked = tap.is_asked
            else:
                self._end_any_step(run_context, now)
                is_asked = True
            if is_asked and self._commands is not None and self._commands.poll():
                run_context.request_stop()
        except Exception as error:
            self.faults.fail("on_train_step_end", error)
        if self._gathers:
            parameters = self._parameters if run_context is self._context else run_context.original_args()
            self._gather(TrainingParameters(parameters).get("cur_step_num"))

    def _end_any_step(self, run_context: Any, now: float) -> None:
        """Ends the first step, or one of a loop of the user's own, which may hand over less or something else."""
        if not self._config.enable:
            return
        parameters = TrainingParameters(run_context.original_args())
        if (
            not self._recorder.is_open
        ):  # driven by hand, without a beginning, and perhaps without an end: nobody watches
            self._move_here()
            self._begin(parameters, is_watched=False)
        if self._is_of_parent():
            return
        recorder = self._recorder
        is_first, self._is_first = self._is_first, False
        steps = self._first_call(parameters) if is_first else 0
        tap, number = recorder.tap, parameters.get("cur_step_num")
        step = tap.step + 1 if number is None else int(number) + tap.initial_step
        epoch = parameters.number("cur_epoch_num", -1)  # a plain int, whatever a loop of one's own hands over
        tap.end_step(step, now, parameters.get("net_outputs"), epoch if epoch >= 0 else None, steps)
        if type(run_context) is RunContext and type(parameters.get("cur_epoch_num")) is int:
            self._context, self._parameters = run_context, run_context.original_args()

    def _first_call(self, parameters: TrainingParameters) -> int:
        """Does what only the first step can tell; returns how many steps it stands for."""
        complete_facts(self._recorder.training, parameters)
        optimizer = find_optimizer(parameters)
        if optimizer is not None:
            rates = rate_reader(optimizer, lambda step: mindspore.Tensor(step, mindspore.int32))
            self._recorder.measuring.rates.read_from(rates)
        if parameters.get("dataset_sink_mode"):
            self.faults.warn("sink", "in data sink mode MindSpore calls back once for each sink, not for each step")
        return steps_of_first_call(parameters)

    @guarded
    def on_train_epoch_end(self, run_context: Any) -> None:
        """Reads the epoch's last step."""
        if self._recorder.is_open:
            self._recorder.pause()
            self._watchdog.beat("other")
            if self._commands is not None and self._commands.poll():
                run_context.request_stop()

    @guarded
    def on_eval_begin(self, run_context: Any) -> None:
        """What follows is an evaluation, no training."""
        if self._recorder.is_open:
            self._recorder.finish_step()
            self._recorder.measuring.begin_evaluation()
            self._watchdog.beat("evaluation")

    @guarded
    def on_eval_end(self, run_context: Any) -> None:
        """Leaves the evaluation out of all rates, and tells what it found."""
        if self._recorder.is_open:
            self._recorder.measuring.end_evaluation()
            self._watchdog.beat("other")
            parameters = TrainingParameters(run_context.original_args())
            self._recorder.evaluated(metric_numbers(eval_metrics(parameters)), parameters.get("cur_epoch_num"))

    @guarded
    def on_train_end(self, run_context: Any) -> None:
        """Writes the rest, and sums up."""
        self._end("")

    # ------------------------------------------------------------------

    def _begin(self, parameters: TrainingParameters, *, is_watched: bool) -> None:
        if not self._config.enable:
            return
        if self._recorder.is_open:
            self._end("the beginning of another training")
        self._is_first = True
        others = [callback for callback in parameters.callbacks if callback is not self]
        facts = find_facts(parameters, self._config, self.training_options(parameters))
        facts.parameters = lambda: trainable_parameters(parameters)
        facts.pipeline_stages = int(mindspore.get_auto_parallel_context("pipeline_stages"))
        bridge = find_bridge(others)
        if is_watched:
            self._watchdog.begin(find_process_rank(), facts.initial_step)
        measuring, tells = join(parameters, "monitor", lambda: Measuring(facts, self.faults.warn))
        self._recorder.begin(
            facts,
            measuring=measuring,
            tells=tells,
            learning_rates=self._miss_rates,
            bridge=bridge,
            watchdog=self._watchdog,
        )
        self._tap = self._recorder.tap
        measuring.time_callbacks(others, self._watchdog.heartbeat)
        self._commands = AlarmCommands(self._recorder, others, lambda path: save_checkpoint(parameters, path))
        meet_loss_monitors(others, self._config, self.faults)
        # Behind the timers, around which its own stand.
        summary = find_gradient_summary(parameters)
        beside = Beside(
            others,
            parameters,
            self.faults,
            wants_parts=any(metric.name == "sub_losses" for metric in self._config.metrics),
            take_squares=None if summary is None else summary.take_squares,
            pipeline_stages=facts.pipeline_stages,
        )
        self._recorder.listen(beside)

    def _end(self, reason: str) -> None:
        self._tap, self._context, self._parameters = None, None, {}
        super()._end(reason)

    def _miss_rates(self) -> Mapping[str, float]:
        """Is asked where learning rates are to be recorded, and neither the outputs hold them nor an optimizer."""
        self.faults.warn("optimizer", "no optimizer is found: the learning rate is not recorded")
        return {}
