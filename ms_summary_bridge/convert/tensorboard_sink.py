"""The TensorBoard output of one run: event files, and the archive of what they cannot hold.

Both of TensorBoard's loaders must show the newest session after a restart, and hide nothing else. The fast loader
ignores marks and drops, for each tag, what a lower step overtakes. The slow loader takes a run's first SessionLog START
for the first start of all, and at each later one drops the points of *all* tags from its step on (measured on 2.21). So
only what `convert.restarts` has proved is marked: with two of them in a row for the first, and one for each after it.

Only the newest file grows, because the slow loader does not go back to an older one. Behind a lineage file that has
been written, what comes next begins a new file for that reason.
"""

from __future__ import annotations

from typing import Any

from ms_summary_bridge.convert.sink import MAX_SECONDS, RunSink
from ms_summary_bridge.events import Encoded, Event, FileVersion, LostValue, SessionLog
from ms_summary_bridge.files.file_names import LINEAGE_SUFFIX
from ms_summary_bridge.formats.mindspore import FORMAT as MINDSPORE
from ms_summary_bridge.formats.mindspore import MindSporeDecoder
from ms_summary_bridge.formats.plugin_data import WRITER_CONVERT
from ms_summary_bridge.formats.sessions import hparams
from ms_summary_bridge.formats.sessions.session import SESSION_KINDS
from ms_summary_bridge.formats.tensorboard import FILE_VERSION, FORMAT, TensorBoardEncoder
from ms_summary_bridge.values import Opaque

__all__ = ["TensorBoardSink"]


class TensorBoardSink(RunSink):
    """A sink for the events of one run; see `RunSink` for its arguments."""

    format = FORMAT

    def __init__(self, *outputs: Any, **arguments: Any) -> None:
        super().__init__(*outputs, **arguments)
        self._encoder = TensorBoardEncoder(self.names)
        self._mark: int | None = None  # step of the restart that the next file begins with
        self._in_table: set[str] = set()  # kinds of the session's records that were met

    def begin_file(self) -> None:
        """Says that the next event goes into a new file."""
        if self._has_points:
            super().begin_file()

    def begin_session(self, step: int) -> None:
        """Says that a restart follows, which replaces all points at `step` and above."""
        self.begin_file()
        self._mark = step

    def write_version(self, event: Event) -> None:
        """Keeps a source file's version event: the output's own files begin with another."""
        super().write_version(event)
        if event.format == MINDSPORE and not event.is_lineage and event.wall_time not in self._state.start_times:
            self._state.start_times.append(event.wall_time)

    def _note_lineage(self, event: Event) -> Encoded:
        """Of each kind of lineage the last record is shown, and all are in the archive."""
        content = event.content
        assert isinstance(content, Opaque)
        losses: tuple[LostValue, ...] = ()
        is_shown = True
        if content.kind in SESSION_KINDS:
            self._in_table.add(content.kind)
            self._state.reported_once.clear()  # here, since nothing is said while the session waits for its end
        else:
            encoded = self._encoder.encode(event)
            losses, is_shown = encoded.losses, encoded.payload is not None
        if is_shown:
            shown = self._state.session.get(content.kind, content.payload)
            if shown != content.payload:
                losses += (LostValue(content.kind, "", "an earlier one of its run: TensorBoard shows the last"),)
            self._state.session[content.kind] = content.payload
        return Encoded(None, losses, event)

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
        decoder = MindSporeDecoder(is_lineage=True)
        events = [decoder.decode(payload) for _, payload in sorted(records.items())]
        payloads = [self._encoder.encode(event).payload for event in events if event.content.kind not in SESSION_KINDS]
        if records.keys() & {*SESSION_KINDS}:
            from ms_summary_bridge.formats.sessions import lineage  # here: a run of plain scalars has none

            session = lineage.read_lineage(records, sorted(self._state.start_times))
            self._say_once("lineage", "", session.left_out)
            if not session.is_empty:
                payloads.append(hparams.encode_session_start(session))
                payloads.append(hparams.encode_session_end(session, self.names.kinds))
        if not payloads:
            return
        # Behind the files of the training in the order of names, in which TensorBoard's slow loader goes.
        times = [event.wall_time for event in events]
        seconds = min(max(0, int(max(times))), MAX_SECONDS)
        name = f"events.out.tfevents.{seconds:010d}.{self._host}{LINEAGE_SUFFIX}"
        head = self._own(Event(min(times), 0, FileVersion(FILE_VERSION, WRITER_CONVERT), FORMAT))
        self._replace_lineage(name, [head, *(payload for payload in payloads if payload is not None)])

    def _begin(self, wall_time: float) -> None:
        seconds, number = self._next_seconds(self._seconds), len(self._state.outputs)
        head = [Event(wall_time, 0, FileVersion(FILE_VERSION, self._written_by), FORMAT)]
        if self._mark is not None:
            mark = Event(wall_time, self._mark, SessionLog(SessionLog.START), FORMAT)
            head += [mark] * (1 if self._state.has_mark else 2)
            self._mark, self._state.has_mark = None, True
        self._begin_file(f"events.out.tfevents.{seconds:010d}.{self._host}.{number:04d}", *head)
