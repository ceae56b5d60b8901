"""The TensorBoard output of one run: event files, and the archive of what they cannot hold.

Layer: run_sink < **tensorboard_run**.

Both of TensorBoard's loaders must show the newest session after a restart. The slow loader drops older points only
when a file's first mark is a SessionLog START and a later START names the step (measured on 2.21: a START in the second
file alone is taken for the first start of the run and drops nothing); the fast loader ignores marks and drops what a
lower step overtakes. So every file opens with START at its first step, and a restart opens a new file. Only the newest
file grows, because the slow loader does not go back to an older one.
"""

from __future__ import annotations

from typing import Any

from ms_summary_bridge.events import Event, FileVersion, SessionLog
from ms_summary_bridge.formats.tensorboard import FILE_VERSION, FORMAT, TensorBoardEncoder
from ms_summary_bridge.run_sink import RunSink

__all__ = ["TensorBoardRun"]


class TensorBoardRun(RunSink):
    """A sink for the events of one run; see `RunSink` for its arguments."""

    format = FORMAT

    def __init__(self, directory: str, **arguments: Any) -> None:
        super().__init__(directory, **arguments)
        self._encoder = TensorBoardEncoder(self.names)
        self._start_step: int | None = None
        self._has_points = True  # the file that grows holds more than marks

    def begin_session(self, step: int | None = None) -> None:
        """Says that a restart follows: the next event goes into a new file.

        Args:
            step: What that file marks as the session's start; the step of the next event when None.
        """
        if self._has_points or self._begins_new_file:
            self._begins_new_file = True
            self._start_step = step

    def write(self, event: Event, source: str = "") -> None:
        """Writes one event and counts what is lost.

        Raises:
            LogdirError: A file cannot be written, or holds something else.
        """
        encoded = self._encoder.encode(event)
        self._account(event, encoded, source)
        if encoded.payload is None:
            return
        if self._begins_new_file:
            self._begin(event)
        else:
            self._open_last()
        self._has_points = self._has_points or not isinstance(event.content, SessionLog)
        if self._writer is not None:
            self._writer.write(encoded.payload)

    def write_version(self, event: Event, source: str = "") -> None:
        """Keeps a source file's version event: the output's own files begin with another."""
        self._keep_version(event, source)

    def _begin(self, event: Event) -> None:
        outputs = self._state.outputs
        seconds = self._seconds
        if outputs:  # every reader takes the files in the order of their seconds, and the slow loader in that of names
            seconds = max(seconds, int(outputs[-1].name.split(".")[3]) + 1)
        name = f"events.out.tfevents.{seconds:010d}.{self._host}.{len(outputs):04d}"
        version = FileVersion(FILE_VERSION, self._written_by)
        start = event.step if self._start_step is None else self._start_step
        heads: list[tuple[int, FileVersion | SessionLog]] = [(0, version)]
        if not (isinstance(event.content, SessionLog) and event.content.status == SessionLog.START):  # which is one
            heads.append((start, SessionLog(SessionLog.START)))
        payloads = [self._encoder.encode(Event(event.wall_time, step, head, FORMAT)).payload for step, head in heads]
        self._begin_file(name, [payload for payload in payloads if payload is not None])
        self._start_step = None
        self._has_points = False
