"""The TensorBoard output of one run: event files, and the archive of what they cannot hold.

Both of TensorBoard's loaders must show the newest session after a restart, and hide nothing else. The fast loader
ignores marks and drops, for each tag, what a lower step overtakes. The slow loader takes a run's first SessionLog START
for the first start of all, and at each later one drops the points of *all* tags from its step on (measured on 2.21). So
only what `convert.restarts` has proved is marked: with two of them in a row for the first, and one for each after it.

Only the newest file grows, because the slow loader does not go back to an older one. Behind a lineage file that has
been written, what comes next begins a new file for that reason.
"""

from __future__ import annotations

from typing import Any, Final

from ms_summary_bridge.convert.batches import JudgedBatch
from ms_summary_bridge.convert.sink import WRITER_CONVERT, RunSink
from ms_summary_bridge.events import Encoded, Event, FileVersion, LostValue, SessionLog
from ms_summary_bridge.files.file_names import LINEAGE_SUFFIX
from ms_summary_bridge.formats.mindspore import FORMAT as MINDSPORE
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.sessions import hparams, lineage
from ms_summary_bridge.formats.sessions.session import SESSION_KINDS
from ms_summary_bridge.formats.tensorboard import FILE_VERSION, FORMAT, TensorBoardEncoder
from ms_summary_bridge.runs.archive import LINEAGE
from ms_summary_bridge.values import Opaque

__all__ = ["TensorBoardSink"]

_MAX_SECONDS: Final = 9_999_999_999


class TensorBoardSink(RunSink):
    """A sink for the events of one run; see `RunSink` for its arguments."""

    format = FORMAT

    def __init__(self, directory: str, **arguments: Any) -> None:
        super().__init__(directory, **arguments)
        self._encoder = TensorBoardEncoder(self.names)
        self._mark: int | None = None  # step of the restart that the next file begins with
        self._has_points = True  # the file that grows holds more than marks
        self._in_table: set[str] = set()  # kinds of the session's records that were met

    def begin_file(self) -> None:
        """Says that the next event goes into a new file."""
        if self._has_points:
            super().begin_file()

    def begin_session(self, step: int) -> None:
        """Says that a restart follows, which replaces all points at `step` and above."""
        self.begin_file()
        self._mark = step

    def write_batch(self, batch: JudgedBatch) -> None:
        """Writes records that hold all of their events."""
        super().write_batch(batch)
        self._has_points = True

    def write(self, event: Event, source: str = "") -> Encoded | None:
        """Writes one event, counts what is lost, and returns what became of it.

        Raises:
            LogdirError: A file cannot be written, or holds something else.
        """
        if source == LINEAGE and isinstance(event.content, Opaque):
            self._note_lineage(event, event.content)
            return None
        encoded = self._encoder.encode(event)
        self._account(event, encoded, source)
        if encoded.payload is None:
            return encoded
        if self._begins_new_file:
            self._begin(event)
        else:
            self._open_last()
        self._has_points = self._has_points or not isinstance(event.content, SessionLog)
        if self._writer is not None:
            self._writer.write(encoded.payload)
        return encoded

    def write_version(self, event: Event, source: str = "") -> None:
        """Keeps a source file's version event: the output's own files begin with another."""
        self._keep_version(event, source)
        if source == MINDSPORE and event.wall_time not in self._state.start_times:
            self._state.start_times.append(event.wall_time)

    def _note_lineage(self, event: Event, content: Opaque) -> None:
        """Takes note of a lineage record; of each kind the last one is shown, and all are in the archive."""
        losses: tuple[LostValue, ...] = ()
        is_shown = True
        if content.kind in SESSION_KINDS:
            self._in_table.add(content.kind)
            self._state.reported_once.clear()  # here, since nothing is said while the session waits for its end
        else:
            encoded = self._encoder.encode(event)
            losses, is_shown = encoded.losses, encoded.payload is not None
        shown = self._state.session.get(content.kind, content.payload)
        if is_shown and shown != content.payload:
            losses += (LostValue(content.kind, "", "an earlier one of its run: TensorBoard shows the last"),)
        self._account(event, Encoded(None, losses, event), LINEAGE)
        if is_shown:
            self._state.session[content.kind] = content.payload

    def end_sources(self, *, grows: bool = False) -> None:
        """Writes what the lineage becomes into a file of its own.

        In TensorBoard the first start and the first end of a session count. So this file is written anew when there is
        more lineage, and while the source grows it waits for the record that MindSpore writes at the end.
        """
        for kind in sorted(self._in_table):  # of the last one alone
            self._losses.add(kind, "", "shown in the HParams table")
        self._in_table.clear()
        records = self._state.session
        if not records or (grows and not records.keys() & {"train_lineage", "evaluation_lineage"}):
            return
        times = []
        payloads: list[bytes | None] = []
        for kind, payload in sorted(records.items()):
            event = MindSporeDecoder(is_lineage=True).decode(payload)
            times.append(event.wall_time)
            if kind not in SESSION_KINDS:
                payloads.append(self._encoder.encode(event).payload)
        if records.keys() & {*SESSION_KINDS}:
            session = lineage.read_lineage(records, sorted(self._state.start_times))
            self._say_once("lineage", "", session.left_out)
            if not session.is_empty:
                payloads += [
                    hparams.encode_session_start(session),
                    hparams.encode_session_end(session, self.names.kinds),
                ]
        if not payloads:
            return
        # Behind the files of the training in the order of names, in which TensorBoard's slow loader goes.
        seconds = min(max(0, int(max(times))), _MAX_SECONDS)
        name = f"events.out.tfevents.{seconds:010d}.{self._host}{LINEAGE_SUFFIX}"
        head = self._encoder.encode(Event(min(times), 0, FileVersion(FILE_VERSION, WRITER_CONVERT), FORMAT)).payload
        self._replace_lineage(name, [payload for payload in (head, *payloads) if payload is not None])

    def _begin(self, event: Event) -> None:
        outputs = self._state.outputs
        seconds = self._seconds
        if outputs:  # every reader takes the files in the order of their seconds, and the slow loader in that of names
            seconds = max(seconds, int(outputs[-1].name.split(".")[3]) + 1)
        name = f"events.out.tfevents.{seconds:010d}.{self._host}.{len(outputs):04d}"
        version = FileVersion(FILE_VERSION, self._written_by)
        heads: list[tuple[int, FileVersion | SessionLog]] = [(0, version)]
        if self._mark is not None:
            heads += [(self._mark, SessionLog(SessionLog.START))] * (1 if self._state.has_mark else 2)
            self._mark, self._state.has_mark = None, True
        payloads = [self._encoder.encode(Event(event.wall_time, step, head, FORMAT)).payload for step, head in heads]
        self._begin_file(name, [payload for payload in payloads if payload is not None])
        self._has_points = False
