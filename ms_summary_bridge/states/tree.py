"""The tree: which files below a directory tell of which process of which training. No file is opened for it.

A directory is listed again when its time says that something in it came or went; otherwise it costs one look. Ranks
are told by `rank_<n>` in the path, then by the name of the file. What a monitor recorded below a training's event
files, or above them, belongs to that training.
"""

from __future__ import annotations

import os
import re
from typing import Final

import msgspec

from ms_summary_bridge.errors import NoEventsError, ReadError
from ms_summary_bridge.files.file_names import (
    MINDSPORE,
    TENSORBOARD,
    format_of_name,
    is_archive,
    is_wanted,
    order_of_path,
    parse_name,
)
from ms_summary_bridge.monitor.sinks.journal import JOURNAL
from ms_summary_bridge.monitor.watchdog.hang_report import HANG_LOG
from ms_summary_bridge.states.reading import Reading

__all__ = ["FoundFile", "FoundRun", "Tree"]

_RANK: Final = re.compile(r"rank_(\d{1,6})", re.ASCII)
_SUMMARY: Final = "summary"
_SETTLED_NS: Final = 2_000_000_000  # a directory changed so lately may change again within one tick of its clock
_LISTED_SECS: Final = 60.0  # for file systems that keep no time of a directory
_MOST_LISTED_AGAIN: Final = 1000  # a data set beside the runs
_MOST_DEPTH: Final = 40


class FoundFile(msgspec.Struct, frozen=True):
    """A file that tells of a training."""

    path: str
    kind: str
    """`mindspore`, `mindspore_lineage`, `tensorboard`, `journal` or `hang`."""
    rank: int
    created: int
    """Seconds since the epoch, by the name; 0 where it says none."""
    host: str
    directory: str


class FoundRun(msgspec.Struct):
    """One training."""

    name: str
    """Path below the source, with slashes, without ranks; `.` for the source itself."""
    directory: str
    files: list[FoundFile]


class _Listing(msgspec.Struct):
    mark: tuple[int, int]
    listed: float
    count: int
    """Of all that is in it."""
    below: list[tuple[str, str]]
    """Name and path of each directory in it."""
    files: list[tuple[str, str]]


class Tree:
    """The trainings below one directory.

    Args:
        source: The directory; may come later.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._listings: dict[str, _Listing] = {}
        self._mark: list[tuple[str, list[tuple[str, str]]]] = []
        self._runs: list[FoundRun] = []
        self.problems: dict[str, str] = {}
        """Directories that could not be listed, and why."""

    def find(self, now: float, reading: Reading) -> list[FoundRun]:
        """Returns what is there, by name; the same list where nothing came or went.

        Raises:
            NoEventsError: The source does not exist.
            ReadError: It cannot be listed, or is no directory.
        """
        found: list[tuple[str, list[tuple[str, str]]]] = []
        seen: set[tuple[int, int]] = set()
        self.problems.clear()
        pending = [(self._source, ".", 0)]
        kept: dict[str, _Listing] = {}
        while pending:
            path, name, depth = pending.pop()
            try:
                status = os.stat(path)
                if (status.st_dev, status.st_ino) in seen or depth > _MOST_DEPTH:
                    continue
                seen.add((status.st_dev, status.st_ino))
                kept[path] = listing = self._list(path, status, now, reading)
            except OSError as error:
                if path == self._source:
                    kind = NoEventsError if isinstance(error, FileNotFoundError) else ReadError
                    raise kind(f"{path}: {error.strerror or error}") from error
                self.problems[path] = f"cannot be listed: {error.strerror or error}"
                continue
            if listing.files:
                found.append((name, listing.files))
            for inner, below in listing.below:
                pending.append((below, inner if name == "." else f"{name}/{inner}", depth + 1))
        self._listings = kept
        if found != self._mark:
            self._mark, self._runs = found, _group(self._source, found)
        return self._runs

    def _list(self, path: str, status: os.stat_result, now: float, reading: Reading) -> _Listing:
        known, mark = self._listings.get(path), (status.st_mtime_ns, status.st_ino)
        is_recent = known is not None and (now - known.listed < _LISTED_SECS or known.count > _MOST_LISTED_AGAIN)
        if known is not None and known.mark == mark and is_recent:
            return known
        reading.listed += 1
        below: list[tuple[str, str]] = []
        files: list[tuple[str, str]] = []
        with os.scandir(path) as listing:
            entries = list(listing)
            for entry in entries:
                name = entry.name
                if name.startswith("."):
                    continue
                if _is_directory(entry):
                    below.append((name, entry.path))
                elif name in (JOURNAL, HANG_LOG) or (
                    is_wanted(name) and not name.endswith((".pb", "_explain")) and not is_archive(name)
                ):
                    files.append((name, entry.path))
        if now * 1e9 - status.st_mtime_ns < _SETTLED_NS:
            mark = (-1, -1)
        files.sort()
        if known is not None and known.files == files:
            files = known.files
        return _Listing(mark, now, len(entries), sorted(below, reverse=True), files)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself
        return False


def _group(source: str, found: list[tuple[str, list[tuple[str, str]]]]) -> list[FoundRun]:
    """Returns the trainings that files in directories are of."""
    runs: dict[str, FoundRun] = {}
    journals: dict[str, str] = {}  # base to the path of a journal
    events: set[str] = set()
    files: dict[str, list[FoundFile]] = {}
    for name, listed in found:
        base, rank = _split_rank(name)
        for file_name, path in listed:
            file = _describe(file_name, path, rank)
            files.setdefault(base, []).append(file)
            if file.kind in ("journal", "hang"):
                journals.setdefault(base, path)
            else:
                events.add(base)
    owner = {base: _nearest(base, journals) or base for base in files}
    alone = {base for base in journals if not any(owner[one] == base for one in events)}
    above: dict[str, list[str]] = {}
    for base in alone:
        if (home := _nearest(base, events)) is not None and home != base:
            above.setdefault(home, []).append(base)
    for home, bases in above.items():
        newest = max(bases, key=lambda base: (_modified(journals[base]), base))
        owner[newest] = owner[home]
    for base, its in files.items():
        name = owner[base]
        run = runs.setdefault(name, FoundRun(name, source if name == "." else os.path.join(source, name), []))
        run.files += its
    for name in sorted(runs):  # `job/summary` is the job, where the job itself is nothing else
        short = name.removesuffix(f"/{_SUMMARY}")
        if short != name and short not in runs:
            runs[name].name = short
    for run in runs.values():
        run.files.sort(key=lambda file: (file.rank, file.kind in ("journal", "hang"), file.created, file.path))
    return sorted(runs.values(), key=lambda run: order_of_path(run.name))


def _split_rank(name: str) -> tuple[str, int | None]:
    """Returns the name of a directory without `rank_<n>`, and that number."""
    parts = name.split("/")
    for index in range(len(parts) - 1, -1, -1):
        if (match := _RANK.fullmatch(parts[index])) is not None:
            return "/".join(parts[:index] + parts[index + 1 :]) or ".", int(match[1])
    return name, None


def _nearest(base: str, bases: dict[str, str] | set[str]) -> str | None:
    """Returns the nearest of some directories that is this one or above it."""
    while base not in bases:
        if base == ".":
            return None
        base = base.rpartition("/")[0] or "."
    return base


def _describe(name: str, path: str, rank: int | None) -> FoundFile:
    directory = os.path.dirname(path)
    if name in (JOURNAL, HANG_LOG):
        kind = "journal" if name == JOURNAL else "hang"
        return FoundFile(path, kind, -1 if rank is None else rank, 0, "", directory)
    kind = format_of_name(name)
    created, own, host, _ = parse_name(name, kind)
    if kind == MINDSPORE and name.endswith("_lineage"):
        kind = f"{MINDSPORE}_lineage"
    assert kind.startswith((MINDSPORE, TENSORBOARD))
    return FoundFile(path, kind, (own or 0) if rank is None else rank, created or 0, host, directory)


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
