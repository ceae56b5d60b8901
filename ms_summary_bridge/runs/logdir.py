"""Logdir: finds the runs below a path, of either format, and the files of each in their order.

What is one run: MindSpore writes one file per process, so each rank in a directory is a run of its own. TensorBoard
calls a directory a run, whatever number of files it holds; only files that this package wrote (their first event says
so) are kept apart from the others. A graph file of MindSpore's is a run of its own, since TensorBoard shows one graph
for a run. Where no such file is there, tables of msprobe's monitor are: those of a directory are a run.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import msgspec

from ms_summary_bridge.errors import LogdirError, NoEventsError
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.files.event_file import Path, is_url
from ms_summary_bridge.files.file_ends import last_wall_time
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD, archive_source, order_of_path
from ms_summary_bridge.files.file_tree import Problem, WalkLog, walk_local, walk_url
from ms_summary_bridge.runs.log_files import CONVERT, LIVE, SOURCE, EnvelopeDecoder, LogFile, read_directory
from ms_summary_bridge.runs.msprobe import MSPROBE, find_tables

__all__ = ["Logdir", "Run", "discover"]


class Run(msgspec.Struct, frozen=True):
    """One run: a series of files that continue each other."""

    name: str
    """Path below the source, with slashes; `.` for the source itself. Unique among the runs of a format."""
    directory: str
    format: str
    """`mindspore`, `tensorboard`, or `msprobe` for the tables of its monitor."""
    role: str
    """Who wrote it, see `LogFile.role`."""
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
    def archive_by_source(self) -> dict[str, str]:
        """Those archives by the format of their records."""
        return {archive_source(path): path for path in self.archives}

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

    def no_events(self) -> NoEventsError:
        """Returns the error of a source without an event file."""
        reasons = "".join(f"\n  {problem.path}: {problem.reason}" for problem in self.problems[:10])
        names = "names hold 'summary.<seconds>' or 'tfevents'"
        return NoEventsError(f"{self.source}: no event files found ({names}){reasons}")


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
        files, graphs, archives = read_directory(directory, log, no_graphs)
        mindspore, tensorboard = _mindspore_runs(files), _tensorboard_runs(files)
        if not files:  # all that a conversion had to say may be in its archives
            others = sorted({_other_format(path) for path in archives})
            tensorboard = [Run("", "", other, CONVERT, "", None, ()) for other in others]
        for one in (*mindspore, *tensorboard):
            run = msgspec.structs.replace(
                one,
                name=_free_name(directory.name, one.name, taken[one.format]),
                directory=directory.path,
                archives=tuple(path for path in archives if one.role == CONVERT and _other_format(path) == one.format),
            )
            counterparts = tensorboard if run.format == MINDSPORE else mindspore
            is_twin = run.role != SOURCE and any(other.role == SOURCE for other in counterparts)
            (twins if is_twin else runs).append(run)
        for file in graphs:
            is_alone = len(graphs) == 1 and not mindspore and not tensorboard
            part = "" if is_alone else os.path.basename(file.path.split("::")[0]).removesuffix(".pb") or "graph"
            name = _free_name(directory.name, part, taken[MINDSPORE])
            runs.append(Run(name, directory.path, MINDSPORE, SOURCE, "", None, (), graph_files=(file,)))
    if not runs and not is_url(source):  # beside event files they are not looked for
        for tables in find_tables(source, log):
            runs.append(Run(tables.name, tables.path, MSPROBE, SOURCE, "", tables.rank, tables.files))
            log.problems = [one for one in log.problems if one.path not in {file.path for file in tables.files}]
    if not any(run.format == TENSORBOARD for run in runs):  # where TensorFlow's own `*.pb` files are no surprise
        log.problems += no_graphs
    return Logdir(
        source,
        tuple(sorted(runs, key=_run_order)),
        tuple(sorted(twins, key=_run_order)),
        tuple(sorted(log.problems, key=lambda problem: problem.path)),
        tuple(sorted(log.empty, key=lambda problem: problem.path)),
    )


def _run_order(run: Run) -> tuple[list[list[str | int]], str, str]:
    return order_of_path(run.name), run.format, run.role


def _other_format(archive: str) -> str:
    """Returns the format of the output beside an archive."""
    return MINDSPORE if archive_source(archive) == TENSORBOARD else TENSORBOARD


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


# --- runs of one directory


def _make_run(part: str, run_format: str, role: str, files: list[LogFile], rank: int | None = None) -> Run:
    """Returns a run whose name is yet the part below its directory's; of MindSpore's, lineage files stand apart."""
    lineage = tuple(file for file in files if file.is_lineage and run_format == MINDSPORE)
    data = tuple(file for file in files if not file.is_lineage) if lineage else tuple(files)
    return Run(part, "", run_format, role, (data or lineage)[0].host, rank, data, lineage)


def _tensorboard_runs(files: list[LogFile]) -> list[Run]:
    runs: list[Run] = []
    for role in (SOURCE, LIVE, CONVERT):
        own = [file for file in files if file.format == TENSORBOARD and file.role == role]
        if own:
            runs.append(_make_run(role if runs else "", TENSORBOARD, role, own))
    return runs


def _mindspore_runs(files: list[LogFile]) -> list[Run]:
    """Makes one run of each rank that somebody else wrote, and one of what a conversion wrote."""
    files = [file for file in files if file.format == MINDSPORE]
    runs = _rank_runs([file for file in files if file.role != CONVERT])
    converted = [file for file in files if file.role == CONVERT]
    if converted:
        runs.append(_make_run(CONVERT if runs else "", MINDSPORE, CONVERT, converted))
    return runs


def _rank_runs(files: list[LogFile]) -> list[Run]:
    """Makes one run of each rank; of each rank and host where hosts ran at the same time."""
    data: dict[int | None, dict[str, list[LogFile]]] = {}
    for file in files:
        if not file.is_lineage:
            data.setdefault(file.rank, {}).setdefault(file.host, []).append(file)
    concurrent = _concurrent_hosts(data.values())
    runs: list[Run] = []
    for rank in sorted({file.rank for file in files}, key=lambda rank: -1 if rank is None else rank):
        by_host = {host: [*own] for host, own in data.get(rank, {}).items()}
        for file in files:
            if file.is_lineage and file.rank == rank:
                by_host.setdefault(_host_of_lineage(file.host, data.get(rank, {})), []).append(file)
        hosts = sorted(by_host)
        if any(pair <= {*hosts} for pair in concurrent):
            groups = [[host] for host in hosts]
        else:  # one after the other: a job that was restarted on another node
            groups = [hosts]
        for group in groups:
            part = "no_rank" if rank is None else f"rank_{rank}"
            if len(groups) > 1:
                part = group[0] if rank is None else f"{group[0]}_{part}"
            own = sorted((file for host in group for file in by_host[host]), key=lambda file: file.order)
            runs.append(_make_run(part, MINDSPORE, SOURCE, own, rank))
    if len(runs) == 1:
        runs[0] = msgspec.structs.replace(runs[0], name="")
    return runs


def _host_of_lineage(host: str, hosts: dict[str, list[LogFile]]) -> str:
    """Returns the host of the data files that a lineage file belongs to. Their names may have a suffix it lacks."""
    if host in hosts:
        return host
    alike = [other for other in sorted(hosts) if other.startswith(host)] or list(hosts)
    return alike[0] if len(alike) == 1 else host


def _concurrent_hosts(ranks: Iterable[dict[str, list[LogFile]]]) -> set[frozenset[str]]:
    """Returns the pairs of hosts that wrote for one rank at the same time: nodes with the same device numbers."""
    pairs: set[frozenset[str]] = set()
    for hosts in (hosts for hosts in ranks if len(hosts) > 1):
        ends: dict[str, float] = {}
        for file in sorted((file for files in hosts.values() for file in files), key=lambda file: file.order):
            pairs |= {
                frozenset((host, file.host)) for host, end in ends.items() if host != file.host and file.created <= end
            }
            end = None
            with contextlib.suppress(LogdirError):  # gone or unreadable by now: whoever reads it says so
                end = last_wall_time(file.path, EnvelopeDecoder())
            ends[file.host] = max(ends.get(file.host, 0.0), file.created if end is None else end)
    return pairs
