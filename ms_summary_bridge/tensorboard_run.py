"""The TensorBoard output of one run: event files, and the archive of what they cannot hold.

Layer: event_file, archive, report < **tensorboard_run**.

Both of TensorBoard's loaders must show the newest session after a restart. The slow loader drops older points only
when a file's first mark is a SessionLog START and a later START names the step (measured on 2.21: a START in the second
file alone is taken for the first start of the run and drops nothing); the fast loader ignores marks and drops what a
lower step overtakes. So every file opens with START at its first step, and a restart opens a new file. Only the newest
file grows, because the slow loader does not go back to an older one.
"""

from __future__ import annotations

import os
from typing import Final

from ms_summary_bridge.archive import ArchiveWriter
from ms_summary_bridge.event_file import RecordWriter
from ms_summary_bridge.events import Event, FileVersion, SessionLog
from ms_summary_bridge.formats._names import TagNames
from ms_summary_bridge.formats.tensorboard import FILE_VERSION, FORMAT, TensorBoardEncoder
from ms_summary_bridge.report import LossCounter
from ms_summary_bridge.state import OutputState, RunState

__all__ = ["WRITER_CONVERT", "WRITER_LIVE", "TensorBoardRun"]

WRITER_CONVERT: Final = "ms_summary_bridge/convert"
WRITER_LIVE: Final = "ms_summary_bridge/live"


class TensorBoardRun:
    """A sink for the events of one run.

    Args:
        directory: Where the event files go.
        host: Part of their names; the source's host, so that names do not depend on where the conversion runs.
        state: What an earlier conversion left here; `save` brings it up to date.
        losses: Where losses are counted.
        keep_archive: Whether to keep what TensorBoard cannot hold.
        is_dry: Go through everything, write nothing.
    """

    def __init__(
        self,
        directory: str,
        *,
        host: str,
        state: RunState,
        losses: LossCounter,
        keep_archive: bool = True,
        is_dry: bool = False,
    ) -> None:
        self.directory = directory
        self.archived = 0
        self._host = host.replace("/", "_") or "unknown"
        self._state = state
        self._losses = losses
        self._keep_archive = keep_archive
        self._is_dry = is_dry
        self.names = TagNames(state.names)
        self._encoder = TensorBoardEncoder(self.names)
        self._archives: dict[str, ArchiveWriter] = {}
        self._writer: RecordWriter | None = None
        self._begins_new_file = not state.outputs
        self._start_step: int | None = None
        self._seconds = 0

    def begin_source(self, seconds: int) -> None:
        """Says that the events of the next source file follow, whose name says it was begun at `seconds`."""
        self._seconds = seconds

    def begin_session(self, step: int | None = None) -> None:
        """Says that a restart follows: the next event goes into a new file.

        Args:
            step: What that file marks as the session's start; the step of the next event when None.
        """
        self._begins_new_file = True
        self._start_step = step

    def write(self, event: Event, source: str = "") -> None:
        """Writes one event and counts what is lost.

        Raises:
            LogdirError: A file cannot be written, or holds something else.
        """
        encoded = self._encoder.encode(event)
        if encoded.losses:
            for loss in encoded.losses:
                self._losses.add(loss.kind, loss.tag, loss.reason)
            if encoded.archive is not None and self._keep_archive:
                self._archive(source or event.format).write(encoded.archive)
                self.archived += 1
        if encoded.payload is None:
            return
        if self._begins_new_file or (self._writer is None and not self._is_dry):
            self._open(event)
        if self._writer is not None:
            self._writer.write(encoded.payload)

    def _open(self, event: Event) -> None:
        outputs = self._state.outputs
        if self._begins_new_file:
            if self._writer is not None:
                self._writer.close()
                outputs[-1].offset = self._writer.offset
            seconds = self._seconds
            name = f"events.out.tfevents.{seconds:010d}.{self._host}.{len(outputs):04d}"
            if outputs and name < outputs[-1].name:  # the slow loader reads files in the order of their names
                seconds = int(outputs[-1].name.split(".")[3])
                name = f"events.out.tfevents.{seconds:010d}.{self._host}.{len(outputs):04d}"
            outputs.append(OutputState(name, 0))
            self._begins_new_file = False
            if self._is_dry:
                return
            path = os.path.join(self.directory, name)
            self._writer = RecordWriter(path, offset=0 if os.path.exists(path) else None)
            version = FileVersion(FILE_VERSION, WRITER_CONVERT)
            start = event.step if self._start_step is None else self._start_step
            for step, head in ((0, version), (start, SessionLog(SessionLog.START))):
                payload = self._encoder.encode(Event(event.wall_time, step, head, FORMAT)).payload
                assert payload is not None
                self._writer.write(payload)
            self._start_step = None
        else:
            last = outputs[-1]
            self._writer = RecordWriter(os.path.join(self.directory, last.name), offset=last.offset)

    def _archive(self, source: str) -> ArchiveWriter:
        archive = self._archives.get(source)
        if archive is None:
            offset = self._state.archives.get(source, 0)
            archive = self._archives[source] = ArchiveWriter(self.directory, source, offset=offset, is_dry=self._is_dry)
        return archive

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
        if self._writer is not None:
            self._writer.close()
            self._state.outputs[-1].offset = self._writer.offset
        self._state.names = self.names.given
