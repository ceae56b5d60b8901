"""A growing text file that nothing on the disk's side can make fail.

What a full disk or a vanished directory keeps from being written waits, up to a bound, and is tried again; beyond it,
it is dropped and counted.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable
from typing import Final

from ms_summary_bridge.errors import NOT_JSON, counted
from ms_summary_bridge.files.system import O_BINARY, read_at, try_lock
from ms_summary_bridge.monitor.sinks.writer import Sink

__all__ = ["FileSink", "LineFile"]

_MAX_WAITING_BYTES: Final = 8 << 20
_BLOCK: Final = 1 << 16


class LineFile:
    """Appends lines to a file. Only `flush` touches the disk, and it never raises.

    `head` gives the line that each new file begins with, and `lost` the one that says how many could not be written,
    and why; it is put in where that is over. `takes_over` is whether the process that wrote it has died: what is left
    of it, such as its data workers, may hold the lock yet. Beyond `max_bytes` the file is put aside under the next
    number; None for never.
    """

    def __init__(
        self,
        path: str,
        warn: Callable[[str, str], None],
        *,
        head: Callable[[], bytes] | None = None,
        lost: Callable[[int, str], bytes] | None = None,
        takes_over: bool = False,
        max_bytes: int | None = None,
    ) -> None:
        self.path = path
        self._warn = warn
        self._head = head
        self._lost = lost
        self._takes_over = takes_over
        self._reason = ""  # why nothing could be written the last time
        self._counted = 0  # of `dropped`
        self._max_bytes = max_bytes
        self._descriptor = -1
        self._size = 0
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.dropped = 0
        """Lines that could not be written."""
        self.healed: int | None = None
        """Bytes of a torn last line that a crash had left and that were cut off; None when there was none."""

    def append(self, line: bytes) -> None:
        """Takes one line, without its end."""
        if self._waiting_bytes > _MAX_WAITING_BYTES:
            self.dropped += 1
            why = f" ({self._reason})" if self._reason else ""
            self._say("full", f": more waits to be written than can be kept{why}: lines are left out")
            return
        self._waiting.append(line + b"\n")
        self._waiting_bytes += len(line) + 1

    def _say(self, kind: str, what: str) -> None:
        self._warn(f"{kind} {self.path}", f"{self.path}{what}")

    def open(self) -> bool:
        """Opens the file if it is not open; returns whether it is."""
        if self._descriptor >= 0:
            return True
        try:
            descriptor = self._open_locked()
            self._descriptor = descriptor
            self._heal()
            self._size = os.fstat(descriptor).st_size
        except OSError as error:
            self._reason = error.strerror or str(error)
            self._say("open", f" cannot be opened: {self._reason}; it is tried again")
            self._close()
            return False
        if self._head is not None:
            head = self._head() + b"\n"
            self._waiting.insert(0, head)
            self._waiting_bytes += len(head)
        return True

    def _open_locked(self) -> int:
        """Opens the file for this process alone: two that append, and heal, would cut each other's lines."""
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | O_BINARY
        descriptor = os.open(self.path, flags, 0o644)
        try:
            if self._takes_over or try_lock(descriptor):
                return descriptor
        except OSError:  # a file system without locks
            return descriptor
        os.close(descriptor)
        root, ending = os.path.splitext(self.path)
        other = f"{root}-{os.getpid()}{ending}"
        self._warn(f"locked {self.path}", f"another process writes {self.path}; this one writes {other}")
        self.path = other
        return os.open(other, flags, 0o644)

    def _heal(self) -> None:
        """Cuts off a last line that a crash has torn; a whole one that lacks its end gets it."""
        size = os.fstat(self._descriptor).st_size
        tail = b""
        place = size
        while place > 0 and b"\n" not in tail:
            length = min(_BLOCK, place)
            place -= length
            tail = read_at(self._descriptor, length, place) + tail
        torn = tail.rpartition(b"\n")[2]
        if not torn:
            return
        try:
            json.loads(torn)
        except NOT_JSON:
            os.ftruncate(self._descriptor, size - len(torn))
            self.healed = len(torn)
        else:
            os.write(self._descriptor, b"\n")

    def flush(self) -> bool:
        """Hands all lines to the operating system; returns whether that was possible."""
        if not self._waiting and self._descriptor < 0:
            return True
        if self._descriptor >= 0 and not self._is_there():
            self._say("gone", " was removed while it was written; a new file is begun")
            self._close()
        if not self.open():
            return False
        while self._waiting or self._tell_lost():
            if self._max_bytes is not None and self._size > self._max_bytes and not self._rotate():
                return False
            # Whole lines in one call, so that a reader and a crash meet torn ones as seldom as can be.
            limit = _BLOCK if self._max_bytes is None else min(_BLOCK, max(1, self._max_bytes - self._size))
            count, length = 0, 0
            for line in self._waiting:
                if count and length + len(line) > limit:
                    break
                count, length = count + 1, length + len(line)
            chunk = b"".join(self._waiting[:count])
            try:
                written = os.write(self._descriptor, chunk)
            except OSError as error:
                self._reason = error.strerror or str(error)
                self._say("write", f" cannot be written: {self._reason}; it is tried again")
                return False
            self._size += written
            self._waiting_bytes -= written
            self._waiting[:count] = [chunk[written:]] if written < len(chunk) else []
        return True

    def _tell_lost(self) -> bool:
        """Puts in how many lines are missing here; returns whether there was such a thing to say."""
        if self._lost is None or self.dropped == self._counted:
            return False
        line = self._lost(self.dropped - self._counted, self._reason) + b"\n"
        self._counted = self.dropped
        self._waiting.append(line)
        self._waiting_bytes += len(line)
        return True

    def _is_there(self) -> bool:
        with contextlib.suppress(OSError):
            return os.path.samestat(os.stat(self.path), os.fstat(self._descriptor))
        return False

    def _rotate(self) -> bool:
        root, ending = os.path.splitext(self.path)
        number = next(number for number in itertools.count(1) if not os.path.exists(f"{root}.{number}{ending}"))
        try:
            os.rename(self.path, f"{root}.{number}{ending}")
        except OSError as error:
            self._say("rotate", f" cannot be put aside: {error.strerror}; it grows on")
            self._max_bytes = None
            return True
        self._close()
        return self.open()

    def _close(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = -1

    def close(self) -> None:
        """Writes what can be written, and closes; may be called again."""
        if not self.flush():
            self.dropped += len(self._waiting)
            self._waiting, self._waiting_bytes = [], 0
        if self.dropped:
            self._say("missing", f" lacks {counted(self.dropped, 'line')} that could not be written: {self._reason}")
        self._close()


class FileSink(Sink):
    """A sink with a file of lines."""

    def __init__(self, file: LineFile) -> None:
        self.file = file

    def open(self) -> None:
        """Opens the file."""
        self.file.open()

    def flush(self) -> bool:
        """Hands all to the operating system; returns whether that was possible."""
        return self.file.flush()

    def close(self) -> None:
        """Closes the file."""
        self.file.close()
