"""Parquet files, by pyarrow."""

from __future__ import annotations

from typing import Any, Final

from ms_summary_bridge.columns.growing import Columns
from ms_summary_bridge.columns.table import clean_name
from ms_summary_bridge.errors import MissingDependencyError
from ms_summary_bridge.export.values import plain_histogram, plain_tensor
from ms_summary_bridge.export.writer import ExportWriter, Names, Place
from ms_summary_bridge.formats.texts import text_of
from ms_summary_bridge.values import Histogram, Opaque, Tensor, Value

__all__ = ["ParquetWriter"]

_ROWS: Final = 65_536  # in a group of a file


class ParquetWriter(ExportWriter):
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
        """Takes scalars; returns whether the format has a place for them."""
        arrow = self._arrow
        schema = self._schema(("value", arrow.float64()))
        runs, tags, *numbers = columns
        arrays = [
            arrow.DictionaryArray.from_arrays(codes, arrow.array([clean_name(word) for word in words], arrow.string()))
            for codes, words in ((runs, names.runs), (tags, names.tags))
        ]
        arrays += [arrow.array(column) for column in numbers]
        self._table("scalars.parquet", schema).write_table(arrow.Table.from_arrays(arrays, schema=schema))
        self.count("scalars.parquet", len(runs))
        return True

    def write(self, place: Place, value: Value) -> bool:
        """Takes a value of another kind; returns whether the format has a place for it."""
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
        waiting.append({"run": clean_name(place.run), "tag": clean_name(place.tag), "step": place.step, **row})
        waiting[-1]["wall_time"] = place.wall_time
        if len(waiting) * max(1, len(row.get("values", row.get("left", "")))) >= _ROWS:
            self._flush(name, table)
        self.count(name)
        return True

    def _flush(self, name: str, table: Any) -> None:
        waiting = self._waiting.pop(name, [])
        if waiting:
            table.write_table(self._arrow.Table.from_pylist(waiting, schema=table.schema))

    def close(self) -> None:
        """Writes what waits, ends the files and gives them their names."""
        for name, table in self._tables.items():
            self._flush(name, table)
        super().close()
