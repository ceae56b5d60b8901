"""Changes of protobuf messages that keep what is around the change valid.

Where a descriptor says what a message may hold, known fields come in, and their contents stay of their kind: text is
UTF-8, packed numbers are whole. Now and then it is let alone: a field that nobody knows, of another wire type, twice.
"""

from __future__ import annotations

import random
import struct
from collections import defaultdict
from typing import Any

from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.formats import wire
from tools.fuzzing.texts import DOUBLES, NUMBERS, change_bytes, change_order, change_text, valid_text

Field = tuple[int, "int | bytes"]
"""The key and what the field holds: a number of wire type VARINT, else bytes."""

_MOST_DEPTH = 12
_MOST_DONORS = 2000
_FIXED64, _FIXED32 = {1, 6, 16}, {2, 7, 15}
_TEXT, _MESSAGE, _BYTES, _BOOL, _ENUM, _DOUBLE, _FLOAT = 9, 11, 12, 8, 14, 1, 2
_WORDS = (
    b"", b"loss", b"train/acc", "损失".encode(), b"scalars", b"images", b"histograms", b"text", b"tensors", b"mesh",
    b"graphs", b"custom_scalars", b"hparams", b"pr_curves", b"_hparams_/experiment", b"brain.Event:2", b"x" * 300, b"1",
    b"MindSpore.Event:1", b"Default/network/Conv2D-op2", b"Default", b"Parameter", b"^x:1", b"a/b/c", b"_", b"{}",
    b'{"acc": 0.5}', b"\x00",
)  # fmt: skip


def split_fields(data: bytes) -> list[Field] | None:
    """Returns the fields of a message; None if it is malformed."""
    try:
        return [(key, a if key & 7 == wire.VARINT else data[a:b]) for key, a, b in wire.fields(data, 0, len(data))]
    except EventDecodeError:
        return None


def join_fields(fields: list[Field]) -> bytes:
    """Returns the message with these fields."""
    return b"".join(map(_write, fields))


def _write(field: Field) -> bytes:
    key, content = field
    if isinstance(content, int):
        return wire.varint(key) + wire.varint(content)
    if key & 7 == wire.LENGTH_DELIMITED:
        return wire.length_delimited(wire.varint(key), content)
    return wire.varint(key) + content


def change_message(data: bytes, known: Any, rng: random.Random, depth: int = 0) -> bytes:
    """Changes a field, or one inside of it, and puts the lengths around it right.

    Args:
        data: The message.
        known: Its descriptor; None where nothing is known of it.
        rng: What is drawn comes from it.
        depth: Of the message in those around it.
    """
    fields = split_fields(data)
    if fields is None:
        return change_bytes(data, rng)
    inner = _inner(fields, known) if depth < _MOST_DEPTH else []
    if inner and rng.randrange(5):
        place = rng.choice(inner)
        key, content = fields[place]
        assert isinstance(content, bytes)
        fields[place] = key, change_message(content, _inside(known, key), rng, depth + 1)
        return join_fields(fields)
    if not rng.randrange(30):
        return _change_oddly(data, fields, rng)
    _change_fields(fields, known, rng, depth)
    return join_fields(fields)


def graft(one: bytes, other: bytes, known: Any, rng: random.Random) -> bytes:
    """Returns a message with a field that another one has in a message of the same type, at any depth."""
    donors: dict[str, list[Field]] = defaultdict(list)
    _collect(other, known, donors, 0)
    return _put(one, known, donors, rng, 0) if donors else one


def _collect(data: bytes, known: Any, donors: dict[str, list[Field]], depth: int) -> None:
    fields = split_fields(data) or []
    name = known.full_name if known is not None else ""
    if len(donors[name]) < _MOST_DONORS:
        donors[name] += fields
    for place in _inner(fields, known) if known is not None and depth < _MOST_DEPTH else ():
        key, content = fields[place]
        assert isinstance(content, bytes)
        _collect(content, _inside(known, key), donors, depth + 1)


def _put(data: bytes, known: Any, donors: dict[str, list[Field]], rng: random.Random, depth: int) -> bytes:
    fields = split_fields(data)
    if fields is None:
        return data
    inner = _inner(fields, known) if known is not None and depth < _MOST_DEPTH else []
    if inner and rng.randrange(4):
        place = rng.choice(inner)
        key, content = fields[place]
        assert isinstance(content, bytes)
        fields[place] = key, _put(content, _inside(known, key), donors, rng, depth + 1)
        return join_fields(fields)
    given = donors.get(known.full_name if known is not None else "")
    if given:
        field = rng.choice(given)
        same = [place for place, (key, _) in enumerate(fields) if key == field[0]]
        if same and rng.randrange(2):
            fields[rng.choice(same)] = field
        else:
            fields.insert(rng.randint(0, len(fields)), field)
    return join_fields(fields)


# ---------------------------------------------------------------- what is known of a field


def _field_of(known: Any, key: int) -> Any:
    return known.fields_by_number.get(key >> 3) if known is not None else None


def _inside(known: Any, key: int) -> Any:
    field = _field_of(known, key)
    return field.message_type if field is not None else None


def _inner(fields: list[Field], known: Any) -> list[int]:
    """Returns the places of the messages inside; of bytes, and where nothing is known, what is well-formed."""
    found = []
    for place, (key, content) in enumerate(fields):
        if key & 7 != wire.LENGTH_DELIMITED or not content:
            continue
        assert isinstance(content, bytes)
        field = _field_of(known, key)
        is_open = field is None or field.type == _BYTES
        if split_fields(content) if is_open else field.type == _MESSAGE:
            found.append(place)
    return found


def _wire_type(field: Any) -> int:
    if field.type in _FIXED64:
        return wire.FIXED64
    if field.type in _FIXED32:
        return wire.FIXED32
    return wire.LENGTH_DELIMITED if field.type in (_TEXT, _MESSAGE, _BYTES) else wire.VARINT


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)  # protobuf before 6 has only labels
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


# ---------------------------------------------------------------- changes of one message


def _change_fields(fields: list[Field], known: Any, rng: random.Random, depth: int) -> None:
    way = rng.randrange(14)
    if way >= 11 or not fields:
        if known is not None and known.fields:
            fields.insert(rng.randint(0, len(fields)), make_field(rng.choice(known.fields), rng, depth))
        elif fields:
            fields.insert(rng.randint(0, len(fields)), rng.choice(fields))
        return
    place = rng.randrange(len(fields))
    if way < 3:
        change_order(fields, rng, way)
    elif way == 3:
        fields += [fields[place]] * rng.choice((1, 3, 30))
    else:
        key, content = fields[place]
        fields[place] = key, _change_content(key, content, _field_of(known, key), rng, depth)


def _change_content(key: int, content: int | bytes, field: Any, rng: random.Random, depth: int) -> int | bytes:
    if field is not None and key & 7 == _wire_type(field):
        if not isinstance(content, bytes) or not rng.randrange(6):
            if isinstance(content, int) and field.type not in (_BOOL, _ENUM) and rng.randrange(2):
                return (content + rng.choice((-1, 1, content))) & (1 << 64) - 1
            return _make_content(field, rng, depth)
        if field.type == _TEXT:
            return valid_text(change_text(content, rng))
    elif field is not None and key & 7 == wire.LENGTH_DELIMITED and _is_repeated(field):
        assert isinstance(content, bytes)
        return _change_packed(content, field, rng)
    if isinstance(content, int):
        return rng.choice((*NUMBERS, content + 1, content - 1, content * 2)) & (1 << 64) - 1
    if key & 7 == wire.FIXED64:
        return struct.pack("<d", rng.choice(DOUBLES))
    return rng.randbytes(4) if key & 7 == wire.FIXED32 else change_text(content, rng)


def _change_packed(content: bytes, field: Any, rng: random.Random) -> bytes:
    """Changes packed numbers one by one."""
    size = {wire.FIXED64: 8, wire.FIXED32: 4}.get(_wire_type(field))
    if size:
        numbers = [content[at : at + size] for at in range(0, len(content), size)]
    else:
        numbers, at = [], 0
        while at < len(content):
            end = at + 1
            while end < len(content) and content[end - 1] & 0x80:
                end += 1
            numbers.append(content[at:end])
            at = end
    place = rng.randint(0, len(numbers))
    way = rng.randrange(8)
    if way == 0:
        del numbers[place : place + 1]
    elif way == 1:
        numbers[place:place] = numbers[place : place + rng.choice((1, 2, 9))] * rng.choice((1, 1, 40))
    elif way == 2:
        numbers.insert(place, _pack(field, rng))
    elif way == 3 and numbers:
        numbers = [rng.choice(numbers)] * len(numbers)
    else:
        numbers[place : place + 1] = [_pack(field, rng)]
    return b"".join(numbers)


def make_field(field: Any, rng: random.Random, depth: int = 0) -> Field:
    """Returns a field that a message may hold, with something in it."""
    number: int = field.number << 3
    if _is_repeated(field) and _wire_type(field) != wire.LENGTH_DELIMITED and rng.randrange(3):
        packed = b"".join(_pack(field, rng) for _ in range(rng.choice((0, 1, 2, 3, 6, 20))))
        return number | wire.LENGTH_DELIMITED, packed
    return number | _wire_type(field), _make_content(field, rng, depth)


def _make_content(field: Any, rng: random.Random, depth: int) -> int | bytes:
    if field.type == _MESSAGE:
        fields = field.message_type.fields
        if not fields or depth >= _MOST_DEPTH:
            return b""
        return join_fields([make_field(rng.choice(fields), rng, depth + 1) for _ in range(rng.choice((0, 1, 1, 2, 3)))])
    if field.type == _TEXT:
        return rng.choice(_WORDS)
    if field.type == _BYTES:
        return rng.randbytes(rng.choice((0, 1, 4, 8, 24))) if rng.randrange(3) else rng.choice(_WORDS)
    if field.type == _DOUBLE:
        return struct.pack("<d", rng.choice((*DOUBLES, rng.gauss(0, 1), rng.random() * 2e9)))
    if field.type == _FLOAT:
        return struct.pack(
            "<f", rng.choice((0.0, 1.0, -1.5, 1e-45, 3e38, float("nan"), float("-inf"), rng.gauss(0, 1)))
        )
    if _wire_type(field) != wire.VARINT:
        return rng.randbytes(8 if _wire_type(field) == wire.FIXED64 else 4)
    if field.type == _BOOL:
        return rng.randrange(2)
    if field.type == _ENUM and rng.randrange(20):
        return int(rng.choice(field.enum_type.values).number) & (1 << 64) - 1
    return rng.choice(NUMBERS) if rng.randrange(3) else rng.randrange(12)


def _pack(field: Any, rng: random.Random) -> bytes:
    content = _make_content(field, rng, 0)
    return wire.varint(content) if isinstance(content, int) else content


def _change_oddly(data: bytes, fields: list[Field], rng: random.Random) -> bytes:
    """Does what no writer does: another number or wire type, a field inside itself, any byte."""
    way = rng.randrange(4) if fields else 3
    if way == 3:
        return change_bytes(data, rng)
    place = rng.randrange(len(fields))
    key, content = fields[place]
    if way == 0:
        fields[place] = rng.choice((key ^ 8, key + 8, rng.randrange(8, 256))) & 0x1FFFFFF8 | key & 7, content
    elif way == 1 or isinstance(content, int):
        fields[place] = (
            rng.choice(((key & ~7) | wire.VARINT, (key & ~7) | wire.LENGTH_DELIMITED)),
            (rng.choice(NUMBERS) if rng.randrange(2) else rng.randbytes(3)),
        )
        key, content = fields[place]
        fields[place] = key & ~7 | (wire.VARINT if isinstance(content, int) else wire.LENGTH_DELIMITED), content
    elif len(content) < 512:
        fields[place] = key & ~7 | wire.LENGTH_DELIMITED, content + _write((key & ~7 | wire.LENGTH_DELIMITED, content))
    return join_fields(fields)
