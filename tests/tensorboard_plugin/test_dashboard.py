"""The dashboard "MindSpore": what it knows of runs, its answers in real TensorBoards, and the page in Chromium."""

from __future__ import annotations

import itertools
import json
import math
import os
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.errors import BridgeError, InvalidValueError
from ms_summary_bridge.formats.dataset_graph import describe_dataset_graph
from ms_summary_bridge.formats.dataset_pipeline import Stage, read_pipeline
from ms_summary_bridge.formats.protos import ms_pb
from ms_summary_bridge.formats.sessions.lineage import failed_training
from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.runs.report import encode_json
from ms_summary_bridge.tensorboard_plugin import found_files
from ms_summary_bridge.tensorboard_plugin.journal_facts import JournalFacts
from ms_summary_bridge.tensorboard_plugin.run_collector import RunCollector
from ms_summary_bridge.tensorboard_plugin.run_facts import RunFacts
from ms_summary_bridge.tensorboard_plugin.run_table import summarize_settings
from ms_summary_bridge.tensorboard_plugin.series_facts import NonFinite
from tests.conftest import TensorBoardServer
from tests.formats.test_dataset_graph import golden, live_config, payload
from tests.formats.test_lineage import eval_event, put_lineage, train_event, user_event
from tests.mindspore_run import event, histogram, scalar, scalars, summary_bytes, write_summary
from tests.monitor_run import Engine
from tests.runs.test_graph_file import model
from tests.scripted import START, build_file, put, tensorboard_name
from tools.tensorboard_api import TensorBoardClient

EVIL = "<img src=x onerror=window.top.hacked=1>"


class Collected:
    """A collector that looks when it is told to."""

    def __init__(self, directory: Path) -> None:
        self.warnings: list[str] = []
        self._now = 0.0
        self.collector = RunCollector(str(directory), self.warnings.append, clock=lambda: self._now)
        self.look()

    def look(self) -> None:
        self._now += 1e6
        self.collector.look()
        assert self.collector.wait(60)

    def all(self, cursor: str = "") -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(encode_json(self.collector.describe_all(cursor)))
        return answer

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in self.all()["rows"]}

    def one(self, name: str) -> dict[str, Any]:
        keys = [row["key"] for row in self.all()["rows"] if row["name"] == name]
        assert len(keys) == 1, keys
        answer: dict[str, Any] | None = json.loads(encode_json(self.collector.describe_one(keys[0])))
        assert answer is not None
        return answer


def losses(values: dict[int, float], tag: str = "loss") -> list[Any]:
    return [event(step, (tag, scalar(value))) for step, value in values.items()]


def activations(nan_at: dict[int, int], steps: range, tag: str = "layer/activation") -> list[Any]:
    return [event(step, (tag, histogram([3, 4, 5], nan=nan_at.get(step, 0)))) for step in steps]


def write_showcase(logdir: Path) -> None:
    """Writes runs that have all that the page shows, and one of TensorFlow's."""
    for name, rate, seed in (("lenet/slow", 0.01, 1), ("lenet/fast", 0.1, 1), ("lenet/seeded", 0.01, 2)):
        run = logdir / name
        falling = losses({step: 2.0 / step + rate for step in range(1, 21)})
        broken = {step: 40 * step for step in range(12, 21)} if name == "lenet/fast" else {}
        write_summary(
            run, [*falling, *activations(broken, range(1, 21)), *activations({}, range(1, 21), "layer/weight")]
        )
        put_lineage(
            run,
            payload(golden("zip")),
            train_event(START + 21, learning_rate=rate),
            eval_event('{"accuracy": 0.75}', START + 22),
            user_event({"seed": seed}),
        )
    path = next((logdir / "lenet" / "fast").glob("*_MS"))
    data = bytearray(path.read_bytes())
    data[len(data) - 200] ^= 0xFF
    path.write_bytes(data + b"\x10\0\0")
    engine = Engine(logdir, project="llm", alerts=["nonfinite"], tags={"model": "7B"}).begin(samples_per_step=32)
    for step in range(1, 9):
        engine.step(step, 0.5, outputs=float("nan") if step > 5 else 4.0 - step / 2)
    engine.recorder.notes.milestone("warm-up is over")
    engine.end()
    put(logdir / "tf" / tensorboard_name(), build_file("tensorboard", range(1, 5)))


# ---------------------------------------------------------------- what is known of runs


def test_all_about_a_real_training(summary_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "job").symlink_to(summary_dir)
    found = Collected(tmp_path).one("job")
    row = found["row"]
    assert (row["state"], row["is_read"], row["last_step"], row["formats"]) == ("ended", True, 16, ["mindspore"])
    assert row["evidence"] == ["the lineage of the training was written"]
    assert row["loss"]["tag"] == "loss/auto"
    assert 0 < row["loss"]["best"] <= row["loss"]["last"] < 10
    assert len(row["loss"]["spark"]) == row["loss"]["count"] == 16
    assert row["rate"]["steps/s"] > 0
    assert row["health"]["level"] == "ok"
    assert 0 <= row["eval"]["accuracy"]["value"] <= 1
    assert {"scalars", "histograms", "graphs", "hparams"} <= {*row["links"]["dashboards"]}
    lineage = dict(found["lineage"]["hparams"])
    assert lineage["purpose"] == "test"
    assert lineage["batch_size"] == 8
    assert "optimizer" in lineage
    assert found["lineage"]["parts"] == ["training", "evaluation", "own"]
    assert "eval/accuracy" in dict(found["lineage"]["metrics"])
    assert [stage["name"] for stage in found["pipeline"]["stages"]] == ["GeneratorDataset", "Batch"]
    assert found["nonfinite"]["tags"] == 4 + len(found["metrics"])  # of three parameters and the activation
    assert found["nonfinite"]["affected"] == 0
    assert found["reading"] == {"damaged": [], "damaged_count": 0, "incomplete": [], "lost": [], "problems": []}
    assert found["journal"] is None


def test_the_newest_of_the_losses_that_are_the_same_is_in_the_row(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", losses({1: 4.0, 11: 3.0}, "loss/auto"))
    engine = Engine(tmp_path / "run", project="job").begin(samples_per_step=32)
    for step in range(1, 15):
        engine.step(step, 0.5, outputs=math.nan if step == 14 else 4.0 - step / 8)
    engine.end()
    row = Collected(tmp_path).rows()["run"]
    loss = row["loss"]
    assert (row["state"], row["evidence"][0]) == ("non-finite", "the loss is nan since step 14")
    assert (loss["tag"], loss["last"], loss["last_step"], loss["best_step"]) == ("loss", "nan", 14, 13)


def test_a_showcase_is_told_in_full(tmp_path: Path) -> None:
    write_showcase(tmp_path)
    collected = Collected(tmp_path)
    answer = collected.all()
    rows = {row["name"]: row for row in answer["rows"]}
    assert sorted(rows) == ["lenet/fast", "lenet/seeded", "lenet/slow", "llm/run", "tf"]
    states = {"lenet/fast": "ended", "lenet/seeded": "ended", "lenet/slow": "ended", "llm/run": "non-finite"}
    assert {name: row["state"] for name, row in rows.items() if name != "tf"} == states
    settings = {one["name"]: one for one in answer["settings"]}
    assert settings["learning_rate"] == {"name": "learning_rate", "known": 3, "distinct": 2, "usual": 0.01}
    assert settings["seed"] == {"name": "seed", "known": 3, "distinct": 2, "usual": 1}
    assert settings["optimizer"]["distinct"] == 1, "the run with the journal says nothing of the kind"
    assert [one["distinct"] for one in answer["settings"]][:3] == [2, 2, 1], "those that differ come first"
    losses = {name: row["loss"] for name, row in rows.items() if name != "tf"}
    best = {name: (round(loss["best"], 6), loss["best_step"]) for name, loss in losses.items()}
    assert best == {"lenet/slow": (0.11, 20), "lenet/seeded": (0.11, 20), "lenet/fast": (0.2, 20), "llm/run": (1.5, 5)}
    assert losses["llm/run"]["last"] == "nan", "the best does not hide it"
    assert rows["llm/run"]["health"]["level"] == "critical"
    assert rows["lenet/slow"]["rate"] == {"steps/s": 1.0}
    assert rows["llm/run"]["rate"] == {"steps/s": 2.0, "samples/s": 64.0}

    fast = collected.one("lenet/fast")
    assert fast["nonfinite"]["tags"] == 3
    (chart,) = fast["nonfinite"]["charts"]
    assert (chart["tag"], chart["kind"], chart["first_step"], chart["total"]) == (
        "layer/activation",
        "histogram",
        12,
        20,
    )
    assert chart["points"] == [[step, 40 * step, 0] for step in range(12, 21)]
    assert (fast["row"]["health"]["level"], fast["row"]["health"]["nonfinite"]) == ("warning", 9)
    assert fast["reading"]["damaged_count"] == 1
    assert len(fast["reading"]["incomplete"]) == 1

    run = collected.one("llm/run")
    assert [alert["rule"] for alert in run["journal"]["alerts"]] == ["nonfinite"]
    assert run["journal"]["alerts"][0]["step"] == 6
    assert [(one["kind"], one["step"]) for one in run["timeline"]] == [("alarm", 6), ("milestone", 8), ("end", 8)]
    assert run["timeline"][1]["text"] == "warm-up is over"
    assert collected.warnings == []


def test_what_is_added_is_read_and_nothing_else(tmp_path: Path) -> None:
    path = write_summary(tmp_path / "run", losses({1: 3.0, 2: 2.0}))
    collected = Collected(tmp_path)
    assert collected.one("run")["row"]["last_step"] == 2
    size = path.stat().st_size
    both = summary_bytes(losses({1: 3.0, 2: 2.0, 3: 1.5}), wall_time=START)
    with path.open("r+b") as file:
        file.seek(80)
        file.write(b"\xff")  # in what was read before: not to be seen unless that is read again
        file.seek(size)
        file.write(both[size:])
    collected.look()
    found = collected.one("run")
    assert found["row"]["last_step"] == 3
    assert found["events"] == 4
    assert (found["row"]["loss"]["best"], found["row"]["loss"]["best_step"]) == (1.5, 3)
    assert found["reading"]["damaged"] == []
    assert Collected(tmp_path).one("run")["reading"]["damaged_count"] == 1


def test_a_file_in_the_place_of_another_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = write_summary(tmp_path / "run", losses({1: 3.0, 2: 0.5, 3: 2.0}))
    collected = Collected(tmp_path)
    assert collected.one("run")["row"]["loss"]["best"] == 0.5
    path.write_bytes(summary_bytes(losses({1: 9.0})))
    collected.look()
    loss = collected.one("run")["row"]["loss"]
    assert (loss["best"], loss["best_step"], loss["count"], loss["last"]) == (9.0, 1, 1, 9.0)


def test_runs_come_and_go(tmp_path: Path) -> None:
    collected = Collected(tmp_path / "later")
    advice = collected.all()["advice"]
    assert collected.collector.has_runs(), "the page says how to record"
    assert str(tmp_path / "later") in advice["text"]
    assert any("SummaryBridge(" in one["code"] for one in advice["examples"])
    write_summary(tmp_path / "later" / "a", losses({1: 1.0}))
    write_summary(tmp_path / "later" / "b", losses({1: 1.0}))
    collected.look()
    assert list(collected.rows()) == ["a", "b"]
    for path in (tmp_path / "later" / "a").iterdir():
        path.unlink()
    collected.look()
    assert list(collected.rows()) == ["b"]
    assert collected.collector.describe_one("a") is None
    assert collected.all()["advice"] is None


def test_a_tree_without_mindspore_has_rows_and_no_page(tmp_path: Path) -> None:
    put(tmp_path / "tf" / tensorboard_name(), build_file("tensorboard", range(1, 5)))
    put(tmp_path / "other" / "metrics.jsonl", b'{"loss": 1}\n{"loss": 2}\n')
    put(tmp_path / "more" / "metrics.jsonl", b"\xff\x00 no text")
    collected = Collected(tmp_path)
    assert list(collected.rows()) == ["tf"], "a file with a journal's name need not be one"
    assert not collected.collector.has_runs()


def test_a_converted_run_is_told_as_the_one_it_was_made_from(tmp_path: Path) -> None:
    write_showcase(tmp_path / "ms")
    convert_logdir(str(tmp_path / "ms" / "lenet"), str(tmp_path / "tb"))
    before, after = Collected(tmp_path / "ms").one("lenet/fast"), Collected(tmp_path / "tb").one("fast")
    assert after["row"]["formats"] == ["tensorboard"]
    assert dict(after["lineage"]["hparams"]) == dict(before["lineage"]["hparams"])
    assert after["pipeline"] == before["pipeline"]
    assert after["nonfinite"]["charts"] == before["nonfinite"]["charts"]
    for name in ("loss", "last_step", "state"):
        assert after["row"][name] == before["row"][name]


def test_milestones_of_our_callback_are_found_beside_the_run(tmp_path: Path) -> None:
    run = LiveRun(live_config(tmp_path / "run"), lambda kind, message: pytest.fail(message))
    run.write_note(7, START + 7.0, "milestones/best_loss", "best loss so far: 0.5")
    run.close()
    write_summary(tmp_path / "run", losses({1: 1.0}))
    found = Collected(tmp_path).one("run")
    assert [(one["step"], one["tag"], one["text"]) for one in found["timeline"]] == [
        (7, "best_loss", "best loss so far: 0.5")
    ]


def test_many_counts_are_merged_and_the_worst_stay() -> None:
    counts = NonFinite()
    for step in range(10_000):
        counts.add_histogram(step, histogram([1], nan=1000 if step == 7_777 else 1))
    assert len(counts.points) <= 1000
    assert max(point[1] for point in counts.points) == 1000
    assert (counts.nan, counts.affected, counts.first_step, counts.last_step) == (10_999, 10_000, 0, 9_999)


# ---------------------------------------------------------------- states


def write_failed(run: Path) -> None:
    lineage = ms_pb.LineageEvent.FromString(train_event(START + 3)).train_lineage.SerializeToString()
    head = ms_pb.LineageEvent(wall_time=START + 3).SerializeToString()
    failed = failed_training(lineage)
    put_lineage(run, head + b"\x32" + bytes([len(failed) & 127 | 128, len(failed) >> 7]) + failed)


STATES: dict[str, tuple[Callable[[Path], object], float]] = {
    "ended": (lambda run: put_lineage(run, train_event(START + 3)), 1e6),
    "failed": (write_failed, 1e6),
    "running": (lambda run: None, 5.0),
    "stalled": (lambda run: None, 3600.0),
    "unknown": (lambda run: None, 1e6),
}


@pytest.mark.parametrize("state", STATES)
def test_the_state_of_a_run(tmp_path: Path, state: str) -> None:
    write, age = STATES[state]
    start = START if age > 1e5 else time.time() - age
    write_summary(tmp_path / "run", scalars("loss", range(3), start=start), seconds=int(start))
    write(tmp_path / "run")
    row = Collected(tmp_path).rows()["run"]
    assert row["state"] == state, row["evidence"]


@pytest.mark.parametrize("age", [5.0, 1e6])
def test_a_graph_file_alone_does_not_say_whether_a_training_runs(tmp_path: Path, age: float) -> None:
    path = put(tmp_path / "run" / "net.pb", model("Conv2D", "ReLU"))
    os.utime(path, (time.time() - age, time.time() - age))
    row = Collected(tmp_path).rows()["run"]
    assert (row["state"], row["evidence"]) == (
        "unknown",
        ["a graph file alone does not say whether the training runs"],
    )
    engine = Engine(tmp_path, project="p").begin()
    engine.step(1)
    engine.end()
    path.rename(tmp_path / "p" / "run" / "net.pb")
    assert Collected(tmp_path).rows()["p/run"]["state"] == "ended", "a journal says it"


def test_a_training_that_was_resumed_after_its_end_is_running(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", losses({1: 1.0}))
    put_lineage(tmp_path / "run", train_event(START + 1))
    start = time.time() - 10
    write_summary(tmp_path / "run", scalars("loss", range(2, 5), start=start), seconds=int(start))
    assert Collected(tmp_path).rows()["run"]["state"] == "running"


def test_the_journal_says_of_what_a_training_ended(tmp_path: Path) -> None:
    engine = Engine(tmp_path, project="p").begin()
    engine.step(1)
    engine.end("KeyboardInterrupt")
    row = Collected(tmp_path).rows()["p/run"]
    assert (row["state"], row["evidence"]) == ("failed", ["the training ended by KeyboardInterrupt"])


# ---------------------------------------------------------------- journals


def test_a_journal_belongs_to_the_runs_below_it_or_to_the_nearest_above(tmp_path: Path) -> None:
    for name in ("a/b/summary/rank_0", "a/b/summary/rank_1", "c/d", "c"):
        write_summary(tmp_path / name, losses({1: 1.0}))
    for directory in ("a/b", "c/d/e/f", "g"):
        put(tmp_path / directory / "metrics.jsonl", b'{"kind":"header","ranks":1,"format":1}\n')
    put(tmp_path / "a" / "b" / "rank_0" / "metrics.jsonl", b'{"kind":"header","ranks":1,"format":1}\n')
    collected = Collected(tmp_path)
    found = {name: collected.one(name)["journal"] for name in collected.rows()}
    places = {name: journal and os.path.relpath(journal["directory"], tmp_path) for name, journal in found.items()}
    assert places == {
        "a/b": "a/b",
        "c": None,
        "c/d": "c/d/e/f",
        "g": "g",
    }


def test_the_runs_of_a_monitor_have_its_journal(tmp_path: Path) -> None:
    engine = Engine(tmp_path, project="p", backend=["local"]).begin()
    engine.step(1)
    engine.end()
    for rank in (0, 1):
        write_summary(tmp_path / "p" / "run" / "summary" / f"rank_{rank}", losses({1: 1.0}), rank=rank)
    collected = Collected(tmp_path)
    assert sorted(collected.rows()) == ["p/run"]
    found = collected.one("p/run")
    assert found["journal"]["directory"] == str(tmp_path / "p" / "run")
    assert found["row"]["links"]["runs"] == ["p/run/summary/rank_0", "p/run/summary/rank_1"]


def test_a_journal_is_followed_through_torn_lines_and_new_files(tmp_path: Path) -> None:
    path = tmp_path / "run" / "metrics.jsonl"
    alert = json.dumps({"kind": "alert", "rule": "spike", "step": 2, "wall_time": START, "message": "m"}).encode()
    put(path, b'{"kind":"header","ranks":1,"format":1}\nno json\n' + alert + b"\n" + alert[:20])
    collected = Collected(tmp_path)
    assert collected.one("run")["journal"]["alert_counts"] == {"spike": 1}
    with path.open("ab") as file:
        file.write(alert[20:] + b"\n")
    path.rename(path.with_name("metrics.1.jsonl"))
    put(path, b'{"kind":"header","ranks":1,"format":1}\n' + alert.replace(b"spike", b"slow") + b"\n")
    collected.look()
    found = collected.one("run")
    assert found["journal"]["alert_counts"] == {"spike": 2, "slow": 1}
    assert found["reading"]["lost"] == ["journal: 1 lines that cannot be read"]


def test_a_journal_may_hold_anything(tmp_path: Path) -> None:
    odd: list[Any] = [None, 10**30, 10**400, -1, 1e300, [1], {"a": [EVIL]}, "x" * 10_000, True]
    lines: list[dict[str, Any]] = [{"kind": "header", "ranks": 1}]
    for kind, value in itertools.product(("header", "sample", "alert", "warning", "milestone", "stop", "end", 7), odd):
        keys = (
            "step",
            "wall_time",
            "rule",
            "message",
            "text",
            "values",
            "best",
            "reason",
            "tags",
            "command",
            "dropped",
        )
        lines.append({"ranks": value, **dict.fromkeys(keys, value), "kind": kind})
        lines.append({"kind": kind, "values": {"loss": value}, "best": {"loss": value, "step": value}, "step": value})
    put(tmp_path / "run" / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    collected = Collected(tmp_path)
    found = collected.one("run")
    assert found["fault"] == ""
    assert len(json.loads(encode_json(found))["journal"]["alerts"]) == 2 * len(odd)
    assert json.loads(encode_json(collected.all()))["rows"][0]["name"] == "run"


def test_a_line_that_ends_the_reading_is_met_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    take, taken = JournalFacts._take, []

    def fail_at_two(self: JournalFacts, line: dict[str, Any]) -> None:
        taken.append(line.get("step"))
        if line.get("step") == 2:
            raise ValueError("a fault of ours")
        take(self, line)

    monkeypatch.setattr(JournalFacts, "_take", fail_at_two)
    lines = [{"kind": "header", "ranks": 1}, *({"kind": "alert", "rule": "spike", "step": step} for step in (1, 2, 3))]
    put(tmp_path / "run" / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    collected = Collected(tmp_path)
    assert collected.one("run")["fault"] == "ValueError: a fault of ours"
    collected.look()
    assert taken == [None, 1, 2, 3]
    assert collected.one("run")["journal"]["alert_counts"] == {"spike": 2}
    assert collected.one("run")["reading"]["lost"] == ["journal: 1 lines that cannot be read"]


# ---------------------------------------------------------------- parts


def test_settings_by_which_runs_differ() -> None:
    settings: list[dict[str, str | float | bool]] = [
        {"lr": 0.1, "net": "a", "seed": 1.0},
        {"lr": 0.2, "net": "a"},
        {},
        {"commit": "1"},
        {"lr": 0.1, "net": "a", "seed": 1.0},
    ]
    assert summarize_settings(settings) == [
        {"name": "lr", "known": 3, "distinct": 2, "usual": 0.1},
        {"name": "net", "known": 3, "distinct": 1, "usual": "a"},
        {"name": "seed", "known": 2, "distinct": 1, "usual": 1.0},
        {"name": "commit", "known": 1, "distinct": 1, "usual": "1"},
    ]
    assert summarize_settings([]) == []


def names(stages: list[Stage]) -> list[Any]:
    found: list[Any] = []
    for stage in stages:
        found += [[names(branch) for branch in stage.branches]] if stage.branches else []
        found.append(stage.name)
    return found


def test_a_pipeline_is_read_from_its_sources_on() -> None:
    stages = read_pipeline(payload(golden("zip")))
    inner = [["GeneratorDataset", "Map", "Map"], ["GeneratorDataset"]]
    assert names(stages) == [inner, "Zip", "Shuffle", "Repeat", "Batch"]
    (resize, *others) = stages[0].branches[0][1].operations
    assert (resize.name, dict(resize.parameters)["size"]) == ("Resize", "[16, 16]")
    assert [one.name for one in others] == ["RandomCrop", "Rescale", "Normalize", "HwcToChw"]
    assert others[-1].parameters == []
    concat = read_pipeline(payload(golden("concat")))
    assert concat[0].sampler is not None
    assert concat[0].sampler.name == "SequentialSampler"
    assert read_pipeline(payload(ms_pb.DatasetGraph())) == []
    with pytest.raises(InvalidValueError, match="cannot be read"):
        read_pipeline(b"\x0b\xff")


def test_a_long_pipeline_is_read_whole_and_the_page_and_the_text_agree() -> None:
    event = payload(wide_graph())
    (stage,) = read_pipeline(event)
    assert (stage.name, stage.parameters) == ("", [("tensor_op_name", "no name of a stage")])
    assert [one.name for one in stage.operations] == [f"op{number}" for number in range(250)]
    assert stage.operations[0].parameters == [("op_type", "TensorOp"), ("text", "x" * 300)]
    assert "1. **op0** `op_type=TensorOp` `text=xxx" in describe_dataset_graph(event)


def wide_graph() -> Any:
    """Returns a stage without a name that has more operations and a longer text than anybody looks at."""
    graph = ms_pb.DatasetGraph()
    graph.parameter.mapStr["tensor_op_name"] = "no name of a stage"
    for number in range(250):
        graph.operations.add().operationParam.mapStr["tensor_op_name"] = f"op{number}"
    graph.operations[0].operationParam.mapStr.update(op_type="TensorOp", text="x" * 300)
    return graph


def test_a_fault_with_one_run_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("bad", "good"):
        write_summary(tmp_path / name, losses({1: 1.0}))
    read = RunFacts.read

    def fail(facts: RunFacts, run: Any, twins: Any) -> Iterator[None]:
        if run.name == "bad":
            raise ZeroDivisionError("of ours")
        yield from read(facts, run, twins)

    monkeypatch.setattr(RunFacts, "read", fail)
    collected = Collected(tmp_path)
    assert collected.one("bad")["fault"] == "ZeroDivisionError: of ours"
    assert collected.one("good")["row"]["last_step"] == 1
    assert set(collected.warnings) == {"the MindSpore page is not complete: ZeroDivisionError: of ours"}


def test_a_look_that_fails_is_said_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_summary(tmp_path / "run", losses({1: 1.0}))
    with monkeypatch.context() as patch:
        patch.setattr(found_files, "discover", lambda source: 1 / 0)
        collected = Collected(tmp_path)
        assert collected.rows()["run"]["last_step"] == 1, "known by the end of the file"
    assert collected.warnings
    collected.look()
    answer = collected.all()
    assert (answer["fault"], len(answer["rows"])) == ("", 1)


def test_nobody_waits_for_a_file_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_summary(tmp_path / "run", losses({1: 1.0}))
    answers = threading.Event()
    collector = RunCollector(str(tmp_path), pytest.fail, patience_secs=0.01)
    monkeypatch.setattr(RunFacts, "read", lambda *_: (answers.wait(60) for _ in range(1)))
    assert collector.has_runs(60)

    def ask_until_it_fails() -> None:
        while True:  # until the thread has come to the file
            collector.describe_all()

    with pytest.raises(BridgeError, match=r"a file has not answered for 0\.01 seconds"):
        ask_until_it_fails()
    assert collector.has_runs()
    answers.set()
    assert collector.wait(60)
    assert len(collector.describe_all()["rows"]) == 1


# ---------------------------------------------------------------- in TensorBoard


@pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
def test_tensorboard_answers(tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool) -> None:
    write_showcase(tmp_path / "logs")
    client = tensorboard_server(tmp_path / "logs", load_fast)
    listing = client.wait_json("data/plugins_listing", lambda found: found["mindspore"]["enabled"])
    assert listing["mindspore"]["tab_name"] == "MindSpore"
    answer = wait_all_read(client, 5)
    assert answer["source"] == str(tmp_path / "logs"), "not the mirror"
    run = client.get_json("data/plugin/mindspore/run", key="lenet/slow")
    assert dict(run["lineage"]["hparams"])["network"] == "Net"
    assert b"export async function render" in client.get("data/plugin/mindspore/index.js")
    trace = tmp_path / "logs" / "lenet" / "slow" / "n_ascend_ms" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    put(trace, b"[]")
    of_json, of_script = headers_of(client, "data/runs"), headers_of(client, "index.js")
    assert of_json["X-Content-Type-Options"] == "nosniff"
    for route in ("runs", "run?key=lenet/slow", "series", "metric", "ranks?key=lenet/slow"):
        assert headers_of(client, f"data/plugin/mindspore/{route}") == of_json, "those that TensorBoard's own have"
    profile = headers_of(client, "data/plugin/mindspore/profile?key=lenet/slow&number=0")
    assert {name: profile[name] for name in of_json} == of_json
    assert headers_of(client, "data/plugin/mindspore/index.js").keys() == of_script.keys()
    for path in (
        "../../../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        "vendor/../../plugin.py",
        "index.js/../plugin.py",
    ):
        with pytest.raises(urllib.error.HTTPError):
            client.get(f"data/plugin/mindspore/{path}")
    with pytest.raises(urllib.error.HTTPError) as raised:
        client.get_json("data/plugin/mindspore/run", key="nobody")
    assert raised.value.code == 404
    assert "no such run" in json.load(raised.value)["error"]
    for log in tmp_path.glob("tensorboard-*.log"):
        assert "Traceback" not in log.read_text()


def headers_of(client: TensorBoardClient, path: str) -> dict[str, str]:
    """Returns what an answer's head says beside how long it is, and when it was given."""
    with urllib.request.urlopen(f"{client.url}/{path}", timeout=30) as response:
        left_out = {"Content-Length", "Date", "Connection", "Server", "Expires", "Content-Encoding"}
        return {name: value for name, value in response.headers.items() if name not in left_out}


def wait_all_read(client: TensorBoardClient, count: int) -> Any:
    return client.wait_json(
        "data/plugin/mindspore/runs",
        lambda found: len(found["rows"]) == count and all(row["is_read"] for row in found["rows"]),
    )


def test_without_anything_of_mindspore_it_is_inactive(tmp_path: Path, tensorboard_server: TensorBoardServer) -> None:
    put(tmp_path / "logs" / "tf" / tensorboard_name(), build_file("tensorboard", range(1, 5)))
    client = tensorboard_server(tmp_path / "logs")
    assert client.get_json("data/plugins_listing")["mindspore"]["enabled"] is False
    write_summary(tmp_path / "logs" / "run", losses({1: 1.0}))
    client.wait_json("data/plugins_listing", lambda found: found["mindspore"]["enabled"])
