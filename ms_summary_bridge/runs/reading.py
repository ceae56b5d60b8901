"""The points of one run in neutral form, whatever format it is in, read as what it was made from.

Reading a converted run means undoing the conversion: renamed tags have their old names (the decoder sees to that),
derived values are left out, and what the archive holds stands in the place of what was written for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from crc32c import crc32c

from ms_summary_bridge.events import Event, FileVersion, SessionLog, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE, MINDSPORE, TENSORBOARD
from ms_summary_bridge.files.records import Damage, Incomplete, Padding
from ms_summary_bridge.runs.archive import ArchivePosition, make_decoder, read_archive, restore
from ms_summary_bridge.runs.graph_file import read_graph_file
from ms_summary_bridge.runs.log_files import CONVERT, LogFile
from ms_summary_bridge.runs.logdir import Run
from ms_summary_bridge.runs.msprobe import MSPROBE, TableNotes, read_tables
from ms_summary_bridge.runs.report import DamagedRange, IncompleteTail
from ms_summary_bridge.values import Value

__all__ = ["RunReading", "ValuePoint", "entries_of", "read_beside", "read_points", "read_restored", "read_rows"]


class ValuePoint(msgspec.Struct, frozen=True, gc=False):
    """One value of a run, reduced to what two runs are compared by."""

    kind: str
    tag: str
    """Empty for a whole event (`graph`, `train_lineage`, ...)."""
    step: int
    wall_time: float
    fingerprint: bytes
    """Equal exactly when the values are."""


class RunReading(msgspec.Struct):
    """What was met while reading a run, filled in as its points are taken."""

    records: int = 0
    """Whole records, version and session marks included."""
    derived: int = 0
    """Values and whole events computed by this package, left out."""
    versions: list[str] = msgspec.field(default_factory=list)
    damaged: list[DamagedRange] = msgspec.field(default_factory=list)
    incomplete: list[IncompleteTail] = msgspec.field(default_factory=list)
    padding_bytes: int = 0
    problems: list[str] = msgspec.field(default_factory=list)
    """What else was not read as it stands."""
    notes: list[str] = msgspec.field(default_factory=list)
    """What a person may want to know."""
    users: int = 0
    """Points left out because only a TensorBoard file can have them."""

    def note(self, item: Event | Damage | Padding | Incomplete, path: str) -> None:
        """Takes note of one thing read from a file."""
        if isinstance(item, Damage):
            self.damaged.append(DamagedRange(path, item.start, item.end, item.reason))
        elif isinstance(item, Padding):
            self.padding_bytes += item.end - item.start
        elif isinstance(item, Incomplete):
            self.incomplete.append(IncompleteTail(path, item.offset))
        else:
            self.records += 1
            content = item.content
            if isinstance(content, FileVersion):
                self.versions.append(content.version)
            elif isinstance(content, Summary):
                self.derived += sum(tagged.derived for tagged in content.values)
            else:
                self.derived += item.derived


def read_points(run: Run, reading: RunReading | None = None, *, with_users: bool = True) -> Iterator[ValuePoint]:
    """Yields the points of a run, in the order of its files.

    Args:
        run: As `discover` found it.
        reading: Is filled with what was met on the way.
        with_users: Also what users wrote through a bridge's `SummaryWriter`, which no MindSpore file has.

    Raises:
        LogdirError: A file cannot be read.
    """
    reading = reading if reading is not None else RunReading()
    for item in read_restored(run, reading):
        if with_users or not item.by_user:
            yield from _points_of(item)
        else:
            reading.users += sum(1 for _ in _points_of(item))


def read_restored(run: Run, reading: RunReading) -> Iterator[Event]:
    """Yields the events a run was made from.

    Without archives these are the run's own events. What else is met goes into `reading`.

    Raises:
        LogdirError: A file cannot be read.
    """
    if run.format == MSPROBE:
        yield from read_rows(run, reading)
        return
    archives = run.archive_by_source
    other = TENSORBOARD if run.format == MINDSPORE else MINDSPORE
    originals = _noted(read_archive(archives[other], other), archives[other], reading) if other in archives else ()
    for item in restore(_read_files(run, reading), originals):
        if isinstance(item, Event):
            yield item
    yield from read_beside(run, reading)


def read_rows(run: Run, reading: RunReading, *, chunk_bytes: int | None = None) -> Iterator[Event]:
    """Yields the events of a run that is tables of msprobe; what is met goes into `reading`, at the end."""
    notes = TableNotes()
    for event in read_tables(run.files, notes, chunk_bytes=chunk_bytes):
        reading.records += 1
        yield event
    for fault in notes.faults:
        if fault.end is None:
            reading.incomplete.append(IncompleteTail(fault.path, fault.start))
        else:
            reading.damaged.append(DamagedRange(fault.path, fault.start, fault.end, fault.reason))
    reading.problems += notes.lines()
    reading.notes += [f"column {column}: texts, which are left out" for column in notes.texts]


def read_beside(run: Run, reading: RunReading) -> Iterator[Event]:
    """Yields those of a run's events that stand in files of their own: lineage and graphs.

    Raises:
        LogdirError: A file cannot be read.
    """
    archives = run.archive_by_source
    if LINEAGE not in archives:  # then what a conversion made of lineage is all that there is of it
        for item in _read_lineage([file for file in run.files if file.is_lineage], reading):
            if not isinstance(item.content, FileVersion):
                yield item
    for file in run.graph_files:
        event = read_graph_file(file.path)
        reading.note(event, file.path)
        yield event
    for item in _read_lineage(run.lineage_files, reading):
        # The rest of a lineage of ours was made from hyperparameters, which are in the archive.
        if run.role == CONVERT and item.content.kind != "dataset_graph":
            reading.derived += 1
        else:
            yield item
    if LINEAGE in archives:
        for _, item in _noted(read_archive(archives[LINEAGE], LINEAGE), archives[LINEAGE], reading):
            yield item


def _read_lineage(files: Iterable[LogFile], reading: RunReading) -> Iterator[Event]:
    for file in files:
        for item in EventFileReader(file.path, make_decoder(file.record_format)):
            reading.note(item, file.path)
            if isinstance(item, Event):
                yield item


def _read_files(run: Run, reading: RunReading) -> Iterator[tuple[Event, int] | Damage]:
    decoder = make_decoder(run.format)
    for file in run.files:
        if file.is_lineage:
            continue
        reader = EventFileReader(file.path, decoder)
        for item in reader:
            reading.note(item, file.path)
            if isinstance(item, Event):
                yield item, crc32c(reader.payload)
            elif isinstance(item, Damage):
                yield item


def _noted(
    archive: Iterator[tuple[ArchivePosition, Event] | Damage | Padding | Incomplete], path: str, reading: RunReading
) -> Iterator[tuple[ArchivePosition, Event]]:
    for item in archive:
        if isinstance(item, tuple):
            yield item
        else:
            reading.note(item, path)


def entries_of(event: Event) -> Iterator[tuple[str, str, Value]]:
    """Yields kind, tag and value of what an event adds to a run; of a whole event the tag is empty."""
    content = event.content
    if isinstance(content, Summary):
        for tagged in content.values:
            if not tagged.derived:
                yield tagged.value.kind, tagged.tag, tagged.value
    elif not event.derived and not isinstance(content, (FileVersion, SessionLog)):
        yield content.kind, "", content


def _points_of(event: Event) -> Iterator[ValuePoint]:
    for kind, tag, value in entries_of(event):
        yield ValuePoint(kind, tag, event.step, event.wall_time, value.fingerprint())
