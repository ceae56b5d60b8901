"""The events of MindFormers' PyNative trainer, which calls no callback of MindSpore's.

Imports no mindspore.

Source: mindformers 2.1.0, `mindformers/pynative/callback/callback.py`: for each of eight events
`CallbackHandler.call_event` calls `callback.<event>(args, state, model=, optimizer=, lr_scheduler=, train_dataset=,
eval_dataset=, **more)` of each callback that its registry or its user made, and keeps no exception from the training.
`trainer/trainer.py`: at the end of a step `more` is `loss`, `grad_norm`, `monitor`, four reduce groups and `has_last`;
`loss` is None on the stages of a pipeline that have none. `trainer/train_state.py` has the fields of `state`; its loop
goes on while `global_step < max_steps`, and on a resume it begins at the step of the checkpoint.
"""

from __future__ import annotations

import math
from time import monotonic
from typing import Any

from ms_summary_bridge.monitor.alarm_commands import AlarmCommands
from ms_summary_bridge.monitor.session import MonitorSession
from ms_summary_bridge.training.distributed import find_process_rank
from ms_summary_bridge.training.facts import TrainingFacts
from ms_summary_bridge.training.faults import guarded

__all__ = ["PyNativeEvents"]


class PyNativeEvents(MonitorSession):
    """A monitor that the PyNative trainer can call: `on_train_begin` and `on_train_end` are those of both trainers.

    All of a step is in what its end is given; nothing is asked of another rank but for `aggregate`.
    """

    _rates: Any = None  # the learning rate by step, if the trainer has one
    _epoch_steps = 0

    def on_train_begin(self, run_context: Any, state: Any = None, **given: Any) -> None:
        """A training begins: of the PyNative trainer, which hands over its `state`, or of another one."""
        if state is None:
            super().on_train_begin(run_context)  # type: ignore[misc]
        else:
            self._gathering = None
            self._begin_pynative(run_context, state, given)

    def on_train_end(self, run_context: Any, state: Any = None, **given: Any) -> None:
        """The training ends, likewise."""
        if state is None:
            super().on_train_end(run_context)  # type: ignore[misc]
        else:
            self._end("")

    def on_begin(self, args: Any, state: Any, **given: Any) -> None:
        """Does nothing: an event of tasks other than training."""

    def on_end(self, args: Any, state: Any, **given: Any) -> None:
        """Does nothing."""

    @guarded
    def on_epoch_begin(self, args: Any, state: Any, **given: Any) -> None:
        """What follows is waiting for the epoch's first data."""
        if self._recorder.is_open:
            self._watchdog.beat("data")
            self._recorder.resume()

    @guarded
    def on_epoch_end(self, args: Any, state: Any, **given: Any) -> None:
        """Reads the epoch's last step."""
        if self._recorder.is_open:
            self._recorder.pause()
            self._watchdog.beat("other")

    @guarded
    def on_step_begin(self, args: Any, state: Any, **given: Any) -> None:
        """Reads the step before this one."""
        if self._recorder.is_open:
            self._recorder.tap.begin_step(monotonic())

    def on_step_end(self, args: Any, state: Any, **given: Any) -> None:
        """Keeps what the step is said to have given, unread; tells the other ranks where the configuration says so."""
        self._end_step(state, given)
        if self._config.aggregate:
            self._gather(state.global_step)

    @guarded
    def _end_step(self, state: Any, given: dict[str, Any]) -> None:
        if self._is_of_parent() or not self._recorder.is_open:
            return
        step = int(state.global_step)
        loss, norm = given.get("loss"), given.get("grad_norm")
        if loss is None:
            self._recorder.training.has_loss = False
        numbers = {"loss": loss, "grad_norm": norm, "loss_scale": getattr(state, "loss_scale", None)}
        epoch = (step - 1) // self._epoch_steps + 1 if self._epoch_steps else None
        self._rates = given.get("lr_scheduler")
        samples = int(getattr(state, "global_batch_size", 0) or 0) or None
        known = {name: value for name, value in numbers.items() if value is not None}
        self._recorder.tap.end_step(step, monotonic(), None, epoch, given=known, samples=samples)
        if self._commands is not None and self._commands.poll():
            state.max_steps = step  # where its loop looks

    @guarded
    def _begin_pynative(self, args: Any, state: Any, given: dict[str, Any]) -> None:
        self._move_here()
        if not self._config.enable:
            return
        if self._recorder.is_open:
            self._end("the beginning of another training")
        config, done = self._config, int(state.global_step)
        self._epoch_steps = int(getattr(state, "epoch_step", 0) or 0)
        stages = getattr(getattr(args, "parallelism", None), "pipeline_parallel", 1)
        facts = TrainingFacts(
            epochs=math.ceil(state.max_steps / self._epoch_steps) if self._epoch_steps else None,
            steps_per_epoch=self._epoch_steps or None,
            steps_before=done,
            samples_per_step=int(getattr(state, "global_batch_size", 0) or 0) or config.global_batch_size,
            seq_length=config.seq_length or _seq_length(given.get("model")),
            initial_step=done or config.initial_step,
            pipeline_stages=stages if isinstance(stages, int) else 1,
            flops_per_token=config.flops_per_token,
            model_flops=config.model_flops,
            peak_flops=config.peak_flops,
        )
        self._rates = given.get("lr_scheduler")
        self._watchdog.begin(find_process_rank(), facts.initial_step)
        self._recorder.begin(facts, learning_rates=self._read_rate, watchdog=self._watchdog)
        self._commands = AlarmCommands(self._recorder, [], None)

    def _read_rate(self) -> dict[str, float]:
        """Returns the rate of the last step; the trainer's own console asks its schedule in the same way."""
        schedule = self._rates
        if not callable(schedule):
            return {}
        rate = schedule(self._recorder.step)
        return {"lr": float(rate.asnumpy() if hasattr(rate, "asnumpy") else rate)}


def _seq_length(model: Any) -> int | None:
    """Returns the length of a sequence in the configuration of the trainer's model, or of its first part."""
    part = model[0] if isinstance(model, list) and model else model
    config = part.get_gpt_transformer_config() if hasattr(part, "get_gpt_transformer_config") else None
    length = getattr(config, "seq_length", None)
    return length if isinstance(length, int) and length > 0 else None
