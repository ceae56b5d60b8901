"""What `aggregate` writes: a TensorBoard run for each statistic, and one file for programs."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import IO, Final

from ms_summary_bridge.aggregate.statistics import STATISTICS, Row
from ms_summary_bridge.errors import FileTakenError
from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.export.values import json_number
from ms_summary_bridge.files.atomic import replacing
from ms_summary_bridge.files.record_writer import RecordWriter
from ms_summary_bridge.formats import tensorboard
from ms_summary_bridge.values import Scalar

__all__ = ["AGGREGATE_FILE", "Outputs"]

AGGREGATE_FILE: Final = "aggregate.json"
_WRITER: Final = "ms_summary_bridge/aggregate"
_HEAD: Final = ("step", "wall_time", "tag", "ranks")


class Outputs:
    """The runs of the statistics and the file for programs; they get their names when all is whole.

    Raises:
        FileTakenError: One of them exists, and `is_forced` is not given.
        OSError: The disk does not do.
    """

    def __init__(self, directory: str, *, is_forced: bool) -> None:
        self._directory = directory
        self._is_forced = is_forced
        self._stack = ExitStack()
        self._writers: list[RecordWriter] = []
        self._encoder = tensorboard.TensorBoardEncoder()  # one for all: they get the same tags
        self._json: IO[str] | None = None
        self._first = True

    def __enter__(self) -> Outputs:
        json_path = self._free(AGGREGATE_FILE)
        self._json = self._stack.enter_context(
            open(self._stack.enter_context(replacing(json_path)), "w", encoding="utf-8")
        )
        self._json.write('{"columns": ' + json.dumps([*_HEAD, *STATISTICS]) + ', "rows": [')
        for name in STATISTICS:
            path = self._free(os.path.join(name, "events.out.tfevents.0000000000.ranks"))
            temporary = self._stack.enter_context(replacing(path))
            if os.path.exists(temporary):
                os.unlink(temporary)
            writer = self._stack.enter_context(RecordWriter(temporary, buffer_bytes=1 << 16))
            self._writers.append(writer)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    def _free(self, name: str) -> str:
        path = os.path.join(self._directory, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.lexists(path) and not self._is_forced:
            raise FileTakenError(f"{path}: exists and would be overwritten; choose another directory or add --force")
        return path

    def write(self, rows: list[Row]) -> None:
        """Writes the rows of a window, an event for each step."""
        assert self._json is not None
        for row in rows:
            numbers = [json_number(getattr(row, name)) for name in STATISTICS]
            fields = [row.step, row.wall_time, row.tag, row.ranks, *numbers]
            self._json.write(("" if self._first else ",") + "\n" + json.dumps(fields))
            if self._first:
                for writer in self._writers:
                    version = FileVersion(tensorboard.FILE_VERSION, _WRITER)
                    _put(writer, self._encoder, Event(row.wall_time, 0, version, tensorboard.FORMAT))
            self._first = False
        for step, of_step in itertools.groupby(rows, key=lambda row: row.step):
            together = list(of_step)
            wall_time = max(row.wall_time for row in together)
            for writer, name in zip(self._writers, STATISTICS, strict=True):
                _put(writer, self._encoder, _event_of(together, name, step, wall_time))

    def end(self, report: Mapping[str, object]) -> None:
        """Writes what else there is to say."""
        assert self._json is not None
        text = json.dumps(report, ensure_ascii=True, allow_nan=False)
        self._json.write("\n], " + text[1:] + "\n")


def _event_of(rows: list[Row], statistic: str, step: int, wall_time: float) -> Event:
    values = tuple(TaggedValue(row.tag, Scalar.from_float32(getattr(row, statistic))) for row in rows)
    return Event(wall_time, step, Summary(values), tensorboard.FORMAT)


def _put(writer: RecordWriter, encoder: tensorboard.TensorBoardEncoder, event: Event) -> None:
    payload = encoder.encode(event).payload
    assert payload is not None
    writer.write(payload)
