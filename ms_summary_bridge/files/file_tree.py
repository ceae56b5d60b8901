"""Walks a directory tree, local or behind an fsspec URL, and returns the files that may hold events."""

from __future__ import annotations

import os
import stat
from typing import Any, Final, TypeAlias

import msgspec

from ms_summary_bridge.errors import MissingDependencyError, NoEventsError, ReadError
from ms_summary_bridge.files.file_names import MINDSPORE, format_of_name, is_wanted

__all__ = ["Directory", "Problem", "WalkLog", "walk_local", "walk_url"]

_OF_RSYNC: Final = (".~tmp~", ".rsync-partial")
"""Where rsync keeps what it is still copying (`--delay-updates`, `--partial-dir`): files with their final names, which
are no run of their own and will be renamed into the directory above."""

_Seen: TypeAlias = set[tuple[int, int]]
"""Device and inode of each file and directory that was taken."""


class Problem(msgspec.Struct, frozen=True):
    """A path that was not read, and why."""

    path: str
    reason: str
    may_pass: bool = False
    """The system did not give it: asked again it may, though nothing of it has changed."""

    @property
    def may_hide_mindspore(self) -> bool:
        """Whether it is a file of MindSpore's, or a directory. TensorBoard says it of its own files."""
        name = os.path.basename(self.path)
        return format_of_name(name) == MINDSPORE or not is_wanted(name)


class Directory(msgspec.Struct):
    """A directory with files that may hold events."""

    path: str
    name: str
    """Path below the source, with slashes; `.` for the source itself."""
    files: list[str]
    """Paths of the files."""


class WalkLog(msgspec.Struct):
    """What a walk meets besides what it finds."""

    problems: list[Problem] = msgspec.field(default_factory=list)
    empty: list[Problem] = msgspec.field(default_factory=list)


def walk_local(source: str, log: WalkLog) -> list[Directory]:
    """Returns the directories below a local path that have such files, each real file once, sorted by name.

    Raises:
        NoEventsError: The source does not exist.
        ReadError: It cannot be looked at, or is neither a directory nor a regular file.
    """
    try:
        mode = os.stat(source).st_mode
    except FileNotFoundError as error:
        raise NoEventsError(f"{source}: {error.strerror}") from error
    except OSError as error:
        raise ReadError(f"{source}: {error.strerror or error}") from error
    if stat.S_ISREG(mode):
        return [Directory(os.path.dirname(source) or ".", ".", [source])]
    if not stat.S_ISDIR(mode):
        raise ReadError(f"{source}: neither a directory nor a regular file")
    found: dict[str, Directory] = {}
    seen: _Seen = set()
    links: list[tuple[str, str, str]] = []  # path, name, name of the directory it stands in
    _walk_real(source, ".", found, seen, links, log)
    while links:  # after all that is no link, so that what lies below the source keeps its real name
        path, name, parent = links.pop(0)
        if os.path.isdir(path):
            _walk_real(path, name, found, seen, links, log)
        elif is_wanted(os.path.basename(path)):
            _add_file(path, found[parent], seen, log)
    return sorted(found.values(), key=lambda directory: directory.name)


def _walk_real(
    top: str, top_name: str, found: dict[str, Directory], seen: _Seen, links: list[tuple[str, str, str]], log: WalkLog
) -> None:
    """Takes the directories below `top` that were not seen yet; puts the links in them aside."""
    pending = [(top, top_name)]
    while pending:
        path, name = pending.pop()
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            log.problems.append(Problem(path, f"cannot be listed: {error.strerror or error}", may_pass=True))
            continue
        found[name] = directory = Directory(path, name, [])
        below: list[tuple[str, str]] = []
        for entry in entries:
            inner = entry.name if name == "." else f"{name}/{entry.name}"
            if entry.is_symlink():
                links.append((entry.path, inner, name))
            elif entry.is_dir(follow_symlinks=False):
                if entry.name not in _OF_RSYNC:
                    below.append((entry.path, inner))
            elif is_wanted(entry.name):
                _add_file(entry.path, directory, seen, log)
        pending += reversed(below)


def _add_file(path: str, directory: Directory, seen: _Seen, log: WalkLog) -> None:
    try:
        status = os.stat(path)
    except OSError as error:
        log.problems.append(Problem(path, f"cannot be read: {error.strerror or error}", may_pass=True))
        return
    if not stat.S_ISREG(status.st_mode):  # opening a pipe would wait for its other end
        log.problems.append(Problem(path, "not a regular file"))
    elif (status.st_dev, status.st_ino) not in seen:
        seen.add((status.st_dev, status.st_ino))
        directory.files.append(path)


def walk_url(source: str, log: WalkLog) -> list[Directory]:
    """The same for fsspec, which knows no links."""
    from fsspec.core import url_to_fs

    _, separator, chain = source.partition("::")  # zip://inner::file:///outer.zip
    try:
        filesystem, root = url_to_fs(source)
        filesystem.invalidate_cache()
        is_file = filesystem.info(root)["type"] == "file"
    except ImportError as error:
        raise MissingDependencyError(f"{source}: {error}") from error
    except Exception as error:  # clients of stores raise their own: botocore's NoCredentialsError is no OSError
        kind = NoEventsError if isinstance(error, FileNotFoundError) else ReadError
        raise kind(f"{source}: cannot be found: {str(error) or type(error).__name__}") from error

    def to_url(path: str) -> str:
        return f"{filesystem.unstrip_protocol(path)}{separator}{chain}"

    if is_file:
        return [Directory(to_url(root.rpartition("/")[0]), ".", [to_url(root)])]
    found: list[Directory] = []
    seen: set[str] = set()
    pending = [(root.rstrip("/"), ".")]
    while pending:
        path, name = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            entries: list[dict[str, Any]] = filesystem.ls(path, detail=True)
        except Exception as error:  # see above
            log.problems.append(Problem(to_url(path), str(error) or type(error).__name__, may_pass=True))
            continue
        directory = Directory(to_url(path), name, [])
        found.append(directory)
        for entry in entries:
            inner = str(entry["name"]).rstrip("/")
            base = inner.rpartition("/")[2]
            if entry["type"] == "directory":
                pending.append((inner, base if name == "." else f"{name}/{base}"))
            elif inner != path and is_wanted(base):
                directory.files.append(to_url(inner))
    return sorted(found, key=lambda directory: directory.name)
