"""What a target is, and how it takes an input apart."""

from __future__ import annotations

import atexit
import functools
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    """Something that reads bytes.

    Attributes:
        name: By which tools/torture and tests/data/fuzz know it.
        what: What is tried, in a few words.
        take: Takes an input; returns, or raises a `BridgeError`. It asserts what must hold of what it returns.
        seeds: Inputs to begin with.
        form: How inputs are changed: `wire` for messages of protobuf, `records` for files of records, `json`,
            `json_lines`, `yaml`, `lines` for text, `bytes` for anything else.
        head: So many bytes before the input proper say how it is taken.
        message: By these bytes, the class of the message, or of those in the records.
        mend: Makes an input agree with itself again, by these bytes and the input proper: what no field alone can say.
        also: Asks something of what the last input left; too slow for each.
    """

    name: str
    what: str
    take: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    form: str = "bytes"
    head: int = 0
    message: Callable[[bytes], Any] | None = None
    mend: Callable[[bytes, bytes, random.Random], bytes] | None = None
    also: Callable[[], object] | None = None

    def descriptor(self, head: bytes) -> Any:
        """Returns what describes the messages of an input that begins with these bytes; None where nobody knows it."""
        found = self.message(head) if self.message else None
        return found.DESCRIPTOR if found is not None else None


class Drawer:
    """Draws numbers and texts from an input; of one that has ended, zeros."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Returns the next bytes, with zeros where there are no more."""
        part = self._data[self._at : self._at + size]
        self._at += size
        return part.ljust(size, b"\0")

    def below(self, limit: int) -> int:
        """Returns a whole number from 0 on."""
        return int.from_bytes(self.take(1 if limit <= 256 else 4), "little") % limit

    def double(self) -> float:
        """Returns a float64 of any bits."""
        return float(struct.unpack("<d", self.take(8))[0])

    def perhaps(self) -> float | None:
        """Returns a float64, or nothing."""
        return self.double() if self.below(4) else None

    def rest(self) -> bytes:
        """Returns what was not drawn."""
        return self._data[self._at :]


@functools.cache
def scratch() -> str:
    """Returns a directory for the files of this process, in memory where there is such a place."""
    directory = tempfile.mkdtemp(prefix="fuzz.", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def put(name: str, data: bytes) -> str:
    """Writes a file below `scratch`; returns its path."""
    path = os.path.join(scratch(), name)
    try:
        with open(path, "wb") as file:
            file.write(data)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path))
        return put(name, data)
    return path


def empty(name: str) -> str:
    """Makes a directory below `scratch` new; returns its path."""
    path = os.path.join(scratch(), name)
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path
