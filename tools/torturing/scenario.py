"""A writer to be tried, and what must be true of what it left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ms_summary_bridge.files.record_writer import RecordWriter, create_unique
from torturing.disk import Crash

_BUFFER_BYTES = 400


@contextmanager
def small_buffers() -> Iterator[None]:
    """Lets record writers write often: a write of a few records in the place of one of a megabyte."""
    functions = (RecordWriter.__init__, create_unique)
    before = [function.__kwdefaults__["buffer_bytes"] for function in functions]
    for function in functions:
        function.__kwdefaults__["buffer_bytes"] = _BUFFER_BYTES
    try:
        yield
    finally:
        for function, size in zip(functions, before, strict=True):
            function.__kwdefaults__["buffer_bytes"] = size


Mark = Callable[[Any], None]
"""Takes a token that says what is promised from here on."""


class Scenario(ABC):
    """A writer that writes below `root`; what it reads lies beside it, below `base`."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.root = base / "root"

    @abstractmethod
    def write(self, mark: Mark) -> None:
        """Writes once, from the beginning to the end."""

    @abstractmethod
    def check(self, crash: Crash) -> Iterator[str]:
        """Looks at what lies in `root`, goes on from there, and yields what is wrong."""
