"""Changes of inputs that keep their shape: messages of protobuf, files of records, lines of text.

A change of single bytes breaks a length or a checksum, and then the reader never sees what lies behind it. These take
an input apart, change a part, and put it together again.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable

from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import Record, encode_record
from ms_summary_bridge.formats import wire

_NUMBERS = (0, 1, 2, 3, 127, 128, 255, 256, 1 << 16, 1 << 20, 1 << 31, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63)
_DOUBLES = (0.0, -0.0, 1.0, -1.0, 1e300, -1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 1e15, 2.0**63)
_WORDS = (
    b"", b"0", b"-1", b"1e999", b"nan", b"inf", b"-inf", b"null", b"true", b"[]", b"{}", b'"', b",", b"\n", b"\r\n",
    b"\0", b"\xff", b"\xed\xa0\x80", "损失".encode(), b"9" * 30, b"1_0", b"0x10", b"1e5", b"/", b"..", b"~", b"+", b"|",
    b"\t", b" ", b": ", b"- ", b"&a ", b"*a", b"<<: ", b"!!str ", b"9223372036854775808", b"1e-320", b"'", b"#", b"%",
)  # fmt: skip
_TOKEN = re.compile(rb"[A-Za-z0-9_.]+|[^A-Za-z0-9_.]")
_MOST_DEPTH = 6


def mutate(data: bytes, form: str, rng: random.Random, most: int, head: int = 0) -> bytes:
    """Returns an input that is another one, of at most so many bytes; its first `head` are changed now and then."""
    first, data = data[:head], data[head:]
    if head and not rng.randrange(4):
        first = _change_bytes(first.ljust(head, b"\0"), rng)[:head].ljust(head, b"\0")
    for _ in range(1 + rng.randrange(3)):
        data = _FORMS[form](data, rng)
    return (first + data)[:most]


def cross(one: bytes, other: bytes, form: str, rng: random.Random, most: int) -> bytes:
    """Returns an input made of parts of two."""
    split = _split_lines if form == "lines" else _split_records if form == "records" else _split_bytes
    left, right = split(one), split(other)
    return b"".join(left[: rng.randint(0, len(left))] + right[rng.randint(0, len(right)) :])[:most]


def _split_lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _split_records(data: bytes) -> list[bytes]:
    pieces = RecordDecoder().feed(data)
    return [encode_record(piece.payload) for piece in pieces if isinstance(piece, Record)]


def _split_bytes(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(min(len(data), 4096))]


# ---------------------------------------------------------------- bytes


def _change_bytes(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    at = rng.randint(0, len(changed))
    way = rng.randrange(8)
    if way == 0 and at < len(changed):
        changed[at] ^= 1 << rng.randrange(8)
    elif way == 1 and at < len(changed):
        changed[at] = rng.randrange(256)
    elif way == 2:
        del changed[at : at + rng.choice((1, 1, 2, 4, 8, 64))]
    elif way == 3:
        changed[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4, 8, 32)))
    elif way == 4:
        changed[at : at + 8] = struct.pack("<d", rng.choice(_DOUBLES))
    elif way == 5:
        changed[at:at] = wire.varint(rng.choice(_NUMBERS))
    elif way == 6:
        end = rng.randint(at, len(changed))
        changed[at:at] = changed[at:end] * rng.choice((1, 1, 2, 7))
    else:
        changed[at:at] = rng.choice(_WORDS)
    return bytes(changed)


# ---------------------------------------------------------------- messages


def _change_message(data: bytes, rng: random.Random, depth: int = 0) -> bytes:
    """Changes a field, or one inside of it, and puts the lengths around it right."""
    try:
        found = [(key, a if key & 7 == wire.VARINT else data[a:b]) for key, a, b in wire.fields(data, 0, len(data))]
    except EventDecodeError:
        return _change_bytes(data, rng)
    if not found or not rng.randrange(24):
        return _change_bytes(data, rng)
    place = rng.randrange(len(found))
    key, content = found[place]
    way = rng.randrange(12)
    if way == 0:
        del found[place]
    elif way == 1:
        found.insert(rng.randint(0, len(found)), found[place])
    elif way == 2:
        found[place] = (rng.choice((key ^ 8, key + 8, key ^ 2, rng.randrange(8, 256))) & 0x1FFFFFF8 | key & 7, content)
    elif way == 3:
        other = rng.randrange(len(found))
        found[place], found[other] = found[other], found[place]
    elif way == 4:
        found += [found[place]] * rng.choice((1, 3, 30))
    elif isinstance(content, int):
        found[place] = (key, rng.choice((*_NUMBERS, content + 1, content - 1, content * 2)) & (1 << 64) - 1)
    elif key & 7 == wire.FIXED64:
        found[place] = (key, struct.pack("<d", rng.choice(_DOUBLES)))
    elif key & 7 == wire.FIXED32:
        found[place] = (key, rng.randbytes(4))
    elif depth < _MOST_DEPTH and content and way < 10:
        found[place] = (key, _change_message(content, rng, depth + 1))
    elif way == 10:  # into itself
        found[place] = (
            key,
            content + (wire.length_delimited(wire.varint(key), content) if len(content) < 512 else b""),
        )
    else:
        found[place] = (key, _change_text(content, rng))
    return b"".join(_field(key, content) for key, content in found)


def _field(key: int, content: int | bytes) -> bytes:
    if isinstance(content, int):
        return wire.varint(key) + wire.varint(content)
    if key & 7 == wire.LENGTH_DELIMITED:
        return wire.length_delimited(wire.varint(key), content)
    return wire.varint(key) + content


# ---------------------------------------------------------------- records


def _change_records(data: bytes, rng: random.Random) -> bytes:
    """Changes a payload and frames it anew, or the order of records; now and then the bytes of the file."""
    found = _split_records(data)
    if not found or not rng.randrange(6):
        return _change_bytes(data, rng)
    place = rng.randrange(len(found))
    way = rng.randrange(8)
    if way == 0:
        del found[place]
    elif way == 1:
        found.insert(rng.randint(0, len(found)), found[place])
    elif way == 2:
        found[place] = found[place][: rng.randrange(len(found[place]))]
    elif way == 3:
        found.insert(place, bytes(rng.choice((1, 4, 12, 100))))
    else:
        found[place] = encode_record(_change_message(found[place][12:-4], rng))
    return b"".join(found)


# ---------------------------------------------------------------- lines


def _change_text(data: bytes, rng: random.Random) -> bytes:
    tokens = _TOKEN.findall(data)
    if not tokens:
        return rng.choice(_WORDS)
    place = rng.randrange(len(tokens))
    way = rng.randrange(6)
    if way == 0:
        tokens[place] = rng.choice(_WORDS)
    elif way == 1:
        tokens.insert(place, rng.choice(_WORDS))
    elif way == 2:
        del tokens[place : place + rng.choice((1, 1, 3, 10))]
    elif way == 3:
        tokens[place] = rng.choice(tokens)
    elif way == 4:
        end = place + rng.choice((1, 2, 5, 20))
        tokens[place:place] = tokens[place:end] * rng.choice((1, 2, 50))
    else:
        return _change_bytes(data, rng)
    return b"".join(tokens)


def _change_lines(data: bytes, rng: random.Random) -> bytes:
    lines = _split_lines(data)
    if not lines:
        return _change_text(data, rng)
    place = rng.randrange(len(lines))
    way = rng.randrange(8)
    if way == 0:
        del lines[place]
    elif way == 1:
        lines.insert(rng.randint(0, len(lines)), lines[place])
    elif way == 2:
        other = rng.randrange(len(lines))
        lines[place], lines[other] = lines[other], lines[place]
    else:
        lines[place] = _change_text(lines[place], rng)
    return b"".join(lines)


_FORMS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "bytes": _change_bytes,
    "wire": _change_message,
    "records": _change_records,
    "lines": _change_lines,
}
