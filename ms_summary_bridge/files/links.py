"""Links to files and directories, and on Windows what does without the right to make them.

Windows lets only administrators, and everybody in its developer mode, make symbolic links. Without that right, a
directory is shown by a junction, which anybody may make on a local disk, and a file by a second name for it (a hard
link): both cost nothing, and show what is appended at once. Only a file on another disk than the cache is copied: it
takes its size there once more, and what is appended to it is copied in the next round.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import sys
from typing import Final

from ms_summary_bridge.errors import WriteError
from ms_summary_bridge.files.system import replace

__all__ = ["is_link", "make_link", "replace_link"]

_JUNCTION: Final = 0xA0000003  # IO_REPARSE_TAG_MOUNT_POINT
_SAME_BYTES: Final = 4096
_CHUNK_BYTES: Final = 1 << 20


def is_link(path: str) -> bool:
    """Whether a path is a symbolic link, or a junction; whatever it leads to."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == _JUNCTION


def make_link(path: str, target: str, *, is_directory: bool) -> None:
    """Makes a link to a directory, or a file; what it leads to need not be there.

    Raises:
        FileExistsError: There is something at `path`.
        OSError: It cannot be made.
    """
    if sys.platform == "win32":
        import _winapi

        try:
            os.symlink(target, path, target_is_directory=is_directory)
        except FileExistsError:
            raise
        except OSError:  # this user may not
            if is_directory:
                _winapi.CreateJunction(target, path)
            else:
                os.link(target, path)
    else:
        os.symlink(target, path)


def replace_link(path: str, target: str, scratch: str) -> None:
    """Makes a link to `target`, or replaces one: in one step, but for a moment without a directory's on Windows.

    It is made in `scratch`, a directory of the same file system in which nobody looks: a link beside `path` would be
    followed. On Windows nothing is made where `target` is missing.

    Raises:
        WriteError: It cannot be written, or `path` is a directory.
    """
    if _leads_to(path, target):
        return
    key = hashlib.blake2b(os.fsencode(os.path.abspath(path)), digest_size=6).hexdigest()
    temporary = os.path.join(scratch, f".ms_summary_bridge.{key}.link")
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        if sys.platform != "win32":
            os.symlink(target, temporary)
        elif not os.path.exists(target):
            return
        else:
            is_directory = os.path.isdir(target)
            try:
                make_link(temporary, target, is_directory=is_directory)
            except OSError:
                if is_directory:
                    raise
                _copy(target, path, temporary)
                return
            if is_link(path):  # a directory's, over which Windows moves nothing
                os.unlink(path)
        replace(temporary, path)
    except OSError as error:
        raise WriteError.of_system(path, "written", error) from error


def _leads_to(path: str, target: str) -> bool:
    with contextlib.suppress(OSError):  # there is none, or something else
        return os.readlink(path).removeprefix("\\\\?\\") == target
    if sys.platform == "win32":
        with contextlib.suppress(OSError):
            return os.path.samefile(path, target)
    return False


def _copy(source: str, path: str, temporary: str) -> None:
    """Copies a file, or what was appended to it since it was copied."""
    with open(source, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        with contextlib.suppress(OSError), open(path, "rb") as copied:
            known = copied.read(_SAME_BYTES)
            if (there := os.fstat(copied.fileno()).st_size) <= size and known == file.read(len(known)):
                temporary = path if there else temporary
                file.seek(there)
        if temporary != path:
            file.seek(0)
        with open(temporary, "ab" if temporary == path else "wb") as copy:
            while chunk := file.read(_CHUNK_BYTES):
                copy.write(chunk)
    if temporary != path:
        replace(temporary, path)
