"""The protobuf wire format, against protobuf itself."""

from __future__ import annotations

import contextlib
import struct

import pytest
from google.protobuf.internal import encoder
from hypothesis import given
from hypothesis import strategies as st

import strategies
from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.protos import ms_pb, tb_pb

UINT64 = st.one_of(
    st.sampled_from([0, 1, 127, 128, 16383, 16384, (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    st.integers(0, (1 << 64) - 1),
)


@given(UINT64)
def test_a_varint_is_what_protobuf_writes(value: int) -> None:
    written: list[bytes] = []
    encoder._EncodeVarint(written.append, value)
    data = b"".join(written)
    assert wire.varint(value) == data
    assert wire.read_varint(b"\xff" + data + b"\x05", 1, 1 + len(data)) == (value, 1 + len(data))


@given(strategies.INT64)
def test_a_negative_number_is_written_as_protobuf_does(value: int) -> None:
    message = ms_pb.Event(wall_time=0.0, step=value).SerializeToString()
    assert wire.fixed64(b"\x09", 0.0) + b"\x10" + wire.varint(value) == message
    number, _ = wire.read_varint(wire.varint(value), 0, 10)
    assert wire.signed(number) == value


@given(st.binary(max_size=300))
def test_bytes_are_written_as_protobuf_does(data: bytes) -> None:
    assert wire.length_delimited(b"\x22", data) == tb_pb.Event(graph_def=data or None).SerializeToString() or not data


def test_empty_bytes_are_written_too() -> None:
    assert wire.length_delimited(b"\x22", b"") == b"\x22\x00"


@given(strategies.FLOATS64)
def test_a_double_is_written_with_its_bits(value: float) -> None:
    assert wire.fixed64(b"\x09", value) == b"\x09" + struct.pack("<d", value)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\x80" * 10, b"\xff" * 11])
def test_a_varint_that_does_not_end_is_an_error(data: bytes) -> None:
    with pytest.raises(EventDecodeError, match="a number does not end"):
        wire.read_varint(data, 0, len(data))


def test_a_varint_does_not_reach_behind_the_message() -> None:
    with pytest.raises(EventDecodeError):
        wire.read_varint(b"\x80\x01", 0, 1)


FIELDS = st.one_of(
    st.tuples(st.integers(1, (1 << 29) - 1), st.just(0), UINT64.map(strategies.wire_varint)),
    st.tuples(st.integers(1, (1 << 29) - 1), st.just(1), st.binary(min_size=8, max_size=8)),
    st.tuples(st.integers(1, (1 << 29) - 1), st.just(2), st.binary(max_size=200)),
    st.tuples(st.integers(1, (1 << 29) - 1), st.just(5), st.binary(min_size=4, max_size=4)),
)


@given(st.lists(FIELDS, max_size=6), st.binary(max_size=3), st.binary(max_size=3))
def test_all_fields_come_out_in_their_order(fields: list[tuple[int, int, bytes]], before: bytes, after: bytes) -> None:
    message = b"".join(strategies.join_field(*field) for field in fields)
    data = before + message + after
    found = []
    for key, a, b in wire.fields(data, len(before), len(before) + len(message)):
        found.append((key >> 3, key & 7, strategies.wire_varint(a) if key & 7 == 0 else data[a:b]))
    assert found == fields


@given(st.lists(FIELDS, min_size=1, max_size=4))
def test_a_cut_message_is_an_error_or_ends_between_two_fields(fields: list[tuple[int, int, bytes]]) -> None:
    parts = [strategies.join_field(*field) for field in fields]
    message = b"".join(parts)
    ends = {sum(map(len, parts[:count])) for count in range(len(parts) + 1)}
    for size in range(len(message)):
        if size in ends:
            assert len(list(wire.fields(message, 0, size))) < len(fields)
        else:
            with pytest.raises(EventDecodeError):
                list(wire.fields(message, 0, size))


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_an_error(data: bytes) -> None:
    with contextlib.suppress(EventDecodeError):
        for key, _, end in wire.fields(data, 0, len(data)):
            assert key >= 8
            assert end <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01",  # field 0
        b"\x01" + bytes(8),
        b"\x02\x00",
        b"\x05" + bytes(4),
        b"\x0b\x0c",  # a group
        b"\x0e",  # wire types that do not exist
        b"\x0f",
        b"\x0a\x05abc",  # lengths behind the end
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x09\x00",
        b"\x0d\x00",
    ],
)
def test_what_no_message_holds_is_an_error(data: bytes) -> None:
    with pytest.raises(EventDecodeError, match="malformed"):
        list(wire.fields(data, 0, len(data)))


@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 5), (400, 130), (400, 1024), (3, 1025), (3, 70_000)])
def test_a_message_of_many_is_what_protobuf_writes(count: int, size: int) -> None:
    """Small ones and large ones are put together in two ways."""
    messages = [b"\x0a" + wire.varint(len(tag)) + tag for tag in [b"t" * max(0, size - 3)] * count]
    event = tb_pb.Event.FromString(wire.repeated(b"\x10\x07", b"\x2a", messages))
    assert event.step == 7
    assert event.HasField("summary")
    assert [value.tag for value in event.summary.value] == ["t" * max(0, size - 3)] * count
    assert event.SerializeToString() == wire.repeated(b"\x10\x07", b"\x2a", messages)
