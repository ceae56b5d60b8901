"""Lines of a file, which may hold none: each piece that is given out has a bounded length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ms_summary_bridge.files.system import open_regular

__all__ = ["read_lines"]

_MOST_BYTES: Final = 1 << 20


def read_lines(path: str, tail_bytes: int | None = None) -> Iterator[bytes]:
    """Yields the lines of a file, one of more than a mebibyte in parts; with `tail_bytes`, whole lines at its end.

    Raises:
        OSError: It cannot be read, or is no file.
    """
    with open(path, "rb", opener=open_regular) as file:
        if tail_bytes is not None:
            file.seek(-tail_bytes, 2)
            file.readline(tail_bytes)
        while line := file.readline(_MOST_BYTES):
            yield line
