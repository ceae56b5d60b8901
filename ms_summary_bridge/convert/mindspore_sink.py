"""The MindSpore output of one run: summary files, a lineage file, and the archive of what they cannot hold.

MindInsight reads the files of a run in the order of the seconds in their names and never goes back, so each file gets a
later second than the one before, and what was read goes into the last one, whichever source file it is from. A step at
or below an earlier one replaces the points of its tag alone, so a restart needs no mark. A name whose number has more
than 11 digits stops it from listing anything at all, which is why a time that long is not taken over. Source: measured
on MindInsight 2.3.1.
"""

from __future__ import annotations

from typing import Any, Final

from ms_summary_bridge.convert.batches import JudgedBatch
from ms_summary_bridge.convert.sink import MAX_SECONDS, RunSink
from ms_summary_bridge.errors import counted
from ms_summary_bridge.events import Encoded, Event, FileVersion, Summary
from ms_summary_bridge.formats import tensorboard
from ms_summary_bridge.formats.mindspore import FILE_VERSION, FORMAT, MindSporeEncoder
from ms_summary_bridge.formats.plugin_data import WRITER_CONVERT, encode_derivation
from ms_summary_bridge.formats.sessions import hparams
from ms_summary_bridge.formats.sessions.session import SESSION_KINDS, shortest
from ms_summary_bridge.values import Opaque, Scalar

__all__ = ["MindSporeSink"]

_SHOWN_TAGS: Final = 300
_SHOWN_POINTS: Final = {"scalar": 1000, "histogram": 50, "image": 10, "tensor": 20}
_SHOWN_TENSORS: Final = 6  # tags
_NAMED: Final = 5  # tags named in a note


class MindSporeSink(RunSink):
    """A sink for the events of one run; see `RunSink` for its arguments."""

    format = FORMAT

    def __init__(self, *outputs: Any, **arguments: Any) -> None:
        super().__init__(*outputs, **arguments)
        self._encoder = MindSporeEncoder(self.names, fits=not self._is_own)
        self._head: Event | None = None
        self._lineage: list[bytes] = []
        self._has_lineage = False  # of the session
        series = self._state.series
        self._metrics = {
            tag: Scalar(last.fingerprint) for kind, tag, last in series if kind == Scalar.kind and last.fingerprint
        }
        self._wall_time = 0.0
        self._over = self._over_limits()

    def write(self, event: Event) -> Encoded | None:
        """Writes one event, counts what is lost and what MindInsight will show, and takes note of a session's parts.

        Raises:
            LogdirError: A file cannot be written, or holds something else.
        """
        if event.format == tensorboard.FORMAT:
            self.note_session(event)
        encoded = super().write(event)
        if encoded is not None and encoded.payload is not None:
            points = self._state.points
            for kind, name in encoded.written:
                key = f"{kind} {name}"
                points[key] = points.get(key, 0) + 1
        return encoded

    def write_batch(self, batch: JudgedBatch) -> None:
        """Writes records that hold all of their events."""
        super().write_batch(batch)
        self._wall_time = self._state.latest_time = max(self._state.latest_time, batch.wall_time)
        points = self._state.points
        for tag, count in batch.points.items():
            key = f"{Scalar.kind} {tag}"
            points[key] = points.get(key, 0) + count
            self._metrics[tag] = Scalar(batch.last[tag])

    def _note_lineage(self, event: Event) -> None:
        self._lineage.append(self._own(event))
        self._has_lineage = self._has_lineage or event.content.kind in SESSION_KINDS

    def write_version(self, event: Event) -> None:
        """A version event of MindSpore's own opens the next file; another format's goes into the archive."""
        if event.format != FORMAT:
            super().write_version(event)
        elif event.is_lineage:
            self.write(event)
        elif self._head is not None:  # two in a row: no file holds a version alone
            self._end_head()
            self._put(event, self._own(event))
        else:
            self._head = event
            self._begins_new_file = True

    def _end_head(self) -> None:
        """Writes a version event that no other event has followed."""
        if self._head is not None:
            self._begin(self._head.wall_time)

    def _begin(self, wall_time: float) -> None:
        times = [float(self._seconds), wall_time, 0.0]
        head, self._head = self._head, None
        if head is not None:  # when the original was begun
            times.insert(0, head.wall_time)
        else:
            head = Event(wall_time, 0, FileVersion(FILE_VERSION, self._written_by), FORMAT)
        seconds = self._next_seconds(int(next(time for time in times if 0 <= time <= MAX_SECONDS)))
        self._begin_file(f"events.out.events.summary.{seconds}.0.{self._host}_MS", head)

    def note_session(self, event: Event) -> None:
        """Takes note of hyperparameters and metrics, for the lineage file."""
        self._wall_time = self._state.latest_time = max(self._state.latest_time, event.wall_time)
        if isinstance(event.content, Summary):
            for tagged in event.content.values:
                value = tagged.value
                if isinstance(value, Scalar):
                    self._metrics[tagged.tag] = value if value.is_float32 else Scalar(value.fingerprint())
                elif isinstance(value, Opaque) and value.kind == "hparams":
                    self._state.session[tagged.tag] = value.payload
                    self._state.reported_once.clear()

    def close(self) -> None:
        """Flushes, closes, writes the lineage, and brings the state up to date; may be called again."""
        self._end_head()
        super().close()
        if self._lineage:
            self._write_lineage()
        self._note_limits()

    def end_sources(self, *, grows: bool = False) -> None:
        """Adds the lineage that a session becomes, unless the session was made from lineage that is here already."""
        values = self._state.session
        is_lineage = hparams.is_lineage(values.get(hparams.START_TAG, b""))
        session = None
        if self._wall_time and not (is_lineage and self._has_lineage):
            session = hparams.read_session(values, {tag: shortest(value) for tag, value in self._metrics.items()})
            if session is None and hparams.START_TAG in values:
                self._say_once("hparams", hparams.START_TAG, ["cannot be read, so the run gets no lineage"])
        if session is not None:
            from ms_summary_bridge.formats.sessions import lineage  # here: a run of plain scalars has none

            wall_time = session.end_time if is_lineage and session.end_time else self._wall_time
            self._lineage += lineage.write_lineage(wall_time, session, is_lineage=is_lineage)
            self._say_once("lineage", "", session.left_out)
        if session is not None or (self._lineage and self._written_by):
            # A lineage event has no other place than the version's text for who made the file.
            version = FileVersion(f"{FILE_VERSION} {WRITER_CONVERT}")
            head = self._own(Event(self._wall_time, 0, version, FORMAT))
            self._lineage.insert(0, head + encode_derivation())

    def _write_lineage(self) -> None:
        outputs = self._state.outputs
        seconds = self._seconds if self._seconds <= MAX_SECONDS else 0
        if outputs:
            seconds = self._seconds_of(outputs[0])
        name = self._state.lineage or f"events.out.events.summary.{seconds}.0.{self._host}_lineage"
        payloads, self._lineage = self._lineage, []
        self._replace_lineage(name, payloads)

    def _over_limits(self) -> set[tuple[str, str]]:
        """Returns kind and tag of each series that is longer than MindInsight shows, and where there are too many."""
        points = self._state.points
        series = {key: key.partition(" ")[::2] for key in points}
        over = {series[key] for key, count in points.items() if count > _SHOWN_POINTS[series[key][0]]}
        if len(points) > _SHOWN_TAGS:
            over.add(("tags", ""))
        if self._count_tensors() > _SHOWN_TENSORS:
            over.add(("tensors", ""))
        return over

    def _count_tensors(self) -> int:
        return sum(key.startswith("tensor ") for key in self._state.points)

    def _note_limits(self) -> None:
        """Says what MindInsight will not show of this run, where an earlier conversion has not."""
        over = self._over_limits()
        new = sorted(over - self._over)
        self._over = over
        totals = (("tags", len(self._state.points), _SHOWN_TAGS), ("tensors", self._count_tensors(), _SHOWN_TENSORS))
        for what, count, shown in totals:
            if (what, "") in new:
                self.notes.append(f"{count} {what}: MindInsight shows the last {shown}, and all are in the file")
        for kind, shown in _SHOWN_POINTS.items():
            tags = [tag for one, tag in new if one == kind]
            if tags:
                names = ", ".join(map(repr, tags[:_NAMED]))
                rest = f" and {len(tags) - _NAMED} more" if len(tags) > _NAMED else ""
                self.notes.append(
                    f"MindInsight shows {counted(shown, 'step')} of one {kind}, and all are in the file: {names}{rest}"
                )
