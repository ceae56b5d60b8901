"""A row for each training, and what changed between two."""

from __future__ import annotations

import csv
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.errors import FileTakenError, NoEventsError, UsageError
from ms_summary_bridge.states.compare.diff import diff_runs
from ms_summary_bridge.states.compare.rows import list_run_rows, write_run_rows
from ms_summary_bridge.states.compare.training import find_trainings, read_training
from tests.formats.test_dataset_graph import golden, payload
from tests.formats.test_lineage import eval_event, put_lineage, train_event
from tests.mindspore_run import START, event, scalar, write_summary
from tests.monitor_run import Engine


def write_losses(directory: Path, losses: list[float], *, tag: str = "loss/auto", **others: list[float]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    series = {tag: losses, **{name.replace("__", "/"): values for name, values in others.items()}}
    events = [
        event(step, *[(name, scalar(values[step - 1])) for name, values in series.items() if step <= len(values)])
        for step in range(1, len(losses) + 1)
    ]
    write_summary(directory, events)


def write_journal(directory: Path, losses: list[float], **section: Any) -> None:
    """A training that the monitor recorded, without event files."""
    save_dir, run_id = directory.parent.parent, directory.name
    engine = Engine(save_dir, interval=0, project=directory.parent.name, **{"run_id": run_id, **section}).begin()
    for step, loss in enumerate(losses, 1):
        engine.step(step, outputs=loss)
    engine.recorder.evaluated({"accuracy": 0.75}, 1)
    engine.recorder.end("")


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# ------------------------------------------------------------------ rows


def test_of_trainings_in_one_directory_the_newest_has_the_row(tmp_path: Path) -> None:
    for late, losses in ((0, [3.0, 2.0, 1.0, 0.1]), (100, [4.0, 0.5, 0.7])):
        values = [[("loss", scalar(one)), ("lr", scalar(late))] for one in losses]
        points = [event(step, *both, wall_time=START + late + step) for step, both in enumerate(values, 1)]
        write_summary(tmp_path / "run", points, seconds=START + late)
    write_summary(tmp_path / "run", [event(1, ("lr", scalar(7)), wall_time=START + 200)], seconds=START + 200)
    (row,) = list_run_rows(tmp_path).rows
    assert (row.best_loss, row.best_step, row.last_loss) == (0.5, 2, pytest.approx(0.7))
    lr = read_training(*find_trainings(str(tmp_path))).series["lr"]
    assert (lr.steps.tolist(), lr.values.tolist()) == ([1, 2, 3], [7, 100, 100]), "a point alone replaces no more"


def test_three_hundred_runs_are_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(1)
    best = {}
    for number in range(300):
        losses = [rng.uniform(0.5, 5.0) for _ in range(6)]
        best[f"exp/run{number}"] = min(losses)
        write_losses(tmp_path / "runs" / "exp" / f"run{number}", losses, eval__acc=[number / 300])
    arguments = ["export", str(tmp_path / "runs"), str(tmp_path / "out"), "--format", "runs"]
    assert main([*arguments, "--sort", "best_loss"]) == 0
    assert f"300 rows  {tmp_path / 'out' / 'runs.csv'}" in capsys.readouterr().out
    rows = read_csv(tmp_path / "out" / "runs.csv")
    assert [row["run"] for row in rows] == sorted(best, key=lambda name: best[name])
    for row in rows:
        assert float(row["best_loss"]) == float(np.float32(best[row["run"]]))
        assert (row["last_step"], row["loss_tag"], row["ranks"]) == ("6", "loss/auto", "1")
        assert row["state"] in ("running", "ended", "stalled", "unknown")
    assert main([*arguments, "--sort", "-eval/acc", "--force"]) == 0
    assert read_csv(tmp_path / "out" / "runs.csv")[0]["run"] == "exp/run299"
    assert main([*arguments, "--force", "--runs", r"run\d$"]) == 0
    assert [row["run"] for row in read_csv(tmp_path / "out" / "runs.csv")] == [f"exp/run{n}" for n in range(10)]


def test_a_row_has_what_lineage_and_journal_say(tmp_path: Path) -> None:
    lineage = tmp_path / "runs" / "lineage"
    write_losses(lineage, [2.0, 1.5])
    put_lineage(lineage, train_event(), eval_event('{"Accuracy": 0.9}'))
    write_journal(tmp_path / "runs" / "journal", [3.0, 1.0, math.nan], tags={"team": "nlp"})
    rows = {row.run: row for row in list_run_rows(tmp_path / "runs").rows}
    assert set(rows) == {"lineage", "journal"}
    assert (rows["lineage"].settings["learning_rate"], rows["lineage"].settings["optimizer"]) == (0.01, "Adam")
    assert rows["lineage"].metrics == {"eval/Accuracy": 0.9}
    journal = rows["journal"]
    assert (journal.best_loss, journal.best_step, journal.state) == (1.0, 2, "non-finite")
    assert journal.last_loss is not None
    assert math.isnan(journal.last_loss)
    assert journal.metrics == {"eval/accuracy": 0.75}
    assert journal.settings["team"] == "nlp"
    assert journal.started is not None


def test_when_a_training_started_is_a_time_in_utc_with_or_without_a_monitor(tmp_path: Path) -> None:
    write_losses(tmp_path / "runs" / "files", [2.0, 1.5])
    for name, moment in (("journal", START + 123.9), ("odd", 1e300)):
        write_journal(tmp_path / "runs" / name, [3.0])
        path = tmp_path / "runs" / name / "rank_0" / "metrics.jsonl"
        header, *lines = path.read_text().splitlines()
        path.write_text("\n".join([json.dumps({**json.loads(header), "wall_time": moment}), *lines]))
    found = list_run_rows(tmp_path / "runs", sort="started")
    write_run_rows(found, tmp_path / "out")
    assert [(row["run"], row["started"]) for row in read_csv(tmp_path / "out" / "runs.csv")] == [
        ("files", "2023-11-14T22:13:20Z"),
        ("journal", "2023-11-14T22:15:23Z"),
        ("odd", "1e+300"),
    ]


def test_ranks_are_one_training(tmp_path: Path) -> None:
    """Rank 0 of a pipeline has no loss; that of the first rank which has one is shown."""
    for rank in range(4):
        directory = tmp_path / "job" / "summary" / f"rank_{rank}"
        if rank < 2:
            write_losses(directory, [0.1, 0.2], tag="lr")
        else:
            write_losses(directory, [float(rank), rank / 2])
    (row,) = list_run_rows(tmp_path).rows
    assert (row.run, row.ranks, row.best_loss, row.best_step) == ("job", 4, 1.0, 2)


def test_rows_without_a_value_go_last(tmp_path: Path) -> None:
    write_losses(tmp_path / "a", [2.0])
    write_losses(tmp_path / "b", [1.0], tag="lr")
    write_losses(tmp_path / "c", [1.0])
    write_losses(tmp_path / "d", [math.nan])
    assert [row.run for row in list_run_rows(tmp_path, sort="best_loss").rows] == ["c", "a", "b", "d"]
    assert [row.run for row in list_run_rows(tmp_path, sort="-best_loss").rows] == ["a", "c", "b", "d"]
    assert [row.run for row in list_run_rows(tmp_path, sort="-run").rows] == ["d", "c", "b", "a"]


def test_wrong_use_of_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_losses(tmp_path / "runs" / "a", [2.0])
    with pytest.raises(UsageError, match=r"--sort: there is no column 'los'; there are run, state"):
        list_run_rows(tmp_path / "runs", sort="los")
    with pytest.raises(NoEventsError):
        list_run_rows(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoEventsError, match="no training was found"):
        list_run_rows(tmp_path / "empty")
    found = list_run_rows(tmp_path / "runs")
    write_run_rows(found, tmp_path / "out")
    with pytest.raises(FileTakenError, match="--force replaces it"):
        write_run_rows(found, tmp_path / "out")
    source, out = str(tmp_path / "runs"), str(tmp_path / "other")
    assert main(["export", source, out, "--format", "csv", "--sort", "run"]) == 2
    assert main(["export", source, out, "--format", "runs", "--tags", "x"]) == 2
    assert "--sort goes with --format runs alone" in capsys.readouterr().err


def test_a_damaged_run_costs_its_row_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_losses(tmp_path / "runs" / name, [2.0, 1.0, 0.5])
    (path,) = (tmp_path / "runs" / "a").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    assert main(["export", str(tmp_path / "runs"), str(tmp_path / "out"), "--format", "runs"]) == 3
    assert [row["run"] for row in read_csv(tmp_path / "out" / "runs.csv")] == ["a", "b"]


# ------------------------------------------------------------------ two trainings


def curve(rng: np.random.Generator, steps: int = 400, noise: float = 0.05) -> list[float]:
    return list(3.0 * np.exp(-np.arange(steps) / 120) + 0.5 + rng.normal(0, noise, steps))


def test_two_equal_trainings_are_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    losses = curve(np.random.default_rng(1))
    for name in ("a", "b"):
        write_losses(tmp_path / name, losses)
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "loss: the same numbers at all 400 common steps" in out
    assert out.endswith("the same\n")


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("kind", ["drifts", "jumps", "noise"])
def test_from_which_step_losses_part(tmp_path: Path, seed: int, kind: str) -> None:
    """Other noise is a difference from its first step on, and no parting; a drift or a jump from step 250 on is one."""
    rng = np.random.default_rng(seed)
    base = np.array(curve(rng, noise=0.0))
    a, b = base + rng.normal(0, 0.03, 400), base + rng.normal(0, 0.03, 400)
    if kind != "noise":
        b[:200] = a[:200]
        b[249:] += 0.5 if kind == "jumps" else 0.02 * np.arange(151)
    write_losses(tmp_path / "a", list(a))
    write_losses(tmp_path / "b", list(b))
    loss = diff_runs(tmp_path / "a", tmp_path / "b").loss
    assert loss is not None
    assert loss.first_difference == (1 if kind == "noise" else 201)
    if kind == "noise":
        assert loss.parts_at is None
    else:
        assert loss.parts_at is not None
        assert 244 <= loss.parts_at <= 262


def test_a_loss_that_alone_is_not_finite_parts_there(tmp_path: Path) -> None:
    losses = curve(np.random.default_rng(1), 100)
    write_losses(tmp_path / "a", losses)
    write_losses(tmp_path / "b", losses[:60] + [math.nan] * 40)
    loss = diff_runs(tmp_path / "a", tmp_path / "b").loss
    assert loss is not None
    assert (loss.first_difference, loss.parts_at) == (61, 61)


def test_what_changed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_journal(tmp_path / "runs" / "a", [3.0, 2.0, 1.0], tags={"team": "nlp"})
    write_journal(
        tmp_path / "runs" / "b",
        [3.0, 2.5, 1.0],
        tags={"team": "cv"},
        metrics=["loss"],
        callback={"params": {"cool_down": 5}},
    )
    for name, commit in (("a", "1111"), ("b", "2222")):
        path = tmp_path / "runs" / name / "rank_0" / "metrics.jsonl"
        head, *rest = path.read_text().splitlines()
        header = json.loads(head)
        header["commit"], header["command"] = commit, ["python", "train.py", f"--lr={commit}"]
        header["versions"] = {**header["versions"], "mindspore": f"2.{commit[0]}"}
        header["ranks"] = int(commit[0])
        path.write_text("\n".join([json.dumps(header), *rest]) + "\n")
    assert main(["diff", str(tmp_path / "runs" / "a"), str(tmp_path / "runs" / "b"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    changes = {(change["section"], change["name"]): (change["a"], change["b"]) for change in found["changes"]}
    assert found["same"] is False
    assert changes["tags", "team"] == ("nlp", "cv")
    assert changes["commit", ""] == ("1111", "2222")
    assert changes["command", ""] == (["python", "train.py", "--lr=1111"], ["python", "train.py", "--lr=2222"])
    assert changes["versions", "mindspore"] == ("2.1", "2.2")
    assert changes["ranks", ""] == (1, 2)
    assert changes["config", "callback.params.cool_down"] == (None, 5)
    assert changes["series", "step_time"] == ("recorded", None)
    assert found["loss"]["first_difference"] == 2
    assert main(["diff", str(tmp_path / "runs" / "a"), str(tmp_path / "runs" / "b")]) == 1
    out = capsys.readouterr().out
    assert "commit:\n  1111 -> 2222\n" in out
    assert "loss (loss): not the same from step 2 on, " in out
    assert out.endswith("different\n")


def test_another_data_pipeline_is_named(tmp_path: Path) -> None:
    for name, case in (("a", "concat"), ("b", "zip")):
        write_losses(tmp_path / name, [1.0, 0.5])
        put_lineage(tmp_path / name, payload(golden(case)))
    assert read_training(find_trainings(str(tmp_path / "a"))[0]).dataset
    sections = {change.section for change in diff_runs(tmp_path / "a", tmp_path / "b").changes}
    assert "dataset" in sections


def test_diff_wants_one_training_on_each_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("tree/a", "tree/b", "c"):
        write_losses(tmp_path / name, [1.0])
    assert main(["diff", str(tmp_path / "tree"), str(tmp_path / "c")]) == 2
    assert "2 trainings are below it (a, b, ...): name the directory of one" in capsys.readouterr().err
    assert main(["diff", str(tmp_path / "missing"), str(tmp_path / "c")]) == 1
    write_losses(tmp_path / "d", [1.0], tag="lr")
    diff = diff_runs(tmp_path / "c", tmp_path / "d")
    assert diff.loss is None
    assert {change.name for change in diff.changes} == {"loss/auto", "lr"}


# ------------------------------------------------------------------ the console of convert


def test_the_summary_of_many_runs_begins_with_what_is_wrong_and_names_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(60):
        write_losses(tmp_path / "runs" / f"run{number:03}", [2.0, 1.0])
    arguments = ["convert", str(tmp_path / "runs"), str(tmp_path / "out"), "--report", str(tmp_path / "report.json")]
    assert main(arguments) == 0
    assert f"... and 40 more runs, 40 of them with something new; {tmp_path / 'report.json'} has all of them" in (
        capsys.readouterr().out
    )
    (path,) = (tmp_path / "runs" / "run055").iterdir()
    path.write_bytes(path.read_bytes() + b"x" * 100)
    write_losses(tmp_path / "runs" / "run999", [3.0])
    assert main(arguments[:3]) == 3
    out = capsys.readouterr().out
    lines = [line.split()[0] for line in out.splitlines() if line.startswith("run")]
    assert lines[1:3] == ["run055", "run999"], "what is damaged, what is new, then the rest"
    assert "... and 41 more runs, 0 of them with something new; --report FILE.json writes all of them to a file" in out
    assert len(json.loads((tmp_path / "report.json").read_text())["runs"]) == 60
