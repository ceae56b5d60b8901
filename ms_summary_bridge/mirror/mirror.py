"""Mirror: the rounds in which a logdir is looked at, what is new is converted, and the viewer is shown it.

A look opens no file: names and sizes say whether anything that must be converted is there and has changed. What
converts is loaded when there is something to convert.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ms_summary_bridge.errors import BridgeError, LogdirError
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD, format_of_name
from ms_summary_bridge.mirror.home import Home, clean, clear_directory
from ms_summary_bridge.mirror.look import FileFact, find_files
from ms_summary_bridge.mirror.overlay import show_tree
from ms_summary_bridge.training.faults import Once

if TYPE_CHECKING:
    from ms_summary_bridge.mirror.directory import MirroredDirectory

__all__ = ["Mirror"]

_LOCK_SECS: Final = 2.0
_SETTLED_SECS: Final = 10.0
_FINISHED_SECS: Final = 3600.0
_SHOW_SECS: Final = 1.0
_FREE_BYTES: Final = 512 << 20
"""Left free on the disk of the cache, which may be that of the training."""
_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_IDLE_SHARE: Final = 200
"""While nothing happens, a look may take one part in so many of the time."""
_BUSY_SHARE: Final = 3
_MORE_SPACE: Final = {
    TENSORBOARD: "raise --mindspore_cache_gb, or name another place with --mindspore_cache_dir",
    MINDSPORE: "name a place with more space in the environment variable XDG_CACHE_HOME",
}


class Mirror:
    """A logdir as one viewer can show it, kept up to date by the process that has the right to write it.

    The same for both viewers: each directory that has files the viewer cannot read is converted on its own
    (`directory`), the newest first, and goes when its source goes; the cache stays below its limit; a fault in one
    directory leaves the others alone and is tried again later. What the target format makes different:

    * `tensorboard`: TensorBoard shows trees of any depth and follows links to directories. So it is shown a tree of
      links, with converted files in the place of MindSpore's (`overlay`), and the logdir itself while there is
      nothing of MindSpore's. TensorBoard's own files are not looked at beyond their beginnings.
    * `mindspore`: MindInsight lists a base directory and those directly in it, no deeper, and none that is a link. So
      each run, converted or not, gets a directory in one base, with links to its files (`base`). What a conversion
      loses is reported: MindInsight has no place for it.

    Args:
        home: Where it is kept.
        target: The format that the viewer reads.
        limit: Bytes that the converted files of all mirrors in this cache may take; for MindInsight of all others.
        warn: Told what could not be read or written; each line once.
        retry_secs: Pause before what failed is tried again.
        space_secs: Pause before it is looked again whether there is space.
    """

    def __init__(
        self,
        home: Home,
        target: str,
        limit: int,
        warn: Callable[[str], None],
        *,
        retry_secs: float = 60.0,
        space_secs: float = 600.0,
    ) -> None:
        self._home = home
        self._target = target
        self._limit = limit
        self._say = Once(warn)
        self._retry_secs = retry_secs
        self._space_secs = space_secs
        self._directories: dict[str, MirroredDirectory] = {}
        self._marks: dict[str, object] = {}
        self._fresh: set[str] = set()
        self._retry: dict[str, float] = {}
        self._modified: dict[str, float] = {}
        self._others = 0
        self._cleaned_at = float("-inf")
        self._shown_at = 0.0
        self._is_tidy = False

    def run(self, wait: Callable[[float], bool]) -> None:
        """Waits for the right to write, and goes on until `wait`, given seconds, says that it is time to end.

        Raises:
            LogdirError: The mirror has been removed.
        """
        while self._home.lock() is None:
            if wait(_LOCK_SECS):
                return
        while True:
            began = time.process_time()
            is_busy = self.round()
            used = time.process_time() - began
            pause = max(_SHORTEST_PAUSE, used * _BUSY_SHARE) if is_busy else max(2.0, used * _IDLE_SHARE)
            if wait(min(pause, _LONGEST_PAUSE)):
                return

    def round(self) -> bool:
        """Looks once at everything; returns whether there was something new.

        Raises:
            LogdirError: The mirror has been removed.
        """
        if not os.path.lexists(self._home.logdir):
            raise LogdirError(f"{self._home.path}: was removed")
        try:
            found = find_files(self._home.source, self._is_candidate, self._say)
        except LogdirError:  # the logdir is not there, or not now
            self._show([])
            return False
        gone = [self._directories.pop(name) for name in self._directories.keys() - found.keys()]
        for name in self._marks.keys() - found.keys():
            del self._marks[name]
            self._retry.pop(name, None)
        self._fresh &= found.keys()
        self._modified = {name: max(file.modified for file in files) for name, files in found.items()}
        changed = [name for name, files in found.items() if self._has_changed(name, files)]
        changed.sort(key=lambda name: self._modified[name], reverse=True)
        if changed:
            self._update(changed, found)
        if not self._is_tidy:
            self._tidy()
        self._show()
        for directory in gone:  # now that nothing leads there
            directory.remove()
        return bool(changed) or bool(self._fresh)

    def _is_candidate(self, name: str) -> bool:
        if self._target == MINDSPORE:
            return True
        return (format_of_name(name) == MINDSPORE and not name.endswith("_explain")) or name.endswith(".pb")

    def _tidy(self) -> None:
        """Removes what an earlier process left of directories that are gone."""
        self._is_tidy = True
        wanted = {path for one in self._directories.values() for path in (one.view, one.output)}
        for path in self._home.kept():
            if path not in wanted:
                clear_directory(path)

    def _has_changed(self, name: str, files: list[FileFact]) -> bool:
        mark = sorted(file.mark(self._target) for file in files)
        if self._marks.get(name) == mark and time.monotonic() < self._retry.get(name, float("inf")):
            return False
        # The callback's two files are not made at the same moment: it is given one look more to make both.
        is_new = name not in self._marks and name not in self._fresh and not os.path.isdir(self._directory(name).output)
        if is_new and time.time() - self._modified[name] < _SETTLED_SECS:
            self._fresh.add(name)
            return False
        self._fresh.discard(name)
        self._marks[name] = mark
        return True

    def _directory(self, name: str) -> MirroredDirectory:
        from ms_summary_bridge.mirror.directory import MirroredDirectory

        if name not in self._directories:
            self._directories[name] = MirroredDirectory(self._home, name, self._target)
        return self._directories[name]

    def _update(self, changed: list[str], found: dict[str, list[FileFact]]) -> None:
        """Decides about each changed directory, shows what is there of them already, and converts the newest first."""
        wanted = []
        for name in changed:
            try:
                directory = self._directory(name)
                if directory.prepare(found[name]):
                    wanted.append(name)
                for line in directory.problems:
                    self._say(line)
                self._retry.pop(name, None)
                if directory.may_pass:
                    self._retry[name] = time.monotonic() + self._retry_secs
            except Exception as error:  # whatever it is, the other directories go on
                self._fail(name, error)
        self._show()
        for name in wanted:
            directory = self._directory(name)
            size = sum(file.size for file in found[name] if file.format != self._target)
            if not self._has_place(directory, size):  # what is there of it already stays as it is
                self._retry[name] = time.monotonic() + self._space_secs  # space may come though no file of it changes
                continue
            try:
                for line in directory.convert(self._show_now_and_then):
                    self._say(line)
                if directory.has_failed:
                    self._retry[name] = time.monotonic() + self._retry_secs
            except Exception as error:
                self._fail(name, error)
            self._show_now_and_then()

    def _fail(self, name: str, error: Exception) -> None:
        kind = "" if isinstance(error, BridgeError | OSError) else f"{type(error).__name__}: "
        self._say(f"{os.path.normpath(os.path.join(self._home.source, name))}: cannot be followed: {kind}{error}")
        self._retry[name] = time.monotonic() + self._retry_secs

    def _has_place(self, directory: MirroredDirectory, size: int) -> bool:
        """Whether the cache may hold what a directory becomes, which is about as large as its source."""
        if time.monotonic() - self._cleaned_at > self._space_secs:
            self._others, self._cleaned_at = clean(self._home, self._limit), time.monotonic()
        needed = max(size, directory.size)
        free = shutil.disk_usage(self._home.path).free - _FREE_BYTES + directory.size
        while True:
            others = self._others + sum(one.size for one in self._directories.values() if one is not directory)
            # Nobody can say how much MindInsight's mirror may take, so it takes what it needs.
            if needed <= free and (others + needed <= self._limit or self._target == MINDSPORE):
                return True
            oldest = self._find_oldest(directory)
            if oldest is None:
                break
            free += oldest.size
            oldest.remove_output()
            self._retry[oldest.name] = time.monotonic() + self._space_secs  # it comes back once there is space again
            self._say_full(oldest, others)
        self._say_full(directory, others)
        return False

    def _find_oldest(self, directory: MirroredDirectory) -> MirroredDirectory | None:
        """Returns what is removed first to make place for a newer directory; what still grows is never removed."""
        finished = [
            (self._modified[name], name)
            for name, one in self._directories.items()
            if one.size and name in self._modified and time.time() - self._modified[name] > _FINISHED_SECS
        ]
        if not finished or min(finished)[0] >= self._modified[directory.name]:
            return None
        return self._directories[min(finished)[1]]

    def _say_full(self, directory: MirroredDirectory, others: int) -> None:
        self._say(
            f"{directory.name}: is not followed, because the cache {os.path.dirname(self._home.path)} is full "
            f"({others >> 20} MiB of {self._limit >> 20} MiB are used, or the disk has less than "
            f"{_FREE_BYTES >> 20} MiB left): {_MORE_SPACE[self._target]}"
        )

    def _show_now_and_then(self) -> None:
        if time.monotonic() - self._shown_at > _SHOW_SECS:
            self._show()

    def _show(self, directories: list[MirroredDirectory] | None = None) -> None:
        """Shows all directories, or those that are given."""
        shown = list(self._directories.values()) if directories is None else directories
        try:
            if self._target == TENSORBOARD:
                show_tree(self._home, shown)
            else:
                from ms_summary_bridge.mirror.base import show_runs

                show_runs(self._home, shown, self._say)
        except OSError as error:  # a full disk, say: what is shown already stays, and the next round tries again
            self._say(str(error))
        self._shown_at = time.monotonic()
