"""Look: which files lie below a logdir, and what has changed, found out without opening one."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from ms_summary_bridge.files.file_names import TENSORBOARD, format_of_name
from ms_summary_bridge.files.file_tree import WalkLog, walk_local

__all__ = ["FileFact", "find_files"]

_DECIDED_BYTES = 4096


class FileFact(msgspec.Struct, frozen=True):
    """What a look at a file says about it."""

    path: str
    size: int
    modified: float
    inode: int

    @property
    def name(self) -> str:
        """Its name in the directory."""
        return os.path.basename(self.path)

    @property
    def format(self) -> str:
        """The format that its name speaks of, or nothing."""
        return format_of_name(self.name)

    def mark(self, target: str) -> tuple[str, int, float, int]:
        """Returns what changes when the file must be looked at again.

        TensorBoard reads its own files by itself: the beginning of one says all about it.
        """
        if self.format == target == TENSORBOARD:
            return self.path, min(self.size, _DECIDED_BYTES), 0.0, self.inode
        return self.path, self.size, self.modified, self.inode


def find_files(
    source: str, is_candidate: Callable[[str], bool], say: Callable[[str], None]
) -> dict[str, list[FileFact]]:
    """Returns the files of each directory below a logdir that has a candidate, by its path there.

    What may be a candidate and cannot be looked at is reported to `say`.

    Raises:
        LogdirError: The logdir is not there, or cannot be looked at.
    """
    found: dict[str, list[FileFact]] = {}
    log = WalkLog()
    directories = walk_local(source, log)
    for problem in log.problems:
        if problem.may_hide_mindspore:
            say(f"{problem.path}: {problem.reason}")
    for directory in directories:
        if any(is_candidate(os.path.basename(path)) for path in directory.files):
            facts = list(filter(None, map(_look_at, directory.files)))
            if facts:
                found[directory.name] = facts
    return found


def _look_at(path: str) -> FileFact | None:
    try:
        status = os.stat(path)
    except OSError:  # deleted meanwhile
        return None
    return FileFact(path, status.st_size, status.st_mtime, status.st_ino)
