"""The archive: what a target format cannot hold exactly, kept as its original record beside the output.

Layer: events, formats, event_file < **archive**.

An archive is a file of records in the *source's* format, opened by a version event of the source. Neither viewer loads
it: its name holds neither `tfevents` nor `summary.<digits>`. Lineage records have field numbers of their own and so get
an archive of their own. Converting back, and `verify`, read it in the output's place.

Before each original stands a version event whose text is its `Place`: which event of the output it replaces, or behind
which one it belongs when the output has nothing of it. Events are named by what both sides have of them, wall time and
step, and not by a number, so that a damaged output shifts nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.event_file import EventFileReader
from ms_summary_bridge.events import Decoder, Encoder, Event, FileVersion, SessionLog
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.record_writer import RecordWriter
from ms_summary_bridge.records import Damage, Incomplete, Padding

__all__ = [
    "LINEAGE",
    "ArchiveWriter",
    "Place",
    "PlaceCounter",
    "archive_name",
    "archive_sources",
    "make_decoder",
    "make_encoder",
    "read_archive",
    "restore",
]

LINEAGE: Final = "mindspore_lineage"
"""Name of the format of lineage files: MindSpore's framing, other event fields."""

_PLACE: Final = "ms_summary_bridge.archive "
_DECODERS: Final = (mindspore.FORMAT, LINEAGE, tensorboard.FORMAT)


def archive_name(source: str) -> str:
    """Returns the file name of the archive for records of one source format."""
    return f"ms_summary_bridge.{source}.archive"


def archive_sources(directory: str) -> list[str]:
    """Returns the source formats for which `directory` holds an archive."""
    return [source for source in _DECODERS if os.path.isfile(os.path.join(directory, archive_name(source)))]


def make_decoder(source: str) -> Decoder:
    """Returns a fresh decoder for `mindspore`, `mindspore_lineage` or `tensorboard`."""
    if source == tensorboard.FORMAT:
        return tensorboard.TensorBoardDecoder()
    if source in _DECODERS:
        return mindspore.MindSporeDecoder(is_lineage=source == LINEAGE)
    raise UsageError(f"no such format: {source!r}")


def make_encoder(target: str) -> Encoder:
    """Returns a fresh encoder for the same names as `make_decoder`."""
    return tensorboard.TensorBoardEncoder() if target == tensorboard.FORMAT else mindspore.MindSporeEncoder()


class Place(msgspec.Struct, frozen=True):
    """Where an original stands in the order of the output's events."""

    replaces: bool
    """It stands for that event; otherwise behind it."""
    wall_time: float | None
    """Of the output's event; None for the place before the first one."""
    step: int
    nth: int
    """How many events with the same time and step stand directly before that event."""

    def encode(self) -> str:
        """Returns the text of the record that stands before the original."""
        wall_time = "start" if self.wall_time is None else self.wall_time.hex()
        return f"{_PLACE}{'replaces' if self.replaces else 'follows'} {wall_time} {self.step} {self.nth}"

    @classmethod
    def decode(cls, text: str) -> Place | None:
        """Reads such a text; None for any other."""
        try:
            mode, wall_time, step, nth = text.removeprefix(_PLACE).split()
            when = None if wall_time == "start" else float.fromhex(wall_time)
            return cls(mode == "replaces", when, int(step), int(nth)) if text.startswith(_PLACE) else None
        except ValueError:
            return None


class PlaceCounter:
    """Names the events of an output as they pass.

    Args:
        last: The place of the last event of an earlier session, as `last` was.
    """

    def __init__(self, last: Place | None = None) -> None:
        self.last = last or Place(False, None, 0, 0)
        """The place behind the last event."""

    def advance(self, event: Event) -> Place:
        """Takes note of the next event; returns the place it is replaced at."""
        is_alike = self.last.wall_time == event.wall_time and self.last.step == event.step
        nth = self.last.nth + 1 if is_alike else 0
        self.last = Place(False, event.wall_time, event.step, nth)
        return Place(True, event.wall_time, event.step, nth)


class ArchiveWriter:
    """Writes one archive; the file is made when the first event comes.

    Args:
        directory: Where the output of the run lies.
        source: Format of the events.
        offset: Where an earlier session ended; 0 for a new archive.
        is_dry: Count, but write nothing.
    """

    def __init__(self, directory: str, source: str, *, offset: int = 0, is_dry: bool = False) -> None:
        self.path = os.path.join(directory, archive_name(source))
        self._encoder = make_encoder(source)
        self._source = source
        self._start = offset
        self._is_dry = is_dry
        self._writer: RecordWriter | None = None

    @property
    def offset(self) -> int:
        """Position after the last record."""
        return self._writer.offset if self._writer else self._start

    def write(self, event: Event, place: Place) -> None:
        """Adds one event of the source format at its place; it is encoded back to an equal message.

        Raises:
            LogdirError: The file cannot be written, or holds something else.
        """
        if self._is_dry:
            return
        if self._writer is None:
            resumes = self._start or Path(self.path).exists()
            self._writer = RecordWriter(self.path, offset=self._start if resumes else None)
            if not self._start:
                self._put(Event(event.wall_time, 0, FileVersion(""), "", None))
        self._put(Event(event.wall_time, 0, FileVersion(place.encode()), event.format))
        self._put(event)

    def _put(self, event: Event) -> None:
        payload = self._encoder.encode(event).payload
        assert payload is not None  # same format: there is a place for everything
        assert self._writer is not None
        self._writer.write(payload)

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flushes and closes; may be called again."""
        if self._writer is not None:
            self._writer.close()


def read_archive(path: str, source: str) -> Iterator[tuple[Place, Event] | Damage | Padding | Incomplete]:
    """Yields the originals of one archive with their places, and what is wrong with the file."""
    place: Place | None = None
    for item in EventFileReader(path, make_decoder(source)):
        if not isinstance(item, Event):
            yield item
        elif isinstance(item.content, FileVersion) and (found := Place.decode(item.content.version)) is not None:
            place = found
        elif place is not None:
            yield place, item
            place = None


def restore(
    output: Iterable[Event | Damage | Padding | Incomplete],
    archive: Iterable[tuple[Place, Event] | Damage | Padding | Incomplete],
) -> Iterator[Event | Damage | Padding | Incomplete]:
    """Yields the events that an output was made from: its own, with the originals in their places.

    Where the output is damaged, an original whose event is gone is given out as soon as a later event shows that.
    Version events and session marks of the output are passed on and have no place.
    """
    originals = iter(archive)
    counter = PlaceCounter()
    waiting: tuple[Place, Event] | None = None
    is_damaged = False

    def advance() -> Iterator[Damage | Padding | Incomplete]:
        nonlocal waiting
        waiting = None
        for item in originals:
            if isinstance(item, tuple):
                waiting = item
                return
            yield item

    def follow(place: Place) -> Iterator[Event | Damage | Padding | Incomplete]:
        while waiting is not None and waiting[0] == place:
            yield waiting[1]
            yield from advance()

    yield from advance()
    yield from follow(counter.last)
    for item in output:
        if not isinstance(item, Event):
            is_damaged = is_damaged or isinstance(item, Damage)
            yield item
            continue
        if isinstance(item.content, (FileVersion, SessionLog)):
            yield item
            continue
        while is_damaged and waiting is not None and _is_before(waiting[0], item):
            yield waiting[1]
            yield from advance()
        place = counter.advance(item)
        if waiting is not None and waiting[0] == place:
            yield waiting[1]
            yield from advance()
        else:
            yield item
        yield from follow(counter.last)
    while waiting is not None:
        yield waiting[1]
        yield from advance()


def _is_before(place: Place, event: Event) -> bool:
    return place.wall_time is None or place.wall_time < event.wall_time
