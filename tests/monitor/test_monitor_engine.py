"""The monitor's engine, driven by hand on a fake clock: values, rates, warnings, the breakdown."""

from __future__ import annotations

import json
import logging
import math
import re
import signal
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.monitor import Metric, Monitor, load_config, register_metric
from ms_summary_bridge.monitor.metrics import make_metric
from ms_summary_bridge.monitor.model.metric_names import METRICS
from ms_summary_bridge.monitor.recorder import interval_secs
from ms_summary_bridge.monitor.steps import end_summary
from ms_summary_bridge.monitor.steps.call_queue import Patience
from ms_summary_bridge.monitor.steps.training_facts import find_facts
from ms_summary_bridge.training.distributed import ProcessRank, find_process_rank
from ms_summary_bridge.training.facts import StepFacts, Window
from ms_summary_bridge.training.parameters import TrainingParameters, complete_facts
from ms_summary_bridge.training.step_clock import describe
from tests.bridge_scripts.runs import wait_until
from tests.monitor_run import Engine, strict_lines, values_of


@pytest.fixture(autouse=True)
def metrics_of_the_users() -> Iterator[None]:
    """Forgets what a test registers: other tests look at all names that there are."""
    before = dict(METRICS)
    yield
    METRICS.clear()
    METRICS.update(before)


def test_every_metric_that_a_configuration_can_name_can_be_made() -> None:
    for name in METRICS:
        assert isinstance(make_metric(name), Metric), name


# ------------------------------------------------------------------ samples


def test_a_step_is_read_when_the_next_one_begins(tmp_path: Path) -> None:
    class Loss:
        read = 0

        def asnumpy(self) -> np.ndarray[Any, Any]:
            Loss.read += 1
            return np.array(0.5)

    engine = Engine(tmp_path, interval=0, metrics=["loss"]).begin()
    engine.step(1, outputs=Loss())
    assert Loss.read == 0
    engine.recorder.tap.begin_step(engine.clock.now)
    assert Loss.read == 1
    engine.end_step(2, outputs=Loss())
    engine.end()
    assert Loss.read == 2
    assert values_of(engine.samples(), "loss") == {1: 0.5, 2: 0.5}


def test_an_interval_has_least_mean_and_greatest_and_the_first_step_is_always_there(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=10, metrics=["loss", "step_time"]).begin()
    for step in range(1, 31):
        engine.step(step, outputs=float(step))
    lines = engine.end()
    assert [(line["step"], line["interval_steps"]) for line in engine.samples()] == [
        (1, 1),
        (11, 10),
        (21, 10),
        (30, 9),
    ]
    assert [line["is_first"] for line in engine.samples()] == [True, False, False, False]
    second = engine.samples()[1]
    assert (second["values"]["loss"], second["min"]["loss"], second["mean"]["loss"], second["max"]["loss"]) == (
        *(11, 2, 6.5, 11),
    )
    assert second["values"]["step_time"] == second["mean"]["step_time"] == 1.0
    assert lines[-1]["kind"] == "end"
    assert lines[-1]["best"] == {"loss": 1.0, "step": 1}


def test_per_print_step_samples_between_the_intervals_too(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=1000, per_print_step=4, metrics=["loss"]).begin()
    for step in range(1, 11):
        engine.step(step)
    engine.end()
    assert [line["step"] for line in engine.samples()] == [1, 4, 8, 10]


@pytest.mark.parametrize(("ranks", "secs"), [(1, 30), (2, 60), (63, 60), (64, 120)])
def test_auto_is_longer_where_many_ranks_write(tmp_path: Path, ranks: int, secs: float) -> None:
    assert interval_secs(Engine(tmp_path).recorder.config, ranks) == secs
    assert interval_secs(Engine(tmp_path, interval=7).recorder.config, ranks) == 7


def test_numbers_that_json_has_not_are_null_and_named(tmp_path: Path) -> None:
    """B12: a null with its name is told apart from a value that was not measured, whose key is missing."""
    engine = Engine(tmp_path, interval=3, metrics=["loss", "grad_norm"], csv=True).begin()
    for step, loss in enumerate([1.0, 2.0, math.nan, math.inf, -math.inf, 4.0], start=1):
        engine.step(step, outputs=loss)
    engine.end()
    first, second, third = engine.samples()
    assert (first["values"], "nonfinite" in first) == ({"loss": 1.0}, False)
    assert (second["step"], second["values"], second["nonfinite"]) == (4, {"loss": None}, {"loss": "inf"})
    assert (second["min"], second["max"], second["nonfinite_steps"]) == ({"loss": 2.0}, {"loss": 2.0}, {"loss": 2})
    assert (third["values"], third["nonfinite_steps"]) == ({"loss": 4.0}, {"loss": 1})
    rows = (engine.directory / "rank_0" / "metrics.csv").read_text().splitlines()
    assert [row.split(",")[-1] for row in rows] == ["loss", "1.0", "inf", "4.0"]


def test_from_step_and_to_step(tmp_path: Path) -> None:
    metrics = ["loss", {"name": "grad_norm", "from_step": 3, "to_step": 4}]
    engine = Engine(tmp_path, interval=0, metrics=metrics).begin()
    for step in range(1, 7):
        engine.step(step, given={"loss": 1.0, "grad_norm": 2.0})
    engine.end()
    assert values_of(engine.samples(), "grad_norm") == {3: 2.0, 4: 2.0}


def test_the_loss_of_pipeline_stages_and_accumulation_is_divided(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=0, metrics=["loss"]).begin(loss_divisor=8)
    engine.step(1, outputs=16.0)
    engine.end()
    assert values_of(engine.samples(), "loss") == {1: 2.0}


SUMMED = {"micro_batch_num": 2, "micro_batch_interleave_num": 3, "gradient_accumulation_steps": 5}


@pytest.mark.parametrize(("told", "divisor"), [({}, 30), ({"calculate_per_token_loss": True}, 3)])
def test_what_the_loss_is_a_sum_over(told: dict[str, Any], divisor: int) -> None:
    """As MindFormers' own MFLossMonitor divides it, whether the configuration or the framework says so."""
    given = {**SUMMED, **told}
    assert find_facts(TrainingParameters({}), load_config(given), {}).loss_divisor == divisor
    assert find_facts(TrainingParameters({}), load_config({}), given).loss_divisor == divisor


FROM_ZERO = {"epoch_num": 2, "batch_num": 3, "cur_epoch_num": 3, "cur_step_num": 1}
"""What MindSpore says in the first step of `train(4, data, initial_epoch=2)`."""


@pytest.mark.parametrize(
    ("said", "options", "first", "place", "secs"),
    [
        ({"epoch_num": 4, "batch_num": 3, "cur_epoch_num": 1, "cur_step_num": 1}, {}, 1, "epoch 1/4 step: 2/3", 10),
        (FROM_ZERO, {}, 1, "epoch 3/4 step: 2/3", 4),
        (FROM_ZERO, {"epochs": 4, "steps_per_epoch": 3, "initial_step": 7}, 8, "epoch 3/4 step: 3/3", 3),
        ({"epoch_num": 4, "batch_num": 3, "cur_epoch_num": 3, "cur_step_num": 7}, {}, 7, "epoch 3/4 step: 2/3", 4),
    ],
)
def test_place_and_time_left_of_a_training_that_was_resumed(
    tmp_path: Path, said: dict[str, Any], options: dict[str, Any], first: int, place: str, secs: float
) -> None:
    """By MindSpore's `initial_epoch`, by MindFormers, and of one that the monitor meets in its middle."""
    parameters = TrainingParameters(said)
    engine = Engine(tmp_path, interval=0, metrics=["loss"], auto_print=True)
    facts = find_facts(parameters, engine.recorder.config, options)
    engine.recorder.begin(facts)
    complete_facts(engine.recorder.training, parameters)
    for step in (first, first + 1):
        engine.step(step, epoch=said["cur_epoch_num"])
    engine.end()
    line = (engine.directory / "rank_0" / "monitor.log").read_text().splitlines()[2]
    assert f" {place}, loss: 0.5, ETA: 0:00:{secs:02}, " in line


def test_overflow_is_counted_and_no_alarm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(tmp_path, interval=2, metrics=["loss", "grad_norm", "overflow", "loss_scale"]).begin()
    engine.step(1, outputs=(1.0, False, 1024.0, 0.1, 3.0))
    engine.step(2, outputs=(math.nan, True, 1024.0, 0.1, math.inf))
    engine.step(3, outputs=(0.5, np.bool_(False), 512.0, 0.1, 2.0))
    lines = engine.end()
    assert values_of(engine.samples(), "overflow") == {1: 0, 3: 1}
    assert values_of(engine.samples(), "loss_scale") == {1: 1024, 3: 512}
    assert engine.samples()[1]["max"]["grad_norm"] == 2.0
    assert engine.lines("warning") == []
    assert lines[-1]["overflows"] == 1


def test_learning_rates_of_groups_have_names_of_their_own(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=0, metrics=["lr"])
    engine.begin(learning_rates=lambda: {"lr/group_0": 0.1, "lr/group_1": 0.01})
    engine.step(1)
    engine.step(2, outputs=(0.5, False, 1.0, 0.7))  # the outputs say it themselves
    engine.end()
    assert [line["values"] for line in engine.samples()] == [{"lr/group_0": 0.1, "lr/group_1": 0.01}, {"lr": 0.7}]


def test_the_update_ratio_compares_two_steps_in_a_row(tmp_path: Path) -> None:
    class Parameter:
        shape = (2,)
        array = np.array([3.0, 4.0], np.float32)

        def asnumpy(self) -> np.ndarray[Any, Any]:
            return self.array  # shares memory with what trains

    parameter = Parameter()
    metrics = [{"name": "update_ratio", "from_step": 2}]
    engine = Engine(tmp_path, interval=5, metrics=metrics).begin(parameters=lambda: [parameter])
    for step in range(1, 15):
        engine.step(step)
        parameter.array[:] = (3.0, 4.0 + 0.5 * (step % 2))
    engine.end()
    ratios = values_of(engine.samples(), "update_ratio")
    assert list(ratios) == [6, 11, 14]
    assert all(ratio is not None and ratio == pytest.approx(0.1, rel=0.1) for ratio in ratios.values())


# ------------------------------------------------------------------ a metric of the user's own


def test_metrics_of_the_users_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []

    @register_metric("twice_the_loss", meaning="for the test", bad="above")
    class TwiceTheLoss(Metric):
        def observe(self, facts: StepFacts) -> float | None:
            return None if facts.loss is None else 2 * facts.loss

    @register_metric("where")
    class Where(Metric):
        off_thread = True

        def sample(self, window: Window) -> float | None:
            names.append(threading.current_thread().name)
            return 1.0

    @register_metric("broken")
    class Broken(Metric):
        def observe(self, facts: StepFacts) -> float | None:
            raise RuntimeError("it is broken")

    @register_metric("wordy")
    class Wordy(Metric):
        def observe(self, facts: StepFacts) -> Any:
            return "much"

    with pytest.raises(UsageError, match="exists already"):
        register_metric("loss")(TwiceTheLoss)
    with pytest.raises(UsageError, match="is not a class derived from Metric"):
        register_metric("number")(int)  # type: ignore[type-var]
    engine = Engine(tmp_path, interval=0, metrics=["loss", "twice_the_loss", "where", "broken", "wordy"]).begin()
    for step in (1, 2, 3):
        engine.step(step)
    engine.end()
    assert values_of(engine.samples(), "twice_the_loss") == {1: 1.0, 2: 1.0, 3: 1.0}
    assert values_of(engine.samples(), "where") == {1: 1.0, 2: 1.0, 3: 1.0}
    assert set(names) == {"ms_summary_bridge monitor"}
    said = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert [line.split(" cannot be measured and is left out: ")[0] for line in said] == [
        "test: broken",
        "test: wordy",
    ]


# ------------------------------------------------------------------ the threads


def test_steps_are_sampled_while_the_training_does_nothing_more(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=0, metrics=["loss", "step_time"]).begin()
    for step in (1, 2, 3):
        engine.step(step)
    journal = engine.directory / "rank_0" / "metrics.jsonl"
    wait_until(lambda: journal.exists() and len(engine.samples()) == 2)  # the third is read when the next one begins
    engine.end()
    assert values_of(engine.samples(), "step_time") == {2: 1.0, 3: 1.0}


@pytest.mark.parametrize("loss", [0.5, math.nan], ids=["quiet", "nan"])
def test_a_metric_that_does_not_return_holds_up_no_step(
    loss: float, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, gate = threading.Event(), threading.Event()

    @register_metric("waiting")
    class Waiting(Metric):
        def observe(self, facts: StepFacts) -> float | None:
            if threading.current_thread() is not threading.main_thread():
                entered.set()
                gate.wait()
            return facts.loss

    patience = Patience(step_secs=0.01)
    engine = Engine(tmp_path, patience=patience, interval=3600, metrics=["loss", "waiting"]).begin()
    engine.step(1)
    engine.step(2)
    assert entered.wait(60)
    for step in range(3, 3000):
        engine.step(step, outputs=loss)
    said = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert said == ["test: a metric or a rule does not return: steps are looked at when it does"]
    gate.set()
    engine.end()
    first, last = engine.samples()
    assert (first["step"], last["step"], last["interval_steps"]) == (1, 2999, 2998)
    assert last.get("nonfinite_steps", {}) == ({"loss": 2997, "waiting": 2997} if math.isnan(loss) else {})


@pytest.mark.parametrize("at_end", [False, True], ids=["too many", "at the end"])
def test_steps_that_a_metric_holds_up_for_ever_are_counted(
    at_end: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, gate = threading.Event(), threading.Event()

    @register_metric("waiting")
    class Waiting(Metric):
        def observe(self, facts: StepFacts) -> float | None:
            entered.set()
            gate.wait()
            return None

    # Who waits in vain at the end gives up soon; who does not need to gets a minute.
    end_secs, most_calls = (0.01, 10**9) if at_end else (60.0, 100)
    patience = Patience(step_secs=0.01, end_secs=end_secs, close_secs=0.01, most_calls=most_calls)
    engine = Engine(tmp_path, patience=patience, interval=3600, metrics=["loss", "waiting"]).begin()
    engine.step(1)
    engine.step(2)
    assert entered.wait(60)
    for step in range(3, 1000):
        engine.step(step)
    assert (engine.recorder.queue.dropped > 0) != at_end
    if not at_end:
        gate.set()
        wait_until(engine.recorder.flush)
        lost = engine.recorder.queue.dropped
        for step in (1000, 1001):
            engine.step(step, 5.0)
    engine.recorder.end()
    gate.set()
    wait_until(lambda: engine.lines("end"))
    said = [record.getMessage() for record in caplog.records if "steps are left out" in record.getMessage()]
    assert sum(int(text.split(": ")[2].split()[0]) for text in said) == engine.recorder.queue.dropped
    (end,) = engine.lines("end")
    assert end["dropped"] == engine.recorder.queue.dropped
    if at_end:
        assert end["dropped"] == 998
    else:
        assert sum(line["interval_steps"] for line in engine.samples()) == 1001 - lost
        assert sum(end["breakdown"].values()) == 999 + 2 * 5, "only the values of what was left out are missing"


@pytest.mark.parametrize("at_once", [False, True], ids=["sample", "at once"])
def test_what_only_the_training_thread_may_measure_is_left_to_it(
    at_once: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    class Observed(Metric):
        def observe(self, facts: StepFacts) -> float | None:
            threads.append(threading.current_thread())
            return 1.0

    class Sampled(Metric):
        def sample(self, window: Window) -> float | None:
            threads.append(threading.current_thread())
            return 1.0

    Observed.at_once = at_once
    register_metric("bound")(Observed if at_once else Sampled)
    engine = Engine(tmp_path, interval=0, metrics=["loss", "bound"]).begin()
    settled = 0

    def settle() -> None:
        """The training thread comes second."""
        nonlocal settled
        settled += 1
        other = threading.Thread(target=engine.recorder.queue.gather)
        other.start()
        other.join()
        engine.recorder.queue.settle()

    engine.recorder.tap.settle = settle
    for step in (1, 2, 3):
        engine.step(step)
    engine.end()
    assert settled == 3
    assert threads == 3 * [threading.main_thread()]
    assert values_of(engine.samples(), "bound") == {1: 1.0, 2: 1.0, 3: 1.0}


def test_a_signal_that_ends_the_training_while_steps_are_looked_at(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:

    @register_metric("signalled")
    class Signalled(Metric):
        at_once = True

        def observe(self, facts: StepFacts) -> float | None:
            if facts.step == 3:
                signal.raise_signal(signal.SIGUSR1)
            return facts.loss

    patience = Patience(end_secs=0.01)
    engine = Engine(tmp_path, patience=patience, interval=3600, metrics=["loss", "signalled"]).begin()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: engine.recorder.end("a signal"))
    try:
        for step in range(1, 5):
            engine.step(step)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [(line["step"], line["interval_steps"]) for line in engine.samples()] == [(1, 1), (3, 2)]
    assert not [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]


def test_a_flush_says_whether_all_steps_are_in_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate = threading.Event(), threading.Event()

    @register_metric("waiting")
    class Waiting(Metric):
        def observe(self, facts: StepFacts) -> float | None:
            entered.set()
            gate.wait()
            return facts.loss

    engine = Engine(tmp_path, interval=3600, metrics=["waiting"]).begin()
    assert engine.recorder.flush()
    engine.step(1)
    engine.step(2)
    assert entered.wait(60)
    assert not engine.recorder.flush(0.01)
    engine.recorder.faults.is_forked = True
    assert engine.recorder.flush(0.01), "a copy in a data worker has nothing to wait for"
    engine.recorder.faults.is_forked = False
    gate.set()
    assert engine.recorder.flush()
    assert [line["step"] for line in engine.samples()] == [1]
    engine.end()


# ------------------------------------------------------------------ B24: throughput

RATES = {
    "plain": ([(0.0, 0), (60.0, 1), (61.0, 2), (62.0, 3)], {2: 1000.0, 3: 1000.0}),
    "resume": ([(0.0, 50000), (1.0, 50001), (2.0, 50002)], {50002: 1000.0}),
    "zero_time": ([(0.0, 0), (1.0, 1), (1.0, 2), (2.0, 3)], {3: 1000.0}),
    "clock_back": ([(100.0, 0), (120.0, 1), (40.0, 2), (41.0, 3)], {3: 1000.0}),
    "rollback": ([(0.0, 100), (1.0, 101), (2.0, 90), (3.0, 91)], {90: 1000.0, 91: 1000.0}),
}


@pytest.mark.parametrize("name", RATES)
def test_rates_are_those_of_this_session(tmp_path: Path, name: str) -> None:
    calls, right = RATES[name]
    engine = Engine(tmp_path, interval=0, metrics=["tokens_per_second"])
    engine.clock.now = calls[0][0]
    engine.begin(initial_step=calls[0][1], samples_per_step=10, seq_length=100, tells_beginnings=False)
    engine.recorder.resume()
    for now, step in calls[1:]:
        engine.clock.now = now
        engine.end_step(step, outputs=0.5)
    engine.end()
    assert values_of(engine.samples(), "tokens_per_second") == right


def test_the_rate_of_an_interval_is_all_its_tokens_over_all_its_time(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=9.5, metrics=["tokens_per_second", "samples_per_second", "mfu"])
    engine.begin(samples_per_step=10, seq_length=100, model_flops=50.0, peak_flops=100.0)
    for step in range(1, 12):
        engine.step(step, 1.0)
    for step in range(12, 32):
        engine.step(step, 0.5)
    engine.end()
    rates = values_of(engine.samples(), "tokens_per_second")
    assert rates == {11: 1000.0, 30: pytest.approx(2000.0), 31: 2000.0}
    assert values_of(engine.samples(), "mfu") == {11: 0.5, 30: pytest.approx(1.0), 31: 1.0}
    slow = Engine(tmp_path / "uneven", interval=1000, metrics=["tokens_per_second"])
    slow.begin(samples_per_step=10, seq_length=100)
    for step, secs in enumerate([5.0, 1.0, 9.0], start=1):
        slow.step(step, secs)
    slow.end()
    last = slow.samples()[-1]
    assert (last["mean"]["tokens_per_second"], last["max"]["tokens_per_second"]) == (200.0, 1000.0)
    assert last["min"]["tokens_per_second"] == pytest.approx(1000 / 9)


def test_evaluation_and_saving_are_no_training(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=0, metrics=["tokens_per_second"]).begin(samples_per_step=10, seq_length=100)
    engine.step(1)
    for step, kind in ((2, "evaluation"), (3, "checkpoint")):
        with engine.recorder.spending(kind):
            engine.clock.now += 300.0
        engine.step(step)
    engine.recorder.pause()  # between two epochs
    engine.clock.now += 50.0
    engine.recorder.resume()
    engine.step(4)
    lines = engine.end()
    assert values_of(engine.samples(), "tokens_per_second") == {2: 1000.0, 3: 1000.0, 4: 1000.0}
    assert lines[-1]["breakdown"] == {
        "data": 0.0,
        "compute": 3.0,
        "callbacks": 0.0,
        "checkpoint": 300.0,
        "evaluation": 300.0,
        "compile": 1.0,
        "other": 50.0,
    }


def test_accumulated_batches_count_all_their_tokens(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=0, metrics=["tokens_per_second"]).begin(samples_per_step=40, seq_length=100)
    for step in (1, 2):
        engine.step(step)
    engine.end()
    assert values_of(engine.samples(), "tokens_per_second") == {2: 4000.0}


def test_what_is_not_known_is_left_out_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(
        tmp_path, interval=0, auto_print=True, metrics=["tokens_per_second", "samples_per_second", "mfu", "lr"]
    )
    engine.begin()
    for step in (1, 2, 3):
        engine.step(step, outputs="0.5")  # a text is no loss
    engine.end()
    assert [line["values"] for line in engine.samples()] == [{}, {}, {}]
    said = [record.getMessage() for record in caplog.records]
    assert sum("give seq_length" in message for message in said) == 1
    assert sum("can be the loss" in message for message in said) == 1
    *unfed, usual = (message.partition("no number comes for ")[2] for message in said if "no number comes" in message)
    starts = (
        "tokens_per_second: give seq_length",
        "samples_per_second: give global_batch_size",
        "mfu: give peak_flops",
    )
    starts += ("lr: the training needs an optimizer",)
    assert [start for start in starts if not any(text.startswith(start) for text in unfed)] == []
    assert len(unfed) == len(starts)
    names, _, rest = usual.partition(", which rules look at by default: ")
    assert {"loss", "grad_norm", "overflow"} <= set(names.split(", ")), "neither a loss nor a norm"
    assert rest == "config check says what it takes"


USUAL = "overflow, which rules look at by default: config check says what it takes"


@pytest.mark.parametrize("rule", ["gradient_explosion", {"rule": "gradient_explosion", "actions": ["log"]}])
def test_a_rule_that_somebody_named_has_its_needs_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, rule: Any
) -> None:
    engine = Engine(tmp_path, interval=0, metrics=["loss"], alerts=[rule, "overload", "memory_trend"], auto_print=True)
    engine.begin()
    for step in (1, 2, 3):
        engine.step(step)
    engine.end()
    said = [message for record in caplog.records if "no number comes" in (message := record.getMessage())]
    by_metric = {text.split("no number comes for ")[1].split(" (")[0]: text for text in said}
    assert by_metric.keys() == {"grad_norm", "temperature", "memory_usage", USUAL}
    assert "(for gradient_vanishing, gradient_explosion): the training cell must return" in by_metric["grad_norm"]
    assert "(for overload): on an NPU npu-smi must be on PATH" in by_metric["temperature"]
    assert "(for memory_trend): list it in metrics" in by_metric["memory_usage"]


def test_one_call_for_a_sink_of_many_steps(tmp_path: Path) -> None:
    """B23: 100 steps in 10 s, so a step took 0.1 s, and 4096 tokens each."""
    engine = Engine(tmp_path, interval=0, metrics=["loss", "step_time", "tokens_per_second"])
    engine.begin(samples_per_step=4, seq_length=1024)
    for step in (100, 200, 300):
        engine.step(step, 10.0, steps=100)
        engine.recorder.pause()
    engine.end()
    assert values_of(engine.samples(), "loss") == {100: 0.5, 200: 0.5, 300: 0.5}
    assert values_of(engine.samples(), "step_time") == {200: 0.1, 300: 0.1}
    assert values_of(engine.samples(), "tokens_per_second") == {200: 40960.0, 300: 40960.0}
    assert [line["interval_steps"] for line in engine.samples()] == [100, 100, 100]


# ------------------------------------------------------------------ where the time goes


def test_the_breakdown_has_a_verdict_in_words(tmp_path: Path) -> None:
    engine = Engine(tmp_path, interval=0, metrics=["data_time", "step_time"]).begin()
    engine.recorder.resume()
    for step in range(1, 12):
        engine.step(step, 10.0, data_secs=6.0)
    lines = engine.end()
    assert values_of(engine.samples(), "data_time") == dict.fromkeys(range(2, 12), 6.0)
    assert lines[-1]["verdict"] == "60 % waiting for data, 36 % computing, 4 % in the first step, which compiles"
    assert describe({"data": 0.0}) == "no step was timed"


# ------------------------------------------------------------------ warnings


def warned(engine: Engine) -> list[tuple[int, str]]:
    return [(line["step"], line["text"].partition(": ")[2]) for line in engine.lines("warning")]


def callback(**params: Any) -> dict[str, Any]:
    return {"params": params}


def test_a_limit_warns_once_until_the_cool_down_is_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = callback(warn_on_value={"loss": 50.0}, cool_down=10)
    engine = Engine(tmp_path, interval=1000, auto_print=True, metrics=["loss"], callback=limits).begin()
    for step in range(1, 25):
        engine.step(step, outputs=60.0 if step >= 3 else 1.0)
    lines = engine.end()
    assert warned(engine) == [
        (3, "loss is 60, above 50"),
        (13, "loss is 60, above 50 (9 more since the last warning)"),
        (23, "loss is 60, above 50 (9 more since the last warning)"),
    ]
    assert engine.lines("warning")[0]["above"] == 50.0
    assert lines[-1]["warnings"] == {"loss": 3}
    shown = [record for record in caplog.records if "above 50" in record.getMessage()]
    assert [record.levelno for record in shown] == [logging.WARNING] * 3


def test_a_rate_warns_below_its_limit(tmp_path: Path) -> None:
    limits = callback(warn_on_value={"tokens_per_second": 1000, "step_time": {"above": 5}})
    engine = Engine(tmp_path, interval=0, metrics=["tokens_per_second", "step_time"], callback=limits)
    engine.begin(samples_per_step=10, seq_length=100)
    for step, secs in enumerate([60.0, 0.5, 2.0], start=1):
        engine.step(step, secs)
    engine.end()
    assert warned(engine) == [(3, "tokens_per_second is 500, below 1000")]


def test_no_warning_before_its_steps_are_over(tmp_path: Path) -> None:
    limits = callback(warn_on_value={"loss": 1.0}, warn_after_steps=5, cool_down=0)
    engine = Engine(tmp_path, metrics=["loss"], callback=limits).begin(initial_step=1000)
    for step in range(1001, 1008):
        engine.step(step, outputs=2.0)
    engine.end()
    assert [step for step, _ in warned(engine)] == [1006, 1007]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_warns_without_a_limit_at_its_own_step(tmp_path: Path, value: float) -> None:
    """B20: a NaN in (loss, overflow, scale) passes MindSpore's LossMonitor unseen."""
    engine = Engine(tmp_path, interval=1000, metrics=["loss"]).begin()
    for step in range(1, 10):
        engine.step(step, outputs=(value if step == 5 else 1.0, False, 1024.0))
    engine.end()
    assert warned(engine) == [(5, f"loss is {'NaN' if math.isnan(value) else value}")]


# ------------------------------------------------------------------ ranks


@pytest.mark.parametrize(
    ("environment", "rank", "ranks", "source"),
    [
        ({}, 0, 1, "default: no launcher"),
        ({"RANK_ID": "3", "RANK_SIZE": "8"}, 3, 8, "environment variable RANK_ID"),
        ({"RANK_ID": "1", "MS_WORKER_NUM": "2"}, 1, 2, "environment variable RANK_ID"),
        ({"RANK": "5", "WORLD_SIZE": "6"}, 5, 6, "environment variable RANK"),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3"}, 2, 3, "environment variable OMPI_COMM_WORLD_RANK"),
        ({"RANK_ID": "none"}, 0, 1, "default: no launcher"),
    ],
)
def test_where_the_rank_is_read_from(environment: dict[str, str], rank: int, ranks: int, source: str) -> None:
    place = find_process_rank(environment)
    assert (place.rank, place.ranks, place.source) == (rank, ranks, source)


def test_each_rank_says_once_where_it_stands(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = ProcessRank(
        rank=3, ranks=8, source="environment variable RANK_ID", device="Ascend", device_id=3, host="node7"
    )
    engine = Engine(tmp_path, place, interval=0, auto_print=True, metrics=["loss", "global_rank"]).begin()
    for step in (1, 2):
        engine.step(step)
    engine.end()
    said = [record.getMessage() for record in caplog.records]
    assert said.count("global rank 3 of 8 (from environment variable RANK_ID), Ascend 3 of node7") == 1
    assert sum("global rank" in message for message in said) == 1
    assert values_of(engine.samples(), "global_rank") == {1: 3, 2: 3}
    assert engine.lines("header")[0]["rank_source"] == "environment variable RANK_ID"


# ------------------------------------------------------------------ loops of one's own


def test_the_console_line_of_a_loop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    section = {"interval": 0, "backend": ["local"], "save_dir": str(tmp_path), "metrics": ["loss", "lr"]}
    with Monitor(section, epochs=3, steps_per_epoch=2) as monitor:
        monitor.step(loss=5.43212345, lr=1e-4, accuracy=0.25, tokens=10)
        monitor.step(loss=np.float32(2.5), lr=1e-4)
        monitor.step(loss=np.array([1.5]), lr=1e-4)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[1] == "epoch 1/3 step: 1/2, loss: 5.4321, lr: 0.0001, accuracy: 0.25, first step: compiled"
    assert lines[2].startswith("epoch 1/3 step: 2/2, loss: 2.5, lr: 0.0001, ETA: 0:00:00, ")
    assert lines[2].endswith(", interval_steps: 1")
    assert lines[3].startswith("epoch 2/3 step: 1/2, loss: 1.5, ")
    assert lines[4].startswith("no number comes for ")
    assert lines[5].startswith("training ended at step 3 after ")
    assert lines[6] == "best loss: 1.5 at step 3"
    assert any(line.startswith("journal: ") for line in lines)
    log = Path(str(monitor.run_directory), "rank_0", "monitor.log").read_text()
    assert [line.split(" ", 3)[3] for line in log.splitlines()] == lines


def test_a_number_for_each_class_is_named_and_never_their_mean(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    section = {"interval": 0, "backend": ["local"], "save_dir": str(tmp_path), "run_id": "run", "metrics": ["loss"]}
    with Monitor(section) as monitor:
        for _ in range(2):
            monitor.step(loss=np.array([1.0, 3.0]), recall=np.array([0.1, 0.9]), accuracy=np.array([0.5]))
    said = [record.getMessage() for record in caplog.records if "recall" in record.getMessage()]
    assert len(said) == 1
    assert "recall is left out: it has 2 numbers, give each under a name of its own, such as recall_0" in said[0]
    lines = (Path(str(monitor.run_directory)) / "rank_0" / "metrics.jsonl").read_text().splitlines()
    samples = [line["values"] for line in map(json.loads, lines) if line["kind"] == "sample"]
    assert [(values["loss"], values["accuracy"], "recall" in values) for values in samples] == [(2.0, 0.5, False)] * 2


def test_counts_of_a_loop_may_be_of_any_type_of_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A numpy integer cost the whole journal, and a step that is no number each step behind it."""
    section = {"interval": 0, "backend": ["local"], "save_dir": str(tmp_path), "run_id": "run", "metrics": ["loss"]}
    first: dict[str, Any] = {"step": np.int64(1), "epoch": np.int32(1), "samples": np.int64(2), "tokens": np.array(8)}
    second: dict[str, Any] = {"step": np.array([2]), "epoch": 1.0}
    wrong: Any = "three"
    with Monitor(section) as monitor:
        monitor.step(loss=1, **first)
        monitor.step(loss=2, **second)
        monitor.step(loss=3, step=wrong)
        monitor.step(loss=4, step=1 << 70)
        monitor.step(loss=5, step=1 << 62)
        monitor.step(loss=6, step=9)
    samples = [line for line in strict_lines(tmp_path / "default" / "run" / "rank_0") if line["kind"] == "sample"]
    assert values_of(samples, "loss") == {1: 1, 2: 2, 3: 3, 4: 4, 1 << 62: 5, 9: 6}
    assert [line["epoch"] for line in samples] == [1, 1, None, None, None, None]
    said = [record.getMessage() for record in caplog.records if record.levelno > logging.INFO]
    assert said == ["monitor: step is left out: 'three' is not a whole number of 64 bits"]


def test_a_kind_of_time_that_does_not_exist(tmp_path: Path) -> None:
    with (
        Monitor({"backend": ["local"], "save_dir": str(tmp_path)}) as monitor,
        pytest.raises(UsageError, match="'validation' is not a kind of time; give one of evaluation, checkpoint, data"),
        monitor.timing("validation"),
    ):
        pass


def test_a_loop_without_a_step_has_no_verdict(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Monitor({"backend": ["local"], "save_dir": str(tmp_path)}):
        pass
    assert "time: no step has ended" in [record.getMessage() for record in caplog.records]


def test_a_loop_that_fails_says_how_it_ended(tmp_path: Path) -> None:
    def loop() -> None:
        with Monitor({"backend": ["local"], "save_dir": str(tmp_path)}) as monitor:
            monitor.step(loss=1.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop()
    (journal,) = tmp_path.glob("default/*/rank_0/metrics.jsonl")
    assert '"reason":"KeyboardInterrupt"' in journal.read_text().splitlines()[-1]


def test_a_monitor_that_is_switched_off_does_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Monitor({"enable": False, "save_dir": str(tmp_path / "out")}) as monitor, monitor.timing("evaluation"):
        monitor.step(loss=1.0)
    assert not (tmp_path / "out").exists()
    assert [record.getMessage() for record in caplog.records] == [
        "the monitor is switched off by `enable: false` in dict"
    ]


# ------------------------------------------------------------------ small things


def test_a_first_step_that_is_told_is_one_step(tmp_path: Path) -> None:
    """A loop that goes on at 50000, and does not say so: nothing before it was of this session."""
    for number, (keys, steps) in enumerate([({}, 1), ({"initial_step": 50_000}, 1), ({"initial_step": 49_990}, 11)]):
        section = {"interval": 0, "backend": ["local"], "save_dir": str(tmp_path), "run_id": f"run{number}", **keys}
        with Monitor({**section, "watchdog": False}) as monitor:
            monitor.step(step=50_001, loss=1.0)
            monitor.step(step=50_002, loss=1.0)
            monitor.step(step=50_012, loss=1.0)
        lines = [line for line in strict_lines(Path(str(monitor.run_directory), "rank_0")) if line["kind"] == "sample"]
        assert [(line["step"], line["interval_steps"]) for line in lines] == [
            (50_001, steps),
            (50_002, 1),
            (50_012, 10),
        ]


def test_the_end_names_what_is_there_and_can_be_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(end_summary, "sys", types.SimpleNamespace(executable=str(tmp_path / "python")))

    def end(save_dir: Path) -> list[str]:
        caplog.clear()
        backends = ["local", "tensorboard", "mindinsight"]
        section = {"backend": backends, "save_dir": str(save_dir), "run_id": "run", "metrics": ["loss"]}
        with Monitor({**section, "watchdog": False}) as monitor:
            monitor.step(loss=1.0)
        return [record.getMessage() for record in caplog.records]

    said = end(tmp_path / "a b")
    summary = tmp_path / "a b" / "default" / "run" / "summary"
    assert f"files for TensorBoard, which is not installed here: {summary}" in said
    assert f"files for MindInsight, which is not installed here: {summary}" in said
    assert f"journal: {summary.parent / 'rank_0' / 'metrics.jsonl'}" in said
    (programs / "tensorboard").write_text("#!/bin/sh\nexit 0\n")
    (programs / "tensorboard").chmod(0o755)
    assert f"TensorBoard: tensorboard --logdir '{summary}'" in end(tmp_path / "a b")
    (tmp_path / "file").write_text("")
    assert not any(line.startswith(("journal: ", "TensorBoard: ", "files for ")) for line in end(tmp_path / "file"))


def test_a_variable_in_save_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTPUT_PLACE", str(tmp_path))
    with Monitor({"save_dir": "${OUTPUT_PLACE}/x", "backend": "local", "run_id": "run", "watchdog": False}) as monitor:
        monitor.step(loss=1.0)
    assert (tmp_path / "x" / "default" / "run" / "rank_0" / "metrics.jsonl").exists()


def test_the_time_that_is_left_counts_evaluations(tmp_path: Path) -> None:
    """Steps of 1 s, 10 in each of 3 epochs, and 20 s of evaluation behind each epoch."""
    engine = Engine(tmp_path, interval=0, metrics=["loss"], auto_print=True).begin(epochs=3, steps_per_epoch=10)
    for step in range(1, 31):
        engine.step(step)
        if step % 10 == 0:
            with engine.recorder.spending("evaluation"):
                engine.clock.now += 20.0
    engine.end()
    log = (engine.directory / "rank_0" / "monitor.log").read_text()
    left = dict(enumerate(re.findall(r"ETA: ([\d:]+)", log), start=2))  # the first step compiles
    assert left[10] == "0:00:20", "nobody knows of evaluations yet"
    assert left[11] == "0:00:59", "19 steps and two evaluations"
    assert left[20] == "0:00:50", "the second one comes behind this step"
    assert left[21] == "0:00:29"
    assert left[30] == "0:00:20"
