"""The system calls of this process, each handed to a hook that may take note of it, or let it fail.

Python's own functions are replaced while it lasts: those of `os`, `open`, `mmap` and what starts a process. All that
the package writes goes through them; what C code of other packages opens by itself is not seen. `tests` compare it with
strace where that can be had.
"""

from __future__ import annotations

import _posixsubprocess
import builtins
import io
import mmap
import os
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Hook = Callable[["Call", Callable[[], Any]], Any]
"""Is given a call and what carries it out, and returns what that returns."""

_BY_PATH = {
    "ftruncate": 0,
    "truncate": 0,
    "fsync": 0,
    "fdatasync": 0,
    "unlink": 0,
    "remove": 0,
    "mkdir": 0,
    "rmdir": 0,
    "chmod": 0,
    "utime": 0,
    "replace": 1,
    "rename": 1,
    "link": 1,
    "symlink": 1,
    "write": 0,
    "writev": 0,
    "pwrite": 0,
    "sendfile": 0,
    "open": 0,
    "listdir": 0,
    "scandir": 0,
    "pread": 0,
}
_NAMES = {"remove": "unlink", "replace": "rename", "fdatasync": "fsync", "writev": "write"}


@dataclass
class Call:
    """One call: its kind, the path that it is about, and its arguments."""

    kind: str
    path: str
    arguments: tuple[Any, ...] = ()
    flags: int = 0
    """Of an `open`."""
    offset: int = -1
    """At which a `write` writes."""


class Interposed:
    """Replaces the functions while the block lasts.

    Calls on paths that are not below `root` go their way unseen; those that have no path (`mmap`, `fork`, `memfd`) are
    always seen, and so is all where `root` is empty.
    """

    def __init__(self, root: str, hook: Hook) -> None:
        self._root = os.path.abspath(root) if root else ""
        self._hook = hook
        self._kept: list[tuple[Any, str, Any]] = []
        self._inside = threading.local()

    def __enter__(self) -> Interposed:
        for name in _BY_PATH:
            self._replace(os, name, self._make(name, getattr(os, name)))
        opener = self._make_open(builtins.open)
        self._replace(builtins, "open", opener)
        self._replace(io, "open", opener)
        for module, name, kind in (
            (mmap, "mmap", "mmap"),
            (subprocess, "_fork_exec", "fork"),
            (_posixsubprocess, "fork_exec", "fork"),  # by which multiprocessing spawns
            (os, "memfd_create", "memfd"),
            (os, "pipe", "pipe"),
            (os, "pipe2", "pipe"),
            (os, "fork", "fork"),
        ):
            if hasattr(module, name):
                self._replace(module, name, self._make_bare(kind, getattr(module, name)))
        return self

    def __exit__(self, *error: object) -> None:
        for module, name, original in reversed(self._kept):
            setattr(module, name, original)
        self._kept.clear()

    def _replace(self, module: Any, name: str, new: Any) -> None:
        self._kept.append((module, name, getattr(module, name)))
        setattr(module, name, new)

    def _is_seen(self, path: str) -> bool:
        return not self._root or path == self._root or path.startswith(self._root + os.sep)

    def _call(self, call: Call, do: Callable[[], Any]) -> Any:
        if getattr(self._inside, "is_inside", False):  # of the hook itself, or of a call that is made of others
            return do()
        self._inside.is_inside = True
        try:
            return self._hook(call, do)
        finally:
            self._inside.is_inside = False

    def _make(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        place = _BY_PATH[name]
        kind = _NAMES.get(name, name)

        def wrapper(*arguments: Any, **options: Any) -> Any:
            if getattr(self._inside, "is_inside", False):
                return original(*arguments, **options)
            folder = options.get("dir_fd") or options.get("dst_dir_fd")
            target = arguments[place] if len(arguments) > place else "."
            path = path_of(target, folder)
            if path is None or not self._is_seen(path):
                return original(*arguments, **options)
            call = Call(kind, path, arguments)
            if name == "open":
                call.flags = arguments[1] if len(arguments) > 1 else options["flags"]
            elif kind in ("write", "sendfile"):
                call.offset = _offset(arguments[0])
            elif name == "pwrite":
                call.offset = arguments[2]
            return self._call(call, lambda: original(*arguments, **options))

        for attribute in ("__name__", "__doc__"):
            setattr(wrapper, attribute, getattr(original, attribute))
        for supported in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if original in supported:
                supported.add(wrapper)
        return wrapper

    def _make_bare(self, kind: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            return self._call(Call(kind, "", arguments), lambda: original(*arguments, **options))

        return wrapper

    def _make_open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        interposed = self

        class File(io.FileIO):
            """A file whose writes are seen."""

            def write(self, data: Any) -> Any:  # type: ignore[override]
                call = Call(
                    "write", path_of(self.fileno(), None) or "", (self.fileno(), data), 0, _offset(self.fileno())
                )
                return interposed._call(call, lambda: super(File, self).write(data))

            def truncate(self, size: Any = None) -> int:
                call = Call(
                    "ftruncate",
                    path_of(self.fileno(), None) or "",
                    (self.fileno(), self.tell() if size is None else size),
                )
                done: int = interposed._call(call, lambda: super(File, self).truncate(size))
                return done

        def opener(
            file: Any,
            mode: str = "r",
            buffering: int = -1,
            encoding: str | None = None,
            errors: str | None = None,
            newline: str | None = None,
            closefd: bool = True,
            opener: Any = None,
        ) -> Any:
            given = (file, mode, buffering, encoding, errors, newline, closefd, opener)
            path = None if isinstance(file, int) else path_of(file, None)
            if path is None or not interposed._is_seen(path):
                return original(*given)
            flags = os.O_RDONLY
            if "r" not in mode or "+" in mode:
                flags = os.O_WRONLY | (0 if "r" in mode else os.O_CREAT) | (os.O_TRUNC if "w" in mode else 0)
            flags |= os.O_EXCL if "x" in mode else 0
            call = Call("open", path, (file, flags), flags)
            if flags == os.O_RDONLY:
                return interposed._call(call, lambda: original(*given))
            bare = mode.replace("b", "").replace("t", "")
            raw = interposed._call(call, lambda: File(file, bare, closefd, opener))
            if buffering == 0:
                return raw
            buffer: Any = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            if "b" in mode:
                return buffer
            return io.TextIOWrapper(buffer, encoding or "locale", errors, newline)

        return opener


def path_of(target: Any, folder: int | None) -> str | None:
    """Returns the absolute path of what a call was given: a path, or a descriptor; None for a pipe and the like."""
    if isinstance(target, int):
        try:
            path = os.readlink(f"/proc/self/fd/{target}")
        except OSError:
            return None
        return path.removesuffix(" (deleted)") if path.startswith("/") else None
    path = os.fsdecode(target)
    if folder is not None and not os.path.isabs(path):
        path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
    return os.path.normpath(os.path.join(os.getcwd(), path))


def _offset(descriptor: int) -> int:
    try:
        import fcntl

        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            return os.fstat(descriptor).st_size
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return -1
