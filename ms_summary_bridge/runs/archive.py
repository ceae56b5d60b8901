"""The archive: what a target format cannot hold exactly, kept as its original record beside the output.

An archive is a file of records in the *source's* format, opened by a version event of the source. Neither viewer loads
it: its name holds neither `tfevents` nor `summary.<digits>`. Lineage records have field numbers of their own and so get
an archive of their own. Converting back, and `verify`, read it in the output's place.

Before each original stands a version event whose text is its `ArchivePosition`: which event of the output it
replaces, or behind which one it belongs when the output has nothing of it. Events are named by their number, and by a
checksum so that they are found again behind a damaged range.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

import msgspec
from crc32c import crc32c

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.events import Decoder, Encoder, Event, FileVersion, SessionLog
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE
from ms_summary_bridge.files.record_writer import RecordWriter
from ms_summary_bridge.files.records import Damage, Incomplete, Padding
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.formats.plugin_data import DERIVATION

__all__ = [
    "START",
    "ArchivePosition",
    "ArchiveWriter",
    "PlaceCounter",
    "make_decoder",
    "make_encoder",
    "place_in",
    "read_archive",
    "restore",
    "source_of",
]

_PLACE: Final = "ms_summary_bridge.archive "
_PLACE_TEXT: Final = re.compile(_PLACE + r"(replaces|follows) ([0-9]{1,19}) ([0-9a-f]{8})(?: ([0-9]{1,9}))?")
_SMALLEST_RECORD: Final = 25  # 16 bytes around a payload that has at least a time
_FAR: Final = 10_000  # originals to look through where nothing says how many events are gone
_Fault: TypeAlias = Damage | Padding | Incomplete


def make_decoder(source: str, plugins: dict[str, str] | None = None) -> Decoder:
    """Returns a fresh decoder for `mindspore`, `mindspore_lineage` or `tensorboard`; `plugins` as the last one's."""
    if source == tensorboard.FORMAT:
        return tensorboard.TensorBoardDecoder(plugins)
    if source in (mindspore.FORMAT, LINEAGE):
        return mindspore.MindSporeDecoder(is_lineage=source == LINEAGE)
    raise UsageError(f"format: must be mindspore, mindspore_lineage or tensorboard, not {source!r}")


def make_encoder(target: str) -> Encoder:
    """Returns a fresh encoder for the same names as `make_decoder`."""
    return tensorboard.TensorBoardEncoder() if target == tensorboard.FORMAT else mindspore.MindSporeEncoder()


def source_of(event: Event) -> str:
    """Returns the name by which `make_decoder` knows an event's format."""
    return LINEAGE if event.is_lineage else event.format


class ArchivePosition(msgspec.Struct, frozen=True):
    """Where an original stands in the order of the output's events."""

    replaces: bool
    """It stands for that event; otherwise behind it."""
    number: int
    """Of the output's event, counted from 1; 0 for the place before the first one."""
    mark: int
    """Checksum of that event's payload."""
    derivation: int = DERIVATION
    """Version of the rules by which that event was made of the original; 0 in archives that do not say it."""

    def encode(self) -> str:
        """Returns the text of the record that stands before the original."""
        text = f"{_PLACE}{'replaces' if self.replaces else 'follows'} {self.number} {self.mark:08x}"
        return f"{text} {self.derivation}" if self.derivation else text

    @classmethod
    def decode(cls, text: str) -> ArchivePosition | None:
        """Reads such a text; None for any other."""
        match = _PLACE_TEXT.fullmatch(text)
        return cls(match[1] == "replaces", int(match[2]), int(match[3], 16), int(match[4] or 0)) if match else None

    def is_at(self, number: int, mark: int, *, replaces: bool) -> bool:
        """Whether it is that place, by whatever version the event there was made."""
        return (self.number, self.mark, self.replaces) == (number, mark, replaces)


START: Final = ArchivePosition(False, 0, 0)
"""The place before an output's first event."""


class PlaceCounter:
    """Names the events of an output as they are written; goes on behind the `last` of an earlier session."""

    def __init__(self, last: ArchivePosition | None = None) -> None:
        self.last = last or START
        """The place behind the last event."""

    def advance(self, payload: bytes) -> ArchivePosition:
        """Takes note of the next event; returns the place it is replaced at."""
        self.last = ArchivePosition(False, self.last.number + 1, crc32c(payload))
        return ArchivePosition(True, self.last.number, self.last.mark)

    def skip(self, events: int, mark: int) -> None:
        """Takes note of events that nothing is archived of; `mark` is the checksum of the last one's payload."""
        self.last = ArchivePosition(False, self.last.number + events, mark)


class ArchiveWriter:
    """Writes one archive of events of the format `source`, behind what an earlier session wrote to the file."""

    def __init__(self, file: RecordWriter, source: str) -> None:
        self.file = file
        self._encoder = make_encoder(source)

    def write(self, event: Event, place: ArchivePosition) -> None:
        """Adds one event of the source format at its place; it is encoded back to an equal message.

        Raises:
            LogdirError: The file cannot be written, or holds something else.
        """
        if not self.file.offset:
            self._put(Event(event.wall_time, 0, FileVersion(""), "", None))
        self._put(Event(event.wall_time, 0, FileVersion(place.encode()), event.format))
        self._put(event)

    def _put(self, event: Event) -> None:
        payload = self._encoder.encode(event).payload
        assert payload is not None  # same format: there is a place for everything
        self.file.write(payload)


def place_in(event: Event) -> ArchivePosition | None:
    """Returns the place that an archive's version event names; None for any other event."""
    return ArchivePosition.decode(event.content.version) if isinstance(event.content, FileVersion) else None


def read_archive(path: str, source: str) -> Iterator[tuple[ArchivePosition, Event] | _Fault]:
    """Yields the originals of one archive with their places, and what is wrong with the file."""
    place: ArchivePosition | None = None
    for item in EventFileReader(path, make_decoder(source)):
        if not isinstance(item, Event):
            yield item
        elif (found := place_in(item)) is not None:
            place = found
        elif place is not None:
            yield place, item
            place = None


def restore(
    output: Iterable[tuple[Event, int] | _Fault], archive: Iterable[tuple[ArchivePosition, Event] | _Fault]
) -> Iterator[Event | _Fault]:
    """Yields the events that an output was made from: its own, with the originals in their places.

    Version events and session marks of the output are its own: they are passed on, and have no place. Where the output
    is damaged, an original whose event is gone is given out as soon as a later event shows that, or at the end.
    The output's events come with the checksums of their payloads, the archive as `read_archive` yields it.
    """
    return _Restoration(archive).restore(output)


class _Restoration:
    """Goes through an output and its archive side by side.

    Events of the output are numbered as they were when they were written. After damage the number of the next one is
    known only as a range, until one is found by its mark.
    """

    def __init__(self, archive: Iterable[tuple[ArchivePosition, Event] | _Fault]) -> None:
        self._archive = iter(archive)
        self._ahead: deque[tuple[ArchivePosition, Event]] = deque()
        self._faults: deque[_Fault] = deque()  # of the archive, met while reading ahead
        self._number = 0
        self._lost = 0  # at most so many events before the next one are gone unnumbered

    def restore(self, output: Iterable[tuple[Event, int] | _Fault]) -> Iterator[Event | _Fault]:
        yield from self._take(lambda place: place.is_at(0, 0, replaces=False))
        for item in output:
            if not isinstance(item, tuple):
                if isinstance(item, Damage):
                    self._lost += max(1, (item.end - item.start) // _SMALLEST_RECORD)
                yield item
                continue
            event, mark = item
            if isinstance(event.content, (FileVersion, SessionLog)):
                yield event
            else:
                yield from self._put(event, mark)
        yield from self._take(lambda place: True)

    def _put(self, event: Event, mark: int) -> Iterator[Event | _Fault]:
        """Yields an event of the output or what it stands for, and the originals that belong before and behind it."""
        self._number += 1
        place = self._find(mark)
        if place is not None:
            self._number, self._lost = place.number, 0
        number = self._number
        yield from self._take(lambda place: place.number < number)  # their events are gone
        first = self._peek(0)
        if first is not None and first[0].is_at(number, mark, replaces=True):
            self._ahead.popleft()
            yield first[1]
        else:
            yield event
        yield from self._take(lambda place: place.is_at(number, mark, replaces=False))

    def _find(self, mark: int) -> ArchivePosition | None:
        """Returns the next place at an event that may be the present one."""
        first = self._peek(0)
        if first is not None and first[0].number == self._number and first[0].mark != mark:
            self._lost = _FAR  # a file is missing, or not what was written
        index = 0
        while (entry := self._peek(index)) is not None and entry[0].number <= self._number + self._lost:
            if entry[0].number >= self._number and entry[0].mark == mark:
                return entry[0]
            index += 1
        return None

    def _peek(self, index: int) -> tuple[ArchivePosition, Event] | None:
        while len(self._ahead) <= index:
            item = next(self._archive, None)
            if item is None:
                return None
            if isinstance(item, tuple):
                self._ahead.append(item)
            else:
                self._faults.append(item)
        return self._ahead[index]

    def _take(self, is_wanted: Callable[[ArchivePosition], bool]) -> Iterator[Event | _Fault]:
        while (first := self._peek(0)) is not None and is_wanted(first[0]):
            yield self._ahead.popleft()[1]
        while self._faults:
            yield self._faults.popleft()
