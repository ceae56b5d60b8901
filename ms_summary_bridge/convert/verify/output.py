"""The output side of a conversion: what an output of ours has, with the originals that its archives keep.

An original counts only where the output has what stands for it, whole and once.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from itertools import islice
from typing import Final, TypeAlias

from crc32c import crc32c

from ms_summary_bridge.batches.histograms import Drawn
from ms_summary_bridge.batches.reader import Batch, BatchReader
from ms_summary_bridge.batches.shapes import Shapes
from ms_summary_bridge.convert.batches import points_of
from ms_summary_bridge.convert.state import OutputState, RunState
from ms_summary_bridge.convert.verify.made import lineage_items, made_items
from ms_summary_bridge.convert.verify.series import Key, Take, Taker, pack_rows
from ms_summary_bridge.convert.verify.source import take_carried, take_encoding
from ms_summary_bridge.errors import counted
from ms_summary_bridge.events import Decoder, Event, FileVersion, SessionLog
from ms_summary_bridge.files.event_file import CHUNK_BYTES, EventFileReader
from ms_summary_bridge.files.file_names import LINEAGE, MINDSPORE, TENSORBOARD, archive_name
from ms_summary_bridge.files.system import open_regular
from ms_summary_bridge.runs.archive import ArchivePosition, make_decoder, place_in
from ms_summary_bridge.runs.log_files import CONVERT, LogFile
from ms_summary_bridge.runs.logdir import Run
from ms_summary_bridge.runs.reading import RunReading
from ms_summary_bridge.values import Scalar

__all__ = ["changed_files", "read_output"]

_AHEAD: Final = 64  # originals, or events, that are looked through for one that stands where another was to be

_Shown: TypeAlias = tuple[Event, bytes]
"""An event of the output, and its payload."""


def read_output(run: Run, taker: Taker, reading: RunReading, orphans: dict[Key, int]) -> None:
    """Gives out what an output has; `reading` is filled with what is wrong with its files.

    `orphans` is filled with the first step of each series at which an archive has an original and the output does not
    have what stands for it.

    Raises:
        LogdirError: A file cannot be read.
    """
    take = taker.take
    archives = run.archive_by_source
    source = TENSORBOARD if run.format == MINDSPORE else MINDSPORE
    shapes = Shapes(b"\x1d" if run.format == MINDSPORE else b"\x15")
    originals = _read_archive(archives, source, take, reading)
    standing = _Standing(_read_files(run, take, reading, shapes), originals, orphans)
    for shown in standing.events():
        if isinstance(shown, Batch):
            _take_batch(shown, taker)
            continue
        _take_event(*shown, run, standing, take)
        if standing.is_done:
            shapes.learn(shown[1], shown[0], None)
    for original in standing.rest():
        _take_original(original, take)
    _read_lineage(run, archives, take, reading)
    for _, original in _read_archive(archives, LINEAGE, take, reading):
        _take_original(original, take)


def _read_files(run: Run, take: Take, reading: RunReading, shapes: Shapes) -> Iterator[_Shown | Batch]:
    """Yields the events that have a place in the order of an output; what else its files hold is taken."""
    decoder = make_decoder(run.format)
    for file in run.files:
        if file.is_lineage:
            continue
        is_first = True
        for item in _events(file, decoder, reading, shapes):
            event = next(item.decode(decoder)) if isinstance(item, Batch) else item[0]
            is_version = isinstance(event.content, FileVersion)
            # Each file begins with its version and has no other; what is restored has those of its source.
            if run.role == CONVERT and is_version != is_first:
                take((FileVersion.kind, os.path.basename(file.path), ""), event.step, event.wall_time, b"")
            is_first = False
            if isinstance(event.content, SessionLog):
                if run.role != CONVERT:  # those of its source
                    take_carried(event, take)
            elif not is_version:
                yield item


def _take_batch(batch: Batch, taker: Taker) -> None:
    wall_times = batch.scan.wall_times[batch.first : batch.last]
    for tag, found in points_of(batch).items():
        taker.take_rows((Scalar.kind, tag, ""), pack_rows(found.steps, wall_times[found.rows], found.bits))


def _take_original(event: Event, take: Take) -> None:
    take_carried(event, take)
    take_encoding(event, take)


def _take_event(event: Event, payload: bytes, run: Run, standing: _Standing, take: Take) -> None:
    before, original = standing.match(crc32c(payload))
    for earlier in before:
        _take_original(earlier, take)
    if original is not None:
        _take_original(original[1], take)
        items = made_items(event, payload, run.format, original[1], original[0].derivation)
    else:
        take_carried(event, take)
        items = made_items(event, payload, run.format)
    for item in items:
        take(*item)


def _read_lineage(run: Run, archives: dict[str, str], take: Take, reading: RunReading) -> None:
    """Reads the file of what lineage, or a session, becomes."""
    for file in run.sources:
        if not file.is_lineage:
            continue
        kept = []
        for shown in _events(file, make_decoder(file.record_format), reading, Shapes(b"")):
            assert not isinstance(shown, Batch)  # of shapes that nothing was learned of
            event, payload = shown
            kept.append(payload)
            is_own = run.format == TENSORBOARD or (run.role == CONVERT and event.content.kind != "dataset_graph")
            if isinstance(event.content, FileVersion) or (run.format == MINDSPORE and is_own):
                continue
            if run.format == MINDSPORE or LINEAGE not in archives:
                take_carried(event, take)
        if run.format == TENSORBOARD or run.role == CONVERT:
            for item in lineage_items(kept, run.format):
                take(*item)


def _events(file: LogFile, decoder: Decoder, reading: RunReading, shapes: Shapes) -> Iterator[_Shown | Batch]:
    reader = BatchReader(file.path, decoder, shapes)
    for item in reader:
        if isinstance(item, Batch):
            yield item
        elif isinstance(item, Event):
            yield item, reader.payload
        elif not isinstance(item, Drawn):
            reading.note(item, file.path)


def _read_archive(
    archives: dict[str, str], source: str, take: Take, reading: RunReading
) -> Iterator[tuple[ArchivePosition, Event]]:
    """Yields originals with their places; a record that is neither, or stands where it should not, is a difference."""
    if source not in archives:
        return
    path = archives[source]
    place: ArchivePosition | None = None
    is_first = True
    for item in EventFileReader(path, make_decoder(source)):
        if not isinstance(item, Event):
            reading.note(item, path)
            continue
        found = place_in(item)
        is_version = found is None and isinstance(item.content, FileVersion)
        if not (is_version if is_first else (found is None) != (place is None)):
            take(("archive record", source, ""), item.step, item.wall_time, b"")
        elif place is not None:
            yield place, item
        place, is_first = found, False


class _Standing:
    """Finds for each event of an output the original that it stands for.

    Both are in one order, and checksums tell them; so one that is missing, doubled or changed costs no other its
    original.
    """

    def __init__(
        self,
        output: Iterator[_Shown | Batch],
        archive: Iterator[tuple[ArchivePosition, Event]],
        orphans: dict[Key, int],
    ) -> None:
        self._orphans = orphans
        self._output = output
        self._coming: deque[_Shown | Batch] = deque()  # read ahead of the output
        self._archive = archive
        self._ahead: deque[tuple[ArchivePosition, Event]] = deque()
        self._marks: Counter[int] = Counter()
        self._number = 0

    @property
    def is_done(self) -> bool:
        """Whether the originals are at their end: then events may come in batches, which need not be matched."""
        self._fill()
        return not self._ahead

    def events(self) -> Iterator[_Shown | Batch]:
        """Yields the events of the output; each is to be matched before the next one."""
        while (shown := self._coming.popleft() if self._coming else next(self._output, None)) is not None:
            yield shown

    def match(self, mark: int) -> tuple[list[Event], tuple[ArchivePosition, Event] | None]:
        """Takes the present event of the output; returns originals that stand before it, and the one it stands for."""
        self._fill()
        before: list[Event] = []
        while self._ahead and not self._ahead[0][0].replaces and self._ahead[0][0].number <= self._number:
            before.append(self._pop()[1])
            self._fill()
        self._number += 1
        if not self._marks[mark] or self._is_early(mark):
            return before, None
        while self._ahead[0][0].mark != mark:
            before += self._without_event(*self._pop())
        place = self._ahead[0][0]
        self._number = place.number
        return before, self._pop() if place.replaces else None

    def _is_early(self, mark: int) -> bool:
        """Whether this event only looks like one that comes later: of the next place the event is still to come."""
        first = self._ahead[0][0]
        missing = first.number - self._number
        return missing > 0 and (first.mark != mark or self._comes_again(mark, min(missing, _AHEAD)))

    def _comes_again(self, mark: int, within: int) -> bool:
        """Whether one of so many events that follow looks alike; where none does, events before it are gone."""
        while len(self._coming) < within and (shown := next(self._output, None)) is not None:
            self._coming.append(shown)
        return any(crc32c(shown[1]) == mark for shown in islice(self._coming, within) if not isinstance(shown, Batch))

    def rest(self) -> Iterator[Event]:
        """Yields the originals behind the last event that nothing stands for."""
        self._fill()
        while self._ahead:
            yield from self._without_event(*self._pop())
            self._fill()

    def _without_event(self, place: ArchivePosition, original: Event) -> Iterator[Event]:
        """Yields an original that counts though no event stands for it."""
        if not place.replaces:
            yield original
            return

        def note(key: Key, step: int, wall_time: float, fingerprint: bytes | None) -> None:
            self._orphans.setdefault(key, step)

        take_carried(original, note)

    def _fill(self) -> None:
        while len(self._ahead) < _AHEAD and (entry := next(self._archive, None)) is not None:
            self._ahead.append(entry)
            self._marks[entry[0].mark] += 1

    def _pop(self) -> tuple[ArchivePosition, Event]:
        entry = self._ahead.popleft()
        self._marks[entry[0].mark] -= 1
        if not self._marks[entry[0].mark]:
            del self._marks[entry[0].mark]
        return entry


# ------------------------------------------------------------------ files


def changed_files(directory: str, known: RunState) -> dict[str, str]:
    """Returns the files of an output whose bytes are not those that the conversion wrote, each with what is wrong."""
    files = [*known.outputs]
    files += [
        OutputState(archive_name(s), end, "", known.archive_checksums.get(s)) for s, end in known.archives.items()
    ]
    if known.lineage:
        files.append(OutputState(known.lineage, -1, "", known.lineage_checksum))
    changes = {file.name: _change(os.path.join(directory, file.name), file) for file in files if file.offset}
    return {name: reason for name, reason in changes.items() if reason}


def _change(path: str, file: OutputState) -> str:
    checksum, left = 0, file.offset
    try:
        with open(path, "rb", buffering=0, opener=open_regular) as stream:
            while left and (chunk := stream.read(CHUNK_BYTES if left < 0 else min(left, CHUNK_BYTES))):
                checksum = crc32c(chunk, checksum)
                left -= len(chunk) if left > 0 else 0
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if left > 0:
        return f"is {counted(left, 'byte')} shorter than what was written"
    is_known = file.checksum is not None
    return "its bytes are not those that were written" if is_known and checksum != file.checksum else ""
