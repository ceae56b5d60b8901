"""Tables of msprobe's training monitor: finds those of each rank, and reads them as events.

One table holds what was measured of one kind in some steps, a row for each module or parameter and step::

    <time>-rank<n>-<id>/grad_reduced_0-4.csv      vpp_stage,name,step[,micro_step],norm,max,min,mean,...
    rank_<n>/weight_grad_step0-4.csv              vpp_stage,step,module_name,scope[,micro_step],min,max,mean,norm,nans

Source: "Output Description" in docs/en/monitor_instruct.md and docs/en/monitor_v2_instruct.md of Ascend/msprobe, and
the writers of mindstudio-probe 26.2.0 (mindspore/monitor/data_writers.py, core/monitor_v2/writer.py). The numbers were
computed in float32 at most and rounded, so they are float32 here. No time is written: each row has that of its file.
"""

from __future__ import annotations

import csv
import heapq
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from ms_summary_bridge.errors import ReadError, counted
from ms_summary_bridge.events import Event, Summary, TaggedValue
from ms_summary_bridge.files.event_file import open_source, read_errors
from ms_summary_bridge.files.file_names import TENSORBOARD
from ms_summary_bridge.files.file_tree import Problem, WalkLog
from ms_summary_bridge.runs.log_files import LogFile
from ms_summary_bridge.values import Scalar

__all__ = ["MSPROBE", "Fault", "TableDirectory", "TableNotes", "find_tables", "read_tables"]

MSPROBE: Final = "msprobe"
"""The format of such a run."""
_NAME: Final = re.compile(r"([A-Za-z][\w.-]*?)_(?:step)?([0-9]{1,18})-[0-9]{1,18}(?:_part_[0-9]+)?\.csv", re.ASCII)
_RANK: Final = re.compile(r"(?:^|[-_.])rank_?([0-9]{1,6})(?=$|[-_.])")
_HEAD: Final = b"vpp_stage,"
_BASE: Final = ("vpp_stage", "step", "name", "module_name", "scope", "micro_step")
_DOCUMENTED: Final = {
    *("min", "max", "mean", "norm", "nans", "zeros", "id"),
    *("entropy", "softmax_max", "sr", "kernel_norm"),
}
_TEXTS: Final = ("shape", "dtype")
_LOOKED_AT: Final = 20  # files of a directory that tell whether it has such tables
_CHUNK_BYTES: Final = 1 << 18
_LINE_BYTES: Final = 1 << 20


class Fault(msgspec.Struct, frozen=True):
    """Bytes of a table that hold no row: `[start, end)`; a row that is not complete yet has no end."""

    path: str
    start: int
    end: int | None
    reason: str


class TableNotes(msgspec.Struct):
    """What was met while reading a run's tables."""

    faults: list[Fault] = msgspec.field(default_factory=list)
    unknown: dict[str, None] = msgspec.field(default_factory=dict)
    """Columns that are not documented."""
    no_numbers: Counter[str] = msgspec.field(default_factory=Counter)
    """Cells that hold no number, by column."""
    texts: dict[str, None] = msgspec.field(default_factory=dict)
    """Columns that hold texts by the documentation; they are left out."""
    too_large: int = 0
    """Numbers beyond float32, which are infinite here."""

    def lines(self) -> list[str]:
        """Returns what a person should know of the columns."""
        lines = []
        if self.unknown:
            lines.append(f"columns that msprobe does not document, read as numbers: {', '.join(self.unknown)}")
        for column, count in self.no_numbers.items():
            lines.append(f"column {column}: {counted(count, 'cell holds', 'cells hold')} no number: left out")
        if self.too_large:
            lines.append(f"{counted(self.too_large, 'number is', 'numbers are')} beyond float32, and infinite here")
        return lines


class TableDirectory(msgspec.Struct, frozen=True):
    """The tables of one rank, in the order of their first steps."""

    name: str
    """Path below the source, with slashes; `.` for the source itself."""
    path: str
    rank: int | None
    files: tuple[LogFile, ...]


def find_tables(source: str, log: WalkLog) -> list[TableDirectory]:
    """Finds the tables below a local directory, or one that is named itself. What is passed over is noted in `log`."""
    if os.path.isfile(source):
        top = os.path.dirname(source) or "."
        places = [(top, [os.path.basename(source)])]
    else:
        top = source
        walk = os.walk(source, onerror=lambda error: _note(log, error))
        places = [(directory, names) for directory, _, names in walk]
    found = []
    for directory, names in sorted(places):
        ranks = _RANK.findall(os.path.basename(os.path.abspath(directory)))
        rank = int(ranks[-1]) if ranks else None
        files = []
        for name in names:
            path = os.path.join(directory, name)
            if _NAME.fullmatch(name):
                try:
                    status = os.stat(path)
                    times = {"created": int(status.st_mtime), "wall_time": status.st_mtime}
                    files.append(LogFile(path, status.st_size, MSPROBE, rank=rank, **times))  # type: ignore[arg-type]
                except OSError as error:
                    log.problems.append(Problem(path, f"cannot be read: {error.strerror}"))
        files.sort(key=lambda file: (_parse(file.path)[1], file.path))
        has_tables = any(map(_has_head, files[:_LOOKED_AT]))
        if has_tables or not any(file.size for file in files):
            log.empty += [Problem(file.path, "zero bytes") for file in files if not file.size]
        if has_tables:
            relative = os.path.relpath(directory, top).replace(os.sep, "/")
            found.append(TableDirectory(relative, directory, rank, tuple(file for file in files if file.size)))
    return found


def _parse(path: str) -> tuple[str, int]:
    """Returns the kind of a table, and its first step."""
    match = _NAME.fullmatch(os.path.basename(path))
    assert match is not None
    return match[1], int(match[2])


def _note(log: WalkLog, error: OSError) -> None:
    log.problems.append(Problem(str(error.filename), f"cannot be listed: {error.strerror}"))


def _has_head(file: LogFile) -> bool:
    try:
        with open_source(file.path) as source:
            return source.read(len(_HEAD)) == _HEAD
    except (OSError, ReadError):
        return False


def read_tables(files: Iterable[LogFile], notes: TableNotes, *, chunk_bytes: int | None = None) -> Iterator[Event]:
    """Yields an event for each row, all kinds together, by step.

    A file is open only while so many bytes of it are read, one of each kind at a time. One that cannot be read, or is
    no such table, costs its rows alone; it is in `notes`.
    """
    kinds: dict[str, list[LogFile]] = {}
    for file in files:
        kinds.setdefault(_parse(file.path)[0], []).append(file)
    chains = [_read_chain(kind, chain, notes, chunk_bytes or _CHUNK_BYTES) for kind, chain in kinds.items()]
    return heapq.merge(*chains, key=lambda event: event.step)


def _read_chain(kind: str, files: Iterable[LogFile], notes: TableNotes, chunk_bytes: int) -> Iterator[Event]:
    for file in files:
        rows: _Rows | None = None
        try:
            for start, line in _read_lines(file.path, notes, chunk_bytes):
                if rows is None:
                    rows = _Rows(kind, file, line, notes)
                    if not rows.is_table:
                        notes.faults.append(Fault(file.path, 0, file.size, "its first line is not that of msprobe"))
                        break
                elif (event := rows.read(start, line)) is not None:
                    yield event
        except ReadError as error:
            why = str(error).removeprefix(f"{file.path}: ")
            notes.faults.append(Fault(file.path, 0, file.size, why))


def _read_lines(path: str, notes: TableNotes, chunk_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yields the lines that end, each with its offset."""
    position, rest = 0, b""
    is_long = False
    while True:
        with open_source(path) as file, read_errors(path):
            file.seek(position)
            chunk = file.read(chunk_bytes)
        if not chunk:
            break
        start = position - len(rest)
        position += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if is_long:
                notes.faults.append(Fault(path, start, start + len(line) + 1, "the end of a line that is too long"))
            else:
                yield start, line
            is_long = False
            start += len(line) + 1
        if len(rest) > _LINE_BYTES:
            notes.faults.append(Fault(path, start, position, "a line of more than a megabyte"))
            rest, is_long = b"", True
    if rest:
        notes.faults.append(Fault(path, position - len(rest), None, "ends inside a line"))


class _Rows:
    """The rows of one table."""

    def __init__(self, kind: str, file: LogFile, head: bytes, notes: TableNotes) -> None:
        self._kind = kind
        self._file = file
        self._notes = notes
        self._columns = head.decode(errors="replace").removesuffix("\r").split(",")
        places = {name: place for place, name in enumerate(self._columns)}
        self._places = {name: places[name] for name in _BASE if name in places}
        self._name = self._places.get("name", self._places.get("module_name", -1))
        self._statistics = [(place, name) for name, place in places.items() if name not in (*_BASE, *_TEXTS)]
        unique = len(places) == len(self._columns)
        self.is_table = unique and self._name >= 0 and {"vpp_stage", "step"} <= self._places.keys()
        if self.is_table:
            self._notes.texts.update(dict.fromkeys(name for name in _TEXTS if name in places))
            self._notes.unknown.update(dict.fromkeys(name for _, name in self._statistics if name not in _DOCUMENTED))

    def read(self, start: int, line: bytes) -> Event | None:
        """Returns the event of a line; None where it holds none, which is noted."""
        if not line.strip(b"\r"):
            return None
        try:
            cells = next(csv.reader([line.decode().removesuffix("\r")], strict=True))
            if len(cells) != len(self._columns):
                raise ValueError(f"{counted(len(cells), 'cell')} where {len(self._columns)} belong")
            step = self._step(cells[self._places["step"]])
        except (ValueError, OverflowError, csv.Error) as error:
            why = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            self._notes.faults.append(Fault(self._file.path, start, start + len(line) + 1, why))
            return None
        head = self._head(cells)
        values = []
        for place, name in self._statistics:
            cell = cells[place]
            if cell:
                try:
                    number = float(cell.replace("_", "x"))
                except ValueError:
                    self._notes.no_numbers[name] += 1
                    continue
                scalar = Scalar.from_float32(number)
                self._notes.too_large += math.isfinite(number) and not math.isfinite(scalar.value)
                values.append(TaggedValue(f"{head}/{name}", scalar))
        return Event(self._file.wall_time, step, Summary(tuple(values)), TENSORBOARD) if values else None

    def _step(self, cell: str) -> int:
        step = int(cell) if cell.isascii() and cell.isdigit() else float(cell)
        if step != int(step) or not 0 <= step < 1 << 63:
            raise ValueError(f"step {cell!r}")
        return int(step)

    def _head(self, cells: list[str]) -> str:
        """Returns the tag but for the statistic: `grad_reduced/vp0:layers.0.weight`, with scope and micro step."""
        scope = cells[self._places["scope"]] if "scope" in self._places else ""
        micro = cells[self._places["micro_step"]] if "micro_step" in self._places else ""
        kind = f"{self._kind}/{scope}" if scope else self._kind
        name = f"{kind}/vp{cells[self._places['vpp_stage']]}:{cells[self._name]}"
        return f"{name}:micro{micro}" if micro not in ("", "nan") else name
