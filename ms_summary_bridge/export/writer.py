"""What the writers of an export have in common."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack

import msgspec

from ms_summary_bridge.columns.growing import Columns
from ms_summary_bridge.errors import FileTakenError, WriteError
from ms_summary_bridge.files.atomic import replacing
from ms_summary_bridge.values import Value

__all__ = ["HEAD", "ExportWriter", "Names", "Place", "rows_of"]

HEAD = ("run", "tag", "step", "wall_time")
"""What each row begins with."""


class Place(msgspec.Struct, frozen=True):
    """Where a value stands."""

    run: str
    tag: str
    step: int
    wall_time: float


class Names(msgspec.Struct):
    """What the numbers in columns stand for."""

    runs: list[str]
    tags: list[str]


class ExportWriter(ABC):
    """Writes values into a directory; the files get their names when `close` succeeds.

    Args:
        directory: Where they go; it is made.
        is_forced: Replace files of the same names.

    Attributes:
        rows: Values in each file, by its name in the directory.
    """

    def __init__(self, directory: str, *, is_forced: bool = False) -> None:
        self.directory = directory
        self.rows: dict[str, int] = {}
        self._is_forced = is_forced
        self._files = ExitStack()

    @abstractmethod
    def write_scalars(self, columns: Columns, names: Names) -> bool:
        """Takes scalars; returns whether the format has a place for them."""

    @abstractmethod
    def write(self, place: Place, value: Value) -> bool:
        """Takes a value of another kind; returns whether the format has a place for it."""

    def close(self) -> None:
        """Ends the files and gives them their names.

        Raises:
            WriteError: One cannot be written.
        """
        self._files.close()

    def abandon(self, error: BaseException) -> None:
        """Leaves nothing of files that are not whole."""
        self._files.__exit__(type(error), error, error.__traceback__)

    def _path(self, name: str, files: ExitStack | None = None) -> str:
        """Returns where to write a file that gets this name when `files`, or the export, ends.

        Raises:
            FileTakenError: There is such a file already.
            WriteError: The directory cannot be made.
        """
        path = os.path.join(self.directory, name)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        except OSError as error:
            raise WriteError.of_system(os.path.dirname(path), "made", error) from error
        if os.path.lexists(path) and not self._is_forced:
            raise FileTakenError(f"{path}: exists and would be overwritten; choose another directory or add --force")
        return (files or self._files).enter_context(replacing(path))

    def count(self, name: str, rows: int = 1) -> None:
        """Takes note of values in a file."""
        self.rows[name] = self.rows.get(name, 0) + rows


def rows_of(columns: Columns, names: Names) -> Iterator[tuple[str, str, int, float, float]]:
    """Yields columns as rows: run, tag, step, wall time, value."""
    runs, tags, *numbers = (column.tolist() for column in columns)
    steps, times, values = numbers
    return zip(map(names.runs.__getitem__, runs), map(names.tags.__getitem__, tags), steps, times, values, strict=True)
