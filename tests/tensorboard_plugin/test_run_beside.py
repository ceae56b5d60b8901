"""What the page tells beside the numbers of a run: what changed from another, profiles, statistics by `aggregate`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ms_summary_bridge.aggregate import reading
from ms_summary_bridge.aggregate.aggregate import aggregate_ranks
from ms_summary_bridge.cli.app import main
from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.runs.report import encode_json
from ms_summary_bridge.states.compare.training import FoundTraining, Training, read_training
from ms_summary_bridge.tensorboard_plugin import run_changes
from tests.columns.test_profile import OPERATORS, STEPS, write_profile
from tests.conftest import TESTS
from tests.formats.test_dataset_graph import payload
from tests.formats.test_lineage import put_lineage
from tests.mindspore_run import event, histogram, image, write_summary
from tests.monitor_run import Engine
from tests.scripted import put
from tests.tensorboard_plugin.test_dashboard import Collected, losses, wide_graph, write_showcase

NAN = float("nan")


def write_logs(logdir: Path) -> None:
    """Writes the showcase, one more run with a journal, and one with another data set."""
    write_showcase(logdir)
    engine = Engine(logdir, project="other", tags={"model": "13B"}, interval=2).begin(samples_per_step=16)
    for step in range(1, 7):
        engine.step(step, 0.5, outputs=3.0 - step / 3)
    engine.end()
    put_lineage(logdir / "lenet" / "seeded", payload(wide_graph()), seconds=1_700_000_030)


# ---------------------------------------------------------------- what changed


def test_what_changed_is_what_the_command_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_logs(tmp_path)
    collected = Collected(tmp_path)
    keys = {name: row["key"] for name, row in collected.rows().items()}
    names = ("lenet/slow", "lenet/fast", "lenet/seeded", "llm/run", "other/run", "tf")
    sections: set[str] = set()
    capsys.readouterr()
    for a, b in (*itertools.combinations(names, 2), ("tf", "tf")):
        said = main(["diff", *(str(tmp_path / name) for name in (a, b)), "--json"])
        told = json.loads(capsys.readouterr().out)
        found = collected.collector.describe_changes(keys[a], keys[b])
        plain = json.loads(encode_json(found))
        texts, loss_text = plain.pop("texts"), plain.pop("loss_text")
        assert plain == told
        assert plain["same"] == (said == 0)
        sections |= {change["section"] for change in plain["changes"]}
        main(["diff", *(str(tmp_path / name) for name in (a, b))])
        words = capsys.readouterr().out
        assert loss_text in words
        for change, (one, other) in zip(plain["changes"], texts, strict=True):
            name = f"{change['name']}: " if change["name"] else ""
            assert f"  {name}{one or '(nothing)'} -> {other or '(nothing)'}\n" in words
    assert sections >= {"settings", "tags", "config", "series", "dataset"}, "it was about something"
    assert collected.collector.describe_changes(keys["tf"], "nobody") is None


def test_two_runs_are_read_again_when_they_have_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        write_summary(tmp_path / name, losses({1: 2.0, 2: 1.0}))
    collected = Collected(tmp_path)
    read: list[FoundTraining] = []

    def count(found: FoundTraining) -> Training:
        read.append(found)
        return read_training(found)

    monkeypatch.setattr(run_changes, "read_training", count)
    changes = collected.collector.describe_changes
    assert [(changes("a", "b") or {})["same"] for _ in range(3)] == [True] * 3
    assert len(read) == 2, "what is known is not read again"
    write_summary(tmp_path / "b", losses({3: 5.0}, "acc"), seconds=1_700_000_100)
    assert (changes("a", "b") or {})["same"], "not before the next look"
    collected.look()
    assert [(one.section, one.name) for one in (changes("a", "b") or {})["changes"]] == [("series", "acc")]
    assert len(read) == 4


# ---------------------------------------------------------------- search


def test_tags_of_all_kinds_can_be_searched_for(tmp_path: Path) -> None:
    write_summary(
        tmp_path / "run", [*losses({1: 1.0}), event(1, ("act", histogram([1]))), event(1, ("input", image()))]
    )
    put_lineage(tmp_path / "run", payload(wide_graph()))
    write_summary(tmp_path / "other", losses({1: 1.0}))
    put(tmp_path / "drawn" / "net.pb", b"")
    answer = Collected(tmp_path).all()
    tags = {row["name"]: answer["tag_sets"][row["tag_set"]] for row in answer["rows"]}
    assert tags["run"] == ["loss", "act", "dataset_graph", "input"]
    assert tags["other"] == ["loss"]
    assert answer["tags"] == [{"tag": "loss", "runs": 2}], "charts are of scalars"


@pytest.mark.tensorboard
def test_tags_of_torch_can_be_searched_for(tmp_path: Path) -> None:
    writer_of = pytest.importorskip("tensorboardX").SummaryWriter
    with writer_of(str(tmp_path / "run")) as writer:
        writer.add_scalar("loss", 1.0, 1)
        writer.add_histogram("weights", [1.0, 2.0], 1)
        writer.add_text("notes/first", "hello", 1)
    answer = Collected(tmp_path).all()
    (row,) = answer["rows"]
    found = answer["tag_sets"][row["tag_set"]]
    assert found[0] == "loss"
    assert {"weights", "notes/first"} <= {tag.removesuffix("/text_summary") for tag in found}


# ---------------------------------------------------------------- profiles


def test_where_the_time_goes_is_what_inspect_says(tmp_path: Path) -> None:
    write_summary(tmp_path / "ascend", losses({1: 1.0}))
    write_profile(tmp_path / "ascend" / "profiler", rank=3, step_trace_time=STEPS, op_statistic=OPERATORS)
    write_summary(tmp_path / "cpu" / "summary", losses({1: 1.0}))
    real = (TESTS / "data" / "mindspore-2.10-cpu-op-types.csv").read_bytes()
    put(tmp_path / "cpu" / "data" / "host_2_ascend_ms" / "FRAMEWORK" / "cpu_op_type_info_0.csv", real)
    collected = Collected(tmp_path)
    for name, rank, first in (("ascend", 3, "MatMulV2"), ("cpu", None, "Mul")):
        (listed,) = collected.one(name)["profiles"]
        assert (listed["path"], listed["bytes"]) == ("", 0), "there is no trace"
        key = collected.rows()[name]["key"]
        found = collected.collector.describe_profile(key, 0)
        told = [msgspec.to_builtins(one) for one in inspect_logdir(tmp_path / name).profiles]
        assert [{**found, "run": ""}] == [{**one, "run": ""} for one in told]  # type: ignore[dict-item]
        assert (found or {})["rank"] == rank
        assert (found or {})["operators"][0]["type"] == first
    path = next((tmp_path / "ascend").glob("**/step_trace_time.csv"))
    path.write_text(STEPS + "3,600.0,0,0,0,0,0,0,0,0\n")
    key = collected.rows()["ascend"]["key"]
    assert (collected.collector.describe_profile(key, 0) or {})["steps"] == 3, "it is read again"
    assert collected.collector.describe_profile(key, 1) is None


# ---------------------------------------------------------------- statistics over ranks


def write_ranks(job: Path) -> None:
    for rank in range(3):
        values = {step: NAN if (rank, step) == (1, 40) else 1.0 + rank * (step == 7) for step in range(50)}
        write_summary(job / f"rank_{rank}", losses(values), rank=rank)


def test_what_aggregate_wrote_is_a_map_of_the_training_and_of_each_statistic(tmp_path: Path) -> None:
    write_ranks(tmp_path / "job")
    write_summary(tmp_path / "else", losses({1: 1.0}))
    aggregate_ranks(tmp_path / "job", tmp_path / "over" / "ranks")
    collected = Collected(tmp_path)
    rows = collected.rows()
    assert {"job", "over/ranks/mean", "over/ranks/std"} <= rows.keys()
    for name in ("job", "over/ranks/mean", "over/ranks/std"):
        found = collected.one(name)["aggregate"]
        assert found["tags"] == ["loss"]
        assert found["path"] == str(tmp_path / "over" / "ranks" / "aggregate.json")
        assert [one["rank"] for one in found["ranks"]] == [0, 1, 2]
        bad = [one["first_bad"] and (one["first_bad"]["step"], one["first_bad"]["value"]) for one in found["ranks"]]
        assert bad == [None, (40, "NaN"), None]
        drawn: Any = collected.collector.describe_ranks(rows[name]["key"], "loss", 10, is_aggregate=True)
        assert (drawn["ranks"], drawn["steps"]) == (["max", "median", "mean", "min", "std"], list(range(0, 50, 5)))
        lines = dict(zip(drawn["ranks"], drawn["values"], strict=True))
        assert lines["max"] == [1.0, 3.0, *[1.0] * 8], "each part shows the step at which ranks are farthest apart"
        assert lines["mean"] == [1.0, 2.0, *[1.0] * 6, "nan", 1.0]
        assert lines["std"][1] == pytest.approx(0.8165, abs=1e-4)
    assert collected.one("else")["aggregate"] is None
    assert collected.collector.describe_ranks("else", "loss", 10, is_aggregate=True) is None
    nothing = {"tag": "x", "ranks": [], "steps": [], "values": []}
    assert collected.collector.describe_ranks("job", "x", 10, is_aggregate=True) == nothing


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"columns": [], "rows": [[]], "source": "x", "ranks": []}', b'{"columns": ["step"]']
)
def test_what_is_none_of_aggregates_is_told(tmp_path: Path, content: bytes) -> None:
    write_ranks(tmp_path / "job")
    aggregate_ranks(tmp_path / "job", tmp_path / "job" / "over")
    collected = Collected(tmp_path)
    assert collected.one("job")["aggregate"]["tags"] == ["loss"]
    path = put(tmp_path / "job" / "over" / "aggregate.json", content)
    found = collected.one("job")
    assert found["aggregate"] is None
    (problem,) = found["reading"]["problems"]
    assert problem.startswith(f"{path}: is not as `aggregate` writes it: ")


def test_a_large_aggregate_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_ranks(tmp_path / "job")
    aggregate_ranks(tmp_path / "job", tmp_path / "job" / "over")
    monkeypatch.setattr(reading, "_MOST_BYTES", 100)
    assert "is larger than 0 MiB and not read" in Collected(tmp_path).one("job")["reading"]["problems"][0]
