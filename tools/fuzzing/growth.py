"""Inputs of 1 MiB: those that are kept, repeated, so that what costs more than in proportion shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import Record, encode_record
from ms_summary_bridge.formats import wire
from tools.fuzzing.documents import grown_documents
from tools.fuzzing.target import Target

LARGE = 1 << 20


def grown_inputs(target: Target, inputs: Iterable[bytes], size: int = LARGE) -> Iterator[bytes]:
    """Yields large inputs: each as it is behind the other, and for a message a part of it again and again."""
    for data in inputs:
        head, body = data[: target.head], data[target.head :]
        if not body:
            continue
        yield head + _repeat(body, size)
        if target.form == "wire":
            yield from (head + grown for grown in _grow_message(body, size))
        elif target.form == "records":
            yield from (head + grown for grown in _grow_records(body, size))
        elif target.form in ("lines", "json_lines"):
            lines = body.splitlines(keepends=True)
            for number in sorted({0, len(lines) // 2, len(lines) - 1}):
                before = head + b"".join(lines[:number])
                yield before + _repeat(lines[number], size)
                yield before + _repeat(lines[number].rstrip(b"\r\n") or b" ", size) + b"\n"
                if target.form == "json_lines":
                    yield from (before + grown + b"\n" for grown in grown_documents(lines[number], size))
        elif target.form in ("json", "yaml"):
            yield from grown_documents(body, size)  # JSON is YAML, too


def _repeat(part: bytes, size: int) -> bytes:
    return part * (size // len(part))


def _grow_records(body: bytes, size: int) -> Iterator[bytes]:
    """Yields the file with one record many times, and with a large one in its place."""
    done: set[bytes] = set()
    pieces = [piece for piece in RecordDecoder().feed(body) if isinstance(piece, Record)]
    for number, piece in enumerate(pieces):
        kind = piece.payload[9:12]  # behind the time: what is in it
        if kind in done:
            continue
        done.add(kind)
        before = b"".join(encode_record(piece.payload) for piece in pieces[:number])
        yield before + _repeat(encode_record(piece.payload), size)
        for grown in _grow_message(piece.payload, size):
            yield before + encode_record(grown)


def _grow_message(body: bytes, size: int, depth: int = 0) -> Iterator[bytes]:
    """Yields the message with one field many times, and likewise for what is inside of its fields."""
    try:
        found = list(wire.fields(body, 0, len(body)))
    except EventDecodeError:
        return
    starts = [0, *(b for _, _, b in found)]
    done: set[int] = set()
    for number, (key, a, b) in enumerate(found):
        if key in done:
            continue
        done.add(key)
        field = body[starts[number] : b]
        yield body[: starts[number]] + _repeat(field, size) + body[b:]
        if key & 7 == wire.LENGTH_DELIMITED and b > a:
            for content in (_repeat(body[a:b], size), _repeat(b"a/", size)):
                yield body[: starts[number]] + wire.length_delimited(wire.varint(key), content) + body[b:]
        if key & 7 == wire.LENGTH_DELIMITED and b - a > 1 and depth < 5:
            for inner in _grow_message(body[a:b], size, depth + 1):
                yield body[: starts[number]] + wire.length_delimited(wire.varint(key), inner) + body[b:]
