"""The records of a chunk, found at once.

A record of less than 64 KiB has a length whose upper six bytes are zero, so the places with six such bytes are
candidates; those whose header has the right checksum and which the lengths lead to, one after the other from the
first byte on, are the records. Whatever breaks this chain ends it there, and is left to `files.records`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ms_summary_bridge.batches.checksums import header_checksums, mask
from ms_summary_bridge.files.records import FOOTER_BYTES, HEADER_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

    _Positions = npt.NDArray[np.int64]

__all__ = ["find_chain", "unaligned"]

_FRAME_BYTES: Final = HEADER_BYTES + FOOTER_BYTES
_MAX_JUMPS: Final = 1000  # false candidates passed over in one chunk


def unaligned(data: bytes | bytearray, dtype: str) -> npt.NDArray[Any]:
    """Returns a view in which the element at index i begins at byte i."""
    size = np.dtype(dtype).itemsize
    return np.ndarray((max(len(data) - size + 1, 0),), dtype, data, 0, (1,))


def find_chain(data: bytes) -> tuple[_Positions, _Positions]:
    """Returns where the whole records at the beginning of `data` stand, and the lengths of their payloads.

    Their headers are verified, their payloads are not.
    """
    none = np.empty(0, np.int64)
    if len(data) < _FRAME_BYTES:
        return none, none
    zero = np.frombuffer(data, np.uint8) == 0
    two = zero[2:-1] & zero[3:]
    four = two[:-2] & two[2:]
    six = four[:-2] & two[4:]
    starts = np.flatnonzero(six[: len(data) - _FRAME_BYTES + 1])
    lengths = unaligned(data, "<u2")[starts]
    low, high = (lengths & np.uint16(0xFF)).astype(np.uint8), (lengths >> np.uint16(8)).astype(np.uint8)
    is_header = unaligned(data, "<u4")[starts + 8] == mask(header_checksums(low, high))
    starts, lengths = starts[is_header], lengths[is_header].astype(np.int64)
    starts, lengths = _linked(starts, lengths)
    if len(starts) and starts[-1] + lengths[-1] + _FRAME_BYTES > len(data):
        return starts[:-1], lengths[:-1]
    return starts, lengths


def _linked(starts: _Positions, lengths: _Positions) -> tuple[_Positions, _Positions]:
    """Returns those of the candidates that the lengths lead to from byte 0 on."""
    none = np.empty(0, np.int64)
    if not len(starts) or starts[0]:
        return none, none
    keep: list[slice] = []
    first = 0
    ends = starts + lengths + _FRAME_BYTES
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    for _ in range(_MAX_JUMPS):
        at = np.searchsorted(breaks, first + 1)
        last = int(breaks[at]) if at < len(breaks) else len(starts)
        keep.append(slice(first, last))
        if last == len(starts):
            break
        following = int(np.searchsorted(starts, ends[last - 1]))
        if following == len(starts) or starts[following] != ends[last - 1]:
            break
        first = following
    if len(keep) == 1:
        return starts[keep[0]], lengths[keep[0]]
    return np.concatenate([starts[part] for part in keep]), np.concatenate([lengths[part] for part in keep])
