"""TensorBoard itself shows what a conversion wrote, with its fast loader and with its slow one."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.values import Histogram, Scalar
from tests.conftest import TensorBoardClient, TensorBoardServer
from tests.formats.test_graph import graph, graph_event, node
from tests.mindspore_run import PNG, event, histogram, image, scalar, scalars, tensor, write_summary
from tools.tensorboard_api import running_tensorboard

pytestmark = pytest.mark.tensorboard
both_loaders = pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])


def tags(client: TensorBoardClient, plugin: str, run: str, *names: str) -> dict[str, Any]:
    """Waits until a plugin lists these tags in a run, and returns all it lists there."""
    answer = client.wait_json(f"data/plugin/{plugin}/tags", lambda runs: set(names) <= set(runs.get(run, {})))
    return answer[run]


def points(client: TensorBoardClient, run: str, tag: str, *, count: int, plugin: str = "scalars") -> list[Any]:
    return client.wait_json(f"data/plugin/{plugin}/{plugin}", lambda rows: len(rows) >= count, run=run, tag=tag)


@both_loaders
def test_every_kind_under_one_tag_is_shown(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    kinds = [("w", scalar(0.5)), ("w", histogram([1, 0, 3], nan=2)), ("w", image()), ("w", tensor([1, 2, 3]))]
    write_summary(tmp_path / "ms" / "run", [event(step, *kinds) for step in (1, 2)])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    client = tensorboard_server(tmp_path / "tb", load_fast)

    assert set(tags(client, "scalars", "run", "w", "w/nan_count")) == {"w", "w/nan_count"}
    assert [row[1:] for row in points(client, "run", "w", count=2)] == [[1, 0.5], [2, 0.5]]
    assert [row[1:] for row in points(client, "run", "w/nan_count", count=2)] == [[1, 2.0], [2, 2.0]]
    assert set(tags(client, "histograms", "run", "w/histogram")) == {"w/histogram", "w/histogram_2"}
    rows = points(client, "run", "w/histogram", count=2, plugin="histograms")
    assert rows[0][1:] == [1, [[0.0, 0.5, 1.0], [0.5, 1.0, 0.0], [1.0, 1.5, 3.0]]]
    assert set(tags(client, "images", "run", "w/image")) == {"w/image"}
    images = client.wait_json("data/plugin/images/images", lambda r: len(r) == 2, run="run", tag="w/image", sample=0)
    assert client.get(f"data/plugin/images/individualImage?{images[0]['query']}") == PNG
    assert "w/text" in client.wait_json("data/plugin/text/tags", lambda runs: runs.get("run"))["run"]
    text = client.wait_json("data/plugin/text/text", run="run", tag="w/text")
    assert "float32" in text[0]["text"]


@both_loaders
def test_a_restart_shows_the_newest_session(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    first = [e for step in range(10) for e in scalars("loss", [step]) + scalars("lr", [step])]
    write_summary(tmp_path / "ms", first, seconds=1_700_000_000)
    start = 1_700_001_000
    again = [e for s in range(5, 15) for tag in ("lr", "loss") for e in scalars(tag, [s], offset=100, start=start)]
    write_summary(tmp_path / "ms", again, seconds=start)
    report = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb" / "run"))
    client = tensorboard_server(tmp_path / "tb", load_fast)

    assert [(mark.step) for mark in report.runs[0].restarts] == [5]
    for tag in ("loss", "lr"):
        rows = points(client, "run", tag, count=15)
        assert [row[1:] for row in rows] == [[s, float(s)] for s in range(5)] + [[s, s + 100.0] for s in range(5, 15)]


@both_loaders
def test_a_continued_training_is_one_series(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    write_summary(tmp_path / "ms", scalars("loss", range(5)), seconds=1_700_000_000)
    write_summary(tmp_path / "ms", scalars("loss", range(5, 9)), seconds=1_700_001_000)
    report = convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb" / "run"))
    client = tensorboard_server(tmp_path / "tb", load_fast)

    assert not report.runs[0].restarts
    assert [row[1] for row in points(client, "run", "loss", count=9)] == list(range(9))


@both_loaders
def test_of_two_trainings_in_one_directory_one_graph_is_shown(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    for number, seconds in enumerate((1_700_000_000, 1_700_001_000)):
        drawing = graph_event(graph(node(f"{number}", f"Training{number}", "9")), wall_time=seconds)
        losses = scalars("loss", range(5 * number, 5 * number + 5), start=seconds)
        write_summary(tmp_path / "ms", [drawing, *losses], seconds=seconds)
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb" / "run"))
    client = tensorboard_server(tmp_path / "tb", load_fast)
    points(client, "run", "loss", count=10)
    shown = client.get("data/plugin/graphs/graph?run=run&large_attrs_key=_&limit_attr_size=1024")
    # Both are of step 0, at which the slow loader looks for the first.
    assert [name in shown for name in (b"Training0", b"Training1")] == [not load_fast, load_fast]


def test_the_slow_loader_shows_a_sample_and_more_where_it_is_asked_for(tmp_path: Path) -> None:
    steps = range(1100)
    pictures = [event(step, ("picture", image())) for step in range(20)]
    write_summary(tmp_path / "ms", [*pictures, *scalars("loss", steps)])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb" / "run"))
    for shown, options in ((10, ()), (20, ("--samples_per_plugin", "images=1000"))):
        with running_tensorboard(
            tmp_path / "tb", tmp_path / f"{shown}.log", load_fast=False, options=options
        ) as client:
            assert len(points(client, "run", "loss", count=1000)) == 1000
            rows = client.wait_json("data/plugin/images/images", run="run", tag="picture", sample=0)
            assert len(rows) == shown


@both_loaders
def test_numbers_that_are_not_finite_are_shown_as_such(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    odd = [math.nan, math.inf, -math.inf, -0.0, 3.4028234663852886e38]
    write_summary(tmp_path / "ms", [event(step, ("loss", scalar(value))) for step, value in enumerate(odd)])
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb" / "run"))
    client = tensorboard_server(tmp_path / "tb", load_fast)

    rows = points(client, "run", "loss", count=5)
    assert [row[2] for row in rows] == ["NaN", "Infinity", "-Infinity", -0.0, 3.4028234663852886e38]
    assert math.copysign(1, rows[3][2]) == -1


@both_loaders
def test_a_real_run_is_shown_whole(
    tmp_path: Path, summary_dir: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    convert_logdir(str(summary_dir), str(tmp_path / "tb" / "run"))
    client = tensorboard_server(tmp_path / "tb", load_fast)

    expected = read_values(summary_dir)
    for tag, kept in expected.items():
        if isinstance(kept[1], Scalar):
            rows = points(client, "run", tag, count=len(kept))
            assert [(row[1], struct.pack("<f", row[2])) for row in rows] == [(s, v.bits) for s, v in kept.items()]
        elif isinstance(kept[1], Histogram):
            rows = points(client, "run", tag, count=len(kept), plugin="histograms")
            assert [row[1] for row in rows] == list(kept)
            for row, value in zip(rows, kept.values(), strict=True):
                buckets = zip(value.left.tolist(), value.right.tolist(), value.count.tolist(), strict=True)
                assert [list(bucket) for bucket in buckets] == row[2]


def read_values(directory: Path) -> dict[str, dict[int, Any]]:
    """Returns the values of every tag by step, read from the summary file record by record."""
    from ms_summary_bridge.events import Event, iter_points
    from ms_summary_bridge.files.event_file import EventFileReader

    values: dict[str, dict[int, Any]] = {}
    (path,) = directory.glob("*_MS")
    for item in EventFileReader(path, MindSporeDecoder()):
        if isinstance(item, Event):
            for point in iter_points(item):
                values.setdefault(point.tag, {})[point.step] = point.value
    return values
