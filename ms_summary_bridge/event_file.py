"""Event files: reads one from any position, writes one so that it always ends with a whole record.

Layer: records, events, formats.wire < **event_file**. The only module that reads or writes the bytes of event files.

A path is a local file or an fsspec URL (`s3://bucket/run/...`); files are written locally.

Reading keeps a snapshot in mind: the file's size is taken first and again when its end is reached, so that a live
file gives every record that is whole, and a record that lies about its length is found out by that size instead
of being waited for in memory.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import BinaryIO, Final, TypeAlias, cast

import msgspec

from ms_summary_bridge.errors import ClosedError, EventDecodeError, LogdirError, MissingDependencyError
from ms_summary_bridge.events import Decoder, Event
from ms_summary_bridge.records import (
    FOOTER_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    Damage,
    Incomplete,
    Padding,
    Piece,
    Record,
    RecordDecoder,
    encode_record,
)

__all__ = [
    "CHUNK_BYTES",
    "EventFileReader",
    "Head",
    "Path",
    "RecordWriter",
    "create_unique",
    "is_url",
    "last_wall_time",
    "open_source",
    "peek",
    "read_pieces",
]

CHUNK_BYTES: Final = 1 << 20
_PEEK_BYTES: Final = 1 << 16
_FRAME_BYTES: Final = HEADER_BYTES + FOOTER_BYTES

Path: TypeAlias = str | os.PathLike[str]


def _failure(path: str, doing: str, error: OSError) -> LogdirError:
    return LogdirError(f"{path}: cannot be {doing}: {error.strerror or error}")


def is_url(path: str) -> bool:
    """Whether `path` is for fsspec (`s3://...`) rather than for the operating system."""
    return "://" in path


def open_source(path: Path) -> BinaryIO:
    """Opens a local file or an fsspec URL for reading, unbuffered.

    Raises:
        LogdirError: It cannot be opened, or the protocol of the URL is unknown.
        MissingDependencyError: The protocol needs a package that is not installed.
    """
    path = os.fspath(path)
    try:
        if not is_url(path):
            return open(path, "rb", buffering=0)
        from fsspec.core import url_to_fs  # here, as most callers read local files and need not wait for its import

        filesystem, inner = url_to_fs(path)
        source = filesystem.open(inner, "rb")
        with contextlib.suppress(AttributeError):
            source.fs = filesystem  # one for archives closes what it opened when nobody holds it any longer
        return cast(BinaryIO, source)
    except OSError as error:
        raise _failure(path, "opened", error) from error
    except ImportError as error:
        raise MissingDependencyError(f"{path}: {error}") from error
    except ValueError as error:
        raise LogdirError(f"{path}: {error}") from error


def _batches(
    source: BinaryIO, path: str, offset: int, chunk_bytes: int, max_record_bytes: int
) -> Iterator[tuple[list[Piece], int]]:
    """Yields the pieces of one chunk after the other, each list with the place to resume at after it."""
    decoder = RecordDecoder(offset, max_record_bytes=max_record_bytes)
    try:
        size = source.seek(0, os.SEEK_END)
        if size < offset:
            raise LogdirError(
                f"{path}: has {size} bytes, reading was to go on at byte {offset}: it was replaced or cut"
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
    except LogdirError:
        raise
    except OSError as error:
        raise _failure(path, "read", error) from error
    rest = decoder.finish()
    if rest:
        yield rest, decoder.offset


def read_pieces(
    path: Path, *, offset: int = 0, chunk_bytes: int = CHUNK_BYTES, max_record_bytes: int = MAX_RECORD_BYTES
) -> Iterator[Piece]:
    """Reads a file's records, once, in bounded memory (a chunk, and one record if that is longer).

    Args:
        path: Local file or fsspec URL.
        offset: Position of the first byte to read.
        chunk_bytes: How much to read at a time.
        max_record_bytes: A declared length above this is taken for damage.

    Yields:
        Records and what stands between them; at most one `Incomplete`, as the last piece.

    Raises:
        LogdirError: The file cannot be opened or read, or is shorter than `offset`.
    """
    path = os.fspath(path)
    with open_source(path) as source:
        for pieces, _ in _batches(source, path, offset, chunk_bytes, max_record_bytes):
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
        records_read: Whole records met so far, those that are no events included.

    Raises:
        LogdirError: (on iterating) The file cannot be opened or read, or is shorter than `offset`.
        ClosedError: (on iterating) The reader was closed.
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
        self.path = os.fspath(path)
        self.offset = offset
        self.record_offset = offset
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
            for pieces, resume in _batches(source, self.path, self.offset, *self._limits):
                for piece in pieces:
                    if isinstance(piece, Record):
                        payload = piece.payload
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


class Head(msgspec.Struct, frozen=True):
    """What a file begins with."""

    first: Record | None
    """The first whole record; None when there is none."""
    has_more: bool
    """Whether anything but zeros follows it: a record, damage, or a record that is cut."""
    damage: str
    """What is wrong with bytes before it (or in the file, if it has none) that are no record and not just cut."""
    size: int
    """Bytes of the file."""


def peek(path: Path) -> Head:
    """Looks at the beginning of a file, reading little more than its first record.

    Raises:
        LogdirError: The file cannot be opened or read.
    """
    path = os.fspath(path)
    damage = ""
    with open_source(path) as source:
        for pieces, _ in _batches(source, path, 0, _PEEK_BYTES, MAX_RECORD_BYTES):
            for piece in pieces:
                if isinstance(piece, Record):
                    return Head(piece, _has_more(source, path, piece.end), damage, _size(source, path))
                if isinstance(piece, Damage):
                    damage = damage or piece.reason
        return Head(None, False, damage, _size(source, path))


def _size(source: BinaryIO, path: str) -> int:
    try:
        return source.seek(0, os.SEEK_END)
    except OSError as error:
        raise _failure(path, "read", error) from error


def _has_more(source: BinaryIO, path: str, position: int) -> bool:
    try:
        source.seek(position)
        while chunk := source.read(_PEEK_BYTES):
            if chunk.count(0) < len(chunk):
                return True
    except OSError as error:
        raise _failure(path, "read", error) from error
    return False


def last_wall_time(path: Path, decoder: Decoder) -> float | None:
    """Returns the wall_time of a file's last event, reading only its tail; None when it has no event.

    Args:
        path: Local file or fsspec URL.
        decoder: A codec of the file's format that nobody else uses: it is fed events out of order.

    Raises:
        LogdirError: The file cannot be opened or read.
    """
    path = os.fspath(path)
    with open_source(path) as source:
        size = _size(source, path)
        window = CHUNK_BYTES
        while True:
            start = max(size - window, 0)  # most likely inside a record: the decoder finds the next whole one
            payloads = [
                piece.payload
                for pieces, _ in _batches(source, path, start, CHUNK_BYTES, MAX_RECORD_BYTES)
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


class RecordWriter:
    """Writes framed records to a local file that ends with a whole record whenever this writer rests.

    Args:
        path: File to write; missing parent directories are made.
        offset: None makes a new file. A number opens an existing one whose first `offset` bytes are known to be
            ours: behind them a crash may have come between writing and remembering. Bytes found there are compared
            with what is written now; equal ones are passed over, so that such a file is completed, not doubled.
        buffer_bytes: Records are handed to the operating system when they have this size together.

    Attributes:
        path: File being written.

    Raises:
        LogdirError: The file exists (`offset=None`), or does not or is shorter (a number), or cannot be opened.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory, RecordWriter(directory + "/a/events") as writer:
        ...     writer.write(b"payload")
        ...     writer.offset
        23
    """

    def __init__(self, path: Path, *, offset: int | None = None, buffer_bytes: int = CHUNK_BYTES) -> None:
        self.path = os.fspath(path)
        self._buffer_bytes = buffer_bytes
        self._pending: list[bytes] = []  # whole records, not yet in the file
        self._pending_bytes = 0
        self._written = offset or 0  # end of the last record known to be in the file
        self._fd = self._create() if offset is None else self._reopen(offset)

    def _create(self) -> int:
        self._file_end = 0
        directory = os.path.dirname(self.path) or "."
        try:
            os.makedirs(directory, exist_ok=True)
        except OSError as error:
            # Not as the cause: a file where a directory should be is no name that is taken, see create_unique.
            raise _failure(directory, "created", error) from None
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError as error:
            raise LogdirError(f"{self.path}: exists and would be overwritten") from error
        except OSError as error:
            raise _failure(self.path, "created", error) from error

    def _reopen(self, offset: int) -> int:
        try:
            fd = os.open(self.path, os.O_RDWR)
        except OSError as error:
            raise _failure(self.path, "opened", error) from error
        self._file_end = os.lseek(fd, 0, os.SEEK_END)  # everything is appended here; above _written while overlapping
        if self._file_end < offset:
            os.close(fd)
            raise LogdirError(f"{self.path}: has {self._file_end} bytes, {offset} were written: it was replaced or cut")
        return fd

    @property
    def offset(self) -> int:
        """Where the next record will begin, buffered ones counted."""
        return self._written + self._pending_bytes

    @property
    def waiting_bytes(self) -> int:
        """Bytes of whole records that are not in the file yet."""
        return self._pending_bytes

    @property
    def waiting_records(self) -> int:
        """Records that are not in the file yet."""
        return len(self._pending)

    @property
    def surplus(self) -> int:
        """Bytes of the file behind all that was written: not yet compared. 0 but for a reopened file."""
        return max(self._file_end - self.offset, 0)

    def write(self, payload: bytes) -> None:
        """Frames one payload and buffers it.

        Raises:
            LogdirError: The buffer was full and could not be written; see `flush`.
            ClosedError: The writer is closed.
        """
        if self._fd < 0:
            raise ClosedError(f"{self.path}: the writer is closed")
        record = encode_record(payload)
        self._pending.append(record)
        self._pending_bytes += len(record)
        if self._pending_bytes >= self._buffer_bytes:
            self._drain()

    def flush(self, *, sync: bool = False) -> None:
        """Returns when the operating system has every record; with `sync`, when the disk has.

        Raises:
            LogdirError: Not all could be written (a full disk). The file is cut back to its last whole record, the
                others stay buffered: the next `flush` tries them again. Or a reopened file holds other bytes than
                those written now; then it was not touched.
            ClosedError: The writer is closed.
        """
        if self._fd < 0:
            raise ClosedError(f"{self.path}: the writer is closed")
        self._drain()
        if sync:
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise _failure(self.path, "synced", error) from error

    def close(self) -> None:
        """Flushes and closes the file; may be called again. It is closed even if the flush raises."""
        if self._fd < 0:
            return
        try:
            self._drain()
        finally:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _drain(self) -> None:
        if not self._pending:
            return
        data = memoryview(b"".join(self._pending))
        done = self._match(data) if self._file_end > self._written else 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError as error:
            self._settle(done)
            raise LogdirError(
                f"{self.path}: cannot be written: {error.strerror or error}; "
                f"{self._written} bytes are in the file, {self._pending_bytes} wait"
            ) from error
        self._pending.clear()
        self._pending_bytes = 0
        self._written += len(data)
        self._file_end = max(self._file_end, self._written)

    def _match(self, data: memoryview) -> int:
        """Returns how many of the bytes are in the file already."""
        there = min(self._file_end - self._written, len(data))
        done = 0
        while done < there:
            try:
                found = os.pread(self._fd, min(there - done, CHUNK_BYTES), self._written + done)
            except OSError as error:
                raise _failure(self.path, "compared", error) from error
            if not found or found != data[done : done + len(found)]:
                raise LogdirError(
                    f"{self.path}: behind byte {self._written + done} it holds something else than this conversion "
                    "writes; use another destination or --force"
                )
            done += len(found)
        return done

    def _settle(self, done: int) -> None:
        """After a failed write: takes the records that are whole out of the buffer, cuts the file behind them."""
        kept = count = 0
        for record in self._pending:
            if kept + len(record) > done:
                break
            kept += len(record)
            count += 1
        del self._pending[:count]
        self._pending_bytes -= kept
        self._written += kept
        with contextlib.suppress(OSError):  # else the torn bytes are an overlap, completed by the next flush
            os.ftruncate(self._fd, self._written)
        self._file_end = os.lseek(self._fd, 0, os.SEEK_END)

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.close()
        except LogdirError:
            if error is None:  # else the first error matters more
                raise


def create_unique(directory: Path, name_of: Callable[[int], str], *, buffer_bytes: int = CHUNK_BYTES) -> RecordWriter:
    """Makes a new file under the first free of the names `name_of(0)`, `name_of(1)`, ...

    Raises:
        LogdirError: A file cannot be created, for another reason than that its name is taken.
    """
    number = 0
    while True:
        try:
            return RecordWriter(os.path.join(directory, name_of(number)), buffer_bytes=buffer_bytes)
        except LogdirError as error:
            if not isinstance(error.__cause__, FileExistsError):
                raise
            number += 1
