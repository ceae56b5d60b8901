"""Files of text: CSV, and an object of JSON a line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import IO, Any

from ms_summary_bridge.columns.growing import Columns
from ms_summary_bridge.export.values import json_number, plain_histogram, plain_tensor
from ms_summary_bridge.export.writer import HEAD, ExportWriter, Names, Place, rows_of
from ms_summary_bridge.formats.texts import text_of
from ms_summary_bridge.values import Histogram, Image, Opaque, Tensor, Value

__all__ = ["CsvWriter", "JsonlWriter"]


class CsvWriter(ExportWriter):
    """One file for each kind: `scalars.csv`, `histograms.csv` (a line for each bucket), `texts.csv`, `tensors.csv`."""

    def __init__(self, directory: str, *, is_forced: bool = False) -> None:
        super().__init__(directory, is_forced=is_forced)
        self._tables: dict[str, Any] = {}

    def _table(self, name: str, *columns: str) -> Any:
        table = self._tables.get(name)
        if table is None:
            path = self._path(name)
            # A tag may hold half a character.
            file = self._files.enter_context(
                open(path, "w", newline="", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
            )
            table = self._tables[name] = csv.writer(file)
            table.writerow((*HEAD, *columns))
        return table

    def write_scalars(self, columns: Columns, names: Names) -> bool:
        """Takes scalars; returns whether the format has a place for them."""
        self._table("scalars.csv", "value").writerows(rows_of(columns, names))
        self.count("scalars.csv", len(columns[0]))
        return True

    def write(self, place: Place, value: Value) -> bool:
        """Takes a value of another kind; returns whether the format has a place for it."""
        head = (place.run, place.tag, place.step, place.wall_time)
        if isinstance(value, Histogram):
            name, table = "histograms.csv", self._table("histograms.csv", "bucket", "left", "right", "count")
            buckets = zip(value.left.tolist(), value.right.tolist(), value.count.tolist(), strict=True)
            table.writerows((*head, number, *bucket) for number, bucket in enumerate(buckets))
        elif isinstance(value, Tensor):
            name, table = "tensors.csv", self._table("tensors.csv", "dtype", "shape", "values")
            plain = plain_tensor(value)
            table.writerow((*head, plain["dtype"], json.dumps(plain["shape"]), _dump(plain["values"])))
        elif isinstance(value, Opaque) and (text := text_of(value)) is not None:
            name, table = "texts.csv", self._table("texts.csv", "text")
            table.writerow((*head, text))
        else:
            return False
        self.count(name)
        return True


class JsonlWriter(ExportWriter):
    """One file, `values.jsonl`, with an object a line: run, tag, step, wall_time, kind, value."""

    def __init__(self, directory: str, *, is_forced: bool = False) -> None:
        super().__init__(directory, is_forced=is_forced)
        self._file: IO[str] | None = None

    def _write(self, lines: Iterator[str]) -> None:
        if self._file is None:
            path = self._path("values.jsonl")
            self._file = self._files.enter_context(open(path, "w", encoding="ascii"))  # noqa: SIM115
        self._file.writelines(lines)

    def write_scalars(self, columns: Columns, names: Names) -> bool:
        """Takes scalars; returns whether the format has a place for them."""
        self._write(
            _line(Place(run, tag, step, wall_time), "scalar", json_number(value))
            for run, tag, step, wall_time, value in rows_of(columns, names)
        )
        self.count("values.jsonl", len(columns[0]))
        return True

    def write(self, place: Place, value: Value) -> bool:
        """Takes a value of another kind; returns whether the format has a place for it."""
        if isinstance(value, Histogram):
            plain: object = {key: _strict(part) for key, part in plain_histogram(value).items()}
        elif isinstance(value, Tensor):
            plain = {key: _strict(part) for key, part in plain_tensor(value).items()}
        elif isinstance(value, Image):
            plain = {"width": value.width, "height": value.height, "bytes": [len(part) for part in value.encoded]}
        elif isinstance(value, Opaque) and (text := text_of(value)) is not None:
            plain = text
        else:
            return False
        self._write(iter((_line(place, value.kind, plain),)))
        self.count("values.jsonl")
        return True


def _strict(value: Any) -> Any:
    return (
        [json_number(one) for one in value]
        if isinstance(value, list)
        else (value if isinstance(value, str) else json_number(value))
    )


def _dump(values: list[float]) -> str:
    return json.dumps([json_number(value) for value in values])


def _line(place: Place, kind: str, value: object) -> str:
    row = {"run": place.run, "tag": place.tag, "step": place.step, "wall_time": place.wall_time}
    return json.dumps({**row, "kind": kind, "value": value}, allow_nan=False) + "\n"
