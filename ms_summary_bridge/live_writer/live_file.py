"""One growing output of a live run, as a chain of files that nothing on the disk's side can make fail.

A full disk, a removed directory or a read-only one must never reach the training: what cannot be written waits, up to a
bound, and is tried again; beyond it, it is dropped and counted.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from typing import Final

from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.files.record_writer import RecordWriter, create_unique
from ms_summary_bridge.files.records import FOOTER_BYTES, HEADER_BYTES

__all__ = ["LiveFile"]

_MAX_WAITING_BYTES: Final = 64 << 20
_FRAME_BYTES: Final = HEADER_BYTES + FOOTER_BYTES


class LiveFile:
    """A chain of files with one kind of records.

    Args:
        directory: Where the files go; made when the first one is.
        name_of: Gives the name of the file for an attempt: the first free one is taken.
        head: Payloads that every file begins with.
        warn: Is told of trouble, once for each kind of trouble.
        max_file_bytes: A record that would take a file beyond this opens the next one; None for one file.
        open_mode: Permissions while it grows; None leaves them to the umask.
        closed_mode: Permissions once it is closed; None leaves them as they are.
    """

    def __init__(
        self,
        directory: str,
        name_of: Callable[[int], str],
        head: list[bytes],
        warn: Callable[[str, str], None],
        *,
        max_file_bytes: int | None = None,
        open_mode: int | None = None,
        closed_mode: int | None = None,
    ) -> None:
        self._directory = directory
        self._name_of = name_of
        self._head = head
        self._warn = warn
        self._max_file_bytes = max_file_bytes
        self._open_mode = open_mode
        self._closed_mode = closed_mode
        self._writer: RecordWriter | None = None
        self._number = 0  # of the next file, so that a later one never takes an earlier name
        self._head_bytes = 0
        self._inode: tuple[int, int] | None = None
        self.paths: list[str] = []
        """The files made so far; the last one grows."""
        self.dropped = 0
        """Records that could not be written."""

    def write(self, payload: bytes) -> None:
        """Takes one payload: the bytes of one event."""
        writer = self._writer
        if writer is not None and self._is_full_for(writer, len(payload) + _FRAME_BYTES):
            self._finish()
            writer = None
        if writer is None:
            writer = self._open()
            if writer is None:
                self.dropped += 1
                return
        if writer.waiting_bytes > _MAX_WAITING_BYTES:
            self.dropped += 1
            return
        try:
            writer.write(payload)
        except LogdirError as error:
            self._warn("write", f"{error}; it is tried again")

    def _is_full_for(self, writer: RecordWriter, size: int) -> bool:
        """Whether a record must go into the next file; one that is too long for any file gets one of its own."""
        if self._max_file_bytes is None or writer.offset == self._head_bytes:
            return False
        return writer.offset + size > self._max_file_bytes

    def _open(self) -> RecordWriter | None:
        start = self._number
        taken = start

        def name_of(number: int) -> str:
            nonlocal taken
            taken = start + number
            return self._name_of(taken)

        try:
            writer = create_unique(self._directory, name_of)
        except LogdirError as error:
            self._warn("open", f"{error}; it is tried again with the next value")
            return None
        self._number = taken + 1
        if self._open_mode is not None:
            with contextlib.suppress(OSError):
                os.chmod(writer.path, self._open_mode)
        for payload in self._head:
            writer.write(payload)
        self._head_bytes = writer.offset
        self._inode = _inode(writer.path)
        self.paths.append(writer.path)
        self._writer = writer
        return writer

    def flush(self) -> bool:
        """Hands everything to the operating system; returns whether that was possible."""
        writer = self._writer
        if writer is None:
            return True
        try:
            writer.flush()
        except LogdirError as error:
            self._warn("write", f"{error}; it is tried again")
            return False
        if _inode(writer.path) != self._inode:
            self._warn("gone", f"{writer.path} was removed or replaced while it was written; a new file is begun")
            self._finish()
        return True

    def _finish(self) -> None:
        writer, self._writer = self._writer, None
        if writer is None:
            return
        is_ours = _inode(writer.path) == self._inode
        try:
            writer.close()
        except LogdirError as error:
            self.dropped += writer.waiting_records
            self._warn("close", f"{error}; {writer.waiting_records} records are lost")
        if self._closed_mode is not None and is_ours:
            with contextlib.suppress(OSError):
                os.chmod(writer.path, self._closed_mode)

    def close(self) -> None:
        """Writes what can be written, and closes; may be called again."""
        self._finish()


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
