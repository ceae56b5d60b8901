"""A writer to be tried, and what must be true of what it left."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from torturing.disk import Crash

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
