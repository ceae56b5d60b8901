"""Reads the values of a logdir, of either format, without a conversion.

Scalars come as columns, the other kinds one by one. What an earlier conversion of ours could not show is read from its
archive; what it made up (tables of tensors, counts of NaN) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from ms_summary_bridge.batches.histograms import Drawn
from ms_summary_bridge.batches.reader import Batch, BatchReader
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.columns.table import ScalarTable
from ms_summary_bridge.errors import NoEventsError, UsageError
from ms_summary_bridge.events import Event, FileVersion, Summary
from ms_summary_bridge.files.event_file import Path
from ms_summary_bridge.formats import mindspore
from ms_summary_bridge.runs.archive import make_decoder, read_archive
from ms_summary_bridge.runs.logdir import Logdir, Run, discover
from ms_summary_bridge.runs.reading import RunReading, archive_source, read_restored
from ms_summary_bridge.values import Histogram, Image, Scalar, Value

__all__ = ["Read", "read_histograms", "read_images", "read_scalars"]

_GATHERED: Final = 50_000  # scalars that are held as Python objects


class Read(msgspec.Struct, frozen=True):
    """One value of a logdir."""

    run: str
    tag: str
    step: int
    wall_time: float
    value: Value


def read_scalars(path: Path, *, runs: str = "", tags: str = "") -> ScalarTable:
    """Reads all scalars below a path into columns.

    Args:
        path: A file, a run, a tree of runs, or an fsspec URL of such; MindSpore's or TensorBoard's.
        runs: Regular expression; runs whose name it is not found in are left out. Empty keeps all.
        tags: The same for tags.

    Returns:
        The table. Nothing is dropped: a step that was written twice has two rows. What could not be read is in
        `problems`.

    Raises:
        LogdirError: The path cannot be read at all.
        NoEventsError: Nothing below it is an event file.
        UsageError: An expression is not a regular one.
    """
    logdir, chosen = _choose(path, runs)
    columns = _Columns(_matcher("tags", tags))
    problems = [f"{problem.path}: {problem.reason}" for problem in logdir.problems]
    names: list[str] = []
    for run in chosen:
        before = columns.rows
        columns.begin_run(len(names))
        reading = RunReading()
        if _has_originals(run):
            for _, event in read_restored(run, reading):
                columns.add_event(event)
        else:
            _read_files(run, reading, columns)
        problems += _problems_of(reading)
        if columns.rows > before:
            names.append(run.name)
    return ScalarTable(names, columns.tags, columns.finish(), problems)


def read_histograms(path: Path, *, runs: str = "", tags: str = "") -> Iterator[Read]:
    """Yields all histograms below a path, each as a `Histogram`; see `read_scalars` for arguments and errors."""
    return _read(path, runs, tags, lambda value: isinstance(value, Histogram))


def read_images(path: Path, *, runs: str = "", tags: str = "") -> Iterator[Read]:
    """Yields all images below a path, each as an `Image` with the file's bytes; see `read_scalars`."""
    return _read(path, runs, tags, lambda value: isinstance(value, Image))


def _read(path: Path, runs: str, tags: str, is_wanted: Callable[[Value], bool]) -> Iterator[Read]:
    _, chosen = _choose(path, runs)
    matches = _matcher("tags", tags)
    for run in chosen:
        for _, event in read_restored(run, RunReading()):
            if isinstance(event.content, Summary):
                for tagged in event.content.values:
                    if not tagged.derived and is_wanted(tagged.value) and matches(tagged.tag):
                        yield Read(run.name, tagged.tag, event.step, event.wall_time, tagged.value)


def _choose(path: Path, runs: str) -> tuple[Logdir, list[Run]]:
    logdir = discover(path)
    if not logdir.runs and not logdir.problems:
        raise NoEventsError(f"{path}: no event files found (names hold 'summary.<seconds>' or 'tfevents')")
    matches = _matcher("runs", runs)
    return logdir, [run for run in logdir.runs if matches(run.name)]


def _matcher(name: str, expression: str) -> Callable[[str], bool]:
    try:
        pattern = re.compile(expression)
    except (re.error, TypeError) as error:
        raise UsageError(f"{name}: {expression!r} is not a regular expression: {error}") from error
    return lambda text: pattern.search(text) is not None


def _problems_of(reading: RunReading) -> list[str]:
    damaged = [f"{d.file}: bytes {d.start} to {d.end} are damaged: {d.reason}" for d in reading.damaged]
    return damaged + [f"{tail.file}: ends inside the record at byte {tail.offset}" for tail in reading.incomplete]


def _has_originals(run: Run) -> bool:
    """Whether an archive beside the run holds values of it."""
    return any(
        not isinstance(item[1].content, FileVersion)
        for path in run.archives
        for item in read_archive(path, archive_source(path))
        if isinstance(item, tuple)
    )


def _read_files(run: Run, reading: RunReading, columns: _Columns) -> None:
    decoder = make_decoder(run.format)
    shapes = Shapes(b"\x1d" if run.format == mindspore.FORMAT else b"\x15")
    for file in run.files:
        reader = BatchReader(file.path, decoder, shapes)
        for item in reader:
            if isinstance(item, Batch):
                columns.add_batch(item)
            elif isinstance(item, Event):
                columns.add_event(item)
                if reader.payload:
                    shapes.learn(reader.payload, item, None)
            elif not isinstance(item, Drawn):
                reading.note(item, file.path)


class _Columns:
    """The columns as they grow."""

    def __init__(self, is_wanted: Callable[[str], bool]) -> None:
        self.tags: list[str] = []
        self.rows = 0
        self._is_wanted = is_wanted
        self._codes: dict[str, int] = {}
        self._run = 0
        self._single: list[tuple[int, int, int, float, float]] = []
        self._parts: list[tuple[npt.NDArray[np.generic], ...]] = []

    def begin_run(self, number: int) -> None:
        self._gather()
        self._run = number

    def add_event(self, event: Event) -> None:
        if not isinstance(event.content, Summary):
            return
        for tagged in event.content.values:
            if isinstance(tagged.value, Scalar) and not tagged.derived:
                code = self._code(tagged.tag)
                if code >= 0:
                    self._single.append((self._run, code, event.step, event.wall_time, tagged.value.value))
                    self.rows += 1
        if len(self._single) >= _GATHERED:
            self._gather()

    def add_batch(self, batch: Batch) -> None:
        """Adds the rows of a batch: those of an event one behind the other."""
        self._gather()
        scan, first, count = batch.scan, batch.first, batch.events
        sizes = np.zeros(count, np.int64)
        parts = []
        for group in scan.groups:
            low, high = np.searchsorted(group.rows, (first, batch.last)).tolist()
            if low < high:
                rows = group.rows[low:high] - first
                codes = np.array([self._code(tag) for tag in group.form.shape.tags], np.int32)
                sizes[rows] = len(codes)
                parts.append((rows, codes, group.floats[low:high]))
        ends = np.cumsum(sizes)
        total = int(ends[-1])
        tags = np.empty(total, np.int32)
        bits = np.empty(total, np.uint32)
        for rows, codes, floats in parts:
            places = (ends[rows] - len(codes))[:, None] + np.arange(len(codes))
            tags[places] = codes
            bits[places] = floats
        rows = np.repeat(np.arange(count), sizes) if total != count else np.arange(count)
        steps, times = scan.steps[first : batch.last][rows], scan.wall_times[first : batch.last][rows]
        with np.errstate(invalid="ignore"):  # a signalling NaN
            values = bits.view(np.float32).astype(np.float64)
        if (tags < 0).any():
            kept = tags >= 0
            tags, steps, times, values = tags[kept], steps[kept], times[kept], values[kept]
        self._parts.append((np.full(len(tags), self._run, np.int32), tags, steps, times, values))
        self.rows += len(tags)

    def finish(
        self,
    ) -> tuple[
        npt.NDArray[np.int32],
        npt.NDArray[np.int32],
        npt.NDArray[np.int64],
        npt.NDArray[np.float64],
        npt.NDArray[np.float64],
    ]:
        self._gather()
        types = (np.int32, np.int32, np.int64, np.float64, np.float64)
        columns = list(zip(*self._parts, strict=True)) if self._parts else [()] * 5
        return tuple(  # type: ignore[return-value]
            np.concatenate(parts) if parts else np.empty(0, dtype) for parts, dtype in zip(columns, types, strict=True)
        )

    def _code(self, tag: str) -> int:
        code = self._codes.get(tag)
        if code is None:
            if self._is_wanted(tag):
                code = len(self.tags)
                self.tags.append(tag)
            else:
                code = -1
            self._codes[tag] = code
        return code

    def _gather(self) -> None:
        if self._single:
            runs, tags, steps, times, values = zip(*self._single, strict=True)
            self._parts.append(
                (
                    np.array(runs, np.int32),
                    np.array(tags, np.int32),
                    np.array(steps, np.int64),
                    np.array(times, np.float64),
                    np.array(values, np.float64),
                )
            )
            self._single.clear()
