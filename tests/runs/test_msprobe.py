"""Tables of msprobe's monitor, made after its documentation: read, converted, aggregated, inspected, and damaged."""

from __future__ import annotations

import csv
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ms_summary_bridge.aggregate.aggregate import aggregate_ranks
from ms_summary_bridge.cli import main
from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.columns.read import read_scalars
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.errors import NoEventsError
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.runs.msprobe import TableNotes, read_tables
from ms_summary_bridge.runs.reading import RunReading, read_points
from ms_summary_bridge.values import Scalar

START = 1_700_000_000
WEIGHT = "module.decoder.layers.0.weight"
FLOAT32_MAX = 3.4028234663852886e38


def write(path: Path, rows: list[list[Any]], seconds: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    os.utime(path, (START + seconds, START + seconds))
    return path


def write_first(directory: Path, rank: int, steps: int = 6, each: int = 3) -> Path:
    """What the monitor of version 1 writes for a rank: gradients, and activations with micro steps."""
    place = directory / f"Dec03_21-34-40-rank{rank}-a1b2c3d4"
    for first in range(0, steps, each):
        of_file = range(first, min(first + each, steps))
        write(
            place / f"grad_reduced_{first}-{first + each - 1}.csv",
            [
                ["vpp_stage", "name", "step", "norm", "max", "min", "mean", "shape"],
                *([0, WEIGHT, step, step + rank / 10, 2.5, -2.5, 1e-06, "[4096, 4]"] for step in of_file),
            ],
            first,
        )
        write(
            place / f"actv_{first}-{first + each - 1}.csv",
            [
                ["vpp_stage", "name", "step", "micro_step", "norm", "nans"],
                *([1, "layers.0.mlp.output", step, micro, step * 2.0, 0] for step in of_file for micro in (0, 1)),
            ],
            first,
        )
    return place


def read(directory: Path) -> dict[tuple[str, str], dict[int, float]]:
    """Returns what is in a directory, with the runs' names and tags."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for run in discover(directory).runs:
        for point in read_points(run):
            value = Scalar(point.fingerprint).value
            found.setdefault((run.name, point.tag), {})[point.step] = value
    return found


def test_both_layouts_are_read(tmp_path: Path) -> None:
    place = write_first(tmp_path / "v1", 3)
    write(
        tmp_path / "v2" / "rank_7" / "weight_grad_step0-4.csv",
        [
            ["vpp_stage", "step", "module_name", "scope", "micro_step", "min", "max", "mean", "norm", "nans"],
            [0, 2, WEIGHT, "unreduced", 8, -1.0, 1.0, 0.0, "nan", 3],
            [0, 2, WEIGHT, "reduced", 8, -1.0, "inf", 0.0, 4.0, ""],
        ],
    )
    (first,) = discover(tmp_path / "v1").runs
    assert (first.name, first.format, first.rank, len(first.files)) == (place.name, "msprobe", 3, 4)
    found = read(tmp_path / "v1")
    tags = {tag for _, tag in found}
    assert tags == {
        *(f"grad_reduced/vp0:{WEIGHT}/{name}" for name in ("norm", "max", "min", "mean")),
        *(f"actv/vp1:layers.0.mlp.output:micro{micro}/{name}" for micro in (0, 1) for name in ("norm", "nans")),
    }
    norms = found[place.name, f"grad_reduced/vp0:{WEIGHT}/norm"]
    assert norms == {step: pytest.approx(step + 0.3) for step in range(6)}
    second = read(tmp_path / "v2")
    name = f"weight_grad/unreduced/vp0:{WEIGHT}:micro8"
    assert math.isnan(second["rank_7", f"{name}/norm"][2])
    assert second["rank_7", f"{name}/nans"] == {2: 3.0}
    reduced = f"weight_grad/reduced/vp0:{WEIGHT}:micro8"
    assert second["rank_7", f"{reduced}/max"] == {2: math.inf}
    assert ("rank_7", f"{reduced}/nans") not in second, "an empty cell is no value"
    assert discover(tmp_path / "v2").runs[0].rank == 7


def test_rows_come_by_step_whatever_their_files(tmp_path: Path) -> None:
    """So that a window of steps is enough, of any number of kinds; a file for each step is msprobe's default."""
    place = write_first(tmp_path, 0, steps=12, each=1)
    (run,) = discover(tmp_path).runs
    steps = [event.step for event in read_tables(run.files, TableNotes(), chunk_bytes=7)]
    assert steps == sorted(steps)
    assert len(steps) == 12 * 3
    assert [os.path.basename(file.path) for file in run.files][:4] == [
        "actv_0-0.csv",
        "grad_reduced_0-0.csv",
        "actv_1-1.csv",
        "grad_reduced_1-1.csv",
    ]
    times = {event.wall_time for event in read_tables(run.files, TableNotes())}
    assert times == {START + step for step in range(12)}, "of its file"
    assert discover(place).runs[0].name == "."
    assert discover(place / "actv_3-3.csv").runs[0].files[0].path == str(place / "actv_3-3.csv")


@pytest.mark.parametrize("to", ["tensorboard", "mindinsight"])
def test_it_is_converted(tmp_path: Path, to: str) -> None:
    for rank in (0, 1):
        write_first(tmp_path / "probe", rank)
    report = convert_logdir(tmp_path / "probe", tmp_path / "out", to=to)
    assert not report.failed
    assert [run.failed for run in report.runs] == ["", ""]
    assert [run.events_read for run in report.runs] == [18, 18]
    assert report.runs[0].values == {"scalar": 6 * 4 + 12 * 2}
    assert "column shape: texts, which are left out" in report.runs[0].problems
    source, output = read(tmp_path / "probe"), read(tmp_path / "out")
    assert output == source
    assert {run.format for run in discover(tmp_path / "out").runs} == {"mindspore" if to == "mindinsight" else to}
    again = convert_logdir(tmp_path / "probe", tmp_path / "out", to=to)
    assert [run.events_read for run in again.runs] == [0, 0]
    assert read(tmp_path / "out") == source


def test_without_a_word_it_goes_to_tensorboard_and_the_same_bytes_come_again(tmp_path: Path) -> None:
    write_first(tmp_path / "probe", 0)
    for name in ("a", "b"):
        assert convert_logdir(tmp_path / "probe", tmp_path / name).to == "tensorboard"
    files = [{path.name: path.read_bytes() for path in (tmp_path / n).rglob("*tfevents*")} for n in ("a", "b")]
    assert files[0] == files[1]
    assert files[0]


def test_what_has_grown_is_converted_anew(tmp_path: Path) -> None:
    place = write_first(tmp_path / "probe", 0)
    convert_logdir(tmp_path / "probe", tmp_path / "out")
    with (place / "grad_reduced_0-2.csv").open("a") as file:  # a late row, of a step that other kinds are beyond
        file.write(f"0,{WEIGHT}.late,1,7.0,1,1,1,x\n")
    write_first(tmp_path / "probe", 0, steps=9)
    with (place / "grad_reduced_6-8.csv").open("a") as file:
        file.write(f"0,{WEIGHT}.late,7,7.0,1,1,1,x\n")
    report = convert_logdir(tmp_path / "probe", tmp_path / "out")
    assert [run.failed for run in report.runs] == [""]
    assert read(tmp_path / "out") == read(tmp_path / "probe")
    assert len(list((tmp_path / "out").rglob("*tfevents*"))) == 1


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    write_first(tmp_path / "probe", 0)
    report = convert_logdir(tmp_path / "probe", tmp_path / "out", options=ConvertOptions(dry_run=True))
    assert report.runs[0].values == {"scalar": 48}
    assert not (tmp_path / "out").exists()
    kept = convert_logdir(tmp_path / "probe", tmp_path / "tags", options=ConvertOptions(tags="norm"))
    assert kept.runs[0].values == {"scalar": 18}


def test_damage_is_named_and_counted_and_costs_its_rows_alone(tmp_path: Path) -> None:
    place = write_first(tmp_path / "probe", 0)
    path = place / "grad_reduced_0-2.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    broken = [b"0,short,1\n", b"0,\xff\xfe,1,1,1,1,1,x\n", b'0,"open,1,1,1,1,1,x\n', b"0,n,one,1,1,1,1,x\n"]
    broken += [b"0,n,inf,1,1,1,1,x\n", b"0,n,-1,1,1,1,1,x\n", b"\0" * 20 + b"\n"]
    good = lines[1:]
    path.write_bytes(lines[0] + good[0] + b"".join(broken) + b"\n" + good[1].replace(b"\n", b"\r\n") + good[2][:-9])
    (place / "actv_0-2.csv").write_bytes(b"not,a,table\n1,2,3\n")
    (place / "param_origin_0-2.csv").write_bytes(b"")
    (place / "exp_avg_0-2.csv").write_bytes(b"vpp_stage,na")
    found = inspect_logdir(tmp_path / "probe")
    (run,) = found.runs
    assert found.is_partial
    assert [(os.path.basename(d.file), d.reason) for d in run.damaged] == [
        ("actv_0-2.csv", "its first line is not that of msprobe"),
        ("grad_reduced_0-2.csv", "3 cells where 8 belong"),
        ("grad_reduced_0-2.csv", "not UTF-8"),
        ("grad_reduced_0-2.csv", "unexpected end of data"),
        ("grad_reduced_0-2.csv", "could not convert string to float: 'one'"),
        ("grad_reduced_0-2.csv", "cannot convert float infinity to integer"),
        ("grad_reduced_0-2.csv", "step '-1'"),
        # Before 3.11 csv itself refuses a zero byte.
        ("grad_reduced_0-2.csv", "1 cell where 8 belong" if sys.version_info >= (3, 11) else "line contains NUL"),
    ]
    start = len(lines[0] + good[0])
    assert (run.damaged[1].start, run.damaged[1].end) == (start, start + len(broken[0]))
    cut = {os.path.basename(tail.file): tail.offset for tail in run.incomplete}
    assert cut["exp_avg_0-2.csv"] == 0
    assert cut["grad_reduced_0-2.csv"] == path.stat().st_size - len(good[2]) + 9
    assert [os.path.basename(name) for name in found.empty] == ["param_origin_0-2.csv"]
    norms = read(tmp_path / "probe")[place.name, f"grad_reduced/vp0:{WEIGHT}/norm"]
    assert sorted(norms) == [0, 1, 3, 4, 5]
    assert main(["convert", str(tmp_path / "probe"), str(tmp_path / "out"), "--quiet"]) == 3
    assert read(tmp_path / "out") == read(tmp_path / "probe")


def test_columns_that_nobody_knows_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = ["vpp_stage", "name", "step", "sr", "my_op", "note", "norm"]
    write(tmp_path / "linear_hook_0-0.csv", [head, [0, "w", 0, 1.5, 2.0, "text", 1e39], [0, "v", 0, "1_0", 3, "", 0]])
    assert main(["inspect", str(tmp_path), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["problems"] == [
        "columns that msprobe does not document, read as numbers: my_op, note",
        "column note: 1 cell holds no number: left out",
        "column sr: 1 cell holds no number: left out",
        "1 number is beyond float32, and infinite here",
    ]
    assert {tag["tag"] for tag in run["tags"]} >= {"linear_hook/vp0:w/my_op", "linear_hook/vp0:w/sr"}
    assert main(["inspect", str(tmp_path)]) == 0
    assert "columns that msprobe does not document" in capsys.readouterr().out


def test_ranks_are_aggregated(tmp_path: Path) -> None:
    for rank in range(4):
        write_first(tmp_path / "probe", rank, steps=30, each=5)
    place = tmp_path / "probe" / "Dec03_21-34-40-rank2-a1b2c3d4"
    path = place / "grad_reduced_10-14.csv"
    path.write_text(path.read_text().replace(",12.2,", ",nan,"))
    for file in (tmp_path / "probe" / "Dec03_21-34-40-rank3-a1b2c3d4").iterdir():
        file.write_bytes(b"")  # a rank that left nothing
    report = aggregate_ranks(tmp_path / "probe", tmp_path / "out")
    assert [rank.rank for rank in report.ranks] == [0, 1, 2]
    assert any("rank3" in problem and "zero bytes" in problem for problem in report.problems)
    assert [(bad.rank, bad.step, bad.value) for bad in report.first_bad] == [(2, 12, "NaN")]
    assert report.first_bad[0].tag == f"grad_reduced/vp0:{WEIGHT}/norm"
    assert [rank.went_back for rank in report.ranks] == [0, 0, 0]
    assert [rank.values for rank in report.ranks] == [30 * 8] * 3
    mean = read(tmp_path / "out" / "mean")[".", f"grad_reduced/vp0:{WEIGHT}/norm"]
    assert mean[3] == pytest.approx(3.1)
    assert len(mean) == 30


def test_beside_event_files_they_are_not_looked_for(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    write_first(tmp_path / "probe", 0)
    converted = tmp_path_factory.mktemp("converted")
    convert_logdir(tmp_path / "probe", converted)
    write_first(converted, 0)
    assert {run.format for run in discover(converted).runs} == {"tensorboard"}


def test_other_tables_are_no_runs(tmp_path: Path) -> None:
    (tmp_path / "loss_0-4.csv").write_text("step,loss\n0,1\n")
    (tmp_path / "metrics.csv").write_text("vpp_stage,name,step\n")
    assert discover(tmp_path).runs == ()
    with pytest.raises(NoEventsError):
        convert_logdir(tmp_path, tmp_path / "out")


def test_columns_are_read_for_pandas_too(tmp_path: Path) -> None:
    write_first(tmp_path / "probe", 0)
    table = read_scalars(tmp_path / "probe", tags="max$")
    assert len(table) == 6
    assert table.problems == [], "texts are no problem"


def test_they_are_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_first(tmp_path / "probe", 0)
    assert main(["convert", str(tmp_path / "probe"), str(tmp_path / "out"), "--follow"]) == 2
    assert "tables of msprobe are not followed" in capsys.readouterr().err


def test_verify_says_that_it_has_no_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_first(tmp_path / "probe", 0)
    convert_logdir(tmp_path / "probe", tmp_path / "out")
    assert main(["verify", str(tmp_path / "probe"), str(tmp_path / "out")]) == 2
    assert "tables of msprobe" in capsys.readouterr().err


@settings(max_examples=30)
@given(data=st.binary(max_size=300), chunk=st.integers(1, 64))
def test_any_bytes_are_read_without_an_error(tmp_path_factory: pytest.TempPathFactory, data: bytes, chunk: int) -> None:
    directory = tmp_path_factory.getbasetemp() / "any"
    path = write(directory / "actv_0-0.csv", [["vpp_stage", "name", "step", "norm"], [0, "w", 0, 1.0]])
    with path.open("ab") as file:
        file.write(data)
    (run,) = discover(directory).runs
    notes = TableNotes()
    events = [event.step for event in read_tables(run.files, notes, chunk_bytes=chunk)]
    assert 0 in events
    rows = sum(bool(line.strip(b"\r")) for line in data.split(b"\n")[:-1])
    damaged = sum(fault.end is not None for fault in notes.faults)
    assert len(events) - 1 + damaged <= rows
    whole = TableNotes()
    assert [event.step for event in read_tables(run.files, whole)] == events
    assert [(fault.start, fault.end) for fault in whole.faults] == [(fault.start, fault.end) for fault in notes.faults]
    assert RunReading().problems == []
