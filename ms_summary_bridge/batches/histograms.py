"""Events of histograms, images and scalars, from MindSpore's form to TensorBoard's.

A histogram has up to 90 buckets, and each record has a few of them, so the buckets of all records of a chunk are found
and taken apart together; then a record is put together from slices. An image has the same bytes in both forms, so an
event of images alone is its source's. What a record's values are is known from an event
that went the general way and came out the same here; anything unusual (values that are not finite, fields in another
order, counts above 2**53) goes the general way.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ms_summary_bridge.batches.chain import unaligned
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.plugin_data import DATA_CLASS_TENSOR, Origin, encode_metadata
from ms_summary_bridge.values import Histogram, Image, Scalar

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Drawn", "Histograms"]

_WALL_TIME: Final = struct.Struct("<d").unpack_from
_MAX_TIME: Final = 1.7976931348623157e308
_BEHIND: Final = bytes(96)  # more than is read from where a bucket begins: 29 of it, 33 of the statistics, a number
_STATISTICS: Final = 33  # bytes of the statistics before the number of values
_STATISTICS_KEYS: Final = ((0, 0x10), (2, 0x18), (4, 0x20), (6, 0x29), (15, 0x31), (24, 0x39), (33, 0x40))
_NONE_LOST: Final = (1, 3, 5)  # where the counts of values that are not finite stand
_PLACE_VALUES: Final = 128 ** np.arange(8, dtype=np.int64)
_MOST_KNOWN: Final = 4096
_MAX_EXACT_COUNT: Final = 1 << 53

_FOLLOWS: Final = np.ones(256, np.uint64)  # high bits of a count's bytes by the length of its bucket
_COUNT_BITS: Final = np.zeros(256, np.uint64)
for _size in range(1, 9):
    _FOLLOWS[19 + _size] = 0x8080808080808080 & (1 << 8 * (_size - 1)) - 1
    _COUNT_BITS[19 + _size] = (1 << 8 * _size) - 1
_HIGH_BITS: Final = np.uint64(0x8080808080808080)


class Drawn(msgspec.Struct, gc=False):
    """An event in TensorBoard's form.

    Attributes:
        payload: Its bytes.
        wall_time: Seconds since the epoch.
        step: The step.
        values: Kind and tag of each value, and the bits of a scalar.
        checksum: CRC-32C of the payload where it is known: an event that was read whole, and is the same in both forms.
    """

    payload: bytes
    wall_time: float
    step: int
    values: list[tuple[str, str, bytes]]
    checksum: int | None = None


class _Buckets(msgspec.Struct, eq=False):
    """The histograms of a chunk.

    Attributes:
        at: Number of each histogram by where its first bucket begins.
        ends: Behind the statistics of each.
        rows: All buckets as TensorBoard holds them: left, right and count, three float64 each.
        widths: float64 of each bucket.
        spans: Where the buckets of each begin and end.
        has_widths: Whether the widths are others than TensorBoard's readers compute.
        extras: Range and sum of each, encoded; and the number of values.
    """

    at: dict[int, int]
    ends: list[int]
    rows: bytes
    widths: bytes
    spans: list[tuple[int, int]]
    has_widths: list[bool]
    ranges: bytes
    totals: list[int]


class Histograms:
    """What is known of the values of one run, and how they are drawn."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[str, str, bytes]] = {}  # by encoded tag: kind, tag, the same in the target
        self._heads: dict[int, bytes] = {}  # of a tensor, by number of buckets
        self._metadata: dict[int, tuple[bytes, bytes]] = {}  # around the extras, by their length
        self._data = b""
        self._buckets: _Buckets | None = None

    @property
    def is_used(self) -> bool:
        """Whether there are events that can be drawn here."""
        return bool(self._known)

    def learn(self, payload: bytes, event: Event, written: bytes) -> None:
        """Takes note of an event that was written the general way, whole and without loss."""
        content = event.content
        if event.original is not None or type(content) is not Summary:
            return
        if not any(type(tagged.value) in (Histogram, Image) for tagged in content.values):
            return
        new: dict[bytes, tuple[str, str, bytes]] = {}
        for tagged in content.values:
            if type(tagged.value) not in (Histogram, Image, Scalar) or tagged.original is not None or tagged.derived:
                return
            field = wire.length_delimited(b"\x0a", tagged.tag.encode("utf-8", "surrogateescape"))
            new[field] = (tagged.value.kind, tagged.tag, field)
        if new.keys() <= self._known.keys() or len(self._known) + len(new) > _MOST_KNOWN:
            return
        if len(new) < len(content.values):
            return
        before = dict(self._known)
        self._known |= new
        drawn = self.draw(payload, 0, len(payload))
        if drawn is None or drawn.payload != written:
            self._known = before

    def draw(self, data: bytes, start: int, end: int) -> Drawn | None:
        """Returns what becomes of an event; None for one that must go the general way.

        Args:
            data: The chunk it is in.
            start: Where its payload begins.
            end: Behind the payload.
        """
        try:
            return self._draw(data, start, end)
        except IndexError:  # a number does not end
            return None

    def _draw(self, data: bytes, start: int, end: int) -> Drawn | None:
        if data[start] != 0x09 or data[start + 9] != 0x10:
            return None
        wall_time = _WALL_TIME(data, start + 1)[0]
        step = data[start + 10]
        at = start + 11
        if step > 127:
            step &= 127
            shift = 7
            while True:
                byte = data[at]
                at += 1
                step |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
                if shift > 56:
                    return None
            if not byte:
                return None
        if not step or data[at] != 0x2A or not -_MAX_TIME <= wall_time <= _MAX_TIME:
            return None
        head = data[start:at]
        size, at = _read_length(data, at + 1)
        if at + size != end:
            return None
        parts: list[bytes | memoryview] = []
        values: list[tuple[str, str, bytes]] = []
        known = self._known
        total = 0
        is_same = True  # in both forms
        while at < end:
            if data[at] != 0x0A:
                return None
            size, at = _read_length(data, at + 1)
            stop = at + size
            if stop > end or data[at] != 0x0A:
                return None
            tag_bytes, after = _read_length(data, at + 1)
            after += tag_bytes
            found = known.get(data[at:after])
            if found is None:
                return None
            kind, tag, field = found
            if kind == "scalar":
                if stop - after != 5 or data[after] != 0x1D:
                    return None
                bits = data[after + 1 : stop]
                message: bytes | memoryview = field + b"\x15" + bits
                is_same = False
                values.append((kind, tag, bits))
            elif kind == "image":
                if not _is_plain_image(data, after, stop):
                    return None
                message = memoryview(data)[at:stop]
                values.append((kind, tag, b""))
            else:
                if data[after] != 0x4A:
                    return None
                size, first = _read_length(data, after + 1)
                body = self._body(data, first, stop) if first + size == stop else None
                if body is None:
                    return None
                message = field + body
                is_same = False
                values.append((kind, tag, b""))
            prefix = b"\x0a" + wire.varint(len(message))
            total += len(prefix) + len(message)
            parts += (prefix, message)
            at = stop
        size_bytes = wire.varint(total)
        if is_same and len(head) + 1 + len(size_bytes) + total == end - start:  # no length is longer than it need be
            return Drawn(data[start:end], wall_time, step, values)
        return Drawn(b"".join((head, b"\x2a", size_bytes, *parts)), wall_time, step, values)

    def _body(self, data: bytes, first: int, stop: int) -> bytes | None:
        """Returns a histogram as TensorBoard's tensor and our metadata, whose buckets begin at `first`."""
        if self._data is not data:
            self._data, self._buckets = data, _find_buckets(data)
        buckets = self._buckets
        number = None if buckets is None else buckets.at.get(first)
        if buckets is None or number is None or buckets.ends[number] != stop:
            return None
        low, high = buckets.spans[number]
        extras = buckets.ranges[27 * number : 27 * number + 27] + b"\x20" + wire.varint(buckets.totals[number])
        if buckets.has_widths[number]:
            extras += b"\x42" + wire.varint(8 * (high - low)) + buckets.widths[8 * low : 8 * high]
        before, behind = self._around(len(extras))
        return b"".join((self._head(high - low), buckets.rows[24 * low : 24 * high], before, extras, behind))

    def _head(self, count: int) -> bytes:
        head = self._heads.get(count)
        if head is None:
            from ms_summary_bridge.formats.tensor import DT_DOUBLE, encode_tensorboard_tensor

            tensor = encode_tensorboard_tensor(np.zeros((count, 3)), DT_DOUBLE)
            head = self._heads[count] = wire.length_delimited(b"\x42", tensor)[: -24 * count]
        return head

    def _around(self, size: int) -> tuple[bytes, bytes]:
        """Returns what stands before and behind the extras in a value's metadata."""
        around = self._metadata.get(size)
        if around is None:
            extras = b"\xff" * size
            metadata = encode_metadata("histograms", DATA_CLASS_TENSOR, Origin(histogram=extras))
            at = metadata.index(extras)
            around = self._metadata[size] = (metadata[:at], metadata[at + size :])
        return around


def _read_length(data: bytes, at: int) -> tuple[int, int]:
    """Returns a length below 256 MiB and the position behind it; one that no message has where it is longer."""
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    high = data[at + 1]
    if high < 128:
        return byte & 127 | high << 7, at + 2
    top = data[at + 2]
    if top < 128:
        return byte & 127 | (high & 127) << 7 | top << 14, at + 3
    last = data[at + 3]
    length = byte & 127 | (high & 127) << 7 | (top & 127) << 14 | last << 21
    return (length, at + 4) if last < 128 else (1 << 62, at)


def _is_plain_image(data: bytes, at: int, end: int) -> bool:
    """Whether what stands there is an image's field with its own fields as both formats' encoders write them."""
    if data[at] != 0x22:
        return False
    size, at = _read_length(data, at + 1)
    if at + size != end:
        return False
    for key in (0x08, 0x10, 0x18, 0x22):
        if data[at] != key:
            return False
        first = at + 1
        size, at = _read_length(data, first)
        if not data[at - 1] and at - first != 1:  # longer than it need be
            return False
    return at + size == end


def _find_buckets(chunk: bytes) -> _Buckets | None:
    """Takes all histograms of a chunk apart; see `formats` for how they are laid."""
    places = len(chunk)
    data = chunk + _BEHIND
    raw = np.frombuffer(data, np.uint8)
    has_keys = (raw[:places] == 0x0A) & (raw[2 : places + 2] == 0x09)
    has_keys &= (raw[11 : places + 11] == 0x11) & (raw[20 : places + 20] == 0x18)
    at = has_keys.nonzero()[0]
    lengths = raw[at + 1]
    words = unaligned(data, "<u8")[at + 21] & _COUNT_BITS[lengths]
    is_whole = (words & _HIGH_BITS) == _FOLLOWS[lengths]
    at, lengths, words = at[is_whole], lengths[is_whole], words[is_whole]
    if not len(at):
        return None
    after = at + 2 + lengths
    firsts = np.flatnonzero(np.concatenate(([True], at[1:] != after[:-1])))
    lasts = np.append(firsts[1:], len(at))
    ends = after[lasts - 1]
    has_statistics = np.ones(len(ends), bool)
    for offset, key in _STATISTICS_KEYS:
        has_statistics &= raw[ends + offset] == key
    for offset in _NONE_LOST:
        has_statistics &= raw[ends + offset] == 0
    totals, behind, is_short = _read_varints(raw, ends + _STATISTICS + 1)
    doubles = unaligned(data, "<f8")
    left, width = doubles[at + 3], doubles[at + 12]
    count = (words.view(np.uint8).reshape(-1, 8) & np.uint8(0x7F)) @ _PLACE_VALUES
    rows = np.empty((len(at), 3))
    with np.errstate(over="ignore", invalid="ignore"):
        right = left + width
        differs = (right - left).view(np.uint64) != width.view(np.uint64)
    rows[:, 0], rows[:, 1], rows[:, 2] = left, right, count
    has_widths = np.logical_or.reduceat(differs, firsts)
    good = has_statistics & is_short & (np.maximum.reduceat(count, firsts) <= _MAX_EXACT_COUNT)
    ranges = np.empty((len(firsts), 27), np.uint8)
    for column, (key, offset) in enumerate(((0x09, 16), (0x11, 7), (0x19, 25))):  # min, max, sum
        ranges[:, 9 * column] = key
        ranges[:, 9 * column + 1 : 9 * column + 9] = doubles[ends + offset].view(np.uint8).reshape(-1, 8)
    numbers = np.flatnonzero(good)
    return _Buckets(
        dict(zip(at[firsts[numbers]].tolist(), numbers.tolist(), strict=True)),
        behind.tolist(),
        rows.tobytes(),
        width.tobytes(),
        list(zip(firsts.tolist(), lasts.tolist(), strict=True)),
        has_widths.tolist(),
        ranges.tobytes(),
        totals.tolist(),
    )


def _read_varints(
    raw: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Returns the numbers of up to eight bytes at the given places, where they end, and which are such."""
    total = np.zeros(len(at), np.int64)
    behind = at.copy()
    is_open = np.ones(len(at), bool)
    for place in range(8):
        byte = raw[at + place]
        total += np.where(is_open, (byte & 0x7F).astype(np.int64) << (7 * place), 0)
        behind += is_open
        is_open &= byte > 127
        if not is_open.any():
            break
    return total, behind, ~is_open
