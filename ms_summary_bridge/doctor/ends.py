"""Heads and tails of files, whatever their sizes, and how much was read of them."""

from __future__ import annotations

from typing import Final

from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import HEADER_BYTES, Damage, Incomplete, Padding, Piece, Record
from ms_summary_bridge.files.system import open_regular

__all__ = ["HEAD_BYTES", "TAIL_BYTES", "EndReader"]

HEAD_BYTES: Final = 1 << 16
TAIL_BYTES: Final = 1 << 16


class EndReader:
    """Reads parts of files; `bytes_read` counts them."""

    def __init__(self) -> None:
        self.bytes_read = 0

    def read(self, path: str, start: int, count: int) -> bytes:
        """Returns a part of a file.

        Raises:
            OSError: It cannot be read.
        """
        with open(path, "rb", buffering=0, opener=open_regular) as file:
            file.seek(start)
            data = file.read(count) or b""
        self.bytes_read += len(data)
        return data

    def read_ends(self, path: str, size: int) -> list[Piece]:
        """Returns the records at a file's head and tail, and what is wrong there as far as that is certain.

        Raises:
            OSError: It cannot be read.
        """
        if size <= HEAD_BYTES + TAIL_BYTES:
            return _pieces(self.read(path, 0, size), 0)
        head = self.read(path, 0, HEAD_BYTES)
        decoder = RecordDecoder()
        pieces: list[Piece] = [*decoder.feed(head)]
        if not pieces and decoder.wanted > size:
            return [Incomplete(0, size)]
        if not pieces and decoder.wanted <= HEAD_BYTES + HEADER_BYTES:  # a search that has found nothing
            pieces.append(Damage(0, HEAD_BYTES, "no whole record") if head.strip(b"\0") else Padding(0, HEAD_BYTES))
        tail = _pieces(self.read(path, size - TAIL_BYTES, TAIL_BYTES), size - TAIL_BYTES)
        # It begins inside a record, most likely; without a whole one behind that nothing can be said.
        if any(isinstance(piece, Record) for piece in tail):
            pieces += tail if isinstance(tail[0], Record) else tail[1:]
        elif tail and isinstance(tail[-1], Padding):
            pieces.append(tail[-1])
        return pieces


def _pieces(data: bytes, offset: int) -> list[Piece]:
    decoder = RecordDecoder(offset)
    return [*decoder.feed(data), *decoder.finish()]
