"""A bounded look at a directory: names, and heads and tails of files, whatever their number and sizes."""

from __future__ import annotations

import io
import os
import stat
from collections import deque
from collections.abc import Iterable
from typing import Final

import msgspec

from ms_summary_bridge.convert.state import STATE_NAME
from ms_summary_bridge.doctor.processes import find_writers
from ms_summary_bridge.errors import EventDecodeError, RecordError
from ms_summary_bridge.events import Event, FileVersion, Summary
from ms_summary_bridge.files.event_file import read_batches
from ms_summary_bridge.files.file_names import (
    LINEAGE,
    LINEAGE_SUFFIX,
    MINDSPORE,
    TENSORBOARD,
    archive_source,
    format_of_name,
    is_archive,
)
from ms_summary_bridge.files.record_decoder import RecordDecoder
from ms_summary_bridge.files.records import HEADER_BYTES, Damage, Incomplete, Padding, Piece, Record, decode_record
from ms_summary_bridge.formats.plugin_data import WRITER_CONVERT, WRITER_LIVE
from ms_summary_bridge.monitor.sinks.journal import JOURNAL
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.runs.log_files import CONVERT, LIVE, SOURCE, EnvelopeDecoder

__all__ = ["FILES", "HEAD_BYTES", "TAIL_BYTES", "FileFacts", "LogFacts", "look_at", "read_ends"]

_ENTRIES: Final = 20_000  # as many as MindInsight looks at
FILES: Final = 200
HEAD_BYTES: Final = 1 << 16
TAIL_BYTES: Final = 1 << 16
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
    log.files = [_look_into(file, log, writers.get(os.path.realpath(file.path), ())) for file in kept]
    log.files.sort(key=lambda file: file.name)
    for path in others[:_OTHERS]:
        if _begins_like_events(_read(path, 0, _VERSION_BYTES, log)):
            log.misnamed.append(os.path.relpath(path, target))
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
            if entry.is_dir():
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


def _read(path: str, start: int, count: int, log: LogFacts) -> bytes:
    """Returns a part of a file, and counts it; nothing of a file that cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(start)
            data = file.read(count) or b""
    except OSError:
        return b""
    log.bytes_read += len(data)
    return data


def read_ends(path: str, size: int, log: LogFacts) -> list[Piece]:
    """Returns the records at a file's head and tail, and what is wrong between them as far as it was read.

    Raises:
        OSError: It cannot be opened.
    """
    with open(path, "rb"):  # an error here is the file's, later ones are races
        pass
    if size <= HEAD_BYTES + TAIL_BYTES:
        return _pieces(_read(path, 0, size, log), 0)
    head = _read(path, 0, HEAD_BYTES, log)
    decoder = RecordDecoder()
    pieces: list[Piece] = [*decoder.feed(head)]
    if not pieces and decoder.wanted > size:
        return [Incomplete(0, size)]
    if not pieces and decoder.wanted <= HEAD_BYTES + HEADER_BYTES:  # a search that has found nothing
        pieces.append(Damage(0, HEAD_BYTES, "no whole record") if head.strip(b"\0") else Padding(0, HEAD_BYTES))
    tail = _pieces(_read(path, size - TAIL_BYTES, TAIL_BYTES, log), size - TAIL_BYTES)
    # It begins inside a record, most likely; without a whole one behind that nothing can be said.
    if any(isinstance(piece, Record) for piece in tail):
        pieces += tail if isinstance(tail[0], Record) else tail[1:]
    elif isinstance(tail[-1:] and tail[-1], Padding):
        pieces.append(tail[-1])
    return pieces


def _pieces(data: bytes, offset: int) -> list[Piece]:
    found: list[Piece] = []
    for pieces, _ in read_batches(io.BytesIO(data), "", 0, len(data) or 1):
        found += pieces
    return [_moved(piece, offset) for piece in found] if offset else found


def _moved(piece: Piece, offset: int) -> Piece:
    if isinstance(piece, Record):
        return Record(piece.offset + offset, piece.payload)
    if isinstance(piece, Incomplete):
        return Incomplete(piece.offset + offset, piece.available)
    if isinstance(piece, Padding):
        return Padding(piece.start + offset, piece.end + offset)
    return Damage(piece.start + offset, piece.end + offset, piece.reason)


def _look_into(file: FileFacts, log: LogFacts, pids: Iterable[int]) -> FileFacts:
    if file.problem:
        return file
    try:
        pieces = read_ends(file.path, file.size, log)
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
    others = {event.content.kind for event in events if not isinstance(event.content, Summary)}
    return msgspec.structs.replace(
        file,
        content=content,
        role=role,
        events=len(records) - bool(content) if events else 0,
        kinds=frozenset({tagged.value.kind for tagged in values} | others),
        tags=frozenset(tagged.tag for tagged in values),
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
