"""What the ranks of a training tell each other, and what becomes of it."""

from __future__ import annotations

import csv
import json
import math
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor import load_config
from ms_summary_bridge.monitor.ranks import gathering as gathering_module
from ms_summary_bridge.monitor.ranks.gathering import Gathering
from ms_summary_bridge.monitor.ranks.statistics import join_rows, make_row
from ms_summary_bridge.training.distributed import ProcessRank
from ms_summary_bridge.training.faults import Faults
from tests.bridge_scripts.runs import boards, msrun, series
from tests.monitor_run import Engine, run_script, strict_lines, values_of

NAMES = ("loss", "step_time", "samples_per_second")


# ------------------------------------------------------------------ the configuration


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (True, ("loss", "step_time", "samples_per_second", "memory_usage")),
        (False, ()),
        (None, ()),
        ("loss", ("loss",)),
        (["local_loss", "temperature", "npu_temperature"], ("local_loss", "temperature")),
    ],
)
def test_what_is_told_is_one_key(given: Any, names: tuple[str, ...]) -> None:
    config = load_config({"aggregate": given})
    assert (config.aggregate, config.aggregate_steps) == (names, 100)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"aggregate": ["losss"]}, "$.aggregate[0]: there is no metric 'losss'; did you mean 'loss'?"),
        ({"aggregate": "epoch"}, "$.aggregate: 'epoch' has no value over ranks"),
        ({"aggregate": {"loss": True}}, "$.aggregate: must be true, false or a list of metrics"),
        ({"aggregate": True, "aggregate_steps": 0}, "$.aggregate_steps: must be 1 or more"),
    ],
)
def test_what_cannot_be_told_is_named(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(section)
    assert said in str(error.value)


# ------------------------------------------------------------------ the numbers


def rows_of(*told: dict[str, float]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.stack([make_row(NAMES, values) for values in told])


def test_values_over_ranks() -> None:
    rows = rows_of(
        {"loss": 1.0, "step_time": 0.5, "samples_per_second": 8.0},
        {"loss": 4.0, "step_time": 0.25, "samples_per_second": 16.0},
        {"loss": 2.5, "step_time": 0.75, "samples_per_second": 4.0},
    )
    values, text = join_rows(NAMES, rows)
    assert values == {
        "all/loss/mean": 2.5,
        "all/loss/min": 1.0,
        "all/loss/max": 4.0,
        "all/loss/max_rank": 1,
        "all/step_time/mean": 0.5,
        "all/step_time/min": 0.25,
        "all/step_time/max": 0.75,
        "all/step_time/slowest_rank": 2,
        "all/samples_per_second/slowest_rank": 2,
        "all/samples_per_second/mean": pytest.approx(28 / 3),
        "all/samples_per_second/min": 4.0,
        "all/samples_per_second/max": 16.0,
    }
    assert text.startswith("loss 2.5 (1 to 4, most on 1), step_time 0.5 (0.25 to 0.75, slowest on 2), ")


def test_a_rank_without_a_value_counts_in_nothing() -> None:
    values, _ = join_rows(NAMES, rows_of({"loss": 1.0}, {}, {"loss": 3.0}))
    assert values == {
        "all/loss/mean": 2.0,
        "all/loss/min": 1.0,
        "all/loss/max": 3.0,
        "all/loss/max_rank": 2,
        "all/loss/absent_ranks": 1,
    }
    assert join_rows(NAMES, rows_of({}, {})) == ({}, "")


def test_a_value_that_is_not_finite_is_no_absent_one() -> None:
    values, text = join_rows(NAMES, rows_of({"loss": 1.0}, {"loss": math.nan}, {}))
    assert math.isnan(values.pop("all/loss/mean"))
    assert values == {
        "all/loss/min": 1.0,
        "all/loss/max": 1.0,
        "all/loss/max_rank": 0,
        "all/loss/absent_ranks": 1,
        "all/loss/nonfinite_ranks": 1,
    }
    assert text == "loss nan (1 to 1, most on 0) (not finite on 1)"
    values, text = join_rows(NAMES, rows_of({"loss": 1e300}, {"loss": math.inf}))
    assert values == {"all/loss/mean": math.inf, "all/loss/nonfinite_ranks": 2}


# ------------------------------------------------------------------ without other ranks


def test_without_communication_it_is_left_out_by_name(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "mindspore", raising=False)  # another test may have loaded it
    gathering = Gathering(("loss",), 1, Faults("test"), lambda *told: pytest.fail("nothing is gathered"))
    for step in range(1, 4):
        assert gathering.passes(step) == (step > 1)
        if step == 1:
            gathering.end_step(step, lambda: pytest.fail("nothing is read"))
    gathering.end()
    assert gathering.is_off
    (record,) = caplog.records
    assert "aggregate: left out on this rank, this program has not imported mindspore" in record.getMessage()


class Collective:
    """Stands for MindSpore's AllGather among two ranks, the other of which has this one's numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[Any] = []
        self.taken = 0
        self.is_waiting = threading.Event()
        self.is_waiting.set()
        monkeypatch.setattr(Gathering, "_connect", lambda gathering: self.connect(gathering))

    def connect(self, gathering: Gathering) -> str:
        gathering._gather = self.gather
        return ""

    def gather(self, row: Any) -> Collective:
        self.sent.append(row)
        return self

    def asnumpy(self) -> Any:
        self.is_waiting.wait()
        self.taken += 1
        return np.stack([self.sent[-1]] * 2)


def test_a_fault_before_the_first_collective_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(gathering: Gathering) -> str:
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(Gathering, "_connect", fail)
    gathering = Gathering(("loss",), 1, Faults("test"), lambda *told: None)
    gathering.end_step(1, lambda: (1, {}))
    assert gathering.passes(2)
    assert "communication cannot be asked: RuntimeError('broken on purpose')" in caplog.text


def test_a_sink_counts_when_a_multiple_lies_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    collective, told = Collective(monkeypatch), []
    gathering = Gathering(("loss",), 10, Faults("test"), lambda *what: told.append(what[0]))
    for number in (4, 8, 12, 16, 20, 24, 50, 54, 59):
        if not gathering.passes(number):
            gathering.end_step(number, partial(tuple, [1000 + number, {"loss": 1.0}]))
    assert len(collective.sent) == 1 + 3, "one to agree"
    assert told == [1012, 1020, 1050]


def test_a_rank_that_does_not_come_is_waited_for_by_the_collective_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At the end of a training too, where the last numbers are still on their way."""
    monkeypatch.setattr(gathering_module, "_LAST_SECS", 0.2)
    collective = Collective(monkeypatch)
    gathering = Gathering(("loss",), 1, Faults("test"), lambda *told: None)
    gathering.end_step(1, lambda: (1, {}))
    gathering.end_step(2, lambda: (2, {"loss": 1.0}))
    taken = collective.taken
    collective.is_waiting.clear()
    begin = time.monotonic()
    gathering.end()
    assert time.monotonic() - begin < 30
    assert (collective.taken, gathering.is_off) == (taken, True)
    assert "the last values of all ranks have not come" in caplog.text
    collective.is_waiting.set()


@pytest.mark.mindspore
def test_what_one_process_says(tmp_path: Path) -> None:
    run_script(tmp_path, [sys.executable], "one_of_all.py", str(tmp_path))
    begin = "monitor: aggregate: left out on this rank"
    assert json.loads((tmp_path / "said.json").read_text()) == {
        "alone": [
            f"{begin}, communication is not initialised: call mindspore.communication.init() before the training"
        ],
        "one_rank": [f"{begin}, there is one rank: its own values are all there is"],
    }
    for name in ("alone", "one_rank"):
        lines = strict_lines(tmp_path / "default" / name / "rank_0")
        assert [line["kind"] for line in lines] == ["header", *["sample"] * 3, "end"]


def test_each_thread_hands_over_what_it_may(tmp_path: Path) -> None:
    """Memory of the host is measured by the writing thread; the rest is that of the steps since the last time."""
    engine = Engine(
        tmp_path, ProcessRank(rank=1, ranks=2), aggregate=["loss", "step_time", "memory_usage", "grad_norm"]
    ).begin()
    engine.step(1, outputs=4.0)
    engine.step(2, 2.0, outputs=3.0)
    engine.step(3, 4.0, outputs=2.0)
    assert engine.recorder.flush()
    step, values = engine.recorder.read_own()
    assert (step, values.pop("loss"), values.pop("step_time")) == (3, 2.0, 3.0)
    engine.recorder._own.refresh()
    engine.step(4, 5.0, outputs=1.0)
    step, values = engine.recorder.read_own()
    assert values.pop("memory_usage") > 1
    assert (step, values) == (4, {"loss": 1.0, "step_time": 5.0})
    engine.end()


# ------------------------------------------------------------------ two ranks


class Trained:
    """What two real ranks did, in trainings one after the other."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.told = [json.loads((directory / f"rank_{rank}.json").read_text()) for rank in (0, 1)]

    def calls(self, name: str) -> tuple[int, int]:
        first, second = (told[name]["calls"] for told in self.told)
        return first, second

    def run(self, name: str) -> Path:
        return self.directory / name / "default" / "run"

    def lines(self, name: str, rank: int, kind: str) -> list[dict[str, Any]]:
        return [line for line in strict_lines(self.run(name) / f"rank_{rank}") if line["kind"] == kind]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    directory = tmp_path_factory.mktemp("all_ranks")
    run_script(directory, msrun(8151, directory / "logs"), "all_ranks.py", str(directory))
    return Trained(directory)


@pytest.mark.mindspore
class TestTwoRanks:
    """Real ones by msrun, in data parallel mode."""

    @pytest.mark.parametrize(
        ("name", "steps"), [("graph", [3, 6, 9]), ("pynative", [3, 6, 9]), ("evaluation", [3, 6, 9]), ("sink", [3, 6])]
    )
    def test_rank_0_has_the_values_of_all(self, trained: Trained, name: str, steps: list[int]) -> None:
        assert trained.calls(name) == (1 + len(steps),) * 2, "one to agree, and one for each"
        found = trained.lines(name, 0, "all")
        assert [line["step"] for line in found] == steps
        assert not trained.lines(name, 1, "all")
        each = [trained.lines(name, rank, "sample") for rank in (0, 1)]
        for metric in ("loss", "local_loss"):
            own = [{step: value or 0.0 for step, value in values_of(lines, metric).items()} for lines in each]
            for line in found:
                told = [np.float32(series[line["step"]]) for series in own]
                values = {key: line["values"][f"all/{metric}/{key}"] for key in ("mean", "min", "max", "max_rank")}
                assert values == {
                    "mean": np.mean(told, dtype=np.float64),
                    "min": min(told),
                    "max": max(told),
                    "max_rank": int(told[1] > told[0]),
                }
                assert values["min"] < values["max"], "each rank has data of its own"
        for line in found:
            first = line["step"] - 2
            times = [
                np.mean(
                    [number for step, number in values_of(lines, "step_time").items() if first <= step <= first + 2]
                )
                for lines in each
            ]
            assert line["values"]["all/step_time/max"] == pytest.approx(max(times), rel=1e-5)
            assert line["values"]["all/step_time/slowest_rank"] == int(np.argmax(times))
            assert 100 < line["values"]["all/memory_usage/min"] < 100_000
            assert not any("grad_norm" in key for key in line["values"]), "no rank has one"

    def test_every_output_of_rank_0_has_them(self, trained: Trained) -> None:
        run = trained.run("graph")
        right = {line["step"]: line["values"]["all/loss/mean"] for line in trained.lines("graph", 0, "all")}
        with (run / "rank_0" / "metrics.csv").open() as file:
            table = [row for row in csv.DictReader(file) if row["all/loss/mean"]]
        assert {int(row["step"]): float(row["all/loss/mean"]) for row in table} == right
        points = series(boards(run / "summary" / "rank_0"), "monitor/all/loss/mean")
        assert dict(zip(points.steps, points.numbers, strict=True)) == pytest.approx(right)
        whole = [line for line in strict_lines(run) if line["kind"] == "all"]
        assert {line["step"]: line["values"]["all/loss/mean"] for line in whole} == right
        assert "all 2 ranks at step 3: loss " in (run / "rank_0" / "monitor.log").read_text()

    def test_ranks_that_are_told_otherwise_leave_it_alike(self, trained: Trained) -> None:
        assert trained.calls("odd") == (1, 1)
        for told in trained.told:
            (said,) = told["odd"]["said"]
            assert "left out on this rank, rank 1 and rank 0 differ in aggregate, in aggregate_steps" in said
        assert [len(trained.lines("odd", rank, "sample")) for rank in (0, 1)] == [7, 7]

    @pytest.mark.parametrize("name", ["broken", "unbegun"])
    def test_a_rank_whose_numbers_cannot_be_read_comes_all_the_same(self, trained: Trained, name: str) -> None:
        assert trained.calls(name) == (3, 3)
        found = trained.lines(name, 0, "all")
        assert [line["step"] for line in found] == [3, 6]
        for line in found:
            assert line["values"]["all/loss/absent_ranks"] == 1
            assert line["values"]["all/loss/min"] == line["values"]["all/loss/max"]
        assert "NaN is sent" in " ".join(trained.told[1][name]["said"])

    def test_a_stop_that_one_rank_asks_for_leaves_nobody_waiting(self, trained: Trained) -> None:
        first, second = trained.calls("stopped")
        assert first == second
        ends = [trained.lines("stopped", rank, "end")[0]["step"] for rank in (0, 1)]
        assert ends == [first, first], "the collective of the last step is one of all ranks"
        assert first < 4000
        bad = trained.lines("stopped", 0, "all")[-1]
        assert (bad["values"]["all/loss/mean"], bad["nonfinite"]) == (None, {"all/loss/mean": "nan", **SAME_LOSS})
        assert bad["values"]["all/loss/nonfinite_ranks"] == 1

    def test_a_backend_without_the_operation_is_named_on_all(self, trained: Trained) -> None:
        assert trained.calls("lacking") == (1, 1)
        for rank, told in enumerate(trained.told):
            (said,) = told["lacking"]["said"]
            assert said.endswith("the collective fails here: Unsupported op [AllGather] on this backend.")
            assert len(trained.lines("lacking", rank, "sample")) == 7

    def test_a_loop_of_ones_own_counts_its_steps(self, trained: Trained) -> None:
        assert trained.calls("loop") == (3, 3)
        found = {line["step"]: line["values"]["all/loss/mean"] for line in trained.lines("loop", 0, "all")}
        assert found == {2: 7.0, 4: 9.0}

    def test_nothing_else_went_wrong(self, trained: Trained) -> None:
        for told in trained.told:
            for name, what in told.items():
                assert all("broken on purpose" in line for line in what["faults"]), name


SAME_LOSS = {"all/local_loss/mean": "nan"}
