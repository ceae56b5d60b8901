"""Changes of bytes and of text."""

from __future__ import annotations

import random
import re
import struct
from typing import Any

from ms_summary_bridge.formats import wire

NUMBERS = (0, 1, 2, 3, 127, 128, 255, 256, 1 << 16, 1 << 20, 1 << 31, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63)
DOUBLES = (0.0, -0.0, 1.0, -1.0, 1e300, -1e300, 5e-324, float("inf"), float("-inf"), float("nan"), 1e15, 2.0**63)
_WORDS = (
    b"", b"0", b"-1", b"1e999", b"nan", b"inf", b"-inf", b"null", b"true", b"[]", b"{}", b'"', b",", b"\n", b"\r\n",
    b"\0", b"\xff", b"\xed\xa0\x80", "损失".encode(), b"9" * 30, b"1_0", b"0x10", b"1e5", b"/", b"..", b"~", b"+", b"|",
    b"\t", b" ", b": ", b"- ", b"&a ", b"*a", b"<<: ", b"!!str ", b"9223372036854775808", b"1e-320", b"'", b"#", b"%",
)  # fmt: skip
_TOKEN = re.compile(rb"[A-Za-z0-9_.]+|[^A-Za-z0-9_.]")


def change_bytes(data: bytes, rng: random.Random) -> bytes:
    """Changes a few bytes, whatever they are."""
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
        changed[at : at + 8] = struct.pack("<d", rng.choice(DOUBLES))
    elif way == 5:
        changed[at:at] = wire.varint(rng.choice(NUMBERS))
    elif way == 6:
        end = rng.randint(at, len(changed))
        changed[at:at] = changed[at:end] * rng.choice((1, 1, 2, 7))
    else:
        changed[at:at] = rng.choice(_WORDS)
    return bytes(changed)


def change_text(data: bytes, rng: random.Random) -> bytes:
    """Changes words and signs."""
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
        return change_bytes(data, rng)
    return b"".join(tokens)


def change_lines(data: bytes, rng: random.Random) -> bytes:
    """Changes the order of lines, or the text of one."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return change_text(data, rng)
    change_order(lines, rng)
    place = rng.randrange(len(lines)) if lines else 0
    if lines and rng.randrange(4):
        lines[place] = change_text(lines[place], rng)
    return b"".join(lines)


def change_order(parts: list[Any], rng: random.Random, way: int | None = None) -> None:
    """Takes a part away, doubles it or puts it elsewhere: ways 0, 1 and 2; without a way mostly nothing."""
    place = rng.randrange(len(parts))
    way = rng.randrange(10) if way is None else way
    if way == 0:
        del parts[place]
    elif way == 1:
        parts.insert(rng.randint(0, len(parts)), parts[place])
    elif way == 2:
        other = rng.randrange(len(parts))
        parts[place], parts[other] = parts[other], parts[place]


def valid_text(data: bytes) -> bytes:
    """Returns the part of it that is UTF-8."""
    return data.decode("utf-8", "ignore").encode()
