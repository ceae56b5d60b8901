"""MindInsight itself shows what the callback wrote, as it shows SummaryCollector's."""

from __future__ import annotations

from pathlib import Path

import pytest

from ms_summary_bridge.event_file import EventFileReader
from ms_summary_bridge.events import Event, iter_points
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.values import Histogram, Image, Scalar, Tensor, Value
from tests.conftest import MindInsightServer, TrainSmall


def read_values(directory: Path) -> dict[str, dict[int, Value]]:
    """Returns the values of every tag by step, read from the summary file record by record."""
    values: dict[str, dict[int, Value]] = {}
    for path in sorted(directory.glob("*_MS")):
        for item in EventFileReader(path, MindSporeDecoder()):
            if isinstance(item, Event):
                for point in iter_points(item):
                    values.setdefault(point.tag, {})[point.step] = point.value
    return values


def test_a_bridged_training_is_shown_whole(
    tmp_path: Path, train_small: TrainSmall, mindinsight_server: MindInsightServer
) -> None:
    run = train_small(tmp_path / "base" / "run", "--callback", "bridge")
    client = mindinsight_server(tmp_path / "base")
    job = client.wait_job("./run")
    values = read_values(run)

    assert job["lineage_files"] >= 1
    assert job["plugins"]["graph"]
    expected = {kind: sorted(tag for tag, series in values.items() if kind in kinds(series)) for kind in PLUGINS}
    for kind, plugin in PLUGINS.items():
        assert sorted(name.removesuffix(f"/{plugin}") for name in job["plugins"][plugin]) == expected[kind]
    for tag, series in values.items():
        value = next(iter(series.values()))
        if isinstance(value, Scalar):
            shown = client.scalars("./run", tag)
            assert shown == [(step, v.value) for step, v in series.items() if isinstance(v, Scalar)]
        elif isinstance(value, Image):
            shown_images = client.images("./run", tag)
            assert shown_images  # MindInsight keeps ten of them
            for step, encoded in shown_images:
                kept = series[step]
                assert isinstance(kept, Image)
                assert kept.encoded == (encoded,)
        elif isinstance(value, Histogram):
            rows = client.histograms("./run", tag)
            assert [row["step"] for row in rows] == list(series)
            for row in rows:
                counted = series[row["step"]]
                assert isinstance(counted, Histogram)
                # It is redrawn in bins that all steps share; what falls into each is rounded.
                assert sum(bucket[2] for bucket in row["buckets"]) == pytest.approx(
                    int(counted.count.sum()), abs=len(row["buckets"])
                )
        elif isinstance(value, Tensor):
            step, last = list(series.items())[-1]
            assert isinstance(last, Tensor)
            shown_tensor = client.tensor("./run", tag, step, "[:, :]")
            assert shown_tensor == last.array.tolist()


def test_mindinsight_starts_on_the_run_itself(
    tmp_path: Path, train_small: TrainSmall, mindinsight_server: MindInsightServer
) -> None:
    run = train_small(tmp_path / "run", "--callback", "bridge", "--epochs", "1")
    job = mindinsight_server(run).wait_job("./")
    assert "loss/auto/scalar" in job["plugins"]["scalar"]


PLUGINS = {Scalar: "scalar", Histogram: "histogram", Image: "image", Tensor: "tensor"}


def kinds(series: dict[int, Value]) -> set[type]:
    return {type(value) for value in series.values()}
