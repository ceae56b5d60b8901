"""Records: the framing that MindSpore summary files and TensorBoard event files share.

No I/O: bytes in, records out, and back.

A record on disk, all numbers little-endian::

    uint64 length | uint32 masked crc32c(length) | payload | uint32 masked crc32c(payload)

Source: TFRecord as TensorFlow writes it
(https://www.tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details"); MindSpore's summary
writer uses the same framing, both checksums included, as measured on files of MindSpore 2.7 to 2.10. The
checksum mask comes from LevelDB: a checksum of data that itself holds checksums would be weak.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import msgspec
from crc32c import crc32c

from ms_summary_bridge.errors import (
    DataChecksumError,
    LengthChecksumError,
    RecordTooLargeError,
    TruncatedRecordError,
)

__all__ = [
    "FOOTER_BYTES",
    "HEADER_BYTES",
    "LARGE_BYTES",
    "MAX_RECORD_BYTES",
    "Damage",
    "Incomplete",
    "Padding",
    "Piece",
    "Record",
    "decode_record",
    "encode_record",
    "frame",
    "make_header",
    "mask_crc",
    "masked_crc",
    "too_large",
]

_HEADER: Final = struct.Struct("<QI")  # length of the payload, masked crc32c of these eight bytes
_FOOTER: Final = struct.Struct("<I")  # masked crc32c of the payload
_LENGTH: Final = struct.Struct("<Q")
HEADER_BYTES: Final = _HEADER.size
FOOTER_BYTES: Final = _FOOTER.size

MAX_RECORD_BYTES: Final = 1 << 30
"""Longest payload taken for real. protobuf could hold twice that, but all of a record is read into memory."""

LARGE_BYTES: Final = 1 << 16
"""Payloads from this length on are read and written each by itself, without a copy."""

_MASK_DELTA: Final = 0xA282EAD8
_HEADER_CACHE_SIZE: Final = 4096


class Record(msgspec.Struct, frozen=True, gc=False):
    """One whole record whose checksums both hold."""

    offset: int
    """Position of the record's first byte in its file."""
    payload: bytes
    """What the record carries: the bytes of one event message."""

    @property
    def end(self) -> int:
        """Position of the first byte after the record."""
        return self.offset + HEADER_BYTES + len(self.payload) + FOOTER_BYTES


class Damage(msgspec.Struct, frozen=True, gc=False):
    """A range of bytes that holds no whole record. What stood there is lost; reading goes on at `end`."""

    start: int
    end: int
    reason: str


class Padding(msgspec.Struct, frozen=True, gc=False):
    """A range of zero bytes between or behind records. Nothing is lost."""

    start: int
    end: int


class Incomplete(msgspec.Struct, frozen=True, gc=False):
    """The bytes end inside a record: a live or killed writer. Reading may go on at `offset` once more arrive."""

    offset: int
    available: int
    """Bytes of the record that are there."""


Piece: TypeAlias = Record | Damage | Padding | Incomplete


def masked_crc(data: bytes) -> int:
    """Returns the masked crc32c of `data`, an unsigned 32-bit number, as both file formats store it."""
    return mask_crc(crc32c(data))


def mask_crc(crc: int) -> int:
    """Returns a crc32c as both file formats store it."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def make_header(length: int) -> bytes:
    """Returns the header of a record whose payload has this length."""
    head = _LENGTH.pack(length)
    return head + _FOOTER.pack(masked_crc(head))


# Headers repeat: most records of a run have one of a few lengths.
_made_headers: dict[int, bytes] = {}


def encode_record(payload: bytes, checksum: int | None = None) -> bytes:
    """Returns the record of one event message's bytes: header, payload, footer; their CRC-32C may be given.

    Raises:
        RecordTooLargeError: The payload is longer than any reader would take.
    """
    return b"".join(frame(payload, checksum))


def frame(payload: bytes, checksum: int | None = None) -> tuple[bytes, bytes, bytes]:
    """Returns the parts of that record; raises as `encode_record`."""
    length = len(payload)
    header = _made_headers.get(length)
    if header is None:
        if length > MAX_RECORD_BYTES:
            raise RecordTooLargeError(f"payload of {length} bytes is above the limit of {MAX_RECORD_BYTES}")
        header = make_header(length)
        if len(_made_headers) < _HEADER_CACHE_SIZE:
            _made_headers[length] = header
    crc = crc32c(payload) if checksum is None else checksum
    return header, payload, ((((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF).to_bytes(4, "little")


def decode_record(data: bytes, *, path: str = "", offset: int = 0) -> Record:
    """Takes the record that `data` begins with; for callers who hold exactly one record and want an error.

    Args:
        data: Bytes from the first byte of a record on; bytes after the record are not looked at.
        path: File name for messages.
        offset: Position of `data` in that file, for messages and for the result.

    Raises:
        TruncatedRecordError: `data` ends inside the record.
        LengthChecksumError: The length fails its checksum.
        RecordTooLargeError: The length is above `MAX_RECORD_BYTES`.
        DataChecksumError: The payload fails its checksum.
    """
    if len(data) < HEADER_BYTES:
        raise TruncatedRecordError(f"{len(data)} of {HEADER_BYTES} header bytes", path=path, offset=offset)
    length, got = _HEADER.unpack_from(data)
    want = masked_crc(data[:8])
    if got != want:
        raise LengthChecksumError(f"length checksum: want {want:#010x}, got {got:#010x}", path=path, offset=offset)
    if length > MAX_RECORD_BYTES:
        raise RecordTooLargeError(too_large(length, MAX_RECORD_BYTES), path=path, offset=offset)
    end = HEADER_BYTES + length
    if len(data) < end + FOOTER_BYTES:
        raise TruncatedRecordError(f"{len(data)} of {end + FOOTER_BYTES} bytes", path=path, offset=offset)
    payload = data[HEADER_BYTES:end]
    (got,) = _FOOTER.unpack_from(data, end)
    want = masked_crc(payload)
    if got != want:
        raise DataChecksumError(f"data checksum: want {want:#010x}, got {got:#010x}", path=path, offset=offset)
    return Record(offset, bytes(payload))


def too_large(length: int, limit: int) -> str:
    """Says that a declared length is above a limit."""
    return f"a record of {length} bytes is above the limit of {limit} bytes"
