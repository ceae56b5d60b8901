"""Logdir: finds the runs below a path, of either format, and the files of each in their order.

What is one run: MindSpore writes one file per process, so each rank in a directory is a run of its own. TensorBoard
calls a directory a run, whatever number of files it holds; only files that this package wrote (their first event says
so) are kept apart from the others. A graph file of MindSpore's is a run of its own, since TensorBoard shows one graph
for a run.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterable
from typing import Final

import msgspec

from ms_summary_bridge.errors import EventDecodeError, LogdirError
from ms_summary_bridge.events import Event, FileVersion
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.files.event_file import Path, is_url, last_wall_time, peek
from ms_summary_bridge.files.file_names import (
    MINDSPORE,
    TENSORBOARD,
    archive_format,
    format_of_name,
    is_archive,
    parse_name,
)
from ms_summary_bridge.files.file_tree import Directory, Problem, WalkLog, walk_local, walk_url
from ms_summary_bridge.formats.plugin_data import ORIGIN_KEY
from ms_summary_bridge.formats.wire import FLOAT64, fields
from ms_summary_bridge.runs.graph_file import find_fault
from ms_summary_bridge.values import Opaque

__all__ = [
    "CONVERT",
    "LIVE",
    "SOURCE",
    "LogFile",
    "Logdir",
    "Run",
    "discover",
]

SOURCE, LIVE, CONVERT = "source", "live", "convert"

_WRITERS: Final = {"ms_summary_bridge/live": LIVE, "ms_summary_bridge/convert": CONVERT}


class LogFile(msgspec.Struct, frozen=True):
    """One event file."""

    path: str
    size: int
    """Bytes when it was looked at."""
    created: int
    """Seconds since the epoch: from the name, else from the first event."""
    wall_time: float
    """Of the first event; `created` where it has none."""
    rank: int | None
    """Number of the device or process, where the name has one."""
    host: str
    sequence: int
    """Number at the end of a TensorBoard name, for files of one second; else 0."""

    @property
    def order(self) -> tuple[int, float, int, str]:
        """Sorts the files of a run: by the time in the name, then by the first event, then by name."""
        return self.created, self.wall_time, self.sequence, self.path


class Run(msgspec.Struct, frozen=True):
    """One run: a series of files that continue each other."""

    name: str
    """Path below the source, with slashes; `.` for the source itself. Unique among the runs of a format."""
    directory: str
    format: str
    """`mindspore` or `tensorboard`."""
    role: str
    """Who wrote it: `source` (somebody else), `live` (our callback), `convert` (our converter)."""
    host: str
    """Host of the first file; empty where the name has none."""
    rank: int | None
    files: tuple[LogFile, ...]
    """In time order. Empty where there are only lineage files or archives."""
    lineage_files: tuple[LogFile, ...] = ()
    """MindSpore's lineage files of this run, in time order."""
    graph_files: tuple[LogFile, ...] = ()
    """MindSpore's `*.pb` file, which is then all that the run has."""
    archives: tuple[str, ...] = ()
    """Our archives beside it that hold records of the *other* format: what this run's format could not hold."""

    @property
    def sources(self) -> tuple[LogFile, ...]:
        """All that the run is read from, archives apart."""
        return (*self.files, *self.lineage_files, *self.graph_files)


class Logdir(msgspec.Struct, frozen=True):
    """What was found below one source."""

    source: str
    runs: tuple[Run, ...]
    """Sorted by name, numbers by value."""
    twins: tuple[Run, ...]
    """TensorBoard output of ours in the directory of MindSpore runs: the same data again."""
    problems: tuple[Problem, ...]
    """What could not be read and may hold events."""
    empty: tuple[Problem, ...]
    """Files passed over because they hold no event beyond the version."""


class _Found(msgspec.Struct, frozen=True):
    file: LogFile
    format: str
    role: str
    is_lineage: bool


class _Draft(msgspec.Struct):
    part: str  # name below the directory's name; empty for the directory's own
    format: str
    role: str
    rank: int | None
    files: list[LogFile]
    lineage: list[LogFile]


def discover(source: Path) -> Logdir:
    """Finds the runs of a source.

    Symbolic links are followed; a directory or file that is reached in several ways is read once, under its real name
    if that lies below the source.

    Args:
        source: One file, a run's directory, a directory with runs at any depth, or an fsspec URL of such.

    Returns:
        Runs, twins, problems, empty files; without any run if there is no event.

    Raises:
        NoEventsError: The source does not exist.
        LogdirError: It cannot be looked at.
        UsageError: `source` cannot be a path.
        MissingDependencyError: The URL's protocol needs a package that is not installed.
    """
    source = check_path("source", source).removeprefix("file://")
    log = WalkLog()
    directories = walk_url(source, log) if is_url(source) else walk_local(source, log)
    taken = {name: {directory.name for directory in directories} for name in (MINDSPORE, TENSORBOARD)}
    runs: list[Run] = []
    twins: list[Run] = []
    no_graphs: list[Problem] = []
    for directory in directories:
        found, graphs, archives = _read_directory(directory, log, no_graphs)
        mindspore = _mindspore_drafts(found)
        tensorboard = _tensorboard_drafts([item for item in found if item.format == TENSORBOARD])
        if not found:  # all that a conversion had to say may be in its archives
            others = sorted({TENSORBOARD if archive_format(path) == MINDSPORE else MINDSPORE for path in archives})
            tensorboard = [_Draft("", other, CONVERT, None, [], []) for other in others]
        for draft in (*mindspore, *tensorboard):
            run = Run(
                name=_free_name(directory.name, draft.part, taken[draft.format]),
                directory=directory.path,
                format=draft.format,
                role=draft.role,
                host=(draft.files or draft.lineage)[0].host if draft.files or draft.lineage else "",
                rank=draft.rank,
                files=tuple(draft.files),
                lineage_files=tuple(draft.lineage),
                archives=tuple(
                    path for path in archives if draft.role == CONVERT and archive_format(path) != draft.format
                ),
            )
            counterparts = tensorboard if draft.format == MINDSPORE else mindspore
            is_twin = draft.role != SOURCE and any(other.role == SOURCE for other in counterparts)
            (twins if is_twin else runs).append(run)
        for file in graphs:
            is_alone = len(graphs) == 1 and not mindspore and not tensorboard
            part = "" if is_alone else os.path.basename(file.path.split("::")[0]).removesuffix(".pb") or "graph"
            name = _free_name(directory.name, part, taken[MINDSPORE])
            runs.append(Run(name, directory.path, MINDSPORE, SOURCE, "", None, (), graph_files=(file,)))
    if not any(run.format == TENSORBOARD for run in runs):  # where TensorFlow's own `*.pb` files are no surprise
        log.problems += no_graphs
    return Logdir(
        source,
        tuple(sorted(runs, key=_run_order)),
        tuple(sorted(twins, key=_run_order)),
        tuple(sorted(log.problems, key=lambda problem: problem.path)),
        tuple(sorted(log.empty, key=lambda problem: problem.path)),
    )


def _run_order(run: Run) -> tuple[list[str | int], str, str]:
    parts = re.split(r"([0-9]+)", run.name)  # text and digits in turn, so that like is compared with like
    return [int(part) if index % 2 else part for index, part in enumerate(parts)], run.format, run.role


def _free_name(directory: str, part: str, taken: set[str]) -> str:
    if not part:
        return directory
    name = base = part if directory == "." else f"{directory}/{part}"
    number = 2
    while name in taken:
        name = f"{base}_{number}"
        number += 1
    taken.add(name)
    return name


# --- files


class _EnvelopeDecoder:
    """Reads what both formats have in common: wall_time (1), version (3), and TensorBoard's source_metadata (10)."""

    def decode(self, payload: bytes) -> Event:
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


def _read_directory(
    directory: Directory, log: WalkLog, no_graphs: list[Problem]
) -> tuple[list[_Found], list[LogFile], list[str]]:
    """Returns a directory's event files in time order, graph files, archives; other `*.pb` files go to `no_graphs`."""
    found: list[_Found] = []
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
                size, fault = 0, str(error).removeprefix(f"{path}: ")
            if fault:
                no_graphs.append(Problem(path, fault))
            else:
                graphs.append(LogFile(path, size, 0, 0.0, None, "", 0))
        elif (item := _read_file(path, name, log)) is not None:
            found.append(item)
    return sorted(found, key=lambda item: item.file.order), graphs, archives


def _read_file(path: str, name: str, log: WalkLog) -> _Found | None:
    """Looks at the beginning of one file; None when it holds no event, which is said in `log`."""
    try:
        head = peek(path)
    except LogdirError as error:
        log.problems.append(Problem(path, str(error).removeprefix(f"{path}: ")))
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
        event = _EnvelopeDecoder().decode(head.first.payload)
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
            writer = event.content.writer or event.content.version.partition(" ")[2]
            role = _WRITERS.get(writer, SOURCE)
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
    file = LogFile(path, head.size, created, wall_time, rank, host, sequence)
    return _Found(file, file_format, role, file_format == MINDSPORE and name.endswith("_lineage"))


# --- runs of one directory


def _tensorboard_drafts(found: list[_Found]) -> list[_Draft]:
    drafts: list[_Draft] = []
    for role in (SOURCE, LIVE, CONVERT):
        files = [item.file for item in found if item.role == role]
        if files:
            drafts.append(_Draft(role if drafts else "", TENSORBOARD, role, None, files, []))
    return drafts


def _mindspore_drafts(found: list[_Found]) -> list[_Draft]:
    """Makes one run of each rank that somebody else wrote, and one of what a conversion wrote."""
    mindspore = [item for item in found if item.format == MINDSPORE]
    drafts = _rank_drafts([item for item in mindspore if item.role != CONVERT])
    converted = [item for item in mindspore if item.role == CONVERT]
    if converted:
        data = [item.file for item in converted if not item.is_lineage]
        lineage = [item.file for item in converted if item.is_lineage]
        drafts.append(_Draft(CONVERT if drafts else "", MINDSPORE, CONVERT, None, data, lineage))
    return drafts


def _rank_drafts(found: list[_Found]) -> list[_Draft]:
    """Makes one run of each rank; of each rank and host where hosts ran at the same time."""
    files: dict[int | None, dict[str, list[LogFile]]] = {}
    for item in found:
        if not item.is_lineage:
            files.setdefault(item.file.rank, {}).setdefault(item.file.host, []).append(item.file)
    lineage: dict[int | None, dict[str, list[LogFile]]] = {}
    for item in found:
        if item.is_lineage:
            rank = item.file.rank
            host = _host_of_lineage(item.file.host, files.get(rank, {}))
            lineage.setdefault(rank, {}).setdefault(host, []).append(item.file)
    concurrent = _concurrent_hosts(files.values())
    drafts: list[_Draft] = []
    for rank in sorted({*files, *lineage}, key=lambda rank: -1 if rank is None else rank):
        data, extra = files.get(rank, {}), lineage.get(rank, {})
        hosts = sorted({*data, *extra})
        if any(pair <= {*hosts} for pair in concurrent):
            groups = [[host] for host in hosts]
        else:  # one after the other: a job that was restarted on another node
            groups = [hosts]
        for group in groups:
            part = "no_rank" if rank is None else f"rank_{rank}"
            if len(groups) > 1:
                part = group[0] if rank is None else f"{group[0]}_{part}"
            drafts.append(
                _Draft(
                    part,
                    MINDSPORE,
                    SOURCE,
                    rank,
                    sorted((file for host in group for file in data.get(host, ())), key=lambda file: file.order),
                    sorted((file for host in group for file in extra.get(host, ())), key=lambda file: file.order),
                )
            )
    if len(drafts) == 1:
        drafts[0].part = ""
    return drafts


def _host_of_lineage(host: str, hosts: dict[str, list[LogFile]]) -> str:
    """Returns the host of the data files that a lineage file belongs to. Their names may have a suffix it lacks."""
    if host in hosts:
        return host
    alike = [other for other in sorted(hosts) if other.startswith(host)] or list(hosts)
    return alike[0] if len(alike) == 1 else host


def _concurrent_hosts(ranks: Iterable[dict[str, list[LogFile]]]) -> set[frozenset[str]]:
    """Returns the pairs of hosts that wrote for one rank at the same time: nodes with the same device numbers."""
    pairs: set[frozenset[str]] = set()
    for hosts in ranks:
        if len(hosts) < 2:
            continue
        ends: dict[str, float] = {}
        for file in sorted((file for files in hosts.values() for file in files), key=lambda file: file.order):
            pairs |= {
                frozenset((host, file.host)) for host, end in ends.items() if host != file.host and file.created <= end
            }
            end = None
            with contextlib.suppress(LogdirError):  # gone or unreadable by now: whoever reads it says so
                end = last_wall_time(file.path, _EnvelopeDecoder())
            ends[file.host] = max(ends.get(file.host, 0.0), file.created if end is None else end)
    return pairs
