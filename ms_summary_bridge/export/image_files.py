"""Image files, one for each image."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import ExitStack
from typing import Final

from ms_summary_bridge.columns.growing import Columns
from ms_summary_bridge.export.writer import ExportWriter, Names, Place
from ms_summary_bridge.values import Image, Value

__all__ = ["ImageWriter"]

_SUFFIXES: Final = (
    (b"\x89PNG", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"RIFF", ".webp"),
    (b"BM", ".bmp"),
)
_UNSAFE: Final = re.compile(r"[^\w.\-+=, ]", re.ASCII)
_MOST_BYTES: Final = 150  # of a name; a file system has 255


class ImageWriter(ExportWriter):
    """A file for each image, untouched: `<run>/<tag>/<step>.png`, with `_1`, `_2` ... where a step has several."""

    def __init__(self, directory: str, *, is_forced: bool = False) -> None:
        super().__init__(directory, is_forced=is_forced)
        self._taken: set[str] = set()

    def write_scalars(self, columns: Columns, names: Names) -> bool:
        """Takes scalars; returns whether the format has a place for them."""
        return False

    def write(self, place: Place, value: Value) -> bool:
        """Takes a value of another kind; returns whether the format has a place for it."""
        if not isinstance(value, Image):
            return False
        parts = [_safe(part) for part in (*place.run.split("/"), *place.tag.split("/")) if part not in ("", ".")]
        for data in value.encoded:
            stem = os.path.join(*parts, str(place.step)) if parts else str(place.step)
            suffix = _suffix(data)
            name, number = f"{stem}{suffix}", 0
            while name.lower() in self._taken:
                number += 1
                name = f"{stem}_{number}{suffix}"
            self._taken.add(name.lower())
            with ExitStack() as files, open(self._path(name, files), "wb") as file:
                file.write(data)
            self.count("images")
        return True


def _safe(part: str) -> str:
    """Returns a name that every file system holds, and that leads nowhere else; a long one ends with its hash."""
    name = _UNSAFE.sub("_", part).rstrip(". ") or "_"
    if len(name) > _MOST_BYTES:
        digest = hashlib.blake2b(part.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        name = f"{name[:_MOST_BYTES]}~{digest}"
    return name


def _suffix(data: bytes) -> str:
    return next((suffix for magic, suffix in _SUFFIXES if data.startswith(magic)), ".bin")
