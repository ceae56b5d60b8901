"""The files of an export, one class for each format. Each file is made when its first value comes."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import IO, Any, Final, cast

import msgspec

from ms_summary_bridge.columns.growing import Columns
from ms_summary_bridge.errors import FileTakenError, MissingDependencyError, WriteError
from ms_summary_bridge.export.values import json_number, plain_histogram, plain_tensor, text_of
from ms_summary_bridge.files.atomic import replacing
from ms_summary_bridge.values import Histogram, Image, Opaque, Tensor, Value

__all__ = ["FORMATS", "ExportWriter", "Names", "Place", "make_writer"]

_HEAD: Final = ("run", "tag", "step", "wall_time")
_ROWS: Final = 65_536  # in a group of a Parquet file


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

    def _path(self, name: str) -> str:
        """Returns where to write a file that gets this name at the end.

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
        return self._files.enter_context(replacing(path))

    def _count(self, name: str, rows: int = 1) -> None:
        self.rows[name] = self.rows.get(name, 0) + rows


class _CsvWriter(ExportWriter):
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
            table.writerow((*_HEAD, *columns))
        return table

    def write_scalars(self, columns: Columns, names: Names) -> bool:
        self._table("scalars.csv", "value").writerows(_rows(columns, names))
        self._count("scalars.csv", len(columns[0]))
        return True

    def write(self, place: Place, value: Value) -> bool:
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
        self._count(name)
        return True


class _JsonlWriter(ExportWriter):
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
        self._write(
            _line(Place(run, tag, step, wall_time), "scalar", json_number(value))
            for run, tag, step, wall_time, value in _rows(columns, names)
        )
        self._count("values.jsonl", len(columns[0]))
        return True

    def write(self, place: Place, value: Value) -> bool:
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
        self._count("values.jsonl")
        return True


class _ParquetWriter(ExportWriter):
    """`scalars.parquet`, `histograms.parquet` (buckets as lists), `texts.parquet`, `tensors.parquet`.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """

    def __init__(self, directory: str, *, is_forced: bool = False) -> None:
        super().__init__(directory, is_forced=is_forced)
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise MissingDependencyError(
                "Parquet needs pyarrow, which is not installed: pip install 'ms_summary_bridge[parquet]'"
            ) from error
        self._arrow = pyarrow
        self._parquet = pyarrow.parquet
        self._tables: dict[str, Any] = {}
        self._waiting: dict[str, list[dict[str, Any]]] = {}

    def _table(self, name: str, schema: Any) -> Any:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = self._files.enter_context(
                self._parquet.ParquetWriter(self._path(name), schema)
            )
        return table

    def _schema(self, *columns: tuple[str, Any]) -> Any:
        arrow = self._arrow
        text = arrow.dictionary(arrow.int32(), arrow.string())
        head = [("run", text), ("tag", text), ("step", arrow.int64()), ("wall_time", arrow.float64())]
        return arrow.schema([*head, *columns])

    def write_scalars(self, columns: Columns, names: Names) -> bool:
        arrow = self._arrow
        schema = self._schema(("value", arrow.float64()))
        runs, tags, *numbers = columns
        arrays = [
            arrow.DictionaryArray.from_arrays(codes, arrow.array([_clean(word) for word in words], arrow.string()))
            for codes, words in ((runs, names.runs), (tags, names.tags))
        ]
        arrays += [arrow.array(column) for column in numbers]
        self._table("scalars.parquet", schema).write_table(arrow.Table.from_arrays(arrays, schema=schema))
        self._count("scalars.parquet", len(runs))
        return True

    def write(self, place: Place, value: Value) -> bool:
        arrow = self._arrow
        floats = arrow.list_(arrow.float64())
        if isinstance(value, Histogram):
            name, row = "histograms.parquet", plain_histogram(value)
            row["count"] = value.count.astype("f8").tolist()
            row["total"] = None if value.total is None else float(value.total)
            edges = [(key, floats) for key in ("left", "right", "count")]
            statistics = [(key, arrow.float64()) for key in ("min", "max", "sum", "total")]
            counts = [(key, arrow.int64()) for key in ("nan_count", "pos_inf_count", "neg_inf_count")]
            schema = self._schema(*edges, *statistics, *counts)
        elif isinstance(value, Tensor):
            name, row = "tensors.parquet", plain_tensor(value)
            row["values"] = value.array.ravel().astype("f8").tolist()
            schema = self._schema(("dtype", arrow.string()), ("shape", arrow.list_(arrow.int64())), ("values", floats))
        elif isinstance(value, Opaque) and (text := text_of(value)) is not None:
            name, row = "texts.parquet", {"text": text}
            schema = self._schema(("text", arrow.string()))
        else:
            return False
        table = self._table(name, schema)
        waiting = self._waiting.setdefault(name, [])
        waiting.append({"run": _clean(place.run), "tag": _clean(place.tag), "step": place.step, **row})
        waiting[-1]["wall_time"] = place.wall_time
        if len(waiting) * max(1, len(row.get("values", row.get("left", "")))) >= _ROWS:
            self._flush(name, table)
        self._count(name)
        return True

    def _flush(self, name: str, table: Any) -> None:
        waiting = self._waiting.pop(name, [])
        if waiting:
            table.write_table(self._arrow.Table.from_pylist(waiting, schema=table.schema))

    def close(self) -> None:
        for name, table in self._tables.items():
            self._flush(name, table)
        super().close()


class _ImageWriter(ExportWriter):
    """A file for each image, untouched: `<run>/<tag>/<step>.png`, with `_1`, `_2` ... where a step has several."""

    def __init__(self, directory: str, *, is_forced: bool = False) -> None:
        super().__init__(directory, is_forced=is_forced)
        self._taken: set[str] = set()

    def write_scalars(self, columns: Columns, names: Names) -> bool:
        return False

    def write(self, place: Place, value: Value) -> bool:
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
            with ExitStack() as whole:
                self._files, files = whole, self._files
                try:
                    with open(self._path(name), "wb") as file:
                        file.write(data)
                finally:
                    self._files = files
            self._count("images")
        return True


_SUFFIXES: Final = (
    (b"\x89PNG", ".png"),
    (b"\xff\xd8\xff", ".jpg"),
    (b"GIF8", ".gif"),
    (b"RIFF", ".webp"),
    (b"BM", ".bmp"),
)


_UNSAFE: Final = re.compile(r"[^\w.\-+=, ]", re.ASCII)
_MOST_BYTES: Final = 150  # of a name; a file system has 255


def _safe(part: str) -> str:
    """Returns a name that every file system holds, and that leads nowhere else; a long one ends with its hash."""
    name = _UNSAFE.sub("_", part).rstrip(". ") or "_"
    if len(name) > _MOST_BYTES:
        digest = hashlib.blake2b(part.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        name = f"{name[:_MOST_BYTES]}~{digest}"
    return name


def _suffix(data: bytes) -> str:
    return next((suffix for magic, suffix in _SUFFIXES if data.startswith(magic)), ".bin")


def _rows(columns: Columns, names: Names) -> Iterator[tuple[str, str, int, float, float]]:
    runs, tags, *numbers = (column.tolist() for column in columns)
    steps, times, values = numbers
    return zip(map(names.runs.__getitem__, runs), map(names.tags.__getitem__, tags), steps, times, values, strict=True)


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


def _clean(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


_WRITERS: Final = {"csv": _CsvWriter, "jsonl": _JsonlWriter, "parquet": _ParquetWriter, "images": _ImageWriter}
FORMATS: Final = tuple(_WRITERS)
"""What can be asked for."""


def make_writer(file_format: str, directory: str, *, is_forced: bool) -> ExportWriter:
    """Returns a writer of one of `FORMATS`.

    Raises:
        MissingDependencyError: The format needs a package that is not installed.
    """
    return cast(Callable[..., ExportWriter], _WRITERS[file_format])(directory, is_forced=is_forced)
