"""System: what Windows and macOS do otherwise than Linux, under one name each: locks, reads at a place, names.

Elsewhere nobody asks which system it is, but for processes (`viewers.guard`) and links (`files.links`). The tests are
written as `sys.platform == "win32"`, by which mypy knows what either system has.

Sources: https://docs.python.org/3/library/msvcrt.html#msvcrt.locking; names that Windows does not take,
https://learn.microsoft.com/windows/win32/fileio/naming-a-file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import stat
import sys
import time
from collections.abc import Iterator
from typing import Final

__all__ = [
    "NEW_GROUP",
    "O_BINARY",
    "allowed_name",
    "fold_name",
    "holding_interrupts",
    "longest_names",
    "open_regular",
    "read_at",
    "replace",
    "try_lock",
    "write_at",
]

O_BINARY: Final[int] = getattr(os, "O_BINARY", 0)
"""Flag of `os.open`, without which Windows writes each line end as two bytes. Python adds O_CLOEXEC by itself."""
NEW_GROUP: Final = 0x200 if sys.platform == "win32" else 0
"""What `start_new_session` of a subprocess is on Windows, as `creationflags`: it keeps Ctrl-C away.

`subprocess.CREATE_NEW_PROCESS_GROUP`, without the module, which takes a while to load.
"""
_O_NONBLOCK: Final[int] = getattr(os, "O_NONBLOCK", 0)
_PLACES: Final = 64
_LOOK_SECS: Final = 0.05
_BUSY_SECS: Final = 1.0
_FORBIDDEN: Final = re.compile(r'[<>:"\\|?*\x00-\x1f]|[. ]+$|^(?=(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$))', re.I)


def try_lock(descriptor: int, *, is_shared: bool = False, is_waiting: bool = False) -> bool:
    """Locks an open file until it is closed, which the system does when the process dies; False if another has it.

    With `is_shared`, several may hold it but nobody alone; with `is_waiting`, it waits until it can have it.

    Raises:
        OSError: The file system has no locks.
    """
    if sys.platform == "win32":
        while not (has_it := _lock_places(descriptor, is_shared)) and is_waiting:
            time.sleep(_LOOK_SECS)
        return has_it
    else:
        import fcntl

        kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        try:
            fcntl.flock(descriptor, kind if is_waiting else kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _lock_places(descriptor: int, is_shared: bool) -> bool:
    """Windows locks ranges of bytes, for one alone: who wants the file alone takes all of 64, who shares it any one."""
    if sys.platform == "win32":
        import msvcrt

        for place in range(_PLACES if is_shared else 1):
            os.lseek(descriptor, place, os.SEEK_SET)
            with contextlib.suppress(PermissionError):
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1 if is_shared else _PLACES)
                return True
    return False


def open_regular(path: str, flags: int) -> int:
    """An opener for `open`: in the place of a file, a pipe or a device is an error, and never waited for.

    Raises:
        OSError: It cannot be opened, or is no file.
    """
    descriptor = os.open(path, flags | O_BINARY | _O_NONBLOCK)
    kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
    if kind not in (stat.S_IFREG, stat.S_IFDIR):  # of a directory `open` itself says what it is
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", path)
    return descriptor


def read_at(descriptor: int, size: int, offset: int) -> bytes:
    """Reads up to `size` bytes from `offset` on; the place at which the file is written stays. One thread at a time.

    Raises:
        OSError: They cannot be read.
    """
    if sys.platform != "win32":
        return os.pread(descriptor, size, offset)
    else:
        with _moved(descriptor, offset):
            return os.read(descriptor, size)


def write_at(descriptor: int, data: bytes, offset: int) -> int:
    """Writes bytes over those at `offset`; returns how many were taken. The place at which the file is written stays.

    Raises:
        OSError: They cannot be written.
    """
    if sys.platform != "win32":
        return os.pwrite(descriptor, data, offset)
    else:
        with _moved(descriptor, offset):
            return os.write(descriptor, data)


@contextlib.contextmanager
def _moved(descriptor: int, offset: int) -> Iterator[None]:
    """The place at which a file is read and written is another one meanwhile, where the system has no `pread`."""
    before = os.lseek(descriptor, 0, os.SEEK_CUR)
    try:
        os.lseek(descriptor, offset, os.SEEK_SET)
        yield
    finally:
        os.lseek(descriptor, before, os.SEEK_SET)


def replace(source: str, path: str) -> None:
    """`os.replace`; on Windows it waits a second for whoever has one of the two open: a reader, a virus scanner.

    Raises:
        OSError: It cannot be replaced.
    """
    deadline = time.monotonic() + (_BUSY_SECS if sys.platform == "win32" else 0.0)
    while True:
        try:
            os.replace(source, path)
            return
        except PermissionError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_LOOK_SECS)


@contextlib.contextmanager
def holding_interrupts() -> Iterator[None]:
    """Keeps Ctrl-C waiting for the block. On Windows, which cannot, it comes at once."""
    if sys.platform == "win32":
        yield
    else:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def longest_names(place: str) -> tuple[int, int]:
    """Returns how long a name and a path may be where `place` is, in bytes."""
    if sys.platform == "win32":
        return 255, 32_767  # in UTF-16 units, of which a name has no more than bytes; 260 for a path by old settings
    else:
        return os.pathconf(place, "PC_NAME_MAX"), os.pathconf(place, "PC_PATH_MAX")


def allowed_name(name: str) -> str:
    """Returns the name of a file or directory without what Windows does not take, there; elsewhere as it is."""
    return _FORBIDDEN.sub("_", name) if sys.platform == "win32" and name not in (".", "..") else name


def fold_name(name: str) -> str:
    """Returns a name by which two that the system takes for one are the same: it may ignore case."""
    return name.casefold() if sys.platform in ("win32", "darwin") else name
