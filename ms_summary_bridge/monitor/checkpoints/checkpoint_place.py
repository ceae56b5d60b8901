"""A directory of checkpoints belongs to one training at a time: another one beside it gets a place of its own.

Imports no mindspore.

A lock says that a directory is in use. It is the system's, so that it ends with the process, however that ends. All
ranks of a training hold it together: the first one writes which training it is, and the others join.
"""

from __future__ import annotations

import os
import platform
import threading
import time
import weakref
from typing import Final

import msgspec
import psutil

from ms_summary_bridge.errors import NOT_JSON
from ms_summary_bridge.files.atomic import make_directory, sync_names
from ms_summary_bridge.files.system import try_lock
from ms_summary_bridge.monitor.sinks.launch import ADDRESSES
from ms_summary_bridge.training.distributed import ProcessRank

__all__ = ["LOCK_NAME", "CheckpointPlace"]

LOCK_NAME: Final = ".in_use"
_LAUNCH: Final = (*ADDRESSES, "OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE")
_MOST: Final = 1000
_ATTEMPTS: Final = 20
_PAUSE_SECS: Final = 0.005  # a process that looks whether it may join holds the lock no longer


class _Use(msgspec.Struct, frozen=True):
    """What the lock's file holds: who uses the directory."""

    training: str
    process: int
    host: str


class CheckpointPlace:
    """A directory that is this training's until the process ends, or until a later training of the process gets it.

    It is the one asked for, or while another training has that, `<directory>_2` and so on.

    `may_follow` is whether it may have the directory of a training of this process that has ended.

    Raises:
        OSError: The directory cannot be made.
    """

    def __init__(self, directory: str, place: ProcessRank, *, may_follow: bool = True) -> None:
        self.is_ours = True
        self.is_training = True
        """Whether the training runs; to be set to False at its end."""
        self.user = ""
        """Who has the directory that was asked for; empty if it is this training's."""
        self._asked = self.directory = directory
        self._thread = threading.get_ident()
        self._free: weakref.finalize[[int], CheckpointPlace] | None = None
        before = [other for other in _PLACES if other.is_ours and other._asked == directory]
        for other in before:
            # The end of a training that died of an exception is told by nobody; it ran in a thread that goes on here.
            if may_follow and (not other.is_training or other._thread == self._thread):
                other.release()
        number = 1 + sum(other.is_ours for other in before)
        use = _Use(f"{_training(place)} {number}", os.getpid(), platform.node())
        self._find(use, has_ranks=place.ranks > 1)
        _PLACES.add(self)

    def release(self) -> None:
        """Leaves the directory to others."""
        self.is_ours = False
        if self._free is not None:
            self._free()

    def _find(self, use: _Use, *, has_ranks: bool) -> None:
        # The other ranks may have come when the first directory was still in use: they are looked for before all else.
        for joins_only in (True, False) if has_ranks else (False,):
            for number in range(1, _MOST):
                self.directory = self._asked if number == 1 else f"{self._asked}_{number}"
                if joins_only and not os.path.exists(os.path.join(self.directory, LOCK_NAME)):
                    break
                if self._take(use, joins_only=joins_only):
                    return

    def _take(self, use: _Use, *, joins_only: bool) -> bool:
        sync_names(*make_directory(self.directory))
        descriptor = os.open(os.path.join(self.directory, LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            is_taken = self._join(descriptor, use, joins_only=joins_only)
        except OSError:  # the file system has no locks
            is_taken = not joins_only
        if is_taken:
            self._free = weakref.finalize(self, os.close, descriptor)
        else:
            os.close(descriptor)
        return is_taken

    def _join(self, descriptor: int, use: _Use, *, joins_only: bool) -> bool:
        """Takes the directory, or joins the ranks of the same training that have it."""
        for _ in range(_ATTEMPTS):
            if try_lock(descriptor):
                if joins_only:
                    return False
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, msgspec.json.encode(use), 0)
            if try_lock(descriptor, is_shared=True):  # the system may give the lock to another one between the two
                try:
                    user = msgspec.json.decode(os.pread(descriptor, 4096, 0), type=_Use)
                except NOT_JSON:
                    continue
                if user.training == use.training:
                    return True
                self.user = self.user or f"process {user.process} on {user.host}"
                return False
            time.sleep(_PAUSE_SECS)
        return False


_PLACES: Final[weakref.WeakSet[CheckpointPlace]] = weakref.WeakSet()


def _training(place: ProcessRank) -> str:
    """Returns what all ranks of a training, and no other, have in common."""
    launch = [os.environ[name] for name in _LAUNCH if os.environ.get(name)]
    if place.ranks > 1 and launch:
        return " ".join(launch)
    process = os.getpid() if place.ranks == 1 else os.getppid()  # ranks that a script started one by one
    try:
        return f"{platform.node()} {process} {psutil.Process(process).create_time()}"
    except psutil.Error:
        return f"{platform.node()} {process}"


def _leave_all() -> None:
    for place in _PLACES:
        place.release()


os.register_at_fork(after_in_child=_leave_all)  # else a data worker holds the lock when the training is dead
