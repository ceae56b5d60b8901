"""The one measure of a training, on a clock that is handed in: each number by its formula, and the same for all."""

from __future__ import annotations

import copy
import math
import sys
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window
from ms_summary_bridge.training.measures import StepOutputs
from ms_summary_bridge.training.measuring import Measuring, join
from ms_summary_bridge.training.parameters import (
    TrainingParameters,
    batch_size,
    cards_with_own_data,
    complete_facts,
    read_facts,
    steps_of_first_call,
)
from ms_summary_bridge.training.step_clock import Call


class Training:
    """Tells a measure what MindSpore tells, on a clock that only moves when it is told to."""

    def __init__(self, **facts: Any) -> None:
        self.now = 100.0
        self.measuring = Measuring(TrainingFacts(**facts), lambda kind, message: None, lambda: self.now)
        self.clock = self.measuring.step_clock
        self.clock.read_calls = deque()
        self.measuring.follow()
        self.step = self.measuring.facts.initial_step

    def end(self, steps: int = 1, *, step: int | None = None, read: Any = 0.5, samples: int | None = None) -> None:
        """A step ends now, and is read."""
        self.step = self.step + steps if step is None else step
        self.clock.note(("end", self.now, (self.step, steps, 1, samples, None)))
        self.clock.note(("read", self.now, read))

    def train(self, secs: float, steps: int = 1, *, data_secs: float = 0.0, **more: Any) -> None:
        """Waits for data, and trains one call."""
        self.now += data_secs
        self.clock.note(("start", self.now, None))
        self.now += secs - data_secs
        self.end(steps, **more)

    def facts(self) -> list[StepFacts]:
        """Returns all calls since the last time, as the monitor has them."""
        self.clock.settle()
        calls = self.clock.read_calls
        assert calls is not None
        found = [self.measuring.facts_of(call) for call in calls]
        calls.clear()
        return found

    def window(self) -> Window:
        """Returns the same as one interval."""
        found = self.facts()
        window = Window(last=found[-1])
        for facts in found:
            window.add(facts)
        return window


def test_each_number_has_its_formula() -> None:
    training = Training(
        samples_per_step=64, seq_length=128, loss_divisor=4, ranks=8, flops_per_token=1e6, peak_flops=1e9
    )
    training.clock.resume(training.now)
    training.train(60.0)  # compiles
    training.train(2.0, data_secs=0.5, read=StepOutputs(loss=2.0, loss_scale=1024.0, grad_norm=3.0, overflow=False))
    training.train(6.0, data_secs=1.5)
    compiled, step, slow = training.facts()
    assert (compiled.secs, compiled.step_time, compiled.samples_per_second) == (None, None, None)
    assert step.loss == 2.0 / 4, "by what it is a sum over"
    assert (step.loss_scale, step.grad_norm, step.overflow) == (1024.0, 3.0, False)
    assert (step.step_time, step.data_time) == (2.0, 0.5), "of a step, waiting for data included"
    assert step.samples_per_second == 64 / 2.0, "over all cards"
    assert step.tokens_per_second == 64 * 128 / 2.0, "over all cards"
    window = Window(last=slow)
    for facts in (compiled, step, slow):
        window.add(facts)
    assert (window.steps, window.timed_steps) == (3, 2)
    assert (window.step_time, window.data_time) == ((2.0 + 6.0) / 2, (0.5 + 1.5) / 2)
    assert window.samples_per_second == 2 * 64 / 8.0, "sums over sums, not the mean of two rates"
    assert window.tokens_per_second == 2 * 64 * 128 / 8.0
    assert window.overflows == 0
    used = training.measuring.facts.utilization(window)
    assert used == pytest.approx(2 * 64 * 128 * 1e6 / 8.0 / (1e9 * 8)), "of what all cards can do"


def test_the_time_left_is_that_of_the_steps_left() -> None:
    training = Training(epochs=2, steps_per_epoch=5, initial_step=100, steps_before=0)
    training.train(60.0)
    training.train(2.0)
    facts = training.measuring.facts
    assert [facts.step_in_epoch(step) for step in (100, 101, 105, 106)] == [None, 1, 5, 1]
    assert facts.secs_left(102, training.window()) == (2 * 5 - 2) * 2.0
    assert TrainingFacts().secs_left(1, Window(last=StepFacts(step=1))) is None


# ------------------------------------------------------------------ B24

SEQUENCES: dict[str, tuple[dict[str, Any], list[Any], dict[int, float | None]]] = {
    "plain": ({}, [(0.0, 0), (60.0, 1), (61.0, 2), (62.0, 3)], {1: None, 2: 1000.0, 3: 1000.0}),
    "resume": ({}, [(0.0, 50000), (1.0, 50001), (2.0, 50002)], {50001: None, 50002: 1000.0}),
    "grad_accum": ({"samples_per_step": 5 * 8}, [(0.0, 0), (1.0, 1), (2.0, 2)], {1: None, 2: 4000.0}),
    "interval": ({}, [(0.0, 0), (10.0, 10), (20.0, 20), (25.0, 30)], {10: None, 20: 1000.0, 30: 2000.0}),
    "zero_time": ({}, [(0.0, 0), (0.0, 1), (0.0, 2)], {1: None, 2: None}),
    "clock_back": ({}, [(100.0, 0), (120.0, 1), (40.0, 2), (41.0, 3)], {1: None, 2: None, 3: 1000.0}),
    "eval_between": ({}, [(0.0, 0), (1.0, 1), "evaluation", (302.0, 2)], {1: None, 2: 1000.0}),
    "saved_between": ({}, [(0.0, 0), (1.0, 1), "checkpoint", (302.0, 2)], {1: None, 2: 1000.0}),
    "rollback": ({}, [(0.0, 100), (1.0, 101), (2.0, 90), (3.0, 91)], {101: None, 90: 1000.0, 91: 1000.0}),
    "unknown_tokens": ({"seq_length": None}, [(0.0, 0), (1.0, 1), (2.0, 2)], {1: None, 2: None}),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_rates_are_those_of_this_session_and_of_training_alone(name: str) -> None:
    facts, calls, right = SEQUENCES[name]
    training = Training(**{"samples_per_step": 10, "seq_length": 100, "initial_step": calls[0][1], **facts})
    training.clock.resume(calls[0][0])
    for call in calls[1:]:
        if isinstance(call, str):
            training.clock.spend(call, 300.0)
            continue
        training.now = call[0]
        training.end(max(1, call[1] - training.step), step=call[1])
    assert {facts.step: facts.tokens_per_second for facts in training.facts()} == right


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["start", "end", "pause", "resume", "evaluation", "checkpoint", "data", "callbacks"]),
            st.floats(-1e6, 1e6),
            st.integers(1, 100),
        )
    )
)
def test_no_number_is_negative_or_infinite(notes: list[tuple[str, float, int]]) -> None:
    training = Training(samples_per_step=8, seq_length=2)
    for what, number, steps in notes:
        if what == "end":
            training.now = number
            training.end(steps)
        elif what in ("start", "pause", "resume"):
            training.clock.note((what, number, None))
        else:
            training.clock.spend(what, number)
    for facts in training.facts():
        for value in (facts.step_time, facts.samples_per_second, facts.tokens_per_second):
            assert value is None or 0 < value < math.inf
        assert facts.data_time is None or 0 <= facts.data_time < math.inf
    assert all(0 <= secs < math.inf for secs in training.clock.secs.values())


# ------------------------------------------------------------------ B23, and what else a call can stand for


def test_one_call_for_a_sink_of_many_steps() -> None:
    """100 steps in 10 s: a step took 0.1 s, and 4096 tokens."""
    training = Training(samples_per_step=4, seq_length=1024)
    for _ in range(3):
        training.clock.resume(training.now)
        training.train(10.0, 100)
        training.clock.pause(training.now)
        training.now += 50.0  # between two epochs
    first, *others = training.facts()
    assert first.step_time is None
    assert [(facts.step, facts.step_time) for facts in others] == [(200, 0.1), (300, 0.1)]
    assert [facts.tokens_per_second for facts in others] == [40960.0, 40960.0]


def test_the_first_batch_of_an_epoch_is_waited_for_in_training() -> None:
    training = Training()
    training.train(1.0)
    training.clock.pause(training.now)
    training.now += 100.0
    training.clock.resume(training.now)
    training.train(5.0, data_secs=4.0)
    assert (training.facts()[1].step_time, training.clock.secs["other"]) == (5.0, 100.0)


def test_a_loop_may_say_its_own_samples() -> None:
    training = Training(samples_per_step=10, seq_length=100)
    training.end()
    training.now += 2.0
    training.end(samples=7)
    facts = training.facts()[1]
    assert (facts.samples_per_second, facts.tokens_per_second) == (3.5, 350.0)


def test_where_no_beginning_is_told_it_is_computing_and_not_waiting() -> None:
    training = Training()
    for _ in range(3):
        training.now += 1.0
        training.end()
    training.clock.spend("data", 0.25)
    training.now += 1.0
    training.end()
    assert training.facts()[-1].data_time == 0.25
    assert training.clock.secs == {**dict.fromkeys(training.clock.secs, 0.0), "compute": 2.75, "data": 0.25}


# ------------------------------------------------------------------ samples of a step


class Dataset:
    def get_batch_size(self) -> int:
        return 16


def parameters(mode: str, cards: int, **more: Any) -> TrainingParameters:
    return TrainingParameters(
        {"train_dataset": Dataset(), "parallel_mode": mode, "device_number": cards, "batch_num": 10, **more}
    )


@pytest.mark.parametrize(
    ("mode", "cards", "context", "told", "samples"),
    [
        ("stand_alone", 1, {}, {}, 16),
        ("data_parallel", 8, {}, {}, 16 * 8),
        ("data_parallel", 8, {}, {"gradient_accumulation_steps": 4}, 16 * 8 * 4),
        ("data_parallel", 8, {}, {"global_batch_size": 512}, 512),
        ("semi_auto_parallel", 8, {"dataset_strategy": "data_parallel", "pipeline_stages": 2}, {}, 16 * 4),
        ("semi_auto_parallel", 8, {"dataset_strategy": "full_batch", "pipeline_stages": 2}, {}, 16),
        ("auto_parallel", 8, {"dataset_strategy": [[2, 1], [2]], "pipeline_stages": 1}, {}, 16 * 2),
        ("auto_parallel", 8, {"dataset_strategy": [object()], "pipeline_stages": 1}, {}, None),
        ("hybrid_parallel", 8, {}, {}, None),
        ("hybrid_parallel", 1, {}, {}, 16),
    ],
)
def test_samples_of_a_step_are_those_of_all_cards(
    mode: str,
    cards: int,
    context: dict[str, Any],
    told: dict[str, Any],
    samples: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mindspore", SimpleNamespace(get_auto_parallel_context=context.__getitem__))
    said = parameters(mode, cards)
    facts = read_facts(said, told)
    complete_facts(facts, said)
    assert facts.samples_per_step == samples
    if samples is not None and not told:
        assert samples == (batch_size(said) or 0) * (cards_with_own_data(said) or 0)


@pytest.mark.parametrize(
    ("said", "steps"),
    [
        ({"dataset_sink_mode": False, "batch_num": 10}, 1),
        ({"dataset_sink_mode": True, "batch_num": 10, "sink_size": 5}, 5),
        ({"dataset_sink_mode": True, "batch_num": 10, "sink_size": -1}, 10),
        ({"dataset_sink_mode": True}, 1),
        ({}, 1),
    ],
)
def test_steps_of_the_first_call(said: dict[str, Any], steps: int) -> None:
    assert steps_of_first_call(TrainingParameters(said)) == steps


# ------------------------------------------------------------------ one measure for all


def made() -> Measuring:
    return Measuring(TrainingFacts(), lambda kind, message: None)


def test_callbacks_of_one_training_share_a_measure_and_the_first_tells() -> None:
    said: dict[str, Any] = {}
    bridge, bridge_tells = join(TrainingParameters(said), "bridge", made)
    monitor, monitor_tells = join(TrainingParameters(dict(said)), "monitor", made)  # a framework may hand on a copy
    assert monitor is bridge
    assert (bridge_tells, monitor_tells) == (True, False)
    again, tells = join(TrainingParameters(said), "bridge", made)  # another training with the same parameters
    assert again is not bridge
    assert tells
    other, tells = join(TrainingParameters(SimpleNamespace()), "monitor", made)  # parameters that keep nothing
    assert tells
    assert copy.deepcopy(said) == {"ms_summary_bridge_measuring": None}, "a copy has none"
    assert other is not again


NOTES = st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.floats(0, 3), st.booleans(), st.booleans()))


@given(NOTES, st.booleans())
def test_who_tells_makes_no_difference(steps: list[tuple[float, float, float, bool, bool]], bridge_tells: bool) -> None:
    """What a bridge takes while the training waits, and what a monitor makes of the notes later."""
    training = Training(samples_per_step=8, seq_length=2)
    training.clock.resume(training.now)
    taken: list[Window] = []
    calls: list[Call] = []
    for number, (data, compute, saving, is_taken, is_epoch) in enumerate(steps, start=1):
        ended = (number, 1, 1, None, None)
        training.now += data
        loss = float(number - 1) if number > 1 else None
        if bridge_tells:
            training.clock.note(("start", training.now, None))
            training.clock.note(("read", training.now, loss))
        else:
            training.clock.note(("begin", training.now, loss))
        training.now += compute
        if bridge_tells:
            training.measuring.end_step(ended, training.now, tells=True)
        else:
            training.clock.note(("end", training.now, ended))
            training.measuring.end_step(ended, training.now, tells=False)
        if is_taken:
            window = training.measuring.take()
            assert window is not None
            taken.append(window)
        if bridge_tells:
            training.clock.note(("told", training.now, (number + 1000, 1, 1, None, None)))
        training.now += saving
        training.clock.spend("checkpoint", saving)
        if is_epoch:
            training.clock.pause(training.now)
            training.now += 1.0
            training.clock.resume(training.now)
    training.clock.note(("read", training.now, float(len(steps))))
    training.clock.settle()
    calls.extend(training.clock.read_calls or ())
    assert [call.ended[0] for call in calls] == [number + 1000 * bridge_tells for number in range(1, len(steps) + 1)]
    assert [call.read for call in calls] == [float(number) for number in range(1, len(steps) + 1)]
    ours = iter(calls)
    for window in taken:
        mine = Window(last=StepFacts(step=0))
        while mine.steps < window.steps:
            mine.add(training.measuring.facts_of(next(ours)))
        for name in ("steps", "timed_steps", "step_time", "data_time", "samples_per_second", "tokens_per_second"):
            assert getattr(mine, name) == getattr(window, name), name


class Saver:
    """Takes ten seconds after each step, as ModelCheckpoint may."""

    def __init__(self, training: Training) -> None:
        self._training = training

    def on_train_step_end(self, run_context: Any) -> None:
        self._training.now += 10.0


class ModelCheckpoint(Saver):
    """Named as MindSpore's own."""


def test_saving_is_left_out_with_the_bridge_alone() -> None:
    training = Training()
    saver, other = ModelCheckpoint(training), Saver(training)
    training.measuring.time_callbacks([saver, other])
    assert list(vars(other)) == ["_training"], "only who saves or evaluates belongs to no step"
    for _ in range(3):
        training.train(1.0)
        saver.on_train_step_end(None)
    training.measuring.leave()
    assert list(vars(saver)) == ["_training"]
    assert [facts.step_time for facts in training.facts()] == [None, 1.0, 1.0]


def test_an_evaluation_is_told_by_each_and_counted_once() -> None:
    training = Training()
    training.train(1.0)
    for hook in (training.measuring.begin_evaluation, training.measuring.end_evaluation):
        hook()
        hook()
        training.now += 100.0
    training.train(1.0)
    assert training.clock.secs["evaluation"] == 0.0
    training.facts()
    assert training.clock.secs["evaluation"] == 100.0
