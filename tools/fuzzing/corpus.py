"""Inputs that are kept: one archive for each target in tests/data/fuzz."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable
from pathlib import Path

CORPUS = Path(__file__).resolve().parents[2] / "tests" / "data" / "fuzz"


def read_corpus(name: str) -> list[bytes]:
    """Returns the inputs that are kept of a target; none where there is no archive."""
    path = CORPUS / f"{name}.zip"
    if not path.exists():
        return []
    with zipfile.ZipFile(path) as archive:
        return [archive.read(entry) for entry in sorted(archive.namelist())]


def write_corpus(name: str, inputs: Iterable[bytes]) -> Path:
    """Keeps these inputs, and no others; the same inputs give the same bytes."""
    path = CORPUS / f"{name}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {hashlib.sha256(data).hexdigest()[:16]: data for data in inputs}
    with zipfile.ZipFile(path, "w") as archive:
        for entry, data in sorted(found.items()):
            information = zipfile.ZipInfo(entry, (2000, 1, 1, 0, 0, 0))
            information.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(information, data)
    return path
