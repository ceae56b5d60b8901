"""How files are read for a look: in one piece, counted, and never by waiting for what is no file."""

from __future__ import annotations

import os

import msgspec

from ms_summary_bridge.files import system
from ms_summary_bridge.files.system import O_BINARY

__all__ = ["Reading", "read_at"]

_O_NONBLOCK: int = getattr(os, "O_NONBLOCK", 0)  # a pipe is not waited for


class Reading(msgspec.Struct):
    """What a look has cost."""

    files: int = 0
    """How often a file was opened."""
    bytes: int = 0
    listed: int = 0
    """Directories that were listed."""


def read_at(path: str, offset: int, size: int, reading: Reading) -> bytes:
    """Returns bytes of a file, fewer where it has no more.

    Raises:
        OSError: It cannot be opened or read.
    """
    reading.files += 1
    descriptor = os.open(path, os.O_RDONLY | O_BINARY | _O_NONBLOCK)
    try:
        data = system.read_at(descriptor, size, offset)
        while len(data) < size and (more := system.read_at(descriptor, size - len(data), offset + len(data))):
            data += more
    finally:
        os.close(descriptor)
    reading.bytes += len(data)
    return data
