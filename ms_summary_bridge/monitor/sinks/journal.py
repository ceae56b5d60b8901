"""The journal: one line of strict JSON for each sample and each thing that happened.

Lines have a `kind`: `header` (at the start of each session and each file), `sample`, `all` (a sample of all ranks
together), `warning`, `alert`, `action` (what
became of a webhook or a command), `milestone`, `evaluation`, `stop`, `healed`, `lost` (lines that a full disk has
cost), `end`. A number that JSON cannot hold is null, and `nonfinite` says which it was. The files of one journal are
`metrics.1.jsonl`, `metrics.2.jsonl`, ... and, newest, `metrics.jsonl`.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import NOT_JSON, LogdirError, counted
from ms_summary_bridge.files import file_names
from ms_summary_bridge.files.lines import read_lines
from ms_summary_bridge.monitor.model.sample import Note, Sample, strict_numbers
from ms_summary_bridge.monitor.sinks.line_file import FileSink, LineFile

__all__ = ["JOURNAL", "Journal", "journal_files", "json_lines", "note_line", "read_journal", "sample_line"]

JOURNAL: Final = file_names.JOURNAL

_ENCODER: Final = msgspec.json.Encoder()


def sample_line(sample: Sample, rank: int) -> dict[str, Any]:
    """Returns a sample as a line of the journal."""
    values, nonfinite = strict_numbers(sample.values)
    line: dict[str, Any] = {
        "kind": "all" if sample.of_all else "sample",
        "step": sample.step,
        "epoch": sample.epoch,
        "wall_time": sample.wall_time,
        "monotonic": sample.monotonic,
        "rank": rank,
        "interval_steps": sample.interval_steps,
        "is_first": sample.is_first,
        "values": values,
        "min": strict_numbers(sample.low)[0],
        "mean": strict_numbers(sample.mean)[0],
        "max": strict_numbers(sample.high)[0],
    }
    if nonfinite:
        line["nonfinite"] = nonfinite
    if sample.nonfinite_steps:
        line["nonfinite_steps"] = sample.nonfinite_steps
    return line


def note_line(note: Note, rank: int) -> dict[str, Any]:
    """Returns a note as a line of the journal."""
    numbers = {name: value for name, value in note.fields.items() if isinstance(value, float)}
    strict, nonfinite = strict_numbers(numbers)
    line = {"kind": note.kind, "step": note.step, "wall_time": note.wall_time, "rank": rank, "text": note.text}
    return {**line, **note.fields, **strict, **({"nonfinite": nonfinite} if nonfinite else {})}


class Journal(FileSink):
    """Writes the journal of one rank.

    `header` is what the header says beside its kind, format and time, and `max_bytes` the size at which it goes on in a
    new file.
    """

    def __init__(
        self,
        directory: str,
        rank: int,
        header: dict[str, Any],
        warn: Callable[[str, str], None],
        *,
        max_bytes: int | None = None,
    ) -> None:
        path = os.path.join(directory, JOURNAL)
        super().__init__(LineFile(path, warn, head=self._head, lost=self._lost, max_bytes=max_bytes))
        self._rank = rank
        self._header = header
        self._warn = warn

    def _head(self) -> bytes:
        return _ENCODER.encode({"kind": "header", "format": 1, "wall_time": time.time(), **self._header})

    def _lost(self, count: int, reason: str) -> bytes:
        moment = {"wall_time": time.time(), "rank": self._rank}
        return _ENCODER.encode({"kind": "lost", "lines": count, "reason": reason, **moment})

    def open(self) -> None:
        """Opens the file, and heals it if the last session of the run crashed."""
        if self.file.open() and self.file.healed is not None:
            count, path = self.file.healed, self.file.path
            self._warn(
                "healed",
                f"{path}: the last line was torn by a crash: {counted(count, 'byte was', 'bytes were')} cut off",
            )
            self.write({"kind": "healed", "bytes": count, "wall_time": time.time(), "rank": self._rank})

    def write(self, line: dict[str, Any]) -> None:
        """Takes any line."""
        self.file.append(_ENCODER.encode(line))

    def write_sample(self, sample: Sample) -> None:
        """Takes a sample."""
        self.write(sample_line(sample, self._rank))

    def write_note(self, note: Note) -> None:
        """Takes a note; the start is in the header."""
        if note.kind != "start":
            self.write(note_line(note, self._rank))


def journal_files(path: str | os.PathLike[str]) -> list[str]:
    """Returns the files of one journal, oldest first: of a directory that holds one, or of one of its files."""
    path = os.fspath(path)
    directory, newest = (path, JOURNAL) if os.path.isdir(path) else os.path.split(path)
    root, ending = os.path.splitext(newest)
    pattern = re.compile(rf"{re.escape(root)}\.(\d+){re.escape(ending)}")
    try:
        names = os.listdir(directory or ".")
    except OSError as error:
        raise LogdirError(f"{directory}: cannot be read: {error.strerror}") from error
    older = sorted((int(match[1]), name) for name in names if (match := pattern.fullmatch(name)))
    found = [name for _, name in older] + ([newest] if newest in names else [])
    if not found:
        raise LogdirError(f"{path} holds no journal (metrics.jsonl): give the directory of a rank or of a run")
    return [os.path.join(directory, name) for name in found]


def json_lines(lines: Iterable[bytes], on_torn: Callable[[int], object] | None = None) -> Iterator[dict[str, Any]]:
    """Yields the objects in lines of JSON; lines that are torn or not JSON are left out.

    `on_torn` is called with the number of each of these, from 1; not for a last one without an end, which may grow.
    """
    for number, raw in enumerate(lines, 1):
        line = None
        with contextlib.suppress(*NOT_JSON):
            line = msgspec.json.decode(raw)
        if isinstance(line, dict):
            yield line
        elif on_torn is not None and raw.endswith(b"\n"):
            on_torn(number)


def read_journal(
    path: str | os.PathLike[str], on_torn: Callable[[int], object] | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the lines of a journal, as `json_lines`.

    Raises:
        LogdirError: The journal is missing or cannot be read.
    """
    for name in journal_files(path):
        try:
            yield from json_lines(read_lines(name), on_torn)
        except OSError as error:
            raise LogdirError(f"{name}: cannot be read: {error.strerror}") from error
