"""Cuts a stream of bytes into records and what stands between them. No I/O.

What a decoder meets, and what it makes of it:

* a whole record whose two checksums hold: `Record`;
* bytes that end inside a record: a state, not a fault. More bytes may come. `RecordDecoder.finish` turns what
  is left into `Incomplete`;
* anything else is `Damage`: the range of bytes up to the next *whole* record, which is searched for byte by
  byte, so that one bad length costs one record and not the rest of the file;
* zeros up to the end or up to the next record are `Padding` (preallocated or sparse files), not damage.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

import msgspec
from crc32c import crc32c

from ms_summary_bridge.files.records import (
    FOOTER_BYTES,
    HEADER_BYTES,
    MAX_RECORD_BYTES,
    Damage,
    Incomplete,
    Padding,
    Piece,
    Record,
    make_header,
    masked_crc,
    too_large,
)

__all__ = ["RecordDecoder"]

_HEADER: Final = struct.Struct("<QI")
_MASK_DELTA: Final = 0xA282EAD8
_ZERO_RUN: Final = re.compile(rb"\0{4,}")
_ZERO_LENGTH_CRC: Final = make_header(0)[8:]
_HEADER_CACHE_SIZE: Final = 4096
# Most records of a run have one of a few lengths. Only headers whose checksum has been computed are held here, so a hit
# proves it as well as computing it again would.
_known_headers: dict[bytes, int] = {}


class RecordDecoder:
    """Cuts a stream of bytes into pieces; resumable at any byte.

    Feed it chunks of any size. It holds at most the bytes of one record that is not whole yet (and of a declared
    length only what really arrived), plus the chunk being fed.

    Args:
        offset: Position in the file of the first byte that will be fed; offsets of pieces count from there.
        max_record_bytes: A declared length above this is taken for damage.

    Example:
        >>> from ms_summary_bridge.files.records import encode_record
        >>> decoder = RecordDecoder()
        >>> data = encode_record(b"one") + encode_record(b"two")
        >>> [piece.payload for piece in decoder.feed(data[:25])], decoder.offset
        ([b'one'], 19)
        >>> [piece.payload for piece in decoder.feed(data[25:])], decoder.offset
        ([b'two'], 38)
    """

    def __init__(self, offset: int = 0, *, max_record_bytes: int = MAX_RECORD_BYTES) -> None:
        self._base = offset  # file position of self._chunks' first byte
        self._chunks: list[bytes] = []
        self._held = 0  # bytes in self._chunks
        self._need = HEADER_BYTES  # bytes from self._base on without which nothing can be decided
        self._max = min(max_record_bytes, MAX_RECORD_BYTES)
        self._search: _Search | None = None

    @property
    def offset(self) -> int:
        """Where to read on after a restart: the first byte that no piece given out so far covers."""
        return self._search.start if self._search else self._base

    @property
    def wanted(self) -> int:
        """File position up to which bytes are needed before the next piece can be given out.

        A reader that knows its file ends before this position need not load the bytes up to the end: see
        `give_up`.
        """
        return self._base + self._need

    def feed(self, data: bytes) -> list[Record | Damage | Padding]:
        """Takes the next bytes and returns the pieces that are complete now, in file order."""
        self._chunks.append(data)
        self._held += len(data)
        if self._held < self._need:
            return []
        buffer = data if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        pieces: list[Record | Damage | Padding] = []
        position = 0
        while True:
            if self._search is None:
                position = self._take_records(buffer, position, pieces)
            if self._search is None:
                break
            position = self._take_search(buffer, position, pieces)
            if self._search is not None:
                break
        self._base += position
        if position < len(buffer):
            self._chunks.append(buffer[position:])
        self._held = len(buffer) - position
        return pieces

    def give_up(self) -> list[Record | Damage | Padding]:
        """Says that the record at `offset` will never be whole, and searches for whole records behind its start.

        For a reader that finds `wanted` behind the end of its file. Feed the remaining bytes as usual, then call
        `finish`: if no whole record follows, the result is the same `Incomplete` as without this call.
        """
        if self._search is not None:
            self._search.abandon_candidate()
        elif self._held:
            self._search = _Search(self._base, "the record is not whole, yet others follow it", tail=True)
        self._need = 0
        return self.feed(b"")

    def finish(self) -> list[Piece]:
        """Says that no more bytes will come, and returns what is left.

        That is at most whole records that stand behind a torn one, then one `Incomplete`, `Damage` or `Padding`. The
        decoder can be fed no further.
        """
        pieces: list[Piece] = []
        while self._held and (self._search is None or self._search.candidate is not None):
            pieces += self.give_up()
        search = self._search
        if search is None:
            return pieces
        end = self._base + self._held
        search.skip(b"".join(self._chunks), 0, self._held)
        if search.tail and not search.is_zero:
            pieces.append(Incomplete(search.start, end - search.start))
        elif search.limit is not None and search.limit < end:  # the damaged record's end is known, the next one is cut
            pieces.append(search.close(search.limit))
            rest = b"".join(self._chunks)[search.limit - end :]
            is_zero = not rest.strip(b"\0")
            pieces.append(Padding(search.limit, end) if is_zero else Incomplete(search.limit, len(rest)))
            search.start = search.limit
        elif search.cut is not None:  # damage, and behind it a record that is only cut
            pieces.append(search.close(search.cut))
            pieces.append(Incomplete(search.cut, end - search.cut))
            search.start = search.cut
        else:
            pieces.append(search.close(end))
        return pieces

    def _take_records(self, buffer: bytes, position: int, pieces: list[Record | Damage | Padding]) -> int:
        """Appends whole records from `position` on; stops at the end of the bytes or by starting a search."""
        size = len(buffer)
        base = self._base
        known = _known_headers
        append = pieces.append
        while True:
            body = position + HEADER_BYTES
            if body > size:
                self._need = HEADER_BYTES
                return position
            header = buffer[position:body]
            length = known.get(header)
            if length is None:
                length, got = _HEADER.unpack(header)
                want = masked_crc(header[:8])
                if got != want:
                    reason = f"length checksum: want {want:#010x}, got {got:#010x}"
                    self._search = _Search(base + position, reason)
                    return position
                if len(known) < _HEADER_CACHE_SIZE:
                    known[header] = length
            if length > self._max:
                self._search = _Search(base + position, too_large(length, self._max))
                return position
            end = body + length
            stop = end + FOOTER_BYTES
            if stop > size:
                self._need = stop - position
                return position
            payload = buffer[body:end]
            crc = crc32c(payload)
            want = (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF
            got = int.from_bytes(buffer[end:stop], "little")
            if got != want:
                reason = f"data checksum: want {want:#010x}, got {got:#010x}"
                self._search = _Search(base + position, reason, limit=base + stop)
                return position
            append(Record(base + position, payload))
            position = stop

    def _take_search(self, buffer: bytes, position: int, pieces: list[Record | Damage | Padding]) -> int:
        """Goes on with the search for the next whole record; ends it when one is found or its limit is reached."""
        search = self._search
        assert search is not None
        base = self._base
        size = len(buffer)
        limit = size if search.limit is None else min(size, search.limit - base)
        for candidate in _candidates(buffer, max(position, search.untried - base), limit):
            length = int.from_bytes(buffer[candidate : candidate + 8], "little")
            if length > self._max or make_header(length) != buffer[candidate : candidate + HEADER_BYTES]:
                continue
            end = candidate + HEADER_BYTES + length
            if end + FOOTER_BYTES > size:
                search.skip(buffer, position, candidate)
                search.candidate = search.untried = base + candidate
                self._need = end + FOOTER_BYTES - candidate
                return candidate
            footer = buffer[end : end + FOOTER_BYTES]
            if masked_crc(buffer[candidate + HEADER_BYTES : end]) == int.from_bytes(footer, "little"):
                return self._end_search(search, buffer, position, candidate, pieces)
        search.candidate = None
        # Every place with a whole header behind it has been tried; the next one may begin in the last 11 bytes.
        keep = max(position, size - HEADER_BYTES + 1)
        if search.limit is not None and search.limit - base <= keep:
            return self._end_search(search, buffer, position, search.limit - base, pieces)
        search.skip(buffer, position, keep)
        self._need = size - keep + 1
        return keep

    def _end_search(
        self, search: _Search, buffer: bytes, position: int, end: int, pieces: list[Record | Damage | Padding]
    ) -> int:
        search.skip(buffer, position, end)
        pieces.append(search.close(self._base + end))
        self._search = None
        return end


class _Search(msgspec.Struct):
    """A search for the next whole record, begun at a record that is damaged."""

    start: int
    """File position of the damaged record."""
    reason: str
    limit: int | None = None
    """File position where the damaged record ends, if its length can be trusted: the next one begins there."""
    tail: bool = False
    """The search began at a record that may just be cut; without a find it is not damage."""
    candidate: int | None = None
    """File position of a whole header whose record has not arrived yet."""
    cut: int | None = None
    """File position of the first such header whose record will never arrive whole."""
    untried: int = 0
    """File position of the first place where a record has not been looked for."""
    is_zero: bool = True
    """All bytes skipped so far are zero."""

    def __post_init__(self) -> None:
        self.untried = self.start + 1

    def abandon_candidate(self) -> None:
        if self.candidate is not None:
            self.cut = self.candidate if self.cut is None else self.cut
            self.untried = self.candidate + 1
            self.candidate = None

    def skip(self, buffer: bytes, position: int, end: int) -> None:
        if self.is_zero and end > position:
            self.is_zero = buffer.count(0, position, end) == end - position

    def close(self, end: int) -> Damage | Padding:
        return Padding(self.start, end) if self.is_zero else Damage(self.start, end, self.reason)


def _candidates(buffer: bytes, start: int, limit: int) -> Iterator[int]:
    """Yields, ascending, the positions from `start` below `limit` where a header can stand, whole in `buffer`.

    The upper half of a length below 4 GiB is four zero bytes, so only the neighbourhood of zero runs is looked at.
    Inside a longer run the length would be 0, whose checksum follows only at the run's end.
    """
    last = min(limit, len(buffer) - HEADER_BYTES + 1)
    for run in _ZERO_RUN.finditer(buffer, start):
        first, end = run.span()
        if first - 4 >= last:
            return
        yield from range(max(first - 4, start), min(first, end - 7, last))
        tail = end - 8
        if first <= tail < last and buffer[end : end + 4] == _ZERO_LENGTH_CRC and tail >= start:
            yield tail
