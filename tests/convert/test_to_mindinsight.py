"""Conversion from TensorBoard to MindInsight: what becomes of each kind, and what is said of it."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pillow

from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.state import STATE_NAME
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import EventDecodeError, UnsupportedValueError
from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.files.event_file import EventFileReader, read_pieces
from ms_summary_bridge.files.file_names import archive_name
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import Record
from ms_summary_bridge.formats.mindinsight import MAX_BUCKETS, MAX_TENSOR_ELEMENTS, fit_histogram, fit_value
from ms_summary_bridge.formats.mindspore import MindSporeDecoder, MindSporeEncoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.wire import FLOAT32, FLOAT64, fixed64, length_delimited, varint
from ms_summary_bridge.runs.archive import make_decoder, read_archive
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.runs.report import Report, RunReport
from ms_summary_bridge.values import Histogram, Image, Scalar, Tensor, Value
from tests import strategies
from tests.convert.test_cases import (
    B08,
    FLOAT,
    STRING,
    image_field,
    metadata,
    scalar_tensor,
    summary_record,
    tag,
    tensor_field,
)
from tests.mindspore_run import START, write_summary
from tests.mindspore_run import scalars as mindspore_scalars
from tests.scripted import build_record, put, tensorboard_name, version_payload

Row = tuple[int, Value]


def convert(source: Path, destination: Path, **options: Any) -> Report:
    return convert_logdir(str(source), str(destination), to="mindinsight", **options)


def convert_run(source: Path, destination: Path, **options: Any) -> RunReport:
    """Converts a source of one run; returns its report."""
    (run,) = convert(source, destination, **options).runs
    assert run.failed == ""
    return run


def put_log(
    directory: Path, records: Sequence[bytes], *, seconds: int = START, name: str = "host.1.0", start: float = START
) -> Path:
    data = build_record(version_payload("tensorboard", wall_time=start)) + b"".join(records)
    return put(directory / f"events.out.tfevents.{seconds}.{name}", data)


def outputs(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*_MS"))


def values_in(directory: Path) -> dict[str, list[Row]]:
    """Reads every value below a directory by its tag, with MindSpore's own message classes as a second witness."""
    found: dict[str, list[Row]] = {}
    for path in outputs(directory):
        for piece in read_pieces(path):
            assert isinstance(piece, Record)
            event = MindSporeDecoder().decode(piece.payload)
            witness = ms_pb.Event.FromString(piece.payload)
            assert witness.IsInitialized()  # MindSpore's proto2 has required fields
            if isinstance(event.content, Summary):
                assert [value.tag for value in witness.summary.value] == [t.tag for t in event.content.values]
                for tagged in event.content.values:
                    found.setdefault(tagged.tag, []).append((event.step, tagged.value))
    return found


def originals(directory: Path) -> list[Event]:
    path = directory / archive_name("tensorboard")
    if not path.exists():
        return []
    events = [item[1] for item in read_archive(str(path), "tensorboard") if isinstance(item, tuple)]
    return [event for event in events if not isinstance(event.content, FileVersion)]


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.startswith(STATE_NAME)
    }


def scalar(name: str, value: float) -> bytes:
    return tag(name) + b"\x15" + FLOAT32.pack(value)


def scalars(name: str, steps: Sequence[int], *, start: float = START, offset: float = 0.0) -> list[bytes]:
    return [summary_record(step, scalar(name, step + offset), wall_time=start + step) for step in steps]


def losses(run: RunReport) -> dict[tuple[str, str], tuple[int, str]]:
    return {(loss.kind, loss.tag): (loss.count, loss.reason) for loss in run.losses}


# --- B08: scalars in every encoding


@pytest.mark.parametrize(("message", "value"), B08.values(), ids=B08)
def test_b08_every_encoding_of_a_scalar(tmp_path: Path, message: bytes, value: float) -> None:
    record = summary_record(1, message)
    put_log(tmp_path / "tb", [record])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    ((name, ((step, found),)),) = values_in(tmp_path / "ms").items()
    assert (name, step) == ("t", 1)
    assert isinstance(found, Scalar)
    assert found.value == np.float32(value)
    is_exact = float(np.float32(value)) == value
    assert losses(run) == ({} if is_exact else {("scalar", "t"): (1, "float64 rounded to float32")})
    assert len(originals(tmp_path / "ms")) == (not is_exact)
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "back"))
    assert record in b"".join(path.read_bytes() for path in (tmp_path / "back").glob("*tfevents*"))


def test_what_a_scalar_says_of_its_source_must_fit_its_number(tmp_path: Path) -> None:
    """One flipped bit of the value, or of what is kept of its source, is another value, and nobody's original."""
    payload = _payload_of(summary_record(1, B08["float_val"][0]))
    event = make_decoder("tensorboard").decode(payload)
    made = MindSporeEncoder().encode(event).payload
    assert made is not None
    assert MindSporeDecoder().decode(made) == event
    start = made.index(b"\x1d", 20)
    for position in range(start, len(made)):
        for bit in range(8):
            flipped = bytearray(made)
            flipped[position] ^= 1 << bit
            with contextlib.suppress(EventDecodeError):
                assert MindSporeDecoder().decode(bytes(flipped)) != event
                assert MindSporeDecoder().decode(bytes(flipped)).format == "mindspore"


def _payload_of(record: bytes) -> bytes:
    (piece,) = RecordDecoder().feed(record)
    assert isinstance(piece, Record)
    return piece.payload


@pytest.mark.parametrize("shape", [[3], [0]])
def test_b08_a_vector_with_the_scalars_plugin_is_reported_with_its_shape(tmp_path: Path, shape: list[int]) -> None:
    message = scalar_tensor("v", FLOAT, shape, b"".join(b"\x2d" + FLOAT32.pack(1) for _ in range(shape[0])))
    put_log(tmp_path / "tb", [summary_record(1, message, scalar("loss", 2))])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert list(values_in(tmp_path / "ms")) == ["loss"]
    ((count, reason),) = losses(run).values()
    assert count == 1
    assert str(shape) in reason


# --- histograms


def histogram_tensor(name: str, rows: Sequence[Sequence[float]]) -> bytes:
    body = length_delimited(b"\x22", np.array(rows, "<f8").tobytes())
    return tag(name) + metadata("histograms") + tensor_field(2, [len(rows), 3], body)


def legacy_histogram(name: str, limits: Sequence[float], counts: Sequence[float], low: float, high: float) -> bytes:
    numbers = (low, high, float(sum(counts)), 1.0, 1.0)
    body = b"".join(varint(n << 3 | 1) + FLOAT64.pack(number) for n, number in enumerate(numbers, 1))
    body += length_delimited(b"\x32", np.array(limits, "<f8").tobytes())
    return tag(name) + length_delimited(b"\x2a", body + length_delimited(b"\x3a", np.array(counts, "<f8").tobytes()))


def converted_histogram(tmp_path: Path, message: bytes) -> Histogram:
    put_log(tmp_path / "tb", [summary_record(1, message)])
    convert_run(tmp_path / "tb", tmp_path / "ms")
    (((_, value),),) = values_in(tmp_path / "ms").values()
    assert isinstance(value, Histogram)
    assert len(originals(tmp_path / "ms")) == 1
    return value


def test_buckets_of_a_tensor_are_kept_as_they_are(tmp_path: Path) -> None:
    value = converted_histogram(tmp_path, histogram_tensor("h", [[-1, 0, 3], [0, 0.5, 0], [0.5, 2, 4]]))
    assert value.left.tolist() == [-1, 0, 0.5]
    assert value.right.tolist() == [0, 0.5, 2]
    assert value.count.tolist() == [3, 0, 4]
    assert (value.min, value.max, value.total) == (-1, 2, 7)


def test_a_legacy_histogram_has_its_own_range(tmp_path: Path) -> None:
    value = converted_histogram(tmp_path, legacy_histogram("h", [0.0, 0.5, 1.7e308], [1, 2, 4], -0.25, 0.75))
    assert value.left.tolist() == [-0.25, 0, 0.5]
    assert value.right.tolist() == [0, 0.5, 0.75]
    assert (value.min, value.max) == (-0.25, 0.75)


@pytest.mark.parametrize("buckets", [89, 90, 91, 180, 1000])
def test_of_more_than_90_buckets_mindinsight_shows_none_so_there_are_90_at_most(buckets: int) -> None:
    edges = np.arange(buckets + 1.0)
    histogram = Histogram(left=edges[:-1], right=edges[1:], count=np.ones(buckets), min=0.0, max=float(buckets))
    fitted, note = fit_histogram(histogram)
    assert len(fitted.count) in (range(45, 91) if buckets > 90 else [buckets])
    assert fitted.count.sum() == buckets
    assert bool(note) == (buckets > 90)


def test_the_default_buckets_of_tensorboardx_are_merged_with_every_count_kept(tmp_path: Path) -> None:
    tensorboardx = pytest.importorskip("tensorboardX")
    values = np.random.default_rng(1).normal(size=5000)
    with tensorboardx.SummaryWriter(str(tmp_path / "tb"), max_queue=1) as writer:
        writer.add_histogram("weights", values, 1)
    (path,) = (tmp_path / "tb").iterdir()
    (source,) = (
        t.value
        for item in EventFileReader(path, make_decoder("tensorboard"))
        if isinstance(item, Event) and isinstance(item.content, Summary)
        for t in item.content.values
    )
    assert isinstance(source, Histogram)
    convert_run(tmp_path / "tb", tmp_path / "ms")
    ((_, value),) = values_in(tmp_path / "ms")["weights"]
    assert isinstance(value, Histogram)
    assert len(source.count) > 200
    assert 30 < len(value.count) <= MAX_BUCKETS
    assert value.count.sum() == source.count.sum() == 5000
    fitted, _ = fit_histogram(source)
    assert {*fitted.left, *fitted.right} <= {*source.left, *source.right}
    assert value.left.tolist() == fitted.left.tolist()
    # What lies below an edge of the merged ones lies below it in the source.
    for edge in fitted.left:
        assert fitted.count[fitted.right <= edge].sum() == source.count[source.right <= edge].sum()


def histogram_of(rows: Any) -> Histogram:
    columns = np.array(rows, np.float64).reshape(-1, 3)
    return Histogram(left=columns[:, 0].copy(), right=columns[:, 1].copy(), count=columns[:, 2].copy())


INF, NAN = float("inf"), float("nan")
DEGENERATE: dict[str, tuple[Sequence[Sequence[float]], list[list[float]], tuple[float, float]]] = {
    "constant": ([[2.5, 2.5, 8]], [[2, 3, 8]], (2.5, 2.5)),
    "constant among empty ones": ([[0, 2.5, 0], [2.5, 2.5, 8], [2.5, 9, 0]], [[2, 3, 8]], (2.5, 2.5)),
    "constant zero": ([[0, 0, 3]], [[-0.5, 0.5, 3]], (0, 0)),
    "empty": ([], [[-0.5, 0.5, 0]], (0, 0)),
    "nothing counted": ([[1, 2, 0]], [[-0.5, 0.5, 0]], (0, 0)),
    "one bucket": ([[1, 2, 5]], [[1, 2, 5]], (1, 2)),
    "infinite edges": (
        [[-INF, 0, 1], [0, 1, 2], [1, INF, 3]],
        [[-1 / 2048, 1 / 2048, 1], [0, 1, 2], [1 - 1 / 2048, 1 + 1 / 2048, 3]],
        (0, 1),
    ),
    "only infinite edges": ([[-INF, INF, 4]], [[-0.5, 0.5, 4]], (0, 0)),
    "edges that are no numbers": ([[NAN, 1, 2], [1, NAN, 3]], [[0.5, 1.5, 2], [0.5, 1.5, 3]], (1, 1)),
    "turned around": ([[2, 1, 5]], [[1, 2, 5]], (1, 2)),
    "fractions": ([[0, 1, 0.4], [1, 2, 0.4], [2, 3, 0.4]], [[0, 1, 0], [1, 2, 1], [2, 3, 0]], (0, 3)),
    "counts that are none": ([[0, 1, NAN], [1, 2, -3], [2, 3, 7]], [[2, 3, 7]], (2, 3)),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "expected", "limits"), DEGENERATE.values(), ids=DEGENERATE)
def test_degenerate_histograms_are_drawn_as_they_should(
    rows: Sequence[Sequence[float]], expected: list[list[float]], limits: tuple[float, float]
) -> None:
    fitted, _ = fit_histogram(histogram_of(rows))
    assert np.stack([fitted.left, fitted.right, fitted.count], 1).tolist() == expected
    assert (fitted.min, fitted.max) == limits


@st.composite
def any_histograms(draw: st.DrawFn) -> Histogram:
    size = draw(st.sampled_from([0, 1, 2, 5, 89, 90, 91, 200]))
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    kind = draw(st.sampled_from(["even", "exponential", "any bits", "spikes", "tiny"]))
    edges: npt.NDArray[np.float64]
    if kind == "even":
        edges = np.linspace(-3, 5, size + 1)
    elif kind == "exponential":
        edges = 1e-12 * 1.3 ** np.arange(size + 1)
    elif kind == "spikes":
        edges = np.repeat(np.arange(size // 2 + 1.0), 2)[: size + 1]
    elif kind == "tiny":
        edges = draw(st.sampled_from([1e20, 0.0, -1e300, 1.79e308])) + 5e-324 * np.arange(size + 1)
    else:
        edges = np.frombuffer(generator.bytes(8 * (size + 1)), np.float64)
    left, right = edges[:-1].copy(), edges[1:].copy()
    for _ in range(draw(st.integers(0, 3)) if size else 0):
        side = left if draw(st.booleans()) else right
        side[draw(st.integers(0, size - 1))] = draw(strategies.FLOATS64)
    count = generator.integers(0, 5, size).astype(np.float64)
    for _ in range(draw(st.integers(0, 2)) if size else 0):
        count[draw(st.integers(0, size - 1))] = draw(st.one_of(strategies.FLOATS64, st.sampled_from([0.5, 1e15, -1.0])))
    optional = st.none() | strategies.FLOATS64
    return Histogram(left=left, right=right, count=count, min=draw(optional), max=draw(optional), sum=draw(optional))


@given(any_histograms())
def test_laws_of_a_fitted_histogram(source: Histogram) -> None:
    event = Event(0.0, 1, Summary((TaggedValue("h", source, False, b""),)), "tensorboard")
    payload = MindSporeEncoder().encode(event).payload
    assert payload is not None
    content = MindSporeDecoder().decode(payload).content
    assert isinstance(content, Summary)
    fitted = content.values[0].value
    assert isinstance(fitted, Histogram)
    assert 1 <= len(fitted.count) <= MAX_BUCKETS
    assert (fitted.widths > 0).all()
    assert np.isfinite([fitted.left, fitted.right, fitted.widths]).all()
    assert fitted.min is not None
    assert fitted.max is not None
    assert -INF < fitted.min <= fitted.max < INF
    with np.errstate(invalid="ignore"):
        counts = np.nan_to_num(source.count, nan=0.0, neginf=0.0).clip(0, 2.0**62)
    if counts.sum() < 2**53:
        assert fitted.count.sum() == np.rint(counts.cumsum()[-1] if len(counts) else 0)


@given(st.integers(91, 400), st.integers(0, 2**32 - 1))
def test_merged_buckets_have_edges_of_the_source(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    edges = np.sort(generator.normal(size=size + 1) * 10.0 ** generator.integers(-5, 5))
    source = histogram_of(np.stack([edges[:-1], edges[1:], generator.integers(0, 3, size)], 1))
    fitted, loss = fit_histogram(source)
    if len(fitted.count) < size:
        assert {*fitted.left, *fitted.right} <= {*edges}
    assert fitted.count.sum() == source.count.sum()
    assert (fitted.left[1:] >= fitted.right[:-1]).all()
    assert ("merged" in loss) == (np.count_nonzero(source.count) > MAX_BUCKETS)


# --- B14: images


def encoded(kind: str, mode: str = "RGB", frames: int = 1) -> bytes:
    pictures = [Pillow.new(mode, (6, 4), 60 * (n + 1) if mode in ("L", "P") else None) for n in range(frames)]
    out = io.BytesIO()
    more: dict[str, Any] = {"save_all": True, "append_images": pictures[1:]} if frames > 1 else {}
    pictures[0].save(out, kind, **more)
    return out.getvalue()


PNGS = {"grey": ("L", 1), "grey and alpha": ("LA", 2), "rgb": ("RGB", 3), "rgba": ("RGBA", 4), "palette": ("P", 3)}


@pytest.mark.parametrize(("mode", "channels"), PNGS.values(), ids=PNGS)
@pytest.mark.parametrize("size", [(4, 6), (999, 1)])
def test_b14_a_png_is_not_touched_and_has_its_true_size(
    tmp_path: Path, mode: str, channels: int, size: tuple[int, int]
) -> None:
    data = encoded("PNG", mode)
    put_log(tmp_path / "tb", [summary_record(1, tag("i") + image_field(*size, channels, data))])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert values_in(tmp_path / "ms") == {"i": [(1, Image(4, 6, channels, (data,)))]}
    assert bool(run.losses) == (size == (999, 1))
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal


OTHERS = {
    "jpeg": (encoded("JPEG"), "JPEG encoded again as PNG"),
    "grey jpeg": (encoded("JPEG", "L"), "JPEG encoded again as PNG"),
    "cmyk jpeg": (encoded("JPEG", "CMYK"), "JPEG encoded again as PNG"),
    "gif": (encoded("GIF", "L", frames=3), "GIF encoded again as PNG, the frames behind the first left out"),
    "bmp": (encoded("BMP"), "BMP encoded again as PNG"),
    "webp": (encoded("WEBP", "RGBA"), "WEBP encoded again as PNG"),
}


@pytest.mark.parametrize(("data", "reason"), OTHERS.values(), ids=OTHERS)
def test_b14_other_kinds_are_encoded_again(tmp_path: Path, data: bytes, reason: str) -> None:
    put_log(tmp_path / "tb", [summary_record(1, tag("i") + image_field(4, 6, 3, data))])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    ((_, value),) = values_in(tmp_path / "ms")["i"]
    assert isinstance(value, Image)
    with Pillow.open(io.BytesIO(value.encoded[0])) as picture, Pillow.open(io.BytesIO(data)) as source:
        assert (picture.format, picture.size) == ("PNG", (6, 4))
        assert picture.convert("RGB").tobytes() == source.convert("RGB").tobytes()
    assert (value.height, value.width) == (4, 6)
    assert losses(run) == {("image", "i"): (1, reason)}
    assert len(originals(tmp_path / "ms")) == 1


@pytest.mark.parametrize("data", [b"\x00\x01\x02", b"", encoded("JPEG")[:50], b"<svg></svg>", b"\x89PNG"])
def test_b14_garbage_skips_one_value_and_not_the_file(tmp_path: Path, data: bytes) -> None:
    bad, good = tag("bad") + image_field(4, 6, 3, data), scalar("loss", 1)
    put_log(tmp_path / "tb", [summary_record(1, bad, good), summary_record(2, bad), summary_record(3, good)])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert {name: [step for step, _ in rows] for name, rows in values_in(tmp_path / "ms").items()} == {"loss": [1, 3]}
    assert losses(run)["image", "bad"][0] == 2
    assert len(originals(tmp_path / "ms")) == 2
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal


@given(st.sampled_from([data for data, _ in OTHERS.values()]), st.data())
def test_b14_damaged_images_are_drawn_or_refused(data: bytes, draw: st.DataObject) -> None:
    changed = bytearray(data[: draw.draw(st.integers(0, len(data)))])
    for _ in range(draw.draw(st.integers(0, 5)) if changed else 0):
        changed[draw.draw(st.integers(0, len(changed) - 1))] = draw.draw(st.integers(0, 255))
    with contextlib.suppress(UnsupportedValueError):
        (fitted,), _ = fit_value(TaggedValue("i", Image(4, 6, 3, (bytes(changed),))))
        assert isinstance(fitted.value, Image)


def blob_sequence(name: str, images: Sequence[bytes]) -> bytes:
    strings = b"".join(length_delimited(b"\x42", part) for part in (b"6", b"4", *images))
    return tag(name) + metadata("images") + tensor_field(STRING, [len(images) + 2], strings)


def test_b14_each_image_of_a_batch_has_a_series_and_none_clashes(tmp_path: Path) -> None:
    pngs = [encoded("PNG", mode) for mode in ("L", "RGB", "RGBA")]
    own = tag("batch/0") + image_field(4, 6, 1, pngs[0])
    records = [summary_record(1, own, blob_sequence("batch", pngs)), summary_record(2, blob_sequence("batch", pngs))]
    put_log(tmp_path / "tb", records)
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    found = values_in(tmp_path / "ms")
    assert {
        name: [(step, v.encoded[0]) for step, v in rows if isinstance(v, Image)] for name, rows in found.items()
    } == {
        "batch/0": [(1, pngs[0])],
        "batch/0_2": [(1, pngs[0]), (2, pngs[0])],
        "batch/1": [(1, pngs[1]), (2, pngs[1])],
        "batch/2": [(1, pngs[2]), (2, pngs[2])],
    }
    assert losses(run)["image", "batch"][0] == 2
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal


def test_b14_an_image_whose_name_a_batch_has_taken_comes_back_under_its_own(tmp_path: Path) -> None:
    pngs = [encoded("PNG", "L"), encoded("PNG")]
    own = tag("batch/0") + image_field(4, 6, 1, pngs[0])
    put_log(tmp_path / "tb", [summary_record(1, blob_sequence("batch", pngs), own)])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert [(r.tag, r.name) for r in run.renamed_tags] == [("batch/0", "batch/0/image")]
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "back"))
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "back")).is_equal


def test_b14_a_batch_with_one_bad_image_keeps_the_others(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", [summary_record(1, blob_sequence("b", [encoded("PNG"), b"bad", encoded("JPEG")]))])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert list(values_in(tmp_path / "ms")) == ["b/0", "b/2"]
    assert "left out of a batch of images: " in losses(run)["image", "b"][1]


# --- tensors, precision-recall curves, meshes


@pytest.mark.parametrize("kind", ["", "pr_curves", "mesh"])
def test_arrays_become_tensors_in_float_data(tmp_path: Path, kind: str) -> None:
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3) / 4
    field = tensor_field(FLOAT, [2, 3], length_delimited(b"\x22", numbers.tobytes()))
    put_log(tmp_path / "tb", [summary_record(1, tag("t") + (metadata(kind) if kind else b"") + field)])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    ((_, value),) = values_in(tmp_path / "ms")["t"]
    assert value == Tensor(numbers, "float32")
    (path,) = outputs(tmp_path / "ms")
    payload = [piece.payload for piece in read_pieces(path) if isinstance(piece, Record)][-1]
    message = ms_pb.Event.FromString(payload).summary.value[0].tensor
    assert (list(message.dims), list(message.float_data)) == ([2, 3], numbers.ravel().tolist())
    assert ({loss.kind for loss in run.losses} == {kind}) if kind else not run.losses
    assert len(originals(tmp_path / "ms")) == 1


@pytest.mark.parametrize(("dtype", "number"), [("<i8", 9), ("<f8", 2), ("?", 10), ("<i4", 3)])
def test_other_element_types_are_written_as_float32_and_kept(tmp_path: Path, dtype: str, number: int) -> None:
    array = np.array([1, 0, 1]).astype(dtype)
    put_log(
        tmp_path / "tb",
        [summary_record(1, tag("t") + tensor_field(number, [3], length_delimited(b"\x22", array.tobytes())))],
    )
    convert_run(tmp_path / "tb", tmp_path / "ms")
    ((_, value),) = values_in(tmp_path / "ms")["t"]
    assert isinstance(value, Tensor)
    assert value.array.tolist() == [1, 0, 1]
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal


def test_a_tensor_beyond_mindinsights_limit_is_reported() -> None:
    big = np.broadcast_to(np.float32(0), (MAX_TENSOR_ELEMENTS + 1,))
    with pytest.raises(UnsupportedValueError, match="10,000,001 elements"):
        fit_value(TaggedValue("t", Tensor(big, "float32")))


# --- B17: kinds without a counterpart


def test_b17_each_kind_is_named_once_with_its_count(tmp_path: Path) -> None:
    def whole(field: bytes, body: bytes) -> bytes:
        return build_record(fixed64(b"\x09", START) + b"\x10\x01" + length_delimited(field, body))

    text = metadata("text") + tensor_field(STRING, [1], length_delimited(b"\x42", b"lr=1e-4 \xff\xfe ok"))
    floats = length_delimited(b"\x22", np.full(6, 0.5, "<f4").tobytes())
    audio = length_delimited(b"\x32", b"\x0d" + FLOAT32.pack(16000) + length_delimited(b"\x22", b"RIFF"))
    records = [
        summary_record(0, tag("_hparams_/session_start_info") + metadata("hparams")),
        summary_record(1, tag("note") + text),
        summary_record(2, tag("note") + text),
        summary_record(1, tag("pr") + metadata("pr_curves") + tensor_field(FLOAT, [6, 1], floats)),
        summary_record(1, tag("shape_VERTEX") + metadata("mesh") + tensor_field(FLOAT, [1, 2, 3], floats)),
        summary_record(1, tag("sound") + audio),
        summary_record(1, tag("mystery") + metadata("plugin_from_2031") + tensor_field(FLOAT, [6], floats)),
        whole(b"\x22", b"\xff\xff\xff"),
        whole(b"\x32", b"\x08\x14" + length_delimited(b"\x12", b"hello")),
        whole(b"\x42", length_delimited(b"\x0a", b"step1")),
        build_record(fixed64(b"\x09", START) + b"\x10\x01"),
        whole(varint(77 << 3 | 2), b"future field"),
        summary_record(2, scalar("loss", 0.125)),
    ]
    put_log(tmp_path / "tb", records)
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert {(loss.kind, loss.tag): loss.count for loss in run.losses} == {
        ("hparams", "_hparams_/session_start_info"): 1, ("text", "note"): 2, ("pr_curves", "pr"): 1,
        ("mesh", "shape_VERTEX"): 1, ("audio", "sound"): 1, ("plugin_from_2031", "mystery"): 1, ("graph", ""): 1,
        ("log_message", ""): 1, ("run_metadata", ""): 1, ("empty event", ""): 1, ("field 77", ""): 1,
    }  # fmt: skip
    found = values_in(tmp_path / "ms")
    assert {name: type(rows[0][1]) for name, rows in found.items()} == {
        "pr": Tensor,
        "shape_VERTEX": Tensor,
        "loss": Scalar,
    }
    assert len(originals(tmp_path / "ms")) == 12
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal


# --- B11: tags

B11 = [
    "Episode / Total timesteps (mean)", "a b", "a_b", "/lead/slash", "损失/训练", "emoji \U0001f4c8", "dots.and-dash:0",
    "trail/", "..", "../../evil", "a//b", "loss/auto/scalar", "x" * 400, "tab\tand\nnewline", "%s{0}$HOME", "CON", "",
]  # fmt: skip


def test_b11_tags_pass_byte_for_byte_and_never_become_a_path(tmp_path: Path) -> None:
    records = [summary_record(1, scalar(name, float(n))) for n, name in enumerate(B11)]
    records.append(summary_record(1, scalar("both", 7), legacy_histogram("both", [0, 1], [0, 2], 0, 1)))
    put_log(tmp_path / "tb" / "run", records)
    run = convert_run(tmp_path / "tb", tmp_path / "out" / "ms")
    found = values_in(tmp_path / "out" / "ms")
    assert [(name, rows[0][1].value) for name, rows in found.items() if isinstance(rows[0][1], Scalar)] == [
        *((name, float(n)) for n, name in enumerate(B11)), ("both", 7.0),
    ]  # fmt: skip
    assert [value.kind for _, value in found["both"]] == ["scalar", "histogram"]
    assert run.renamed_tags == []
    assert {path.parent for path in (tmp_path / "out").rglob("*") if path.is_file()} == {
        tmp_path / "out" / "ms", tmp_path / "out" / "ms" / "run",
    }  # fmt: skip
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "out" / "ms")).is_equal


def test_b11_a_tag_that_is_not_utf8(tmp_path: Path) -> None:
    message = length_delimited(b"\x0a", b"lo\xffss") + b"\x15" + FLOAT32.pack(1)
    put_log(tmp_path / "tb", [summary_record(1, message, scalar("ok", 2))])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert [(loss.kind, loss.count, loss.reason) for loss in run.losses] == [
        ("scalar", 1, "the tag is not UTF-8, which MindInsight refuses")
    ]
    assert list(values_in(tmp_path / "ms")) == ["ok"]
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal


# --- runs and names


def test_b11_child_runs_stay_runs_of_their_own(tmp_path: Path) -> None:
    names = [".", "run", "run/loss_pi_policy", "run/loss_pi_value", "run/1700000000.123", "a+b", "a~b", "a~1b", "a/b"]
    for n, name in enumerate(names):
        put_log(tmp_path / "tb" / name, scalars("loss/pi", [n]))
    report = convert(tmp_path / "tb", tmp_path / "ms")
    assert len(report.runs) == len(names)
    made = {
        path.relative_to(tmp_path / "ms").parts[0]
        for path in outputs(tmp_path / "ms")
        if path.parent != tmp_path / "ms"
    }
    assert made == {
        "run", "run+loss_pi_policy", "run+loss_pi_value", "run+1700000000.123", "a~1b", "a~0b", "a~01b", "a+b",
    }  # fmt: skip
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "back"))
    assert sorted(run.name for run in discover(tmp_path / "back").runs) == sorted(names)
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "back")).is_equal


PART = st.text("ab+~01. ", min_size=1, max_size=4).filter(lambda part: part.strip(".") and not part.startswith("."))


@given(st.lists(st.lists(PART, min_size=1, max_size=3).map("/".join), min_size=1, max_size=5, unique=True))
def test_flattened_names_are_distinct_and_unfold_again(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        for n, name in enumerate(names):
            put_log(top / "tb" / name, scalars("loss", [n]))
        report = convert(top / "tb", top / "ms")
        assert len({run.run for run in report.runs}) == len(names)
        assert all("/" not in run.run for run in report.runs)
        convert_logdir(str(top / "ms"), str(top / "back"))
        assert sorted(run.name for run in discover(top / "back").runs) == sorted(names)


def seconds_of(path: Path) -> int:
    match = re.search(r"summary\.(\d+)", path.name)  # as MindInsight does
    assert match is not None
    return int(match[1])


@pytest.mark.parametrize("seconds", [0, START, 17_000_000_000_000, 10**18])
def test_absurd_times_never_get_into_a_name(tmp_path: Path, seconds: int) -> None:
    for n in range(3):
        start = START + 100 * n
        put_log(tmp_path / "tb", scalars("loss", range(5), start=start, offset=n), seconds=seconds + n, start=start)
    convert_run(tmp_path / "tb", tmp_path / "ms")
    found = [seconds_of(path) for path in outputs(tmp_path / "ms")]
    assert len({*found}) == 3
    assert all(len(str(number)) <= 11 for number in found)


@pytest.mark.parametrize("wall_time", [-5.0, 1e300, 17e12])
def test_absurd_times_of_events_never_get_into_a_name(tmp_path: Path, wall_time: float) -> None:
    put_log(tmp_path / "tb", [summary_record(1, scalar("loss", 1), wall_time=wall_time)], seconds=10**14)
    convert_run(tmp_path / "tb", tmp_path / "ms")
    assert [seconds_of(path) for path in outputs(tmp_path / "ms")] == [0]
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "back"))
    convert(tmp_path / "back", tmp_path / "again")
    assert [seconds_of(path) for path in outputs(tmp_path / "again")] == [0]


@pytest.mark.parametrize("host", ["summary.123", "a.tfevents.9", "h_lineage", "h_explain", "x" * 200, "42", "é" * 90])
def test_host_names_mislead_nobody(tmp_path: Path, host: str) -> None:
    put_log(tmp_path / "tb", scalars("loss", range(3)), name=f"{host}.1.0")
    convert_run(tmp_path / "tb", tmp_path / "ms")
    (path,) = outputs(tmp_path / "ms")
    assert "tfevents" not in path.name
    assert seconds_of(path) == START
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "back"))
    (path,) = (tmp_path / "back").glob("*tfevents*")
    assert re.search(r"summary\.\d", path.name) is None
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "back")).is_equal


def test_steps_are_exact(tmp_path: Path) -> None:
    steps = [-5, 0, 1, 2**31 - 1, 2**31, 6_002_049_024, -1_627_389_952, 2**63 - 1, -(2**63)]
    put_log(tmp_path / "tb", [summary_record(step, scalar("loss", n)) for n, step in enumerate(steps)])
    convert_run(tmp_path / "tb", tmp_path / "ms")
    assert [step for step, _ in values_in(tmp_path / "ms")["loss"]] == steps


# --- B04: restarts


def starts_of(directory: Path) -> list[list[int]]:
    """Returns the steps in each output file, in the order in which MindInsight reads them."""
    return [
        [
            item.step
            for item in EventFileReader(path, MindSporeDecoder())
            if isinstance(item, Event) and isinstance(item.content, Summary)
        ]
        for path in sorted(outputs(directory), key=seconds_of)
    ]


def session_start(step: int, wall_time: float) -> bytes:
    return build_record(fixed64(b"\x09", wall_time) + b"\x10" + varint(step) + length_delimited(b"\x3a", b"\x08\x01"))


@pytest.mark.parametrize("has_marks", [True, False])
@pytest.mark.parametrize("gap", [1000, 0])
def test_b04_each_session_has_a_later_file(tmp_path: Path, has_marks: bool, gap: int) -> None:
    for n, steps in enumerate((range(0, 151, 10), range(100, 181, 10), range(160, 201, 10))):
        start = START + 1000 * n
        mark = [session_start(steps[0], start)] if has_marks and n else []
        records = [*mark, *scalars("loss", steps, start=start, offset=100.0 * n)]
        put_log(tmp_path / "tb", records, seconds=START + gap * n, name=f"host.1.{n}", start=start)
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert [mark.step for mark in run.restarts] == [100, 160]
    assert starts_of(tmp_path / "ms") == [[*range(0, 151, 10)], [*range(100, 181, 10)], [*range(160, 201, 10)]]
    assert len({seconds_of(path) for path in outputs(tmp_path / "ms")}) == 3
    assert run.values == {"scalar": 30} | ({"session_log": 2} if "session_log" in run.values else {})


def test_b04_a_mark_inside_a_file_begins_a_session(tmp_path: Path) -> None:
    records = [
        *scalars("loss", range(5)),
        session_start(2, START + 50),
        *scalars("loss", range(2, 7), start=START + 60),
    ]
    put_log(tmp_path / "tb", [session_start(0, START), *records])
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert [mark.step for mark in run.restarts] == [2]
    assert starts_of(tmp_path / "ms") == [[*range(5)], [*range(2, 7)]]


def test_b04_other_tags_on_another_scale_are_no_restart(tmp_path: Path) -> None:
    """Neither in one file, where they take turns, nor in a later one."""
    train, accuracy = scalars("loss", range(100, 200)), scalars("accuracy", range(3))
    put_log(tmp_path / "tb", [*train[:50], *accuracy[:2], *train[50:], *accuracy[2:]])
    put_log(tmp_path / "tb", scalars("epoch_loss", range(3)), seconds=START + 1000)
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert run.restarts == []
    assert len(outputs(tmp_path / "ms")) == 1
    found = {tag: [step for step, _ in rows] for tag, rows in values_in(tmp_path / "ms").items()}
    assert found == {"loss": [*range(100, 200)], "accuracy": [0, 1, 2], "epoch_loss": [0, 1, 2]}


def test_b04_the_same_step_twice_loses_nothing(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", [summary_record(5, scalar("l", 1)), summary_record(5, scalar("l", 2)), *scalars("l", [6])])
    convert_run(tmp_path / "tb", tmp_path / "ms")
    assert [(step, v.value) for step, v in values_in(tmp_path / "ms")["l"] if isinstance(v, Scalar)] == [
        (5, 1),
        (5, 2),
        (6, 6),
    ]


def test_b04_latest_drops_what_was_superseded(tmp_path: Path) -> None:
    for n, steps in enumerate((range(10), range(5, 12))):
        start = START + 1000 * n
        records = scalars("loss", steps, offset=100.0 * n, start=start)
        put_log(tmp_path / "tb", records, seconds=start, start=start)
    run = convert_run(tmp_path / "tb", tmp_path / "ms", options=ConvertOptions(on_restart="latest"))
    assert run.superseded == 5
    assert [step for step, _ in values_in(tmp_path / "ms")["loss"]] == [*range(12)]


# --- limits of MindInsight


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([summary_record(1, *[scalar(f"tag{n}", n) for n in range(301)])], ["301 tags", "last 300"]),
        (scalars("long", range(1001)), ["1,000 steps of one scalar", "'long'"]),
        (
            [summary_record(s, legacy_histogram("h", [1], [s], 0, 1)) for s in range(51)],
            ["50 steps of one histogram", "'h'"],
        ),
        (
            [summary_record(s, tag("i") + image_field(4, 6, 3, encoded("PNG"))) for s in range(11)],
            ["10 steps of one image", "'i'"],
        ),
        (
            [summary_record(s, tag("t") + tensor_field(FLOAT, [2], b"")) for s in range(21)],
            ["20 steps of one tensor", "'t'"],
        ),
        (
            [summary_record(1, *[tag(f"t{n}") + tensor_field(FLOAT, [2], b"") for n in range(7)])],
            ["7 tensors", "last 6"],
        ),
    ],
    ids=["tags", "scalar", "histogram", "image", "tensor", "tensor tags"],
)
def test_limits_of_mindinsight_are_said_and_nothing_is_left_out(
    tmp_path: Path, records: list[bytes], words: list[str]
) -> None:
    put_log(tmp_path / "tb", records)
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    (problem,) = run.problems
    assert all(word in problem for word in words), problem
    total = sum(len(rows) for rows in values_in(tmp_path / "ms").values())
    assert total == sum(run.values.values()) > 6
    again = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert again.problems == []  # said once, when it came true


# --- hyperparameters


def hparams_value(hparams: dict[str, Any]) -> bytes:
    data = tb_pb.hparams.HParamsPluginData()
    data.session_start_info.SetInParent()
    for name, value in hparams.items():
        field = {bool: "bool_value", float: "number_value", int: "number_value", str: "string_value"}[type(value)]
        setattr(data.session_start_info.hparams[name], field, value)
    content = length_delimited(b"\x0a", b"hparams") + length_delimited(
        b"\x12", data.SerializeToString(deterministic=True)
    )
    return tag("_hparams_/session_start_info") + length_delimited(b"\x4a", length_delimited(b"\x0a", content))


def lineage_in(directory: Path) -> list[Any]:
    (path,) = directory.glob("*_lineage")
    return [ms_pb.LineageEvent.FromString(piece.payload) for piece in read_pieces(path) if isinstance(piece, Record)]


def test_hparams_and_metrics_become_lineage(tmp_path: Path) -> None:
    given_ones = {"lr": 0.1, "batch": 32, "name": "adam", "flag": True, "": 1.0, "学习": 3e9, "é.x": -1}
    put_log(
        tmp_path / "tb",
        [summary_record(0, hparams_value(given_ones)), *scalars("acc", [1, 2]), summary_record(3, scalar("nan", NAN))],
    )
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    head, evaluation, user = lineage_in(tmp_path / "ms")
    assert "ms_summary_bridge/convert" in head.version
    assert json.loads(evaluation.evaluation_lineage.metric) == {"acc": 2.0}
    found: dict[str, Any] = {}
    for item in user.user_defined_info.user_info:
        filled = [field.name for field, _ in item.ListFields()]
        assert len(filled) == 1  # each has one map with one entry
        ((name, value),) = getattr(item, filled[0]).items()
        found[name] = value
    assert found == {**given_ones, "flag": "true"}
    assert not [f for f, _ in user.user_defined_info.ListFields() if f.name != "user_info"]
    assert losses(run)["hparams", "_hparams_/session_start_info"] == (1, "hyperparameters are shown as lineage")
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal


def test_a_run_without_hyperparameters_has_no_empty_user_info(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", [summary_record(0, hparams_value({})), *scalars("acc", [1])])
    convert_run(tmp_path / "tb", tmp_path / "ms")
    assert not any(event.HasField("user_defined_info") for event in lineage_in(tmp_path / "ms"))


def test_hyperparameters_alone_are_a_run_there_and_back(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", [summary_record(0, hparams_value({"lr": 0.1}))])
    convert_run(tmp_path / "tb", tmp_path / "ms")
    assert len(lineage_in(tmp_path / "ms")) == 3
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "back"))
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "back")).is_equal
    assert not (tmp_path / "back" / archive_name("mindspore_lineage")).exists()


def test_metrics_in_the_lineage_follow_a_growing_log(tmp_path: Path) -> None:
    path = put_log(tmp_path / "tb", [summary_record(0, hparams_value({"lr": 0.1})), *scalars("acc", [1])])
    convert_run(tmp_path / "tb", tmp_path / "ms")
    with path.open("ab") as file:
        file.write(b"".join(scalars("acc", [2]) + scalars("f1", [2])))
    convert_run(tmp_path / "tb", tmp_path / "ms")
    assert json.loads(lineage_in(tmp_path / "ms")[1].evaluation_lineage.metric) == {"acc": 2.0, "f1": 2.0}
    convert(tmp_path / "tb", tmp_path / "once")
    assert contents(tmp_path / "ms") == contents(tmp_path / "once")


# --- converting again, crashes


def every_kind(steps: Sequence[int], *, start: float = START) -> list[bytes]:
    png = encoded("PNG")
    return [
        record
        for step in steps
        for record in (
            summary_record(step, scalar("loss", step), wall_time=start + step),
            summary_record(
                step, scalar_tensor("double", 2, [], b"\x31" + FLOAT64.pack(step + 0.1)), wall_time=start + step
            ),
            summary_record(step, legacy_histogram("h", [1, 2], [step, 1], 0, 2), wall_time=start + step),
            summary_record(step, blob_sequence("i", [png, png]), wall_time=start + step),
            summary_record(
                step, tag("t") + metadata("text") + tensor_field(STRING, [], length_delimited(b"\x42", b"x"))
            ),
        )
    ]


def test_nothing_new_changes_no_byte(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", [summary_record(0, hparams_value({"lr": 1.0})), *every_kind(range(3))])
    convert(tmp_path / "tb", tmp_path / "ms")
    before = {path: path.read_bytes() for path in (tmp_path / "ms").rglob("*") if path.is_file()}
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    assert (run.events_read, run.values) == (0, {})
    assert {path: path.read_bytes() for path in (tmp_path / "ms").rglob("*") if path.is_file()} == before


def test_a_log_cut_at_every_byte_of_its_end_then_completed(tmp_path: Path) -> None:
    path = put_log(tmp_path / "tb", every_kind([1]))
    whole = path.read_bytes()
    convert(tmp_path / "tb", tmp_path / "once")
    for cut in range(len(whole) - 180, len(whole), 3):
        path.write_bytes(whole[:cut])
        convert_run(tmp_path / "tb", tmp_path / f"ms{cut}")
        path.write_bytes(whole)
        convert_run(tmp_path / "tb", tmp_path / f"ms{cut}")
        assert contents(tmp_path / f"ms{cut}") == contents(tmp_path / "once")


@pytest.mark.parametrize("keeps_state", ["none", "old"])
@pytest.mark.parametrize("is_torn", [True, False])
def test_after_a_crash_the_bytes_are_those_of_an_uninterrupted_conversion(
    tmp_path: Path, keeps_state: str, is_torn: bool
) -> None:
    path = put_log(tmp_path / "tb", [summary_record(0, hparams_value({"lr": 1.0})), *every_kind(range(3))])
    convert(tmp_path / "tb", tmp_path / "old")
    with path.open("ab") as file:
        file.write(b"".join(every_kind(range(3, 6))))
    put_log(tmp_path / "tb", every_kind(range(2, 4), start=START + 1000), seconds=START + 1000)
    shutil.copytree(tmp_path / "old", tmp_path / "all")
    convert(tmp_path / "tb", tmp_path / "all")
    expected = contents(tmp_path / "all")
    for seed in range(5):
        generator = random.Random(seed)
        ms = tmp_path / f"ms{seed}"
        shutil.copytree(tmp_path / "all", ms)
        if keeps_state == "old":
            shutil.copy(tmp_path / "old" / STATE_NAME, ms / STATE_NAME)
        else:
            (ms / STATE_NAME).unlink()
        for file_path in sorted(ms.rglob("*")) if is_torn else ():
            if file_path.is_file() and not file_path.name.startswith(".") and not file_path.name.endswith("_lineage"):
                kept = tmp_path / "old" / file_path.name
                least = kept.stat().st_size if kept.exists() and keeps_state == "old" else 0
                os.truncate(file_path, generator.randint(least, file_path.stat().st_size))
        convert_run(tmp_path / "tb", ms)
        assert contents(ms) == expected, seed


# --- options, places


def test_dry_run_writes_nothing_and_reports_the_same(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", [summary_record(0, hparams_value({"lr": 1.0})), *every_kind(range(3))])
    dry = convert(tmp_path / "tb", tmp_path / "ms", options=ConvertOptions(dry_run=True))
    assert not (tmp_path / "ms").exists()
    assert convert(tmp_path / "tb", tmp_path / "ms") == dry


def test_no_archive_keeps_none_and_still_counts(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", every_kind(range(3)))
    run = convert_run(tmp_path / "tb", tmp_path / "ms", options=ConvertOptions(keep_archive=False))
    assert {loss.kind: loss.count for loss in run.losses} == {"scalar": 3, "histogram": 3, "image": 3, "text": 3}
    assert run.archived == 0
    assert not list((tmp_path / "ms").glob("*.archive"))


def test_force_starts_over_and_removes_only_what_is_ours(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", [summary_record(0, hparams_value({"lr": 1.0})), *every_kind(range(9))])
    convert(tmp_path / "tb", tmp_path / "ms")
    foreign = [
        put(tmp_path / "ms" / "notes.txt", b"mine"),
        write_summary(tmp_path / "ms", mindspore_scalars("x", [1]), host="other"),
    ]
    shutil.rmtree(tmp_path / "tb")
    put_log(tmp_path / "tb", scalars("loss", range(3)), seconds=START + 7)
    run = convert_run(tmp_path / "tb", tmp_path / "ms", force=True)
    assert run.values == {"scalar": 3}
    assert all(path.exists() for path in foreign)
    assert not list((tmp_path / "ms").glob("*_lineage"))
    assert [path.name for path in outputs(tmp_path / "ms") if "other" not in path.name] == run.outputs


def test_a_foreign_file_of_that_name_is_not_touched(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", [summary_record(0, hparams_value({"lr": 1.0})), *scalars("acc", [1])])
    convert(tmp_path / "tb", tmp_path / "first")
    for name in [path.name for path in (tmp_path / "first").iterdir() if not path.name.startswith(".")]:
        put(tmp_path / f"ms {name}" / name, b"something else entirely")
        (run,) = convert(tmp_path / "tb", tmp_path / f"ms {name}").runs
        assert name in run.failed
        assert (tmp_path / f"ms {name}" / name).read_bytes() == b"something else entirely"


def test_in_place_is_one_run(tmp_path: Path) -> None:
    path = put_log(tmp_path / "run", [summary_record(0, hparams_value({"lr": 1.0})), *every_kind(range(3))])
    convert(tmp_path / "run", tmp_path / "run")
    with path.open("ab") as file:
        file.write(b"".join(every_kind([3])))
    assert sum(convert_run(tmp_path / "run", tmp_path / "run").values.values()) == 5
    (run,) = inspect_logdir(str(tmp_path / "run")).runs
    assert run.format == "tensorboard"
    assert len(run.twins) == 1
    assert verify_logdirs(str(tmp_path / "run"), str(tmp_path / "run")).is_equal


def test_an_archive_beside_a_run_of_somebody_else_is_not_its_own(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", every_kind(range(3)))
    convert(tmp_path / "tb", tmp_path / "ms")
    write_summary(tmp_path / "ms", mindspore_scalars("x", [1]), host="other")
    runs = {run.role: run for run in discover(tmp_path / "ms").runs}
    assert runs["source"].archives == ()
    assert len(runs["convert"].archives) == 1


def test_a_live_file_of_the_callback_is_fitted_like_any_other(tmp_path: Path) -> None:
    edges = np.linspace(0, 1, 201)
    rows = np.stack([edges[:-1], edges[1:], np.ones(200)], 1)
    data = build_record(version_payload("tensorboard", writer="ms_summary_bridge/live"))
    put(tmp_path / "tb" / tensorboard_name(), data + summary_record(1, histogram_tensor("h", rows.tolist())))
    run = convert_run(tmp_path / "tb", tmp_path / "ms")
    values = values_in(tmp_path / "ms")
    assert all(len(v.count) <= MAX_BUCKETS for rows_ in values.values() for _, v in rows_ if isinstance(v, Histogram))
    assert values or run.problems


def test_same_source_same_bytes(tmp_path: Path) -> None:
    put_log(tmp_path / "tb" / "a" / "b", build_and_split := every_kind(range(3)))
    put_log(tmp_path / "tb" / "c", build_and_split)
    convert(tmp_path / "tb", tmp_path / "one")
    convert(tmp_path / "tb", tmp_path / "two", workers=2)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_the_thin_script_converts(tmp_path: Path) -> None:
    put_log(tmp_path / "tb", scalars("loss", range(3)))
    script = Path(__file__).resolve().parents[2] / "tools" / "tb2ms"
    result = subprocess.run(
        [str(script), "tb", "ms", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "VIRTUAL_ENV": sys.prefix},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert len(values_in(tmp_path / "ms")["loss"]) == 3
