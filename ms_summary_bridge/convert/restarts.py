"""Restarts: which later files of a run begin again, and where.

A point is replaced when its series has a point, written later, at the same or a lower step. TensorBoard's slow loader
obeys a mark by dropping the points of *all* tags from its step on, so a later file is a restart at a step only where

* it begins later than every wall time of the earlier files: else two wrote at once;
* the step is the first at which it goes back, at or below a step that the same tag has in an earlier file;
* each series with points at that step or above has a point in it at or below the lowest of them, so that the mark hides
  nothing but what is replaced. For that reason a loss landscape's or an evaluation's file is not a restart.

So the file is read ahead until that is proved, it ends, or it has shown 1,000 events. Its beginning is looked at as a
whole, up to the second step or the first tag that has a past; so a mark stands before new tags of its first step. What
comes before it goes back is written at once. A file that may still grow is written up to where it goes back: the bound
counts events, never time, so that following it gives what converting it gives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from ms_summary_bridge.batches.histograms import Drawn, Histograms
from ms_summary_bridge.batches.reader import Batch, BatchReader
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.convert.series import SeriesTable, keys_of
from ms_summary_bridge.convert.state import Undecided
from ms_summary_bridge.events import Decoder, Encoder, Event, Summary, TaggedValue
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.records import Damage, Incomplete, Padding

__all__ = ["FileWalk", "Piece", "ReadAhead", "Restart", "may_grow"]

_BOUND: Final = 1000  # events of a later file that are read ahead
_REST_SECS: Final = 600.0  # as MindInsight, which takes a file for ended that was not written to for so long
_NAMED: Final = 3  # tags named in a reason


class Restart(msgspec.Struct, frozen=True):
    """A training begins again here, at this step."""

    step: int


Piece: TypeAlias = Event | Batch | Drawn | Damage | Padding | Incomplete | Restart


class _Look(msgspec.Struct):
    """What reading ahead has found."""

    until: int
    """What lies before this byte is written as it is."""
    step: int | None = None
    """There a restart at this step stands."""
    undecided: Undecided | None = None
    """What is known, where it is not decided yet."""
    reason: str = ""
    """Why a file that goes back is not a restart."""


class FileWalk(msgspec.Struct):
    """Goes through what is new of one source file; where a training begins again it says so before the events.

    Whoever takes its pieces notes their series before asking for the next one: `ReadAhead` decides by them.
    """

    path: str
    offset: int
    """Behind the last piece given out."""
    end: int
    """How far the file is read."""
    decoder: Decoder
    """Of the run: it remembers what earlier files said."""
    undecided: Undecided | None = None
    """What is known of a file that may be a restart, and what a later walk must know; None for one that is decided."""
    last_time: float | None = None
    """The latest wall time of the events given out."""
    may_grow: bool = False
    """More events may come, so that what is not decided is left to the next time."""
    has_lineage: bool = False
    """Lineage of an earlier training is shown, at step 0."""
    reason: str = ""
    """Why a file that goes back was not taken for a restart."""
    histograms: Histograms | None = None
    """What is known of the run's histograms, where these may come drawn."""
    shapes: Shapes | None = None
    """Shapes of events that may come in batches; None where each event goes by itself."""
    payload: bytes = b""
    """Bytes of the event given out last, where they are at hand."""

    def pieces(self, ahead: ReadAhead) -> Iterator[Piece]:
        """Yields what the file holds."""
        while self.undecided is not None:
            look = ahead.look(self)
            yield from self._read(look.until)
            self.undecided, self.reason = look.undecided, look.reason
            if look.step is not None:
                yield Restart(look.step)
            if look.undecided is not None and (look.undecided.is_held or look.until >= self.end):
                return
        yield from self._read(self.end)

    def _read(self, end: int) -> Iterator[Event | Batch | Drawn | Damage | Padding | Incomplete]:
        if end <= self.offset:
            return
        if self.shapes is not None:
            yield from self._read_batches(end, self.shapes)
            return
        latest = float("-inf") if self.last_time is None else self.last_time
        with EventFileReader(self.path, self.decoder, offset=self.offset) as reader:
            for item in reader:
                offset = reader.offset
                if offset > end:
                    break
                self.offset = offset
                if type(item) is Event and item.wall_time > latest:
                    latest = item.wall_time
                yield item
        if latest > float("-inf"):
            self.last_time = latest

    def _read_batches(
        self, end: int, shapes: Shapes
    ) -> Iterator[Event | Batch | Drawn | Damage | Padding | Incomplete]:
        latest = float("-inf") if self.last_time is None else self.last_time
        reader = BatchReader(self.path, self.decoder, shapes, self.histograms, offset=self.offset, end=end)
        for item in reader:
            self.offset, self.payload = reader.offset, reader.payload
            if isinstance(item, (Event, Batch, Drawn)) and item.wall_time > latest:
                latest = item.wall_time
            yield item
        if latest > float("-inf"):
            self.last_time = latest


class ReadAhead:
    """Reads ahead in later files.

    `series` is what has been written, `make_decoder` makes one that knows what earlier files said, and `encoder` is the
    target's: a value that it cannot show replaces nothing.
    """

    def __init__(
        self,
        series: SeriesTable,
        make_decoder: Callable[[], Decoder],
        encoder: Encoder,
        is_wanted: Callable[[str], bool],
    ) -> None:
        self.series = series
        self.make_decoder = make_decoder
        self.is_wanted = is_wanted
        self._encoder = encoder

    def fork(self) -> ReadAhead:
        """Returns one whose series may go another way."""
        return ReadAhead(self.series.copy(), self.make_decoder, self._encoder, self.is_wanted)

    def look(self, walk: FileWalk) -> _Look:
        """Finds out how far a file can be written, and what stands there."""
        undecided = walk.undecided or Undecided()
        seen = {*undecided.seen}
        waited = undecided.waited
        start = walk.offset
        is_head = not start
        first_step: int | None = None
        for before, event in self._events(walk):
            if waited >= _BOUND:
                return _Look(walk.end)
            if isinstance(event.content, Summary):
                is_head = is_head and first_step in (None, event.step)
                first_step = event.step
                keys = {key for key, tagged in keys_of(event) if tagged is not None and self.is_wanted(tagged.tag)}
                past = [top for key in keys - seen if (top := self.series.highest(key)) is not None]
                if past and event.step <= max(past):
                    if before > start and not is_head:
                        return _Look(before, undecided=Undecided(waited, sorted(seen)))
                    return self._prove(walk, undecided, event.step)
                is_head = is_head and not past
                seen |= keys
            waited += 1
        if walk.may_grow and is_head and waited:
            return _Look(start, undecided=msgspec.structs.replace(undecided, is_held=True))
        return _Look(walk.end, undecided=Undecided(waited, sorted(seen)))

    def _prove(self, walk: FileWalk, undecided: Undecided, step: int) -> _Look:
        """Looks for a point that replaces those of each series which a mark would hide."""
        needs = self.series.lowest_from(step)
        if walk.has_lineage and step <= 0:
            needs["lineage", ""] = 0
        waited = undecided.waited
        for _, event in self._events(walk):
            if waited >= _BOUND:
                break
            waited += 1
            for key, tagged in keys_of(event):
                low = needs.get(key)
                if low is not None and event.step <= low and self._is_shown(event, tagged):
                    del needs[key]
            if not needs:
                return _Look(walk.offset, step)
        if walk.may_grow and waited < _BOUND:
            return _Look(walk.offset, undecided=msgspec.structs.replace(undecided, is_held=True))
        tags = sorted(repr(tag) if tag else kind for kind, tag in needs)
        named = ", ".join(tags[:_NAMED]) + (f" and {len(tags) - _NAMED} more" if len(tags) > _NAMED else "")
        reason = (
            f"goes back to step {step}, but does not replace all points from there on ({named}): no restart is marked, "
            "which would hide them"
        )
        return _Look(walk.end, reason=reason)

    def _is_shown(self, event: Event, tagged: TaggedValue | None) -> bool:
        if tagged is not None:
            if not self.is_wanted(tagged.tag):
                return False
            event = Event(event.wall_time, event.step, Summary((tagged,)), event.format)
        return self._encoder.encode(event).payload is not None

    def _events(self, walk: FileWalk) -> Iterator[tuple[int, Event]]:
        """Yields the events that a walk has before it, each with the offset before it."""
        with EventFileReader(walk.path, self.make_decoder(), offset=walk.offset) as reader:
            before = walk.offset
            for item in reader:
                if reader.offset > walk.end:
                    return
                if isinstance(item, Event):
                    yield before, item
                before = reader.offset


def may_grow(path: str) -> bool:
    """Whether a file may get more events: it was written to lately, and is not closed as MindSpore's writers close."""
    try:
        status = os.stat(path)
    except OSError:  # of an fsspec URL, say
        return True
    return bool(status.st_mode & 0o200) and time.time() - status.st_mtime < _REST_SECS
