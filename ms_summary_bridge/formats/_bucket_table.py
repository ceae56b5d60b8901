"""All buckets of one of MindSpore's histograms at once.

An optimiser: `formats._histogram` has the general way, with the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["read_buckets"]

# What `read_buckets` knows of a bucket from its length, 19 bytes and those of its count: 0xff in each byte of the
# count, and the high bits that say that another byte follows. A length that is not expected gets bits that cannot be.
_ROOM: Final = 29  # bytes of a bucket whose count has eight, the most that is expected
_COUNT_BYTES: Final = np.zeros(256, np.uint64)
_COUNT_FOLLOWS: Final = np.ones(256, np.uint64)
_WHOLE_SIZES: Final = np.arange(256) + 2  # with key and length
for _size in range(1, 9):
    _COUNT_BYTES[19 + _size] = (1 << 8 * _size) - 1
    _COUNT_FOLLOWS[19 + _size] = 0x8080808080808080 & (1 << 8 * (_size - 1)) - 1
# Operands as arrays: numpy takes as long to turn a Python number into one as to compare the bytes of a histogram.
_KEY, _LEFT_KEY, _WIDTH_KEY, _COUNT_KEY = np.array([[0x0A], [0x09], [0x11], [0x18]], np.uint8)
_HIGH_BITS: Final = np.array(0x8080808080808080, np.uint64)
_LOW_BITS: Final = np.array(0x7F, np.uint8)
_PLACE_VALUES: Final = 128 ** np.arange(8, dtype=np.int64)


def read_buckets(
    data: bytes, start: int, end: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.int64], int]:
    """Reads the buckets that a histogram begins with, all at once, if they lie there as every known writer lays them.

    A histogram has up to 90 buckets, and taking them apart one by one is most of the work. Their size differs only by
    the bytes of the count, so each place where the four keys stand at the right distances is taken for a bucket; they
    are buckets indeed if each begins where the one before it ends.

    Returns:
        Left edges, widths, counts, and the position after them; none and `start` where anything is unusual, which is
        then decoded field by field, with the same result.
    """
    places = end - start - _ROOM + 1
    if places > 0:
        raw = np.frombuffer(data, np.uint8, end - start, start)
        has_keys = (raw[:places] == _KEY) & (raw[2 : places + 2] == _LEFT_KEY)
        has_keys &= (raw[11 : places + 11] == _WIDTH_KEY) & (raw[20 : places + 20] == _COUNT_KEY)
        at = has_keys.nonzero()[0]
        if at.size and at[0] == 0:
            lengths = raw[1:][at]
            # Views of a number at every byte, from which those of the buckets are taken.
            words = np.ndarray((places,), "<u8", data, start + 21, (1,))[at] & _COUNT_BYTES[lengths]
            after = at + _WHOLE_SIZES[lengths]
            # Arrays of this size are compared fastest as bytes.
            if (
                after[:-1].tobytes() == at[1:].tobytes()
                and (words & _HIGH_BITS).tobytes() == _COUNT_FOLLOWS[lengths].tobytes()
            ):
                left = np.ndarray((places,), "<f8", data, start + 3, (1,))[at]
                width = np.ndarray((places,), "<f8", data, start + 12, (1,))[at]
                count = (words.view(np.uint8).reshape(-1, 8) & _LOW_BITS) @ _PLACE_VALUES
                return left, width, count, start + int(after[-1])
    return np.empty(0), np.empty(0), np.empty(0, np.int64), start
