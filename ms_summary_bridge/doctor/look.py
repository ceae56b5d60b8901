"""A bounded look at a directory: names, and heads and tails of files, whatever their number and sizes."""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from ms_summary_bridge.convert.state import STATE_NAME
from ms_summary_bridge.doctor.ends import EndReader
from ms_summary_bridge.doctor.processes import find_writers
from ms_summary_bridge.errors import EventDecodeError, RecordError
from ms_summary_bridge.events import Event, FileVersion, Summary
from ms_summary_bridge.files.file_names import (
    LINEAGE,
    LINEAGE_SUFFIX,
    MINDSPORE,
    TENSORBOARD,
    archive_source,
    format_of_name,
    is_archive,
)
from ms_summary_bridge.files.records import Damage, Incomplete, Padding, Record, decode_record
from ms_summary_bridge.formats.plugin_data import WRITER_CONVERT, WRITER_LIVE
from ms_summary_bridge.monitor.sinks.journal import JOURNAL
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.log_files import CONVERT, LIVE, SOURCE, EnvelopeDecoder
from ms_summary_bridge.values import Scalar

__all__ = ["FILES", "FileFacts", "LogFacts", "look_at"]

_ENTRIES: Final = 20_000  # as many as MindInsight looks at
FILES: Final = 200
_DECODED: Final = 500  # records at a head, and at a tail: enough for every tag of a step
_OTHERS: Final = 200  # files of other names that are looked at
_VERSION_BYTES: Final = 256
_WRITERS: Final = {WRITER_LIVE: LIVE, WRITER_CONVERT: CONVERT}


class FileFacts(msgspec.Struct, frozen=True):
    """One event file, lineage file or archive."""

    path: str
    name: str
    """Path below the target, with slashes."""
    size: int = 0
    mtime: float = 0.0
    mode: int = 0
    format: str = MINDSPORE
    """By its name."""
    is_lineage: bool = False
    is_archive: bool = False
    is_link: bool = False
    """It is a symbolic link, or below one."""
    content: str = ""
    """The format that its version event speaks of; empty without one."""
    role: str = SOURCE
    events: int = 0
    """Whole events in what was read, beyond the version."""
    kinds: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    nonfinite: frozenset[str] = frozenset()
    """Those of scalars of which every value is NaN or infinite."""
    steps: tuple[int, ...] = ()
    """Different steps in what was read, ascending."""
    last_time: float = 0.0
    """Latest wall time in what was read; 0 for none."""
    damage: str = ""
    """Where and why, of the first damaged bytes that were met."""
    padding: int = 0
    """Zero bytes at its end."""
    cut: int = -1
    """Where a record begins that the file ends in; -1 for none."""
    problem: str = ""
    """Why it cannot be read."""
    pids: tuple[int, ...] = ()
    """Processes of this user that hold it open for writing."""

    @property
    def directory(self) -> str:
        """Its directory below the target; `.` for the target itself."""
        return os.path.dirname(self.name) or "."

    @property
    def is_data(self) -> bool:
        """Whether a viewer would look at it for values."""
        return not (self.is_lineage or self.is_archive)


class LogFacts(msgspec.Struct):
    """What is below one target."""

    target: str
    exists: bool = True
    files: list[FileFacts] = []
    passed_over: int = 0
    """Event files that were not looked into, since newer ones were."""
    is_cut_short: bool = False
    """There is more below it than was listed."""
    journals: list[str] = []
    """Directories with the journal of a monitor."""
    states: list[str] = []
    """Directories that a conversion wrote into."""
    graphs: list[str] = []
    """Files `*.pb`."""
    misnamed: list[str] = []
    """Files that begin like event files and have another name."""
    packed: list[str] = []
    """Archives and compressed files, in which nobody looks."""
    unlisted: list[str] = []
    """Directories that cannot be listed, with the reason."""
    bytes_read: int = 0

    @property
    def data_files(self) -> list[FileFacts]:
        """Without lineage files and archives."""
        return [file for file in self.files if file.is_data]


def look_at(target: str) -> LogFacts:
    """Looks at a directory or a file; reads a bounded part of it."""
    log = LogFacts(target, exists=os.path.exists(target))
    reader = EndReader()
    found: list[FileFacts] = []
    others: list[str] = []
    if os.path.isfile(target):
        _sort_in(target, os.path.basename(target), False, log, found, others)
    elif log.exists:
        _walk(log, found, others)
    found.sort(key=lambda file: -file.mtime)
    kept = found[:FILES]
    log.passed_over = len(found) - len(kept)
    writers = find_writers([file.path for file in kept])
    log.files = [_look_into(file, reader, writers.get(os.path.realpath(file.path), ())) for file in kept]
    log.files.sort(key=lambda file: file.name)
    for path in others[:_OTHERS]:
        with contextlib.suppress(OSError):
            if _begins_like_events(reader.read(path, 0, _VERSION_BYTES)):
                log.misnamed.append(os.path.relpath(path, target))
    log.bytes_read = reader.bytes_read
    return log


def _begins_like_events(head: bytes) -> bool:
    """Whether the first record is a version event, as other files of records have none."""
    try:
        return bool(_first_event([decode_record(head).payload])[0])
    except RecordError:
        return False


def _walk(log: LogFacts, found: list[FileFacts], others: list[str]) -> None:
    pending = deque([(log.target, "", False)])
    seen: set[tuple[int, int]] = set()
    entries = 0
    while pending:
        path, prefix, is_link = pending.popleft()
        try:
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(path) as listing:
                inner = sorted(listing, key=lambda entry: entry.name)
        except OSError as error:
            log.unlisted.append(f"{path}: {error.strerror or error}")
            continue
        for entry in inner:
            entries += 1
            if entries > _ENTRIES:
                log.is_cut_short = True
                return
            linked = is_link or entry.is_symlink()
            if os.path.isdir(entry.path):  # `entry.is_dir` raises for a link that leads to itself
                pending.append((entry.path, f"{prefix}{entry.name}/", linked))
            else:
                _sort_in(entry.path, prefix + entry.name, linked, log, found, others)


def _sort_in(path: str, name: str, is_link: bool, log: LogFacts, found: list[FileFacts], others: list[str]) -> None:
    """Puts one file where it belongs by its name."""
    base = os.path.basename(name)
    directory = os.path.dirname(path) or "."
    if base == STATE_NAME:
        log.states.append(directory)
    elif base == JOURNAL:
        log.journals.append(directory)
    elif base.endswith((".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".zst")):
        log.packed.append(name)
    elif base.endswith(".pb"):
        log.graphs.append(name)
    elif base.startswith("."):
        return
    elif (is_archive(base) or format_of_name(base)) and not base.endswith("_explain"):
        found.append(_stat(path, name, is_link))
    elif os.path.isfile(path):  # opening a pipe would wait for its other end
        others.append(path)


def _stat(path: str, name: str, is_link: bool) -> FileFacts:
    base = os.path.basename(name)
    kept = is_archive(base)
    source = archive_source(path) if kept else ""
    by_name = (MINDSPORE if source == LINEAGE else source) if kept else format_of_name(base)
    is_lineage = source == LINEAGE or base.endswith("_lineage" if by_name == MINDSPORE else LINEAGE_SUFFIX)
    facts = FileFacts(path, name, format=by_name, is_lineage=is_lineage, is_archive=kept, is_link=is_link)
    try:
        status = os.stat(path)
    except OSError as error:
        return msgspec.structs.replace(facts, problem=error.strerror or str(error))
    problem = "" if stat.S_ISREG(status.st_mode) else "not a regular file"
    mode = stat.S_IMODE(status.st_mode)
    return msgspec.structs.replace(facts, size=status.st_size, mtime=status.st_mtime, mode=mode, problem=problem)


def _look_into(file: FileFacts, reader: EndReader, pids: Iterable[int]) -> FileFacts:
    if file.problem:
        return file
    try:
        pieces = reader.read_ends(file.path, file.size)
    except OSError as error:
        return msgspec.structs.replace(file, problem=error.strerror or str(error))
    damages = [piece for piece in pieces if isinstance(piece, Damage)]
    last = pieces[-1] if pieces else None
    records = [piece.payload for piece in pieces if isinstance(piece, Record)]
    content, role = _first_event(records)
    decoder = make_decoder(LINEAGE if file.is_lineage and file.format == MINDSPORE else content or file.format)
    events: list[Event] = []
    for payload in records[:_DECODED] + records[_DECODED:][-_DECODED:]:
        try:
            event = decoder.decode(payload)
        except EventDecodeError:
            continue
        if not isinstance(event.content, FileVersion):
            events.append(event)
    values = [tagged for event in events if isinstance(event.content, Summary) for tagged in event.content.values]
    read = [tagged for tagged in values if not tagged.derived]
    scalars = [(tagged.tag, math.isfinite(tagged.value.value)) for tagged in read if isinstance(tagged.value, Scalar)]
    others = {event.content.kind for event in events if not isinstance(event.content, Summary)}
    return msgspec.structs.replace(
        file,
        content=content,
        role=role,
        events=len(records) - bool(content) if events else 0,
        kinds=frozenset({tagged.value.kind for tagged in values} | others),
        tags=frozenset(tagged.tag for tagged in values),
        nonfinite=frozenset(tag for tag, _ in scalars) - {tag for tag, is_finite in scalars if is_finite},
        steps=tuple(sorted({event.step for event in events if isinstance(event.content, Summary)})),
        last_time=max((event.wall_time for event in events), default=0.0),
        damage=f"at byte {damages[0].start:,}: {damages[0].reason}" if damages else "",
        padding=last.end - last.start if isinstance(last, Padding) else 0,
        cut=last.offset if isinstance(last, Incomplete) else -1,
        pids=tuple(pids),
    )


def _first_event(records: list[bytes]) -> tuple[str, str]:
    """Returns the format that a file's version event speaks of, and who wrote it."""
    try:
        event = EnvelopeDecoder().decode(records[0]) if records else None
    except EventDecodeError:
        return "", SOURCE
    if event is None or not isinstance(event.content, FileVersion):
        return "", SOURCE
    version, _, writer = event.content.version.partition(" ")
    formats = {"brain.event": TENSORBOARD, "mindspore.event": MINDSPORE}
    content = next((form for word, form in formats.items() if version.lower().startswith(word)), "")
    return content, _WRITERS.get(event.content.writer or writer, SOURCE)
