"""Event files: reads one from any position.

A path is a local file or an fsspec URL (`s3://bucket/run/...`).

Reading keeps a snapshot in mind: the file's size is taken first and again when its end is reached, so that a live
file gives every record that is whole, and a record that lies about its length is found out by that size instead
of being waited for in memory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterator
from typing import BinaryIO, Final, TypeAlias, cast

from ms_summary_bridge.errors import (
    ClosedError,
    EventDecodeError,
    LogdirError,
    MissingDependencyError,
    ReadError,
    UsageError,
    counted,
)
from ms_summary_bridge.events import Decoder, Event
from ms_summary_bridge.files.arguments import check_number, check_path
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import (
    FOOTER_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    Damage,
    Incomplete,
    Padding,
    Piece,
    Record,
)
from ms_summary_bridge.files.system import open_regular

__all__ = [
    "CHUNK_BYTES",
    "EventFileReader",
    "Path",
    "is_url",
    "open_source",
    "read_batches",
    "read_errors",
    "read_pieces",
]

CHUNK_BYTES: Final = 1 << 20
_RANGE_BYTES: Final = 4 << 20
_RANGES: Final = {"maxblocks": 4}
_FRAME_BYTES: Final = HEADER_BYTES + FOOTER_BYTES

Path: TypeAlias = str | os.PathLike[str]


def is_url(path: str) -> bool:
    """Whether `path` is for fsspec (`s3://...`) rather than for the operating system."""
    return "://" in path


def open_source(path: Path) -> BinaryIO:
    """Opens a local file, unbuffered, or an fsspec URL for reading.

    What a URL is for is read in ranges of 4 MiB, the next one in the background; 16 MiB of it are held.

    Raises:
        LogdirError: It cannot be opened, or the protocol of the URL is unknown.
        MissingDependencyError: The protocol needs a package that is not installed.
    """
    path = os.fspath(path)
    try:
        if not is_url(path):
            return open(path, "rb", buffering=0, opener=open_regular)
        from fsspec.core import url_to_fs  # here, as most callers read local files and need not wait for its import

        filesystem, inner = url_to_fs(path)
        try:
            source = filesystem.open(inner, "rb", _RANGE_BYTES, dict(_RANGES), cache_type="background")
        except TypeError:  # its files are not read in ranges
            source = filesystem.open(inner, "rb")
        with contextlib.suppress(AttributeError):
            source.fs = filesystem  # one for archives closes what it opened when nobody holds it any longer
        return cast(BinaryIO, source)
    except OSError as error:
        raise ReadError.of_system(path, "opened", error) from error
    except ImportError as error:
        raise MissingDependencyError(f"{path}: {error}") from error
    except Exception as error:  # clients of stores raise their own: botocore's NoCredentialsError is no OSError
        raise ReadError(f"{path}: {error}") from error


@contextlib.contextmanager
def read_errors(path: str) -> Iterator[None]:
    """Raises the system's errors as ReadError, with the file's name."""
    try:
        yield
    except LogdirError:
        raise
    except OSError as error:
        raise ReadError.of_system(path, "read", error) from error


def read_batches(
    source: BinaryIO, path: str, offset: int, chunk_bytes: int, max_record_bytes: int = MAX_RECORD_BYTES
) -> Iterator[tuple[list[Piece], int]]:
    """Yields the pieces of one chunk after the other, each list with the place to resume at after it."""
    decoder = RecordDecoder(offset, max_record_bytes=max_record_bytes)
    with read_errors(path):
        size = source.seek(0, os.SEEK_END)
        if size < offset:
            raise ReadError(
                f"{path}: has {counted(size, 'byte')}, reading was to go on at byte {offset}: it was replaced or cut"
            )
        source.seek(offset)
        position = offset
        has_given_up = False
        while True:
            if position >= size and not has_given_up:  # look again: it may have grown
                size = source.seek(0, os.SEEK_END)
                source.seek(position)
            chunk = source.read(min(chunk_bytes, size - position)) if position < size else b""
            if not chunk:
                break
            position += len(chunk)
            pieces: list[Piece] = [*decoder.feed(chunk)]
            if decoder.wanted > size > position and not has_given_up:
                size = source.seek(0, os.SEEK_END)
                source.seek(position)
            # The record that is being waited for ends behind the end of the file. Buffering up to there would let
            # a length that lies cost the whole file in memory; so whole records are looked for behind its start.
            # From here on the size is fixed: of what is appended now, nothing may be taken for such a record.
            while decoder.wanted > size > position and decoder.offset < position:
                has_given_up = True
                pieces += decoder.give_up()
            if pieces:
                yield pieces, decoder.offset
    rest = decoder.finish()
    if rest:
        yield rest, decoder.offset


def read_pieces(
    path: Path, *, offset: int = 0, chunk_bytes: int = CHUNK_BYTES, max_record_bytes: int = MAX_RECORD_BYTES
) -> Iterator[Piece]:
    """Reads a file's records from `offset` on, once, in bounded memory (a chunk, and one record if that is longer).

    A declared length above `max_record_bytes` is taken for damage.

    Yields:
        Records and what stands between them; at most one `Incomplete`, as the last piece.

    Raises:
        LogdirError: The file cannot be opened or read, or is shorter than `offset`.
    """
    path = os.fspath(path)
    with open_source(path) as source:
        for pieces, _ in read_batches(source, path, offset, chunk_bytes, max_record_bytes):
            yield from pieces


class EventFileReader:
    """Reads the events of one file; after each one it knows where a later reader may go on.

    Iterating again goes on at `offset`, which is how a growing file is followed. A record that is whole but no
    event comes out as `Damage`.

    Args:
        path: Local file or fsspec URL.
        decoder: Codec of the file's format.
        offset: Position to begin at: 0, or the `offset` of an earlier reader.

    Attributes:
        offset: Where to resume: behind the last piece given out. For `Incomplete` its start, and so for damage and
            padding that reach to the end of the file, since more bytes may complete a record there.
        record_offset: Start of the piece that was given out last.
        payload: Bytes of the event that was given out last.
        records_read: Whole records met so far, those that hold no event included.

    Raises:
        LogdirError: (on iterating) The file cannot be opened or read, or is shorter than `offset`.
        ClosedError: (on iterating) The reader was closed.
        UsageError: An argument cannot be so.
    """

    def __init__(
        self,
        path: Path,
        decoder: Decoder,
        *,
        offset: int = 0,
        chunk_bytes: int = CHUNK_BYTES,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self.path = check_path("path", path)
        check_number("offset", offset, 0)
        check_number("chunk_bytes", chunk_bytes, 1)
        check_number("max_record_bytes", max_record_bytes, 1)
        if not callable(getattr(decoder, "decode", None)):
            raise UsageError(f"decoder: must have a method decode, not {decoder!r}")
        self.offset = offset
        self.record_offset = offset
        self.payload = b""
        self.records_read = 0
        self._decoder = decoder
        self._limits = (chunk_bytes, max_record_bytes)
        self._running: Generator[Event | Damage | Padding | Incomplete, None, None] | None = None
        self._is_closed = False

    def __iter__(self) -> Iterator[Event | Damage | Padding | Incomplete]:
        if self._is_closed:
            raise ClosedError(f"{self.path}: the reader is closed")
        if self._running is not None:
            self._running.close()
        self._running = self._pieces()
        return self._running

    def _pieces(self) -> Generator[Event | Damage | Padding | Incomplete, None, None]:
        decode = self._decoder.decode
        with open_source(self.path) as source:
            for pieces, resume in read_batches(source, self.path, self.offset, *self._limits):
                for piece in pieces:
                    if isinstance(piece, Record):
                        self.payload = payload = piece.payload
                        start = piece.offset
                        self.record_offset = start
                        self.offset = end = start + _FRAME_BYTES + len(payload)
                        self.records_read += 1
                        try:
                            event = decode(payload)
                        except EventDecodeError as error:
                            yield Damage(start, end, f"not an event: {error.message}")
                        else:
                            yield event
                    elif isinstance(piece, Incomplete):
                        self.record_offset = self.offset = piece.offset
                        yield piece
                    else:
                        self.record_offset = piece.start
                        self.offset = min(piece.end, resume)
                        yield piece

    def close(self) -> None:
        """Ends a running iteration and closes the file; may be called again."""
        self._is_closed = True
        if self._running is not None:
            self._running.close()
            self._running = None

    def __enter__(self) -> EventFileReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
