"""What the outputs of both formats have in common: a chain of files, the archive, names and places."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from ms_summary_bridge.convert.batches import JudgedBatch
from ms_summary_bridge.convert.state import OutputState, RunState
from ms_summary_bridge.errors import FileTakenError, ReadError, WriteError
from ms_summary_bridge.events import Encoded, Event
from ms_summary_bridge.files.atomic import check_place, replace_file
from ms_summary_bridge.files.record_writer import RecordWriter
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.tag_names import TagNames
from ms_summary_bridge.runs.archive import LINEAGE, START, ArchiveWriter, PlaceCounter, archive_name
from ms_summary_bridge.runs.report import LossCounter

__all__ = ["WRITER_CONVERT", "RunSink"]

_HOST_BYTES: Final = 150  # a file name has 255
_MISLEADING: Final = re.compile(r"tfevents|summary\.(?=[0-9])")

WRITER_CONVERT: Final = "ms_summary_bridge/convert"
"""Who wrote a file, as its first event says; reading tells our output from others' by it."""


class RunSink(ABC):
    """A sink for the events of one run.

    Args:
        directory: Where the files go.
        host: Part of their names; the source's host, so that names do not depend on where the conversion runs.
        state: What an earlier conversion left here; `close` brings it up to date.
        losses: Where losses are counted.
        keep_archive: Whether to keep what the format cannot hold.
        is_dry: Go through everything, write nothing.
        is_own: The source was written by this package from the output's format, so its values fit without a change.
        is_restored: It has an archive beside it, so the output is what it was made from, and nothing of ours.

    Attributes:
        names: Names given to tags.
        archived: Events kept in an archive so far.
        notes: What a person should know about the output, said once.
    """

    format = ""

    def __init__(
        self,
        directory: str,
        *,
        host: str,
        state: RunState,
        losses: LossCounter,
        keep_archive: bool = True,
        is_dry: bool = False,
        is_own: bool = False,
        is_restored: bool = False,
    ) -> None:
        self.directory = directory
        self.archived = 0
        self.notes: list[str] = []
        self.names = TagNames(state.names)
        # A name must not look like that of the other format's files: each viewer looks for a word in it.
        host = _MISLEADING.sub(lambda match: match[0][:-1] + "_", host.replace("/", "_"))
        self._host = host.encode(errors="surrogateescape")[:_HOST_BYTES].decode(errors="surrogateescape") or "unknown"
        self._state = state
        self._losses = losses
        self._keep_archive = keep_archive
        self._is_dry = is_dry
        self._is_own = is_own
        self._written_by = "" if is_restored else WRITER_CONVERT
        self._places = PlaceCounter(state.last_place)
        self._archives: dict[str, ArchiveWriter] = {}
        self._writer: RecordWriter | None = None
        self._begins_new_file = not state.outputs
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

    @property
    def takes_batches(self) -> bool:
        """Whether what comes next goes into the file that grows."""
        return not self._begins_new_file

    def write_batch(self, batch: JudgedBatch) -> None:
        """Writes records that hold all of their events.

        Raises:
            LogdirError: A file cannot be written, or holds something else.
        """
        self._places.skip(batch.events, batch.checksum)
        self._open_last()
        if self._writer is not None:
            self._writer.write_records(batch.block)

    @abstractmethod
    def write(self, event: Event, source: str = "") -> Encoded | None:
        """Writes one event, counts what is lost, and returns what became of it.

        Raises:
            LogdirError: A file cannot be written, or holds something else.
        """

    @abstractmethod
    def write_version(self, event: Event, source: str = "") -> None:
        """Takes note of a source file's version event."""

    @abstractmethod
    def end_sources(self, *, grows: bool = False) -> None:
        """Says that the whole source has been read, without an error; `grows` says that more of it is expected."""

    def _account(self, event: Event, encoded: Encoded, source: str) -> None:
        """Counts losses and archives the original, in its place beside the payload that is about to be written."""
        if source == LINEAGE:
            place = START  # in an archive of its own, and beside the run rather than in its order
        else:
            place = self._places.last if encoded.payload is None else self._places.advance(encoded.payload)
        for loss in encoded.losses:
            self._losses.add(loss.kind, loss.tag, loss.reason)
        if encoded.archive is not None and self._keep_archive:
            self._archive(source or event.format).write(encoded.archive, place)
            self.archived += 1

    def _say_once(self, kind: str, tag: str, reasons: Iterable[str]) -> None:
        """Counts losses of the session, but for those that an earlier conversion counted."""
        new = [reason for reason in reasons if reason not in self._state.reported_once]
        for reason in new:
            self._losses.add(kind, tag, reason)
        self._state.reported_once += new

    def _keep_version(self, event: Event, source: str) -> None:
        if self._keep_archive and event.format != self.format:
            place = START if source == LINEAGE else self._places.last
            self._archive(source or event.format).write(event, place)

    def _archive(self, source: str) -> ArchiveWriter:
        archive = self._archives.get(source)
        if archive is None:
            self._check(archive_name(source))
            offset = self._state.archives.get(source, 0)
            checksum = self._state.archive_checksums.get(source) if offset else 0
            archive = self._archives[source] = ArchiveWriter(
                self.directory, source, offset=offset, checksum=checksum, is_dry=self._is_dry
            )
        return archive

    def _check(self, name: str) -> None:
        """Finds out, where nothing is written, whether a file could be."""
        if self._is_dry:
            check_place(os.path.join(self.directory, name))

    def _open_last(self) -> None:
        """Opens the file that grows, where an earlier session ended."""
        if self._writer is None and not self._is_dry:
            last = self._state.outputs[-1]
            self._writer = RecordWriter(
                os.path.join(self.directory, last.name), offset=last.offset, checksum=last.checksum
            )

    def _begin_file(self, name: str, head: list[bytes]) -> None:
        """Ends the file that grew and begins the next; a file that has its name already must begin as this one does.

        Args:
            name: Its name.
            head: Payloads that it begins with.
        """
        outputs = self._state.outputs
        self._end_file()
        outputs.append(OutputState(name, 0, hashlib.blake2b(head[0], digest_size=16).hexdigest()))
        self._begins_new_file = False
        self._check(name)
        if self._is_dry:
            return
        path = os.path.join(self.directory, name)
        self._writer = RecordWriter(path, offset=0 if os.path.exists(path) else None)
        for payload in head:
            self._writer.write(payload)

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            last = self._state.outputs[-1]
            last.offset, last.checksum = self._writer.offset, self._writer.checksum

    def _replace_lineage(self, name: str, payloads: list[bytes]) -> None:
        """Writes the lineage file anew, under what may be another name: it is small, and its last records count.

        Raises:
            LogdirError: It cannot be written, or holds something else.
        """
        self._check(name)
        if self._is_dry:
            return
        state = self._state
        path = os.path.join(self.directory, name)
        records = b"".join(map(encode_record, payloads))
        present = _read_file(path)
        is_ours = state.lineage == name or present is None or records.startswith(present)
        if not is_ours and WRITER_CONVERT.encode() not in (present or b"")[:200]:
            raise FileTakenError(f"{path}: exists and would be overwritten")
        try:
            if records != present:
                os.makedirs(self.directory, exist_ok=True)
                replace_file(path, records)
            if state.lineage and state.lineage != name:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self.directory, state.lineage))
        except OSError as error:
            raise WriteError.of_system(path, "written", error) from error
        state.lineage, state.lineage_head = name, hashlib.blake2b(payloads[0], digest_size=16).hexdigest()
        state.lineage_checksum = crc32c(records)

    def flush(self) -> None:
        """Hands everything written so far to the operating system."""
        for archive in self._archives.values():
            archive.flush()
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flushes, closes, and brings the state up to date; may be called again."""
        for source, archive in self._archives.items():
            archive.close()
            self._state.archives[source] = archive.offset
            self._state.archive_checksums[source] = archive.checksum
        self._end_file()
        self._state.names = self.names.given
        self._state.last_place = self._places.last


def _read_file(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReadError.of_system(path, "read", error) from error
