"""Values: what a tag carries at a step, free of any file format.

No protobuf, no paths, no I/O.

All values are immutable: arrays are made read-only, and equality is by content, bit for bit where it matters
(two NaN are equal when their bits are).
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Any, ClassVar, TypeAlias

import msgspec
import numpy as np

from ms_summary_bridge.errors import InvalidValueError

__all__ = ["KINDS", "Histogram", "Image", "Opaque", "Scalar", "Tensor", "Value"]

_FLOAT32 = struct.Struct("<f")
_FLOAT64 = struct.Struct("<d")

# Texts, evaluated by who asks for a signature (`help`): numpy is loaded when the first array comes, see `live_writer`.
_Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
_FloatsOrNone: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]] | None"
_Numbers: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"


class Scalar(msgspec.Struct, frozen=True, gc=False):
    """One number, kept as the bits it was stored with.

    A NaN carries a payload that is lost when a float32 passes through a Python float, so the bits stay bytes
    until somebody asks for `value`.
    """

    bits: bytes
    """IEEE 754, little-endian: 4 bytes for a float32, 8 bytes for a float64."""

    kind: ClassVar[str] = "scalar"

    def __post_init__(self) -> None:
        if len(self.bits) not in (4, 8):
            raise InvalidValueError(f"a scalar has 4 or 8 bytes, got {len(self.bits)}")

    @classmethod
    def from_float32(cls, value: float) -> Scalar:
        """Returns `value` rounded to float32; beyond float32's range it becomes an infinity."""
        try:
            return cls(_FLOAT32.pack(value))
        except OverflowError:
            return cls(_FLOAT32.pack(math.copysign(math.inf, value)))

    @classmethod
    def from_float64(cls, value: float) -> Scalar:
        """Returns `value` as a float64."""
        return cls(_FLOAT64.pack(value))

    @property
    def value(self) -> float:
        """The number as a Python float. The payload of a float32 NaN does not survive this."""
        bits = self.bits
        return float((_FLOAT32 if len(bits) == 4 else _FLOAT64).unpack(bits)[0])

    @property
    def is_float32(self) -> bool:
        """Whether the number was stored with 32 bits."""
        return len(self.bits) == 4

    def to_float32(self) -> tuple[bytes, bool]:
        """Returns the 4 bytes of the nearest float32, and whether that is exactly the same number."""
        bits = self.bits
        if len(bits) == 4:
            return bits, True
        value = _FLOAT64.unpack(bits)[0]
        if value != value:  # keep sign and the upper payload bits; the quiet bit is always set
            raw = int.from_bytes(bits, "little")
            mantissa = (raw >> 29) & 0x7FFFFF
            narrow = (raw >> 63) << 31 | 0x7F800000 | mantissa | 0x400000
            return narrow.to_bytes(4, "little"), not raw & 0x1FFFFFFF and bool(mantissa & 0x400000)
        narrow_bits = Scalar.from_float32(value).bits
        return narrow_bits, _FLOAT32.unpack(narrow_bits)[0] == value

    def fingerprint(self) -> bytes:
        """Bytes that are equal exactly when two scalars hold the same number, whatever width they were stored with."""
        narrow, is_exact = self.to_float32()
        return narrow if is_exact else self.bits


class Histogram(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Counts over buckets, with the statistics a format keeps beside them.

    Buckets are half-open intervals, the last one closed, usually ascending and touching. Gaps, overlaps and zero
    widths occur in real files and are kept.
    """

    left: _Floats
    """`[k]` lower edges."""
    right: _Floats
    """`[k]` upper edges."""
    count: _Numbers
    """`[k]` how many values fell into each bucket: int64, or float64 where a format stores weights."""
    width: _FloatsOrNone = None
    """`[k]` widths as stored, where the format stores them; None means `right - left`."""
    min: float | None = None
    """Smallest finite value; None where the format does not say."""
    max: float | None = None
    """Largest finite value; None where the format does not say."""
    sum: float | None = None
    """Sum of the finite values; None where the format does not say."""
    sum_squares: float | None = None
    """Sum of their squares; None where the format does not say."""
    total: int | float | None = None
    """Number of values as stored, not finite ones included; None where the format does not say."""
    nan_count: int = 0
    pos_inf_count: int = 0
    neg_inf_count: int = 0

    kind: ClassVar[str] = "histogram"

    def __post_init__(self) -> None:
        size = self.left.shape
        if len(size) != 1 or self.right.shape != size or self.count.shape != size:
            raise InvalidValueError("left, right and count of a histogram are vectors of one length")
        if self.width is not None and self.width.shape != size:
            raise InvalidValueError("width has another length than the buckets")
        for array in (self.left, self.right, self.count, self.width):
            if array is not None:
                array.setflags(write=False)

    @property
    def widths(self) -> _Floats:
        """`[k]` float64 widths: as stored, else computed."""
        if self.width is not None:
            return self.width
        with np.errstate(invalid="ignore", over="ignore"):  # edges may be infinite
            return self.right - self.left

    def fingerprint(self) -> bytes:
        """16 bytes that differ when edges, widths, counts or any stored statistic differ."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.left, self.right, self.widths, self.count.astype(np.float64)):
            digest.update(array.tobytes())
        for number in (self.min, self.max, self.sum, self.sum_squares, self.total):
            digest.update(b"-" if number is None else _FLOAT64.pack(number))
        digest.update(b"%d %d %d" % (self.nan_count, self.pos_inf_count, self.neg_inf_count))
        return digest.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.fingerprint() == other.fingerprint()

    __hash__ = None  # type: ignore[assignment]


class Image(msgspec.Struct, frozen=True, gc=False):
    """One image, or a batch of images under one tag, as encoded files (PNG, JPEG, GIF, ...)."""

    height: int
    """Pixels, as the format's own field says; the encoded bytes decide when they differ."""
    width: int
    """Pixels, as the format's own field says."""
    colorspace: int
    """1 grey, 2 grey and alpha, 3 RGB, 4 RGBA; 0 where the format does not say."""
    encoded: tuple[bytes, ...]
    """The file of each image, untouched."""

    kind: ClassVar[str] = "image"

    def fingerprint(self) -> bytes:
        """16 bytes that differ when a size field or a byte of an image differs."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.height, self.width, self.colorspace, [len(e) for e in self.encoded])).encode())
        for encoded in self.encoded:
            digest.update(encoded)
        return digest.digest()


class Tensor(msgspec.Struct, frozen=True, eq=False):
    """An array of numbers."""

    array: _Numbers
    """The elements in their shape, in the dtype they are stored with (MindSpore stores float32 for every dtype)."""
    dtype: str
    """The dtype the writer declared (`int64`, `bfloat16`, ...), which `array` need not have."""

    kind: ClassVar[str] = "tensor"

    def __post_init__(self) -> None:
        self.array.setflags(write=False)

    def fingerprint(self) -> bytes:
        """16 bytes that differ when shape, declared dtype, stored dtype or an element's bits differ."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.array.shape, self.array.dtype.str, self.dtype)).encode())
        digest.update(np.ascontiguousarray(self.array).tobytes())
        return digest.digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.fingerprint() == other.fingerprint()

    __hash__ = None  # type: ignore[assignment]


class Opaque(msgspec.Struct, frozen=True, gc=False):
    """Something that is carried but not interpreted, so that nothing vanishes unseen."""

    kind: str
    """What it is called where it comes from: `graph`, `text`, the name of a plugin, ..."""
    payload: bytes
    """Its own bytes: a whole event's payload, or one value's message."""
    reason: str = ""
    """Why it is not interpreted, where that is a fault of the data rather than of its kind."""

    def fingerprint(self) -> bytes:
        """16 bytes that differ when a byte differs."""
        return hashlib.blake2b(self.payload, digest_size=16).digest()


Value: TypeAlias = Scalar | Histogram | Image | Tensor | Opaque

KINDS: tuple[type[Scalar | Histogram | Image | Tensor], ...] = (Scalar, Histogram, Image, Tensor)
"""The kinds every codec decodes and encodes."""
