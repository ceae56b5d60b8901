"""TensorBoard's side: what the codec contract asks, every way to write a value, and what TensorBoard cannot hold."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from codec_contract import (
    DATA,
    CodecContract,
    decode_single,
    is_float32,
    read_records,
    reserialised,
    same_bits,
    scalar_event,
    without_originals,
)
from ms_summary_bridge.events import Encoded, Event, FileVersion, LostValue, SessionLog, Summary, TaggedValue
from ms_summary_bridge.formats.mindspore import MindSporeDecoder, MindSporeEncoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tag_names import TagNames
from ms_summary_bridge.formats.tensorboard import FILE_VERSION, TensorBoardDecoder, TensorBoardEncoder
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor, Value

INT64_ENDS = [-5, 0, 1, 2147483647, 2147483648, 6002049024, -1627389952, (1 << 63) - 1, -(1 << 63)]


def decode_value(value: Any, decoder: TensorBoardDecoder | None = None) -> TaggedValue:
    return decode_single(decoder or TensorBoardDecoder(), tb_pb.Event(wall_time=1.0, step=2), value)


def encode_values(*pairs: tuple[str, Value], encoder: TensorBoardEncoder | None = None) -> Encoded:
    """Encodes an event of a MindSpore file."""
    content = Summary(tuple(TaggedValue(tag, value) for tag, value in pairs))
    return (encoder or TensorBoardEncoder()).encode(Event(1.0, 2, content, "mindspore"))


def messages_of(encoded: Encoded) -> list[Any]:
    assert encoded.payload is not None
    return list(tb_pb.Event.FromString(encoded.payload).summary.value)


def decoded(encoded: Encoded, decoder: TensorBoardDecoder | None = None) -> tuple[TaggedValue, ...]:
    assert encoded.payload is not None
    content = (decoder or TensorBoardDecoder()).decode(encoded.payload).content
    assert isinstance(content, Summary)
    return content.values


def rows_of(value: Any) -> npt.NDArray[np.float64]:
    """The rows of a `[k, 3]` tensor, read without the codec."""
    assert value.tensor.dtype == tb_pb.DataType.DT_DOUBLE
    shape = [dim.size for dim in value.tensor.tensor_shape.dim]
    return np.frombuffer(value.tensor.tensor_content, "<f8").reshape(shape)


def make_histogram(**changes: Any) -> Histogram:
    left, width = np.array([0.0, 1.0, 2.5]), np.array([1.0, 1.0, 0.5])
    parts: dict[str, Any] = {
        "left": left,
        "width": width,
        "right": left + width,
        "count": np.array([2, 0, 5], np.int64),
    }
    return Histogram(**{**parts, "min": 0.5, "max": 3.0, "sum": 12.5, "total": 7, **changes})


_TENSOR_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 9: "<i8", 10: "?", 22: "<u4", 23: "<u8"}


def array_of(tensor: Any) -> npt.NDArray[Any]:
    """A TensorProto as TensorFlow reads it."""
    dtype = _TENSOR_DTYPES[tensor.dtype]
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, dtype).reshape(shape)
    lists = ("float_val", "double_val", "int_val", "int64_val", "bool_val", "uint32_val", "uint64_val")
    stored = next((list(getattr(tensor, name)) for name in lists if getattr(tensor, name)), [0])
    flat = np.array(stored).astype(dtype)
    return np.resize(flat, math.prod(shape)).reshape(shape)


class TestTensorBoard(CodecContract):
    Decoder = TensorBoardDecoder
    Encoder = TensorBoardEncoder
    message_class = tb_pb.Event
    float_key = 0x15
    events = st.one_of(
        strategies.tensorboard_events(strategies.FEW_TAGS), strategies.tensorboard_events(strategies.TAGS.filter(bool))
    )
    messages = staticmethod(strategies.tensorboard_messages)
    golden: ClassVar[list[str]] = ["tensorboardx-2.6.5"]

    def check_message(self, event: Event, message: Any) -> None:
        content = event.content
        if isinstance(content, FileVersion):
            assert message.file_version == content.version
            assert message.source_metadata.writer == content.writer
        elif isinstance(content, SessionLog):
            log = message.session_log
            assert (log.status, log.checkpoint_path, log.msg) == (
                content.status,
                content.checkpoint_path,
                content.message,
            )
        else:
            assert isinstance(content, Summary)
            values = [value for value in message.summary.value if not _origin(value).derived]
            for tagged, value in zip(content.values, values, strict=True):
                assert (_origin(value).tag or value.tag) == tagged.tag
                self.check_message_value(tagged.value, value)

    def check_message_value(self, value: Value, message: Any) -> None:
        if isinstance(value, Scalar):
            assert is_float32(value.bits, message.simple_value)
        elif isinstance(value, Histogram):
            rows = np.stack([value.left, value.right, value.count.astype(np.float64)], axis=1)
            assert rows_of(message).tobytes() == rows.tobytes()
        else:
            assert isinstance(value, Image)
            image = message.image
            assert value == Image(image.height, image.width, image.colorspace, (image.encoded_image_string,))

    def check_value(self, tagged: TaggedValue, value: Any) -> None:
        kind = value.WhichOneof("value")
        found = tagged.value
        if kind == "simple_value":
            assert isinstance(found, Scalar)
            assert is_float32(found.bits, value.simple_value)
        elif kind == "image":
            image = value.image
            assert found == Image(image.height, image.width, image.colorspace, (image.encoded_image_string,))
        elif kind == "histo":
            assert isinstance(found, Histogram)
            assert np.array_equal(found.count, value.histo.bucket, equal_nan=True)
            assert same_bits(found.min or 0.0, value.histo.min) or found.min == 0.0
            assert same_bits(found.max or 0.0, value.histo.max) or found.max == 0.0
        elif kind == "tensor" and value.tensor.dtype != tb_pb.DataType.DT_STRING and isinstance(found, Scalar | Tensor):
            expected = array_of(value.tensor)
            array = found.array if isinstance(found, Tensor) else np.array(found.value)
            assert isinstance(found, Tensor) == (expected.size != 1)
            assert np.array_equal(array.ravel(), expected.ravel().astype(array.dtype), equal_nan=True)
        elif kind == "tensor":
            assert isinstance(found, Opaque | Histogram | Image)
        else:
            assert isinstance(found, Opaque)

    def check_content(self, event: Event, message: Any) -> None:
        what = message.WhichOneof("what")
        if what == "file_version":
            assert isinstance(event.content, FileVersion)
            assert (event.content.version, event.content.writer) == (
                message.file_version,
                message.source_metadata.writer,
            )
        elif what == "session_log":
            assert isinstance(event.content, SessionLog)
            assert (event.content.status, event.content.message) == (
                message.session_log.status,
                message.session_log.msg,
            )
        elif what == "summary":
            assert isinstance(event.content, Summary)
        else:
            assert isinstance(event.content, Opaque)


def _origin(value: Any) -> Any:
    return tb_pb.PluginContent.FromString(value.metadata.plugin_data.content).origin


# ---------------------------------------------------------------- reading: scalars (B08)


def scalar_tensor(dtype: str, dims: list[int], field: bytes, *, plugin: str | None = "scalars") -> Any:
    """A value with a tensor whose elements are written as the bytes of one field of TensorProto."""
    value = tb_pb.Summary.Value(tag="tag")
    value.tensor.dtype = tb_pb.DataType.Value(dtype)
    value.tensor.tensor_shape.SetInParent()
    for size in dims:
        value.tensor.tensor_shape.dim.add(size=size)
    if plugin is not None:
        value.metadata.plugin_data.plugin_name = plugin
        value.metadata.data_class = tb_pb.DataClass.DATA_CLASS_SCALAR
    event = strategies.join_field(8, 2, value.tensor.SerializeToString() + field)
    value.ClearField("tensor")
    return value.SerializeToString() + event


def packed(number: int, layout: str, *numbers: float) -> bytes:
    return strategies.join_field(number, 2, struct.pack(layout, *numbers))


B08 = [
    ("rank 0", scalar_tensor("DT_FLOAT", [], packed(5, "<f", 0.25)), 0.25),
    ("not packed", scalar_tensor("DT_FLOAT", [], b"\x2d" + struct.pack("<f", 0.25)), 0.25),
    ("no metadata", scalar_tensor("DT_FLOAT", [], packed(5, "<f", 0.375), plugin=None), 0.375),
    ("content", scalar_tensor("DT_FLOAT", [], packed(4, "<f", 0.5)), 0.5),
    ("rank 1", scalar_tensor("DT_FLOAT", [1], b"\x2d" + struct.pack("<f", 0.75)), 0.75),
    ("rank 2", scalar_tensor("DT_FLOAT", [1, 1], packed(4, "<f", 1.5)), 1.5),
    ("double", scalar_tensor("DT_DOUBLE", [], b"\x31" + struct.pack("<d", 0.1)), 0.1),
    ("double packed", scalar_tensor("DT_DOUBLE", [], packed(6, "<d", 0.1)), 0.1),
    ("double content", scalar_tensor("DT_DOUBLE", [], packed(4, "<d", 16777217.0)), 16777217.0),
    ("int64 content", scalar_tensor("DT_INT64", [], packed(4, "<q", 123456789012)), 123456789012.0),
    ("int64", scalar_tensor("DT_INT64", [], b"\x50\x05"), 5.0),
    ("int32", scalar_tensor("DT_INT32", [], b"\x38" + b"\xf9" + b"\xff" * 8 + b"\x01"), -7.0),
    ("int8", scalar_tensor("DT_INT8", [], b"\x38" + b"\xf9" + b"\xff" * 8 + b"\x01"), -7.0),
    ("uint8", scalar_tensor("DT_UINT8", [], b"\x3a\x02\xff\x01"), 255.0),
    ("uint64", scalar_tensor("DT_UINT64", [], b"\x88\x01\x09"), 9.0),
    ("bool", scalar_tensor("DT_BOOL", [], b"\x58\x01"), 1.0),
    ("half", scalar_tensor("DT_HALF", [], b"\x68\x80\xfc\x01"), -0.0),
    ("bfloat16", scalar_tensor("DT_BFLOAT16", [], b"\x68\x80\x7f"), 1.0),
    ("bfloat16 content", scalar_tensor("DT_BFLOAT16", [], b"\x22\x02\x80\x3f"), 1.0),
    ("empty content", scalar_tensor("DT_FLOAT", [], b"\x22\x00" + packed(5, "<f", 0.25)), 0.25),
    ("no value", scalar_tensor("DT_FLOAT", [], b""), 0.0),
]
B08 = [row for row in B08 if row[0] != "half"] + [
    ("half", scalar_tensor("DT_HALF", [], b"\x68\x80\x78"), 1.0),
    ("half content", scalar_tensor("DT_HALF", [], packed(4, "<e", 1.5)), 1.5),
]


def event_of(value: bytes) -> bytes:
    return b"\x09" + struct.pack("<d", 1.0) + strategies.join_field(5, 2, strategies.join_field(1, 2, value))


def tagged_of(value: bytes, decoder: TensorBoardDecoder | None = None) -> TaggedValue:
    return decoded(Encoded(event_of(value)), decoder)[0]


@pytest.mark.parametrize(("value", "expected"), [row[1:] for row in B08], ids=[row[0] for row in B08])
def test_a_scalar_is_read_in_every_layout(value: bytes, expected: float) -> None:
    tagged = tagged_of(value)
    assert isinstance(tagged.value, Scalar)
    assert same_bits(tagged.value.value, expected)
    assert tagged.value.is_float32 == (tb_pb.Summary.Value.FromString(value).tensor.dtype in (1, 14))
    assert TensorBoardEncoder().encode(TensorBoardDecoder().decode(event_of(value))) == Encoded(event_of(value))


def test_a_float32_in_a_tensor_keeps_its_bits() -> None:
    for field in (strategies.join_field(4, 2, b"\x01\0\xa0\x7f"), strategies.join_field(5, 2, b"\x01\0\xa0\x7f")):
        assert tagged_of(scalar_tensor("DT_FLOAT", [], field)).value == Scalar(b"\x01\0\xa0\x7f")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (scalar_tensor("DT_FLOAT", [3], packed(5, "<3f", 1, 2, 3)), "a tensor of shape [3] is not a scalar"),
        (scalar_tensor("DT_FLOAT", [0], b""), "a tensor of shape [0] is not a scalar"),
        (scalar_tensor("DT_FLOAT", [2], b"\x22\x03abc"), "3 bytes do not hold a whole number of float32 elements"),
        (scalar_tensor("DT_FLOAT", [2], b"\x2a\x03abc"), "3 bytes do not hold a whole number of float32 elements"),
        (scalar_tensor("DT_FLOAT", [2], packed(4, "<f", 1.0)), "1 element does not fill the shape [2]"),
        (scalar_tensor("DT_FLOAT", [-1], packed(4, "<f", 1.0)), "1 element does not fill the shape [-1]"),
        (scalar_tensor("DT_FLOAT", [1 << 40], b""), "0 elements do not fill the shape [1099511627776]"),
        (scalar_tensor("DT_COMPLEX64", [], packed(4, "<2f", 1, 2)), "a complex number is not a scalar"),
        (
            scalar_tensor("DT_COMPLEX64", [], packed(9, "<3f", 1, 2, 3)),
            "3 numbers do not hold a whole number of complex64 elements",
        ),
        (scalar_tensor("DT_QINT8", [], b""), "the data type 11 of a tensor is not known"),
        (scalar_tensor("DT_FLOAT", [1] * 255, b""), "a tensor has too many dimensions"),
        (scalar_tensor("DT_FLOAT", [], b"\x12\x02\x18\x01"), "a tensor of unknown rank"),
    ],
)
def test_what_is_no_scalar_is_carried_with_the_reason(value: bytes, reason: str) -> None:
    tagged = tagged_of(value)
    assert isinstance(tagged.value, Opaque)
    assert tagged.value.kind == "scalars"
    assert tagged.value.payload == value
    assert tagged.value.reason.startswith(reason.replace("float32 elements", "")) or tagged.value.reason == reason


@pytest.mark.parametrize("plugin", [None, "", "scalars", "histograms"])
@pytest.mark.parametrize("dims", [[0, 1 << 62], [1 << 62, 1 << 62, 0], [-1, 0]])
def test_a_shape_no_array_can_have_is_carried_with_the_reason(dims: list[int], plugin: str | None) -> None:
    value = tagged_of(scalar_tensor("DT_FLOAT", dims, b"", plugin=plugin)).value
    assert isinstance(value, Opaque)
    assert "do not fill the shape" in value.reason


def test_a_tensor_without_a_plugin_is_a_tensor() -> None:
    value = tagged_of(scalar_tensor("DT_INT64", [2, 2], b"\x50\x05\x50\x06", plugin=None)).value
    assert value == Tensor(
        np.array([[5, 6], [6, 6]], np.int64), "int64"
    )  # the last one counts for all that are missing


def test_a_list_of_another_wire_type_is_another_field() -> None:
    value = scalar_tensor("DT_FLOAT", [], b"\x28\x05" + packed(5, "<f", 0.5) + b"\x29" + bytes(8))
    assert tagged_of(value).value == Scalar.from_float32(0.5)


# ---------------------------------------------------------------- reading: other kinds


def test_the_metadata_of_a_tag_counts_from_its_first_value_on() -> None:
    decoder = TensorBoardDecoder()
    first = tb_pb.Summary.Value(tag="h")
    first.metadata.plugin_data.plugin_name = "histograms"
    first.tensor.dtype = tb_pb.DataType.DT_DOUBLE
    for size in (1, 3):
        first.tensor.tensor_shape.dim.add(size=size)
    first.tensor.tensor_content = struct.pack("<3d", 0, 1, 5)
    second = tb_pb.Summary.Value()
    second.CopyFrom(first)
    second.ClearField("metadata")
    assert decode_value(second).value == Tensor(np.array([[0.0, 1.0, 5.0]]), "float64")
    expected = Histogram(left=np.array([0.0]), right=np.array([1.0]), count=np.array([5.0]))
    assert decode_value(first, decoder).value == expected
    assert decode_value(second, decoder).value == expected
    other = tb_pb.Summary.Value()
    other.CopyFrom(first)
    other.metadata.plugin_data.plugin_name = "scalars"
    assert decode_value(other, decoder).value == expected


@pytest.mark.parametrize("dtype", ["<f8", "<f4", "<i8"])
def test_a_histogram_tensor_may_have_any_dtype(dtype: str) -> None:
    name = {"<f8": "DT_DOUBLE", "<f4": "DT_FLOAT", "<i8": "DT_INT64"}[dtype]
    rows = np.array([[0, 1, 2], [1, 3, 4]], dtype)
    tagged = tagged_of(scalar_tensor(name, [2, 3], strategies.join_field(4, 2, rows.tobytes()), plugin="histograms"))
    assert tagged.value == Histogram(left=np.array([0.0, 1.0]), right=np.array([1.0, 3.0]), count=np.array([2.0, 4.0]))


def test_a_signalling_nan_in_a_histogram_does_not_stop_it() -> None:
    rows = np.array([0x7FA00000, 0, 0], np.uint32).tobytes()
    value = tagged_of(scalar_tensor("DT_FLOAT", [1, 3], strategies.join_field(4, 2, rows), plugin="histograms")).value
    assert isinstance(value, Histogram)
    assert math.isnan(value.left[0])


@pytest.mark.parametrize(
    ("dtype", "dims", "size"), [("DT_DOUBLE", [3], 24), ("DT_DOUBLE", [1, 4], 32), ("DT_COMPLEX64", [1, 3], 24)]
)
def test_a_histogram_of_another_shape_is_carried_with_the_reason(dtype: str, dims: list[int], size: int) -> None:
    value = tagged_of(scalar_tensor(dtype, dims, strategies.join_field(4, 2, bytes(size)), plugin="histograms")).value
    assert isinstance(value, Opaque)
    assert (value.kind, value.reason[:34]) == ("histograms", "a histogram is a tensor of shape [")


def test_strings_under_another_plugin_are_carried() -> None:
    strings = scalar_tensor("DT_STRING", [1], b"\x42\x01a", plugin="histograms")
    assert tagged_of(strings).value.kind == "histograms"
    assert tagged_of(scalar_tensor("DT_STRING", [1], b"\x42\x01a")).value.kind == "scalars"
    assert tagged_of(scalar_tensor("DT_STRING", [1], b"\x42\x01a", plugin=None)).value.kind == "tensor of strings"


def legacy(low: float, high: float, limits: list[float], counts: list[float], **more: float) -> TaggedValue:
    value = tb_pb.Summary.Value(tag="h")
    value.histo.min, value.histo.max = low, high
    value.histo.bucket_limit.extend(limits)
    value.histo.bucket.extend(counts)
    for name, number in more.items():
        setattr(value.histo, name, number)
    return decode_value(value)


def test_a_legacy_histogram_reaches_from_its_least_to_its_greatest_value() -> None:
    value = legacy(-0.5, 2.5, [0.0, 1.0, 3.0], [1, 2, 0.5], num=3.5, sum=4.0, sum_squares=9.0).value
    assert isinstance(value, Histogram)
    assert value.left.tolist() == [-0.5, 0.0, 1.0]
    assert value.right.tolist() == [0.0, 1.0, 2.5]
    assert value.count.tolist() == [1, 2, 0.5]
    assert (value.min, value.max, value.total, value.sum, value.sum_squares) == (-0.5, 2.5, 3.5, 4.0, 9.0)


def test_a_legacy_histogram_does_not_turn_a_bucket_around() -> None:
    value = legacy(5.0, -5.0, [0.0, 1.0], [1, 2]).value
    assert isinstance(value, Histogram)
    assert (value.left.tolist(), value.right.tolist()) == ([0.0, 0.0], [0.0, 1.0])
    empty = legacy(0.0, 0.0, [], []).value
    assert isinstance(empty, Histogram)
    assert empty.left.size == 0
    nan = legacy(math.nan, math.nan, [math.nan, math.inf], [1, 2]).value
    assert isinstance(nan, Histogram)
    assert nan.right[1] == math.inf


def test_a_legacy_histogram_with_edges_missing_is_carried_with_the_reason() -> None:
    value = legacy(0, 1, [1.0], [1, 2]).value
    assert isinstance(value, Opaque)
    assert value.reason == "a histogram has 1 edge and 2 counts"


def blobs(*strings: bytes) -> bytes:
    field = b"".join(strategies.join_field(8, 2, string) for string in strings)
    return scalar_tensor("DT_STRING", [len(strings)], field, plugin="images")


def test_images_are_read_in_both_ways() -> None:
    """B14, the reading half: whatever the bytes are, they are not touched."""
    for encoded in (b"\x89PNG\r\n\x1a\n...", b"\xff\xd8\xff jpeg", b"GIF89a", b"\0\1\2", b""):
        value = tb_pb.Summary.Value(tag="i")
        value.image.height, value.image.width, value.image.colorspace = 999, 1, 3
        value.image.encoded_image_string = encoded
        assert decode_value(value).value == Image(999, 1, 3, (encoded,))
    assert tagged_of(blobs(b"6", b"4", b"one", b"", b"three")).value == Image(4, 6, 0, (b"one", b"", b"three"))
    assert tagged_of(blobs(b"6", b"4")).value == Image(4, 6, 0, ())


@pytest.mark.parametrize("strings", [(), (b"6",), (b"6", b"x", b"png"), (b"\xff", b"4"), (b"9" * 5000, b"4", b"png")])
def test_a_blob_sequence_without_sizes_is_carried_with_the_reason(strings: tuple[bytes, ...]) -> None:
    value = tagged_of(blobs(*strings)).value
    assert isinstance(value, Opaque)
    assert value.kind == "images"
    assert value.reason


def test_numbers_under_the_images_plugin_are_carried_with_the_reason() -> None:
    value = tagged_of(scalar_tensor("DT_FLOAT", [2], b"", plugin="images")).value
    assert isinstance(value, Opaque)
    assert "holds width, height" in value.reason


def test_a_value_with_nothing_but_metadata_is_carried() -> None:
    value = tb_pb.Summary.Value(tag="_hparams_/session_start_info")
    value.metadata.plugin_data.plugin_name = "hparams"
    value.metadata.plugin_data.content = b"\x1a\x00"
    assert decode_value(value).value == Opaque("hparams", value.SerializeToString())
    assert decode_value(tb_pb.Summary.Value(tag="nothing")).value.kind == "empty value"


@pytest.mark.parametrize("plugin", ["text", "pr_curves", "mesh", "plugin_from_2031"])
def test_a_value_of_another_plugin_is_carried_as_it_is(plugin: str) -> None:
    """B17, the reading half; the text is not UTF-8."""
    text = scalar_tensor("DT_STRING", [1], strategies.join_field(8, 2, b"lr=1e-4 \xff\xfe ok"), plugin=plugin)
    numbers = scalar_tensor("DT_FLOAT", [2, 3], packed(4, "<6f", *range(6)), plugin=plugin)
    one = scalar_tensor("DT_FLOAT", [], packed(4, "<f", 1), plugin=plugin)
    for value in (text, numbers, one):
        assert tagged_of(value) == TaggedValue("tag", Opaque(plugin, value))


def test_sound_and_the_oldest_histograms_are_carried() -> None:
    value = tb_pb.Summary.Value(tag="sound")
    value.audio.encoded_audio_string = b"RIFF"
    assert decode_value(value).value == Opaque("audio", value.SerializeToString())
    value = tb_pb.Summary.Value(tag="old", obsolete_old_style_histogram=b"x")
    assert decode_value(value).value.kind == "obsolete_histogram"


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b"\x22\x03\xff\xff\xff", "graph"),
        (b"\x32\x09\x08\x14\x12\x05hello", "log_message"),
        (b"\x42\x0b\x0a\x05step1\x12\x02\x01\x02", "run_metadata"),
        (b"\x4a\x01x", "meta_graph"),
        (b"", "empty event"),
        (b"\xea\x04\x01x", "field 77"),
    ],
)
def test_an_event_of_another_kind_is_carried_whole(payload: bytes, kind: str) -> None:
    payload = b"\x09" + struct.pack("<d", 5.0) + b"\x10\x01" + payload
    event = TensorBoardDecoder().decode(payload)
    assert event == Event(5.0, 1, Opaque(kind, payload), "tensorboard")
    assert TensorBoardEncoder().encode(event) == Encoded(payload)
    assert MindSporeEncoder().encode(event).archive == event


@pytest.mark.parametrize("step", INT64_ENDS)
def test_steps_are_int64_in_both_formats(step: int) -> None:
    """B16."""
    message = tb_pb.Event(wall_time=1.0, step=step)
    message.summary.value.add(tag="s", simple_value=1.0)
    event = TensorBoardDecoder().decode(message.SerializeToString())
    assert event.step == step
    payload = MindSporeEncoder().encode(event).payload
    assert payload is not None
    assert ms_pb.Event.FromString(payload).step == step
    back = TensorBoardEncoder().encode(MindSporeDecoder().decode(payload))
    assert back == Encoded(message.SerializeToString())


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 1, 0x80000000, 0x7FA00001])
def test_the_bits_of_scalars_that_are_not_finite_go_there_and_back(bits: int) -> None:
    """B12."""
    payload = scalar_event(0x15, b"loss", struct.pack("<I", bits))
    middle = MindSporeEncoder().encode(TensorBoardDecoder().decode(payload))
    assert middle.losses == ()
    assert middle.payload == scalar_event(0x1D, b"loss", struct.pack("<I", bits))
    assert TensorBoardEncoder().encode(MindSporeDecoder().decode(middle.payload)) == Encoded(payload)


@pytest.mark.parametrize(
    "field", [b"\x52\x00", b"\x52\x04\x0a\x00\x10\x01", b"\x52\x03\x0a\x01\xff", b"\x52\x02\x10\x01"]
)
def test_source_metadata_that_is_not_just_a_name_is_given_back(field: bytes) -> None:
    payload = b"\x09" + struct.pack("<d", 5.0) + b"\x1a\x0dbrain.Event:2" + field
    event = TensorBoardDecoder().decode(payload)
    assert isinstance(event.content, FileVersion)
    assert TensorBoardEncoder().encode(event) == Encoded(payload)


def test_a_session_log_that_is_not_utf_8_is_given_back() -> None:
    payload = b"\x09" + struct.pack("<d", 5.0) + b"\x3a\x05\x08\x01\x1a\x01\xff"
    event = TensorBoardDecoder().decode(payload)
    assert event.content == SessionLog(SessionLog.START, "", "\N{REPLACEMENT CHARACTER}")
    assert TensorBoardEncoder().encode(event) == Encoded(payload)


@pytest.mark.parametrize(
    "content", [b"\xc2\x3e\xff", b"\xc2\x3e\x03\x0a\x01\xff", b"\xc2\x3e\x02\x0a\x09", b"\xff\xc2\x3e"]
)
def test_content_of_a_plugin_that_only_looks_like_ours_is_passed_over(content: bytes) -> None:
    value = tb_pb.Summary.Value(tag="loss", simple_value=1.5)
    value.metadata.plugin_data.plugin_name = "scalars"
    value.metadata.plugin_data.content = content
    assert decode_value(value) == TaggedValue("loss", Scalar.from_float32(1.5), False, value.SerializeToString())


# ---------------------------------------------------------------- writing what came from MindSpore


@given(strategies.BITS32, strategies.TAGS, strategies.WALL_TIMES, strategies.INT64)
def test_a_scalar_is_written_bit_for_bit(bits: bytes, tag: str, wall_time: float, step: int) -> None:
    encoder = TensorBoardEncoder()
    event = Event(wall_time, step, Summary((TaggedValue(tag, Scalar(bits)),)), "mindspore")
    expected = tb_pb.Event(wall_time=wall_time, step=step)
    expected.summary.value.add(tag=tag).simple_value = 1.0
    for _ in range(2):  # the second time the tag is known
        encoded = encoder.encode(event)
        assert encoded.losses == ()
        assert encoded.payload is not None
        one = encoded.payload.replace(b"\x15" + bits, b"\x15\0\0\x80\x3f")
        assert tb_pb.Event.FromString(one) == expected
    both = encode_values((tag, Scalar(bits)), (tag, Scalar(bits)), encoder=encoder)
    assert [tagged.value for tagged in decoded(both)] == [Scalar(bits)] * 2


@given(strategies.mindspore_histograms())
def test_edges_and_counts_are_written_exactly_and_the_rest_comes_back(histogram: Histogram) -> None:
    encoded = encode_values(("h", histogram))
    assert encoded.losses == ()
    first, *others = messages_of(encoded)
    rows = np.stack([histogram.left, histogram.right, histogram.count.astype(np.float64)], axis=1)
    assert rows_of(first).tobytes() == rows.tobytes()
    assert first.metadata.plugin_data.plugin_name == "histograms"
    assert first.metadata.data_class == tb_pb.DataClass.DATA_CLASS_TENSOR
    names = ("nan_count", "pos_inf_count", "neg_inf_count")
    counts = {name: getattr(histogram, name) for name in names if getattr(histogram, name)}
    assert {value.tag: value.simple_value for value in others} == {
        f"h/{name}": np.float32(count) for name, count in counts.items()
    }
    back, *derived = decoded(encoded)
    assert (back.tag, back.value) == ("h", histogram)
    assert back.value.count.dtype == np.int64  # type: ignore[union-attr]
    assert all(tagged.derived for tagged in derived)
    payload = MindSporeEncoder(fits=False).encode(TensorBoardDecoder().decode(encoded.payload or b"")).payload
    assert payload is not None
    (again,) = MindSporeDecoder().decode(payload).content.values  # type: ignore[union-attr]
    assert again.value == histogram


def test_what_is_not_finite_is_shown_as_scalars() -> None:
    encoded = encode_values(("h", make_histogram(nan_count=4, neg_inf_count=1)))
    assert [value.tag for value in messages_of(encoded)] == ["h", "h/nan_count", "h/neg_inf_count"]
    for value in messages_of(encoded)[1:]:
        assert value.metadata.plugin_data.plugin_name == "scalars"
        assert (_origin(value).tag, _origin(value).derived, _origin(value).kind) == ("h", True, "histogram")


def test_counts_that_float64_cannot_hold_are_a_loss() -> None:
    histogram = make_histogram(count=np.array([1, (1 << 53) + 1, (1 << 63) - 1], np.int64))
    encoded = encode_values(("h", histogram))
    assert encoded.losses == (LostValue("histogram", "h", "counts above 2**53 rounded to float64"),)
    assert isinstance(decoded(encoded)[0].value, Histogram)


def test_weights_come_back_as_they_are() -> None:
    histogram = make_histogram(count=np.array([0.5, math.nan, 1e300]))
    assert decoded(encode_values(("h", histogram)))[0].value == histogram


@pytest.mark.parametrize("total", [math.nan, math.inf, 2.5, 1e300])
def test_a_total_that_is_no_whole_number_does_not_stop_the_histogram(total: float) -> None:
    (tagged,) = decoded(encode_values(("h", make_histogram(total=total))))
    assert tagged.value == make_histogram(total=None)


def test_a_picture_is_not_touched() -> None:
    encoded = encode_values(("i", Image(4, 6, 3, (b"\x89PNG any bytes",))))
    (value,) = messages_of(encoded)
    assert value.image.encoded_image_string == b"\x89PNG any bytes"
    assert (value.image.height, value.image.width, value.image.colorspace) == (4, 6, 3)
    assert not value.HasField("metadata")
    assert encoded.losses == ()


def test_a_batch_of_pictures_is_written_one_by_one_and_said_to_be() -> None:
    encoded = encode_values(("i", Image(4, 6, 3, (b"one", b"two"))))
    assert [value.image.encoded_image_string for value in messages_of(encoded)] == [b"one", b"two"]
    assert encoded.losses == (LostValue("image", "i", "a batch of images written one by one"),)


@given(strategies.tensors())
def test_a_tensor_is_shown_as_a_table_and_a_histogram(tensor: Tensor) -> None:
    encoded = encode_values(("t", tensor))
    assert encoded.losses == (
        LostValue("tensor", "t", "shown as a table of statistics and a histogram of its elements"),
    )
    assert encoded.archive == Event(1.0, 2, Summary((TaggedValue("t", tensor),)), "mindspore")
    table, histogram = messages_of(encoded)
    assert (table.tag, histogram.tag) == ("t", "t/histogram")
    assert table.metadata.plugin_data.plugin_name == "text"
    (text,) = table.tensor.string_val
    assert f"| elements | {tensor.array.size} |".encode() in text
    assert f"| dtype | {tensor.dtype} |".encode() in text
    rows = rows_of(histogram)
    array = np.abs(tensor.array) if tensor.array.dtype.kind == "c" else tensor.array
    with np.errstate(invalid="ignore"):  # a signalling NaN
        assert rows[:, 2].sum() == np.isfinite(array.astype(np.complex128)).sum()
    assert all(_origin(value).derived and _origin(value).kind == "tensor" for value in (table, histogram))
    assert [(tagged.tag, tagged.derived) for tagged in decoded(encoded)] == [("t", True)] * 2
    back = MindSporeEncoder(fits=False).encode(TensorBoardDecoder().decode(encoded.payload or b""))
    assert back == Encoded(None)


def test_two_kinds_under_one_tag_get_names_of_their_own_and_come_back() -> None:
    encoder, decoder = TensorBoardEncoder(), TensorBoardDecoder()
    one, image, histogram = Scalar.from_float32(1.0), Image(1, 1, 3, (b"png",)), make_histogram()
    pairs: list[tuple[str, Value]] = [
        ("both", one),
        ("both", histogram),
        ("both/histogram", one),
        ("both", image),
        ("both/histogram", histogram),
    ]
    for _ in range(2):
        encoded = encode_values(*pairs, encoder=encoder)
        tags = [value.tag for value in messages_of(encoded)]
        assert tags == ["both", "both/histogram", "both/histogram/scalar", "both/image", "both/histogram/histogram"]
        assert encoded.losses == ()
        assert [(tagged.tag, tagged.value) for tagged in decoded(encoded, decoder)] == pairs
    assert encoder.names.renamed == [
        ("both", "histogram", "both/histogram"),
        ("both/histogram", "scalar", "both/histogram/scalar"),
        ("both", "image", "both/image"),
        ("both/histogram", "histogram", "both/histogram/histogram"),
    ]
    # A later session goes on with the names that were given.
    later = TensorBoardEncoder(TagNames(encoder.names.given))
    assert encode_values(*pairs, encoder=later) == encode_values(*pairs, encoder=encoder)
    assert encode_values(*pairs[::-1], encoder=later) == encode_values(*pairs[::-1], encoder=encoder)


def test_a_name_that_is_taken_gets_a_number() -> None:
    names = TagNames()
    assert [names.name(tag, "scalar") for tag in ("a", "a/image", "a/image_2")] == ["a", "a/image", "a/image_2"]
    assert names.name("a", "image") == "a/image_3"
    assert names.name("a", "image") == "a/image_3"
    assert names.name("a", "histogram", "nan_count") == "a/nan_count"


@given(strategies.event_lists(strategies.mindspore_events(strategies.FEW_TAGS)))
def test_no_name_ever_stands_for_two_kinds(events: list[Event]) -> None:
    encoder = TensorBoardEncoder()
    kinds: dict[str, set[str]] = {}
    for event in events:
        encoded = encoder.encode(event)
        if isinstance(event.content, Summary) and encoded.payload is not None:
            for value in messages_of(encoded):
                kind = value.metadata.plugin_data.plugin_name or value.WhichOneof("value")
                kinds.setdefault(value.tag, set()).add({"simple_value": "scalars", "image": "images"}.get(kind, kind))
    assert all(len(found) == 1 for found in kinds.values())


@given(strategies.BAD_TAGS, strategies.BITS32)
def test_a_tag_that_is_not_utf_8_is_reported_and_archived(tag: bytes, bits: bytes) -> None:
    payload = scalar_event(0x1D, tag, bits)
    event = MindSporeDecoder().decode(payload)
    encoded = TensorBoardEncoder().encode(event)
    assert encoded.payload is None
    (loss,) = encoded.losses
    assert (loss.kind, loss.reason) == ("scalar", "the tag is not UTF-8, which TensorBoard refuses")
    assert encoded.archive is not None
    assert MindSporeEncoder().encode(encoded.archive) == Encoded(payload)


def test_fields_nobody_knows_are_a_loss_and_the_archive_gives_them_back() -> None:
    value = strategies.join_field(1, 2, b"loss") + b"\x1d\0\0\x80\x3f" + b"\xa0\x1f\x01"
    known = strategies.join_field(1, 2, b"lr") + b"\x1d\0\0\x80\x3f"
    fields = strategies.join_field(1, 2, value) + strategies.join_field(1, 2, known)
    payload = b"\x09" + struct.pack("<d", 1.0) + b"\x10\x02" + strategies.join_field(5, 2, fields)
    encoded = TensorBoardEncoder().encode(MindSporeDecoder().decode(payload))
    assert [tagged.tag for tagged in decoded(encoded)] == ["loss", "lr"]
    assert encoded.losses == (LostValue("scalar", "loss", "holds fields that are not known to this version"),)
    assert encoded.archive is not None
    assert MindSporeEncoder().encode(encoded.archive).payload == payload


def test_a_field_nobody_knows_beside_the_summary_archives_the_whole_event() -> None:
    payload = scalar_event(0x1D, b"loss", b"\0\0\x80\x3f") + b"\xa0\x1f\x01"
    event = MindSporeDecoder().decode(payload)
    encoded = TensorBoardEncoder().encode(event)
    assert [tagged.value for tagged in decoded(encoded)] == [Scalar.from_float32(1.0)]
    assert encoded.losses == (LostValue("event", "", "holds fields that are not known to this version"),)
    assert encoded.archive is not None
    assert MindSporeEncoder().encode(encoded.archive) == Encoded(payload)


@given(strategies.scrambled_messages(strategies.mindspore_messages))
def test_whatever_mindspore_wrote_is_written_or_archived_exactly(payload: bytes) -> None:
    event = MindSporeDecoder().decode(payload)
    encoded = TensorBoardEncoder().encode(event)
    assert bool(encoded.losses) == (encoded.archive is not None)
    back = TensorBoardDecoder().decode(encoded.payload) if encoded.payload is not None else None
    if encoded.archive is None:
        assert back is not None
        assert MindSporeEncoder(fits=False).encode(without_originals(back)).losses == ()
        given_back = MindSporeEncoder(fits=False).encode(back).payload
    else:
        given_back = MindSporeEncoder().encode(encoded.archive).payload
    assert given_back is not None
    if encoded.archive is None or encoded.payload is None:
        if isinstance(event.content, FileVersion):
            return  # a version event is written anew
        assert reserialised(ms_pb.Event, given_back) == reserialised(ms_pb.Event, payload)


@pytest.mark.parametrize("kind", ["graph", "train_lineage"])
def test_an_event_of_another_kind_has_no_place(kind: str) -> None:
    event = Event(1.0, 0, Opaque(kind, b"payload"), "mindspore")
    encoded = TensorBoardEncoder().encode(event)
    assert encoded.payload is None
    assert [(loss.kind, loss.tag) for loss in encoded.losses] == [(kind, "")]
    assert encoded.archive == event


def test_a_value_with_no_place_is_named_and_the_others_are_written() -> None:
    encoded = encode_values(("x", Opaque("value field 12", b"")), ("loss", Scalar.from_float32(1.0)))
    assert [value.tag for value in messages_of(encoded)] == ["loss"]
    assert encoded.losses == (LostValue("value field 12", "x", "TensorBoard has no place for a value field 12"),)
    assert encoded.archive is not None
    assert encode_values(("x", Opaque("value field 12", b""))).payload is None


def test_a_double_is_rounded_and_said_to_be() -> None:
    encoded = encode_values(("loss", Scalar.from_float64(0.1)))
    assert encoded.losses == (LostValue("scalar", "loss", "float64 rounded to float32"),)
    assert messages_of(encoded)[0].simple_value == np.float32(0.1)


def test_the_version_is_that_of_the_target() -> None:
    event = Event(1.0, 0, FileVersion("MindSpore.Event:1", "ms_summary_bridge/convert"), "mindspore")
    payload = TensorBoardEncoder().encode(event).payload
    expected = tb_pb.Event(wall_time=1.0, file_version=FILE_VERSION)
    expected.source_metadata.writer = "ms_summary_bridge/convert"
    assert payload == expected.SerializeToString()


# ---------------------------------------------------------------- as TensorBoard itself reads


def check_against_tensorboard(path: Path) -> list[str]:
    """Compares our reading of a file, value by value, with TensorBoard's; returns the plugins met."""
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util.tensor_util import make_ndarray

    decoder = TensorBoardDecoder()
    payloads = read_records(path)
    ours = [decoder.decode(payload) for payload in payloads]
    origins = [_origin(value) for payload in payloads for value in tb_pb.Event.FromString(payload).summary.value]
    theirs = list(EventFileLoader(str(path)).Load())
    assert len(ours) == len(theirs)
    met = []
    for event, other in zip(ours, theirs, strict=True):
        assert (event.wall_time, event.step) == (other.wall_time, other.step)
        if isinstance(event.content, FileVersion):
            assert event.content.version == other.file_version
            continue
        assert isinstance(event.content, Summary)
        for tagged, value in zip(event.content.values, other.summary.value, strict=True):
            origin = origins[len(met)]
            assert tagged.tag == (origin.tag or value.tag)
            assert tagged.derived == origin.derived
            plugin = value.metadata.plugin_data.plugin_name
            met.append(plugin)
            found = tagged.value
            if plugin == "scalars":
                assert isinstance(found, Scalar)
                assert is_float32(found.bits, make_ndarray(value.tensor).item())
            elif plugin == "histograms":
                assert isinstance(found, Histogram)
                rows = np.stack([found.left, found.right, found.count], axis=1)
                expected = make_ndarray(value.tensor)
                if expected.dtype == np.float32:  # made of a legacy one, without the empty buckets at both ends
                    filled = np.flatnonzero(found.count)
                    rows = rows[filled[0] : filled[-1] + 1].astype(np.float32)
                assert np.array_equal(rows, expected)
            elif plugin == "images":
                width, height, *encoded = value.tensor.string_val
                assert isinstance(found, Image)
                assert found.encoded == tuple(encoded)
                assert (found.width, found.height) == (int(width), int(height))
            else:
                assert isinstance(found, Opaque)
                assert found.kind == plugin
                raw = tb_pb.Summary.Value.FromString(found.payload)
                assert list(raw.tensor.string_val) == list(value.tensor.string_val)
    return met


def _only_file(directory: Path) -> Path:
    (path,) = (path for path in directory.iterdir() if "tfevents" in path.name)
    return path


def _write_all_kinds(directory: Path) -> list[Path]:
    from tensorboardX import SummaryWriter

    rng = np.random.default_rng(0)
    writer = SummaryWriter(str(directory))
    for step in (0, 1, 2, -5, (1 << 63) - 1):
        writer.add_scalar("loss", 0.1 + step, step, walltime=1.7e9 + 0.25)
        writer.add_scalar("named", 1.5, step, display_name="a name", summary_description="said")
    for number in (math.nan, math.inf, -math.inf, -0.0, 1e-45):
        writer.add_scalar("odd", number, 3)
    writer.add_histogram("h", rng.normal(size=100), 1)
    writer.add_histogram("h", rng.normal(size=100), 2, bins="auto")
    writer.add_histogram("constant", np.ones(7), 1)
    writer.add_histogram_raw("raw", 0.0, 3.0, 6, 9.0, 20.0, [1.0, 2.0, 3.0], [1, 2, 3], 1)
    writer.add_image("image", rng.integers(0, 255, (3, 4, 6), dtype=np.uint8), 1)
    writer.add_images("images", rng.integers(0, 255, (2, 3, 4, 6), dtype=np.uint8), 1)
    writer.add_text("text", "a **text**, 文", 1)
    curve = np.linspace(0, 1, 5)
    writer.add_pr_curve_raw("pr", curve, curve, curve, curve, curve, curve, 1, num_thresholds=5)
    writer.add_mesh("mesh", np.zeros((1, 3, 3), np.float32), faces=np.array([[[0, 1, 2]]]), global_step=1)
    writer.add_hparams({"lr": 0.1, "name": "adam", "on": True}, {"accuracy": 0.5}, name="child")
    writer.close()
    return [_only_file(directory), _only_file(directory / "child")]


@pytest.mark.tensorboard
def test_a_file_of_tensorboardx_is_read_as_tensorboard_reads_it(tmp_path: Path) -> None:
    first, child = _write_all_kinds(tmp_path)
    met = check_against_tensorboard(first)
    assert set(met) == {"scalars", "histograms", "images", "text", "pr_curves", "mesh"}
    assert set(check_against_tensorboard(child)) == {"hparams", "scalars"}
    check_against_tensorboard(DATA / "tensorboardx-2.6.5.bin")


@pytest.mark.tensorboard
def test_a_file_of_tensorboards_own_writer_is_read_as_tensorboard_reads_it(tmp_path: Path) -> None:
    from tensorboard.summary import Writer

    writer = Writer(str(tmp_path))
    for step in (0, 1, 2):
        writer.add_scalar("loss", 0.1 + step, step, wall_time=1.7e9, description="said")
        writer.add_scalar("odd", math.nan, step)
    writer.flush()
    writer.close()
    met = check_against_tensorboard(_only_file(tmp_path))
    assert met == ["scalars"] * 6


@pytest.mark.tensorboard
def test_what_is_written_is_read_by_tensorboard_with_the_same_numbers(tmp_path: Path) -> None:
    from ms_summary_bridge.files.records import encode_record

    encoder = TensorBoardEncoder()
    version = encoder.encode(Event(1.7e9, 0, FileVersion(FILE_VERSION, "somebody"))).payload
    summary = encode_values(
        ("loss", Scalar.from_float32(0.1)),
        ("loss", make_histogram(nan_count=3)),
        ("image", Image(4, 6, 3, (b"png",))),
        ("h", make_histogram()),
        encoder=encoder,
    ).payload
    assert version is not None
    assert summary is not None
    path = tmp_path / "events.out.tfevents.1700000000.host"
    path.write_bytes(encode_record(version) + encode_record(summary))
    met = check_against_tensorboard(path)
    assert met == ["scalars", "histograms", "scalars", "images", "histograms"]


def test_a_file_of_tensorboardx_is_encoded_back_byte_by_byte(tmp_path: Path) -> None:
    for path in _write_all_kinds(tmp_path):
        decoder, encoder = TensorBoardDecoder(), TensorBoardEncoder()
        for payload in read_records(path):
            assert encoder.encode(decoder.decode(payload)) == Encoded(payload)
