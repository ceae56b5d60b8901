"""Event files as their names and first events describe them: their format, who wrote them, when and where."""

from __future__ import annotations

import contextlib
import math
import os
from typing import Final

import msgspec

from ms_summary_bridge.errors import EventDecodeError, LogdirError, ReadError
from ms_summary_bridge.events import Event, FileVersion
from ms_summary_bridge.files.event_file import is_url
from ms_summary_bridge.files.file_ends import peek
from ms_summary_bridge.files.file_names import (
    LINEAGE,
    LINEAGE_SUFFIX,
    MINDSPORE,
    TENSORBOARD,
    format_of_name,
    is_archive,
    parse_name,
)
from ms_summary_bridge.files.file_tree import Directory, Problem, WalkLog
from ms_summary_bridge.formats.plugin_data import ORIGIN_KEY, WRITER_CONVERT, WRITER_LIVE
from ms_summary_bridge.formats.wire import FLOAT64, fields
from ms_summary_bridge.runs.graph_file import find_fault
from ms_summary_bridge.values import Opaque

__all__ = ["CONVERT", "LIVE", "SOURCE", "EnvelopeDecoder", "LogFile", "read_directory"]

SOURCE, LIVE, CONVERT = "source", "live", "convert"

_ROLES: Final = {WRITER_LIVE: LIVE, WRITER_CONVERT: CONVERT}


class LogFile(msgspec.Struct, frozen=True):
    """One event file, or a graph file."""

    path: str
    size: int
    """Bytes when it was looked at."""
    format: str
    """`mindspore` or `tensorboard`."""
    role: str = SOURCE
    """Who wrote it: `source` (somebody else), `live` (our callback), `convert` (our converter)."""
    is_lineage: bool = False
    """It holds lineage, or what a conversion made of it, and stands beside the order of the run's other files."""
    created: int = 0
    """Seconds since the epoch: from the name, else from the first event."""
    wall_time: float = 0.0
    """Of the first event; `created` where it has none."""
    rank: int | None = None
    """Number of the device or process, where the name has one."""
    host: str = ""
    sequence: int = 0
    """Number at the end of a TensorBoard name, for files of one second; else 0."""

    @property
    def order(self) -> tuple[int, float, int, str]:
        """Sorts the files of a run: by the time in the name, then by the first event, then by name."""
        return self.created, self.wall_time, self.sequence, self.path

    @property
    def record_format(self) -> str:
        """The name by which `runs.archive.make_decoder` knows the format of its records."""
        return LINEAGE if self.is_lineage and self.format == MINDSPORE else self.format


class EnvelopeDecoder:
    """Reads what both formats have in common: wall_time (1), version (3), and TensorBoard's source_metadata (10)."""

    def decode(self, payload: bytes) -> Event:
        """Decodes one payload; what it holds beside these is left out.

        Raises:
            EventDecodeError: It is malformed, or its wall_time is not finite.
        """
        wall_time = 0.0
        version = writer = ""
        is_bare = True
        for key, start, end in fields(payload, 0, len(payload)):
            if key == 9:
                (wall_time,) = FLOAT64.unpack_from(payload, start)
            elif key == 26:
                version = payload[start:end].decode(errors="replace")
            elif key == 82:
                for inner, first, last in fields(payload, start, end):
                    if inner == 10:
                        writer = payload[first:last].decode(errors="replace")
            elif key not in (16, ORIGIN_KEY):
                is_bare = False
        content = FileVersion(version, writer) if is_bare and version else Opaque("event", b"")
        if not math.isfinite(wall_time):
            if isinstance(content, Opaque):
                raise EventDecodeError("wall_time is not finite")
            wall_time = 0.0
        return Event(wall_time, 0, content)


def read_directory(
    directory: Directory, log: WalkLog, no_graphs: list[Problem]
) -> tuple[list[LogFile], list[LogFile], list[str]]:
    """Returns a directory's event files in time order, graph files, archives; other `*.pb` files go to `no_graphs`."""
    found: list[LogFile] = []
    graphs: list[LogFile] = []
    archives: list[str] = []
    for path in sorted(directory.files):
        name = path.split("::")[0].rsplit("/", 1)[-1] if is_url(path) else os.path.basename(path)
        if is_archive(name):
            archives.append(path)
        elif name.endswith(".pb"):
            try:
                size, fault = find_fault(path)
            except LogdirError as error:
                no_graphs.append(_unread(path, error))
                continue
            if fault:
                no_graphs.append(Problem(path, fault))
            else:
                graphs.append(LogFile(path, size, MINDSPORE))
        elif (file := _read_file(path, name, log)) is not None:
            found.append(file)
    return sorted(found, key=lambda file: file.order), graphs, archives


def _unread(path: str, error: LogdirError) -> Problem:
    return Problem(path, str(error).removeprefix(f"{path}: "), isinstance(error, ReadError))


def _read_file(path: str, name: str, log: WalkLog) -> LogFile | None:
    """Looks at the beginning of one file; None when it holds no event, which is said in `log`."""
    try:
        head = peek(path)
    except LogdirError as error:
        log.problems.append(_unread(path, error))
        return None
    if head.first is None:
        if head.damage:
            log.problems.append(Problem(path, f"not an event file: it holds no whole record ({head.damage})"))
        else:
            log.empty.append(Problem(path, "no whole record yet" if head.size else "zero bytes"))
        return None
    wall_time: float | None = None
    file_format = format_of_name(name)
    role = SOURCE
    with contextlib.suppress(EventDecodeError):  # whoever reads the file reports the record
        event = EnvelopeDecoder().decode(head.first.payload)
        wall_time = event.wall_time or None  # zero where the writer gave none
        if isinstance(event.content, FileVersion):
            if not head.has_more:
                log.empty.append(Problem(path, "a version and nothing else"))
                return None
            version = event.content.version.lower()
            if version.startswith("brain.event"):
                file_format = TENSORBOARD
            elif version.startswith("mindspore.event"):
                file_format = MINDSPORE
            # A lineage event has no field for the writer, so ours say it behind the version.
            role = _ROLES.get(event.content.writer or event.content.version.partition(" ")[2], SOURCE)
    if not file_format:
        log.problems.append(Problem(path, "not an event file: neither its name nor a version event says its format"))
        return None
    if file_format == MINDSPORE and name.endswith("_explain"):
        log.problems.append(Problem(path, "explain files are not read"))
        return None
    created, rank, host, sequence = parse_name(name, file_format)
    if created is None:
        created = int(wall_time or 0)
    if wall_time is None:
        wall_time = float(created)
    is_lineage = name.endswith("_lineage" if file_format == MINDSPORE else LINEAGE_SUFFIX)
    return LogFile(path, head.size, file_format, role, is_lineage, created, wall_time, rank, host, sequence)
