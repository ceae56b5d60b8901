"""Series as running hashes, so that what is compared needs no memory for its points.

A key with an empty name is a series of the source, free of any format. One with a name is what an output shows under
that name and a conversion made from the series: a table, a drawing, an approximation.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec
import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    Rows: TypeAlias = npt.NDArray[np.void]

__all__ = [
    "ENCODING",
    "Key",
    "PointLists",
    "Series",
    "SeriesHashes",
    "SeriesPoint",
    "Take",
    "Taker",
    "first_difference",
    "pack_rows",
]

Key: TypeAlias = tuple[str, str, str]
"""Kind, tag, and the name of what is shown."""

Take: TypeAlias = Callable[[Key, int, float, bytes | None], None]
"""Takes one point: its series, step, wall_time and the fingerprint of its value. A point without a fingerprint is
counted and no more: it was made by older rules."""

ENCODING: Final = "encoding"
"""Kind of the points that say how an archived value, or an event with unknown fields, was written."""

_ROW: Final = np.dtype([("step", "<i8"), ("wall_time", "<f8"), ("bits", "<u4")])  # as a point of a scalar is packed
_PACK_POINT: Final = struct.Struct("<qd").pack
_BUFFER_BYTES: Final = 1024


class Taker(Protocol):
    """Takes the points of one side."""

    def take(self, key: Key, step: int, wall_time: float, fingerprint: bytes | None) -> None:
        """Takes one point."""

    def take_rows(self, key: Key, rows: Rows) -> None:
        """Takes points of a series of scalars, as `pack_rows` gives them."""


def pack_rows(steps: npt.NDArray[np.int64], wall_times: npt.NDArray[np.float64], bits: npt.NDArray[np.uint32]) -> Rows:
    """Returns points of a series of scalars as they are hashed."""
    rows = np.empty(len(steps), _ROW)
    rows["step"], rows["wall_time"], rows["bits"] = steps, wall_times, bits
    return rows


def _take_each(taker: Taker, key: Key, rows: Rows) -> None:
    for step, wall_time, bits in rows.tolist():
        taker.take(key, step, wall_time, bits.to_bytes(4, "little"))


class SeriesPoint(msgspec.Struct, frozen=True, gc=False):
    """One point, for the second look at a series that differs."""

    step: int
    wall_time: float
    fingerprint: bytes | None


class Series:
    """One series as a running hash over its points, or over their set."""

    __slots__ = ("_buffer", "_digest", "_sum", "is_counted", "points")

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._buffer = bytearray()
        self._sum: int | None = None
        self.points = 0
        self.is_counted = False
        """It has points of which only the number is known."""

    def add(self, step: int, wall_time: float, fingerprint: bytes | None) -> None:
        """Adds the next point."""
        self.points += 1
        if fingerprint is None:
            self.is_counted = True
            return
        buffer = self._buffer
        buffer += _PACK_POINT(step, wall_time)
        buffer += fingerprint
        if len(buffer) > _BUFFER_BYTES:
            self._digest.update(buffer)
            buffer.clear()

    def add_rows(self, rows: Rows) -> None:
        """Adds the points that follow."""
        self.points += len(rows)
        self._digest.update(self._buffer)
        self._buffer.clear()
        self._digest.update(rows.tobytes())

    def add_to_set(self, step: int, wall_time: float, fingerprint: bytes | None) -> None:
        """Adds a point of a series whose order cannot be known."""
        self.points += 1
        digest = hashlib.blake2b(_PACK_POINT(step, wall_time) + (fingerprint or b""), digest_size=16).digest()
        self._sum = ((self._sum or 0) + int.from_bytes(digest, "little")) % (1 << 128)
        self.is_counted = self.is_counted or fingerprint is None

    def equals(self, other: Series) -> bool:
        """Whether both have the same points, as far as these are known."""
        if self.points != other.points:
            return False
        return self.is_counted or other.is_counted or self._state() == other._state()

    def _state(self) -> tuple[bytes, int | None]:
        digest = self._digest.copy()
        digest.update(self._buffer)
        return digest.digest(), self._sum


class SeriesHashes:
    """All series of one side; whether the order of their points counts is `is_ordered`."""

    def __init__(self, *, is_ordered: bool = True) -> None:
        self.series: dict[Key, Series] = {}
        self._is_ordered = is_ordered
        self._add = Series.add if is_ordered else Series.add_to_set

    def take(self, key: Key, step: int, wall_time: float, fingerprint: bytes | None) -> None:
        """Takes one point."""
        series = self.series.get(key)
        if series is None:
            series = self.series[key] = Series()
        self._add(series, step, wall_time, fingerprint)

    def take_rows(self, key: Key, rows: Rows) -> None:
        """Takes points of a series of scalars."""
        if self._is_ordered:
            self.series.setdefault(key, Series()).add_rows(rows)
        else:
            _take_each(self, key, rows)


class PointLists:
    """The points of a few series; whether their order counts is `is_ordered`."""

    def __init__(self, keys: set[Key], *, is_ordered: bool = True) -> None:
        self._lists: dict[Key, list[SeriesPoint]] = {key: [] for key in keys}
        self._is_ordered = is_ordered

    def take(self, key: Key, step: int, wall_time: float, fingerprint: bytes | None) -> None:
        """Takes one point."""
        points = self._lists.get(key)
        if points is not None:
            points.append(SeriesPoint(step, wall_time, fingerprint))

    def take_rows(self, key: Key, rows: Rows) -> None:
        """Takes points of a series of scalars."""
        if key in self._lists:
            _take_each(self, key, rows)

    def of(self, key: Key) -> list[SeriesPoint]:
        """Returns the points of a series in their order, or in one order for all sides."""
        points = self._lists[key]
        if self._is_ordered:
            return points
        return sorted(points, key=lambda point: (point.step, point.wall_time, point.fingerprint or b""))


def first_difference(key: Key, list_a: list[SeriesPoint], list_b: list[SeriesPoint]) -> str:
    """Says at which point two lists differ, and how."""
    for index, (one, other) in enumerate(zip(list_a, list_b, strict=False)):
        if one != other and None not in (one.fingerprint, other.fingerprint):
            return f"point {index}: {_how(key, one, other)}"
    if len(list_a) == len(list_b):
        return "values differ"
    longer, side = (list_a, "A") if len(list_a) > len(list_b) else (list_b, "B")
    return f"from step {longer[min(len(list_a), len(list_b))].step} on only in {side}"


def _how(key: Key, one: SeriesPoint, other: SeriesPoint) -> str:
    if one.step != other.step:
        return f"step {one.step} in A, {other.step} in B"
    if one.wall_time != other.wall_time:
        return f"step {one.step}: wall_time {one.wall_time!r} in A, {other.wall_time!r} in B"
    if key[0] == "scalar" and not key[2] and one.fingerprint and other.fingerprint:
        return f"step {one.step}: value {_number(one.fingerprint)} in A, {_number(other.fingerprint)} in B"
    return f"step {one.step}: the values differ"


def _number(fingerprint: bytes) -> str:
    (number,) = struct.unpack("<f" if len(fingerprint) == 4 else "<d", fingerprint)
    return f"{number!r} (bits {fingerprint[::-1].hex()})"
