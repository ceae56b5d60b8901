"""The source side of a conversion: what it was to take of a run, in the order in which it took it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from ms_summary_bridge.batches.histograms import Drawn
from ms_summary_bridge.batches.reader import Batch, BatchReader
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.convert.batches import points_of, repeats_in
from ms_summary_bridge.convert.run import convert_run
from ms_summary_bridge.convert.state import FileState, Plan, RunState
from ms_summary_bridge.convert.task import RunTask, compile_tags, relative_path
from ms_summary_bridge.convert.unread import is_same_file
from ms_summary_bridge.convert.verify.made import Making
from ms_summary_bridge.convert.verify.series import ENCODING, Key, Take, Taker, pack_rows
from ms_summary_bridge.events import Decoder, Event, FileVersion, SessionLog, Summary, TaggedValue
from ms_summary_bridge.files.file_names import LINEAGE, MINDSPORE, TENSORBOARD
from ms_summary_bridge.runs.archive import make_decoder, source_of
from ms_summary_bridge.runs.graph_file import read_graph_file
from ms_summary_bridge.runs.log_files import CONVERT, SOURCE, LogFile
from ms_summary_bridge.runs.reading import RunReading, read_restored
from ms_summary_bridge.values import Scalar

__all__ = ["SourceSide", "take_carried", "take_encoding"]


class _Turn(msgspec.Struct, frozen=True):
    """A part of a file that was read in one go."""

    file: LogFile
    start: int
    end: int | None
    """None for all that follows."""
    begins_anew: bool = False
    """Behind it a training begins again."""


class SourceSide:
    """One run as the source of another, whose state may be known."""

    def __init__(self, task: RunTask, known: RunState | None) -> None:
        self._task = task
        self._run = run = task.run
        self._known = known
        self._output = TENSORBOARD if run.format == MINDSPORE else MINDSPORE
        self._is_ours = run.role == CONVERT
        self._has_archive = bool(run.archive_by_source.keys() & {self._output, LINEAGE})
        if known is None and not self._is_ours and len(run.files) > 1:
            known = self._convert_dry()
        turns = known.list_turns() if known is not None else []
        self.is_ordered = turns is not None
        """Whether it is known in which order the files were read."""
        self._turns = [*self._list_turns(turns or [], {} if known is None else known.files)]
        self._superseded = [] if known is None else known.superseded

    def _convert_dry(self) -> RunState:
        """Returns the state that a conversion would leave: it decides where a training begins again."""
        task = self._task
        plan = Plan(
            {relative_path(file.path, task.source): file.size for file in (*task.run.sources, *task.live_files)}
        )
        options = msgspec.structs.replace(task.options, dry_run=True)
        return convert_run(msgspec.structs.replace(task, options=options, state=RunState(plan=plan)))[1]

    def _list_turns(self, turns: list[tuple[str, int, bool]], known: dict[str, FileState]) -> Iterator[_Turn]:
        run = self._run
        by_path: dict[str, LogFile] = {}
        files = [*run.files, *self._task.live_files, *run.lineage_files, *run.graph_files]
        for file in files:
            path = relative_path(file.path, self._task.source)
            if path in known and is_same_file(file.path, file.size, known[path]):
                by_path[path] = file
        done: dict[str, int] = {}
        for path, end, begins_anew in turns:
            if path in by_path:
                start = done.get(path, 0)
                yield _Turn(by_path[path], start, max(start, end), begins_anew)
                done[path] = max(start, end)
        for file in files:
            start = done.get(relative_path(file.path, self._task.source), 0)
            if start < file.size:
                yield _Turn(file, start, None)

    def read(self, taker: Taker, reading: RunReading) -> None:
        """Gives out what the output is to have.

        Raises:
            LogdirError: A file cannot be read.
        """
        taking = _Taking(self._task, self._output, self._known, taker, has_archive=self._has_archive)
        if self._is_ours:
            for event in read_restored(self._run, reading):
                # Version events and marks of its own say nothing of what it was made from.
                if source_of(event) != self._run.format or not isinstance(event.content, (FileVersion, SessionLog)):
                    taking.put(event)
        else:
            self._read_turns(taking, reading)
        taking.end()
        reading.users += taking.users

    def _read_turns(self, taking: _Taking, reading: RunReading) -> None:
        live = {file.path for file in self._task.live_files}
        decoders: dict[str, Decoder] = {}
        shapes = Shapes(b"\x1d" if self._run.format == MINDSPORE else b"\x15")
        for turn in self._turns:
            path = turn.file.path
            if turn.file in self._run.graph_files:
                taking.put(read_graph_file(path))
                continue
            taking.superseded = self._find_superseded(turn)
            source = turn.file.record_format
            decoder = decoders.setdefault(source, make_decoder(source))
            reader = BatchReader(path, decoder, shapes, offset=turn.start, end=turn.end)
            for item in reader:
                if isinstance(item, Batch):
                    if path not in live:
                        taking.put_batch(item, decoder)
                elif isinstance(item, Event):
                    is_wanted = path not in live or (item.by_user and not isinstance(item.content, SessionLog))
                    if is_wanted and taking.put(item):
                        shapes.learn(reader.payload, item, None)
                elif not isinstance(item, Drawn):
                    reading.note(item, path)
            if turn.begins_anew:
                taking.forget()

    def _find_superseded(self, turn: _Turn) -> dict[Key, int]:
        """Returns for each series the step from which on a turn's values were left out."""
        path = relative_path(turn.file.path, self._task.source)
        return {
            (kind, tag, ""): step
            for file, start, end, kind, tag, step in self._superseded
            if file == path and turn.end is not None and start <= turn.start and turn.end <= end
        }


class _Taking:
    """Goes through the events of a source: what is left out, what is carried over, what is made."""

    def __init__(self, task: RunTask, output: str, known: RunState | None, taker: Taker, *, has_archive: bool) -> None:
        self.users = 0
        self._take = taker.take
        self._take_rows = taker.take_rows
        self._output = output
        self._format = task.run.format
        self._tags = compile_tags(task.options.tags)
        self._is_ours = task.run.role == CONVERT
        self._is_archived = has_archive
        self._keep_archive = task.options.keep_archive
        self._leaves_users = output == MINDSPORE and task.run.role != SOURCE
        self.superseded: dict[Key, int] = {}
        """For each series the step from which on its values were left out, since a restart replaces them."""
        self._owed: dict[Key, int] = {}
        self._last: dict[Key, tuple[int, bytes]] = {}
        self._keys: dict[str, Key] = {}  # of scalars, by their tag
        self._making = Making(
            output, known, keep_archive=self._keep_archive, is_own=self._is_ours, is_restored=self._is_archived
        )

    def forget(self) -> None:
        """Begins anew: no value of a session repeats one of the session before."""
        self._last.clear()

    def put(self, event: Event) -> bool:
        """Takes one event; returns whether the output is to have its values as they are, and nothing beside them."""
        content = event.content
        if type(content) is Summary:
            values = content.values
            if len(values) == 1 and event.original is None:
                tagged = values[0]
                value = tagged.value
                if type(value) is Scalar and len(value.bits) == 4 and tagged.original is None and _is_utf8(tagged.tag):
                    self._put_scalar(event, tagged.tag, value)
                    return True
            return self._put_summary(event, content)
        if isinstance(content, FileVersion):
            self._put_version(event)
        elif event.derived and (content.kind != "graph" or self._is_archived):
            pass
        elif self._leaves_users and event.by_user:
            self.users += 1
        else:
            self._carry(event)
        return False

    def put_batch(self, batch: Batch, decoder: Decoder) -> None:
        """Takes events of scalars alone, each of a shape that is carried over as it is."""
        points = points_of(batch)
        repeats = {
            tag: repeats_in(found.steps, found.bits, self._last.get((Scalar.kind, tag, "")))
            for tag, found in points.items()
        }
        notes_all = self._output == MINDSPORE and any(repeated.any() for repeated in repeats.values())
        if self.superseded or self._owed or notes_all:
            for event in batch.decode(decoder):
                self.put(event)
            return
        wall_times = batch.scan.wall_times[batch.first : batch.last]
        for tag, found in points.items():
            if self._tags is not None and not self._tags.search(tag):
                continue
            key = (Scalar.kind, tag, "")
            kept = ~repeats[tag]
            times = wall_times[found.rows]
            value = Scalar(found.bits[-1].tobytes())
            step = int(found.steps[-1])
            last = Event(float(times.max()), step, Summary((TaggedValue(tag, value),)), self._format)
            self._making.note_scalar(last, tag)
            self._last[key] = step, value.bits
            self._take_rows(key, pack_rows(found.steps[kept], times[kept], found.bits[kept]))

    def _put_scalar(self, event: Event, tag: str, value: Scalar) -> None:
        """The short way of most events of a long run: they are carried over as they are."""
        key = self._keys.get(tag)
        if key is None:
            if self._tags is not None and not self._tags.search(tag):
                return
            key = self._keys[tag] = (Scalar.kind, tag, "")
        if (self.superseded or self._owed) and self._is_superseded(event, key):
            return
        self._making.note_scalar(event, tag)
        bits = value.bits
        if not self._is_ours:
            last = (event.step, bits)
            if self._last.get(key) == last:
                return
            self._last[key] = last
        self._take(key, event.step, event.wall_time, bits)

    def _put_summary(self, event: Event, content: Summary) -> bool:
        if self._leaves_users and event.by_user:
            self.users += len(content.values)
            return False
        values = content.values
        if self._tags is not None:
            values = tuple(tagged for tagged in values if self._tags.search(tagged.tag))
        if self.superseded or self._owed:
            values = tuple(t for t in values if not self._is_superseded(event, (t.value.kind, t.tag, "")))
        if len(values) < len(content.values):
            event = Event(event.wall_time, event.step, Summary(values), event.format)
        if not self._is_ours:
            fresh = tuple(tagged for tagged in values if not self._repeats(event, tagged))
            if len(fresh) < len(values) and event.original is None:
                values = fresh
                event = Event(event.wall_time, event.step, Summary(values), event.format)
        return bool(values or not content.values) and self._carry(event)

    def _is_superseded(self, event: Event, key: Key) -> bool:
        """Whether a point was left out; then the series is to have one at its step or below later on."""
        if event.step >= self.superseded.get(key, event.step + 1):
            self._owed[key] = min(event.step, self._owed.get(key, event.step))
            return True
        if event.step <= self._owed.get(key, event.step - 1):
            del self._owed[key]
        return False

    def _repeats(self, event: Event, tagged: TaggedValue) -> bool:
        key = (tagged.value.kind, tagged.tag, "")
        last = (event.step, tagged.value.fingerprint())
        if self._last.get(key) == last:
            return True
        self._last[key] = last
        return False

    def _put_version(self, event: Event) -> None:
        self._making.note_version(event)
        if self._keep_archive and event.format != self._output:
            take_carried(event, self._take)

    def _carry(self, event: Event) -> bool:
        """Takes what becomes of an event; returns whether that is the event itself, and nothing beside it."""
        is_carried, others, items = self._making.carries(event)
        for carried in [event] if is_carried else others:
            take_carried(carried, self._take)
        if is_carried and self._making.has_archived:
            take_encoding(event, self._take)
        for item in items:
            self._take(*item)
        return is_carried and not items and not self._making.has_archived

    def end(self) -> None:
        """Says that this was all."""
        for (kind, tag, _), step in self._owed.items():  # left out, and nothing replaces it
            self._take((kind, tag, ""), step, 0.0, b"")
        events, items = self._making.end()
        for event in events:
            take_carried(event, self._take)
        for item in items:
            self._take(*item)


def take_carried(event: Event, take: Take) -> None:
    """Gives out the points of an event that are not made from others, and what is around them and not understood."""
    content = event.content
    if event.original is not None:
        take((ENCODING, "", ""), event.step, event.wall_time, hashlib.blake2b(event.original, digest_size=16).digest())
    if isinstance(content, Summary):
        for tagged in content.values:
            if not tagged.derived:
                value = tagged.value
                take((value.kind, tagged.tag, ""), event.step, event.wall_time, value.fingerprint())
    elif event.derived:
        pass
    elif isinstance(content, (FileVersion, SessionLog)):
        text = repr(content).encode(errors="surrogatepass")
        take((content.kind, source_of(event), ""), event.step, event.wall_time, text)
    else:
        take((content.kind, "", ""), event.step, event.wall_time, content.fingerprint())


def take_encoding(event: Event, take: Take) -> None:
    """Gives out in which encoding the values of an archived event were: it is to come back in the same."""
    if isinstance(event.content, Summary):
        for tagged in event.content.values:
            if tagged.original is not None:
                digest = hashlib.blake2b(tagged.original, digest_size=16).digest()
                take((ENCODING, tagged.tag, ""), event.step, event.wall_time, digest)


def _is_utf8(tag: str) -> bool:
    return tag.isascii() or not any("\ud800" <= character <= "\udfff" for character in tag)
