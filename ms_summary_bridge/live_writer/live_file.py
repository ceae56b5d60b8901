"""One growing output of a live run, as a chain of files that nothing on the disk's side can make fail.

A full disk, a removed directory or a read-only one must never reach the training: what cannot be written waits, up to a
bound, and is tried again; beyond it, it is dropped and counted. Where files may not grow beyond a size (`ulimit -f`), a
new one is begun.
"""

from __future__ import annotations

import contextlib
import os
import resource
import stat
from collections.abc import Callable
from typing import Final

from ms_summary_bridge.errors import LogdirError, counted
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
        modes: Permissions while it grows, and once it is closed; None leaves them to the umask.
        fsync: A flush, and the end of a file, wait until the disk has it.
    """

    def __init__(
        self,
        directory: str,
        name_of: Callable[[int], str],
        head: list[bytes],
        warn: Callable[[str, str], None],
        *,
        max_file_bytes: int | None = None,
        modes: tuple[int, int] | None = None,
        fsync: bool = False,
    ) -> None:
        self._directory = directory
        self._name_of = name_of
        self._head = head
        self._warn = warn
        soft = resource.getrlimit(resource.RLIMIT_FSIZE)[0]  # beyond it writing fails, or ends the process
        self._file_limit = None if soft == resource.RLIM_INFINITY else soft
        bounds = [bound for bound in (max_file_bytes, self._file_limit) if bound is not None]
        self._max_file_bytes = min(bounds, default=None)
        self._least_bytes = sum(len(payload) + _FRAME_BYTES for payload in head)
        self._modes = modes
        self._fsync = fsync
        self._writer: RecordWriter | None = None
        self._number = 0  # of the next file, so that a later one never takes an earlier name
        self._head_bytes = 0
        self._inode: tuple[int, int] | None = None
        self._sure = 0  # up to here the file was whole when it was last seen in its place
        self.dropped = 0
        """Records that could not be written."""

    def write(self, payload: bytes) -> None:
        """Takes one payload: the bytes of one event."""
        size = len(payload) + _FRAME_BYTES
        if self._file_limit is not None and self._least_bytes + size > self._file_limit:
            self.dropped += 1
            self._warn("limit", f"a record of {size} bytes is left out: a file may have {self._file_limit} (ulimit -f)")
            return
        if self._writer is not None and self._is_full_for(self._writer, size):
            self.close()
        writer = self._writer or self._open()
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
        number = self._number
        try:
            writer = create_unique(self._directory, self._next_name)
        except LogdirError as error:
            self._number = number
            self._warn("open", f"{error}; it is tried again with the next value")
            return None
        if self._modes is not None:
            with contextlib.suppress(OSError):
                os.chmod(writer.path, self._modes[0])
        for payload in self._head:
            writer.write(payload)
        self._head_bytes = writer.offset
        self._inode = _inode(writer.path)
        self._sure = self._head_bytes
        self._writer = writer
        return writer

    def _next_name(self, _: int) -> str:
        name = self._name_of(self._number)
        self._number += 1
        return name

    def flush(self) -> bool:
        """Hands everything to the operating system, or the disk; returns whether that was possible."""
        writer = self._writer
        if writer is None:
            return True
        try:
            writer.flush(sync=self._fsync)
        except LogdirError as error:
            if self._is_in_place(writer):
                self._warn("write", f"{error}; it is tried again")
                return False
        if not self._is_in_place(writer):
            return self._move_on(writer)
        self._sure = writer.offset
        return True

    def _is_in_place(self, writer: RecordWriter) -> bool:
        return _inode(writer.path) == self._inode

    def _move_on(self, gone: RecordWriter) -> bool:
        """Leaves a file that was removed or replaced; what nobody has seen in it goes into a new one.

        Returns:
            Whether that was possible. Until it is, the records stay where they are, in a file without a name.
        """
        try:
            payloads = gone.payloads_from(self._sure)
        except LogdirError as error:
            self._warn("gone", f"{error}; what was written there last is lost")
            payloads = []
        self._writer = None
        place = "what comes next goes into a new file"
        if payloads:
            fresh = self._open()
            if fresh is None:
                self._writer = gone
                return False
            place = f"what was written there last ({counted(len(payloads), 'record')}) is in {fresh.path}"
            for payload in payloads:
                with contextlib.suppress(LogdirError):  # it waits, and the flush says so
                    fresh.write(payload)
        with contextlib.suppress(LogdirError):
            gone.close()
        is_flushed = self.flush()
        self._warn("gone", f"{gone.path} was removed or replaced while it was written; {place}")
        return is_flushed

    def close(self) -> None:
        """Writes what can be written, and closes; may be called again. What is written next opens another file."""
        if self._writer is not None and not self._is_in_place(self._writer):
            self.flush()
        writer, self._writer = self._writer, None
        if writer is None:
            return
        is_ours = self._is_in_place(writer)
        if not is_ours:  # no other file can be made: it is lost with this one
            with contextlib.suppress(LogdirError):
                lost = len(writer.payloads_from(self._sure))
                self.dropped += lost
                self._warn("close", f"{writer.path} is gone; {counted(lost, 'record is', 'records are')} lost")
        try:
            writer.close(sync=self._fsync)
        except LogdirError as error:
            if is_ours:
                self.dropped += writer.waiting_records
                lost = writer.waiting_records
                cost = "all is in the file, but maybe not on the disk"
                if lost:
                    cost = f"{counted(lost, 'record is', 'records are')} lost"
                self._warn("close", f"{error}; {cost}")
        if self._modes is not None and is_ours:
            with contextlib.suppress(OSError):
                os.chmod(writer.path, self._modes[1])


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None
