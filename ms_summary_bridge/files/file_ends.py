"""What an event file begins and ends with, read without what lies between."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.events import Decoder
from ms_summary_bridge.files.event_file import CHUNK_BYTES, Path, open_source, read_batches, read_errors
from ms_summary_bridge.files.records import Damage, Record

__all__ = ["Head", "last_wall_time", "peek"]

_PEEK_BYTES: Final = 1 << 16


class Head(msgspec.Struct, frozen=True):
    """What a file begins with."""

    first: Record | None
    """The first whole record; None for a file without one."""
    has_more: bool
    """Whether anything but zeros follows it: a record, damage, or a record that is cut."""
    damage: str
    """What is wrong with bytes before it, or in a file without one, that are neither a record nor the start of one."""
    size: int
    """Bytes of the file."""


def peek(path: Path) -> Head:
    """Looks at the beginning of a file, reading little more than its first record.

    Raises:
        LogdirError: The file cannot be opened or read.
    """
    path = os.fspath(path)
    damage = ""
    with open_source(path) as source, read_errors(path):
        for pieces, _ in read_batches(source, path, 0, _PEEK_BYTES):
            for piece in pieces:
                if isinstance(piece, Record):
                    source.seek(piece.end)
                    has_more = any(chunk.strip(b"\0") for chunk in iter(lambda: source.read(_PEEK_BYTES), b""))
                    return Head(piece, has_more, damage, source.seek(0, os.SEEK_END))
                if isinstance(piece, Damage):
                    damage = damage or piece.reason
        return Head(None, False, damage, source.seek(0, os.SEEK_END))


def last_wall_time(path: Path, decoder: Decoder) -> float | None:
    """Returns the wall_time of a file's last event, reading only its tail; None when it has no event.

    The decoder must be one that nobody else uses: it is fed events out of order.

    Raises:
        LogdirError: The file cannot be opened or read.
    """
    path = os.fspath(path)
    with open_source(path) as source, read_errors(path):
        size = source.seek(0, os.SEEK_END)
        window = CHUNK_BYTES
        while True:
            start = max(size - window, 0)  # most likely inside a record: the decoder finds the next whole one
            payloads = [
                piece.payload
                for pieces, _ in read_batches(source, path, start, CHUNK_BYTES)
                for piece in pieces
                if isinstance(piece, Record)
            ]
            for payload in reversed(payloads):
                try:
                    return decoder.decode(payload).wall_time
                except EventDecodeError:
                    continue
            if start == 0:
                return None
            window *= 2
