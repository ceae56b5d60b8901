"""What the page tells of the event files of one process: read once, and then only what has been added.

Imports no tensorboard.

How the training is, `states` says. A run whose archives hold a part of it has no order by file alone, and is read again
as a whole when it has changed.
"""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from ms_summary_bridge.batches.histograms import Drawn
from ms_summary_bridge.batches.reader import Batch, BatchReader
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.columns.growing import Columns, GrowingColumns
from ms_summary_bridge.errors import BridgeError, EventDecodeError
from ms_summary_bridge.events import Decoder, Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.files.records import Damage, Incomplete, Padding
from ms_summary_bridge.formats.plugin_data import read_first_text
from ms_summary_bridge.formats.sessions import hparams
from ms_summary_bridge.formats.sessions.lineage import read_lineage
from ms_summary_bridge.formats.sessions.session import SESSION_KINDS, Session
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.log_files import LogFile
from ms_summary_bridge.runs.logdir import Run
from ms_summary_bridge.runs.reading import RunReading, read_restored
from ms_summary_bridge.runs.report import DamagedRange
from ms_summary_bridge.states.facts import is_of_evaluation, role_of
from ms_summary_bridge.tensorboard_plugin.series_facts import NonFinite, ScalarFacts, Sparkline
from ms_summary_bridge.values import Histogram, Image, Opaque, Scalar, Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["RunFacts"]

_BATCH: Final = 256
_CHUNK_BYTES: Final = 1 << 20  # read at a time, while everybody else waits
_MOST_TAGS: Final = 10_000
_MOST_LISTED: Final = 200
_MILESTONES: Final = "milestones/"
_GRAPHS: Final = ("graph", "dataset_graph")
_DASHBOARDS: Final = {
    "graph": "graphs",
    "hparams": "hparams",
    "mesh": "mesh",
    "text": "text",
    "dataset_graph": "text",  # what a conversion makes of them
    "landscape": "mesh",
}


class _FileReading(msgspec.Struct):
    decoder: Decoder
    inode: int
    offset: int = 0


class RunFacts:
    """What has been read of one run.

    Attributes:
        changes: Rises with whatever is read.
        events: How many have been read.
        scalars: By tag.
        sparklines: Of the tags that look like a loss.
        histograms: What was not finite, by tag.
        other_tags: Of what is no scalar; of a graph its kind, which has none.
        kinds: TensorBoard's dashboards that have something of it.
        lineage: Last record of each kind.
        dataset_graph: The last one's event; None when there is none.
        milestones: `(step, wall_time, tag, text)`, the newest of them.
        damaged: By file and start.
        damaged_count: Of all, also those that are not kept.
        incomplete: Files that end inside a record, with the place.
        unread: What was carried without being understood: `(kind, reason)` and how often.
        first_time: Of the first event; 0 before there is one.
        last_time: Of the newest event.
        last_step: The highest of a scalar; None before there is one.
        error: What ended the reading; empty when nothing did.
    """

    def __init__(self) -> None:
        self._files: dict[str, _FileReading] = {}
        self._mark: object = None
        self.changes = 0
        self._reset()

    def _reset(self) -> None:
        self._files.clear()
        self._shapes: dict[str, Shapes] = {}
        self._columns = GrowingColumns(lambda tag: len(self._columns.tags) < _MOST_TAGS)
        self.changes += 1
        self.events = 0
        self.scalars: dict[str, ScalarFacts] = {}
        self.sparklines: dict[str, Sparkline] = {}
        self.histograms: dict[str, NonFinite] = {}
        self.other_tags: set[str] = set()
        self.kinds: set[str] = set()
        self.lineage: dict[str, bytes] = {}
        self.dataset_graph: bytes | None = None
        self.milestones: deque[tuple[int, float, str, str]] = deque(maxlen=_MOST_LISTED)
        self.damaged: dict[tuple[str, int], DamagedRange] = {}
        self.damaged_count = 0
        self.incomplete: dict[str, int] = {}
        self.unread: dict[tuple[str, str], int] = {}
        self.first_time = self.last_time = 0.0
        self.last_step: int | None = None
        self.error = ""
        self._hparams: dict[str, bytes] = {}
        self._start_times: list[float] = []
        self._begun: set[str] = set()  # losses that the file has which was begun last

    # ------------------------------------------------------------------ reading

    def read(self, run: Run, twins: list[Run]) -> Iterator[None]:
        """Reads what is new, and pauses now and then, so that the caller may rest or stop.

        Args:
            run: As `discover` found it; its files may have grown since.
            twins: What our callback wrote beside it: the milestones are there alone.
        """
        try:
            self.error = ""
            if run.archives:
                yield from self._read_whole(run)
                return
            if any(self._is_replaced(file) for file in run.sources):
                self._reset()
            if run.graph_files:
                self.kinds.add("graphs")
                self.other_tags.add("graph")
            for file in (*run.files, *run.lineage_files):
                yield from self._read_file(file)
            for twin in twins:
                for file in twin.files:
                    yield from self._read_file(file, is_twin=True)
        except BridgeError as error:
            self.error = str(error)
        finally:
            self._gather()

    def _is_replaced(self, file: LogFile) -> bool:
        reading, status = self._files.get(file.path), _stat(file.path)
        return reading is not None and (status[0] < reading.offset or status[1] != reading.inode)

    def _read_file(self, file: LogFile, *, is_twin: bool = False) -> Iterator[None]:
        size, inode = _stat(file.path)
        reading = self._files.setdefault(file.path, _FileReading(make_decoder(file.record_format), inode))
        if reading.offset >= size:
            return
        self.incomplete.pop(file.path, None)
        shapes = self._shapes.setdefault(file.record_format, Shapes(b"\x1d" if file.format == MINDSPORE else b"\x15"))
        reader = BatchReader(file.path, reading.decoder, shapes, offset=reading.offset, chunk_bytes=_CHUNK_BYTES)
        for number, item in enumerate(reader, 1):
            self.changes += 1
            if isinstance(item, Batch):
                if not is_twin:
                    self._take_batch(item)
            elif not isinstance(item, Event):
                assert not isinstance(item, Drawn)
                self._note(item, file.path)
            else:
                if is_twin:
                    self._take_milestones(item)
                else:
                    self._take(item)
                if reader.payload:
                    shapes.learn(reader.payload, item, None)
            reading.offset = reader.offset
            if number % _BATCH == 0 or isinstance(item, Batch):
                self._gather()
                yield

    def _read_whole(self, run: Run) -> Iterator[None]:
        mark = [(file.path, _stat(file.path)) for file in run.sources]
        if mark == self._mark:
            return
        self._reset()
        reading = RunReading()
        for number, event in enumerate(read_restored(run, reading), 1):
            self._take(event)
            if number % _BATCH == 0:
                self._gather()
                yield
        for damage in reading.damaged:
            self._add_damage(damage)
        self.incomplete = {tail.file: tail.offset for tail in reading.incomplete}
        self.changes += 1
        self._mark = mark

    def _note(self, item: Damage | Padding | Incomplete, path: str) -> None:
        if isinstance(item, Damage):
            self._add_damage(DamagedRange(path, item.start, item.end, item.reason))
        elif isinstance(item, Incomplete):
            self.incomplete[path] = item.offset

    def _add_damage(self, damage: DamagedRange) -> None:
        key = damage.file, damage.start  # what stands at the end of a file is met again each time it has grown
        if key not in self.damaged:
            self.damaged_count += 1
        if key in self.damaged or len(self.damaged) < _MOST_LISTED:
            self.damaged[key] = damage

    # ------------------------------------------------------------------ one event

    def _take_batch(self, batch: Batch) -> None:
        times = batch.scan.wall_times[batch.first : batch.last]
        self.events += batch.events
        times = times[times > 0]
        if len(times):
            self._live(float(times.min()), float(times.max()))
        self._columns.add_batch(batch)

    def _live(self, first: float, last: float) -> None:
        self.first_time = min(self.first_time or first, first)
        self.last_time = max(self.last_time, last)

    def _take(self, event: Event) -> None:
        content = event.content
        self.events += 1
        if isinstance(content, FileVersion):
            self._start_times.append(event.wall_time)
            self._gather()
            self._begun = set()
            return
        if event.wall_time > 0:  # zero where a writer gave none
            self._live(event.wall_time, event.wall_time)
        if isinstance(content, Summary):
            self._columns.add_event(event)
            self._take_milestones(event)
            for tagged in content.values:
                self._take_value(event, tagged)
        elif isinstance(content, Opaque):
            if content.kind in SESSION_KINDS:
                self.kinds.add("hparams")
                self.lineage[content.kind] = content.payload
            elif content.kind in _GRAPHS:
                self.other_tags.add(content.kind)
                self.dataset_graph = content.payload if content.kind == "dataset_graph" else self.dataset_graph
            self._count_unread(content)

    def _gather(self) -> None:
        """Takes the scalars that have come since the last time."""
        columns = self._columns.take()
        if not len(columns.tag):
            return
        self.changes += 1
        self.kinds.add("scalars")
        highest = int(columns.step.max())
        self.last_step = highest if self.last_step is None else max(self.last_step, highest)
        order = np.argsort(columns.tag, kind="stable")
        places = np.flatnonzero(np.diff(columns.tag[order])) + 1
        for part in np.split(order, places):
            tag = self._columns.tags[columns.tag[part[0]]]
            facts = self.scalars.setdefault(tag, ScalarFacts())
            is_loss = role_of(tag) == "loss"
            if is_loss and facts.count and tag not in self._begun and not is_of_evaluation(tag):
                facts = self._begin_again(tag, facts, columns, part)
            steps, values = facts.add(columns.step[part], columns.wall_time[part], columns.value[part])
            if is_loss:
                self._begun.add(tag)
                self.sparklines.setdefault(tag, Sparkline()).add(steps, values)

    def _begin_again(self, tag: str, facts: ScalarFacts, columns: Columns, part: npt.NDArray[np.intp]) -> ScalarFacts:
        """Forgets of a loss what the training in another file replaces, which began after its end."""
        lowest, begins = int(columns.step[part].min()), float(columns.wall_time[part].min())
        if begins < facts.last_time or lowest > facts.last_step:
            return facts
        self.sparklines[tag].replace(lowest)
        if facts.first_step is None or lowest > facts.first_step:
            return facts
        self.scalars[tag] = ScalarFacts()
        return self.scalars[tag]

    def _take_value(self, event: Event, tagged: TaggedValue) -> None:
        value, tag, step = tagged.value, tagged.tag, event.step
        if not isinstance(value, Scalar) and not tagged.derived and len(self.other_tags) < _MOST_TAGS:
            self.other_tags.add(tag)
        if isinstance(value, Histogram):
            self.kinds.add("histograms")
            if not tagged.derived and (tag in self.histograms or len(self.histograms) < _MOST_TAGS):
                self.histograms.setdefault(tag, NonFinite()).add_histogram(step, value)
        elif isinstance(value, Image):
            self.kinds.add("images")
        elif isinstance(value, Tensor):
            self.kinds |= {"histograms", "text"}  # as a conversion shows it
        elif isinstance(value, Opaque):
            if value.kind == "hparams":
                self._hparams[tag] = value.payload
            self._count_unread(value)

    def _count_unread(self, value: Opaque) -> None:
        if value.kind in _DASHBOARDS:
            self.kinds.add(_DASHBOARDS[value.kind])
        key = value.kind, value.reason
        if value.reason and (key in self.unread or len(self.unread) < _MOST_LISTED):
            self.unread[key] = self.unread.get(key, 0) + 1

    def _take_milestones(self, event: Event) -> None:
        if not isinstance(event.content, Summary):
            return
        for tagged in event.content.values:
            if tagged.tag.startswith(_MILESTONES) and isinstance(tagged.value, Opaque):
                text = ""
                with contextlib.suppress(EventDecodeError):
                    text = read_first_text(tagged.value.payload)
                self.milestones.append((event.step, event.wall_time, tagged.tag.removeprefix(_MILESTONES), text))

    # ------------------------------------------------------------------ what it comes to

    @property
    def session(self) -> Session:
        """What the lineage says, or the HParams session where there is no lineage."""
        if not self.lineage and self._hparams:
            return hparams.read_session(self._hparams, {}) or Session()
        return read_lineage(self.lineage, self._start_times)


def _stat(path: str) -> tuple[int, int]:
    """Returns size and inode; 0 where it is gone."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_size, status.st_ino
