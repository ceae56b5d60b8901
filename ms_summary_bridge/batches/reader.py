"""Reads one file by the batch lane where its records allow it, and by the general way where they do not."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import BinaryIO, Final, TypeAlias

import msgspec
import numpy as np
from crc32c import crc32c

from ms_summary_bridge.batches.histograms import Drawn, Histograms
from ms_summary_bridge.batches.limits import LIMITS
from ms_summary_bridge.batches.scan import Group, Scan, scan
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.events import Decoder, Event
from ms_summary_bridge.files.event_file import CHUNK_BYTES, EventFileReader, is_url, open_source, read_errors
from ms_summary_bridge.files.records import (
    FOOTER_BYTES,
    HEADER_BYTES,
    LARGE_BYTES,
    MAX_RECORD_BYTES,
    Damage,
    Incomplete,
    Padding,
    make_header,
    mask_crc,
    masked_crc,
)
from ms_summary_bridge.files.system import read_at

__all__ = ["Batch", "BatchReader"]

_FEW: Final = 64
_SMALL_CHUNK: Final = 1 << 16


class Batch(msgspec.Struct, eq=False):
    """Records that stand one behind the other in a file, all of shapes that are known.

    Attributes:
        scan: The chunk they are in.
        first: Number of the first one.
        last: Number behind the last one.
    """

    scan: Scan
    first: int
    last: int

    @property
    def events(self) -> int:
        """How many there are."""
        return self.last - self.first

    @property
    def wall_time(self) -> float:
        """The latest of their wall times."""
        return float(self.scan.wall_times[self.first : self.last].max())

    def groups(self) -> Iterator[tuple[Group, slice]]:
        """Yields the groups of its events: each with the part of its rows that is in the batch."""
        for group in self.scan.groups:
            low, high = np.searchsorted(group.rows, (self.first, self.last)).tolist()
            if low < high:
                yield group, slice(low, high)

    def split(self, events: int) -> tuple[Batch, Batch]:
        """Returns its first events, and the others."""
        middle = min(self.first + events, self.last)
        return Batch(self.scan, self.first, middle), Batch(self.scan, middle, self.last)

    def decode(self, decoder: Decoder) -> Iterator[Event]:
        """Yields their events, for whoever cannot take them at once."""
        for row in range(self.first, self.last):
            yield decoder.decode(self.scan.payload(row))


_Item: TypeAlias = Event | Damage | Padding | Incomplete | Batch | Drawn


class BatchReader:
    """Reads the events of one file, many at a time where that is possible.

    Whoever takes an event says by `learn` what became of it; those of its shape that follow may then come in batches.

    Args:
        path: Local file or fsspec URL.
        decoder: Codec of the file's format.
        shapes: The shapes of the run.
        histograms: What is known of its histograms, where these are to come drawn.
        offset: Position to begin at.
        end: Position to end at; None for the end of the file.
        chunk_bytes: Bytes looked at together; the file is then open only while they are read, so that many files can be
            read side by side (not that of a URL). None for what is fastest, and a file that stays open.

    Attributes:
        offset: Behind the last item given out.
        payload: Bytes of the event given out last; empty behind anything else.

    Raises:
        LogdirError: (on iterating) The file cannot be opened or read, or is shorter than `offset`.
    """

    def __init__(
        self,
        path: str,
        decoder: Decoder,
        shapes: Shapes,
        histograms: Histograms | None = None,
        *,
        offset: int = 0,
        end: int | None = None,
        chunk_bytes: int | None = None,
    ) -> None:
        self.path = path
        self.offset = offset
        self.payload = b""
        self._decoder = decoder
        self._shapes = shapes
        self._histograms = histograms
        self._is_url = is_url(path)
        self._end = end
        self._chunk_bytes = chunk_bytes
        self._patience = LIMITS.patience
        self._distrust = 1

    def __iter__(self) -> Iterator[_Item]:
        chunk_bytes = self._chunk_bytes or LIMITS.chunk_bytes
        with ExitStack() as stack:
            is_kept = not self._chunk_bytes or self._is_url
            source = stack.enter_context(open_source(self.path)) if is_kept else None
            while self._end is None or self.offset < self._end:
                if source is not None:
                    yield from self._take_large(source)
                before = self.offset
                limit = chunk_bytes if self._end is None else min(chunk_bytes, self._end - before)
                data = self._read(limit, before, source)
                if (yield from self._take(scan(data, self._shapes), before)):
                    return
                if self.offset > before:
                    continue
                if (yield from self._read_generally(self._patience)):
                    return
                self._patience = min(2 * self._patience, LIMITS.most_patience)

    def _read(self, size: int, offset: int, source: BinaryIO | None) -> bytes:
        if source is None:
            with open_source(self.path) as source:
                return self._read(size, offset, source)
        with read_errors(self.path):
            if not self._is_url:
                return read_at(source.fileno(), size, offset)
            source.seek(offset)
            return source.read(size)

    def _size(self, source: BinaryIO) -> int:
        with read_errors(self.path):
            return source.seek(0, os.SEEK_END)

    def _take_large(self, source: BinaryIO) -> Iterator[_Item]:
        """Yields the records of 64 KiB and more that come next, each read by itself; stops at any that is not whole."""
        size = self._size(source) if self._end is None else self._end
        header = self._read(HEADER_BYTES, self.offset, source)
        while True:
            length = int.from_bytes(header[:8], "little")
            body = self.offset + HEADER_BYTES
            end = body + length + FOOTER_BYTES
            if not LARGE_BYTES <= length <= MAX_RECORD_BYTES or end > size or header != make_header(length):
                return
            payload = self._read(length, body, source)
            behind = self._read(FOOTER_BYTES + HEADER_BYTES, body + length, source)
            checksum = crc32c(payload)
            if len(payload) < length or mask_crc(checksum) != int.from_bytes(behind[:FOOTER_BYTES], "little"):
                return
            start, self.offset, self.payload = self.offset, end, payload
            yield self._item_of(payload, start, checksum)
            header = behind[FOOTER_BYTES:]

    def _item_of(self, payload: bytes, start: int, checksum: int) -> Event | Damage | Drawn:
        if self._histograms is not None and self._histograms.is_used:
            drawn = self._histograms.draw(payload, 0, len(payload))
            if drawn is not None:
                drawn.checksum = checksum if drawn.payload is payload else None
                return drawn
        return self._decode(payload, start)

    def _decode(self, payload: bytes, start: int) -> Event | Damage:
        try:
            return self._decoder.decode(payload)
        except EventDecodeError as error:
            return Damage(start, self.offset, f"not an event: {error.message}")

    def _take(self, found: Scan, base: int) -> Generator[_Item, None, bool]:
        """Yields what a chunk holds, up to where another scan is to go on; returns whether the file has ended."""
        is_known = found.shapes >= 0
        count = len(found.starts)
        changes = [*((is_known[1:] != is_known[:-1]).nonzero()[0] + 1).tolist(), count] if count else []
        shapes_known = len(self._shapes.shapes)
        row = general = 0
        for stop in changes:
            if is_known[row] and stop - row >= LIMITS.fewest:
                self.payload = b""
                batch = Batch(found, row, stop)
                self.offset = base + found.end(stop - 1)
                yield batch
                row = stop
                self._patience = LIMITS.patience
                continue
            while row < stop:
                payload = found.payload(row)
                end = found.end(row)
                if masked_crc(payload) != int.from_bytes(found.data[end - FOOTER_BYTES : end], "little"):
                    # Each time the general reader decodes a chunk. Where damage comes again and again, a few bytes
                    # apart, it keeps more and more of what it has found there.
                    most, self._distrust = self._distrust, min(2 * self._distrust, LIMITS.most_patience)
                    return (yield from self._read_generally(most))
                self.payload = payload
                start, self.offset = self.offset, base + end
                if self._histograms is not None and self._histograms.is_used:
                    end -= FOOTER_BYTES
                    drawn = self._histograms.draw(found.data, end - len(payload), end)
                    if drawn is not None:
                        yield drawn
                        row += 1
                        continue
                yield self._decode(payload, start)
                row += 1
                general += 1
                if general >= self._patience and len(self._shapes.shapes) > shapes_known:
                    self._patience = min(2 * self._patience, LIMITS.most_patience)
                    return False
        return False

    def _read_generally(self, most: int | None) -> Generator[_Item, None, bool]:
        """Yields what the general reader finds, so many items at most; returns whether that was all."""
        chunk_bytes = CHUNK_BYTES if most is None or most > _FEW else _SMALL_CHUNK
        with EventFileReader(self.path, self._decoder, offset=self.offset, chunk_bytes=chunk_bytes) as reader:
            for count, item in enumerate(reader, 1):
                offset = reader.offset
                if self._end is not None and offset > self._end:
                    return True
                self.payload = reader.payload if isinstance(item, Event) else b""
                self.offset = offset
                yield item
                # What reaches to the end of the file is given out, but not passed over: more bytes may complete it.
                is_passed = isinstance(item, Event) or (not isinstance(item, Incomplete) and item.end == offset)
                if most is not None and count >= most and is_passed:
                    return False
        return True
