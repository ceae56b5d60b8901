"""The archive: what a target format cannot hold exactly, kept as its original record beside the output.

Layer: events, formats, event_file < **archive**.

An archive is a file of records in the *source's* format, opened by a version event of the source. Neither viewer loads
it: its name holds neither `tfevents` nor `summary.<digits>`. Lineage records have field numbers of their own and so get
an archive of their own. Converting back, and `verify`, read it in the output's place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.event_file import EventFileReader, RecordWriter
from ms_summary_bridge.events import Decoder, Encoder, Event, FileVersion
from ms_summary_bridge.formats import mindspore, tensorboard
from ms_summary_bridge.records import Damage, Incomplete, Padding

__all__ = [
    "LINEAGE",
    "ArchiveWriter",
    "archive_name",
    "archive_sources",
    "make_decoder",
    "make_encoder",
    "read_archive",
]

LINEAGE: Final = "mindspore_lineage"
"""Name of the format of lineage files: MindSpore's framing, other event fields."""

_DECODERS: Final = (mindspore.FORMAT, LINEAGE, tensorboard.FORMAT)


def archive_name(source: str) -> str:
    """Returns the file name of the archive for records of one source format."""
    return f"ms_summary_bridge.{source}.archive"


def archive_sources(directory: str) -> list[str]:
    """Returns the source formats for which `directory` holds an archive."""
    return [source for source in _DECODERS if os.path.isfile(os.path.join(directory, archive_name(source)))]


def make_decoder(source: str) -> Decoder:
    """Returns a fresh decoder for `mindspore`, `mindspore_lineage` or `tensorboard`."""
    if source == tensorboard.FORMAT:
        return tensorboard.TensorBoardDecoder()
    if source in _DECODERS:
        return mindspore.MindSporeDecoder(is_lineage=source == LINEAGE)
    raise UsageError(f"no such format: {source!r}")


def make_encoder(target: str) -> Encoder:
    """Returns a fresh encoder for the same names as `make_decoder`."""
    return tensorboard.TensorBoardEncoder() if target == tensorboard.FORMAT else mindspore.MindSporeEncoder()


class ArchiveWriter:
    """Writes one archive; the file is made when the first event comes.

    Args:
        directory: Where the output of the run lies.
        source: Format of the events.
        offset: Where an earlier session ended; 0 for a new archive.
        is_dry: Count, but write nothing.
    """

    def __init__(self, directory: str, source: str, *, offset: int = 0, is_dry: bool = False) -> None:
        self.path = os.path.join(directory, archive_name(source))
        self._encoder = make_encoder(source)
        self._source = source
        self._start = offset
        self._is_dry = is_dry
        self._writer: RecordWriter | None = None

    @property
    def offset(self) -> int:
        """Position after the last record."""
        return self._writer.offset if self._writer else self._start

    def write(self, event: Event) -> None:
        """Adds one event of the source format; it is encoded back to an equal message.

        Raises:
            LogdirError: The file cannot be written, or holds something else.
        """
        if self._is_dry:
            return
        if self._writer is None:
            resumes = self._start or Path(self.path).exists()
            self._writer = RecordWriter(self.path, offset=self._start if resumes else None)
            if not self._start:
                self._put(Event(event.wall_time, 0, FileVersion(""), "", None))
        self._put(event)

    def _put(self, event: Event) -> None:
        payload = self._encoder.encode(event).payload
        assert payload is not None  # same format: there is a place for everything
        assert self._writer is not None
        self._writer.write(payload)

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flushes and closes; may be called again."""
        if self._writer is not None:
            self._writer.close()


def read_archive(directory: str, source: str) -> Iterator[Event | Damage | Padding | Incomplete]:
    """Yields the events of one archive, without its version event, and what is wrong with the file."""
    for item in EventFileReader(os.path.join(directory, archive_name(source)), make_decoder(source)):
        if not (isinstance(item, Event) and isinstance(item.content, FileVersion)):
            yield item
