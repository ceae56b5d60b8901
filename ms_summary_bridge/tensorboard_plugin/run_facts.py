"""What the dashboard tells of one run's event files: read once, and then only what has been added.

Imports no tensorboard.

A run whose archives hold a part of it has no order by file alone, and is read again as a whole when it has changed.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import statistics
from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from ms_summary_bridge.errors import BridgeError, EventDecodeError
from ms_summary_bridge.events import Decoder, Event, FileVersion, Summary, TaggedValue
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.records import Damage, Incomplete, Padding
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.sessions import hparams
from ms_summary_bridge.formats.sessions.lineage import read_lineage
from ms_summary_bridge.formats.sessions.session import SESSION_KINDS, Session
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.log_files import LogFile
from ms_summary_bridge.runs.logdir import Run
from ms_summary_bridge.runs.reading import RunReading, read_restored
from ms_summary_bridge.runs.report import DamagedRange
from ms_summary_bridge.tensorboard_plugin.series_facts import NonFinite
from ms_summary_bridge.values import Histogram, Opaque, Scalar

__all__ = ["RunFacts"]

_BATCH: Final = 256
_MOST_TAGS: Final = 10_000
_MOST_LISTED: Final = 200
_MOST_STEPS: Final = 100
_MILESTONES: Final = "milestones/"
_LOSS: Final = re.compile(r"(?:^|[/_. ])loss(?:$|[/_. ])", re.IGNORECASE)
_NO_LOSS: Final = re.compile(r"loss_scale", re.IGNORECASE)
_LIKELY: Final = ("loss/auto", "loss", "train/loss", "monitor/loss", "train_loss")


class _FileReading(msgspec.Struct):
    decoder: Decoder
    inode: int
    offset: int = 0


class RunFacts:
    """What has been read of one run.

    Attributes:
        events: How many have been read.
        histograms: What was not finite, by tag.
        losses: The lowest and its step, by tag.
        lineage: Last record of each kind.
        dataset_graph: The last one's event; None when there is none.
        milestones: `(step, wall_time, tag, text)`, the newest of them.
        damaged: By file and start.
        damaged_count: Of all, also those that are not kept.
        incomplete: Files that end inside a record, with the place.
        unread: What was carried without being understood: `(kind, reason)` and how often.
        first_time: Of the first event; 0 before there is one.
        last_time: Of the newest event.
        last_step: The newest step of a value.
        error: What ended the reading; empty when nothing did.
    """

    def __init__(self) -> None:
        self._files: dict[str, _FileReading] = {}
        self._mark: object = None
        self._reset()

    def _reset(self) -> None:
        self._files.clear()
        self.events = 0
        self.histograms: dict[str, NonFinite] = {}
        self.losses: dict[str, tuple[float, int]] = {}
        self.lineage: dict[str, bytes] = {}
        self.dataset_graph: bytes | None = None
        self.milestones: deque[tuple[int, float, str, str]] = deque(maxlen=_MOST_LISTED)
        self.damaged: dict[tuple[str, int], DamagedRange] = {}
        self.damaged_count = 0
        self.incomplete: dict[str, int] = {}
        self.unread: dict[tuple[str, str], int] = {}
        self.first_time = self.last_time = 0.0
        self.last_step = 0
        self.error = ""
        self._hparams: dict[str, bytes] = {}
        self._start_times: list[float] = []
        self._steps: deque[tuple[int, float]] = deque(maxlen=_MOST_STEPS)

    # ------------------------------------------------------------------ reading

    def read(self, run: Run, twins: list[Run]) -> Iterator[None]:
        """Reads what is new, and pauses now and then, so that the caller may rest or stop.

        Args:
            run: As `discover` found it.
            twins: What our callback wrote beside it: the milestones are there alone.
        """
        try:
            self.error = ""
            if run.archives:
                yield from self._read_whole(run)
                return
            if any(self._is_replaced(file) for file in run.sources):
                self._reset()
            for file in (*run.files, *run.lineage_files):
                yield from self._read_file(file)
            for twin in twins:
                for file in twin.files:
                    yield from self._read_file(file, is_twin=True)
        except BridgeError as error:
            self.error = str(error)

    def _is_replaced(self, file: LogFile) -> bool:
        reading = self._files.get(file.path)
        return reading is not None and (file.size < reading.offset or _inode(file.path) != reading.inode)

    def _read_file(self, file: LogFile, *, is_twin: bool = False) -> Iterator[None]:
        reading = self._files.setdefault(file.path, _FileReading(make_decoder(file.record_format), _inode(file.path)))
        if reading.offset >= file.size:
            return
        self.incomplete.pop(file.path, None)
        with EventFileReader(file.path, reading.decoder, offset=reading.offset) as reader:
            for number, item in enumerate(reader, 1):
                if not isinstance(item, Event):
                    self._note(item, file.path)
                elif is_twin:
                    self._take_milestones(item)
                else:
                    self._take(item)
                reading.offset = reader.offset
                if number % _BATCH == 0:
                    yield

    def _read_whole(self, run: Run) -> Iterator[None]:
        mark = [(file.path, file.size, _inode(file.path)) for file in run.sources]
        if mark == self._mark:
            return
        self._reset()
        reading = RunReading()
        for number, event in enumerate(read_restored(run, reading), 1):
            self._take(event)
            if number % _BATCH == 0:
                yield
        for damage in reading.damaged:
            self._add_damage(damage)
        self.incomplete = {tail.file: tail.offset for tail in reading.incomplete}
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

    def _take(self, event: Event) -> None:
        content = event.content
        self.events += 1
        if isinstance(content, FileVersion):
            self._start_times.append(event.wall_time)
            return
        if event.wall_time > 0:  # zero where a writer gave none
            self.first_time = min(self.first_time or event.wall_time, event.wall_time)
            self.last_time = max(self.last_time, event.wall_time)
        if isinstance(content, Summary):
            self._take_milestones(event)
            for tagged in content.values:
                self._take_value(event, tagged)
        elif isinstance(content, Opaque):
            if content.kind in SESSION_KINDS:
                self.lineage[content.kind] = content.payload
            elif content.kind == "dataset_graph":
                self.dataset_graph = content.payload
            self._count_unread(content)

    def _take_value(self, event: Event, tagged: TaggedValue) -> None:
        value, tag, step = tagged.value, tagged.tag, event.step
        if isinstance(value, Scalar):
            if not self._steps or step != self._steps[-1][0]:
                self._steps.append((step, event.wall_time))
            self.last_step = step
            if _LOSS.search(tag) and not _NO_LOSS.search(tag) and (tag in self.losses or len(self.losses) < _MOST_TAGS):
                best, _ = self.losses.setdefault(tag, (math.inf, 0))
                if value.value < best:  # never so for NaN
                    self.losses[tag] = value.value, step
        elif isinstance(value, Histogram):
            if not tagged.derived and (tag in self.histograms or len(self.histograms) < _MOST_TAGS):
                self.histograms.setdefault(tag, NonFinite()).add(step, value)
        elif isinstance(value, Opaque):
            if value.kind == "hparams":
                self._hparams[tag] = value.payload
            self._count_unread(value)

    def _count_unread(self, value: Opaque) -> None:
        key = value.kind, value.reason
        if value.reason and (key in self.unread or len(self.unread) < _MOST_LISTED):
            self.unread[key] = self.unread.get(key, 0) + 1

    def _take_milestones(self, event: Event) -> None:
        if not isinstance(event.content, Summary):
            return
        for tagged in event.content.values:
            if tagged.tag.startswith(_MILESTONES) and isinstance(tagged.value, Opaque):
                text = _text_of(tagged.value.payload)
                self.milestones.append((event.step, event.wall_time, tagged.tag.removeprefix(_MILESTONES), text))

    # ------------------------------------------------------------------ what it comes to

    @property
    def session(self) -> Session:
        """What the lineage says, or the HParams session where there is no lineage."""
        if not self.lineage and self._hparams:
            return hparams.read_session(self._hparams, {}) or Session()
        return read_lineage(self.lineage, self._start_times)

    @property
    def best_loss(self) -> tuple[str, float, int] | None:
        """Tag, value and step of the lowest point of the series that is most likely the training's loss."""
        finite = [tag for tag, (best, _) in self.losses.items() if math.isfinite(best)]
        if not finite:
            return None
        tag = min(finite, key=lambda tag: (_LIKELY.index(tag) if tag in _LIKELY else len(_LIKELY), tag))
        return tag, *self.losses[tag]

    @property
    def steps_per_second(self) -> float | None:
        """Of the last steps; None where the times do not tell."""
        pairs = itertools.pairwise(self._steps)
        rates = [(two[0] - one[0]) / (two[1] - one[1]) for one, two in pairs if two[0] > one[0] and two[1] > one[1]]
        return statistics.median(rates) if rates else None

    @property
    def interval_secs(self) -> float:
        """How long it usually takes until the next step is recorded; 0 where the times do not tell."""
        pairs = itertools.pairwise(self._steps)
        secs = [two[1] - one[1] for one, two in pairs if two[1] > one[1]]
        return statistics.median(secs) if secs else 0.0


def _inode(path: str) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _text_of(message: bytes) -> str:
    """Returns the text in a value's message: the first string of its tensor (field 8 of both)."""
    try:
        for key, start, end in wire.fields(message, 0, len(message)):
            if key == 0x42:
                for inner, first, last in wire.fields(message, start, end):
                    if inner == 0x42:
                        return message[first:last].decode("utf-8", "replace")
    except EventDecodeError:
        pass
    return ""
