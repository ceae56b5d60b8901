"""Shapes: what the payload of an event with scalars alone looks like, but for its wall time, step and floats.

The general decoder takes the first payload of a shape apart. Where what it found, put together in the canonical order,
is that very payload, each later one with the same bytes around the varying ones says the same but for these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from crc32c import crc32c

from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.formats import wire
from ms_summary_bridge.values import Scalar

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Form", "Shape", "Shapes"]

_HEAD: Final = 10  # key and float64 of the wall time, key of the step
_MAX_STEP_BYTES: Final = 9
_MAX_BYTES: Final = 4096
_MAX_SHAPES: Final = 512
_MAX_SCALARS: Final = 64


class Shape(msgspec.Struct, frozen=True, eq=False):
    """Events of the same scalars in the same order.

    Attributes:
        number: Its place in its `Shapes`.
        tags: Tag of each scalar.
        tail: The payload behind the step, with zeros for the floats.
        floats: Where each float begins in `tail`.
        written: The same tail in the target format; None where nothing is written, or it is to be written otherwise.
    """

    number: int
    tags: tuple[str, ...]
    tail: bytes
    floats: tuple[int, ...]
    written: bytes | None


class Form(msgspec.Struct, frozen=True, eq=False):
    """A shape whose step takes a number of bytes: every payload of it has one length.

    Attributes:
        shape: The shape.
        step_bytes: Bytes of the step.
        length: Bytes of the payload.
        fixed: Bits that all payloads share, as uint64 words; the last word is filled with bits that nobody shares.
        words: What these bits are.
        varying: Columns in which payloads differ.
        checksum: CRC-32C of a payload with zeros in these.
        changes: Column and byte to XOR with for each byte that the target format writes otherwise.
        checksum_change: What the checksum is to be XORed with for these.
    """

    shape: Shape
    step_bytes: int
    length: int
    fixed: npt.NDArray[np.uint64]
    words: npt.NDArray[np.uint64]
    varying: tuple[int, ...]
    checksum: int
    changes: tuple[tuple[int, int], ...]
    checksum_change: int


class Shapes:
    """The shapes met in one run.

    Args:
        float_key: Key of the float in a value of the source's format.
    """

    def __init__(self, float_key: bytes) -> None:
        self._float_key = float_key
        self._tails: dict[bytes, Shape | None] = {}
        self._forms: dict[int, list[Form]] = {}
        self.shapes: list[Shape] = []

    def knows(self, payload: bytes, event: Event) -> bool:
        """Whether an event's shape has been learned, or found to be none."""
        tail = self._tail_of(payload, event)
        return tail is None or tail[0] in self._tails

    def learn(self, payload: bytes, event: Event, written: bytes | None) -> bool:
        """Remembers the shape of an event that went the general way; returns whether it is one.

        Args:
            payload: Its bytes in the source.
            event: What they say.
            written: The payload that was written for it, whole and without loss; None for none.
        """
        found = self._tail_of(payload, event)
        if found is None:
            return False
        tail, floats = found
        if tail in self._tails:
            return self._tails[tail] is not None
        if len(self._tails) >= _MAX_SHAPES:
            return False
        self._tails[tail] = None
        if written is not None:
            start = len(payload) - len(tail)
            if len(written) != len(payload) or written[:start] != payload[:start]:
                return False
            keys = {start + at - 1 for at in floats}
            if any(a != b and at not in keys for at, (a, b) in enumerate(zip(payload, written, strict=True))):
                return False
            written = _without(written[start:], floats)
        content = event.content
        assert isinstance(content, Summary)
        tags = tuple(tagged.tag for tagged in content.values)
        shape = self._tails[tail] = Shape(len(self.shapes), tags, tail, floats, written)
        self.shapes.append(shape)
        for step_bytes in range(1, _MAX_STEP_BYTES + 1):
            form = _make_form(shape, step_bytes)
            self._forms.setdefault(form.length, []).append(form)
        return True

    def forms(self, length: int) -> list[Form]:
        """Returns the forms whose payloads have this length."""
        return self._forms.get(length, [])

    def _tail_of(self, payload: bytes, event: Event) -> tuple[bytes, tuple[int, ...]] | None:
        """Returns what a payload holds behind its step, without its floats, and where these stand."""
        content = event.content
        if (
            len(payload) > _MAX_BYTES
            or event.original is not None
            or event.is_lineage
            or event.by_user
            or type(content) is not Summary
        ):
            return None
        if not 0 < len(content.values) <= _MAX_SCALARS or not 0 < event.step < 1 << 63:
            return None
        ends: list[int] = []
        body = b""
        for tagged in content.values:
            value = tagged.value
            if type(value) is not Scalar or len(value.bits) != 4 or tagged.original is not None or tagged.derived:
                return None
            tag = wire.length_delimited(b"\x0a", tagged.tag.encode("utf-8", "surrogateescape"))
            body += wire.length_delimited(b"\x0a", tag + self._float_key + value.bits)
            ends.append(len(body))
        if len({tagged.tag for tagged in content.values}) != len(content.values):
            return None
        tail = wire.length_delimited(b"\x2a", body)
        head = b"\x09" + wire.FLOAT64.pack(event.wall_time) + b"\x10" + wire.varint(event.step)
        if payload != head + tail:
            return None
        before = len(tail) - len(body)
        floats = tuple(before + end - 4 for end in ends)
        return _without(tail, floats), floats


def _without(tail: bytes, floats: tuple[int, ...]) -> bytes:
    out = bytearray(tail)
    for at in floats:
        out[at : at + 4] = bytes(4)
    return bytes(out)


def _make_form(shape: Shape, step_bytes: int) -> Form:
    start = _HEAD + step_bytes
    length = start + len(shape.tail)
    template = b"\x09" + bytes(8) + b"\x10" + b"\x80" * (step_bytes - 1) + b"\x00" + shape.tail
    fixed = bytearray(b"\xff" * length)
    fixed[1:9] = bytes(8)
    fixed[_HEAD:start] = b"\x80" * step_bytes
    varying = [*range(1, 9), *range(_HEAD, start)]
    for at in shape.floats:
        fixed[start + at : start + at + 4] = bytes(4)
        varying += range(start + at, start + at + 4)
    without_steps = template[:_HEAD] + bytes(step_bytes) + shape.tail
    changes: list[tuple[int, int]] = []
    if shape.written is not None:
        changes = [
            (start + at, a ^ b) for at, (a, b) in enumerate(zip(shape.tail, shape.written, strict=True)) if a != b
        ]
    changed = bytearray(length)
    for at, bits in changes:
        changed[at] = bits
    filled = -length % 8
    return Form(
        shape,
        step_bytes,
        length,
        np.frombuffer(bytes(fixed) + bytes(filled), "<u8"),
        np.frombuffer(template + bytes(filled), "<u8"),
        tuple(varying),
        crc32c(without_steps),
        tuple(changes),
        crc32c(bytes(changed)) ^ crc32c(bytes(length)),
    )
