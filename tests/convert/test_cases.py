"""Kinds of failure that people met in public, by their numbers, where the other files do not cover them."""

from __future__ import annotations

import io
import math
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from PIL import Image as Pillow

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.events import Event, FileVersion, SessionLog, Summary
from ms_summary_bridge.files.event_file import EventFileReader, read_pieces
from ms_summary_bridge.files.records import Record
from ms_summary_bridge.formats.mindinsight import MAX_PIXELS
from ms_summary_bridge.formats.wire import FLOAT32, FLOAT64, fixed64, length_delimited, varint
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Value
from tests.mindspore_run import START, event, scalar, scalars, summary_name, write_summary
from tests.scripted import build_file, build_record, mindspore_name, put, tensorboard_name, version_payload

FLOAT, DOUBLE, INT32, STRING, INT64 = 1, 2, 3, 7, 9


def summary_record(step: int, *values: bytes, wall_time: float = START) -> bytes:
    """Frames an event with value messages, of either format: both have the summary in field 5."""
    body = b"".join(length_delimited(b"\x0a", value) for value in values)
    return build_record(fixed64(b"\x09", wall_time) + b"\x10" + varint(step) + length_delimited(b"\x2a", body))


def tag(name: str) -> bytes:
    return length_delimited(b"\x0a", name.encode())


def metadata(plugin: str) -> bytes:
    return length_delimited(b"\x4a", length_delimited(b"\x0a", length_delimited(b"\x0a", plugin.encode())))


def tensor_field(dtype: int, shape: Sequence[int], body: bytes) -> bytes:
    dims = b"".join(length_delimited(b"\x12", b"\x08" + varint(size)) for size in shape)
    return length_delimited(b"\x42", b"\x08" + varint(dtype) + length_delimited(b"\x12", dims) + body)


def image_field(height: int, width: int, colorspace: int, encoded: bytes) -> bytes:
    head = b"\x08" + varint(height) + b"\x10" + varint(width) + b"\x18" + varint(colorspace)
    return length_delimited(b"\x22", head + length_delimited(b"\x22", encoded))


def put_log(directory: Path, file_format: str, records: Sequence[bytes]) -> Path:
    name = tensorboard_name() if file_format == "tensorboard" else mindspore_name()
    return put(directory / name, build_record(version_payload(file_format)) + b"".join(records))


def values_of(path: Path, file_format: str) -> dict[str, list[tuple[int, Value]]]:
    found: dict[str, list[tuple[int, Value]]] = {}
    for item in EventFileReader(path, make_decoder(file_format)):
        assert isinstance(item, Event)
        if isinstance(item.content, Summary):
            for tagged in item.content.values:
                found.setdefault(tagged.tag, []).append((item.step, tagged.value))
    return found


def converted(source: Path, tmp_path: Path) -> dict[str, list[tuple[int, Value]]]:
    """Converts a MindSpore log, compares both sides, and reads the output back."""
    (run,) = convert_logdir(str(source), str(tmp_path / "tb")).runs
    assert (run.failed, run.damaged) == ("", [])
    assert verify_logdirs(str(source), str(tmp_path / "tb")).is_equal
    (output,) = (tmp_path / "tb").glob("*tfevents*")
    return values_of(output, "tensorboard")


# --- B06


def odd_tree(top: Path) -> None:
    write_summary(top / "ms", scalars("loss", [1]))
    put(top / "ms" / f"{summary_name()}_lineage", build_record(version_payload("mindspore")))
    put(top / "ms" / mindspore_name(suffix="_lineage"), build_record(version_payload("mindspore")))
    write_summary(top / "closed", scalars("loss", [1]), rank=1).chmod(0o400)
    put(top / "ms" / f"{summary_name(seconds=START + 5)}", b"")
    put(top / "zero" / summary_name(), b"")
    write_summary(top / "version_only", [])
    put(top / "text" / "events.out.tfevents.notes.txt", b"this is not an event file\n")
    (top / "named_like_events" / summary_name()).mkdir(parents=True)
    (top / "loop").symlink_to(top)
    (top / "dangling").symlink_to(top / "nowhere" / summary_name())
    (top / "twice").symlink_to(top / "closed")


def test_b06_odd_files_make_no_runs_and_hide_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd_tree(tmp_path / "tree")
    assert main(["convert", str(tmp_path / "tree"), str(tmp_path / "tb")]) == 3
    assert "notes.txt" in capsys.readouterr().out
    made = {path.parent.name for path in (tmp_path / "tb").rglob("*tfevents*")}
    assert made == {"ms", "closed"}
    for path in (tmp_path / "tb").rglob("*tfevents*"):
        path.chmod(0o400)
    before = {path: path.read_bytes() for path in (tmp_path / "tb").rglob("*tfevents*")}
    assert main(["convert", str(tmp_path / "tree"), str(tmp_path / "tb")]) == 3
    assert {path: path.read_bytes() for path in before} == before


def test_b06_newer_marker_file_does_not_hide_the_data(tmp_path: Path) -> None:
    put(tmp_path / tensorboard_name(), build_file("tensorboard", [1, 2, 3]))
    put(tmp_path / f"{tensorboard_name(START + 1, 'host')}.profile-empty", build_record(version_payload("tensorboard")))
    (run,) = inspect_logdir(str(tmp_path)).runs
    assert run.tags[0].points == 3


def test_b06_only_empty_files_are_no_fault(tmp_path: Path) -> None:
    put(tmp_path / "ms" / "a" / summary_name(), b"")
    write_summary(tmp_path / "ms" / "b", [])
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--quiet"]) == 0
    assert main(["inspect", str(tmp_path / "ms")]) == 0


def test_b06_deep_tree(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms" / "/".join(["d"] * 400), scalars("loss", [1]))
    assert main(["convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--quiet"]) == 0
    assert main(["verify", str(tmp_path / "ms"), str(tmp_path / "tb")]) == 0


# --- times that are no times

NAN = struct.unpack("<d", b"\x01\x02\x03\x00\x00\x00\xf4\xff")[0]
TIMES = {"nan": NAN, "inf": float("inf"), "-inf": float("-inf")}


def log_without_a_time(file_format: str, wall_time: float) -> list[bytes]:
    """A version, and events of which the second has that time, its first value metadata for those that follow."""
    first = scalar_tensor("t", FLOAT, [], length_delimited(b"\x2a", FLOAT32.pack(1.5)))
    later = scalar_tensor("t", FLOAT, [], length_delimited(b"\x2a", FLOAT32.pack(2.5)), has_plugin=False)
    key = b"\x15"
    if file_format == "mindspore":
        key = b"\x1d"
        first = later = tag("t") + key + FLOAT32.pack(1.5)
    return [
        build_record(version_payload(file_format, wall_time=wall_time)),
        summary_record(1, tag("loss") + key + FLOAT32.pack(1.0), wall_time=START + 1.0),
        summary_record(2, tag("loss") + key + FLOAT32.pack(2.0), first, wall_time=wall_time),
        build_record(fixed64(b"\x09", wall_time) + b"\x10\x02" + length_delimited(b"\x22", b"")),
        summary_record(3, tag("loss") + key + FLOAT32.pack(3.0), later, wall_time=START + 3.0),
    ]


@pytest.mark.parametrize("wall_time", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("file_format", ["mindspore", "tensorboard"])
def test_an_event_without_a_time_is_kept_told_and_shown_in_no_viewer(
    tmp_path: Path, file_format: str, wall_time: float
) -> None:
    """TensorBoard's fast loader reads no further than a NaN, and MindInsight's answer for the tag is not JSON."""
    name = tensorboard_name() if file_format == "tensorboard" else mindspore_name()
    records = log_without_a_time(file_format, wall_time)
    put(tmp_path / "a" / name, b"".join(records))
    (run,) = convert_logdir(str(tmp_path / "a"), str(tmp_path / "b")).runs
    assert (run.failed, run.damaged, run.events_read) == ("", [], 5)
    assert [(loss.kind, loss.tag, loss.count) for loss in run.losses] == [
        ("untimed graph", "", 1), ("untimed scalar", "loss", 1), ("untimed scalar", "t", 1),
    ]  # fmt: skip
    assert all("its wall_time is" in loss.reason for loss in run.losses)
    other = "mindspore" if file_format == "tensorboard" else "tensorboard"
    (output,) = (tmp_path / "b").glob("*_MS" if other == "mindspore" else "*tfevents*")
    payloads = [piece.payload for piece in read_pieces(output) if isinstance(piece, Record)]
    assert all(math.isfinite(FLOAT64.unpack_from(payload, 1)[0]) for payload in payloads)
    assert [(step, value.value) for step, value in values_of(output, other)["loss"]] == [(1, 1.0), (3, 3.0)]  # type: ignore[union-attr]
    assert verify_logdirs(str(tmp_path / "a"), str(tmp_path / "b")).is_equal
    convert_logdir(str(tmp_path / "b"), str(tmp_path / "c"))
    (back,) = [path for path in (tmp_path / "c").rglob("*") if path.name.endswith("_MS") or "tfevents" in path.name]
    again = [piece.payload for piece in read_pieces(back) if isinstance(piece, Record)]
    decode = make_decoder(file_format).decode
    said = [payload for payload in again if not isinstance(decode(payload).content, (FileVersion, SessionLog))]
    assert [build_record(payload) for payload in said] == records[1:]
    assert main(["inspect", str(tmp_path / "a")]) == 0


# --- B08


def scalar_tensor(name: str, dtype: int, shape: Sequence[int], body: bytes, *, has_plugin: bool = True) -> bytes:
    return tag(name) + (metadata("scalars") if has_plugin else b"") + tensor_field(dtype, shape, body)


B08: dict[str, tuple[bytes, float]] = {
    "float_val": (scalar_tensor("t", FLOAT, [], length_delimited(b"\x2a", FLOAT32.pack(0.25))), 0.25),
    "float_val not packed": (scalar_tensor("t", FLOAT, [], b"\x2d" + FLOAT32.pack(0.25)), 0.25),
    "content": (scalar_tensor("t", FLOAT, [], length_delimited(b"\x22", FLOAT32.pack(0.5))), 0.5),
    "vector of one": (scalar_tensor("t", FLOAT, [1], b"\x2d" + FLOAT32.pack(0.75)), 0.75),
    "matrix of one": (scalar_tensor("t", FLOAT, [1, 1], length_delimited(b"\x22", FLOAT32.pack(1.5))), 1.5),
    "double_val": (scalar_tensor("t", DOUBLE, [], b"\x31" + FLOAT64.pack(0.1)), 0.1),
    "double content": (scalar_tensor("t", DOUBLE, [], length_delimited(b"\x22", FLOAT64.pack(16777217.0))), 16777217.0),
    "int64 content": (
        scalar_tensor("t", INT64, [], length_delimited(b"\x22", struct.pack("<q", 123456789012))),
        123456789012.0,
    ),
    "int32 value": (scalar_tensor("t", INT32, [], b"\x38" + varint(-7)), -7.0),
    "no plugin": (
        scalar_tensor("t", FLOAT, [], length_delimited(b"\x2a", FLOAT32.pack(0.375)), has_plugin=False),
        0.375,
    ),
}


@pytest.mark.parametrize(("message", "expected"), B08.values(), ids=B08)
def test_b08_scalars_in_tensors(tmp_path: Path, message: bytes, expected: float) -> None:
    path = put_log(tmp_path, "tensorboard", [summary_record(1, message)])
    ((_, value),) = values_of(path, "tensorboard")["t"]
    assert isinstance(value, Scalar)
    assert value.value == expected


def test_b08_what_is_no_scalar_is_counted_under_another_kind(tmp_path: Path) -> None:
    vector = scalar_tensor("vector", FLOAT, [3], b"".join(b"\x2d" + FLOAT32.pack(x) for x in (1, 2, 3)))
    empty = scalar_tensor("empty", FLOAT, [0], b"")
    put_log(
        tmp_path, "tensorboard", [summary_record(1, vector, empty), summary_record(2, tag("s") + b"\x15" + bytes(4))]
    )
    (run,) = inspect_logdir(str(tmp_path)).runs
    assert run.damaged == []
    assert {item.tag: item.points for item in run.tags} == {"vector": 1, "empty": 1, "s": 1}
    assert [item.tag for item in run.tags if item.kind == "scalar"] == ["s"]


# --- B12

BITS = [0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x00000001, 0x80000000]


@pytest.mark.parametrize("file_format", ["mindspore", "tensorboard"])
def test_b12_bits_of_odd_scalars(tmp_path: Path, file_format: str) -> None:
    key = b"\x1d" if file_format == "mindspore" else b"\x15"
    records = [summary_record(n, tag("loss") + key + struct.pack("<I", bits)) for n, bits in enumerate(BITS)]
    path = put_log(tmp_path / "log", file_format, records)
    rows = values_of(path, file_format)["loss"]
    if file_format == "mindspore":
        assert converted(tmp_path / "log", tmp_path)["loss"] == rows
    assert [struct.unpack("<I", value.bits)[0] for _, value in rows if isinstance(value, Scalar)] == BITS
    assert main(["inspect", str(tmp_path / "log"), "--json"]) == 0


def ms_histogram(
    name: str, buckets: Sequence[tuple[float, float, int]], *, nan: int = 0, infinite: int = 0, high: float = 0.0
) -> bytes:
    body = b"".join(
        length_delimited(b"\x0a", fixed64(b"\x09", left) + fixed64(b"\x11", width) + b"\x18" + varint(count))
        for left, width, count in buckets
    )
    body += b"\x10" + varint(nan) + b"\x18" + varint(infinite) + b"\x20" + varint(infinite)
    body += fixed64(b"\x29", high) + fixed64(b"\x31", 0.0) + fixed64(b"\x39", 1.0)
    total = nan + 2 * infinite + sum(count for _, _, count in buckets)
    return tag(name) + length_delimited(b"\x4a", body + b"\x40" + varint(total))


B12: dict[str, list[tuple[float, float, int]]] = {
    "some": [(0.0, 1.0, 2), (1.0, 1.0, 3)],
    "none": [],
    "constant": [(2.5, 0.5, 0), (3.0, 0.5, 8)],
    "zero width": [(3.0, 0.0, 8)],
    "huge": [(-3e28, 2e28, 1), (-1e28, 2e28, 3)],
    "infinite edge": [(0.0, float("inf"), 3)],
    "edges that are no numbers": [(float("nan"), 1.0, 3)],
    "negative width": [(1.0, -1.0, 3)],
}


@pytest.mark.parametrize("buckets", B12.values(), ids=B12)
@pytest.mark.parametrize("nan", [0, 4])
def test_b12_degenerate_histograms(tmp_path: Path, buckets: list[tuple[float, float, int]], nan: int) -> None:
    record = summary_record(1, ms_histogram("h", buckets, nan=nan, infinite=nan // 2))
    put_log(tmp_path / "ms", "mindspore", [record])
    rows = converted(tmp_path / "ms", tmp_path)
    value, *derived = (value for _, value in rows["h"])
    assert isinstance(value, Histogram)
    assert value.count.sum() == sum(count for _, _, count in buckets)
    assert value.left.tobytes() == struct.pack(f"<{len(buckets)}d", *(left for left, _, _ in buckets))
    assert (value.nan_count, value.pos_inf_count, value.neg_inf_count) == (nan, nan // 2, nan // 2)
    counts = [count.value for count in derived if isinstance(count, Scalar)]
    assert counts == ([nan, nan // 2, nan // 2] if nan else [])


# --- C04b


@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ((10_000, 9_500), "JPEG encoded again as PNG"),
        ((10_000, 10_001), "10001 x 10000 pixels, and an image of more than 100,000,000 is not"),
        ((14_000, 13_000), "more than 178,956,970 pixels, and an image of more than 100,000,000 is not"),
    ],
)
def test_c04b_a_large_image_is_converted_or_its_size_is_the_reason(
    tmp_path: Path, size: tuple[int, int], reason: str
) -> None:
    """Pillow warns of a large image, which is no error, and refuses one that is larger still."""
    height, width = size
    out = io.BytesIO()
    Pillow.new("L", (4, 4), 128).save(out, "JPEG")
    data = bytearray(out.getvalue())
    frame = data.index(b"\xff\xc0") + 5  # of a small file, which Pillow fills up with grey
    data[frame : frame + 4] = struct.pack(">HH", height, width)
    put_log(tmp_path / "tb", "tensorboard", [
        summary_record(1, tag("large") + image_field(height, width, 1, bytes(data) + b"\xff\xd9")),
        summary_record(2, tag("loss") + b"\x15" + FLOAT32.pack(1.0)),
    ])  # fmt: skip
    (run,) = convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms")).runs
    (loss,) = run.losses
    assert reason in loss.reason
    (output,) = (tmp_path / "ms").glob("*_MS")
    found = values_of(output, "mindspore")
    assert ("large" in found) == (height * width <= MAX_PIXELS)
    assert [step for step, _ in found["loss"]] == [2]
    if "large" in found:
        ((_, value),) = found["large"]
        assert isinstance(value, Image)
        assert (value.height, value.width, value.colorspace) == (height, width, 1)
    assert verify_logdirs(str(tmp_path / "tb"), str(tmp_path / "ms")).is_equal


# --- B14


def encoded(kind: str, mode: str = "RGB", frames: int = 1) -> bytes:
    images = [Pillow.new(mode, (6, 4), 60 * (n + 1) if mode == "L" else None) for n in range(frames)]
    out = io.BytesIO()
    more = {"save_all": True, "append_images": images[1:]} if frames > 1 else {}
    images[0].save(out, kind, **more)
    return out.getvalue()


B14 = {
    "grey": encoded("PNG", "L"),
    "grey and alpha": encoded("PNG", "LA"),
    "rgb": encoded("PNG"),
    "rgba": encoded("PNG", "RGBA"),
    "jpeg": encoded("JPEG"),
    "gif": encoded("GIF", "L", frames=3),
    "bmp": encoded("BMP"),
    "garbage": b"\x00\x01\x02",
    "nothing": b"",
}


@pytest.mark.parametrize("data", B14.values(), ids=B14)
@pytest.mark.parametrize("size", [(4, 6, 3), (999, 1, 0), (0, 0, 0)])
def test_b14_bytes_of_an_image_are_never_touched(tmp_path: Path, data: bytes, size: tuple[int, int, int]) -> None:
    put_log(tmp_path / "ms", "mindspore", [summary_record(1, tag("i") + image_field(*size, data))])
    ((_, value),) = converted(tmp_path / "ms", tmp_path)["i"]
    assert value == Image(*size, (data,))


def test_b14_every_image_of_a_batch_is_read(tmp_path: Path) -> None:
    batch = b"".join(length_delimited(b"\x42", part) for part in (b"6", b"4", *list(B14.values())[:3]))
    message = tag("batch") + metadata("images") + tensor_field(STRING, [5], batch)
    path = put_log(tmp_path, "tensorboard", [summary_record(1, message)])
    assert values_of(path, "tensorboard")["batch"] == [(1, Image(4, 6, 0, tuple(B14.values())[:3]))]


def test_b14_bad_image_tensor_skips_one_value_not_the_file(tmp_path: Path) -> None:
    message = tag("batch") + metadata("images") + tensor_field(STRING, [1], length_delimited(b"\x42", b"six"))
    good = tag("loss") + b"\x15" + FLOAT32.pack(1)
    path = put_log(tmp_path, "tensorboard", [summary_record(1, message, good), summary_record(2, good)])
    rows = values_of(path, "tensorboard")
    assert isinstance(rows["batch"][0][1], Opaque)
    assert [step for step, _ in rows["loss"]] == [1, 2]


# --- B16

STEPS = [-5, 0, 1, 2**31 - 1, 2**31, 6_002_049_024, -1_627_389_952, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("file_format", ["mindspore", "tensorboard"])
def test_b16_steps_are_exact_when_read(tmp_path: Path, file_format: str) -> None:
    key = b"\x1d" if file_format == "mindspore" else b"\x15"
    records = [summary_record(step, tag(f"s{n}") + key + bytes(4)) for n, step in enumerate(STEPS)]
    put_log(tmp_path / "log", file_format, records)
    (run,) = inspect_logdir(str(tmp_path / "log")).runs
    assert [(item.tag, item.first_step) for item in run.tags] == [(f"s{n}", step) for n, step in enumerate(STEPS)]
    if file_format == "mindspore":
        rows = converted(tmp_path / "log", tmp_path)
        assert {name: row[0][0] for name, row in rows.items()} == {f"s{n}": step for n, step in enumerate(STEPS)}


def test_b16_steps_of_one_tag_that_wrap(tmp_path: Path) -> None:
    write_summary(tmp_path / "ms", [event(step, ("loss", scalar(n))) for n, step in enumerate(STEPS)])
    assert [step for step, _ in converted(tmp_path / "ms", tmp_path)["loss"]] == STEPS


# --- B03, the reading half for TensorBoard's files


@pytest.mark.parametrize("file_format", ["mindspore", "tensorboard"])
def test_b03_flipped_bit_is_named_by_inspect(tmp_path: Path, file_format: str) -> None:
    name = tensorboard_name() if file_format == "tensorboard" else mindspore_name()
    data = bytearray(build_file(file_format, range(1, 6)))
    data[-5] ^= 0x40
    path = put(tmp_path / name, bytes(data))
    (run,) = inspect_logdir(str(tmp_path)).runs
    assert [(item.file, item.end) for item in run.damaged] == [(str(path), len(data))]
    assert run.tags[0].points == 4


# --- B07


def test_b07_limits_of_buffers_are_no_limits_of_files(tmp_path: Path) -> None:
    put(tmp_path / tensorboard_name(), build_file("tensorboard", range(30_000)))
    assert os.path.getsize(tmp_path / tensorboard_name()) > 1 << 20
    (run,) = inspect_logdir(str(tmp_path)).runs
    assert (run.tags[0].points, run.tags[0].first_step, run.tags[0].last_step) == (30_000, 0, 29_999)
