"""Targets: payloads of records, and the values in them."""

from __future__ import annotations

import contextlib
import importlib.util
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ms_summary_bridge.errors import EventDecodeError, InvalidValueError
from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import Record
from ms_summary_bridge.formats import _histogram, tensor, wire
from ms_summary_bridge.formats.landscapes.drawing import decode_landscape
from ms_summary_bridge.formats.mindspore import MindSporeDecoder, MindSporeEncoder
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tensorboard import TensorBoardDecoder, TensorBoardEncoder
from ms_summary_bridge.values import Histogram, Scalar, Tensor
from tests.mindspore_run import event as event_of
from tests.mindspore_run import histogram, image, scalar
from tests.mindspore_run import tensor as tensor_of
from tools.fuzzing import agreement
from tools.fuzzing.measure import proof
from tools.fuzzing.mending import mend_histogram, mend_tensor
from tools.fuzzing.target import Drawer, Target

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
_MALFORMED = (EventDecodeError, InvalidValueError)


def payloads(case: str) -> list[bytes]:
    """Returns the payloads of a golden file."""
    pieces = RecordDecoder().feed((DATA / f"{case}.bin").read_bytes())
    return [piece.payload for piece in pieces if isinstance(piece, Record)]


def _reserialised(cls: object, payload: bytes) -> bytes | None:
    try:
        return cls.FromString(payload).SerializeToString(deterministic=True)  # type: ignore[attr-defined,no-any-return]
    except Exception:  # protobuf's own errors: they have no class in common over its versions
        return None


# ---------------------------------------------------------------- both decoders


def take_mindspore(payload: bytes) -> None:
    """A payload of MindSpore's: as it is, and for TensorBoard."""
    event = MindSporeDecoder().decode(payload)
    assert math.isfinite(event.wall_time)
    back = MindSporeEncoder().encode(event)
    assert back.payload is not None
    assert not back.losses, "a loss in its own format"
    expected = _reserialised(ms_pb.Event, payload)
    if expected is not None:
        assert _reserialised(ms_pb.Event, back.payload) == expected, "encoded back to another message"
        agreement.check_mindspore(back.payload)
    made = TensorBoardEncoder().encode(event)
    assert made.payload is not None or made.losses, "nothing is written, and nothing is lost"
    assert not made.losses or made.archive is not None, "a loss that no archive holds"
    if made.payload is not None:
        with proof(len(made.payload)):
            agreement.check_tensorboard(made.payload)
            _check_way_back(event, TensorBoardDecoder().decode(made.payload), lossy=bool(made.losses))


def _check_way_back(event: Event, again: Event, *, lossy: bool) -> None:
    """What TensorBoard's form of an event without losses says is what the event said."""
    if lossy or not isinstance(event.content, Summary) or not isinstance(again.content, Summary):
        return
    assert again.step == event.step
    shown = [tagged for tagged in again.content.values if not tagged.derived]
    assert [tagged.tag for tagged in shown] == [tagged.tag for tagged in event.content.values], "other tags"
    for one, two in zip(event.content.values, shown, strict=True):
        if isinstance(one.value, (Scalar, Histogram)):
            assert one.value.fingerprint() == two.value.fingerprint(), f"another value of {one.tag!r}"


def take_tensorboard(payload: bytes) -> None:
    """A payload of TensorBoard's: as it is, and for MindInsight."""
    event = TensorBoardDecoder().decode(payload)
    assert math.isfinite(event.wall_time)
    back = TensorBoardEncoder().encode(event)
    assert back.payload is not None
    assert not back.losses, "a loss in its own format"
    expected = _reserialised(tb_pb.Event, payload)
    if expected is not None and event.format == "tensorboard":
        assert _reserialised(tb_pb.Event, back.payload) == expected, "encoded back to another message"
    made = MindSporeEncoder().encode(event)
    assert not made.losses or made.archive is not None or event.derived, "a loss that no archive holds"
    if made.payload is not None:
        agreement.check_mindspore(made.payload)
        again = MindSporeDecoder().decode(made.payload)
        assert again.step == event.step or isinstance(event.content, FileVersion), "another step"


def _mindspore_seeds() -> Iterable[bytes]:
    yield from (payload for payload in payloads("mindspore-2.10-summary") if len(payload) < 6000)
    yield from payloads("mindspore-2.10-landscape")[:1]
    for event in _events():
        made = MindSporeEncoder().encode(event).payload
        assert made is not None
        yield made
    for dtype in (0, 1, 11, 12, 43, 46):
        message = ms_pb.Event(wall_time=1.0, step=3)
        value = message.summary.value.add(tag="t")
        value.tensor.dims.extend((2, 3))
        value.tensor.data_type = dtype
        value.tensor.float_data.extend(range(6))
        yield message.SerializeToString()


def _events() -> list[Event]:
    """Events with a value of each kind, alone and together."""
    kinds = [scalar(0.5), histogram([1, 0, 7], nan=3), image(), tensor_of([1, 2.5, -3])]
    together = [(f"tag{number}", kind) for number, kind in enumerate(kinds)]
    return [
        *(event_of(1, ("tag", kind)) for kind in kinds),
        event_of(2, *together),
        event_of(3, ("t", kinds[0]), ("t", kinds[1])),
    ]


def _tensorboard_seeds() -> Iterable[bytes]:
    yield from payloads("tensorboardx-2.6.5")
    for item in _events():
        made = TensorBoardEncoder().encode(item).payload
        assert made is not None
        yield made
    for number in (1, 2, 3, 7, 8, 9, 10, 14, 18, 19, 22, 23):
        message = tb_pb.Event(wall_time=1.0, step=3)
        value = message.summary.value.add(tag="t")
        value.tensor.dtype = number
        for size in (2, 3):
            value.tensor.tensor_shape.dim.add(size=size)
        for name in ("float_val", "double_val", "int_val", "int64_val", "bool_val", "half_val", "uint64_val"):
            getattr(value.tensor, name).extend([1, 0, 1])
        value.tensor.scomplex_val.extend([1.0, 2.0])
        value.tensor.string_val.append(b"text")
        value.metadata.plugin_data.plugin_name = "images" if number == 7 else "scalars" if number == 2 else ""
        yield message.SerializeToString()


# ---------------------------------------------------------------- wire


def take_wire(data: bytes) -> None:
    """Any bytes as a message: the fields tile it, and written again they are read as the same."""
    at = 0
    parts = bytearray()
    for key, a, b in wire.fields(data, 0, len(data)):
        assert key >= 8
        end = b
        assert at < end <= len(data), "fields overlap"
        at = end
        kind = key & 7
        content = wire.varint(a) if kind == wire.VARINT else data[a:b]
        parts += wire.varint(key) + (wire.varint(b - a) if kind == wire.LENGTH_DELIMITED else b"") + content
    assert at == len(data), "a message that is read, and not to its end"
    again = bytes(parts)
    fields = zip(wire.fields(data, 0, len(data)), wire.fields(again, 0, len(again)), strict=True)
    for (key, a, b), (key2, c, d) in fields:
        assert key == key2, "another key"
        assert (a == c) if key & 7 == wire.VARINT else data[a:b] == again[c:d], "another content"
    last = wire.last_fields(data)
    for key, value in list(last.items())[:9]:
        assert key & 7 == wire.VARINT or wire.all_fields(data, key)[-1] == value
    with contextlib.suppress(UnicodeDecodeError):  # as it says
        wire.read_entry(data)


# ---------------------------------------------------------------- histograms and tensors


def take_histogram(data: bytes) -> None:
    """A histogram from bytes, in each of the three writings, or of any numbers, through all that is done with one."""
    drawer = Drawer(data)
    way = drawer.below(4)
    if way == 0:
        histogram, is_exact = _histogram.decode_mindspore_histogram(drawer.rest(), 0, len(drawer.rest()))
        again, loss = _histogram.encode_mindspore_histogram(histogram)
        if is_exact:
            assert not loss
            inner = next(iter(wire.all_fields(again, 0x4A)))
            assert _reserialised(ms_pb.Summary.Histogram, inner) == _reserialised(
                ms_pb.Summary.Histogram, drawer.rest()
            ), "exact, and encoded to another message"
    elif way == 1:
        histogram = _histogram.decode_legacy_histogram(drawer.rest(), 0, len(drawer.rest()))
    elif way == 2:
        size = drawer.below(9)
        rows = np.frombuffer(drawer.take(24 * size), "<f8").reshape(size, 3)
        histogram = _histogram.decode_tensorboard_histogram(rows, drawer.rest())
    else:
        size = drawer.below(9)
        columns = [np.frombuffer(drawer.take(8 * size), "<f8").copy() for _ in range(3)]
        numbers = [drawer.perhaps() for _ in range(5)]
        histogram = Histogram(
            left=columns[0], right=columns[1], count=columns[2],
            min=numbers[0], max=numbers[1], sum=numbers[2], sum_squares=numbers[3], total=numbers[4],
            nan_count=drawer.below(300), pos_inf_count=drawer.below(3), neg_inf_count=drawer.below(3),
        )  # fmt: skip
    _histogram.encode_mindspore_histogram(histogram)
    rows = _histogram.encode_tensorboard_histogram(histogram)
    extras = _histogram.encode_histogram_extras(histogram)
    again = _histogram.decode_tensorboard_histogram(rows, extras)
    assert again.left.tobytes() == histogram.left.tobytes(), "another left edge"
    assert again.right.tobytes() == histogram.right.tobytes(), "another right edge"
    _encode_everywhere(TaggedValue("h", histogram))


def _histogram_seeds() -> Iterable[bytes]:
    message = ms_pb.Summary.Histogram(max=2.0, min=0.0, sum=3.5, count=5, nan_count=1, pos_inf_count=0, neg_inf_count=0)
    for left in range(3):
        message.buckets.add(left=left, width=1.0, count=left)
    yield b"\0" + message.SerializeToString()
    legacy = tb_pb.HistogramProto(min=0.0, max=3.0, num=6.0, sum=9.0, sum_squares=14.0)
    legacy.bucket_limit.extend((1.0, 2.0, 3.0))
    legacy.bucket.extend((1.0, 2.0, 3.0))
    yield b"\1" + legacy.SerializeToString()
    rows = np.array([[0, 1, 2], [1, 2, 3], [2, 3, 1e300]], "<f8").tobytes()
    yield b"\2\3" + rows + b"\x09" + bytes(8) + b"\x20\x05\x28\x01"
    yield b"\3\3" + rows + bytes(range(64))


def take_tensor(data: bytes) -> None:
    """A tensor from bytes, in either writing, and what is shown of it."""
    rest = data[1:]
    if data[:1] < b"\x80":
        found, is_exact = tensor.decode_mindspore_tensor(rest, 0, len(rest))
        if is_exact:
            again, loss = tensor.encode_mindspore_tensor(found)
            assert not loss
            inner = wire.all_fields(again, 0x42)[0]
            assert _reserialised(ms_pb.TensorProto, inner) == _reserialised(ms_pb.TensorProto, rest), "another message"
    else:
        array = tensor.decode_tensorboard_tensor(rest, 0, len(rest))
        if isinstance(array, list):
            return
        _check_as_tensorboard_reads(rest, array)
        found = Tensor(array, array.dtype.name)
    tensor.statistics_table(found)
    rows = tensor.value_histogram(found)
    finite = np.isfinite(np.abs(found.array)) if found.array.dtype.kind == "c" else np.isfinite(found.array)
    assert rows[:, 2].sum() <= max(1, finite.sum()), "more values than there are"
    _encode_everywhere(TaggedValue("t", found))


def _check_as_tensorboard_reads(message: bytes, array: np.ndarray) -> None:
    """Where TensorBoard reads a tensor of numbers as well, it reads the same."""
    if importlib.util.find_spec("tensorboard") is None:
        return
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.util import tensor_util

    try:
        with np.errstate(all="ignore"):
            expected = tensor_util.make_ndarray(TensorProto.FromString(message))
    except Exception:  # it refuses it: what we read of it is no loss
        return
    if expected.dtype.kind in "biufc" and expected.dtype.name == array.dtype.name and expected.size == array.size:
        same = np.array_equal(expected, array, equal_nan=array.dtype.kind in "fc")
        assert same, "TensorBoard reads another tensor"


def _tensor_seeds() -> Iterable[bytes]:
    for payload in _mindspore_seeds():
        for value in ms_pb.Event.FromString(payload).summary.value:
            if value.HasField("tensor"):
                yield b"\0" + value.tensor.SerializeToString()
    for payload in _tensorboard_seeds():
        for value in tb_pb.Event.FromString(payload).summary.value:
            if value.HasField("tensor") and value.tensor.ByteSize() < 4000:
                yield b"\x80" + value.tensor.SerializeToString()


def _encode_everywhere(tagged: TaggedValue) -> None:
    item = Event(1.0, 2, Summary((tagged,)))
    for encoder, check in (
        (TensorBoardEncoder(), agreement.check_tensorboard),
        (MindSporeEncoder(), agreement.check_mindspore),
    ):
        made = encoder.encode(item)
        assert made.payload is not None or made.losses, "nothing is written, and nothing is lost"
        if made.payload is not None:
            check(made.payload)


# ---------------------------------------------------------------- landscapes


def take_landscape(message: bytes) -> None:
    """A value with a loss landscape, drawn."""
    try:
        grid = decode_landscape(message)
    except InvalidValueError:
        grid = None
    payload = b"\x09" + bytes(8) + wire.length_delimited(b"\x2a", wire.length_delimited(b"\x0a", message))
    made = TensorBoardEncoder().encode(MindSporeDecoder().decode(payload))
    if grid is None:
        assert made.payload is None or made.losses or b"mesh" not in made.payload
    elif made.payload is not None:
        agreement.check_tensorboard(made.payload)


def _landscape_seeds() -> Iterable[bytes]:
    value = ms_pb.Summary.Value(tag="l")
    point = value.loss_landscape.landscape
    for name, numbers in (("x", (0.0, 1.0)), ("y", (0.0, 1.0, 2.0)), ("z", range(6))):
        part = getattr(point, name)
        numbers = list(numbers)
        part.dims.extend((2, 3) if name == "z" else (len(numbers),))
        part.data_type = 12
        part.float_data.extend(numbers)
    yield value.SerializeToString()
    path = value.loss_landscape.loss_path.points
    for name in "xyz":
        getattr(path, name).dims.append(2)
        getattr(path, name).float_data.extend((0.25, 0.5))
    value.loss_landscape.loss_path.intervals.append(1)
    yield value.SerializeToString()


def _histogram_message(head: bytes) -> Any:
    return (ms_pb.Summary.Histogram, tb_pb.HistogramProto, None, None)[head[0] % 4]


def _tensor_message(head: bytes) -> Any:
    return ms_pb.TensorProto if head < b"\x80" else tb_pb.TensorProto


TARGETS = [
    Target("mindspore", "payloads of MindSpore, to TensorBoard", take_mindspore, _mindspore_seeds, "wire", 0,
           lambda _: ms_pb.Event),
    Target("tensorboard", "payloads of TensorBoard, to MindInsight", take_tensorboard, _tensorboard_seeds, "wire", 0,
           lambda _: tb_pb.Event),
    Target("wire", "the wire format", take_wire, _mindspore_seeds, "wire", 0, lambda _: ms_pb.Event),
    Target("histogram", "histograms in all writings", take_histogram, _histogram_seeds, "wire", 1,
           _histogram_message, mend_histogram),
    Target("tensor", "tensors in all writings", take_tensor, _tensor_seeds, "wire", 1, _tensor_message, mend_tensor),
    Target("landscape", "loss landscapes, drawn", take_landscape, _landscape_seeds, "wire", 0,
           lambda _: ms_pb.Summary.Value),
]  # fmt: skip
