"""The formats of an export."""

from __future__ import annotations

from typing import Final

from ms_summary_bridge.export.image_files import ImageWriter
from ms_summary_bridge.export.parquet_files import ParquetWriter
from ms_summary_bridge.export.text_files import CsvWriter, JsonlWriter
from ms_summary_bridge.export.writer import ExportWriter

__all__ = ["FORMATS", "make_writer"]

_WRITERS: Final[dict[str, type[ExportWriter]]] = {
    "csv": CsvWriter,
    "jsonl": JsonlWriter,
    "parquet": ParquetWriter,
    "images": ImageWriter,
}
FORMATS: Final = tuple(_WRITERS)
"""What can be asked for."""


def make_writer(file_format: str, directory: str, *, is_forced: bool) -> ExportWriter:
    """Returns a writer of one of `FORMATS`.

    Raises:
        MissingDependencyError: The format needs a package that is not installed.
    """
    return _WRITERS[file_format](directory, is_forced=is_forced)
