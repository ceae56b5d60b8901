"""Files that change in one step, and locks: a reader sees the old or the new one, never a part.

So does who looks after a loss of power: the disk has the file before it gets its name, and the name before it is said
that the file is written. Without the first, a file system may keep the new name of an empty file.

What is being written lies beside the file it will replace, as `.ms_summary_bridge.<hash of the name>.new`. No viewer
and no search of ours reads such a name: TensorBoard looks for `tfevents` in a name, hidden or not, and MindInsight for
`summary.<digits>`. The name is the same each time, so what a killed process has left is taken over by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from ms_summary_bridge.errors import FileTakenError, WriteError
from ms_summary_bridge.files.system import O_BINARY, longest_names, replace, try_lock

__all__ = [
    "check_place",
    "create_file",
    "make_directory",
    "replace_file",
    "replacing",
    "sync",
    "sync_names",
    "take_lock",
]

_LEFT_SECS: Final = 3600.0


def replace_file(path: str, data: bytes, *, is_lasting: bool = True) -> None:
    """Writes a file, or replaces one and keeps its permissions; waits until the disk has it.

    One that is not `is_lasting` is written again in a moment: it is not waited for, and a loss of power may empty it.

    Raises:
        WriteError: It cannot be written; an old one stays as it is.
    """
    with replacing(path, is_lasting=is_lasting) as temporary, open(temporary, "wb") as file:
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
            sync(temporary)
            os.link(temporary, path)
            os.unlink(temporary)
            sync_names(os.path.dirname(path))
        except FileExistsError as error:
            raise FileTakenError(f"{path}: exists and would be overwritten") from error
        except OSError as error:
            raise WriteError.of_system(path, "written", error) from error


@contextmanager
def replacing(path: str, *, temporary: str = "", is_lasting: bool = True) -> Iterator[str]:
    """Gives the name of a file to write anew, which replaces `path`, also on the disk, if nothing is raised meanwhile.

    Args:
        path: The file; its directory is there.
        temporary: Name beside it to write to, for a writer that is particular about names; one for many files lets the
            next one take over what a killed process has left.
        is_lasting: As for `replace_file`.

    Raises:
        WriteError: It cannot be written, or an OSError came out of the block; an old file stays as it is.
    """
    with _temporary(path, temporary) as unfinished:
        try:
            yield unfinished
            with contextlib.suppress(FileNotFoundError):
                os.chmod(unfinished, stat.S_IMODE(os.stat(path).st_mode))
            if is_lasting:
                sync(unfinished)
            replace(unfinished, path)
            if is_lasting:
                sync_names(os.path.dirname(path))
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
            root, ending = os.path.splitext(name)
            if sys.platform == "win32":  # a name that another process, or thread, holds open cannot become the file's
                _remove_left(directory, os.path.basename(root), ending)
                name = f"{root}.{os.urandom(6).hex()}{ending}"
                os.close(os.open(name, os.O_RDONLY | os.O_CREAT | O_BINARY, 0o666))
            elif not _is_ours(_make(name, stack), name):  # another process, or thread, may be writing it
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
    descriptor = os.open(name, os.O_RDONLY | os.O_CREAT | O_BINARY, 0o666)
    stack.callback(os.close, descriptor)
    return descriptor


def _remove_left(directory: str, begin: str, ending: str) -> None:
    """Removes what killed processes have left; Windows itself keeps what is open."""
    for name in os.listdir(directory or "."):
        if name.startswith(f"{begin}.") and name.endswith(ending):
            path = os.path.join(directory, name)
            with contextlib.suppress(OSError):
                if time.time() - os.stat(path).st_mtime > _LEFT_SECS:
                    os.unlink(path)


def _is_ours(descriptor: int, name: str) -> bool:
    with contextlib.suppress(OSError):  # a file system without locks; or the name has become another file's
        return try_lock(descriptor) and os.path.samestat(os.fstat(descriptor), os.stat(name))
    return False


def make_directory(path: str) -> list[str]:
    """Makes a directory and its parents, if they are missing.

    Returns:
        The directories whose names the disk may not have yet, for `sync_names`; none where all were there.

    Raises:
        OSError: It cannot be made.
    """
    place, changed = os.path.abspath(path), []
    while not os.path.isdir(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
        changed.append(place)
    os.makedirs(path, exist_ok=True)
    return changed


def sync_names(*directories: str) -> None:
    """Waits until the disk has the names in directories, where the file system can say so."""
    for directory in directories:
        with contextlib.suppress(OSError):  # not every file system has it for directories
            sync(directory or ".")


def sync(path: str) -> None:
    """Waits until the disk has a file, or the names in a directory.

    Raises:
        OSError: It cannot be opened, or the disk does not take it.
    """
    # Windows syncs no file that is open for reading alone, and no directory.
    descriptor = os.open(path, (os.O_RDWR if sys.platform == "win32" else os.O_RDONLY) | O_BINARY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def take_lock(path: str) -> int | None:
    """Makes a file if it is missing, and locks it.

    Returns:
        Its descriptor, to be closed at the end; None while another process has it.

    Raises:
        WriteError: It cannot be made, or not be locked.
    """
    with ExitStack() as stack:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | O_BINARY, 0o644)
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
    elif longest > longest_names(place)[0] or len(os.fsencode(path)) >= longest_names(place)[1]:
        number = errno.ENAMETOOLONG
    elif not os.access(place, os.W_OK | os.X_OK if missing else os.W_OK):
        number = errno.EACCES
    if number:
        raise WriteError.of_system(path, "written", OSError(number, os.strerror(number)))
