"""Makes Linux look like Windows or macOS to the code of this package alone; Python loads it where it is on PYTHONPATH.

`MSB_TEST_SYSTEM` is `win32` or `darwin`. What that system's Python lacks is missing: modules cannot be imported, names
of modules not be found, whether they are asked for by `import`, by `os.pread` or by `getattr`. Of Windows, this is so
too: what is open can be neither replaced nor removed, names have rules, a file is opened as text unless told otherwise,
no directory is opened, only what is open for writing is synced, and links need a right: `MSB_TEST_RIGHTS` holds
`symlink` where the user has it, and `same_disk` where the cache is on the disk of the logdir.

The standard library and other packages see Linux: their own code for Windows is not what is tested.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
import re
import select
import signal
import stat
import struct
import sys
import types
from collections.abc import Callable
from typing import Any

SYSTEM = os.environ.get("MSB_TEST_SYSTEM", "")
RIGHTS = os.environ.get("MSB_TEST_RIGHTS", "symlink same_disk").split()
PACKAGE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "ms_summary_bridge"
)

# What Python's own documentation marks as not available there.
MODULES = {
    "win32": "crypt curses fcntl grp nis ossaudiodev posix pty pwd readline resource spwd syslog termios tty",
    "darwin": "ossaudiodev spwd nis msvcrt winreg _winapi",
}[SYSTEM or "darwin"].split()
NAMES: dict[str, dict[Any, str]] = {
    "win32": {
        os: r"O_(?!RDONLY|WRONLY|RDWR|APPEND|CREAT|EXCL|TRUNC)\w+|W[A-Z]+|P_PID\w*|PRIO_\w+|SCHED_\w+|RTLD_\w+|EX_\w+|"
        r"chown|chroot|confstr\w*|copy_file_range|ctermid|eventfd\w*|fchdir|fchmod|fchown|fdatasync|fork|forkpty|"
        r"fpathconf|fstatvfs|get(egid|euid|gid|groups|grouplist|loadavg|pgid|pgrp|priority|resgid|resuid|sid|uid|"
        r"random|xattr)|initgroups|killpg|lchown|listxattr|lockf|login_tty|major|makedev|memfd_create|minor|mkfifo|"
        r"mknod|nice|openpty|pathconf\w*|pidfd_open|pipe2|posix_\w+|preadv?|pwritev?|readv|register_at_fork|"
        r"removexattr|sched_\w+|sendfile|set(egid|euid|gid|groups|ns|pgid|priority|regid|resgid|resuid|reuid|sid|uid|"
        r"xattr)|set_blocking|get_blocking|splice|statvfs|sync|sysconf\w*|tc[gs]etpgrp|ttyname|uname|unshare|"
        r"wait[34]?|waitid|writev",
        signal: r"SIG(?!ABRT|FPE|ILL|INT|SEGV|TERM|_DFL|_IGN)\w+|alarm|[gs]etitimer|pause|pthread_\w+|sigpending|"
        r"siginterrupt|sigwait\w*|sigtimedwait|ITIMER_\w+|pidfd_send_signal",
        select: r"poll|epoll|POLL\w*|EPOLL\w*",
    },
    "darwin": {
        os: r"memfd_create|MFD_\w+|pidfd_open|eventfd\w*|posix_fadvise|copy_file_range|pipe2|sched_\w+|splice|unshare|"
        r"setns|O_(DIRECT|LARGEFILE|NOATIME|PATH|RSYNC|TMPFILE)|getresuid|getrandom|[gsr]\w*xattr|posix_fallocate",
        signal: r"SIGRT\w+|SIGPOLL|SIGPWR|SIGSTKFLT|sigtimedwait|sigwaitinfo|pidfd_send_signal",
        select: r"epoll|EPOLL\w*",
        fcntl: r"F_SETPIPE_SZ|F_GETPIPE_SZ|F_OFD\w+|F_ADD_SEALS",
    },
}[SYSTEM or "darwin"]
O_BINARY = 1 << 29
NEW_PROCESS_GROUP = 0x200
BAD_NAME = re.compile(r'[<>:"\\|?*\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.I)
_get_frame = sys._getframe
_real = types.SimpleNamespace(
    open=os.open, replace=os.replace, rename=os.rename, unlink=os.unlink, remove=os.remove, mkdir=os.mkdir,
    makedirs=os.makedirs, fsync=os.fsync, utime=os.utime, symlink=os.symlink, link=os.link, lstat=os.lstat,
    readlink=os.readlink, opened=builtins.open, imports=builtins.__import__,
)  # fmt: skip


def is_for_us() -> bool:
    """Whether the caller of the calling function is in our package."""
    try:
        return _get_frame(2).f_code.co_filename.startswith(PACKAGE)
    except ValueError:  # it is Python's own start
        return False


class Module(types.ModuleType):
    """A module that shows our package another face."""

    def __getattribute__(self, name: str) -> Any:
        # Python makes new modules of the class that `sys` has.
        face = FACES.get(types.ModuleType.__getattribute__(self, "__name__"))
        if face is not None and is_for_us():
            hidden, others = face
            if name in others:
                return others[name]
            if hidden.fullmatch(name):
                raise AttributeError(f"module has no attribute {name!r} on {SYSTEM}")
        return types.ModuleType.__getattribute__(self, name)


def imports(name: str, globals_: Any = None, locals_: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    if globals_ is not None and str(globals_.get("__file__", "")).startswith(PACKAGE):
        if SYSTEM == "win32" and name in WINDOWS_MODULES:
            return WINDOWS_MODULES[name]
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r} on {SYSTEM}", name=name)
    return _real.imports(name, globals_, locals_, fromlist, level)


# --- Windows: files


def refuse_if_open(path: Any) -> None:
    for number in os.listdir("/proc/self/fd"):
        try:
            where = _real.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if where == os.path.realpath(path):
            raise PermissionError(errno.EACCES, "The process cannot access the file: it is being used", os.fspath(path))


def check_name(path: Any) -> None:
    if isinstance(path, str | os.PathLike):
        for part in os.fspath(path).split("/"):
            if part not in (".", "..") and BAD_NAME.search(part):
                raise OSError(errno.EINVAL, f"The filename, directory name, or volume label {part!r} is wrong")


def named(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Any, *arguments: Any, **options: Any) -> Any:
        check_name(path)
        return function(path, *arguments, **options)

    return call


def unopened(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Any, *arguments: Any) -> Any:
        for each in (path, *arguments):
            refuse_if_open(each)
        for each in arguments:
            check_name(each)
            if os.path.isdir(each):
                raise PermissionError(errno.EACCES, "Access is denied", each)
        return function(path, *arguments)

    return call


def open_descriptor(path: Any, flags: int, mode: int = 0o777) -> int:
    check_name(path)
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Access is denied", path)
    assert flags & O_BINARY or path == os.devnull, f"{path} would be opened as text"
    return _real.open(path, flags & ~O_BINARY, mode)


def sync(descriptor: int) -> None:
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")
    _real.fsync(descriptor)


def utime(path: Any, *arguments: Any, **options: Any) -> None:
    assert not isinstance(path, int), "utime takes no descriptor there"
    _real.utime(path, *arguments, **options)


# --- Windows: links


def symlink(target: Any, path: Any, target_is_directory: bool = False) -> None:
    if "symlink" not in RIGHTS:
        raise OSError(errno.EINVAL, "A required privilege is not held by the client", target)
    _real.symlink(target, path)


def link(source: Any, path: Any) -> None:
    if "same_disk" not in RIGHTS:
        raise OSError(errno.EXDEV, "The system cannot move the file to a different disk drive", source)
    _real.link(source, path)


def make_junction(target: str, path: str) -> None:
    _real.symlink(os.path.abspath(target), path)


def lstat(path: Any) -> Any:
    """A link to a directory is a junction here, unless the user may make the other ones."""
    status = _real.lstat(path)
    if stat.S_ISLNK(status.st_mode) and "symlink" not in RIGHTS:
        return types.SimpleNamespace(st_mode=stat.S_IFDIR | 0o777, st_reparse_tag=0xA0000003, st_size=0)
    return status


def readlink(path: Any) -> str:
    return "\\\\?\\" + _real.readlink(path)


def lock_region(descriptor: int, mode: int, size: int) -> None:
    """What LockFile does, by Linux's own locks of an open file; 2 is LK_NBLCK."""
    assert mode == 2
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_CUR, 0, size, 0))
    except BlockingIOError:
        raise PermissionError(errno.EACCES, "Permission denied") from None


# --- Windows: processes


def start_process(*arguments: Any, creationflags: int = 0, **options: Any) -> Any:
    """Popen, whose flags Linux refuses; what is of a group of its own there is of a session of its own here."""
    import subprocess

    assert creationflags in (0, NEW_PROCESS_GROUP), f"{creationflags:#x} is not known here"
    assert bool(creationflags) == bool(options.get("start_new_session")), "Ctrl-C reaches it on one of the systems"
    return subprocess.Popen(*arguments, **options)


WINDOWS_MODULES = {
    "msvcrt": types.SimpleNamespace(LK_NBLCK=2, locking=lock_region),
    "_winapi": types.SimpleNamespace(CreateJunction=make_junction),
}
WINDOWS_OS = {
    "name": "nt", "O_BINARY": O_BINARY, "open": open_descriptor, "fsync": sync, "utime": utime,
    "replace": unopened(_real.replace), "rename": unopened(_real.rename),
    "unlink": unopened(_real.unlink), "remove": unopened(_real.remove),
    "mkdir": named(_real.mkdir), "makedirs": named(_real.makedirs),
    "symlink": symlink, "link": link, "lstat": lstat, "readlink": readlink,
}  # fmt: skip


def open_file(path: Any, *arguments: Any, **options: Any) -> Any:
    if is_for_us():
        check_name(path)
    return _real.opened(path, *arguments, **options)


FACES: dict[str, tuple[re.Pattern[str], dict[str, Any]]] = {"sys": (re.compile("(?!)"), {"platform": SYSTEM})}
if SYSTEM:
    FACES |= {module.__name__: (re.compile(names), {}) for module, names in NAMES.items()}
    if SYSTEM == "win32":
        FACES["os"] = (FACES["os"][0], WINDOWS_OS)
        builtins.open = open_file
        FACES["subprocess"] = re.compile("(?!)"), {"Popen": start_process}
        FACES["psutil"] = re.compile("(?!)"), {"BELOW_NORMAL_PRIORITY_CLASS": 5}
    for module in (sys, *NAMES):
        module.__class__ = Module
    builtins.__import__ = imports
