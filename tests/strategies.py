"""Hypothesis strategies: values, tags, events of both formats, and messages written in every way protobuf allows."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from google.protobuf.internal import api_implementation
from hypothesis import strategies as st

from ms_summary_bridge.events import Event, FileVersion, SessionLog, Summary, TaggedValue
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor, Value

KEEPS_NAN_PAYLOAD = api_implementation.Type() != "python"
"""protobuf in pure Python makes every NaN the same; it cannot be asked about the bits of one."""

INT64 = st.one_of(
    st.sampled_from([0, 1, -1, 127, 128, 16383, 16384, (1 << 31) - 1, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)]),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
SMALL_COUNT = st.one_of(st.integers(0, 200), st.integers(0, 1 << 53))

_SPECIAL32 = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 0x7FA00000, 1, 0x80000001, 0x7F7FFFFF]
_SPECIAL64 = [
    0,
    1 << 63,
    0x7FF << 52,
    0xFFF << 52,
    0x7FF8 << 48,
    (0xFFF8 << 48) + 1,
    0x7FF4 << 48,
    1,
    (0x7FF << 52) - 1,
]
BITS32 = st.one_of(st.sampled_from(_SPECIAL32), st.integers(0, (1 << 32) - 1)).map(lambda n: n.to_bytes(4, "little"))
BITS64 = st.one_of(st.sampled_from(_SPECIAL64), st.integers(0, (1 << 64) - 1)).map(lambda n: n.to_bytes(8, "little"))
FLOATS64 = BITS64.map(lambda bits: struct.unpack("<d", bits)[0])
"""Every float64, NaN with all its payloads."""
# Without -0.0, which protobuf in pure Python takes for the default of a proto3 field.
WALL_TIMES = st.one_of(st.floats(1e9, 2e9), st.floats(allow_nan=False, allow_infinity=False)).map(lambda t: t + 0.0)


def is_kept_by_protobuf(bits: bytes) -> bool:
    """Whether protobuf, as it runs here, gives a number back with the same bits."""
    if KEEPS_NAN_PAYLOAD:
        return True
    number = struct.unpack("<f" if len(bits) == 4 else "<d", bits)[0]
    return not math.isnan(number)


ORACLE_FLOATS64 = BITS64.filter(is_kept_by_protobuf).map(lambda bits: struct.unpack("<d", bits)[0])

# ---------------------------------------------------------------- tags

_TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
TAGS = st.one_of(
    st.sampled_from(["loss", "loss/auto", "", " ", "a\0b", "损失", "a/b/../c", "\U0001f600", "x" * 400, "/", "tag\n"]),
    _TEXT,
)
FEW_TAGS = st.sampled_from(["loss", "lr", "loss/histogram", "loss/scalar", "loss/image", "损失"])
"""Tags that meet each other, and the names that are given to those that clash."""
BAD_TAGS = st.binary(min_size=1, max_size=8).filter(lambda b: not _is_utf8(b))


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# ---------------------------------------------------------------- values


def scalars32(bits: st.SearchStrategy[bytes] = BITS32) -> st.SearchStrategy[Scalar]:
    return bits.map(Scalar)


def scalars() -> st.SearchStrategy[Scalar]:
    return st.one_of(BITS32, BITS64).map(Scalar)


@st.composite
def mindspore_histograms(draw: st.DrawFn, floats: st.SearchStrategy[float] = FLOATS64) -> Histogram:
    """Histograms as a MindSpore file holds them: edges and widths of any kind, all statistics."""
    size = draw(st.integers(0, 6))
    regular = draw(st.booleans())
    if regular:
        width = draw(st.sampled_from([0.0, 0.1, 1.0, 1e300, math.inf]))
        left = np.array([index * width if math.isfinite(width) else -width for index in range(size)])
        widths = np.full(size, width)
    else:
        left = np.array(draw(st.lists(floats, min_size=size, max_size=size)), np.float64)
        widths = np.array(draw(st.lists(floats, min_size=size, max_size=size)), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        right = left + widths
    return Histogram(
        left=left,
        right=right,
        width=widths,
        count=np.array(draw(st.lists(SMALL_COUNT, min_size=size, max_size=size)), np.int64),
        min=draw(floats),
        max=draw(floats),
        sum=draw(floats),
        total=draw(INT64),
        nan_count=draw(SMALL_COUNT),
        pos_inf_count=draw(SMALL_COUNT),
        neg_inf_count=draw(SMALL_COUNT),
    )


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    """Histograms as a TensorBoard file or a caller in memory has them: weights, and few statistics or none."""
    size = draw(st.integers(0, 6))
    column = st.lists(FLOATS64, min_size=size, max_size=size)
    optional = st.none() | FLOATS64
    return Histogram(
        left=np.array(draw(column), np.float64),
        right=np.array(draw(column), np.float64),
        count=np.array(draw(column), np.float64),
        min=draw(optional),
        max=draw(optional),
        sum=draw(optional),
        sum_squares=draw(optional),
        total=draw(st.none() | FLOATS64 | INT64),
    )


@st.composite
def images(draw: st.DrawFn, batch: int = 1) -> Image:
    size = st.integers(0, (1 << 31) - 1)
    count = draw(st.integers(0, batch)) if batch > 1 else 1
    encoded = draw(st.lists(st.binary(max_size=40), min_size=count, max_size=count))
    return Image(draw(size), draw(size), draw(st.integers(0, 6)), tuple(encoded))


DTYPES = ["?", "i1", "<i2", "<i4", "<i8", "u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"]


@st.composite
def arrays(draw: st.DrawFn, dtypes: list[str], max_size: int = 24) -> npt.NDArray[Any]:
    """Arrays of 0 to 5 dimensions, some of size 0, with any bits in them."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(st.lists(st.integers(0, 4), max_size=5).filter(lambda dims: math.prod(dims) <= max_size))
    count = math.prod(shape)
    data = draw(st.binary(min_size=count * dtype.itemsize, max_size=count * dtype.itemsize))
    if dtype.kind == "b":
        data = bytes(byte & 1 for byte in data)
    return np.frombuffer(data, dtype).reshape(shape).copy()


MINDSPORE_DTYPES = ["float32", "float64", "int64", "bool", "bfloat16", "float16", "uint8", "complex64", "int4"]


@st.composite
def mindspore_tensors(draw: st.DrawFn) -> Tensor:
    """Tensors as MindSpore stores them: float32 elements, whatever dtype is declared."""
    return Tensor(draw(arrays(["<f4"])), draw(st.sampled_from(MINDSPORE_DTYPES)))


def tensors() -> st.SearchStrategy[Tensor]:
    return arrays(DTYPES).map(lambda array: Tensor(array, array.dtype.name))


def values() -> st.SearchStrategy[Value]:
    """Every kind of value, as anybody may build it in memory."""
    opaque = st.builds(Opaque, st.sampled_from(["text", "audio", "landscape"]), st.binary(max_size=20), st.just(""))
    return st.one_of(scalars(), histograms(), mindspore_histograms(), images(batch=3), tensors(), opaque)


def mindspore_values() -> st.SearchStrategy[Value]:
    """Values that a MindSpore file holds exactly."""
    return st.one_of(scalars32(), mindspore_histograms(), images(), mindspore_tensors())


def tensorboard_values() -> st.SearchStrategy[Value]:
    """Values that a TensorBoard file of ours holds exactly."""
    return st.one_of(scalars32(), mindspore_histograms(), images())


# ---------------------------------------------------------------- events


def summaries(
    inner: st.SearchStrategy[Value], tags: st.SearchStrategy[str] = TAGS, max_size: int = 4
) -> st.SearchStrategy[Summary]:
    tagged = st.builds(TaggedValue, tags, inner)
    return st.lists(tagged, max_size=max_size).map(lambda list_of: Summary(tuple(list_of)))


def mindspore_events(tags: st.SearchStrategy[str] = TAGS) -> st.SearchStrategy[Event]:
    """Events that a MindSpore file holds exactly."""
    form = st.just(mindspore.FORMAT)
    version = st.builds(FileVersion, _TEXT)
    return st.one_of(
        st.builds(Event, WALL_TIMES, INT64, summaries(mindspore_values(), tags), form),
        st.builds(Event, WALL_TIMES, st.just(0), version, form),
    )


def tensorboard_events(tags: st.SearchStrategy[str] = TAGS) -> st.SearchStrategy[Event]:
    """Events that a TensorBoard file of ours holds exactly."""
    contents = st.one_of(
        summaries(tensorboard_values(), tags),
        st.builds(FileVersion, _TEXT, _TEXT),
        st.builds(SessionLog, st.integers(0, 3), _TEXT, _TEXT),
    )
    return st.builds(Event, WALL_TIMES, INT64, contents, st.just(tensorboard.FORMAT))


def events(tags: st.SearchStrategy[str] = TAGS) -> st.SearchStrategy[Event]:
    """Events of any content, from either format or from memory; none carries an original."""
    contents = st.one_of(
        summaries(values(), tags),
        st.builds(FileVersion, _TEXT, _TEXT),
        st.builds(SessionLog, st.integers(0, 3), _TEXT, _TEXT),
    )
    return st.builds(Event, WALL_TIMES, INT64, contents)


def event_lists(inner: st.SearchStrategy[Event], max_size: int = 6) -> st.SearchStrategy[list[Event]]:
    return st.lists(inner, max_size=max_size)


# ---------------------------------------------------------------- messages of the classes in formats.protos


@st.composite
def mindspore_messages(draw: st.DrawFn) -> Any:
    """`ms_pb.Event` with optional fields set or not."""
    event = ms_pb.Event(wall_time=draw(WALL_TIMES))
    if draw(st.booleans()):
        event.step = draw(INT64)
    what = draw(st.sampled_from(["summary", "summary", "summary", "version", "graph_def", "none"]))
    if what == "version":
        event.version = draw(_TEXT)
    elif what == "graph_def":
        event.graph_def.name = draw(_TEXT)
    elif what == "summary":
        event.summary.SetInParent()
        for _ in range(draw(st.integers(0, 3))):
            _fill_mindspore_value(draw, event.summary.value.add(tag=draw(TAGS)))
    return event


def _fill_mindspore_value(draw: st.DrawFn, value: Any) -> None:
    kind = draw(st.sampled_from(["scalar_value", "image", "tensor", "histogram", "loss_landscape", "none"]))
    if kind == "scalar_value":
        value.MergeFromString(b"\x1d" + draw(BITS32))
    elif kind == "image":
        size = st.integers(-(1 << 31), (1 << 31) - 1)
        value.image.height, value.image.width, value.image.colorspace = draw(size), draw(size), draw(size)
        value.image.encoded_image = draw(st.binary(max_size=20))
    elif kind == "tensor":
        array = draw(arrays(["<f4", "<f4", "<i4", "<i8", "<f8", "<u8"], 6))
        value.tensor.dims.extend(array.shape)
        name = {"f4": "float", "i4": "int32", "i8": "int64", "f8": "double", "u8": "uint64"}[array.dtype.str[1:]]
        getattr(value.tensor, f"{name}_data").extend(array.ravel().tolist())
        if draw(st.booleans()):
            value.tensor.data_type = draw(st.sampled_from(list(ms_pb.DataType.values())))
    elif kind == "histogram":
        histogram = value.histogram
        histogram.SetInParent()
        for _ in range(draw(st.integers(0, 3))):
            histogram.buckets.add(left=draw(FLOATS64), width=draw(FLOATS64), count=draw(INT64))
        for name in ("nan_count", "pos_inf_count", "neg_inf_count", "count"):
            if draw(st.booleans()):
                setattr(histogram, name, draw(INT64))
        for name in ("max", "min", "sum"):
            if draw(st.booleans()):
                setattr(histogram, name, draw(FLOATS64))
    elif kind == "loss_landscape":
        value.loss_landscape.SetInParent()


@st.composite
def tensorboard_messages(draw: st.DrawFn) -> Any:
    """`tb_pb.Event` of every content."""
    event = tb_pb.Event(wall_time=draw(WALL_TIMES), step=draw(INT64))
    kinds = ["summary"] * 5 + ["file_version", "graph_def", "session_log", "log_message", "meta_graph_def", "none"]
    what = draw(st.sampled_from(kinds))
    if what == "file_version":
        event.file_version = draw(_TEXT)
    elif what in ("graph_def", "meta_graph_def"):
        setattr(event, what, draw(st.binary(max_size=10)))
    elif what == "session_log":
        event.session_log.status = draw(st.integers(0, 3))
        event.session_log.msg = draw(_TEXT)
    elif what == "log_message":
        event.log_message.message = draw(_TEXT)
    elif what == "summary":
        event.summary.SetInParent()
        for _ in range(draw(st.integers(0, 3))):
            _fill_tensorboard_value(draw, event.summary.value.add(tag=draw(TAGS)))
    if draw(st.integers(0, 3)) == 0:
        event.source_metadata.writer = draw(_TEXT)
    return event


_TYPED_LISTS = {
    "DT_FLOAT": ("float_val", "<f4"),
    "DT_DOUBLE": ("double_val", "<f8"),
    "DT_INT32": ("int_val", "<i4"),
    "DT_UINT8": ("int_val", "u1"),
    "DT_INT64": ("int64_val", "<i8"),
    "DT_BOOL": ("bool_val", "?"),
    "DT_UINT32": ("uint32_val", "<u4"),
    "DT_UINT64": ("uint64_val", "<u8"),
}


def _fill_tensorboard_value(draw: st.DrawFn, value: Any) -> None:
    kind = draw(st.sampled_from(["simple_value", "image", "histo", "tensor", "tensor", "strings", "audio", "none"]))
    if kind == "simple_value":
        value.MergeFromString(b"\x15" + draw(BITS32))
    elif kind == "image":
        size = st.integers(0, (1 << 31) - 1)
        value.image.height, value.image.width, value.image.colorspace = draw(size), draw(size), draw(size)
        value.image.encoded_image_string = draw(st.binary(max_size=20))
    elif kind == "histo":
        size = draw(st.integers(0, 3))
        value.histo.min, value.histo.max = draw(FLOATS64), draw(FLOATS64)
        value.histo.bucket_limit.extend(draw(st.lists(FLOATS64, min_size=size, max_size=size)))
        value.histo.bucket.extend(draw(st.lists(FLOATS64, min_size=size, max_size=size)))
    elif kind == "tensor":
        name = draw(st.sampled_from(list(_TYPED_LISTS)))
        field, dtype = _TYPED_LISTS[name]
        array = draw(arrays([dtype], 6))
        value.tensor.dtype = tb_pb.DataType.Value(name)
        for size in array.shape:
            value.tensor.tensor_shape.dim.add(size=size)
        if draw(st.booleans()):
            value.tensor.tensor_content = array.tobytes()
        else:
            getattr(value.tensor, field).extend(array.ravel().tolist())
    elif kind == "strings":
        value.tensor.dtype = tb_pb.DataType.DT_STRING
        value.tensor.string_val.extend(draw(st.lists(st.binary(max_size=5), max_size=4)))
    elif kind == "audio":
        value.audio.encoded_audio_string = draw(st.binary(max_size=5))
    if draw(st.booleans()):
        plugins = ["scalars", "histograms", "images", "text", "hparams", "no_such_plugin", ""]
        value.metadata.plugin_data.plugin_name = draw(st.sampled_from(plugins))
        value.metadata.plugin_data.content = draw(st.binary(max_size=5))


# ---------------------------------------------------------------- the same message, written in another way

_WIDTH = {1: 8, 5: 4}


def wire_varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _take_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 127) << shift
        position += 1
        shift += 7
        if byte < 128:
            return value, position


def split_fields(data: bytes) -> list[tuple[int, int, bytes]]:
    """Returns `(number, wire type, content)` for each field of a well-formed message."""
    found = []
    position = 0
    while position < len(data):
        key, position = _take_varint(data, position)
        start = position
        if key & 7 == 0:
            _, position = _take_varint(data, position)
        elif key & 7 == 2:
            size, start = _take_varint(data, position)
            position = start + size
        else:
            position += _WIDTH[key & 7]
        found.append((key >> 3, key & 7, data[start:position]))
    return found


def join_field(number: int, wire_type: int, content: bytes) -> bytes:
    key = wire_varint(number << 3 | wire_type)
    return key + (wire_varint(len(content)) if wire_type == 2 else b"") + content


UNKNOWN_FIELDS = st.one_of(
    st.tuples(st.integers(2000, 3000), st.just(0), st.integers(0, (1 << 64) - 1).map(wire_varint)),
    st.tuples(st.integers(2000, 3000), st.just(1), st.binary(min_size=8, max_size=8)),
    st.tuples(st.integers(2000, 3000), st.just(2), st.binary(max_size=6)),
    st.tuples(st.integers(2000, 3000), st.just(5), st.binary(min_size=4, max_size=4)),
)


@st.composite
def scrambled(draw: st.DrawFn, data: bytes, descriptor: Any, may_be_unknown: bool = True) -> bytes:
    """Writes a message in another way: fields in any order, lists packed or not, stale copies of a field in front of
    it, defaults written out, and fields nobody knows."""
    groups: dict[object, list[bytes]] = {}
    fields = split_fields(data)
    for number, wire_type, content in fields:
        field = descriptor.fields_by_number[number]
        group = groups.setdefault(field.containing_oneof.name if field.containing_oneof else number, [])
        group.extend(_written(draw, field, wire_type, content, may_be_unknown))
    if not may_be_unknown:
        return b"".join(part for number in sorted(groups, key=str) for part in groups[number])
    present = {number for number, _, _ in fields}
    for number, field in descriptor.fields_by_number.items():
        is_plain = not field.has_presence and not _is_repeated(field) and field.message_type is None
        if is_plain and number not in present and draw(st.integers(0, 4)) == 0:
            groups[number] = [join_field(number, *_default(field))]
    for index in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        groups["unknown", index] = [join_field(*draw(UNKNOWN_FIELDS))]
    order = draw(st.permutations([key for key, parts in groups.items() for _ in parts]))
    return b"".join(groups[key].pop(0) for key in order)


def _is_repeated(field: Any) -> bool:
    is_repeated = getattr(field, "is_repeated", None)  # protobuf 3.20 has the label only, 7 no label any more
    return field.label == field.LABEL_REPEATED if is_repeated is None else bool(is_repeated)


def _default(field: Any) -> tuple[int, bytes]:
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
        return 2, b""
    if field.type == field.TYPE_DOUBLE:
        return 1, bytes(8)
    return (5, bytes(4)) if field.type == field.TYPE_FLOAT else (0, b"\0")


def _written(draw: st.DrawFn, field: Any, wire_type: int, content: bytes, may_be_unknown: bool) -> list[bytes]:
    number = field.number
    if field.message_type is not None:
        if field.full_name.endswith(".Event.summary") and content and draw(st.integers(0, 3)) == 0:
            parts = [join_field(*part) for part in split_fields(content)]  # in two: protobuf puts them together
            cut = draw(st.integers(0, len(parts)))
            return [join_field(number, 2, b"".join(part)) for part in (parts[:cut], parts[cut:])]
        return [join_field(number, 2, draw(scrambled(content, field.message_type, may_be_unknown)))]
    if _is_repeated(field) and wire_type == 2 and field.type not in (field.TYPE_STRING, field.TYPE_BYTES):
        inner = _default(field)[0]
        items = _unpacked(content, inner)
        way = draw(st.sampled_from(["packed", "unpacked", "both"]))
        cut = {"packed": len(items), "unpacked": 0, "both": len(items) // 2}[way]
        packed = [join_field(number, 2, b"".join(items[:cut]))] if cut or not items else []
        return packed + [join_field(number, inner, item) for item in items[cut:]]
    written = [join_field(number, wire_type, content)]
    if not _is_repeated(field) and draw(st.integers(0, 6)) == 0:
        written.insert(0, join_field(number, *_default(field)))  # stale: the last one counts
    return written


def _unpacked(content: bytes, wire_type: int) -> list[bytes]:
    if wire_type != 0:
        width = _WIDTH[wire_type]
        return [content[start : start + width] for start in range(0, len(content), width)]
    items = []
    position = 0
    while position < len(content):
        _, end = _take_varint(content, position)
        items.append(content[position:end])
        position = end
    return items


@st.composite
def scrambled_messages(draw: st.DrawFn, messages: Callable[[], st.SearchStrategy[Any]]) -> bytes:
    message = draw(messages())
    return draw(scrambled(message.SerializeToString(deterministic=True), message.DESCRIPTOR))


@st.composite
def damaged(draw: st.DrawFn, payloads: st.SearchStrategy[bytes]) -> bytes:
    """A payload with bytes changed, cut out or put in."""
    data = bytearray(draw(payloads))
    for _ in range(draw(st.integers(1, 3))):
        position = draw(st.integers(0, len(data)))
        way = draw(st.sampled_from(["change", "insert", "cut", "end"]))
        if way == "change" and position < len(data):
            data[position] = draw(st.integers(0, 255))
        elif way == "insert":
            data[position:position] = draw(st.binary(min_size=1, max_size=4))
        elif way == "cut":
            del data[position : position + draw(st.integers(1, 4))]
        elif way == "end":
            del data[position:]
    return bytes(data)
