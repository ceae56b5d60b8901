"""Scans of a source: whether anything in it has changed, found out without opening a file."""

from __future__ import annotations

import os
from typing import Any, Final, TypeAlias

import msgspec

from ms_summary_bridge.errors import LogdirError, NoEventsError
from ms_summary_bridge.files.event_file import is_url
from ms_summary_bridge.files.file_names import is_wanted
from ms_summary_bridge.files.file_tree import WalkLog, walk_local
from ms_summary_bridge.runs.log_files import LogFile
from ms_summary_bridge.runs.logdir import Logdir, Run

__all__ = ["Scan", "changed_paths", "grown", "take_scan"]

# What storage systems say of a file beside its size, each in its own words; any of it differs when it is written anew.
_MARKS: Final = ("ETag", "etag", "LastModified", "last_modified", "mtime", "updated", "created")

Scan: TypeAlias = dict[str, tuple[object, ...]]
"""For each file that may hold events, what differs once it is written to or replaced: size first, then which file it is
(device and inode), then its times. Of a directory that cannot be listed, the reason."""


def take_scan(source: str) -> Scan:
    """Looks at every file of a source from outside; empty when the source is missing.

    Sizes are taken after all directories have been listed: a file that was ended before the next one was begun has its
    whole size, if that next one is here.
    """
    log = WalkLog()
    if is_url(source):
        return _scan_url(source)
    try:
        paths = [path for directory in walk_local(source, log) for path in directory.files]
    except NoEventsError:
        return {}
    except LogdirError as error:
        return {source: (0, str(error))}
    scan: Scan = {problem.path: (0, problem.reason) for problem in log.problems}
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue  # deleted meanwhile
        # The time of change too: it moves when a file becomes readable, or when its old time of writing is put back.
        times = status.st_mtime_ns, status.st_ctime_ns
        scan[path] = (status.st_size, (status.st_dev, status.st_ino), times)
    return scan


def _scan_url(source: str) -> Scan:
    from fsspec.core import url_to_fs

    try:
        filesystem, root = url_to_fs(source)
        filesystem.invalidate_cache()
        entries: dict[str, dict[str, Any]] = filesystem.find(root, detail=True)
    except (OSError, ImportError, ValueError):
        return {}  # whoever reads the source says what is wrong
    return {
        name: (entry.get("size") or 0, *(str(entry.get(mark)) for mark in _MARKS))
        for name, entry in entries.items()
        if is_wanted(name.rpartition("/")[2])
    }


def changed_paths(before: Scan, now: Scan) -> set[str]:
    """Returns the files that are new, gone, or not as they were."""
    return {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}


def grown(found: Logdir, before: Scan, now: Scan) -> Logdir | None:
    """Returns what was found at the scan `before` with the sizes of now, if its event files grew and that is all.

    None when the source must be searched anew.
    """
    if is_url(found.source) or before.keys() != now.keys():
        return None
    known = {file.path for run in (*found.runs, *found.twins) for file in (*run.files, *run.lineage_files)}
    sizes: dict[str, int] = {}
    for path in changed_paths(before, now):
        size = now[path][0]
        if path not in known or not isinstance(size, int) or before[path][1] != now[path][1]:
            return None
        sizes[path] = size
    if any(file.size > sizes.get(file.path, file.size) for run in found.runs for file in run.files):
        return None  # one was cut: perhaps it holds no event any longer
    return msgspec.structs.replace(
        found,
        runs=tuple(_resized(run, sizes) for run in found.runs),
        twins=tuple(_resized(run, sizes) for run in found.twins),
    )


def _resized(run: Run, sizes: dict[str, int]) -> Run:
    if not any(file.path in sizes for file in (*run.files, *run.lineage_files)):
        return run

    def resize(files: tuple[LogFile, ...]) -> tuple[LogFile, ...]:
        return tuple(msgspec.structs.replace(file, size=sizes.get(file.path, file.size)) for file in files)

    return msgspec.structs.replace(run, files=resize(run.files), lineage_files=resize(run.lineage_files))
