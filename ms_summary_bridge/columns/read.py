"""Reads the values of a logdir, of either format, without a conversion.

Scalars come as columns, the other kinds one by one. What an earlier conversion of ours could not show is read from its
archive, so that MindSpore files give their texts, too; what it made up (tables of tensors, counts of NaN) is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from ms_summary_bridge.batches.histograms import Drawn
from ms_summary_bridge.batches.reader import Batch, BatchReader
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.columns.growing import GrowingColumns
from ms_summary_bridge.columns.table import ScalarTable
from ms_summary_bridge.errors import NoEventsError, UsageError
from ms_summary_bridge.events import Event, FileVersion, Summary
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.files.event_file import Path
from ms_summary_bridge.formats import mindspore
from ms_summary_bridge.formats.texts import TEXT, text_of
from ms_summary_bridge.runs.archive import make_decoder, read_archive
from ms_summary_bridge.runs.log_files import LogFile
from ms_summary_bridge.runs.logdir import Logdir, Run, discover
from ms_summary_bridge.runs.msprobe import MSPROBE
from ms_summary_bridge.runs.reading import RunReading, read_beside, read_restored, read_rows
from ms_summary_bridge.values import Histogram, Image, Opaque, Value

__all__ = [
    "Read",
    "choose_runs",
    "has_originals",
    "iter_files",
    "iter_items",
    "matcher",
    "problems_of",
    "read_histograms",
    "read_images",
    "read_scalars",
    "read_texts",
]

_T = TypeVar("_T")


class Read(msgspec.Struct, Generic[_T], frozen=True):
    """One value of a logdir."""

    run: str
    tag: str
    step: int
    wall_time: float
    value: _T


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
    logdir, chosen = choose_runs(path, runs)
    columns = GrowingColumns(matcher("tags", tags))
    problems = [f"{problem.path}: {problem.reason}" for problem in logdir.problems]
    names: list[str] = []
    for run in chosen:
        before = columns.rows
        columns.begin_run(len(names))
        reading = RunReading()
        for item in iter_items(run, reading):
            if isinstance(item, Batch):
                columns.add_batch(item)
            else:
                columns.add_event(item)
        problems += problems_of(reading)
        if columns.rows > before:
            names.append(run.name)
    return ScalarTable(names, columns.tags, columns.take(), problems)


def read_histograms(
    path: Path, *, runs: str = "", tags: str = "", problems: list[str] | None = None
) -> Iterator[Read[Histogram]]:
    """Yields all histograms below a path, in the order of the runs' names and, in a run, of its files.

    Args:
        path: As for `read_scalars`.
        runs: As for `read_scalars`.
        tags: As for `read_scalars`.
        problems: A list that gets a line for each thing that could not be read, run by run.

    Raises:
        LogdirError: The path, or a file on the way, cannot be read at all.
        NoEventsError: Nothing below it is an event file.
        UsageError: An expression is not a regular one.
    """
    return _read(
        path, runs, tags, problems, Histogram.kind, lambda value: value if isinstance(value, Histogram) else None
    )


def read_images(
    path: Path, *, runs: str = "", tags: str = "", problems: list[str] | None = None
) -> Iterator[Read[Image]]:
    """Yields all images below a path, each as an `Image` with the file's bytes; see `read_histograms`."""
    return _read(path, runs, tags, problems, Image.kind, lambda one: one if isinstance(one, Image) else None)


def read_texts(path: Path, *, runs: str = "", tags: str = "", problems: list[str] | None = None) -> Iterator[Read[str]]:
    """Yields all texts of TensorBoard's text page below a path, each as a str; see `read_histograms`.

    MindSpore has no texts: in its files there are those that a conversion from TensorBoard has archived. Several texts
    of one step are joined by empty lines.
    """
    return _read(path, runs, tags, problems, TEXT, lambda one: text_of(one) if isinstance(one, Opaque) else None)


def _read(
    path: Path, runs: str, tags: str, problems: list[str] | None, kind: str, choose: Callable[[Value], _T | None]
) -> Iterator[Read[_T]]:
    found, chosen = choose_runs(path, runs)
    matches = matcher("tags", tags)
    told = [] if problems is None else problems
    told += [f"{problem.path}: {problem.reason}" for problem in found.problems]

    def read() -> Iterator[Read[_T]]:
        for run in chosen:
            reading = RunReading()
            for event in read_restored(run, reading):
                for tagged in event.content.values if isinstance(event.content, Summary) else ():
                    if not tagged.derived and matches(tagged.tag):
                        value = choose(tagged.value)
                        if value is not None:
                            yield Read(run.name, tagged.tag, event.step, event.wall_time, value)
                        elif isinstance(tagged.value, Opaque) and tagged.value.kind == kind:
                            reason = tagged.value.reason or "it cannot be decoded"
                            told.append(f"{run.directory}: {kind} {tagged.tag!r} of step {event.step}: {reason}")
            told.extend(problems_of(reading))

    return read()


def choose_runs(path: Path, runs: str) -> tuple[Logdir, list[Run]]:
    """Returns what lies below a path, and the runs of it whose names an expression is found in."""
    logdir = discover(check_path("path", path))
    if not logdir.runs and not logdir.problems:
        raise NoEventsError(f"{path}: no event files found (names hold 'summary.<seconds>' or 'tfevents')")
    matches = matcher("runs", runs)
    return logdir, [run for run in logdir.runs if matches(run.name)]


def matcher(name: str, expression: str) -> Callable[[str], bool]:
    """Returns whether a text is chosen by the regular expression that is the argument `name`."""
    try:
        pattern = re.compile(expression)
    except (re.error, TypeError) as error:
        raise UsageError(f"{name}: {expression!r} is not a regular expression: {error}") from error
    return lambda text: pattern.search(text) is not None


def problems_of(reading: RunReading) -> list[str]:
    """Returns a line for each damaged range and each file that ends inside a record."""
    damaged = [f"{d.file}: bytes {d.start} to {d.end} are damaged: {d.reason}" for d in reading.damaged]
    cut = [f"{tail.file}: ends inside the record at byte {tail.offset}" for tail in reading.incomplete]
    return damaged + cut + reading.problems


def has_originals(run: Run) -> bool:
    """Whether an archive beside the run holds values of it, or cannot be read to its end."""
    return any(
        not isinstance(item, tuple) or not isinstance(item[1].content, FileVersion)
        for source, path in run.archive_by_source.items()
        for item in read_archive(path, source)
    )


def iter_items(run: Run, reading: RunReading, *, chunk_bytes: int | None = None) -> Iterator[Event | Batch]:
    """Yields what a run holds, restored from its archives: events, and batches of those with scalars alone.

    Args:
        run: As `discover` found it.
        reading: Takes note of what is met.
        chunk_bytes: As for `iter_files`.

    Raises:
        LogdirError: A file cannot be read.
    """
    if run.format == MSPROBE:
        yield from read_rows(run, reading, chunk_bytes=chunk_bytes)
    elif has_originals(run):
        yield from read_restored(run, reading)
    else:
        files = [file for file in run.files if not file.is_lineage]
        yield from iter_files(run, files, reading, chunk_bytes=chunk_bytes)
        yield from read_beside(run, reading)


def iter_files(
    run: Run, files: Iterable[LogFile], reading: RunReading, *, chunk_bytes: int | None = None
) -> Iterator[Event | Batch]:
    """Yields what files of a run hold themselves.

    Args:
        run: As `discover` found it.
        files: Some of its files.
        reading: Takes note of what is met.
        chunk_bytes: Bytes that are looked at together, and a file is open only while they are read; None for what is
            fastest, and a file that stays open.

    Raises:
        LogdirError: A file cannot be read.
    """
    decoder = make_decoder(run.format)
    shapes = Shapes(b"\x1d" if run.format == mindspore.FORMAT else b"\x15")
    for file in files:
        reader = BatchReader(file.path, decoder, shapes, chunk_bytes=chunk_bytes)
        for item in reader:
            if isinstance(item, Batch):
                reading.records += item.events
                yield item
            elif not isinstance(item, Drawn):
                reading.note(item, file.path)
                if isinstance(item, Event):
                    yield item
                    if reader.payload:
                        shapes.learn(reader.payload, item, None)
