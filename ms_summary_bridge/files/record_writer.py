"""Writes local files of records so that they always end with a whole one."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Final

from crc32c import crc32c

from ms_summary_bridge.errors import ClosedError, FileTakenError, LogdirError, OutputChangedError, WriteError, counted
from ms_summary_bridge.files.arguments import check_number, check_path
from ms_summary_bridge.files.atomic import make_directory, sync_names
from ms_summary_bridge.files.event_file import CHUNK_BYTES, Path
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import FOOTER_BYTES, HEADER_BYTES, LARGE_BYTES, Record, encode_record, frame
from ms_summary_bridge.files.system import O_BINARY, read_at, write_at

__all__ = ["RecordWriter", "create_unique"]

_MOST_PARTS: Final = 1024  # that Linux takes at once (IOV_MAX)


class RecordWriter:
    """Writes framed records to a local file that ends with a whole record whenever this writer rests.

    Args:
        path: File to write; missing parent directories are made.
        offset: None makes a new file. A number opens an existing one whose first `offset` bytes are known to be
            ours: behind them a crash may have come between writing and remembering. Bytes found there are compared
            with what is written now; equal ones are passed over, so that such a file is completed, not doubled.
            Zeros are written over: after a loss of power they stand for what the disk had not got.
        buffer_bytes: Records are handed to the operating system when they have this size together.
        checksum: CRC-32C of those `offset` bytes; None where it is not known.

    Attributes:
        path: File being written.
        checksum: The same of everything up to the last flush.

    Raises:
        FileTakenError: The file exists (`offset=None`).
        OutputChangedError: The file does not exist, or is shorter (a number).
        WriteError: It cannot be made or opened.
        UsageError: An argument cannot be so.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as directory, RecordWriter(directory + "/a/events") as writer:
        ...     writer.write(b"payload")
        ...     writer.offset
        23
    """

    def __init__(
        self,
        path: Path,
        *,
        offset: int | None = None,
        buffer_bytes: int = CHUNK_BYTES,
        checksum: int | None = 0,
    ) -> None:
        self.path = check_path("path", path, is_local=True)
        if offset is not None:
            check_number("offset", offset, 0)
        check_number("buffer_bytes", buffer_bytes, 1)
        self.checksum = checksum
        self._buffer_bytes = buffer_bytes
        self._pending: list[bytes] = []  # not yet in the file: whole records, large ones in parts
        self._pending_bytes = 0
        self._written = offset or 0  # end of the last record known to be in the file
        self._is_synced = True  # the disk has all of it, as far as we know
        self._unsynced_names: list[str] = []  # directories in which something was made
        self._fd = self._create() if offset is None else self._reopen(offset)

    def _create(self) -> int:
        self._file_end = 0
        directory = os.path.dirname(self.path) or "."
        try:
            self._unsynced_names = [directory, *make_directory(directory)]
        except OSError as error:
            raise WriteError.of_system(directory, "created", error) from error
        try:
            return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | O_BINARY, 0o644)
        except FileExistsError as error:
            raise FileTakenError(f"{self.path}: exists and would be overwritten") from error
        except OSError as error:
            raise WriteError.of_system(self.path, "created", error) from error

    def _reopen(self, offset: int) -> int:
        try:
            fd = os.open(self.path, os.O_RDWR | O_BINARY)
        except FileNotFoundError as error:
            raise OutputChangedError(f"{self.path}: is gone; writing was to go on at byte {offset}") from error
        except OSError as error:
            raise WriteError.of_system(self.path, "opened", error) from error
        self._file_end = os.lseek(fd, 0, os.SEEK_END)  # everything is appended here; above _written while overlapping
        if not offset:  # made by a process that may have been killed before the disk had its name
            self._unsynced_names = [os.path.dirname(self.path)]
        if self._file_end < offset:
            os.close(fd)
            raise OutputChangedError(
                f"{self.path}: has {counted(self._file_end, 'byte')}, {offset:,} were written: it was replaced or cut"
            )
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
        return sum(1 for _ in _records_of(b"".join(self._pending)))

    def payloads_from(self, offset: int) -> list[bytes]:
        """Returns the payloads of all records from `offset` on, where one begins: also when the file has been removed.

        Raises:
            WriteError: They cannot be read back.
        """
        try:
            data = read_at(self._fd, self._written - offset, offset) + b"".join(self._pending)
        except OSError as error:
            raise WriteError.of_system(self.path, "read back", error) from error
        return [piece.payload for piece in RecordDecoder().feed(data) if isinstance(piece, Record)]

    @property
    def surplus(self) -> int:
        """Bytes of the file behind all that was written: not yet compared. 0 but for a reopened file."""
        return max(self._file_end - self.offset, 0)

    def write(self, payload: bytes, checksum: int | None = None) -> None:
        """Frames one payload and buffers it; its CRC-32C may be given.

        Raises:
            WriteError, OutputChangedError: The buffer was full and could not be written; see `flush`.
            ClosedError: The writer is closed.
        """
        if self._fd < 0:
            raise ClosedError(f"{self.path}: the writer is closed")
        if len(payload) < LARGE_BYTES:
            self._pending.append(encode_record(payload, checksum))
        else:  # not worth a copy
            self._pending += frame(payload, checksum)
        self._pending_bytes += HEADER_BYTES + len(payload) + FOOTER_BYTES
        if self._pending_bytes >= self._buffer_bytes:
            self._drain()

    def write_records(self, block: bytes) -> None:
        """Buffers records that are framed already.

        Args:
            block: Whole records, one behind the other.

        Raises:
            WriteError, OutputChangedError: The buffer was full and could not be written; see `flush`.
            ClosedError: The writer is closed.
        """
        if self._fd < 0:
            raise ClosedError(f"{self.path}: the writer is closed")
        self._pending.append(block)
        self._pending_bytes += len(block)
        if self._pending_bytes >= self._buffer_bytes:
            self._drain()

    def flush(self, *, sync: bool = False) -> None:
        """Returns when the operating system has every record; with `sync`, when the disk has, and the file's name too.

        Raises:
            WriteError: Not all could be written (a full disk). The file is cut back to its last whole record, the
                others stay buffered: the next `flush` tries them again. Or the disk does not take it.
            OutputChangedError: A reopened file holds other bytes than those written now; it was not touched.
            ClosedError: The writer is closed.
        """
        if self._fd < 0:
            raise ClosedError(f"{self.path}: the writer is closed")
        self._drain()
        if sync and not self._is_synced:
            try:
                os.fsync(self._fd)
            except OSError as error:
                raise WriteError.of_system(self.path, "synced", error) from error
            self._is_synced = True
        if sync and self._unsynced_names:
            sync_names(*self._unsynced_names)
            self._unsynced_names = []

    def close(self, *, sync: bool = False) -> None:
        """Flushes and closes the file; may be called again. It is closed even if the flush raises."""
        if self._fd < 0:
            return
        try:
            self.flush(sync=sync)
        finally:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _drain(self) -> None:
        if not self._pending:
            return
        parts = self._parts()
        # Asked anew each time: an interrupt may have come between an earlier write and the note that it was done.
        self._file_end = os.lseek(self._fd, 0, os.SEEK_END)
        done = self._match(memoryview(b"".join(parts))) if self._file_end > self._written else 0
        try:
            while done < self._pending_bytes:
                done += self._write_from(parts, done)
        except OSError as error:
            self._settle(done)
            raise WriteError(
                f"{self.path}: cannot be written: {error.strerror or error}; "
                f"{counted(self._written, 'byte is', 'bytes are')} in the file, {self._pending_bytes} wait"
            ) from error
        self._pending.clear()
        self._pending_bytes = 0
        self._note(parts)
        self._file_end = max(self._file_end, self._written)

    def _parts(self) -> list[bytes]:
        """Returns what is not in the file yet: large records as they are, what stands between them joined."""
        parts: list[bytes] = []
        first = 0
        has_large = max(map(len, self._pending)) >= LARGE_BYTES
        for index, part in enumerate(self._pending if has_large else ()):
            if len(part) >= LARGE_BYTES:
                parts += (b"".join(self._pending[first:index]), part)
                first = index + 1
        return [*parts, b"".join(self._pending[first:])]

    def _write_from(self, parts: list[bytes], start: int) -> int:
        """Writes what stands behind the first `start` bytes of the parts; returns how much of it was taken."""
        rest: list[memoryview] = []
        for part in parts:
            if start < len(part):
                rest.append(memoryview(part)[start:])
            start = max(start - len(part), 0)
        if sys.platform != "win32" and len(rest) > 1:
            return os.writev(self._fd, rest[:_MOST_PARTS])
        return os.write(self._fd, rest[0])

    def _note(self, parts: list[bytes]) -> None:
        """Takes note of bytes that are in the file now; those of a killed process the disk may not have either."""
        self._is_synced = False
        for part in parts:
            self._written += len(part)
            if self.checksum is not None:
                self.checksum = crc32c(part, self.checksum)

    def _match(self, data: memoryview) -> int:
        """Returns how many of the bytes are in the file already; fills in those for which it has zeros."""
        there = min(self._file_end - self._written, len(data))
        done = 0
        while done < there:
            place = self._written + done
            try:
                found = read_at(self._fd, min(there - done, CHUNK_BYTES), place)
                wanted = bytes(data[done : done + len(found)])
                if found and found != wanted and all(a == b or not a for a, b in zip(found, wanted, strict=True)):
                    found = wanted[: write_at(self._fd, wanted, place)]
            except OSError as error:
                raise WriteError.of_system(self.path, "compared", error) from error
            if not found or found != data[done : done + len(found)]:
                raise OutputChangedError(
                    f"{self.path}: behind byte {place} it holds something else than this conversion "
                    "writes; use another destination or --force"
                )
            done += len(found)
        return done

    def _settle(self, done: int) -> None:
        """After a failed write: takes the records that are whole out of the buffer, cuts the file behind them."""
        kept = count = 0
        self._pending = [*_records_of(b"".join(self._pending))]
        for record in self._pending:
            if kept + len(record) > done:
                break
            kept += len(record)
            count += 1
        self._pending_bytes -= kept
        self._note(self._pending[:count])
        del self._pending[:count]
        with contextlib.suppress(OSError):  # else the torn bytes are an overlap, completed by the next flush
            os.ftruncate(self._fd, self._written)
        self._file_end = os.lseek(self._fd, 0, os.SEEK_END)  # what `surplus` counts from

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, at: object) -> None:
        try:
            self.close()
        except LogdirError:
            if error is None:  # else the first error matters more
                raise


def _records_of(block: bytes) -> Iterator[bytes]:
    """Yields the records of which a block is made."""
    start = 0
    while start < len(block):
        end = start + HEADER_BYTES + int.from_bytes(block[start : start + 8], "little") + FOOTER_BYTES
        yield block[start:end]
        start = end


def create_unique(directory: Path, name_of: Callable[[int], str], *, buffer_bytes: int = CHUNK_BYTES) -> RecordWriter:
    """Makes a new file under the first free of the names `name_of(0)`, `name_of(1)`, ...

    Raises:
        WriteError: A file cannot be made.
    """
    number = 0
    while True:
        try:
            return RecordWriter(os.path.join(directory, name_of(number)), buffer_bytes=buffer_bytes)
        except FileTakenError:
            number += 1
