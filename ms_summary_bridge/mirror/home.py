"""Where a mirror lives: a directory of the user's cache for each logdir, with its locks, and the cleaning of old ones.

Starts with the viewer, so it loads nothing else.

Below the cache (`$XDG_CACHE_HOME/ms_summary_bridge/<viewer>`) each logdir has a directory:

* `logdir`: the link that TensorBoard is given; `source`: one that always leads to the logdir;
* `nodes`: directories of links (`overlay`); `base`: what MindInsight is given (`base`);
* `views` and `outputs`: what is converted and what it became (`directory`);
* `used`: locked (shared) by every viewer that shows the link; what nobody holds may be cleaned;
* `working`: locked by the one process that writes here, of several that wait for it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from typing import Final

from ms_summary_bridge._version import __version__
from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.files.atomic import take_lock
from ms_summary_bridge.files.links import is_link, make_link, replace_link
from ms_summary_bridge.files.system import O_BINARY, try_lock

__all__ = [
    "Home",
    "cache_directory",
    "clean",
    "clear_directory",
    "is_below",
    "make_private",
    "open_home",
    "size_of",
    "user_directory",
]

_UNUSED_SECS: Final = 30 * 24 * 3600
_ORPHAN_SECS: Final = 24 * 3600
_ATTEMPTS: Final = 5
_KEY: Final = re.compile(r"[0-9a-f]{16}")


class Home:
    """The directory `path` of the mirror of the logdir `source`, an absolute path."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.source = source

    @property
    def logdir(self) -> str:
        """What the viewer is given."""
        return os.path.join(self.path, "logdir")

    @property
    def nodes(self) -> str:
        """Where the overlay keeps its directories."""
        return os.path.join(self.path, "nodes")

    @property
    def base(self) -> str:
        """What MindInsight is given: it lists no directory that is a link."""
        return os.path.join(self.path, "base")

    def view_of(self, key: str) -> str:
        """Returns the directory with links to the files of one directory that is converted."""
        return os.path.join(self.path, "views", key)

    def output_of(self, key: str) -> str:
        """Returns the directory with what they became."""
        return os.path.join(self.path, "outputs", key)

    def kept(self) -> list[str]:
        """Returns all views and outputs that are there."""
        parts = filter(os.path.isdir, (self.view_of(""), self.output_of("")))
        return [os.path.join(part, name) for part in parts for name in os.listdir(part)]

    def hold(self) -> None:
        """Makes the directory and its link if missing, and keeps both until this process ends.

        Raises:
            OSError: The directory cannot be made, or not be locked.
        """
        used = os.path.join(self.path, "used")
        for _ in range(_ATTEMPTS):
            make_private(self.path)
            handle = os.open(used, os.O_RDWR | os.O_CREAT | O_BINARY, 0o600)
            try_lock(handle, is_shared=True, is_waiting=True)
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(handle), os.stat(used)):
                    os.utime(used)
                    break  # the system closes it when this process ends
            os.close(handle)  # it was cleaned away meanwhile
        else:
            raise OSError(0, "cleaned again and again by another process", self.path)
        for link in (os.path.join(self.path, "source"), self.logdir):
            with contextlib.suppress(FileExistsError):
                make_link(link, self.source, is_directory=True)

    def lock(self) -> int | None:
        """Takes the right to write here; None while another process has it. It ends with this process.

        Raises:
            WriteError: It cannot be locked.
        """
        return take_lock(os.path.join(self.path, "working"))

    def point(self, target: str) -> None:
        """Lets the link lead to `target`, in one step.

        Raises:
            WriteError: It cannot be written.
        """
        replace_link(self.logdir, target, self.path)

    def give_up(self) -> None:
        """Lets the link lead to the logdir itself, unless another process keeps it up to date."""
        handle = self.lock()
        if handle is not None:
            try:
                self.point(self.source)
            finally:
                os.close(handle)


def open_home(source: str, cache: str = "", *, viewer: str = "tensorboard") -> Home:
    """Finds the place for the mirror of a logdir, makes it, and keeps it until this process ends.

    Args:
        source: The logdir; need not exist yet.
        cache: Directory for all mirrors; the user's cache, or else the temporary directory, when empty.
        viewer: Who is shown it. Each viewer has mirrors of its own in the user's cache.

    Raises:
        LogdirError: No place can be written, or each that can is below the logdir itself.
    """
    source = os.path.abspath(os.path.expanduser(source))
    # A link's own path, not where it leads: it may lead elsewhere tomorrow. Another version may convert otherwise.
    key = hashlib.blake2b(os.fsencode(f"{__version__} {source}"), digest_size=8).hexdigest()
    shared = os.path.join(tempfile.gettempdir(), "ms_summary_bridge")  # on Windows, where each user has an own one
    if sys.platform != "win32":
        shared += f"-{os.getuid()}"
    roots = [os.path.join(cache_directory(), viewer), os.path.join(shared, viewer)]
    reasons = []
    for root in [os.path.abspath(os.path.expanduser(cache))] if cache else roots:
        if is_below(root, source):  # the viewer would find the mirror in the logdir, and show every run twice
            reasons.append(f"{root}: is below the logdir")
            continue
        try:
            if os.path.dirname(root) == shared:
                _check_private(shared)
            home = Home(os.path.join(root, key), source)
            home.hold()
        except OSError as error:
            reasons.append(f"{error.filename or root}: {error.strerror or error}")
        else:
            return home
    raise LogdirError(
        f"no place for converted files ({'; '.join(reasons)}): name one in the environment variable XDG_CACHE_HOME"
    )


def user_directory(variable: str, default: str) -> str:
    """Returns a base directory of the XDG specification, by its variable; a path that is not absolute is ignored."""
    path = os.environ.get(variable, "")
    return path if os.path.isabs(path) else os.path.expanduser(default)


def cache_directory() -> str:
    """Returns the directory of this package in the user's cache."""
    default = os.environ.get("LOCALAPPDATA", "~") if sys.platform == "win32" else "~/.cache"
    return os.path.join(user_directory("XDG_CACHE_HOME", default), "ms_summary_bridge")


def is_below(path: str, directory: str) -> bool:
    """Whether a path is below a directory, or that itself, wherever links lead."""
    path, directory = os.path.realpath(path), os.path.realpath(directory)
    with contextlib.suppress(ValueError):  # on Windows: they are on two disks
        return os.path.commonpath([path, directory]) == directory
    return False


def make_private(path: str) -> None:
    """Makes a directory for this user alone, and so those above it that are missing.

    Raises:
        OSError: It cannot be made.
    """
    missing = [path]
    while not os.path.isdir(parent := os.path.dirname(missing[-1])):
        missing.append(parent)
    for directory in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
    if os.stat(path).st_mode & 0o077:  # it was there already
        with contextlib.suppress(PermissionError):  # and is somebody else's
            os.chmod(path, 0o700)


def _check_private(path: str) -> None:
    """Makes a directory where everybody can; what another user has put there is not used."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    if sys.platform != "win32":
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o022:
            raise PermissionError(0, "belongs to somebody else", path)


def clear_directory(path: str) -> None:
    """Removes a directory with all that is in it, as far as that can be done."""
    shutil.rmtree(path, ignore_errors=True)


def size_of(path: str) -> int:
    """Returns the bytes of all files below a directory."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(directory, name)).st_size
    return total


def clean(home: Home, limit: int) -> int:
    """Removes old mirrors, and the oldest others while all but this one hold more than `limit` bytes.

    Old is what nobody has used for a month, or for a day if its logdir is gone.

    Returns:
        The bytes that the other mirrors still hold.
    """
    root = os.path.dirname(home.path)
    others: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            if entry.path != home.path and _is_home(entry.path):
                used = os.stat(os.path.join(entry.path, "used")).st_mtime
                others.append((used, size_of(os.path.join(entry.path, "outputs")), entry.path))
    total = sum(size for _, size, _ in others)
    for used, size, path in sorted(others):
        longest = _UNUSED_SECS if os.path.exists(os.path.join(path, "source")) else _ORPHAN_SECS
        if (total > limit or time.time() - used > longest) and _remove_unused(path):
            total -= size
    return total


def _is_home(path: str) -> bool:
    """Whether a directory is a mirror: a cache that the user names may hold anything else."""
    return (
        _KEY.fullmatch(os.path.basename(path)) is not None
        and not is_link(path)
        and is_link(os.path.join(path, "logdir"))
        and os.path.isfile(os.path.join(path, "used"))
    )


def _remove_unused(path: str) -> bool:
    try:
        handle = os.open(os.path.join(path, "used"), os.O_RDWR | O_BINARY)
    except OSError:
        return False
    try:
        if not try_lock(handle):
            return False
        for part in ("outputs", "views", "nodes"):  # and last what says that it is a mirror, should this be cut short
            clear_directory(os.path.join(path, part))
        clear_directory(path)
    except OSError:
        return False
    finally:
        os.close(handle)
    if sys.platform == "win32":  # which removes nothing that is open
        clear_directory(path)
    return True
