"""CRC-32C of many rows at once, by columns.

CRC-32C is linear over XOR: a row's checksum is that of the same row with zeros in some columns, XORed with what the
byte in each of these columns adds, and that depends on the byte and on how many bytes follow it alone. So rows which
differ in few columns cost one table look-up for each of these.

Source: RFC 3720, appendix B.4, gives the polynomial (0x1EDC6F41, reflected 0x82F63B78).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from crc32c import crc32c

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["add_columns", "header_checksums", "mask", "unmask"]

_REFLECTED: Final = 0x82F63B78
_MASK_DELTA: Final = np.uint32(0xA282EAD8)

_U32: Final = np.uint32


def _first_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=_U32)
    for _ in range(8):
        table = np.where(table & _U32(1), (table >> _U32(1)) ^ _U32(_REFLECTED), table >> _U32(1))
    return table


_NO_LENGTH: Final = _U32(crc32c(bytes(8)))
_tables: list[npt.NDArray[np.uint32]] = [_first_table()]


def _table(following: int) -> npt.NDArray[np.uint32]:
    """Returns what each value of a byte adds to the checksum of a row in which so many bytes follow it."""
    first = _tables[0]
    while len(_tables) <= following:
        last = _tables[-1]
        _tables.append((last >> _U32(8)) ^ first[last & _U32(0xFF)])
    return _tables[following]


def add_columns(
    checksum: int, rows: npt.NDArray[np.uint8], columns: tuple[int, ...], width: int
) -> npt.NDArray[np.uint32]:
    """Returns the checksums of rows.

    Args:
        checksum: That of a row with the bytes all rows share, and zeros in `columns`.
        rows: uint8 of shape [rows, at least width].
        columns: Those in which the rows may differ.
        width: Bytes of a row that are checksummed.
    """
    out = np.full(len(rows), checksum, _U32)
    if not len(rows):
        return out
    varying = rows.T[list(columns)]
    are_equal = (varying == varying[:, :1]).all(axis=1).tolist()
    for column, values, is_equal in zip(columns, varying, are_equal, strict=True):
        table = _table(width - 1 - column)
        # "wrap": a byte is never out of range, so that nobody need look whether it is.
        out ^= table[values[0]] if is_equal else table.take(values, mode="wrap")
    return out


def header_checksums(low: npt.NDArray[np.uint8], high: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Returns the checksums of the eight bytes of lengths below 64 KiB, given their two lower bytes."""
    return _NO_LENGTH ^ _table(7)[low] ^ _table(6)[high]


def mask(checksums: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Returns checksums as both file formats store them; see `files.records`."""
    return ((checksums >> _U32(15)) | (checksums << _U32(17))) + _MASK_DELTA


def unmask(stored: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Returns the checksums that are stored so."""
    turned = stored - _MASK_DELTA
    return (turned >> _U32(17)) | (turned << _U32(15))
