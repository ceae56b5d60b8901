"""Statistics over ranks, against numpy over everything at once, and against what TensorBoard's reader finds."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from tensorboardX import SummaryWriter

from ms_summary_bridge.aggregate import sources
from ms_summary_bridge.aggregate.aggregate import AggregateReport, aggregate_ranks
from ms_summary_bridge.cli.app import main
from ms_summary_bridge.errors import FileTakenError, LogdirError, NoEventsError, UsageError
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.wire import varint
from ms_summary_bridge.monitor.model.sample import Sample
from ms_summary_bridge.monitor.sinks.journal import sample_line
from ms_summary_bridge.training.distributed import ProcessRank
from tests.batches.test_batch_lane import LogFormat
from tests.monitor_run import Engine

_Values = dict[int, dict[str, float]]  # by step and tag


def _write_rank(directory: Path, values: _Values, *, start: float = 1e9) -> None:
    with SummaryWriter(str(directory)) as writer:
        for step, of_tags in values.items():
            for tag, value in of_tags.items():
                writer.add_scalar(tag, value, step, walltime=start + step)


def _rows(out: Path) -> list[dict[str, object]]:
    found = json.loads((out / "aggregate.json").read_text())
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def _random_ranks(rng: random.Random, ranks: int, steps: int) -> list[_Values]:
    return [
        {step: {tag: float(np.float32(rng.gauss(0, 10))) for tag in ("loss", "lr")} for step in range(1, steps + 1)}
        for _ in range(ranks)
    ]


@pytest.mark.tensorboard
def test_every_statistic_is_that_of_all_ranks_at_once(tmp_path: Path) -> None:
    ranks = _random_ranks(random.Random(1), 5, 200)
    for number, values in enumerate(ranks):
        _write_rank(tmp_path / "run" / f"rank_{number}", values)
    report = aggregate_ranks(tmp_path / "run", tmp_path / "out")
    rows = _rows(tmp_path / "out")
    assert len(rows) == 400
    for row in rows:
        values = np.array([rank[row["step"]][row["tag"]] for rank in ranks])  # type: ignore[index]
        assert row["mean"] == values.mean()
        assert (row["min"], row["max"]) == (values.min(), values.max())
        assert row["std"] == values.std()
        assert row["median"] == np.median(values)
    assert (report.steps, report.left_out, report.missing, report.first_bad) == (200, 0, [], [])
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(tmp_path / "out" / "median"), size_guidance={"scalars": 0})
    reader.Reload()
    expected = [np.float32(row["median"]) for row in rows if row["tag"] == "loss"]
    assert [event.value for event in reader.Scalars("loss")] == expected


def test_a_step_that_a_rank_lacks_is_left_out_or_filled(tmp_path: Path) -> None:
    ranks: list[_Values] = [{step: {"loss": float(step * 10 + rank)} for step in range(1, 6)} for rank in range(3)]
    del ranks[1][3]
    del ranks[2][1]
    for number, values in enumerate(ranks):
        _write_rank(tmp_path / "run" / f"rank_{number}", values)
    report = aggregate_ranks(tmp_path / "run", tmp_path / "strict")
    assert [row["step"] for row in _rows(tmp_path / "strict")] == [2, 4, 5]
    assert report.left_out == 2
    assert [(one.gaps, one.gap_steps) for one in report.ranks] == [(0, {}), (1, {"loss": [3]}), (1, {"loss": [1]})]
    aggregate_ranks(tmp_path / "run", tmp_path / "filled", fill=True)
    rows = {row["step"]: row for row in _rows(tmp_path / "filled")}
    assert rows[1]["mean"] == np.mean([10, 11])
    assert rows[3]["mean"] == np.mean([30, 21, 32])
    assert [rows[step]["ranks"] for step in range(1, 6)] == [2, 3, 2, 3, 3]


def test_the_odd_ranks_are_named(tmp_path: Path) -> None:
    ranks = _random_ranks(random.Random(2), 6, 50)
    ranks[4][20]["lr"] = math.nan
    ranks[2][31]["loss"] = math.inf
    for step in range(40, 51):
        del ranks[5][step]
    for number, values in enumerate(ranks):
        if number != 3:
            _write_rank(tmp_path / "run" / f"rank_{number}", values, start=1e9 + (0.5 if number == 1 else 0.0))
    report = aggregate_ranks(tmp_path / "run", tmp_path / "out")
    assert report.missing == [3]
    assert [(bad.rank, bad.tag, bad.step, bad.value) for bad in report.first_bad] == [
        (4, "lr", 20, "NaN"),
        (2, "loss", 31, "Infinity"),
    ]
    by_rank = {one.rank: one for one in report.ranks}
    assert by_rank[5].last_step == 39
    assert by_rank[5].gaps == 22
    assert by_rank[1].last_share == 1.0
    assert by_rank[0].last_share == 0.0
    at = next(row for row in _rows(tmp_path / "out") if (row["step"], row["tag"]) == (20, "lr"))
    assert at["mean"] == "NaN"
    assert isinstance(at["max"], float)


@pytest.mark.parametrize("number", [1 << 20, 10**18, -(10**18)])
def test_a_number_that_no_rank_has_is_told_and_costs_no_list_without_end(tmp_path: Path, number: int) -> None:
    for rank, name in ((0, "rank_0"), (number, f"rank_{abs(number)}")):
        directory = tmp_path / "run" / name
        directory.mkdir(parents=True)
        line = {"kind": "sample", "step": 1, "wall_time": 1e9, "rank": rank, "values": {"loss": 1.0}}
        (directory / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    for what in ("journals", "auto"):
        report = aggregate_ranks(tmp_path / "run", tmp_path / what, what=what)
        assert ([one.rank for one in report.ranks], report.missing) == ([0, 1], [])
        assert [f"rank {number} is beyond" in problem for problem in report.problems] == [True]


def test_a_directory_of_a_number_that_no_rank_has_is_told(tmp_path: Path) -> None:
    for name in ("rank_0", f"rank_{10**18}"):
        _write_rank(tmp_path / "run" / name, {1: {"loss": 1.0}})
    report = aggregate_ranks(tmp_path / "run", tmp_path / "out")
    assert ([one.rank for one in report.ranks], report.missing) == ([0, 1], [])
    assert [f"rank {10**18} is beyond" in problem for problem in report.problems] == [True]


def test_a_rank_that_goes_back_is_counted(tmp_path: Path) -> None:
    _write_rank(tmp_path / "run" / "rank_0", {step: {"loss": 1.0} for step in range(1, 101)})
    _write_rank(tmp_path / "run" / "rank_1", {step: {"loss": 1.0} for step in range(1, 101)})
    with SummaryWriter(str(tmp_path / "run" / "rank_1"), filename_suffix=".later") as writer:
        for step in range(51, 121):
            writer.add_scalar("loss", 2.0, step, walltime=2e9 + step)
    report = aggregate_ranks(tmp_path / "run", tmp_path / "out")
    assert len(_rows(tmp_path / "out")) == 100
    rows = {row["step"]: row["max"] for row in _rows(tmp_path / "out")}
    assert (report.ranks[1].went_back == 0) == (rows[60] == 2.0)


@pytest.mark.parametrize("held", [70, 5000])
def test_windows_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    rng = random.Random(3)
    ranks = _random_ranks(rng, 4, 600)
    for values in ranks:
        for step in rng.sample(range(1, 600), 100):
            del values[step]["lr"]
    for number, values in enumerate(ranks):
        _write_rank(tmp_path / "run" / f"rank_{number}", values)
    aggregate_ranks(tmp_path / "run", tmp_path / "whole", fill=True)
    monkeypatch.setattr("ms_summary_bridge.aggregate.aggregate._ROWS", held)
    monkeypatch.setattr(sources, "_HELD_BYTES", 4 * 8192)
    aggregate_ranks(tmp_path / "run", tmp_path / "windows", fill=True)
    for path in (tmp_path / "whole").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (tmp_path / "windows" / path.relative_to(tmp_path / "whole")).read_bytes()


def test_memory_does_not_grow_with_the_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ms_summary_bridge.aggregate.aggregate._ROWS", 4000)
    monkeypatch.setattr(sources, "_HELD_BYTES", 4 * 8192)
    peaks = []
    for steps in (4_000, 16_000):
        for number in range(4):
            form = LogFormat("mindinsight")
            path = tmp_path / str(steps) / f"rank_{number}" / form.name(0)
            path.parent.mkdir(parents=True)
            value = [form.value(b"loss", bytes(4))]
            events = [form.event(1e9, b"\x10" + varint(step), value) for step in range(1, steps)]
            path.write_bytes(b"".join(map(encode_record, [form.version(), *events])))
        tracemalloc.start()
        aggregate_ranks(tmp_path / str(steps), tmp_path / f"out{steps}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_ranks_outnumber_the_files_that_may_be_open(tmp_path: Path) -> None:
    for number in range(100):
        _write_rank(tmp_path / "run" / f"rank_{number}", {step: {"loss": float(number)} for step in range(1, 4)})
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
        "from ms_summary_bridge.aggregate.aggregate import aggregate_ranks\n"
        "print(len(aggregate_ranks(sys.argv[1], sys.argv[2]).problems))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"
    assert {row["mean"] for row in _rows(tmp_path / "out")} == {49.5}


def test_journals_are_read(tmp_path: Path) -> None:
    for rank in range(3):
        directory = tmp_path / "run" / f"rank_{rank}"
        directory.mkdir(parents=True)
        lines: list[dict[str, object]] = [{"kind": "header", "format": 1}]
        for step in (10, 20):
            sample = {"kind": "sample", "step": step, "wall_time": 1e9 + step, "rank": rank}
            lines.append({**sample, "values": {"loss": 1.0 + rank, "lr": None}, "nonfinite": {"lr": "nan"}})
        (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"kind": "sam')
    report = aggregate_ranks(tmp_path / "run", tmp_path / "out")
    assert [one.rank for one in report.ranks] == [0, 1, 2]
    assert [row["mean"] for row in _rows(tmp_path / "out")] == [2.0, "NaN", 2.0, "NaN"]
    assert report.first_bad[0].tag == "lr"


@pytest.mark.parametrize("what", ["auto", "journals"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_runs_own_journal_is_no_rank_of_it(tmp_path: Path, what: Literal["auto", "journals"], ranks: int) -> None:
    engines = [
        Engine(tmp_path / "runs", ProcessRank(rank=rank, ranks=ranks), interval=0).begin() for rank in range(ranks)
    ]
    for step in (1, 2):
        for rank, engine in enumerate(engines):
            engine.step(step, outputs=float(rank))
    for engine in reversed(engines):
        engine.end()
    run, out = engines[0].directory, tmp_path / "out"
    assert (run / "metrics.jsonl").exists()
    for source in (tmp_path / "runs", run):
        report = aggregate_ranks(source, out, what=what, force=True)
        assert [one.rank for one in report.ranks] == list(range(ranks))
        assert [Path(one.source).name for one in report.ranks] == [f"rank_{rank}" for rank in range(ranks)]
        assert [row["mean"] for row in _rows(out) if row["tag"] == "loss"] == [(ranks - 1) / 2] * 2


def test_what_a_journal_loses_is_said(tmp_path: Path) -> None:
    for rank in range(2):
        directory = tmp_path / "run" / f"rank_{rank}"
        directory.mkdir(parents=True)
        sample = sample_line(Sample(step=1, epoch=1, wall_time=1e9, values={"loss": 1.0, "lr": math.inf}), rank)
        lines = [json.dumps(sample), '{"kind": "sample", "ste', '{"kind": "sample", "step": "2"}', '{"kind": "alert"}']
        (directory / "metrics.jsonl").write_text("\n".join(lines) + '\n{"kind": "sam')
    report = aggregate_ranks(tmp_path / "run", tmp_path / "out")
    assert [problem.rpartition(": ")[2] for problem in report.problems] == [
        "2 lines are torn, or not samples as the monitor writes them"
    ] * 2
    assert [(bad.rank, bad.tag, bad.value) for bad in report.first_bad] == [
        (0, "lr", "Infinity"),
        (1, "lr", "Infinity"),
    ]
    assert [row["mean"] for row in _rows(tmp_path / "out")] == [1.0, "Infinity"]


def test_a_damaged_or_empty_file_costs_its_rank_and_is_named(tmp_path: Path) -> None:
    for number in range(3):
        _write_rank(tmp_path / "run" / f"rank_{number}", {step: {"loss": 1.0} for step in range(1, 20)})
    (path,) = (tmp_path / "run" / "rank_1").glob("events*")
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    report = aggregate_ranks(tmp_path / "run", tmp_path / "out")
    assert any("rank 1" in problem and "damaged" in problem for problem in report.problems)
    assert report.ranks[1].gaps == 1


def test_one_is_one_and_many_are_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write_rank(tmp_path / "one" / "rank_0", {1: {"loss": 1.0}})
    assert main(["aggregate", str(tmp_path / "one"), str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.startswith("1 rank, 1 tag, 1 value: 1 step aggregated\n")
    for rank in range(2):
        tags = {"loss": 1.0, "lr": 1.0} if rank else {"loss": 1.0}
        _write_rank(tmp_path / "two" / f"rank_{rank}", {1: tags, 2: {"loss": 1.0}})
    assert main(["aggregate", str(tmp_path / "two"), str(tmp_path / "out2")]) == 0
    said = capsys.readouterr().out
    assert said.startswith("2 ranks, 2 tags, 5 values: 2 steps aggregated\n")
    assert "rank 0 lacks 1 value that others have (lr at 1)\n" in said
    assert "left out    1 step of a tag that not all ranks have" in said


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    with pytest.raises(LogdirError):
        aggregate_ranks(tmp_path / "missing", tmp_path / "out")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NoEventsError, match="summary file"):
        aggregate_ranks(tmp_path / "empty", tmp_path / "out")
    for name in ("a/rank_0", "b/rank_0"):
        _write_rank(tmp_path / "two" / name, {1: {"loss": 1.0}})
    with pytest.raises(UsageError, match="one training at a time"):
        aggregate_ranks(tmp_path / "two", tmp_path / "out")
    aggregate_ranks(tmp_path / "two" / "a", tmp_path / "out")
    with pytest.raises(FileTakenError, match="--force"):
        aggregate_ranks(tmp_path / "two" / "a", tmp_path / "out")
    report = aggregate_ranks(tmp_path / "two" / "a", tmp_path / "out", force=True)
    assert isinstance(report, AggregateReport)
