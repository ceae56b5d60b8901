"""What both of TensorBoard's loaders serve of runs with several files: all that nothing newer replaces.

Judged over HTTP, source against result, series by series.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.events import Event
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.formats.wire import FLOAT32, fixed64, length_delimited, varint
from ms_summary_bridge.runs.archive import make_decoder
from tests.conftest import TESTS, TensorBoardClient, TensorBoardServer
from tests.mindspore_run import START, event, image, scalar, write_summary
from tests.scripted import build_record, put, scalar_payload, tensorboard_name, version_payload

pytestmark = pytest.mark.tensorboard
Row = tuple[int, float | str]
LOADERS = (True, False)


def board_scalar(tag: str, step: int, value: float, wall_time: float) -> bytes:
    body = length_delimited(b"\x0a", tag.encode()) + b"\x15" + FLOAT32.pack(value)
    head = fixed64(b"\x09", wall_time) + b"\x10" + varint(step)
    return build_record(head + length_delimited(b"\x2a", length_delimited(b"\x0a", body)))


def board_file(directory: Path, seconds: int, *records: bytes, tail: str = "host.1.0") -> Path:
    head = build_record(version_payload("tensorboard", wall_time=seconds))
    return put(directory / tensorboard_name(seconds, tail), head + b"".join(records))


def start_mark(step: int, wall_time: float) -> bytes:
    return build_record(fixed64(b"\x09", wall_time) + b"\x10" + varint(step) + length_delimited(b"\x3a", b"\x08\x01"))


def rows(client: TensorBoardClient, run: str, tag: str) -> list[Row]:
    return [(row[1], row[2]) for row in client.get_json("data/plugin/scalars/scalars", run=run, tag=tag)]


def wait_rows(client: TensorBoardClient, run: str, tag: str, expected: Sequence[Row]) -> None:
    client.wait(lambda: rows(client, run, tag), lambda found: found == [*expected], f"{run} {tag}")


def wait_all(client: TensorBoardClient, run: str, expected: dict[str, Sequence[Row]]) -> None:
    """Waits until a run's scalars are these, and checks that every page of the logdir answers."""
    for tag, points in expected.items():
        wait_rows(client, run, tag, points)
    for plugin in ("scalars", "images", "histograms", "text"):
        client.get_json(f"data/plugin/{plugin}/tags")


@pytest.mark.parametrize(
    ("heads", "newest_of"),
    [((0, 0, 0), ()), ((0, 1, 0), ()), ((0, 2, 0), (1,)), ((1, 1, 0), (1,)), ((0, 2, 1), (1, 2))],
)
def test_what_the_loaders_make_of_marks(
    tmp_path: Path, tensorboard_server: TensorBoardServer, heads: tuple[int, ...], newest_of: tuple[int, ...]
) -> None:
    """The fact that the converter builds on: the slow loader's first mark drops nothing, each later one does."""
    firsts = (0, 5, 12)
    for n, (first, count) in enumerate(zip(firsts, heads, strict=True)):
        begun = START + 100 * n
        records = [start_mark(first, begun)] * count
        records += [
            build_record(scalar_payload("tensorboard", step, 100 * n + step, wall_time=begun + step))
            for step in range(first, first + 10)
        ]
        board_file(tmp_path / "log" / "run", begun, *records)
    newest = [(step, 100.0 * sum(step >= first for first in firsts[1:]) + step) for step in range(22)]
    wait_rows(tensorboard_server(tmp_path / "log", True), "run", "loss", newest)
    shown: list[Row] = []
    for n, first in enumerate(firsts):
        if n in newest_of:
            shown = [row for row in shown if row[0] < first]
        shown += [(step, 100.0 * n + step) for step in range(first, first + 10)]
    wait_rows(tensorboard_server(tmp_path / "log", False), "run", "loss", shown)


# --- D01: a later small file


def write_landscapes_like(run: Path) -> dict[str, list[Row]]:
    """Writes a training, and a file of a tool that repeats some of its tags at step 0."""
    tags = ("loss/auto", "accuracy")
    events = [event(s, *[(tag, scalar(s / 128)) for tag in tags], ("input", image())) for s in range(1, 121)]
    write_summary(run, events)
    write_summary(run, [event(0, ("accuracy", scalar(0.5)), wall_time=START + 500)], seconds=START + 500)
    return {"loss/auto": [(s, s / 128) for s in range(1, 121)]}


def test_d01_a_later_small_file_hides_nothing(tmp_path: Path, tensorboard_server: TensorBoardServer) -> None:
    expected = write_landscapes_like(tmp_path / "ms" / "run")
    (report,) = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb")).runs
    assert report.restarts == []
    assert [problem for problem in report.problems if "'loss/auto'" in problem and "no restart" in problem]
    for load_fast in LOADERS:
        client = tensorboard_server(tmp_path / "tb", load_fast)
        wait_all(client, "run", expected)
        assert len(rows(client, "run", "accuracy")) == (1 if load_fast else 121)
        assert client.get_json("data/plugin/images/tags")["run"]["input"]["samples"] == 1


@pytest.mark.mindspore
def test_d01_a_real_landscape_after_a_training_with_summary_operators(
    tmp_path: Path, tensorboard_server: TensorBoardServer
) -> None:
    with (tmp_path / "output.txt").open("w+b") as output:
        done = subprocess.run(
            [
                sys.executable,
                str(TESTS / "train_landscape.py"),
                str(tmp_path / "ms" / "run"),
                "--size",
                "3",
                "--operators",
            ],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=280,
            check=False,
        )
        output.seek(0)
        assert done.returncode == 0, output.read()[-4000:]
    expected: dict[str, list[Row]] = {}
    first, second = sorted((tmp_path / "ms" / "run").glob("*_MS"))
    for item in EventFileReader(first, make_decoder("mindspore")):
        for tagged in getattr(getattr(item, "content", None), "values", ()):
            if tagged.value.kind == "scalar" and (item.step, tagged.value.value) not in expected.get(tagged.tag, []):
                expected.setdefault(tagged.tag, []).append((item.step, tagged.value.value))
    assert len(expected["loss/auto"]) == 6
    (report,) = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb")).runs
    assert (report.failed, report.restarts) == ("", [])
    again = {tag for item in EventFileReader(second, make_decoder("mindspore")) for tag in tags_of(item)}
    for load_fast in LOADERS:
        client = tensorboard_server(tmp_path / "tb", load_fast)
        wait_all(client, "run", {tag: points for tag, points in expected.items() if tag not in again})
        assert "run" in client.get_json("data/plugin/images/tags")
    (latest,) = convert_logdir(
        str(tmp_path / "ms"), str(tmp_path / "latest"), options=ConvertOptions(on_restart="latest")
    ).runs
    assert latest.superseded == 0


def tags_of(item: object) -> list[str]:
    return [tagged.tag for tagged in getattr(getattr(item, "content", None), "values", ())]


# --- D02: two writers at once


TRAIN = [(step, float(step)) for step in range(100)]
EVAL = [(step, float(step)) for step in range(0, 100, 10)]


def write_at_once(directory: Path, file_format: str) -> None:
    """Writes a training's file and an evaluation's, which share one tag."""
    for n, (tag, points) in enumerate((("train/loss", TRAIN), ("val/loss", EVAL))):
        begun = START + n
        if file_format == "mindspore":
            events = [
                event(step, (name, scalar(value)), wall_time=begun + step)
                for step, value in points
                for name in (tag, "lr")
            ]
            write_summary(directory, events, seconds=begun)
        else:
            records = [board_scalar(name, step, value, begun + step) for step, value in points for name in (tag, "lr")]
            board_file(directory, begun, *records, tail=f"host.{n}.0")


@pytest.mark.parametrize("file_format", ["mindspore", "tensorboard"])
def test_d02_two_writers_at_once_hide_nothing_of_each_other(
    tmp_path: Path, tensorboard_server: TensorBoardServer, file_format: str
) -> None:
    source, result = tmp_path / "source", tmp_path / "result"
    write_at_once(source / "run", file_format)
    if file_format == "mindspore":
        reports = [convert_logdir(str(source), str(result)).runs[0]]
    else:
        reports = [convert_logdir(str(source), str(tmp_path / "there"), to="mindinsight").runs[0]]
        reports += convert_logdir(str(tmp_path / "there"), str(result)).runs
        assert len(list((tmp_path / "there" / "run").glob("*_MS"))) == 1
    assert [(report.failed, report.restarts) for report in reports] == [("", [])] * len(reports)
    assert reports[0].went_back == {}
    for load_fast in LOADERS:
        client = tensorboard_server(result, load_fast)
        wait_all(client, "run", {"train/loss": TRAIN, "val/loss": EVAL})
        if file_format == "tensorboard":
            origin = tensorboard_server(source, load_fast)
            wait_all(origin, "run", {"train/loss": TRAIN, "lr": rows(client, "run", "lr")})


# --- D03: a TensorBoard log there and back


def test_d03_a_restored_log_has_the_marks_of_its_source_and_no_others(
    tmp_path: Path, tensorboard_server: TensorBoardServer
) -> None:
    nodes = [length_delimited(b"\x0a", b"a") + length_delimited(b"\x12", b"Const")]
    nodes += [length_delimited(b"\x0a", b"b") + length_delimited(b"\x12", b"Relu") + length_delimited(b"\x1a", b"a")]
    graph = b"".join(length_delimited(b"\x0a", node) for node in nodes)
    records = [build_record(fixed64(b"\x09", START) + length_delimited(b"\x22", graph)), start_mark(0, START + 1)]
    records += [build_record(scalar_payload("tensorboard", step, wall_time=START + 2 + step)) for step in range(5)]
    board_file(tmp_path / "tb" / "run", START, *records)
    later = [start_mark(3, START + 100)]
    later += [build_record(scalar_payload("tensorboard", s, s + 0.5, wall_time=START + 100 + s)) for s in range(3, 8)]
    board_file(tmp_path / "tb" / "run", START + 100, *later)
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "there"))
    convert_logdir(str(tmp_path / "there"), str(tmp_path / "back"))

    def order(directory: Path) -> list[tuple[str, int]]:
        return [
            (item.content.kind, item.step)
            for path in sorted(directory.glob("*tfevents*"))
            for item in EventFileReader(path, make_decoder("tensorboard"))
            if isinstance(item, Event) and item.content.kind != "file_version"
        ]

    assert order(tmp_path / "back" / "run") == order(tmp_path / "tb" / "run")
    expected = [*((step, float(step)) for step in range(3)), *((step, step + 0.5) for step in range(3, 8))]
    for load_fast in LOADERS:
        for logdir in ("tb", "back"):
            client = tensorboard_server(tmp_path / logdir, load_fast)
            wait_all(client, "run", {"loss": expected})
            assert b'name: "a"' in client.get("data/plugin/graphs/graph?run=run")


# --- two trainings, seen by the plugin


@pytest.mark.parametrize("load_fast", LOADERS)
def test_a_plain_tensorboard_on_mindspore_files_hides_nothing(
    tmp_path: Path, tensorboard_server: TensorBoardServer, monkeypatch: pytest.MonkeyPatch, load_fast: bool
) -> None:
    """The plugin's mirror of a small later file, of two writers at once, and of a restart."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    logdir = tmp_path / "logs"
    small = write_landscapes_like(logdir / "small")
    write_at_once(logdir / "at_once", "mindspore")
    for n, steps in enumerate((range(10), range(5, 15))):
        events = [event(step, ("loss", scalar(100 * n + step)), wall_time=START + 1000 * n + step) for step in steps]
        write_summary(logdir / "again", events, seconds=START + 1000 * n)
    for path in logdir.rglob("*_MS"):
        os.utime(path, (START, START))  # ended long ago
    client = tensorboard_server(logdir, load_fast)
    newest = [*((step, float(step)) for step in range(5)), *((step, 100.0 + step) for step in range(5, 15))]
    wait_all(client, "again", {"loss": newest})
    wait_all(client, "small", dict(small))
    wait_all(client, "at_once", {"train/loss": TRAIN, "val/loss": EVAL})
