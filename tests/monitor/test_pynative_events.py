"""The monitor under MindFormers' PyNative trainer, with a stand-in that calls as the real one does.

Source of the calls: `mindformers/pynative/callback/callback.py` (CallbackHandler.call_event),
`mindformers/pynative/trainer/trainer.py` (train, _inner_train_loop) and `trainer/train_state.py` of mindformers 2.1.0.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.monitor.pynative_events import PyNativeEvents
from ms_summary_bridge.training.facts import TrainingFacts
from tests.monitor_run import strict_lines

EVENTS = ("on_begin", "on_end", "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_step_begin",
          "on_step_end")  # fmt: skip


@dataclasses.dataclass
class State:
    """The fields of TrainerState that a callback may read, with their defaults."""

    epoch: float = 0.0
    global_step: int = 0
    max_steps: int = 0
    epoch_step: int = 0
    global_batch_size: int = 0
    num_accumulation_steps: int = 1
    consumed_samples: int = 0
    loss_scale: float = 1.0
    total_flops: float = 0.0


class Number:
    """A tensor of one element."""

    def __init__(self, value: float) -> None:
        self.value = value

    def asnumpy(self) -> Any:
        return np.float32(self.value)

    def item(self) -> float:
        return self.value


class Model:
    def get_gpt_transformer_config(self) -> Any:
        return SimpleNamespace(seq_length=16)


class Trainer:
    """Calls each of its callbacks with the arguments of the real one, and keeps no exception from the training."""

    def __init__(self, state: State, *callbacks: Any, stages: int = 1) -> None:
        self.state = state
        self.config = SimpleNamespace(parallelism=SimpleNamespace(pipeline_parallel=stages))
        self.callbacks = callbacks
        self.given = {
            "model": [Model()],
            "optimizer": object(),
            "lr_scheduler": lambda step: Number(step / 100),
            "train_dataset": object(),
            "eval_dataset": None,
        }

    def call(self, event: str, **more: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self.config, self.state, **self.given, **more)

    def train(self, loss_of: Callable[[int], Any], *, has_last: bool = True) -> None:
        state = self.state
        self.call("on_train_begin")
        while state.global_step < state.max_steps:
            if state.global_step % state.epoch_step == 0 and state.global_step > 0:
                self.call("on_epoch_begin")
            self.call("on_step_begin")
            state.global_step += 1
            state.consumed_samples += state.global_batch_size
            self.call(
                "on_step_end",
                loss=loss_of(state.global_step),
                grad_norm=Number(2.5),
                monitor=object(),
                metric_reduce_group=None,
                metric_reduce_group_size=1,
                pp_metric_reduce_group=None,
                pp_metric_reduce_group_size=1,
                has_last=has_last,
            )
            if state.global_step % state.epoch_step == 0:
                self.call("on_epoch_end")
        self.call("on_train_end")


def monitor(tmp_path: Path, **more: Any) -> PyNativeEvents:
    metrics = ["loss", "lr", "grad_norm", "loss_scale", "epoch", "samples_per_second", "tokens_per_second"]
    section = {"interval": 0, "backend": "local", "run_id": "run", "save_dir": str(tmp_path), "metrics": metrics}
    return PyNativeEvents({**section, "auto_print": False, **more})


def lines(tmp_path: Path, kind: str) -> list[dict[str, Any]]:
    return [line for line in strict_lines(tmp_path / "default" / "run" / "rank_0") if line["kind"] == kind]


def test_it_has_every_event() -> None:
    assert all(callable(getattr(PyNativeEvents, event)) for event in EVENTS)


def test_a_training_is_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = State(max_steps=6, epoch_step=3, global_batch_size=8)
    Trainer(state, monitor(tmp_path)).train(lambda step: Number(10.0 / step))
    samples = lines(tmp_path, "sample")
    assert [line["step"] for line in samples] == [1, 2, 3, 4, 5, 6]
    assert [line["epoch"] for line in samples] == [1, 1, 1, 2, 2, 2]
    assert [line["values"]["loss"] for line in samples] == [10.0 / step for step in range(1, 7)]
    assert {line["values"]["grad_norm"] for line in samples} == {2.5}
    assert {line["values"]["loss_scale"] for line in samples} == {1.0}
    assert [line["values"]["lr"] for line in samples] == pytest.approx([step / 100 for step in range(1, 7)])
    last = samples[-1]["values"]
    assert last["tokens_per_second"] == pytest.approx(16 * last["samples_per_second"])
    (end,) = lines(tmp_path, "end")
    assert not end.get("reason")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_resumed_training_counts_on(tmp_path: Path) -> None:
    state = State(global_step=100, max_steps=104, epoch_step=50, global_batch_size=8)
    Trainer(state, monitor(tmp_path)).train(lambda step: Number(1.0))
    samples = lines(tmp_path, "sample")
    assert [(line["step"], line["epoch"]) for line in samples] == [(101, 3), (102, 3), (103, 3), (104, 3)]


@pytest.mark.parametrize("loss", [None, Number(math.nan)])
def test_a_stage_without_a_loss_raises_no_alarm_and_misses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, loss: Any
) -> None:
    """Of two ranks in two stages the first has none, or some number that is none."""
    monkeypatch.setenv("RANK_ID", "0")
    monkeypatch.setenv("RANK_SIZE", "2")
    made = monitor(tmp_path, warn_on_value={"loss": 1.0}, alerts=["nonfinite", "not_improving"])
    Trainer(State(max_steps=5, epoch_step=5), made, stages=2).train(lambda step: loss, has_last=False)
    assert len(lines(tmp_path, "sample")) == 5
    assert lines(tmp_path, "alert") == []
    assert lines(tmp_path, "warning") == []
    missing = [record.getMessage() for record in caplog.records if "no number comes for" in record.getMessage()]
    assert not any("comes for loss" in text or "not_improving" in text for text in missing), missing


def test_a_schedule_may_leave_the_last_stage_without_a_loss(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Trainer(State(max_steps=4, epoch_step=4), monitor(tmp_path)).train(lambda step: None, has_last=False)
    assert not any("no number comes for loss" in record.getMessage() for record in caplog.records)


def test_a_nan_is_an_alarm_where_the_loss_is_the_trainings(tmp_path: Path) -> None:
    made = monitor(tmp_path, alerts=[{"rule": "nonfinite", "actions": ["log", "stop"]}])
    state = State(max_steps=400, epoch_step=400)
    Trainer(state, made).train(lambda step: Number(math.nan if step == 3 else 1.0))
    assert [line["step"] for line in lines(tmp_path, "alert")] == [3]
    assert state.max_steps < 400, "an alarm that stops the training ends the trainer's loop"


def test_a_fault_never_reaches_the_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = monitor(tmp_path)
    trainer = Trainer(State(max_steps=3, epoch_step=0), made)
    trainer.state.epoch_step = 3

    def refuse(step: int) -> Any:
        raise RuntimeError("no such schedule")

    trainer.given["lr_scheduler"] = refuse
    trainer.given["model"] = None
    trainer.train(lambda step: "no number")
    assert trainer.state.global_step == 3
    off = monitor(tmp_path / "off", enable=False)
    Trainer(State(max_steps=3, epoch_step=3), off).train(lambda step: Number(1.0))
    assert not (tmp_path / "off").exists()


def test_whose_loss_it_is() -> None:
    assert not TrainingFacts(rank=3, ranks=4, pipeline_stages=2).lacks_loss
    assert TrainingFacts(rank=1, ranks=4, pipeline_stages=2).lacks_loss
    assert not TrainingFacts(rank=1, ranks=4).lacks_loss
    assert TrainingFacts(has_loss=False).lacks_loss
