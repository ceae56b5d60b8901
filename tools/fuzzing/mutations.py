"""Changes of inputs that keep their shape: messages of protobuf, files of records, lines of text, documents.

A change of single bytes breaks a length or a checksum, and then the reader never sees what lies behind it. These take
an input apart, change a part, and put it together again.
"""

from __future__ import annotations

import random
from typing import Any

from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import Record, encode_record
from tools.fuzzing import documents
from tools.fuzzing.messages import change_message, graft
from tools.fuzzing.target import Target
from tools.fuzzing.texts import change_bytes, change_lines, change_order

_MOST_TRIES = 4


def mutate(data: bytes, target: Target, rng: random.Random, most: int) -> bytes:
    """Returns an input that is another one, of at most so many bytes; how it is taken is changed now and then."""
    first, data = data[: target.head], data[target.head :]
    if target.head and not rng.randrange(16):
        first = rng.randbytes(target.head)
    first = first.ljust(target.head, b"\0")
    most -= target.head
    known = target.descriptor(first)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        changed = data
        for _ in range(_MOST_TRIES):
            changed = _change(data, target.form, known, rng)
            if len(changed) <= most:
                break
        data = changed[:most]
    return first + (target.mend(first, data, rng)[:most] if target.mend and rng.randrange(3) else data)


def cross(one: bytes, other: bytes, target: Target, rng: random.Random, most: int) -> bytes:
    """Returns an input made of parts of two."""
    head = one[: target.head]
    left, right = one[target.head :], other[target.head :]
    if target.form == "wire":
        same = head == other[: target.head] or target.descriptor(head) is target.descriptor(other[: target.head])
        joined = graft(left, right, target.descriptor(head), rng) if same else left
    elif target.form == "json":
        joined = documents.join_json(left, right, rng)
    elif target.form == "yaml":
        joined = documents.join_yaml(left, right, rng)
    else:
        parts, others = (_split_records if target.form == "records" else _split_lines)(left), _split(right, target.form)
        joined = b"".join(parts[: rng.randint(0, len(parts))] + others[rng.randint(0, len(others)) :])
    joined = head + joined
    return joined if len(joined) <= most else one[:most]


def _split(data: bytes, form: str) -> list[bytes]:
    return _split_records(data) if form == "records" else _split_lines(data)


def _split_lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def _split_records(data: bytes) -> list[bytes]:
    pieces = RecordDecoder().feed(data)
    return [encode_record(piece.payload) for piece in pieces if isinstance(piece, Record)]


def _change(data: bytes, form: str, known: Any, rng: random.Random) -> bytes:
    if form == "wire":
        return change_message(data, known, rng)
    if form == "records":
        return _change_records(data, known, rng)
    if form == "lines":
        return change_lines(data, rng)
    if form == "json":
        return documents.change_json(data, rng)
    if form == "yaml":
        return documents.change_yaml(data, rng)
    return documents.change_json_lines(data, rng) if form == "json_lines" else change_bytes(data, rng)


def _change_records(data: bytes, known: Any, rng: random.Random) -> bytes:
    """Changes a payload and frames it anew, or the order of records; now and then the bytes of the file."""
    found = _split_records(data)
    if not found or not rng.randrange(12):
        return change_bytes(data, rng)
    change_order(found, rng)
    if not found:
        return b""
    place = rng.randrange(len(found))
    way = rng.randrange(16)
    if way == 0:
        found[place] = found[place][: rng.randrange(len(found[place]))]
    elif way == 1:
        found.insert(place, bytes(rng.choice((1, 4, 12, 100))))
    else:
        found[place] = encode_record(change_message(found[place][12:-4], known, rng))
    return b"".join(found)
