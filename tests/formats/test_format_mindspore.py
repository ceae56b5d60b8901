"""MindSpore's side: what the codec contract asks, the bytes MindSpore itself writes, and what it cannot hold."""

from __future__ import annotations

import gc
import math
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from codec_contract import (
    CodecContract,
    decode_single,
    is_float32,
    read_records,
    reserialised,
    same_bits,
    scalar_event,
    without_originals,
)
from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.events import Decoder, Encoded, Event, FileVersion, LostValue, SessionLog, Summary, TaggedValue
from ms_summary_bridge.formats.mindspore import FILE_VERSION, MindSporeDecoder, MindSporeEncoder
from ms_summary_bridge.formats.protos import ms_pb
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder
from ms_summary_bridge.formats.wire import length_delimited
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor, Value
from tests.codec_contract import without_names


def encode_one(value: Value, format: str = "", **parts: Any) -> Encoded:
    return MindSporeEncoder().encode(Event(1.0, 2, Summary((TaggedValue("tag", value, **parts),)), format))


def message_of(encoded: Encoded) -> Any:
    assert encoded.payload is not None
    return ms_pb.Event.FromString(encoded.payload)


def decode_value(value: Any) -> TaggedValue:
    return decode_single(MindSporeDecoder(), ms_pb.Event(wall_time=1.0, step=2), value)


def check_histogram(histogram: Histogram, message: Any) -> None:
    buckets = message.buckets
    assert np.array_equal(histogram.left, [each.left for each in buckets], equal_nan=True)
    assert np.array_equal(histogram.widths, [each.width for each in buckets], equal_nan=True)
    assert histogram.count.tolist() == [each.count for each in buckets]
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.array_equal(histogram.right, histogram.left + histogram.widths, equal_nan=True)
    for name in ("min", "max", "sum"):
        stored = getattr(histogram, name)
        assert (stored is not None) == message.HasField(name)
        assert same_bits(stored or 0.0, getattr(message, name)) or stored == 0.0
    assert (histogram.total is not None) == message.HasField("count")
    assert (histogram.total or 0) == message.count
    for name in ("nan_count", "pos_inf_count", "neg_inf_count"):
        assert getattr(histogram, name) == getattr(message, name)


class TestMindSpore(CodecContract):
    Decoder = MindSporeDecoder
    Encoder = MindSporeEncoder
    message_class = ms_pb.Event
    float_key = 0x1D
    events = strategies.mindspore_events()
    messages = staticmethod(strategies.mindspore_messages)
    golden: ClassVar[list[str]] = ["mindspore-2.10-summary", "mindspore-2.10-lineage"]

    def golden_decoder(self, name: str) -> Decoder:
        return MindSporeDecoder(is_lineage=name.endswith("lineage"))

    def check_message(self, event: Event, message: Any) -> None:
        content = event.content
        if isinstance(content, FileVersion):
            assert message.version == content.version
            assert not message.HasField("step")
            return
        assert isinstance(content, Summary)
        for tagged, value in zip(content.values, message.summary.value, strict=True):
            self.check_value(tagged, value)

    def check_value(self, tagged: TaggedValue, value: Any) -> None:
        assert tagged.tag == value.tag
        kind = value.WhichOneof("value")
        decoded = tagged.value
        if kind == "scalar_value":
            assert isinstance(decoded, Scalar)
            assert is_float32(decoded.bits, value.scalar_value)
        elif kind == "image":
            image = value.image
            assert decoded == Image(image.height, image.width, image.colorspace, (image.encoded_image,))
        elif kind == "histogram":
            assert isinstance(decoded, Histogram)
            check_histogram(decoded, value.histogram)
        elif kind == "tensor":
            assert isinstance(decoded, Tensor)
            assert decoded.array.shape == tuple(value.tensor.dims)
            assert np.array_equal(decoded.array.ravel(), _elements(value.tensor), equal_nan=True)
        else:
            assert isinstance(decoded, Opaque)

    def check_content(self, event: Event, message: Any) -> None:
        what = message.WhichOneof("what")
        if what == "summary":
            assert isinstance(event.content, Summary)
        elif what == "version":
            assert event.content == FileVersion(message.version)
        else:
            assert isinstance(event.content, Opaque)
            assert what is None or event.content.kind == "graph"


def _elements(tensor: Any) -> list[float]:
    for name in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        if getattr(tensor, name):
            return list(getattr(tensor, name))
    return []


@given(strategies.mindspore_events())
def test_the_bytes_are_those_protobuf_writes(event: Event) -> None:
    payload = MindSporeEncoder().encode(event).payload
    assert payload is not None
    if strategies.KEEPS_NAN_PAYLOAD or (b"\x7f" not in payload and b"\xff" not in payload):
        assert reserialised(ms_pb.Event, payload) == payload


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("payload", [b"", b"\x10\x05", b"\x1a\x01x"])
def test_an_event_without_a_time_is_an_error(payload: bytes) -> None:
    with pytest.raises(EventDecodeError, match="wall_time is missing"):
        MindSporeDecoder().decode(payload)


@pytest.mark.parametrize("is_lineage", [False, True])
def test_an_event_without_content_is_carried(is_lineage: bool) -> None:
    payload = b"\x09" + bytes(8) + b"\x10\x05"
    event = MindSporeDecoder(is_lineage=is_lineage).decode(payload)
    assert event == Event(0.0, 5, Opaque("empty event", payload), "mindspore", is_lineage=is_lineage)
    assert MindSporeEncoder().encode(event) == Encoded(payload)


def test_a_field_of_later_versions_is_carried() -> None:
    payload = b"\x09" + bytes(8) + b"\xea\x04\x01x"
    event = MindSporeDecoder().decode(payload)
    assert event.content == Opaque("field 77", payload)
    assert MindSporeEncoder().encode(event) == Encoded(payload)


@pytest.mark.parametrize(
    ("field", "kind"),
    [
        ("train_lineage", "train_lineage"),
        ("evaluation_lineage", "evaluation_lineage"),
        ("dataset_graph", "dataset_graph"),
    ],
)
def test_a_lineage_file_has_fields_of_its_own(field: str, kind: str) -> None:
    message = ms_pb.LineageEvent(wall_time=3.5)
    getattr(message, field).SetInParent()
    payload = message.SerializeToString()
    event = MindSporeDecoder(is_lineage=True).decode(payload)
    assert event == Event(3.5, 0, Opaque(field, payload), "mindspore", is_lineage=True)
    assert MindSporeEncoder().encode(event) == Encoded(payload)


def test_user_defined_info_is_carried_and_a_summary_is_none_in_a_lineage_file() -> None:
    message = ms_pb.LineageEvent(wall_time=3.5)
    message.user_defined_info.user_info.add().map_str["a"] = "b"
    decoder = MindSporeDecoder(is_lineage=True)
    assert decoder.decode(message.SerializeToString()).content.kind == "user_defined_info"
    assert decoder.decode(scalar_event(0x1D, b"loss", bytes(4))).content.kind == "field 5"


def test_a_graph_and_an_explanation_are_carried_whole() -> None:
    message = ms_pb.Event(wall_time=1.0)
    message.graph_def.name = "net"
    assert MindSporeDecoder().decode(message.SerializeToString()).content.kind == "graph"
    message.explain.SetInParent()
    payload = message.SerializeToString()
    assert MindSporeDecoder().decode(payload).content == Opaque("explain", payload)


def test_a_landscape_is_carried_with_its_tag() -> None:
    value = ms_pb.Summary.Value(tag="landscape_[1, 3]")
    value.loss_landscape.SetInParent()
    tagged = decode_value(value)
    assert (tagged.tag, tagged.value.kind) == ("landscape_[1, 3]", "landscape")


def test_a_tensor_that_does_not_fill_its_shape_is_carried_with_the_reason() -> None:
    value = ms_pb.Summary.Value(tag="t")
    value.tensor.dims.extend([2, 3])
    value.tensor.float_data.extend([1.0])
    assert decode_value(value).value == Opaque(
        "tensor", value.SerializeToString(), "1 element does not fill the shape [2, 3]"
    )


@pytest.mark.parametrize("dims", [[1 << 62, 0], [0, 1 << 62, 1 << 62], [-1], [1] * 40, [(1 << 63) - 1, 2]])
def test_a_shape_no_array_can_have_is_carried_with_the_reason(dims: list[int]) -> None:
    value = ms_pb.Summary.Value(tag="t")
    value.tensor.dims.extend(dims)
    carried = decode_value(value).value
    assert isinstance(carried, Opaque)
    assert carried.payload == value.SerializeToString()
    assert "do not fill the shape" in carried.reason


def test_elements_in_several_fields_or_of_a_cut_list_are_carried_with_the_reason() -> None:
    value = ms_pb.Summary.Value(tag="t")
    value.tensor.dims.append(2)
    value.tensor.float_data.append(1.0)
    value.tensor.double_data.append(1.0)
    carried = decode_value(value).value
    assert isinstance(carried, Opaque)
    assert "several fields" in carried.reason


def test_a_remembered_shape_does_not_hide_a_field_behind_the_summary() -> None:
    decoder = MindSporeDecoder()
    payload = scalar_event(0x1D, b"loss", b"\0\0\x80\x3f")
    decoder.decode(payload)
    longer = payload + b"\xa0\x1f\x01"
    assert decoder.decode(longer).original == longer


# ---------------------------------------------------------------- what MindSpore cannot hold


def test_a_double_is_rounded_and_said_to_be() -> None:
    encoded = encode_one(Scalar.from_float64(0.1))
    assert encoded.losses == (LostValue("scalar", "tag", "float64 rounded to float32"),)
    assert message_of(encoded).summary.value[0].scalar_value == np.float32(0.1)
    assert encoded.archive == Event(1.0, 2, Summary((TaggedValue("tag", Scalar.from_float64(0.1)),)))
    assert encode_one(Scalar.from_float64(0.5)).losses == ()


@pytest.mark.parametrize("count", [0, 2])
def test_a_batch_of_images_has_no_place(count: int) -> None:
    encoded = encode_one(Image(1, 2, 3, (b"png",) * count))
    assert encoded.payload is None
    assert encoded.losses == (LostValue("image", "tag", f"{count} images under one tag, where MindSpore holds one"),)
    assert encoded.archive is not None


def test_what_has_no_field_is_named_and_the_others_are_written() -> None:
    values = (TaggedValue("note", Opaque("text", b"")), TaggedValue("loss", Scalar.from_float32(1.5)))
    encoded = MindSporeEncoder().encode(Event(1.0, 2, Summary(values), "tensorboard"))
    assert encoded.losses == (LostValue("text", "note", "MindInsight has no place for a text"),)
    assert encoded.archive == Event(1.0, 2, Summary(values), "tensorboard")
    (value,) = message_of(encoded).summary.value
    assert (value.tag, value.scalar_value) == ("loss", 1.5)


def test_an_event_of_another_kind_has_no_place() -> None:
    event = Event(1.0, 2, Opaque("run_metadata", b"x"), "tensorboard")
    losses = (LostValue("run_metadata", "", "MindSpore summaries have no run_metadata"),)
    assert MindSporeEncoder().encode(event) == Encoded(None, losses, event)


def test_a_session_mark_is_kept_and_no_loss_because_files_tell_of_restarts_here() -> None:
    event = Event(1.0, 2, SessionLog(SessionLog.START), "tensorboard")
    assert MindSporeEncoder().encode(event) == Encoded(None, (), event)


def test_derived_values_are_left_out_without_a_loss() -> None:
    assert encode_one(Scalar.from_float32(1.0), "tensorboard", derived=True) == Encoded(None)


def test_the_version_is_that_of_the_target() -> None:
    encoded = MindSporeEncoder().encode(Event(1.0, 0, FileVersion("brain.Event:2"), "tensorboard"))
    assert message_of(encoded).version == FILE_VERSION == "MindSpore.Event:1"


@pytest.mark.parametrize(
    ("counts", "is_lossy"),
    [([1.0, 2.0], False), ([1.5, 2.0], True), ([math.nan, 1.0], True), ([math.inf, 1.0], True), ([1e300, 1.0], True)],
)
def test_counts_that_are_no_whole_numbers_are_a_loss(counts: list[float], is_lossy: bool) -> None:
    histogram = Histogram(left=np.array([0.0, 1.0]), right=np.array([1.0, 2.0]), count=np.array(counts))
    encoded = encode_one(histogram)
    assert bool(encoded.losses) == is_lossy
    assert len(message_of(encoded).summary.value[0].histogram.buckets) == 2


@pytest.mark.parametrize("total", [math.nan, math.inf, -math.inf, 1e300, 2.5])
def test_a_total_that_is_no_whole_number_does_not_stop_the_histogram(total: float) -> None:
    histogram = Histogram(left=np.zeros(1), right=np.ones(1), count=np.array([3.0]), total=total)
    encoded = encode_one(histogram)
    assert message_of(encoded).summary.value[0].histogram.buckets[0].count == 3
    assert len(encoded.losses) == 1


def test_statistics_that_are_not_known_are_computed_from_the_buckets() -> None:
    histogram = Histogram(
        left=np.array([0.0, 1.0, 2.0]),
        right=np.array([1.0, 2.0, 3.0]),
        count=np.array([0, 4, 0], np.int64),
        nan_count=2,
    )
    message = message_of(encode_one(histogram)).summary.value[0].histogram
    assert (message.min, message.max, message.sum, message.count) == (1.0, 2.0, 6.0, 6)


def test_a_histogram_without_a_finite_element_has_no_range_and_no_sum() -> None:
    empty = Histogram(left=np.empty(0), right=np.empty(0), count=np.empty(0, np.int64), nan_count=3)
    message = message_of(encode_one(empty)).summary.value[0].histogram
    assert [name for name in ("min", "max", "sum") if message.HasField(name)] == []
    assert (message.count, message.nan_count, message.HasField("pos_inf_count")) == (3, 3, True)


@given(strategies.tensors())
def test_a_tensor_is_written_as_float32_and_says_when_that_is_not_all(tensor: Tensor) -> None:
    encoded = encode_one(tensor)
    message = message_of(encoded).summary.value[0].tensor
    assert list(message.dims) == list(tensor.array.shape)
    assert len(message.float_data) == tensor.array.size
    back = np.array(message.float_data, np.float32).reshape(tensor.array.shape)
    if not encoded.losses:
        with np.errstate(invalid="ignore"):
            assert np.array_equal(back, tensor.array, equal_nan=tensor.array.dtype.kind in "fc")
    else:
        assert tensor.array.dtype.itemsize > 2
        is_complex = tensor.array.dtype.kind == "c"
        how = "written as the float32 of their real parts" if is_complex else "rounded to float32"
        assert encoded.losses == (LostValue("tensor", "tag", f"{tensor.array.dtype} elements {how}"),)


def test_nonfinite_scalars_and_degenerate_histograms_of_b12_come_back() -> None:
    decoder, encoder = MindSporeDecoder(), MindSporeEncoder()
    for bits in (0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 1, 0x80000000):
        payload = scalar_event(0x1D, b"loss", struct.pack("<I", bits))
        event = decoder.decode(payload)
        assert isinstance(event.content, Summary)
        assert event.content.values[0].value == Scalar(struct.pack("<I", bits))
        assert without_names(encoder.encode(event)) == Encoded(payload)
    value = ms_pb.Summary.Value(tag="h/all_nan")
    value.histogram.nan_count = 6
    value.histogram.count = 6
    histogram = decode_value(value).value
    assert isinstance(histogram, Histogram)
    assert (histogram.left.size, histogram.nan_count, histogram.total, histogram.min) == (0, 6, 6, None)


# ---------------------------------------------------------------- real files


def _round_trip(path: Path) -> list[Event]:
    decoder = MindSporeDecoder(is_lineage=path.name.endswith("lineage"))
    encoder = MindSporeEncoder()
    events = []
    for payload in read_records(path):
        event = decoder.decode(payload)
        assert without_names(encoder.encode(event)) == Encoded(payload)
        if not isinstance(event.content, Opaque):
            assert event.original is None
            assert encoder.encode(without_originals(event)).payload == payload
        events.append(event)
    return events


def test_everything_mindspore_wrote_is_encoded_back_byte_by_byte(summary_dir: Path) -> None:
    files = [path for path in summary_dir.iterdir() if path.is_file()]
    events = [event for path in files for event in _round_trip(path)]
    values = [tagged.value for event in events if isinstance(event.content, Summary) for tagged in event.content.values]
    assert {type(value) for value in values} >= {Scalar, Histogram, Image, Tensor}
    kinds = {event.content.kind for event in events}
    assert kinds >= {"file_version", "summary", "graph", "train_lineage", "evaluation_lineage", "dataset_graph"}


@pytest.mark.mindspore
def test_the_payload_of_a_nan_is_what_mindspore_wrote(tmp_path: Path) -> None:
    script = """
import sys
import numpy, mindspore
from mindspore.train.summary import SummaryRecord
bits = numpy.array([0x7FC00001, 0xFFC12345, 0x7FC00000, 0xFF800000, 1, 0x80000000], numpy.uint32).view(numpy.float32)
with SummaryRecord(sys.argv[1]) as record:
    for step, value in enumerate(bits):
        record.add_value("scalar", "odd", mindspore.Tensor(numpy.array(value)))
        record.record(step)
"""
    directory = tmp_path / "summary"
    done = subprocess.run(
        [sys.executable, "-c", script, str(directory)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout.decode()
    (path,) = (path for path in directory.iterdir() if path.name.endswith("_MS"))
    events = _round_trip(path)
    found = [event.content.values[0].value for event in events if isinstance(event.content, Summary)]
    assert len(found) == 6
    assert all(isinstance(value, Scalar) for value in found)
    assert [math.isnan(value.value) for value in found if isinstance(value, Scalar)] == [True] * 3 + [False] * 3
    assert [value.bits.hex() for value in found[3:] if isinstance(value, Scalar)] == [
        "000080ff",
        "01000000",
        "00000080",
    ]


@given(st.lists(strategies.BITS32, min_size=1, max_size=5))
def test_a_file_of_any_float_bits_is_encoded_back_byte_by_byte(many: list[bytes]) -> None:
    decoder, encoder = MindSporeDecoder(), MindSporeEncoder()
    for bits in many:
        payload = scalar_event(0x1D, b"loss", bits)
        assert without_names(encoder.encode(decoder.decode(payload))) == Encoded(payload)


@pytest.mark.parametrize("decoder", [MindSporeDecoder, TensorBoardDecoder])
def test_an_event_of_many_summaries_costs_in_proportion_to_them(decoder: Callable[[], Any]) -> None:
    """Protobuf merges them: the values of all stand behind each other."""
    number = b"\x1d" if decoder is MindSporeDecoder else b"\x15"
    value, count = length_delimited(b"\x0a", b"\x0a\x01x" + number + bytes(4)), 100_000

    def secs(summaries: bytes) -> float:
        payload = b"\x09" + bytes(8) + b"\x10\x01" + summaries
        began = time.process_time()
        content = decoder().decode(payload).content
        assert isinstance(content, Summary)
        assert len(content.values) == count
        return time.process_time() - began

    apart, together = length_delimited(b"\x2a", value) * count, length_delimited(b"\x2a", value * count)
    secs(together)
    gc.disable()  # which goes through all that this process holds
    try:
        # As many values in one summary take as much memory. To copy those before for each took 300 times as long.
        in_one, in_many = (min(secs(summaries) for _ in range(3)) for summaries in (together, apart))
    finally:
        gc.enable()
    assert in_many < 4 * in_one
