"""The facts of the page "MindSpore": one judgement with `watch`, NaN first, and answers that hold only what is new."""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.formats.protos import ms_pb
from ms_summary_bridge.runs.report import encode_json
from ms_summary_bridge.states.watcher import RunWatcher
from ms_summary_bridge.tensorboard_plugin import run_collector
from ms_summary_bridge.tensorboard_plugin.run_collector import RunCollector
from tests.formats.test_lineage import eval_event, put_lineage, train_event
from tests.mindspore_run import event, histogram, image, scalar, scalars, write_summary
from tests.monitor_run import Engine
from tests.scripted import build_file, put, tensorboard_name
from tests.tensorboard_plugin.test_dashboard import Collected, losses, write_showcase

NAN = math.nan
NOW = int(time.time())


def rows_of(answer: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(encode_json(answer))["rows"]}


def write_finished(run: Path, steps: int, *, start: int) -> None:
    write_summary(run, scalars("loss", range(1, steps + 1), start=start), seconds=start)
    put_lineage(run, train_event(start + steps), seconds=start + steps)


# ---------------------------------------------------------------- one judgement


def test_what_comes_after_a_training_is_no_training_and_no_last_step(tmp_path: Path) -> None:
    start = NOW - 500
    write_finished(tmp_path / "evaluated", 149, start=start)
    later = start + 170
    write_summary(tmp_path / "evaluated", [event(2, ("eval/accuracy", scalar(0.5)), wall_time=later)], seconds=later)
    put_lineage(tmp_path / "evaluated", eval_event('{"accuracy": 0.5}', later), seconds=later + 1)
    write_finished(tmp_path / "landscape", 120, start=start)
    write_summary(tmp_path / "landscape", scalars("landscape", range(1), start=NOW - 30), seconds=NOW - 30)
    rows = Collected(tmp_path).rows()
    assert {name: (row["state"], row["last_step"]) for name, row in rows.items()} == {
        "evaluated": ("ended", 149),
        "landscape": ("ended", 120),
    }
    assert rows["evaluated"]["eval"]["accuracy"]["value"] == 0.5


def test_a_run_that_was_not_looked_at_is_being_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        write_finished(tmp_path / f"run{number:02}", 3, start=NOW - 5000)
    monkeypatch.setattr(run_collector, "_BUDGET_SECS", -1.0)  # nothing can be looked at in it
    collector = RunCollector(str(tmp_path), pytest.fail)
    monkeypatch.setattr(collector, "_arrange", lambda: None)
    assert collector.has_runs(60)
    answer = collector.describe_all()
    assert {row["state"] for row in rows_of(answer).values()} == {"reading"}
    assert (answer["unread"], len(answer["rows"])) == (20, 20)
    monkeypatch.setattr(run_collector, "_BUDGET_SECS", 60.0)
    assert collector.wait(60)
    assert {row["state"] for row in rows_of(collector.describe_all()).values()} == {"ended"}


def test_the_page_and_watch_judge_alike(tmp_path: Path) -> None:
    write_showcase(tmp_path)
    write_finished(tmp_path / "job" / "summary", 5, start=NOW - 900)
    write_summary(tmp_path / "late", scalars("loss", range(5), start=NOW - 3600), seconds=NOW - 3600)
    now = int(time.time())  # NOW is when the tests began
    write_summary(tmp_path / "live", scalars("loss", range(5), start=now - 5), seconds=now - 5)
    states = {run.name: run for run in RunWatcher(str(tmp_path)).look(time.time())}
    rows = Collected(tmp_path).rows()
    assert {name: (row["state"], row["life"]) for name, row in rows.items()} == {
        name: (run.state, run.life) for name, run in states.items()
    }
    assert {name: row["last_step"] for name, row in rows.items()} == {name: run.step for name, run in states.items()}
    assert {"job", "late", "live", "tf"} <= rows.keys(), "job/summary is the job"
    assert (rows["late"]["state"], rows["live"]["state"]) == ("stalled", "running")


def test_of_a_training_that_began_again_the_newest_losses_are_shown(tmp_path: Path) -> None:
    first, second, third = ({step: size / step for step in range(1, last)} for size, last in ((9, 65), (4, 17), (2, 9)))
    begins = NOW - 5000
    for values, late in ((first, 0), (second, 100)):
        start = begins + late
        points = [event(step, ("loss", scalar(one)), wall_time=start + step) for step, one in values.items()]
        write_summary(tmp_path / "run", points, seconds=start)
    collected = Collected(tmp_path)

    def shown() -> tuple[list[int], list[int], tuple[float, int, int]]:
        loss = collected.rows()["run"]["loss"]
        answer = json.loads(encode_json(collected.collector.describe_series("loss", ["run"], 500)))
        curve, spark = answer["series"][0], [step for step, _ in loss["spark"]]
        return curve["steps"], spark, (loss["best"], loss["best_step"], loss["count"])

    assert shown() == ([*range(1, 17)], [*range(1, 17)], (0.25, 16, 16)), "as TensorBoard draws it"
    late = begins + 200  # a third one goes on from a checkpoint of the second
    points = [event(step + 10, ("loss", scalar(one)), wall_time=late + step) for step, one in third.items()]
    write_summary(tmp_path / "run", points, seconds=late)
    write_summary(tmp_path / "run", [event(2, ("eval/loss", scalar(0.5)), wall_time=late + 99)], seconds=late + 99)
    collected.look()
    assert shown() == ([*range(1, 19)], [*range(1, 19)], (0.25, 16, 24))


@pytest.mark.parametrize("has_end", [False, True])
def test_the_last_step_is_that_of_the_newest_training(has_end: bool, tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = []
    for begins, steps in ((NOW - 5000, 64), (NOW - 100, 16)):
        lines.append({"kind": "header", "format": 1, "ranks": 1, "rank": 0, "wall_time": begins})
        lines += [
            {"kind": "sample", "step": step, "wall_time": begins + step, "rank": 0, "values": {"loss": 1.0}}
            for step in range(1, steps + 1)
        ]
        lines += [{"kind": "end", "step": steps, "wall_time": begins + steps, "rank": 0}] if has_end else []
    put(tmp_path / "run" / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
    assert Collected(tmp_path).rows()["run"]["last_step"] == 16


def test_the_last_step_is_that_of_the_newest_lineage(tmp_path: Path) -> None:
    for start, steps in ((NOW - 5000, 64), (NOW - 4000, 16)):
        write_summary(tmp_path / "run", scalars("loss", range(1, steps + 1), start=start), seconds=start)
        begins = ms_pb.LineageEvent(wall_time=start, dataset_graph=ms_pb.DatasetGraph())
        put_lineage(tmp_path / "run", begins.SerializeToString(), train_event(start + steps), seconds=start)
    assert Collected(tmp_path).rows()["run"]["last_step"] == 16


def test_two_writers_of_one_directory_replace_nothing(tmp_path: Path) -> None:
    for number in range(2):
        points = [event(step, ("loss", scalar(1.0)), wall_time=NOW - 900 + step) for step in range(number, 9 + number)]
        write_summary(tmp_path / "run", points, seconds=NOW - 900 + number)
    collected = Collected(tmp_path)
    assert collected.rows()["run"]["loss"]["count"] == 18
    answer = json.loads(encode_json(collected.collector.describe_series("loss", ["run"], 500)))
    assert len(answer["series"][0]["steps"]) == 18


def test_the_loss_of_a_row_is_the_training_s_own(tmp_path: Path) -> None:
    values = {"eval_loss": scalar(9.0), "train_epoch_loss": scalar(1.0)}
    write_summary(tmp_path / "run", [event(step, *values.items()) for step in range(3)])
    assert Collected(tmp_path).rows()["run"]["loss"]["tag"] == "train_epoch_loss", "as in `watch`"


def test_a_run_of_images_alone_is_not_said_to_have_nothing(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", [event(1, ("picture", image()))])
    (words,) = Collected(tmp_path).rows()["run"]["evidence"]
    assert words == "no scalar is there yet to tell it by"


# ---------------------------------------------------------------- health


@pytest.mark.parametrize(
    ("finite", "state"), [(1, "non-finite"), (20, "ended")], ids=["nan at the end", "finite at the end"]
)
def test_nineteen_nan_losses_of_twenty_are_told_first(tmp_path: Path, finite: int, state: str) -> None:
    values = {step: 1.4 if step == finite else NAN for step in range(1, 21)}
    write_summary(tmp_path / "run", losses(values))
    put_lineage(tmp_path / "run", train_event(1_700_000_030))
    row = Collected(tmp_path).rows()["run"]
    assert row["state"] == state
    assert (row["life"], row["loss"]["best"], row["loss"]["best_step"]) == ("ended", pytest.approx(1.4), finite)
    assert (row["loss"]["count"], row["loss"]["nonfinite"]) == (20, 19)
    assert row["loss"]["last"] == ("nan" if finite == 1 else pytest.approx(1.4))
    health = row["health"]
    assert (health["level"], health["nonfinite"], health["nonfinite_tags"]) == ("critical", 19, 1)
    assert health["nonfinite_step"] == (2 if finite == 1 else 1)
    assert "not finite" in health["text"] or "nan since step 2" in health["text"]


def test_what_was_not_finite_on_another_rank_is_shown(tmp_path: Path) -> None:
    for rank in range(3):
        values = {step: NAN if rank == 2 and step > 3 else 1.0 for step in range(1, 6)}
        write_summary(tmp_path / "run" / f"rank_{rank}", losses(values), rank=rank)
    found = Collected(tmp_path).one("run")
    assert (found["row"]["state"], found["row"]["health"]["nonfinite"]) == ("non-finite", 2)
    (chart,) = found["nonfinite"]["charts"]
    assert chart["tag"].endswith(" (rank 2)")
    assert (chart["affected"], chart["first_step"], found["nonfinite"]["affected"]) == (2, 4, 1)


def test_a_loss_that_was_infinite_before_it_was_nan_is_called_neither(tmp_path: Path) -> None:
    for name, last in (("both", NAN), ("infinite", math.inf)):
        write_summary(tmp_path / name, losses({1: 1.0, 2: math.inf, 3: last}))
    found = {name: row["evidence"][0] for name, row in Collected(tmp_path).rows().items()}
    assert found["both"].startswith("the loss is not finite since step 2 ")
    assert found["infinite"].startswith("the loss is inf since step 2 ")


def test_values_of_scalars_and_histograms_count(tmp_path: Path) -> None:
    points = [
        event(step, ("act", histogram([1, 2], nan=step % 2)), ("grad_norm", scalar(math.inf if step > 3 else 1.0)))
        for step in range(1, 6)
    ]
    write_summary(tmp_path / "run", [*points, *losses({6: 1.0})])
    found = Collected(tmp_path).one("run")
    assert (found["row"]["health"]["level"], found["row"]["health"]["nonfinite"]) == ("warning", 5)
    charts = {(one["tag"], one["kind"]): one for one in found["nonfinite"]["charts"]}
    assert charts["act", "histogram"]["points"] == [[1, 1, 0], [3, 1, 0], [5, 1, 0]]
    assert charts["grad_norm", "scalar"]["points"] == [[4, 0, 1], [5, 0, 1]]
    (metric,) = (one for one in found["metrics"] if one["tag"] == "grad_norm")
    assert (metric["count"], metric["nonfinite"], metric["last"], metric["max"]) == (5, 2, "inf", 1.0)


def test_a_broken_run_says_what_is_wrong(tmp_path: Path) -> None:
    put(
        tmp_path / "bad" / "events.out.events.summary.1700000000.0.host_MS", b"no record at all, and longer than a head"
    )
    put(tmp_path / "empty" / "events.out.events.summary.1700000000.0.host_MS", b"")
    collected = Collected(tmp_path)
    rows = collected.rows()
    assert "holds no whole record" in rows["bad"]["health"]["text"]
    assert rows["empty"]["health"]["problems"][0].endswith("zero bytes")
    for name in rows:
        assert rows[name]["state"] == "unknown"
        assert collected.one(name)["reading"]["problems"] == rows[name]["health"]["problems"]
    assert [collected.one(name)["bytes"] for name in ("bad", "empty")] == [40, 0]


# ---------------------------------------------------------------- only what is new


def test_a_poll_gets_what_has_changed(tmp_path: Path) -> None:
    for number in range(30):
        write_finished(tmp_path / f"run{number:02}", 3, start=NOW - 5000)
    collected = Collected(tmp_path)
    first = collected.all()
    assert first["is_full"]
    assert len(first["rows"]) == 30
    assert {tuple(tags) for tags in first["tag_sets"].values()} == {("loss",)}
    assert first["tags"] == [{"tag": "loss", "runs": 30}]
    idle = collected.all(first["cursor"])
    assert (idle["rows"], idle["settings"], idle["tags"], idle["tag_sets"]) == ([], None, None, {})
    assert len(encode_json(idle, indent=0)) < 1000
    write_summary(tmp_path / "run07", scalars("acc", range(9, 12), start=NOW - 4000), seconds=NOW - 4000)
    shutil.rmtree(tmp_path / "run21")
    collected.look()
    collected.look()
    changed = collected.all(first["cursor"])
    assert not changed["is_full"]
    assert [row["name"] for row in changed["rows"]] == ["run07"]
    assert changed["removed"] == ["run21"]
    assert changed["tag_sets"][changed["rows"][0]["tag_set"]] == ["acc", "loss"]
    assert {one["tag"]: one["runs"] for one in changed["tags"]} == {"loss": 29, "acc": 1}
    for other in ("", "x-1", first["cursor"] + "9" * 5, "\x00"):
        assert len(collected.all(other)["rows"]) == 29


def test_long_losses_become_short_lines(tmp_path: Path) -> None:
    write_summary(tmp_path / "run", losses({step: 5.0 / step for step in range(1, 5000)}))
    loss = Collected(tmp_path).rows()["run"]["loss"]
    assert 32 <= len(loss["spark"]) <= 64
    assert [step for step, _ in loss["spark"]] == sorted(step for step, _ in loss["spark"])
    assert loss["spark"][0][1] < 5.0
    assert loss["count"] == 4999


# ---------------------------------------------------------------- curves, ranks, profiles


def test_curves_of_checked_runs(tmp_path: Path) -> None:
    values = {step: 1.0 / (step + 1) for step in range(3000)} | {1234: 99.0, 2000: NAN}
    write_summary(tmp_path / "a", losses(values))
    put(tmp_path / "b" / tensorboard_name(), build_file("tensorboard", range(1, 5)))
    engine = Engine(tmp_path, project="p").begin()
    for step in (1, 2):
        engine.step(step, outputs=float(step))
    engine.end()
    collector = Collected(tmp_path).collector
    answer = json.loads(encode_json(collector.describe_series("loss", ["a", "p/run", "nobody", "b"], 100)))
    assert [one["key"] for one in answer["series"]][:2] == ["a", "p/run"]
    curve = answer["series"][0]
    assert 100 <= len(curve["steps"]) <= 160
    assert curve["values"][curve["steps"].index(1234)] == 99.0, "an outlier stays"
    assert curve["values"][curve["steps"].index(2000)] is None
    assert (curve["steps"][0], curve["steps"][-1]) == (0, 2999)
    assert answer["series"][1]["values"] == [1.0, 2.0]
    metric = collector.describe_metric("loss")["runs"]["a"]
    assert (metric["max"], metric["max_step"], metric["nonfinite"]) == (99.0, 1234, 1)


def test_ranks_of_one_run_as_a_map(tmp_path: Path) -> None:
    for rank in range(4):
        values = {step: NAN if (rank, step) == (2, 50) else float(rank == 3 and step == 7) for step in range(100)}
        write_summary(tmp_path / "job" / f"rank_{rank}", losses(values), rank=rank)
    collected = Collected(tmp_path)
    found = collected.one("job")
    assert found["row"]["ranks"] == len(found["ranks"]) == 4
    assert found["heat_tags"] == ["loss"]
    drawn = json.loads(encode_json(collected.collector.describe_ranks("job", "loss", 10)))
    assert (drawn["ranks"], drawn["steps"]) == ([0, 1, 2, 3], list(range(0, 100, 10)))
    assert drawn["values"][3] == [1.0, *[0.0] * 9]
    assert drawn["values"][2] == [*[0.0] * 5, "nan", *[0.0] * 4]
    assert collected.collector.describe_ranks("job", "other", 10) == {
        "tag": "other",
        "ranks": [],
        "steps": [],
        "values": [],
    }


def test_journals_of_ranks_as_a_map(tmp_path: Path) -> None:
    for rank in range(2):
        head = {"kind": "header", "ranks": 2, "rank": rank, "format": 1}
        lines = [{"kind": "sample", "step": step, "wall_time": NOW + step, "values": {"loss": rank}} for step in (1, 2)]
        text = "".join(json.dumps(line) + "\n" for line in (head, *lines))
        put(tmp_path / "job" / f"rank_{rank}" / "metrics.jsonl", text.encode())
    collected = Collected(tmp_path)
    assert collected.one("job")["heat_tags"] == ["loss"]
    drawn = collected.collector.describe_ranks("job", "loss", 10)
    assert drawn == {"tag": "loss", "ranks": [0, 1], "steps": [1, 2], "values": [[0.0, 0.0], [1.0, 1.0]]}


def test_profiles_beside_a_run(tmp_path: Path) -> None:
    write_finished(tmp_path / "job" / "summary", 3, start=NOW - 900)
    write_finished(tmp_path / "other", 3, start=NOW - 900)
    for place in ("job/n1_ascend_ms", "other/profiler/n2_ascend_ms", "n3_ascend_ms"):
        put(tmp_path / place / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", b"[]")
    collected = Collected(tmp_path)
    found = {name: [one["name"] for one in collected.one(name)["profiles"]] for name in ("job", "other")}
    assert found == {
        "job": ["n1_ascend_ms"],
        "other": ["other/profiler/n2_ascend_ms"],
    }
    key = collected.one("job")["row"]["key"]
    path = collected.collector.profile_path(key, 0)
    assert path is not None
    assert Path(path).read_bytes() == b"[]"
    assert collected.collector.profile_path(key, 1) is None
    assert collected.collector.profile_path("nobody", 0) is None


def test_a_profile_that_lies_elsewhere_is_none(tmp_path: Path) -> None:
    """A log that came from elsewhere may hold a link to any file here, and something that never ends."""
    secret = put(tmp_path / "home" / "secret.json", b'{"token": 1}')
    write_finished(tmp_path / "logs" / "job" / "summary", 3, start=NOW - 900)
    write_finished(tmp_path / "logs" / "elsewhere", 3, start=NOW - 900)
    (tmp_path / "logs" / "linked").symlink_to(tmp_path / "home" / "run")
    write_finished(tmp_path / "home" / "run", 3, start=NOW - 900)
    put(tmp_path / "home" / "run" / "n0_ascend_ms" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", b"[]")
    outputs = [tmp_path / "logs" / "job" / f"n{number}_ascend_ms" / "ASCEND_PROFILER_OUTPUT" for number in range(4)]
    for output in outputs[:3]:
        output.mkdir(parents=True)
    (outputs[0] / "trace_view.json").symlink_to(secret)
    os.mkfifo(outputs[1] / "trace_view.json")
    (outputs[2] / "trace_view.json").symlink_to("/dev/zero")
    put(tmp_path / "home" / "out" / "trace_view.json", b"[]")
    outputs[3].parent.mkdir()
    outputs[3].symlink_to(tmp_path / "home" / "out")
    collected = Collected(tmp_path / "logs")
    found = collected.one("job")["profiles"]
    assert [(one["name"], one["path"], one["bytes"]) for one in found] == [
        (f"n{number}_ascend_ms", "", 0) for number in range(3)
    ]
    assert [one["bytes"] for one in collected.one("linked")["profiles"]] == [2], "a run that is a link itself"
    key = collected.one("job")["row"]["key"]
    assert [collected.collector.profile_path(key, number) for number in range(-2, 4)] == [None] * 6


# ---------------------------------------------------------------- answers over HTTP


@pytest.mark.tensorboard
def test_each_address_answers(tmp_path: Path) -> None:
    from werkzeug.test import Client

    from ms_summary_bridge.tensorboard_plugin.plugin import MindSporePlugin

    for rank in range(2):
        write_summary(tmp_path / "job" / f"rank_{rank}", losses({1: 1.0, 2: 0.5 + rank}), rank=rank)
    put(tmp_path / "job" / "n_ascend_ms" / "ASCEND_PROFILER_OUTPUT" / "trace_view.json", b'[{"name": "kernel"}]')
    plugin = MindSporePlugin(str(tmp_path), pytest.fail)
    apps = plugin.get_plugin_apps()

    def ask(address: str, **query: str) -> Any:
        return Client(apps[f"/{address}"]).get(f"/{address}", query_string=query)

    assert plugin.is_active()
    deadline = time.monotonic() + 60
    while (answer := ask("runs").get_json())["unread"] or not answer["is_known"]:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert [row["key"] for row in answer["rows"]] == ["job"]
    assert ask("runs", cursor=answer["cursor"]).get_json()["rows"] == []
    assert ask("run", key="job").get_json()["row"]["loss"]["count"] == 2
    assert ask("run", key="nobody").status_code == 404
    assert ask("series", key="job", tag="loss").get_json()["series"][0]["values"] == [1.0, 0.5]
    assert ask("series", key="job", tag="loss", points="no number").status_code == 200
    assert ask("metric", tag="loss").get_json()["runs"]["job"]["min"] == 0.5
    assert ask("ranks", key="job", tag="loss").get_json()["values"] == [[1.0, 0.5], [1.0, 1.5]]
    assert ask("ranks", key="nobody", tag="loss").status_code == 404
    trace = ask("profile", key="job", number="0")
    assert trace.get_data() == b'[{"name": "kernel"}]'
    assert "attachment" in trace.headers["Content-Disposition"]
    trace.close()
    for number in ("1", "-1", "../../etc/passwd", ""):
        assert ask("profile", key="job", number=number).status_code == 404
