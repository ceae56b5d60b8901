"""A queue in shared memory, from the training process to the writer process.

Linux only (memfd); `RingProducer` raises OSError elsewhere.

What the training thread has put here is safe from then on: when the training process dies, by whatever signal, the
writer process still has the memory and writes it out. Putting never blocks: without room it says so at once.

A message's bytes lie in one piece in the ring. That it is there is told through a pipe, as (offset, length); the
kernel's locks order the two for other processors, which a counter in the shared memory alone would not do on ARM. When
the ring runs empty it begins again at its start, so it takes up no more memory than the backlog ever had.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import pickle
import resource
import select
import struct
from collections import deque
from typing import Any, Final

__all__ = ["RingConsumer", "RingProducer", "open_pipe"]

_DOORBELL: Final = struct.Struct("<QQ")  # offset and length of a message
_COUNT: Final = struct.Struct("<Q")  # messages taken so far, at the start of the memory
_SIZES: Final = struct.Struct("<Q")
_HEAD_BYTES: Final = 64
_ALIGN: Final = 64
_LIGHT_BYTES: Final = 4096
_PIPE_BYTES: Final = 1 << 20  # room for 65,536 doorbells


def _aligned(size: int) -> int:
    return (size + _ALIGN - 1) // _ALIGN * _ALIGN


def _off_standard_streams(descriptor: int) -> int:
    """Returns another number for a descriptor that got 0, 1 or 2, as in a process that was started without them.

    What others print would go into it, and in a child process those three are other files.
    """
    if descriptor > 2:
        return descriptor
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(descriptor)


def open_pipe() -> tuple[int, int]:
    """Returns the reading and the writing end of a pipe; neither is a standard stream."""
    reading, writing = os.pipe()
    return _off_standard_streams(reading), _off_standard_streams(writing)


def _open_doorbell() -> tuple[int, int]:
    reading, writing = open_pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(OSError):  # an unprivileged user may have used up the allowance: a shorter pipe does
        fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return reading, writing


class RingProducer:
    """The end that puts messages in; used by one thread at a time.

    The consumer is given two descriptors: `memory_fd` of the shared memory, `doorbell_fd` of the pipe's reading end.

    Args:
        size: Bytes that may wait. Memory is taken only as it is needed. Less where files may not have as much
            (`ulimit -f`), which this memory counts as.
    """

    def __init__(self, size: int) -> None:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if limit != resource.RLIM_INFINITY:  # asked first: beyond it comes a signal
            size = min(size, max(0, limit - _HEAD_BYTES - _ALIGN))
        self.size = _aligned(size)
        with contextlib.ExitStack() as stack:  # nothing stays open where one of them cannot be had
            self.memory_fd = _off_standard_streams(os.memfd_create("ms_summary_bridge"))
            stack.callback(os.close, self.memory_fd)
            os.ftruncate(self.memory_fd, _HEAD_BYTES + self.size)
            self._memory = mmap.mmap(self.memory_fd, _HEAD_BYTES + self.size)
            stack.callback(self._memory.close)
            self.doorbell_fd, self._bell = _open_doorbell()
            stack.pop_all()
        self._waiting: deque[tuple[int, int]] = deque()  # put, and not taken yet
        self._unrung: deque[tuple[int, int]] = deque()  # put, and the pipe had no room to say so
        self._taken = 0

    @property
    def backlog(self) -> int:
        """Messages that the consumer has not finished with."""
        self._forget_taken()
        return len(self._waiting)

    def put(self, message: Any) -> bool:
        """Puts a message in, arrays without a copy in between.

        Returns:
            False when there is no room: nothing was put.

        Raises:
            BrokenPipeError: The consumer is gone. The message was put: `reattach` and `wake_consumer` hand it on.
        """
        buffers: list[pickle.PickleBuffer] = []
        head = pickle.dumps(message, protocol=5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
        sizes = [len(head), *(view.nbytes for view in views)]
        table = _SIZES.pack(len(sizes)) + b"".join(map(_SIZES.pack, sizes))
        length = _aligned(len(table)) + sum(map(_aligned, sizes))
        offset = self._room_for(length)
        if offset is None:
            return False
        position = _HEAD_BYTES + offset
        for part, size in zip((memoryview(table), memoryview(head), *views), (len(table), *sizes), strict=True):
            self._memory[position : position + size] = part
            position += _aligned(size)
        self._waiting.append((offset, length))
        self._unrung.append((offset, length))
        self.wake_consumer()
        return True

    def wake_consumer(self) -> None:
        """Tells the consumer of all messages that it was not told of, as far as the pipe has room."""
        while self._unrung:
            try:
                os.write(self._bell, _DOORBELL.pack(*self._unrung[0]))  # below PIPE_BUF: whole or not at all
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    raise BrokenPipeError("the writer process is gone") from error
                raise
            self._unrung.popleft()

    def _forget_taken(self) -> None:
        (count,) = _COUNT.unpack_from(self._memory)
        while self._taken < count and self._waiting:
            self._waiting.popleft()
            self._taken += 1

    def _room_for(self, length: int) -> int | None:
        self._forget_taken()
        if not self._waiting:
            return 0 if length <= self.size else None
        first, (last, last_length) = self._waiting[0][0], self._waiting[-1]
        end = last + last_length
        if last >= first:  # waiting messages lie in one piece: behind it, else in front of it
            if end + length <= self.size:
                return end
            return 0 if length <= first else None
        return end if end + length <= first else None

    def close_consumer_ends(self) -> None:
        """Closes this process's copy of what belongs to the consumer, once that has it. May be called again."""
        if self.doorbell_fd >= 0:
            os.close(self.doorbell_fd)
            self.doorbell_fd = -1

    def reattach(self) -> int:
        """Makes a new pipe for a new consumer after the first one died.

        Returns:
            How many messages wait. They are told again, so what the dead consumer had not finished is not lost.

        Raises:
            OSError: The pipe cannot be made; all is as it was.
        """
        reading, writing = _open_doorbell()
        os.close(self._bell)
        self.doorbell_fd, self._bell = reading, writing
        self._forget_taken()
        self._unrung = deque(self._waiting)
        return len(self._waiting)

    def close(self) -> None:
        """Says that no more comes; the consumer still takes what waits. May be called again."""
        if self._bell >= 0:
            os.close(self._bell)
            self._bell = -1
            self._memory.close()
            os.close(self.memory_fd)


class RingConsumer:
    """The end that takes messages out, in another process."""

    def __init__(self, memory_fd: int, doorbell_fd: int) -> None:
        self._memory = mmap.mmap(memory_fd, os.fstat(memory_fd).st_size)
        self._view = memoryview(self._memory)
        self._bell = doorbell_fd
        os.set_blocking(doorbell_fd, False)
        self._poll = select.poll()  # not select(), which knows no descriptor above 1023
        self._poll.register(doorbell_fd, select.POLLIN)
        self._heard = b""
        self._length = 0
        (self._count,) = _COUNT.unpack_from(self._memory)
        self.is_ended = False
        """The producer has said that no more comes, or is gone, and everything was taken."""

    def take(self, timeout: float) -> Any:
        """Returns the next message; None when none came in `timeout` seconds, or none will come.

        The arrays in it lie in the shared memory: they are valid until `done`.
        """
        if len(self._heard) < _DOORBELL.size:
            if not self._poll.poll(timeout * 1000):
                return None
            try:
                heard = os.read(self._bell, 1 << 16)
            except BlockingIOError:
                return None
            if not heard:
                self.is_ended = True
                return None
            self._heard += heard
        offset, self._length = _DOORBELL.unpack_from(self._heard)
        self._heard = self._heard[_DOORBELL.size :]
        return self._load(_HEAD_BYTES + offset)

    def _load(self, position: int) -> Any:
        (parts,) = _SIZES.unpack_from(self._view, position)
        sizes = [_SIZES.unpack_from(self._view, position + _SIZES.size * (1 + index))[0] for index in range(parts)]
        position += _aligned(_SIZES.size * (1 + parts))
        views = []
        for size in sizes:
            views.append(self._view[position : position + size].toreadonly())
            position += _aligned(size)
        return pickle.loads(views[0], buffers=views[1:])

    @property
    def is_light(self) -> bool:
        """Whether the message taken last was short, and none behind it is known: waiting takes up little room."""
        return self._length <= _LIGHT_BYTES and not self._heard

    def done(self) -> None:
        """Gives the room of the message taken last back to the producer."""
        self._count += 1
        _COUNT.pack_into(self._memory, 0, self._count)
