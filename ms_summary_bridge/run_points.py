"""The points of one run in neutral form, whatever format it is in, read as what it was made from.

Layer: logdir, archive < **run_points**.

Reading a converted run means undoing the conversion: renamed tags have their old names (the decoder sees to that),
derived values are left out, and what the archive holds stands in the place of what was written for it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

import msgspec

from ms_summary_bridge.archive import LINEAGE, archive_name, make_decoder
from ms_summary_bridge.event_file import EventFileReader
from ms_summary_bridge.events import Event, FileVersion, SessionLog, Summary
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.logdir import Run
from ms_summary_bridge.records import Damage, Incomplete, Padding
from ms_summary_bridge.report import DamagedRange, IncompleteTail

__all__ = ["Point", "RunReading", "read_points"]


class Point(msgspec.Struct, frozen=True, gc=False):
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
    bytes_read: int = 0
    versions: list[str] = msgspec.field(default_factory=list)
    damaged: list[DamagedRange] = msgspec.field(default_factory=list)
    incomplete: list[IncompleteTail] = msgspec.field(default_factory=list)
    padding_bytes: int = 0


def read_points(run: Run, reading: RunReading | None = None) -> Iterator[Point]:
    """Yields the points of a run, in the order of its files.

    Memory: beside a batch of records, 16 bytes and a key for each archived value.

    Args:
        run: As `discover` found it.
        reading: Is filled with what was met on the way.

    Raises:
        LogdirError: A file cannot be read.
    """
    reading = reading if reading is not None else RunReading()
    archived = _read_archives(run, reading)
    decoder = make_decoder(run.format)
    for file in run.files:
        with EventFileReader(file.path, decoder) as reader:
            for item in reader:
                for point in _points_of(item, file.path, reading):
                    series = archived.get((point.kind, point.tag))
                    if series is None or not series.holds(point):
                        yield point
                    else:
                        yield from series.take(point)
            reading.bytes_read += reader.offset
    lineage = make_decoder(LINEAGE) if run.format == mindspore.FORMAT else None
    for file in run.lineage_files if lineage is not None else ():
        with EventFileReader(file.path, make_decoder(LINEAGE)) as reader:
            for item in reader:
                yield from _points_of(item, file.path, reading)
            reading.bytes_read += reader.offset
    for series in archived.values():
        yield from series.points


class _Archived:
    """The archived points of one series, in their order."""

    def __init__(self) -> None:
        self.points: deque[Point] = deque()
        self._places: Counter[tuple[int, float]] = Counter()

    def add(self, point: Point) -> None:
        self.points.append(point)
        self._places[point.step, point.wall_time] += 1

    def holds(self, point: Point) -> bool:
        return self._places[point.step, point.wall_time] > 0

    def take(self, shown: Point) -> Iterator[Point]:
        """Yields the original of a point that the output shows, after those before it that it does not show."""
        while True:
            point = self.points.popleft()
            self._places[point.step, point.wall_time] -= 1
            yield point
            if (point.step, point.wall_time) == (shown.step, shown.wall_time):
                return


def _read_archives(run: Run, reading: RunReading) -> dict[tuple[str, str], _Archived]:
    archived: dict[tuple[str, str], _Archived] = {}
    if run.role != "convert":
        return archived
    for path in run.archives:
        of_archive = RunReading(damaged=reading.damaged, incomplete=reading.incomplete)
        with EventFileReader(path, make_decoder(_archive_source(path))) as reader:
            for item in reader:
                for point in _points_of(item, path, of_archive):
                    archived.setdefault((point.kind, point.tag), _Archived()).add(point)
    return archived


def _archive_source(path: str) -> str:
    sources = (mindspore.FORMAT, LINEAGE, tensorboard.FORMAT)
    return next(source for source in sources if archive_name(source) in path)


def _points_of(item: Event | Damage | Padding | Incomplete, path: str, reading: RunReading) -> Iterator[Point]:
    if isinstance(item, Damage):
        reading.damaged.append(DamagedRange(path, item.start, item.end, item.reason))
    elif isinstance(item, Padding):
        reading.padding_bytes += item.end - item.start
    elif isinstance(item, Incomplete):
        reading.incomplete.append(IncompleteTail(path, item.offset))
    else:
        reading.records += 1
        content = item.content
        if isinstance(content, Summary):
            for tagged in content.values:
                if tagged.derived:
                    reading.derived += 1
                else:
                    value = tagged.value
                    yield Point(value.kind, tagged.tag, item.step, item.wall_time, value.fingerprint())
        elif isinstance(content, FileVersion):
            reading.versions.append(content.version)
        elif item.derived:
            reading.derived += 1
        elif not isinstance(content, SessionLog):
            yield Point(content.kind, "", item.step, item.wall_time, content.fingerprint())
