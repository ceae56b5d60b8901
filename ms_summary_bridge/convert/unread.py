"""Unread: what of a run's source files has not been converted yet, and how a file is known again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from ms_summary_bridge.convert.restarts import FileWalk, may_grow
from ms_summary_bridge.convert.state import FileState, RunState, Undecided
from ms_summary_bridge.convert.task import RunTask, relative_path
from ms_summary_bridge.events import Decoder
from ms_summary_bridge.files.event_file import open_source, read_errors
from ms_summary_bridge.files.file_ends import peek
from ms_summary_bridge.runs.log_files import LogFile

__all__ = [
    "Unread",
    "begin_walk",
    "find_growing",
    "find_unread",
    "identify",
    "is_late",
    "is_same_file",
    "is_unchanged",
    "is_written_at_once",
    "sizes_of",
    "unread_bytes",
]

_HEAD_BYTES: Final = 4096
_TAIL_BYTES: Final = 64


class Unread(msgspec.Struct):
    """The new part of one file."""

    path: str
    """Relative to the source."""
    file: LogFile
    start: int
    end: int
    known: FileState | None = None
    """What was converted of it."""
    is_replaced: bool = False
    """It is another file than the one that was converted, or was cut."""
    number: int = 0
    """Of the file, in the order in which the run's files were met."""

    @property
    def is_decided(self) -> bool:
        """Whether it was found out whether the file is a restart, so that what is new of it replaces nothing."""
        return self.known is not None and self.known.undecided is None and not self.is_replaced


def find_unread(file: LogFile, source: str, state: RunState, ends: dict[str, int]) -> Unread | None:
    """Returns what is new of a file; `ends` says how far each is read (`Plan.ends`), others have come since then.

    Raises:
        LogdirError: It cannot be read.
    """
    path = relative_path(file.path, source)
    if path not in ends:
        return None
    end = ends[path]
    known = state.files.get(path)
    if known is None:
        return Unread(path, file, 0, end, number=len(state.files))
    is_replaced = not is_same_file(file.path, end, known)
    start = 0 if is_replaced else known.offset
    if start >= end and not is_replaced:
        return None
    return Unread(path, file, start, end, known, is_replaced, list(state.files).index(path))


def begin_walk(unread: Unread, task: RunTask, states: Mapping[str, FileState], decoder: Decoder) -> FileWalk:
    """Returns the way through a data file; it may be a restart if it was begun after those in `states` had ended."""
    known = None if unread.is_replaced else unread.known
    is_first = not unread.is_replaced and not _others(unread, states)
    may_be = not is_first and not is_late(unread, states) and not is_written_at_once(unread, states)
    return FileWalk(
        path=unread.file.path,
        offset=unread.start,
        end=unread.end,
        decoder=decoder,
        undecided=(Undecided() if known is None else known.undecided) if may_be else None,
        last_time=None if known is None else known.last_time,
        may_grow=task.state.plan is not None and unread.path in task.state.plan.growing,
        has_lineage=any(file.created < unread.file.created for file in task.run.lineage_files),
    )


def is_late(unread: Unread, states: Mapping[str, FileState]) -> bool:
    """Whether later files have been converted before this one, which was overlooked."""
    return any(state.order > unread.file.created for state in _others(unread, states))


def is_written_at_once(unread: Unread, states: Mapping[str, FileState]) -> bool:
    """Whether the file was begun while one before it was still written to: two writers, none of which began again."""
    return any((state.last_time or 0.0) >= unread.file.wall_time for state in _others(unread, states))


def _others(unread: Unread, states: Mapping[str, FileState]) -> list[FileState]:
    return [state for path, state in states.items() if path != unread.path and state.last_time is not None]


def find_growing(task: RunTask) -> list[str]:
    """Returns the files of a run that may get more events: its last one, if nothing says that it has ended."""
    return [relative_path(file.path, task.source) for file in task.run.files[-1:] if may_grow(file.path)]


def sizes_of(task: RunTask) -> dict[str, int]:
    """Returns the size of every file of a run, archives included."""
    sizes = {file.path: file.size for file in task.run.sources}
    return sizes | {path: peek(path).size for path in task.run.archives}


def is_unchanged(task: RunTask) -> bool:
    """Whether every file of a run, archives included, is as it was converted."""
    sizes = {relative_path(path, task.source): (path, size) for path, size in sizes_of(task).items()}
    known = task.state.files
    return sizes.keys() == known.keys() and all(
        known[name].offset == size and is_same_file(path, size, known[name]) for name, (path, size) in sizes.items()
    )


def identify(path: str, offset: int, order: int) -> FileState:
    """Returns the state of a source file that has been converted up to `offset`.

    Raises:
        ReadError: It cannot be read.
    """
    head_bytes = min(offset, _HEAD_BYTES)
    head, tail = _hashes(path, head_bytes, offset)
    return FileState(offset, head_bytes, head, tail, order)


def is_same_file(path: str, size: int, known: FileState) -> bool:
    """Whether a source file still is the one that was converted, at most grown."""
    if size < known.offset:
        return False
    return (known.head, known.tail) == _hashes(path, known.head_bytes, known.offset)


def _hashes(path: str, head_bytes: int, offset: int) -> tuple[str, str]:
    with open_source(path) as file, read_errors(path):
        head = file.read(head_bytes) if head_bytes else b""
        start = max(0, offset - _TAIL_BYTES)
        file.seek(start)
        tail = file.read(offset - start) if offset else b""
    return (hashlib.blake2b(head, digest_size=16).hexdigest(), hashlib.blake2b(tail, digest_size=16).hexdigest())


def unread_bytes(task: RunTask) -> int:
    """Returns how many bytes of a run's files are not converted yet."""
    files = task.state.files
    known = {path: file.offset for path, file in files.items()}
    sources = (*task.run.sources, *task.live_files)
    return sum(max(0, file.size - known.get(relative_path(file.path, task.source), 0)) for file in sources)
