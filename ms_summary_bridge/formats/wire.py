"""The protobuf wire format, as far as the hot messages need it.

The few messages that make up nearly all records (scalar, histogram, image, tensor) are read and written here
without message objects, for three reasons: a float32 NaN keeps its payload, unknown fields are noticed, and inside
a MindSpore process protobuf runs in pure Python, 10 to 30 times slower. Tests hold every byte against the message
classes.

Source: https://protobuf.dev/programming-guides/encoding/ (wire types, varints, zigzag is not used here).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

from ms_summary_bridge.errors import EventDecodeError

__all__ = [
    "FIXED32",
    "FIXED64",
    "FLOAT32",
    "FLOAT64",
    "LENGTH_DELIMITED",
    "VARINT",
    "all_fields",
    "entry",
    "fields",
    "fixed64",
    "last_fields",
    "length_delimited",
    "read_entry",
    "read_varint",
    "repeated",
    "signed",
    "text",
    "varint",
]

VARINT: Final = 0
FIXED64: Final = 1
LENGTH_DELIMITED: Final = 2
FIXED32: Final = 5

FLOAT32: Final = struct.Struct("<f")
FLOAT64: Final = struct.Struct("<d")

_SMALL: Final = [bytes([n]) for n in range(128)]
_TWO: Final = struct.Struct("BB")
_MASK64: Final = (1 << 64) - 1


def varint(value: int) -> bytes:
    """Encodes an integer; a negative one as its 64-bit two's complement, ten bytes, as protobuf does."""
    if 0 <= value < 128:
        return _SMALL[value]
    if 128 <= value < 16384:
        return _TWO.pack(value & 127 | 128, value >> 7)
    value &= _MASK64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_delimited(key: bytes, data: bytes) -> bytes:
    """Encodes one length-delimited field: its key, the length, the bytes."""
    size = len(data)
    return key + (_SMALL[size] if size < 128 else varint(size)) + data


def repeated(before: bytes, key: bytes, messages: list[bytes]) -> bytes:
    """Encodes a message whose field 1 holds each of `messages`, with its key and length; `before` are other fields."""
    if sum(map(len, messages)) > len(messages) << 10:  # large ones are copied once
        parts = [part for message in messages for part in (b"\x0a", varint(len(message)), message)]
        return b"".join((before, key, varint(sum(map(len, parts))), *parts))
    body = bytearray()  # many small ones: `join` takes 80 bytes more for each part
    for message in messages:
        body += b"\x0a"
        body += varint(len(message))
        body += message
    return b"".join((before, key, varint(len(body)), body))


def text(key: bytes, content: str) -> bytes:
    """Encodes one string field."""
    return length_delimited(key, content.encode())


def entry(name: str, content: bytes) -> bytes:
    """Encodes what has a string in field 1 and bytes in field 2: an entry of a map, or whatever else has a name."""
    return length_delimited(b"\x0a", name.encode()) + length_delimited(b"\x12", content)


def fixed64(key: bytes, value: float) -> bytes:
    """Encodes one double field."""
    return key + FLOAT64.pack(value)


def signed(value: int) -> int:
    """Reads an unsigned 64-bit varint as the int64 it stands for."""
    return value - (1 << 64) if value >> 63 else value


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """Returns the varint at `position` (unsigned, below 2**64) and the position after it.

    Raises:
        EventDecodeError: It does not end before `end`, or has more than ten bytes.
    """
    result = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return result & _MASK64, position
        shift += 7
    raise EventDecodeError("the message is malformed: a number does not end")


def fields(data: bytes, position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Walks the fields of the message in `data[position:end]`.

    Yields:
        `(key, a, b)`: the key is `field_number << 3 | wire_type`. For a varint, `a` is its unsigned value and `b` the
        position after it; for every other type the content lies in `data[a:b]`.

    Raises:
        EventDecodeError: A field does not end before `end`, or has a wire type that no proto2 or proto3 message
            uses.
    """
    while position < end:
        key = data[position]
        position += 1
        if key > 127:
            key, position = read_varint(data, position - 1, end)
        wire_type = key & 7
        if wire_type == LENGTH_DELIMITED:
            if position < end and data[position] < 128:
                length = data[position]
                position += 1
            else:
                length, position = read_varint(data, position, end)
            stop = position + length
        elif wire_type == VARINT:
            if key < 8:
                raise EventDecodeError(f"the message is malformed: field 0 at byte {position}")
            if position < end and data[position] < 128:
                value = data[position]
                position += 1
            else:
                value, position = read_varint(data, position, end)
            yield key, value, position
            continue
        elif wire_type == FIXED64:
            stop = position + 8
        elif wire_type == FIXED32:
            stop = position + 4
        else:
            raise EventDecodeError(f"the message is malformed: wire type {wire_type} at byte {position}")
        if stop > end or key < 8:
            raise EventDecodeError(f"the message is malformed: field {key >> 3} at byte {position} does not fit")
        yield key, position, stop
        position = stop


def last_fields(data: bytes) -> dict[int, Any]:
    """Returns the bytes, or the unsigned integer, by the key of each field of a message; of several the last.

    Raises as `fields`.
    """
    return {key: a if key & 7 == VARINT else data[a:b] for key, a, b in fields(data, 0, len(data))}


def all_fields(data: bytes, wanted: int) -> list[bytes]:
    """Returns the bytes of each field of a message that has the key `wanted`; raises as `fields`."""
    return [data[a:b] for key, a, b in fields(data, 0, len(data)) if key == wanted]


def read_entry(data: bytes) -> tuple[str, bytes]:
    """Reads what `entry` encodes.

    Raises:
        EventDecodeError: The bytes are not a message.
        UnicodeDecodeError: The name is not UTF-8.
    """
    name, content = "", b""
    for key, a, b in fields(data, 0, len(data)):
        if key == 0x0A:
            name = data[a:b].decode()
        elif key == 0x12:
            content = data[a:b]
    return name, content
