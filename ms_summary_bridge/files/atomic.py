"""Files and links that change in one step, and locks: a reader sees the old or the new one, never a part.

What is being written lies beside the file it will replace, as `.ms_summary_bridge.<hash of the name>.new`. No viewer
and no search of ours reads such a name: TensorBoard looks for `tfevents` in a name, hidden or not, and MindInsight for
`summary.<digits>`. The name is the same each time, so what a killed process has left is taken over by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from ms_summary_bridge.errors import FileTakenError, WriteError

__all__ = ["check_place", "create_file", "replace_file", "replace_link", "replacing", "sync", "take_lock", "try_lock"]

_MAKING: Final = os.O_CREAT | os.O_CLOEXEC


def replace_file(path: str, data: bytes, *, is_synced: bool = False) -> None:
    """Writes a file, or replaces one and keeps its permissions; with `is_synced` it waits until the disk has it.

    Raises:
        WriteError: It cannot be written; an old one stays as it is.
    """
    with replacing(path, is_synced=is_synced) as temporary, open(temporary, "wb") as file:
        file.write(data)


def create_file(path: str, data: bytes) -> None:
    """Writes a new file, which is whole as soon as it is there. Of several processes one has it.

    Raises:
        FileTakenError: There is one already.
        WriteError: It cannot be written.
    """
    with _temporary(path) as temporary:
        try:
            with open(temporary, "wb") as file:
                file.write(data)
            os.link(temporary, path)
            os.unlink(temporary)
        except FileExistsError as error:
            raise FileTakenError(f"{path}: exists and would be overwritten") from error
        except OSError as error:
            raise WriteError.of_system(path, "written", error) from error


@contextmanager
def replacing(path: str, *, is_synced: bool = False, temporary: str = "") -> Iterator[str]:
    """Gives the name of a file to write anew, which replaces `path` if nothing is raised meanwhile.

    Args:
        path: The file; its directory is there.
        is_synced: Wait until the disk has it.
        temporary: Name beside it to write to, for a writer that is particular about names; one for many files lets the
            next one take over what a killed process has left.

    Raises:
        WriteError: It cannot be written, or an OSError came out of the block; an old file stays as it is.
    """
    with _temporary(path, temporary) as unfinished:
        try:
            yield unfinished
            with contextlib.suppress(FileNotFoundError):
                os.chmod(unfinished, stat.S_IMODE(os.stat(path).st_mode))
            if is_synced:
                sync(unfinished)
            os.replace(unfinished, path)
            if is_synced:
                with contextlib.suppress(OSError):  # not every file system has it for directories
                    sync(os.path.dirname(path) or ".")
        except OSError as error:
            raise WriteError.of_system(path, "written", error) from error


@contextmanager
def _temporary(path: str, name: str = "") -> Iterator[str]:
    """Makes a file beside `path` that is this thread's alone; what is left of it in the end is removed."""
    directory, own = os.path.split(path)
    key = hashlib.blake2b(os.fsencode(own), digest_size=6).hexdigest()
    name = os.path.join(directory, name or f".ms_summary_bridge.{key}.new")
    with ExitStack() as stack:
        try:
            if not _is_ours(_make(name, stack), name):  # another process, or thread, may be writing it
                root, ending = os.path.splitext(name)
                name = f"{root}.{os.urandom(6).hex()}{ending}"
                _make(name, stack)
            with contextlib.suppress(PermissionError):  # a killed process may have left it read-only
                os.chmod(name, os.stat(name).st_mode | stat.S_IWUSR)
        except OSError as error:
            raise WriteError.of_system(path, "written", error) from error
        try:
            yield name
        except BaseException:  # else it has become the file, and the name may be another process's by now
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise


def _make(name: str, stack: ExitStack) -> int:
    descriptor = os.open(name, os.O_RDONLY | _MAKING, 0o666)
    stack.callback(os.close, descriptor)
    return descriptor


def _is_ours(descriptor: int, name: str) -> bool:
    with contextlib.suppress(OSError):  # a file system without locks; or the name has become another file's
        return try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), os.stat(name))
    return False


def replace_link(path: str, target: str, scratch: str) -> None:
    """Makes a symbolic link to `target`, or replaces one, in one step.

    It is made in `scratch`, a directory of the same file system in which nobody looks: a link beside `path` would be
    followed.

    Raises:
        WriteError: It cannot be written, or `path` is a directory.
    """
    with contextlib.suppress(OSError):  # there is none, or something else
        if os.readlink(path) == target:
            return
    key = hashlib.blake2b(os.fsencode(os.path.abspath(path)), digest_size=6).hexdigest()
    temporary = os.path.join(scratch, f".ms_summary_bridge.{key}.link")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        os.symlink(target, temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise WriteError.of_system(path, "written", error) from error


def sync(path: str) -> None:
    """Waits until the disk has a file, or the names in a directory.

    Raises:
        OSError: It cannot be opened, or the disk does not take it.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, is_shared: bool = False, is_waiting: bool = False) -> bool:
    """Locks an open file until it is closed, which the system does when the process dies; False if another has it.

    With `is_shared`, several may hold it but nobody alone; with `is_waiting`, it waits until it can have it.

    Raises:
        OSError: The file system has no locks.
    """
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | (0 if is_waiting else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def take_lock(path: str) -> int | None:
    """Makes a file if it is missing, and locks it.

    Returns:
        Its descriptor, to be closed at the end; None while another process has it.

    Raises:
        WriteError: It cannot be made, or not be locked.
    """
    with ExitStack() as stack:
        try:
            descriptor = os.open(path, os.O_RDWR | _MAKING, 0o644)
            stack.callback(os.close, descriptor)
            if try_lock(descriptor):
                stack.pop_all()
                return descriptor
        except OSError as error:
            raise WriteError.of_system(path, "locked", error) from error
    return None


def check_place(path: str) -> None:
    """Finds out, without writing, whether a file could be made or written; directories may be missing.

    Raises:
        WriteError: A name is too long, or what is there already cannot be written.
    """
    place, missing = os.path.abspath(path), []
    while not os.path.lexists(place):  # also where a name is too long to be looked for
        place, name = os.path.split(place)
        missing.append(name)
    longest = max((len(os.fsencode(name)) for name in missing), default=0)
    number = 0
    if missing and not os.path.isdir(place):
        number = errno.ENOTDIR
    elif longest > os.pathconf(place, "PC_NAME_MAX") or len(os.fsencode(path)) >= os.pathconf(place, "PC_PATH_MAX"):
        number = errno.ENAMETOOLONG
    elif not os.access(place, os.W_OK | os.X_OK if missing else os.W_OK):
        number = errno.EACCES
    if number:
        raise WriteError.of_system(path, "written", OSError(number, os.strerror(number)))
