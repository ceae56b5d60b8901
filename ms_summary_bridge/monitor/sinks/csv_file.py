"""metrics.csv beside the journal: one row for each sample, for tables and spreadsheets."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from typing import Any, Final

from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.files.atomic import replace_file
from ms_summary_bridge.monitor.model.sample import Sample
from ms_summary_bridge.monitor.sinks.journal import read_journal, sample_line
from ms_summary_bridge.monitor.sinks.line_file import LineFile
from ms_summary_bridge.monitor.sinks.writer import Sink

__all__ = ["CSV", "CsvFile"]

CSV: Final = "metrics.csv"
_FIXED: Final = ("step", "epoch", "wall_time", "interval_steps")
_SAME: Final = ("step", "epoch")  # metrics that a column has already


class CsvFile(Sink):
    """Writes one row for each sample. A number that is not finite is written as nan, inf or -inf.

    The columns are those of the samples so far. A value under a new name makes the file new, from the journal.
    """

    def __init__(self, directory: str, rank: int, warn: Callable[[str, str], None], flush: Callable[[], bool]) -> None:
        self._directory = directory
        self._rank = rank
        self._flush_journal = flush
        self._warn = warn
        self._columns: list[str] = []
        self._file: LineFile | None = None

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample, which the journal has taken before."""
        if not self._flush_journal():
            return
        line = sample_line(sample, self._rank)
        if self._file is None or not line["values"].keys() <= {*self._columns, *_SAME}:
            self._renew()
        else:
            self._file.append(_row(self._columns, line))

    def _renew(self) -> None:
        path = os.path.join(self._directory, CSV)
        self.close()
        try:
            lines = list(filter(_is_sample, read_journal(self._directory)))
            self._columns = [
                name for name in dict.fromkeys(name for line in lines for name in line["values"]) if name not in _SAME
            ]
            heads = [f"value/{name}" if name in _FIXED else name for name in self._columns]
            rows = [_join([*_FIXED, *heads]), *(_row(self._columns, line) for line in lines)]
            replace_file(path, b"".join(row + b"\n" for row in rows))
        except LogdirError as error:
            self._warn("csv", str(error))
            self._file = None
            return
        self._file = LineFile(path, self._warn)

    def flush(self) -> None:
        """Hands all to the operating system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


def _is_sample(line: dict[str, Any]) -> bool:
    """Whether a line is a sample as the monitor writes it: anything may stand in a file."""
    is_whole = isinstance(line.get("values"), dict) and isinstance(line.get("nonfinite", {}), dict)
    return line.get("kind") in ("sample", "all") and is_whole


def _row(columns: list[str], line: dict[str, Any]) -> bytes:
    values = {**line["values"], **line.get("nonfinite", {})}
    return _join([line.get(name) for name in _FIXED] + [values.get(name) for name in columns])


def _join(cells: list[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(["" if cell is None else cell for cell in cells])
    return text.getvalue().encode()
