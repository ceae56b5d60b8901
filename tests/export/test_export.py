"""Export: the files of each format, against what other readers say of the same logs."""

from __future__ import annotations

import csv
import io
import json
import math
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tensorboardX import SummaryWriter

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.columns.growing import Columns
from ms_summary_bridge.columns.read import read_histograms, read_scalars
from ms_summary_bridge.errors import FileTakenError, LogdirError, UsageError, WriteError
from ms_summary_bridge.export.logdir import export_logdir
from ms_summary_bridge.export.writer import Names
from tests.formats.test_lineage import eval_event, put_lineage, train_event
from tests.mindspore_run import event, scalar, write_summary
from tests.scripted import build_file, put, tensorboard_name


def _write_run(directory: Path) -> None:
    with SummaryWriter(str(directory)) as writer:
        for step in range(100):
            writer.add_scalar("loss", 1 / (step + 1), step, walltime=1e9 + step)
        writer.add_scalar("bad", math.nan, 0)
        writer.add_scalar("bad", -math.inf, 1)
        writer.add_histogram("weights", np.arange(10.0), 3)
        writer.add_text("note", "a | b\nc", 7)
        writer.add_image("../picture", np.zeros((3, 4, 5), np.float32), 3)
        writer.add_image("a/b", np.zeros((3, 4, 5), np.float32), 3)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_holds_the_values_of_all_runs(tmp_path: Path) -> None:
    for name in ("one", "two/deep"):
        _write_run(tmp_path / "logs" / name)
    report = export_logdir(tmp_path / "logs", tmp_path / "out", format="csv")
    table = read_scalars(tmp_path / "logs")
    rows = _rows(tmp_path / "out" / "scalars.csv")
    assert [row["run"] for row in rows] == table.run.tolist()
    assert [row["tag"] for row in rows] == table.tag.tolist()
    assert [int(row["step"]) for row in rows] == table.step.tolist()
    assert [float(row["wall_time"]) for row in rows] == table.wall_time.tolist()
    assert np.array_equal([float(row["value"]) for row in rows], table.value, equal_nan=True)
    (first, _) = read_histograms(tmp_path / "logs")
    buckets = [row for row in _rows(tmp_path / "out" / "histograms.csv") if row["run"] == "one"]
    assert [float(row["left"]) for row in buckets] == first.value.left.tolist()  # type: ignore[union-attr]
    assert [row["text"] for row in _rows(tmp_path / "out" / "texts.csv")] == ["a | b\nc"] * 2
    assert report.files == {"scalars.csv": 204, "histograms.csv": 2, "texts.csv": 2}
    assert report.left_out == {"image": 4}


def test_jsonl_is_strict_json_a_line(tmp_path: Path) -> None:
    _write_run(tmp_path / "run")
    export_logdir(tmp_path / "run", tmp_path / "out", format="jsonl")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    lines = (tmp_path / "out" / "values.jsonl").read_text().splitlines()
    values = [json.loads(line, parse_constant=refuse) for line in lines]
    assert Counter(value["kind"] for value in values) == {"scalar": 102, "histogram": 1, "text": 1, "image": 2}
    assert [value["value"] for value in values if value["tag"] == "bad"] == ["NaN", "-Infinity"]
    assert next(value["value"] for value in values if value["kind"] == "text") == "a | b\nc"


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    _write_run(tmp_path / "run")
    export_logdir(tmp_path / "run", tmp_path / "out", format="parquet")
    table = parquet.read_table(tmp_path / "out" / "scalars.parquet")
    expected = read_scalars(tmp_path / "run")
    assert table.column("tag").to_pylist() == expected.tag.tolist()
    assert np.array_equal(table.column("value").to_numpy(), expected.value, equal_nan=True)
    (histogram,) = parquet.read_table(tmp_path / "out" / "histograms.parquet").to_pylist()
    (read,) = read_histograms(tmp_path / "run")
    assert histogram["left"] == read.value.left.tolist()  # type: ignore[union-attr]
    assert parquet.read_table(tmp_path / "out" / "texts.parquet").to_pylist()[0]["text"] == "a | b\nc"


def test_images_stay_in_the_directory(tmp_path: Path) -> None:
    _write_run(tmp_path / "run")
    export_logdir(tmp_path / "run", tmp_path / "deep" / "out", format="images")
    files = sorted(str(path.relative_to(tmp_path / "deep")) for path in tmp_path.glob("deep/**/*") if path.is_file())
    assert files == ["out/_/picture/3.png", "out/a/b/3.png"]
    assert Image.open(io.BytesIO((tmp_path / "deep" / "out" / "a" / "b" / "3.png").read_bytes())).size == (5, 4)


@pytest.mark.parametrize("name", ["csv", "jsonl", "images"])
def test_what_is_there_is_not_overwritten(tmp_path: Path, name: str) -> None:
    _write_run(tmp_path / "run")
    export_logdir(tmp_path / "run", tmp_path / "out", format=name)
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with pytest.raises(FileTakenError, match="--force"):
        export_logdir(tmp_path / "run", tmp_path / "out", format=name)
    export_logdir(tmp_path / "run", tmp_path / "out", format=name, force=True)
    assert {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()} == before


def test_a_failed_export_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_run(tmp_path / "run")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ms_summary_bridge.export.text_files.rows_of", fail)
    with pytest.raises(WriteError, match="No space left"):
        export_logdir(tmp_path / "run", tmp_path / "out", format="csv")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_damaged_run_costs_its_damage_and_is_named(tmp_path: Path) -> None:
    for name in ("bad", "good"):
        _write_run(tmp_path / "logs" / name)
    (path,) = (tmp_path / "logs" / "bad").glob("events*")
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    report = export_logdir(tmp_path / "logs", tmp_path / "out", format="csv")
    assert report.files["scalars.csv"] == 203
    assert any("bad" in line and "damaged" in line for line in report.problems)


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet", "images"])
def test_runs_and_tags_are_chosen_by_expressions(name: str, tmp_path: Path) -> None:
    if name == "parquet":
        pytest.importorskip("pyarrow")
    for run in ("one", "two/deep"):
        _write_run(tmp_path / "logs" / run)
    report = export_logdir(tmp_path / "logs", tmp_path / "out", format=name, runs="^two", tags="^(lo|weig|note|a/)")
    assert report.runs == 1
    values = {
        "csv": {"scalars.csv": 100, "histograms.csv": 1, "texts.csv": 1},
        "jsonl": {"values.jsonl": 103},
        "parquet": {"scalars.parquet": 100, "histograms.parquet": 1, "texts.parquet": 1},
        "images": {"images": 1},
    }[name]
    assert report.files == values


def test_a_long_log_is_written_as_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is, some hundred thousand scalars are held, and no more."""
    steps = 300_000
    put(tmp_path / "log" / tensorboard_name(), build_file("tensorboard", range(steps)))
    held: list[int] = []

    def count(columns: Columns, names: Names) -> Iterator[tuple[str, int]]:
        held.append(len(columns[0]))
        return iter([])

    monkeypatch.setattr("ms_summary_bridge.export.text_files.rows_of", count)
    report = export_logdir(tmp_path / "log", tmp_path / "out", format="csv")
    assert report.files == {"scalars.csv": steps} == {"scalars.csv": sum(held)}
    assert max(held) < 200_000, held


def test_arguments_are_checked(tmp_path: Path) -> None:
    _write_run(tmp_path / "run")
    with pytest.raises(UsageError, match="format"):
        export_logdir(tmp_path / "run", tmp_path / "out", format="xlsx")
    with pytest.raises(UsageError, match="tags"):
        export_logdir(tmp_path / "run", tmp_path / "out", format="csv", tags="(")
    with pytest.raises(LogdirError):
        export_logdir(tmp_path / "missing", tmp_path / "out", format="csv")


def test_what_stands_in_files_of_its_own_is_counted_too(summary_dir: Path, tmp_path: Path) -> None:
    report = export_logdir(summary_dir, tmp_path / "out", format="csv")
    assert report.left_out["train_lineage"] >= 1
    assert report.left_out["graph"] == 1


def test_a_kind_has_its_article_and_one_value_no_s(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(tmp_path / "run", [event(1, ("loss", scalar(1.0)))])
    put_lineage(tmp_path / "run", train_event(), eval_event('{"Accuracy": 0.9}'))
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"           1 value   {tmp_path / 'out' / 'scalars.csv'}"
    assert "           1 value   left out: csv has no place for an evaluation_lineage" in lines
    assert "           1 value   left out: csv has no place for a train_lineage" in lines
    assert main(["export", str(tmp_path / "run"), str(tmp_path / "out"), "--format", "runs"]) == 0
    assert capsys.readouterr().out == f"           1 row   {tmp_path / 'out' / 'runs.csv'}\n"


def test_it_gives_what_mindinsight_parses(summary_dir: Path, mindinsight_python: Path, tmp_path: Path) -> None:
    """`mindinsight parse_summary` writes scalars and images of one file: ours are the same, value for value."""
    command = [str(mindinsight_python), "-m", "mindinsight", "parse_summary"]
    subprocess.run([*command, "--summary-dir", str(summary_dir), "--output", str(tmp_path / "theirs")], check=True)
    (theirs,) = (tmp_path / "theirs").iterdir()
    export_logdir(summary_dir, tmp_path / "csv", format="csv")
    export_logdir(summary_dir, tmp_path / "images", format="images")
    with (theirs / "scalar.csv").open(newline="") as file:
        expected = [(row[0], int(row[1]), float(row[2]), float(row[3])) for row in list(csv.reader(file))[1:]]
    rows = _rows(tmp_path / "csv" / "scalars.csv")
    numbers = [(row["tag"], int(row["step"]), float(row["wall_time"]), float(row["value"])) for row in rows]
    assert numbers == expected
    assert expected
    their_images = {path.read_bytes() for path in (theirs / "image").iterdir()}
    assert their_images
    assert their_images <= {path.read_bytes() for path in (tmp_path / "images").rglob("*.png")}
