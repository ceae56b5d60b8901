"""What may lie on a disk after a crash, at each place in what was written, by a model of a file system.

The model is a strict one: POSIX promises no more, and real file systems keep no less.

* While the system lives (a process is killed), all that was written is there, but the last write may be torn.
* When the system dies, the data of a file since its last fsync may be missing, be zeros of the right size, or be there
  in part, and of several files one may have it and another not. Names in a directory since its last fsync may be
  missing from some point on: a new file may not be there, a rename may be undone. Nothing is said about the order of
  data and names: a file may have its new name and no data yet.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torturing.calls import Call

_CUTS = (1, 8, 12)
"""A write is torn behind so many bytes, in its middle, and before its last byte."""
_PENDING = 4
"""So many of the last names are undone one after the other."""


@dataclass
class Op:
    """One thing that was done below the root; paths are absolute."""

    kind: str
    path: str = ""
    file: int = -1
    offset: int = 0
    data: bytes = b""
    other: str = ""
    token: Any = None
    """Of a mark: what is promised from here on."""


@dataclass
class Image:
    """A tree: names with `("dir",)`, `("link", target)` or `("file", number)`, and what the files hold."""

    names: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    data: dict[int, bytes] = field(default_factory=dict)

    def key(self) -> int:
        """Returns what tells two images apart."""
        return hash(
            tuple(
                (path, entry if entry[0] != "file" else self.data.get(entry[1], b""))
                for path, entry in sorted(self.names.items())
            )
        )

    def write(self, root: str) -> None:
        """Makes the root hold this and nothing else."""
        shutil.rmtree(root, ignore_errors=True)
        os.makedirs(root)
        made: dict[int, str] = {}
        for path, entry in sorted(self.names.items()):
            if entry[0] == "dir":
                os.makedirs(path, exist_ok=True)
            elif entry[0] == "link":
                os.symlink(entry[1], path)
            elif entry[1] in made:
                os.link(made[entry[1]], path)
            else:
                with open(path, "wb") as file:
                    file.write(self.data.get(entry[1], b""))
                made[entry[1]] = path


@dataclass
class Crash:
    """One state that a crash may leave."""

    after: int
    """So many things were done."""
    how: str
    image: Image
    is_power: bool
    """The system died, not the process alone."""
    promised: list[Any]
    """Tokens of the marks before it."""


class Recorder:
    """A hook of `Interposed` that takes note of what is done below a root, while a writer runs."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._files: dict[int, int] = {}
        self._lock = threading.RLock()

    def mark(self, token: Any) -> None:
        """Says that from here on something is promised."""
        self.ops.append(Op("mark", token=token))

    def __call__(self, call: Call, do: Callable[[], Any]) -> Any:
        with self._lock:
            was_there = os.path.lexists(call.path) if call.path else False
            result = do()
            self._note(call, result, was_there=was_there)
            return result

    def _note(self, call: Call, result: Any, *, was_there: bool) -> None:
        kind, path = call.kind, call.path
        if kind == "open" and call.flags & (os.O_CREAT | os.O_TRUNC):
            if not was_there:
                self.ops.append(Op("create", path, self._new(path)))
            elif call.flags & os.O_TRUNC:
                self.ops.append(Op("truncate", path, self._number(path), 0))
        elif kind in ("write", "pwrite"):
            data = call.arguments[1]
            parts = data if isinstance(data, (list, tuple)) else [data]
            whole = b"".join(bytes(part) for part in parts)[:result]
            self.ops.append(Op("write", path, self._number(call.arguments[0]), call.offset, whole))
        elif kind in ("ftruncate", "truncate"):
            self.ops.append(Op("truncate", path, self._number(call.arguments[0]), call.arguments[1]))
        elif kind == "fsync":
            is_directory = os.path.isdir(path)
            self.ops.append(
                Op("sync_names", path) if is_directory else Op("sync", path, self._number(call.arguments[0]))
            )
        elif kind == "rename":
            self.ops.append(Op("rename", path, other=_absolute(call.arguments[0])))
        elif kind == "link":
            self.ops.append(Op("link", path, self._number(path)))
        elif kind == "symlink":
            self.ops.append(Op("symlink", path, other=os.fspath(call.arguments[0])))
        elif kind in ("unlink", "mkdir", "rmdir"):
            self.ops.append(Op(kind, path))
        elif kind == "sendfile":
            raise AssertionError("sendfile is not recorded")

    def _new(self, path: str) -> int:
        number = len(self.ops)
        self._files[os.stat(path).st_ino] = number
        return number

    def _number(self, target: Any) -> int:
        return self._files[os.stat(target).st_ino]


def _absolute(path: Any) -> str:
    return os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))


_NAME_OPS = ("create", "rename", "link", "symlink", "unlink", "mkdir", "rmdir")


def crashes(ops: list[Op], root: str) -> Iterator[Crash]:
    """Yields every state that a crash may leave, each once for what is promised."""
    seen: set[tuple[int, bool, int]] = set()
    for crash in _all(ops, root):
        key = (crash.image.key(), crash.is_power, len(crash.promised))
        if key not in seen:
            seen.add(key)
            yield crash


def _all(ops: list[Op], root: str) -> Iterator[Crash]:
    data: dict[int, bytes] = {}
    synced: dict[int, bytes] = {}
    promised: list[Any] = []
    for count in range(len(ops) + 1):
        if count:
            op = ops[count - 1]
            if op.kind == "mark":
                promised = [*promised, op.token]
            _change(op, data)
            if op.kind == "sync":
                synced[op.file] = data.get(op.file, b"")
        done = ops[:count]
        names = _names(done, root)
        yield Crash(count, "killed", Image(names, dict(data)), False, promised)
        if count < len(ops) and ops[count].kind == "write":
            op = ops[count]
            for cut in sorted({cut for cut in (*_CUTS, len(op.data) // 2, len(op.data) - 1) if 0 < cut < len(op.data)}):
                torn = dict(data)
                _change(Op("write", op.path, op.file, op.offset, op.data[:cut]), torn)
                yield Crash(
                    count, f"killed, the next write torn behind {cut} bytes", Image(names, torn), False, promised
                )
        yield from _power(done, root, names, data, synced, promised)


def _power(
    done: list[Op],
    root: str,
    names: dict[str, tuple[Any, ...]],
    data: dict[int, bytes],
    synced: dict[int, bytes],
    promised: list[Any],
) -> Iterator[Crash]:
    count = len(done)
    unsynced = [number for number in data if data[number] != synced.get(number, b"")]
    old = {**data, **{number: synced.get(number, b"") for number in unsynced}}
    yield Crash(count, "power lost, no data since its fsync", Image(names, old), True, promised)
    if unsynced:
        zeros = {**data, **{n: _as_zeros(synced.get(n, b""), data[n]) for n in unsynced}}
        yield Crash(count, "power lost, zeros since the fsync", Image(names, zeros), True, promised)
        half = {**data, **{n: _half(synced.get(n, b""), data[n]) for n in unsynced}}
        yield Crash(count, "power lost, half of the data since the fsync", Image(names, half), True, promised)
        first = {**data, **{n: _first_missing(synced.get(n, b""), data[n]) for n in unsynced}}
        yield Crash(count, "power lost, the first half since the fsync is zeros", Image(names, first), True, promised)
    if len(unsynced) > 1:
        for number in unsynced:
            one = {**data, number: old[number]}
            yield Crash(
                count, f"power lost, no data of file {number} since its fsync", Image(names, one), True, promised
            )
            one = {**old, number: data[number]}
            yield Crash(
                count,
                f"power lost, of the data since an fsync that of file {number}",
                Image(names, one),
                True,
                promised,
            )
    pending = _pending(done)
    for kept in sorted({0, *range(max(0, len(pending) - _PENDING), len(pending))}):
        fewer = _names(done, root, set(pending[kept:]))
        what = f"power lost, {len(pending) - kept} of the names since their fsync gone"
        yield Crash(count, what, Image(fewer, dict(data)), True, promised)
        yield Crash(count, f"{what}, and the data", Image(fewer, old), True, promised)


def _as_zeros(synced: bytes, now: bytes) -> bytes:
    kept = _common(synced, now)
    return now[:kept] + bytes(len(now) - kept)


def _half(synced: bytes, now: bytes) -> bytes:
    kept = _common(synced, now)
    return now[: kept + (len(now) - kept) // 2]


def _first_missing(synced: bytes, now: bytes) -> bytes:
    kept = _common(synced, now)
    middle = kept + (len(now) - kept) // 2
    return now[:kept] + bytes(middle - kept) + now[middle:]


def _common(one: bytes, other: bytes) -> int:
    """Returns how many bytes both begin with."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _change(op: Op, data: dict[int, bytes]) -> None:
    if op.kind == "create":
        data[op.file] = b""
    elif op.kind == "write":
        before = data.get(op.file, b"")
        data[op.file] = before[: op.offset].ljust(op.offset, b"\0") + op.data + before[op.offset + len(op.data) :]
    elif op.kind == "truncate":
        data[op.file] = data.get(op.file, b"")[: op.offset].ljust(op.offset, b"\0")


def _pending(done: list[Op]) -> list[int]:
    """Returns the names that no fsync of their directory has made last, in order."""
    pending: list[int] = []
    for index, op in enumerate(done):
        if op.kind in _NAME_OPS:
            pending.append(index)
        elif op.kind == "sync_names":
            pending = [other for other in pending if os.path.dirname(done[other].path) != op.path]
    return pending


def _names(done: list[Op], root: str, missing: set[int] = frozenset()) -> dict[str, tuple[Any, ...]]:  # type: ignore[assignment]
    names: dict[str, tuple[Any, ...]] = {root: ("dir",)}
    for index, op in enumerate(done):
        if op.kind not in _NAME_OPS or index in missing:
            continue
        if op.kind == "create" or op.kind == "link":
            names[op.path] = ("file", op.file)
        elif op.kind == "rename":
            if op.other in names:
                names[op.path] = names.pop(op.other)
            elif (entry := _renamed(done[:index], op.other)) is not None:  # its first name never got there
                names[op.path] = entry
        elif op.kind == "symlink":
            names[op.path] = ("link", op.other)
        elif op.kind == "mkdir":
            names[op.path] = ("dir",)
        else:
            names.pop(op.path, None)
    return {path: entry for path, entry in names.items() if _has_parents(path, names, root)}


def _renamed(done: list[Op], path: str) -> tuple[Any, ...] | None:
    """Returns what had a name before it was renamed, whether or not the disk knew of the name."""
    return _names(done, os.path.dirname(path)).get(path)


def _has_parents(path: str, names: dict[str, tuple[Any, ...]], root: str) -> bool:
    while path != root:
        path = os.path.dirname(path)
        if names.get(path) != ("dir",):
            return False
    return True
