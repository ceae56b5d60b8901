"""What both codecs promise. test_format_mindspore.py and test_format_tensorboard.py derive from `CodecContract`."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strategies
from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.events import (
    Decoder,
    Encoded,
    Encoder,
    Event,
    FileVersion,
    LostValue,
    SessionLog,
    Summary,
    TaggedValue,
)
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import Record
from ms_summary_bridge.formats.mindspore import MindSporeEncoder
from ms_summary_bridge.formats.tensorboard import TensorBoardEncoder
from ms_summary_bridge.values import KINDS, Histogram, Image, Opaque, Scalar, Tensor

DATA = Path(__file__).resolve().parent / "data"
_EXAMPLES = max(settings().max_examples // 2, 1)  # of whole lists of events, for two codecs


def read_records(path: Path) -> list[bytes]:
    """Returns the payloads of a file that has nothing but whole records."""
    decoder = RecordDecoder()
    pieces = [*decoder.feed(path.read_bytes()), *decoder.finish()]
    records = [piece.payload for piece in pieces if isinstance(piece, Record)]
    assert len(records) == len(pieces)
    return records


def without_originals(event: Event) -> Event:
    """Returns the event without derived values, the bytes kept for encoding it back, and its format."""
    content = event.content
    if isinstance(content, Summary):
        content = Summary(tuple(TaggedValue(each.tag, each.value) for each in content.values if not each.derived))
    return Event(event.wall_time, event.step, content)


def same_bits(one: float, two: float) -> bool:
    return struct.pack("<d", one) == struct.pack("<d", two) or (math.isnan(one) and math.isnan(two))


def is_float32(bits: bytes, number: float) -> bool:
    """Whether the bits are those of a number that protobuf read from a float field."""
    if math.isnan(number):
        return math.isnan(struct.unpack("<f", bits)[0])
    return struct.pack("<f", number) == bits


def reserialised(cls: Any, payload: bytes) -> bytes:
    """Returns the bytes protobuf makes of a payload; equal ones are equal messages, unknown fields included."""
    return cls.FromString(payload).SerializeToString(deterministic=True)


def decode_single(decoder: Decoder, event: Any, value: Any) -> TaggedValue:
    """Decodes an event that has no value yet, as a message, with one `Summary.Value`."""
    event.summary.value.add().CopyFrom(value)
    decoded = decoder.decode(event.SerializeToString())
    assert isinstance(decoded.content, Summary)
    (tagged,) = decoded.content.values
    return tagged


def without_names(encoded: Encoded) -> Encoded:
    """Leaves out which values were fitted under which names."""
    return msgspec.structs.replace(encoded, written=())


class NoMemory:
    """Stands in for `ScalarShapes` and remembers nothing."""

    def decode(self, payload: bytes) -> Event | None:
        return None

    def learn(self, payload: bytes, event: Event) -> None:
        return None


def outcome(decoder: Decoder, payload: bytes) -> Event | str:
    """The event, or what the error says."""
    try:
        return decoder.decode(payload)
    except EventDecodeError as error:
        return str(error)


def scalar_event(key: int, tag: bytes, bits: bytes, wall_time: float = 1.0, step: bytes | None = b"\x01") -> bytes:
    """Builds the payload of an event with one scalar; `step` are the bytes of its varint."""
    value = strategies.join_field(1, 2, tag) + bytes([key]) + bits
    head = b"\x09" + struct.pack("<d", wall_time) + (b"" if step is None else b"\x10" + step)
    return head + strategies.join_field(5, 2, strategies.join_field(1, 2, value))


@st.composite
def scalar_payloads(draw: st.DrawFn, key: int) -> bytes:
    """Events with one scalar, of few tags, with steps and lengths written in odd ways too; some damaged."""
    step = draw(st.one_of(st.none(), st.integers(0, 1 << 21), strategies.INT64))
    written = None if step is None else strategies.wire_varint(step & ((1 << 64) - 1))
    if written is not None and len(written) < 9 and draw(st.integers(0, 4)) == 0:
        written = written[:-1] + bytes([written[-1] | 128]) + draw(st.sampled_from([b"\0", b"\x80\0"]))
    tag = draw(st.sampled_from([b"a", b"loss", b"loss/auto", b"x" * 130, b"", b"\xff", b"a\x1d\0\0\0\0", b"\x15"]))
    wall_time = draw(st.sampled_from([1.0, 1.7e9, math.nan, math.inf, -math.inf, -1.7976931348623157e308]))
    payload = scalar_event(key, tag, draw(strategies.BITS32), wall_time, written)
    way = draw(st.sampled_from(["", "", "", "append", "swap", "collide", "damage"]))
    if way == "append":
        payload += draw(st.sampled_from([b"\x10\x05", b"\x2a\0", b"\xa0\x1f\x01", b"\0\0\0\0", payload, payload[9:]]))
    elif way == "swap":
        payload = payload[9:] + payload[:9]
    elif way == "collide":  # the step's bytes or the wall time hold what looks like the part behind it
        cut = draw(st.integers(9, len(payload)))
        payload = payload[:cut] + payload[11:]
    elif way == "damage":
        payload = draw(strategies.damaged(st.just(payload)))
    return payload


def describe(event: Event) -> dict[str, Any]:
    """The form in which tests/data/*.json say what is in a file; numbers as the hex of their bytes."""

    def digest(data: bytes) -> dict[str, Any]:
        return {"bytes": len(data), "sha256": sha256(data).hexdigest()}

    def double(number: float | None) -> str | None:
        return None if number is None else struct.pack("<d", number).hex()

    def value_of(tagged: TaggedValue) -> dict[str, Any]:
        value = tagged.value
        said: dict[str, Any] = {"tag": tagged.tag, "kind": "opaque" if isinstance(value, Opaque) else value.kind}
        if isinstance(value, Scalar):
            said["bits"] = value.bits.hex()
        elif isinstance(value, Image):
            said |= {"height": value.height, "width": value.width, "colorspace": value.colorspace}
            said["encoded"] = [digest(encoded) for encoded in value.encoded]
        elif isinstance(value, Tensor):
            said |= {"shape": list(value.array.shape), "dtype": value.dtype, "stored": value.array.dtype.str}
            said["elements"] = value.array.tobytes().hex()
        elif isinstance(value, Histogram):
            said |= {"left": value.left.tobytes().hex(), "width": value.widths.tobytes().hex()}
            said |= {"count": value.count.astype("<f8").tobytes().hex(), "total": value.total}
            said |= {"min": double(value.min), "max": double(value.max), "sum": double(value.sum)}
            said["not_finite"] = [value.nan_count, value.pos_inf_count, value.neg_inf_count]
            if value.sum_squares is not None:
                said["sum_squares"] = double(value.sum_squares)
        else:
            said |= {"opaque": value.kind, "payload": digest(value.payload)}
        return said

    content = event.content
    said: dict[str, Any] = {"wall_time": double(event.wall_time), "step": event.step, "content": content.kind}
    if isinstance(content, FileVersion):
        said["version"] = content.version
    elif isinstance(content, Summary):
        said["values"] = [value_of(tagged) for tagged in content.values]
    elif isinstance(content, Opaque):
        said["payload"] = digest(content.payload)
    return said


def drawn_from(*inner: st.SearchStrategy[Any]) -> Callable[[Any], Any]:
    """As `given`, for a method that each class derived from `CodecContract` gets as a test of its own."""

    def mark(function: Any) -> Any:
        function.strategies = inner
        return function

    return mark


class CodecContract:
    """Derive, and set the class attributes; each test then runs for that codec."""

    Decoder: ClassVar[Callable[[], Decoder]]
    Encoder: ClassVar[Callable[[], Encoder]]
    message_class: ClassVar[Any]
    float_key: ClassVar[int]
    events: ClassVar[st.SearchStrategy[Event]]
    """Events that the format holds exactly."""
    messages: ClassVar[Callable[[], st.SearchStrategy[Any]]]
    golden: ClassVar[list[str]]
    """Files in tests/data, without their endings."""

    def __init_subclass__(cls) -> None:
        for name, function in vars(CodecContract).items():
            if hasattr(function, "strategies"):
                setattr(cls, name, settings(max_examples=_EXAMPLES)(given(*function.strategies)(function)))

    def golden_decoder(self, name: str) -> Decoder:
        return type(self).Decoder()

    # ------------------------------------------------------------ identity

    @drawn_from(st.data())
    def test_what_is_encoded_decodes_to_the_same(self, data: st.DataObject) -> None:
        encoder, decoder = type(self).Encoder(), type(self).Decoder()
        for event in data.draw(strategies.event_lists(type(self).events)):
            encoded = encoder.encode(event)
            assert encoded.losses == ()
            assert encoded.archive is None
            assert encoded.payload is not None
            decoded = decoder.decode(encoded.payload)
            assert without_originals(decoded) == without_originals(event)
            assert decoded.format == event.format
            assert without_names(encoder.encode(decoded)) == Encoded(encoded.payload)

    @drawn_from(st.data())
    def test_what_is_encoded_is_the_message_protobuf_reads(self, data: st.DataObject) -> None:
        event = data.draw(type(self).events)
        payload = type(self).Encoder().encode(event).payload
        assert payload is not None
        message = type(self).message_class.FromString(payload)
        assert same_bits(message.wall_time, event.wall_time)
        assert message.step == event.step
        self.check_message(event, message)

    def check_message(self, event: Event, message: Any) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------ messages of protobuf

    @drawn_from(st.data())
    def test_messages_in_any_writing_are_read_and_given_back_equal(self, data: st.DataObject) -> None:
        cls = type(self).message_class
        payload = data.draw(strategies.scrambled_messages(type(self).messages))
        message = cls.FromString(payload)
        event = type(self).Decoder().decode(payload)
        assert same_bits(event.wall_time, message.wall_time)
        assert event.step == message.step
        if isinstance(event.content, Summary):
            assert [tagged.tag for tagged in event.content.values] == [value.tag for value in message.summary.value]
            for tagged, value in zip(event.content.values, message.summary.value, strict=True):
                self.check_value(tagged, value)
        self.check_content(event, message)
        encoded = type(self).Encoder().encode(event)
        assert encoded.losses == ()
        assert encoded.payload is not None
        assert reserialised(cls, encoded.payload) == message.SerializeToString(deterministic=True)

    def check_value(self, tagged: TaggedValue, value: Any) -> None:
        raise NotImplementedError

    def check_content(self, event: Event, message: Any) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------ anything else

    def check_foreign(self, payload: bytes) -> None:
        cls = type(self).message_class
        try:
            event = type(self).Decoder().decode(payload)
        except EventDecodeError:
            return
        assert math.isfinite(event.wall_time)
        encoded = type(self).Encoder().encode(event)
        assert encoded.losses == ()
        assert encoded.payload is not None
        for encoder in (MindSporeEncoder(), TensorBoardEncoder()):  # no value makes an encoder fail
            encoder.encode(event)
        try:
            expected = reserialised(cls, payload)
        except Exception:  # protobuf's own errors: they have no class in common over its versions
            return
        assert reserialised(cls, encoded.payload) == expected

    @drawn_from(st.binary(max_size=80))
    def test_foreign_bytes_raise_only_the_error_for_them(self, payload: bytes) -> None:
        self.check_foreign(payload)
        self.check_foreign(b"\x09" + bytes(8) + b"\x2a" + bytes([len(payload)]) + payload)

    @drawn_from(st.data())
    def test_damaged_messages_raise_only_the_error_for_them(self, data: st.DataObject) -> None:
        messages = strategies.scrambled_messages(type(self).messages)
        self.check_foreign(data.draw(strategies.damaged(messages)))

    @pytest.mark.parametrize("wall_time", [math.nan, math.inf, -math.inf])
    def test_an_event_without_a_finite_time_is_carried_and_never_shown(self, wall_time: float) -> None:
        decoder = type(self).Decoder()
        decoder.decode(scalar_event(type(self).float_key, b"loss", bytes(4)))
        reason = f"its wall_time is {wall_time}, for which a viewer would leave out other points"
        payload = scalar_event(type(self).float_key, b"loss", bytes(4), wall_time)
        event = decoder.decode(payload)
        assert isinstance(event.content, Summary)
        (tagged,) = event.content.values
        assert (event.wall_time, event.step, tagged.tag) == (0.0, decoder.decode(payload).step, "loss")
        assert (tagged.value.kind, tagged.value.reason) == ("untimed scalar", reason)  # type: ignore[union-attr]
        assert tagged.value.payload in payload  # type: ignore[union-attr]
        other = MindSporeEncoder() if type(self).Encoder is TensorBoardEncoder else TensorBoardEncoder()
        assert type(self).Encoder().encode(event) == Encoded(payload)
        assert other.encode(event) == Encoded(None, (LostValue("untimed scalar", "loss", reason),), event)

        head = b"\x09" + struct.pack("<d", wall_time)
        version = decoder.decode(head + b"\x1a\x01x")
        assert version == Event(0.0, 0, FileVersion("x"), event.format, head + b"\x1a\x01x")
        for rest, kind in (
            (b"\x22\x00", "untimed graph"),
            (b"\x2a\x00", "untimed event"),
            (b"", "untimed empty event"),
        ):
            whole = decoder.decode(head + rest)
            assert whole.content == Opaque(kind, head + rest, reason)
            assert type(self).Encoder().encode(whole) == Encoded(head + rest)
            assert other.encode(whole) == Encoded(None, (LostValue(kind, "", reason),), whole)
        # One summary that a version replaced, and another one behind that.
        value = payload[payload.index(b"\x2a") :]
        assert type(self).Encoder().encode(decoder.decode(head + value + b"\x1a\x01x" + value)).losses == ()

    def test_a_tag_that_is_not_utf_8_is_kept(self) -> None:
        payload = scalar_event(type(self).float_key, b"bad\xff\xfe", b"abcd")
        for _ in range(2):
            event = type(self).Decoder().decode(payload)
            assert isinstance(event.content, Summary)
            (tagged,) = event.content.values
            assert tagged.tag.encode("utf-8", "surrogateescape") == b"bad\xff\xfe"
            assert tagged.value == Scalar(b"abcd")
            assert type(self).Encoder().encode(event) == Encoded(payload)

    def test_a_version_that_is_not_utf_8_is_given_back(self) -> None:
        payload = b"\x09" + bytes(8) + b"\x1a\x03a\xff\xfe"
        event = type(self).Decoder().decode(payload)
        assert isinstance(event.content, FileVersion)
        assert type(self).Encoder().encode(event) == Encoded(payload)

    @drawn_from(st.data())
    def test_a_decoder_that_remembers_shapes_gives_the_same_events(self, data: st.DataObject) -> None:
        remembering, forgetting = type(self).Decoder(), type(self).Decoder()
        forgetting._shapes = NoMemory()  # type: ignore[attr-defined]
        payloads = st.one_of(
            scalar_payloads(type(self).float_key),
            scalar_payloads(type(self).float_key ^ 8),
            strategies.scrambled_messages(type(self).messages),
        )
        for payload in data.draw(st.lists(payloads, max_size=8)):
            assert outcome(remembering, payload) == outcome(forgetting, payload)

    @drawn_from(st.lists(strategies.INT64, min_size=1), strategies.BITS32)
    def test_a_remembered_shape_keeps_steps_and_bits(self, steps: list[int], bits: bytes) -> None:
        decoder = type(self).Decoder()
        for step in steps:
            written = strategies.wire_varint(step & ((1 << 64) - 1))
            event = decoder.decode(scalar_event(type(self).float_key, b"loss", bits, 2.0, written))
            assert without_originals(event) == Event(2.0, step, Summary((TaggedValue("loss", Scalar(bits)),)))

    def test_more_tags_than_are_remembered_make_no_difference(self) -> None:
        decoder = type(self).Decoder()
        for _ in range(2):
            for number in range(4200):
                event = decoder.decode(scalar_event(type(self).float_key, b"tag%d" % number, b"1234"))
                assert isinstance(event.content, Summary)
                assert event.content.values == (TaggedValue(f"tag{number}", Scalar(b"1234")),)

    # ------------------------------------------------------------ completeness

    @drawn_from(strategies.event_lists(strategies.events(strategies.FEW_TAGS)))
    def test_an_encoder_never_fails_and_names_what_is_missing(self, events: list[Event]) -> None:
        encoder, decoder = type(self).Encoder(), type(self).Decoder()
        for event in events:
            encoded = encoder.encode(event)
            if encoded.payload is None:
                assert encoded.losses or isinstance(event.content, SessionLog)  # a mark is kept and shows no value
            else:
                type(self).message_class.FromString(encoded.payload)
                decoder.decode(encoded.payload)
            assert encoded.archive is not None or not encoded.losses  # some things are kept although nothing is lost

    def test_every_kind_is_encoded_and_decoded(self) -> None:
        one = np.ones(1, np.float32)
        examples = {
            Scalar: Scalar.from_float32(1.5),
            Histogram: Histogram(left=np.zeros(1), right=np.ones(1), count=np.ones(1, np.int64)),
            Image: Image(1, 1, 3, (b"png",)),
            Tensor: Tensor(one, "float32"),
        }
        assert set(examples) == set(KINDS)
        for kind, value in examples.items():
            event = Event(1.0, 2, Summary((TaggedValue("tag", value),)))
            payload = type(self).Encoder().encode(event).payload
            assert payload is not None
            decoded = type(self).Decoder().decode(payload)
            assert isinstance(decoded.content, Summary)
            assert all(not isinstance(each.value, Opaque) or each.derived for each in decoded.content.values)
            assert kind is Tensor or isinstance(decoded.content.values[0].value, kind)

    # ------------------------------------------------------------ files of other programs

    def test_golden_files_hold_what_their_descriptions_say(self) -> None:
        for name in type(self).golden:
            decoder = self.golden_decoder(name)
            described = [describe(decoder.decode(payload)) for payload in read_records(DATA / f"{name}.bin")]
            assert described == json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))

    def test_golden_files_are_encoded_back_byte_by_byte(self) -> None:
        for name in type(self).golden:
            decoder, encoder = self.golden_decoder(name), type(self).Encoder()
            for payload in read_records(DATA / f"{name}.bin"):
                assert without_names(encoder.encode(decoder.decode(payload))) == Encoded(payload)
