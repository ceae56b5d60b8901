"""MindInsight itself shows what the callback wrote, as it shows SummaryCollector's, and what a conversion wrote."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.events import Event, iter_points
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.wire import FLOAT32, FLOAT64, fixed64, length_delimited
from ms_summary_bridge.values import Histogram, Image, Scalar, Tensor, Value
from tests.conftest import MindInsightServer, TrainSmall
from tests.convert.test_cases import (
    FLOAT,
    STRING,
    image_field,
    metadata,
    scalar_tensor,
    summary_record,
    tag,
    tensor_field,
)
from tests.convert.test_to_mindinsight import (
    B11,
    DEGENERATE,
    blob_sequence,
    encoded,
    histogram_tensor,
    hparams_value,
    legacy_histogram,
    put_log,
    scalar,
    scalars,
)
from tests.mindspore_run import START
from tests.scripted import build_record
from tools.mindinsight_api import MindInsightClient


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
    expected = {kind: sorted(name for name, series in values.items() if kind in kinds(series)) for kind in PLUGINS}
    for kind, plugin in PLUGINS.items():
        assert sorted(name.removesuffix(f"/{plugin}") for name in job["plugins"][plugin]) == expected[kind]
    for name, series in values.items():
        value = next(iter(series.values()))
        if isinstance(value, Scalar):
            shown = client.scalars("./run", name)
            assert shown == [(step, v.value) for step, v in series.items() if isinstance(v, Scalar)]
        elif isinstance(value, Image):
            shown_images = client.images("./run", name)
            assert shown_images  # MindInsight keeps ten of them
            for step, encoded in shown_images:
                kept = series[step]
                assert isinstance(kept, Image)
                assert kept.encoded == (encoded,)
        elif isinstance(value, Histogram):
            rows = client.histograms("./run", name)
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
            shown_tensor = client.tensor("./run", name, step, "[:, :]")
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


# --- conversions from TensorBoard


def picture(kind: str, mode: str = "RGB") -> bytes:
    """Returns an image of many colours, 60 wide and 40 high, that fades out to the right where it can."""
    rows, columns = np.mgrid[0:40, 0:60]
    parts = [rows * 6, columns * 4, 255 - rows * 3, 255 - columns * 4][: len(mode)]
    out = io.BytesIO()
    Pillow.fromarray(np.stack(parts, 2).astype(np.uint8)).save(out, kind)
    return out.getvalue()


def write_showcase(directory: Path) -> None:
    """Writes a TensorBoard run with a value of every kind that MindInsight shows."""
    png, jpeg, clear = picture("PNG"), picture("JPEG"), picture("PNG", "RGBA")
    weights = np.random.default_rng(0)
    records = [summary_record(0, hparams_value({"lr": 0.125, "name": "adam", "batch": 32}))]
    for step in range(8):
        edges = np.cumsum(np.full(301, 0.01 * (step + 1)))
        counts = weights.integers(0, 20, 300)
        rows = np.stack([edges[:-1], edges[1:], counts], 1)
        numbers = np.arange(12, dtype="<f4").reshape(3, 4) + step
        array = tensor_field(FLOAT, [3, 4], length_delimited(b"\x22", numbers.tobytes()))
        records.append(
            summary_record(
                step,
                scalar("loss", 1 / (step + 1)),
                scalar("odd <&> 损失", math.nan if step == 3 else -float(step)),
                scalar_tensor("double", 2, [], b"\x31" + FLOAT64.pack(step + 0.1)),
                histogram_tensor("many", rows.tolist()),
                histogram_tensor("constant", [[2.5, 2.5, 8]]),
                legacy_histogram("legacy", [0.0, 0.5, 1.7e308], [1, 2, step], -0.25, 0.75),
                tag("png") + image_field(40, 60, 3, png),
                tag("jpeg") + image_field(1, 1, 1, jpeg),
                blob_sequence("batch", [png, clear]),
                tag("array") + array,
                tag("pr") + metadata("pr_curves") + array,
                tag("mesh_VERTEX") + metadata("mesh") + array,
                wall_time=START + step,
            )
        )
    put_log(directory, records)


def assert_shown_whole(client: MindInsightClient, train_id: str, run: Path) -> None:
    """Checks every value that a run's files hold against what MindInsight answers."""
    job = client.wait_job(train_id)
    values = read_values(run)
    for kind, plugin in PLUGINS.items():
        expected = sorted(tag for tag, series in values.items() if kind in kinds(series))
        assert sorted(name.removesuffix(f"/{plugin}") for name in job["plugins"][plugin]) == expected
    for tag_of, series in values.items():
        if isinstance(next(iter(series.values())), Scalar):
            shown = [
                (step, v.value if math.isfinite(v.value) else None)
                for step, v in series.items()
                if isinstance(v, Scalar)
            ]
            assert client.scalars(train_id, tag_of) == shown
        elif isinstance(next(iter(series.values())), Image):
            images = dict(client.images(train_id, tag_of))
            assert images == {step: v.encoded[0] for step, v in series.items() if isinstance(v, Image)}
        elif isinstance(next(iter(series.values())), Histogram):
            rows = {row["step"]: row["buckets"] for row in client.histograms(train_id, tag_of)}
            assert list(rows) == list(series)
            for step, v in series.items():
                assert isinstance(v, Histogram)
                assert sum(bucket[2] for bucket in rows[step]) == pytest.approx(int(v.count.sum()), abs=len(rows[step]))
        else:
            for step, v in series.items():
                assert isinstance(v, Tensor)
                assert client.tensor(train_id, tag_of, step, "[:, :]") == v.array.tolist()


def test_a_conversion_is_shown_whole(tmp_path: Path, mindinsight_server: MindInsightServer) -> None:
    write_showcase(tmp_path / "tb" / "deep" / "run")
    put_log(tmp_path / "tb" / "plain", scalars("loss", range(3)))
    for n, steps in enumerate((range(10), range(5, 12))):  # a restart
        records = scalars("loss", steps, start=START + 1000.0 * n, offset=100.0 * n)
        put_log(tmp_path / "tb" / "restarted", records, seconds=START + 1000 * n)
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"))
    client = mindinsight_server(tmp_path / "ms")
    assert_shown_whole(client, "./deep+run", tmp_path / "ms" / "deep+run")
    assert_shown_whole(client, "./plain", tmp_path / "ms" / "plain")
    client.wait_job("./restarted")
    newest = [(s, float(s)) for s in range(5)] + [(s, s + 100.0) for s in range(5, 12)]
    assert client.scalars("./restarted", "loss") == newest

    lineage = client.wait_lineages("./deep+run")["./deep+run"]
    assert lineage["user_defined"] == {"lr": 0.125, "name": "adam", "batch": 32}
    assert lineage["metric"]["loss"] == 0.125
    assert client.histograms("./deep+run", "constant")[0]["buckets"]


def test_a_converted_run_is_shown_by_itself(tmp_path: Path, mindinsight_server: MindInsightServer) -> None:
    write_showcase(tmp_path / "tb")
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"))
    client = mindinsight_server(tmp_path / "ms")
    assert_shown_whole(client, "./", tmp_path / "ms")
    assert client.wait_lineages("./")["./"]["user_defined"]["name"] == "adam"


def odd_runs(top: Path) -> int:
    """Writes twenty TensorBoard runs, each odd in its own way; returns how many there are."""
    png = encoded("PNG")
    runs: dict[str, list[bytes]] = {
        "name with space": scalars("loss", range(3)),
        "名字/深/of all": scalars("loss", range(3)),
        "a+b~c%20<x>&": scalars("loss", range(3)),
        "x" * 150: scalars("loss", range(3)),
        "no hparams": [summary_record(0, hparams_value({})), *scalars("loss", range(3))],
        "only hparams": [summary_record(0, hparams_value({"lr": 0.1}))],
        "odd hparams": [
            summary_record(
                0, hparams_value({"": "", "a.b[c]": math.nan, "损失": "x" * 5000, "inf": math.inf, "big": 1e300})
            ),
            *[summary_record(1, scalar(name, value)) for name, value in (("", 1), ("nan", math.nan), ('"\\', 2))],
        ],
        "hparams without data": [summary_record(0, tag("_hparams_/session_start_info") + metadata("hparams"))],
        "only text": [
            summary_record(1, tag("t") + metadata("text") + tensor_field(STRING, [], length_delimited(b"\x42", b"x")))
        ],
        "350 tags": [summary_record(1, *[scalar(f"tag{n}", n) for n in range(350)])],
        "odd tags": [summary_record(1, *[scalar(name, 1) for name in B11])],
        "not UTF-8": [
            summary_record(1, length_delimited(b"\x0a", b"lo\xffss") + b"\x15" + FLOAT32.pack(1), scalar("ok", 1))
        ],
        "not finite": [
            summary_record(n, scalar("loss", value)) for n, value in enumerate((math.nan, math.inf, -math.inf))
        ],
        "histograms": [
            summary_record(1, *[histogram_tensor(name, rows) for name, (rows, _, _) in DEGENERATE.items()]),
            summary_record(2, legacy_histogram("no range", [1, 2], [3, 4], 5, -5)),
            summary_record(3, legacy_histogram("huge", [-1e308, 1.7e308], [1, 1], -1.7e308, 1.7e308)),
        ],
        "images": [
            summary_record(
                1, *[tag(f"i{n}") + image_field(4, 6, 3, data) for n, data in enumerate((b"", b"x", png[:30], png))]
            )
        ],
        "tensors": [
            summary_record(
                1,
                tag("empty") + tensor_field(FLOAT, [0, 3], b""),
                tag("deep") + tensor_field(FLOAT, [1, 2, 1, 2, 1, 2], b""),
            ),
            summary_record(2, tag("nan") + tensor_field(FLOAT, [2], b"\x2d" + FLOAT32.pack(math.nan))),
        ],
        "times": [summary_record(n, scalar("loss", n), wall_time=t) for n, t in enumerate((-1e12, 0.0, 17e12, 1e300))],
        "steps": [summary_record(step, scalar("loss", 1)) for step in (-5, 2**63 - 1, -(2**63), 0)],
        "graph": [
            build_record(fixed64(b"\x09", START) + length_delimited(b"\x22", b"\xff\xff")),
            *scalars("loss", range(3)),
        ],
        "one tag of all kinds": [
            summary_record(
                1,
                scalar("x", 1),
                histogram_tensor("x", [[0, 1, 2]]),
                tag("x") + image_field(4, 6, 3, png),
                blob_sequence("x", [png, png]),
            )
        ],
        "summary.99999999999999": scalars("loss", range(3)),
    }
    for n, (name, records) in enumerate(runs.items()):
        seconds = 17_000_000_000_000 if n % 5 == 2 else START + n
        host = ("summary.123456789012345", "a_lineage", "host")[n % 3]
        put_log(top / name, records, seconds=seconds, name=f"{host}.1.{n}")
    return len(runs)


def test_odd_conversions_leave_their_neighbours_alone(tmp_path: Path, mindinsight_server: MindInsightServer) -> None:
    count = odd_runs(tmp_path / "tb")
    assert count >= 20
    records = [summary_record(0, hparams_value({"lr": 0.5})), *scalars("loss", range(5))]
    good = put_log(tmp_path / "tb" / "good", records)
    report = convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"))
    assert [run.failed for run in report.runs] == [""] * (count + 1)
    client = mindinsight_server(tmp_path / "ms")
    names = {path.parent.name for path in (tmp_path / "ms").glob("*/*_MS")}
    client.wait_json("datavisual/train-jobs", lambda a: a["total"] >= len(names), offset=0, limit=100)
    assert {train_id.removeprefix("./") for train_id in client.jobs()} >= names
    # It reads fifteen runs by itself, and the others when somebody opens them. All are read to their end.
    unread = {name for name in names if client.jobs()[f"./{name}"]["cache_status"] == "NOT_IN_CACHE"} | {"good"}
    for group in (names - unread, unread):
        client.open_jobs(*(f"./{name}" for name in group))
        for name in group:
            client.wait_job(f"./{name}")
    assert_shown_whole(client, "./good", tmp_path / "ms" / "good")
    lineages = client.wait_lineages("./good", "./odd hparams", "./only hparams", "./no hparams")
    assert lineages["./good"]["user_defined"] == {"lr": 0.5}

    # The listing goes on: a run that comes later is found, and one that grows is read again.
    put_log(tmp_path / "tb" / "late", scalars("loss", range(4)))
    with good.open("ab") as file:
        file.write(b"".join(scalars("loss", range(5, 9))))
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"))
    client.wait_json("datavisual/train-jobs", lambda a: "./late" in str(a), offset=0, limit=100)
    client.wait_json(
        "datavisual/scalar/metadata", lambda a: len(a["metadatas"]) == 9, train_id="./good", tag="loss/scalar"
    )
