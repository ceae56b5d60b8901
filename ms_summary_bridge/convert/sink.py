"""What the outputs of both formats have in common: a chain of files, the archive, names and places."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from crc32c import crc32c

from ms_summary_bridge.convert.batches import JudgedBatch
from ms_summary_bridge.convert.outputs import DryWriter, Outputs
from ms_summary_bridge.convert.state import OutputState, RunState
from ms_summary_bridge.events import Encoded, Encoder, Event, SessionLog
from ms_summary_bridge.files.file_names import parse_name
from ms_summary_bridge.files.record_writer import RecordWriter
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.files.system import allowed_name
from ms_summary_bridge.formats.plugin_data import WRITER_CONVERT
from ms_summary_bridge.formats.tag_names import TagNames
from ms_summary_bridge.runs.archive import START, ArchiveWriter, PlaceCounter, source_of
from ms_summary_bridge.runs.report import LossCounter

__all__ = ["MAX_SECONDS", "RunSink"]

MAX_SECONDS: Final = 9_999_999_999
"""Latest time in a name, with room below 12 digits for files that each have to be later than the one before."""
_HOST_BYTES: Final = 150  # a file name has 255
_MISLEADING: Final = re.compile(r"tfevents|summary\.(?=[0-9])")


class RunSink(ABC):
    """A sink for the events of one run.

    Args:
        outputs: Where the files go.
        host: Part of their names; the source's host, so that names do not depend on where the conversion runs.
        state: What an earlier conversion left here; `close` brings it up to date.
        losses: Where losses are counted.
        keep_archive: Whether to keep what the format cannot hold.
        is_own: The source was written by this package from the output's format, so its values fit without a change.
        is_restored: It has an archive beside it, so the output is what it was made from, and nothing of ours.

    Attributes:
        names: Names given to tags.
        archived: Events kept in an archive so far.
        notes: What a person should know about the output, said once.
    """

    format = ""
    _encoder: Encoder

    def __init__(
        self,
        outputs: Outputs,
        *,
        host: str,
        state: RunState,
        losses: LossCounter,
        keep_archive: bool = True,
        is_own: bool = False,
        is_restored: bool = False,
    ) -> None:
        self.archived = 0
        self.notes: list[str] = []
        self.names = TagNames(state.names)
        # A name must not look like that of the other format's files: each viewer looks for a word in it.
        host = _MISLEADING.sub(lambda match: match[0][:-1] + "_", allowed_name(host.replace("/", "_")))
        self._host = host.encode(errors="surrogateescape")[:_HOST_BYTES].decode(errors="surrogateescape") or "unknown"
        self._outputs = outputs
        self._state = state
        self._losses = losses
        self._keep_archive = keep_archive
        self._is_own = is_own
        self._written_by = "" if is_restored else WRITER_CONVERT
        self._places = PlaceCounter(state.last_place)
        self._archives: dict[str, ArchiveWriter | DryWriter] = {}
        self._writer: RecordWriter | DryWriter | None = None
        self._begins_new_file = not state.outputs
        self._has_points = True  # the file that grows holds more than marks
        self._seconds = 0

    def begin_source(self, seconds: int) -> None:
        """Says that the events of the next source file follow, whose name says it was begun at `seconds`."""
        self._seconds = seconds

    def begin_file(self) -> None:
        """Says that the next event goes into a new file."""
        self._begins_new_file = True

    def begin_session(self, step: int) -> None:
        """Says that a restart follows, which replaces all points at `step` and above."""
        self.begin_file()

    def write(self, event: Event) -> Encoded | None:
        """Writes one event and counts what is lost.

        Returns:
            What was made of it; None where it goes into the lineage file alone.

        Raises:
            LogdirError: A file cannot be written, or holds something else.
        """
        payload: bytes | None
        if event.is_lineage:
            encoded = self._note_lineage(event)
            if encoded is None:
                return None
            payload, place = None, START  # in an archive of its own, and beside the run rather than in its order
        else:
            encoded = self._encoder.encode(event)
            payload = encoded.payload
            place = self._places.last if payload is None else self._places.advance(payload)
        for loss in encoded.losses:
            self._losses.add(loss.kind, loss.tag, loss.reason)
        if encoded.archive is not None and self._keep_archive:
            self._archive(event).write(encoded.archive, place)
            self.archived += 1
        if payload is not None:
            self._put(event, payload, self._places.last.mark)
        return encoded

    @property
    def takes_batches(self) -> bool:
        """Whether what comes next goes into the file that grows."""
        return not self._begins_new_file

    def write_batch(self, batch: JudgedBatch) -> None:
        """Writes records that hold all of their events.

        Raises:
            LogdirError: A file cannot be written, or holds something else.
        """
        self._has_points = True
        self._places.skip(batch.events, batch.checksum)
        self._open().write_records(batch.block)

    def write_drawn(self, payload: bytes, checksum: int) -> None:
        """Writes one event that was drawn and is held whole, of which there is nothing to tell; as `write_batch`."""
        self._has_points = True
        self._places.skip(1, checksum)
        self._open().write(payload, checksum)

    def write_version(self, event: Event) -> None:
        """Keeps a source file's version event where the output's own files begin with another."""
        if self._keep_archive and event.format != self.format:
            self._archive(event).write(event, START if event.is_lineage else self._places.last)

    @abstractmethod
    def end_sources(self, *, grows: bool = False) -> None:
        """Says that the whole source has been read, without an error; `grows` says that more of it is expected."""

    @abstractmethod
    def _note_lineage(self, event: Event) -> Encoded | None:
        """Takes note of a lineage event, which is shown in a file of its own; returns as `write` does."""

    @abstractmethod
    def _begin(self, wall_time: float) -> None:
        """Begins a file whose first event is from that time."""

    def _put(self, event: Event, payload: bytes, checksum: int | None = None) -> None:
        """Writes a payload, whose CRC-32C may be given, into the file that grows, or into a new one."""
        if self._begins_new_file:
            self._begin(event.wall_time)
        if not self._has_points and type(event.content) is not SessionLog:
            self._has_points = True
        self._open().write(payload, checksum)

    def _open(self) -> RecordWriter | DryWriter:
        """Returns the file that grows, opened where an earlier session ended."""
        if self._writer is None:
            last = self._state.outputs[-1]
            self._writer = self._outputs.open(last.name, last.offset, last.checksum)
        return self._writer

    def _say_once(self, kind: str, tag: str, reasons: Iterable[str]) -> None:
        """Counts losses of the session, but for those that an earlier conversion counted."""
        new = [reason for reason in reasons if reason not in self._state.reported_once]
        for reason in new:
            self._losses.add(kind, tag, reason)
        self._state.reported_once += new

    def _archive(self, event: Event) -> ArchiveWriter | DryWriter:
        """Returns the archive for an event's format."""
        source = source_of(event)
        archive = self._archives.get(source)
        if archive is None:
            offset = self._state.archives.get(source, 0)
            checksum = self._state.archive_checksums.get(source) if offset else 0
            archive = self._archives[source] = self._outputs.open_archive(source, offset, checksum)
        return archive

    def _next_seconds(self, seconds: int) -> int:
        """Returns the time for a file's name: every reader takes the files in that order, so it is after the last's."""
        outputs = self._state.outputs
        return max(seconds, self._seconds_of(outputs[-1]) + 1) if outputs else seconds

    def _seconds_of(self, output: OutputState) -> int:
        return parse_name(output.name, self.format)[0] or 0

    def _begin_file(self, name: str, *head: Event) -> None:
        """Ends the file that grew and begins the next with the `head` events.

        A file that has its name already must begin as this one does.
        """
        payloads = [self._own(event) for event in head]
        self._end_file()
        self._state.outputs.append(OutputState(name, 0, _hash(payloads[0])))
        self._begins_new_file = False
        self._has_points = False
        self._writer = self._outputs.open(name)
        for payload in payloads:
            self._writer.write(payload)

    def _own(self, event: Event) -> bytes:
        """Encodes an event of the output's own format."""
        payload = self._encoder.encode(event).payload
        assert payload is not None  # same format: there is a place for everything
        return payload

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close(sync=True)
            last = self._state.outputs[-1]
            last.offset, last.checksum = self._writer.offset, self._writer.checksum

    def _end_archive(self, source: str, archive: ArchiveWriter | DryWriter) -> None:
        archive.file.close(sync=True)  # before the state that speaks of it
        self._state.archives[source] = archive.file.offset
        self._state.archive_checksums[source] = archive.file.checksum

    def _replace_lineage(self, name: str, payloads: list[bytes]) -> None:
        """Writes the lineage file anew, under what may be another name: it is small, and its last records count.

        Raises:
            LogdirError: It cannot be written, or holds something else.
        """
        state = self._state
        self._outputs.replace(name, payloads, state.lineage)
        state.lineage, state.lineage_head = name, _hash(payloads[0])
        state.lineage_checksum = crc32c(b"".join(map(encode_record, payloads)))

    def close(self) -> None:
        """Flushes, closes, and brings the state up to date; may be called again.

        Raises:
            LogdirError: A file cannot be written; all are closed.
        """
        with ExitStack() as stack:
            for source, archive in self._archives.items():
                stack.callback(self._end_archive, source, archive)
            stack.callback(self._end_file)
        self._state.names = self.names.given
        self._state.last_place = self._places.last


def _hash(payload: bytes) -> str:
    return hashlib.blake2b(payload, digest_size=16).hexdigest()
