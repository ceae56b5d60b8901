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
from ms_summary_bridge.convert.sink import WRITER_CONVERT, RunSink
from ms_summary_bridge.events import Encoded, Event, FileVersion, Summary
from ms_summary_bridge.formats import tensorboard
from ms_summary_bridge.formats.mindspore import FILE_VERSION, FORMAT, MindSporeEncoder, is_of_lineage_file
from ms_summary_bridge.formats.plugin_data import encode_derivation
from ms_summary_bridge.formats.sessions import hparams, lineage
from ms_summary_bridge.formats.sessions.session import SESSION_KINDS, shortest
from ms_summary_bridge.runs.archive import LINEAGE
from ms_summary_bridge.values import Opaque, Scalar

__all__ = ["MindSporeSink"]

_MAX_SECONDS: Final = 9_999_999_999  # with room for those that each have to be later than the one before
_SHOWN_TAGS: Final = 300
_SHOWN_POINTS: Final = {"scalar": 1000, "histogram": 50, "image": 10, "tensor": 20}
_SHOWN_TENSORS: Final = 6  # tags
_NAMED: Final = 5  # tags named in a note


class MindSporeSink(RunSink):
    """A sink for the events of one run; see `RunSink` for its arguments."""

    format = FORMAT

    def __init__(self, directory: str, **arguments: Any) -> None:
        super().__init__(directory, **arguments)
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

    def write_batch(self, batch: JudgedBatch) -> None:
        """Writes records that hold all of their events."""
        super().write_batch(batch)
        self._wall_time = self._state.latest_time = max(self._state.latest_time, batch.wall_time)
        points = self._state.points
        for tag, count in batch.points.items():
            key = f"{Scalar.kind} {tag}"
            points[key] = points.get(key, 0) + count
            self._metrics[tag] = Scalar(batch.last[tag])

    def write(self, event: Event, source: str = "") -> Encoded | None:
        """Writes one event, counts what is lost, and returns what became of it.

        Raises:
            LogdirError: A file cannot be written, or holds something else.
        """
        if source == LINEAGE or is_of_lineage_file(event):
            payload = self._encoder.encode(event).payload
            assert payload is not None  # a lineage event is given back as it was
            self._lineage.append(payload)
            self._has_lineage = self._has_lineage or event.content.kind in SESSION_KINDS
            return None
        encoded = self._encoder.encode(event)
        if event.format == tensorboard.FORMAT:
            self._note_session(event)
        self._account(event, encoded, source)
        if encoded.payload is None:
            return encoded
        self._count()
        if self._begins_new_file:
            self._begin(event.wall_time)
        else:
            self._open_last()
        if self._writer is not None:
            self._writer.write(encoded.payload)
        return encoded

    def write_version(self, event: Event, source: str = "") -> None:
        """A version event of MindSpore's own opens the next file; another format's goes into the archive."""
        if event.format != FORMAT:
            self._keep_version(event, source)
        elif source == LINEAGE:
            self.write(event, source)
        elif self._head is not None:  # two in a row: no file holds a version alone
            self._end_head()
            self._write(event)
        else:
            self._head = event
            self._begins_new_file = True

    def _write(self, event: Event) -> None:
        payload = self._encoder.encode(event).payload
        assert payload is not None  # same format: there is a place for everything
        self._open_last()
        if self._writer is not None:
            self._writer.write(payload)

    def _end_head(self) -> None:
        """Writes a version event that no other event has followed."""
        if self._head is not None:
            self._begin(self._head.wall_time)

    def _begin(self, wall_time: float) -> None:
        """Begins a file whose first event is from that time."""
        outputs = self._state.outputs
        times = [float(self._seconds), wall_time, 0.0]
        head = self._head
        if head is not None:  # when the original was begun
            times.insert(0, head.wall_time)
        else:
            head = Event(wall_time, 0, FileVersion(FILE_VERSION, self._written_by), FORMAT)
        seconds = int(next(time for time in times if 0 <= time <= _MAX_SECONDS))
        if outputs:
            seconds = max(seconds, int(outputs[-1].name.split(".")[4]) + 1)
        payload = self._encoder.encode(head).payload
        assert payload is not None
        self._head = None
        self._begin_file(f"events.out.events.summary.{seconds}.0.{self._host}_MS", [payload])

    def _note_session(self, event: Event) -> None:
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

    def _count(self) -> None:
        points = self._state.points
        for kind, name in self._encoder.written:
            key = f"{kind} {name}"
            points[key] = points.get(key, 0) + 1

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
                self._say_once("hparams", hparams.START_TAG, ["cannot be read, so that there is no lineage of it"])
        if session is not None:
            wall_time = session.end_time if is_lineage and session.end_time else self._wall_time
            self._lineage += lineage.write_lineage(wall_time, session, is_lineage=is_lineage)
            self._say_once("lineage", "", session.left_out)
        if session is not None or (self._lineage and self._written_by):
            self._lineage.insert(0, self._lineage_head())

    def _lineage_head(self) -> bytes:
        """A version event whose text says who made the file: a lineage event has no other place for that."""
        version = FileVersion(f"{FILE_VERSION} {WRITER_CONVERT}")
        payload = self._encoder.encode(Event(self._wall_time, 0, version, FORMAT)).payload
        assert payload is not None
        return payload + encode_derivation()

    def _write_lineage(self) -> None:
        outputs = self._state.outputs
        seconds = (
            int(outputs[0].name.split(".")[4]) if outputs else self._seconds if self._seconds <= _MAX_SECONDS else 0
        )
        name = self._state.lineage or f"events.out.events.summary.{seconds}.0.{self._host}_lineage"
        payloads, self._lineage = self._lineage, []
        self._replace_lineage(name, payloads)

    def _over_limits(self) -> set[tuple[str, str]]:
        """Returns kind and tag of each series that is longer than MindInsight shows, and where there are too many."""
        over: set[tuple[str, str]] = set()
        points = self._state.points
        for key, count in points.items():
            kind, _, tag = key.partition(" ")
            if count > _SHOWN_POINTS[kind]:
                over.add((kind, tag))
        if len(points) > _SHOWN_TAGS:
            over.add(("tags", ""))
        if sum(key.startswith("tensor ") for key in points) > _SHOWN_TENSORS:
            over.add(("tensors", ""))
        return over

    def _note_limits(self) -> None:
        """Says what MindInsight will not show of this run, where an earlier conversion has not."""
        over = self._over_limits()
        new = sorted(over - self._over)
        self._over = over
        points = self._state.points
        if ("tags", "") in new:
            self.notes.append(f"{len(points)} tags: MindInsight shows the last {_SHOWN_TAGS}, and all are in the file")
        if ("tensors", "") in new:
            count = sum(key.startswith("tensor ") for key in points)
            self.notes.append(f"{count} tensors: MindInsight shows the last {_SHOWN_TENSORS}, and all are in the file")
        for kind, shown in _SHOWN_POINTS.items():
            tags = [tag for one, tag in new if one == kind]
            if tags:
                names = ", ".join(map(repr, tags[:_NAMED]))
                rest = f" and {len(tags) - _NAMED} more" if len(tags) > _NAMED else ""
                self.notes.append(
                    f"MindInsight shows {shown} steps of one {kind}, and all are in the file: {names}{rest}"
                )
