"""Linked run: a directory in which MindInsight finds the files of one run in MindSpore's format, wherever they are.

What MindInsight 2.3.1 does with links, measured:

* it lists no job whose files are all links, but once a real file with a summary's name is there, it reads the links
  too, and goes on as the files behind them grow. So each directory gets such a file with no more than the version;
* it takes no lineage file that is a link, so these, which are small, are copied;
* seconds in a file name that are no time (`summary.99999999999999`) end its search for jobs, but not those of a link.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from typing import Final

from ms_summary_bridge.events import Event, FileVersion
from ms_summary_bridge.files.atomic import replace_file, replacing
from ms_summary_bridge.files.links import replace_link
from ms_summary_bridge.files.records import encode_record
from ms_summary_bridge.formats.mindspore import MindSporeEncoder
from ms_summary_bridge.runs.log_files import LogFile
from ms_summary_bridge.runs.logdir import Run

__all__ = ["link_run", "unlink_run"]

_OURS: Final = "mirror."
"""How all names here begin, by which they are known again."""
_LATEST: Final = 99_999_999_999  # seconds; MindInsight fails on years with more than four digits
_SHOWN: Final = re.compile(r"summary\.\d+")  # event files that MindInsight reads


def link_run(run: Run, directory: str, scratch: str) -> None:
    """Makes a directory, which may be missing, show a run as it is now; nobody looks into `scratch` on the same disk.

    Raises:
        OSError: It cannot be written; a `WriteError`, most of the time.
    """
    os.makedirs(directory, exist_ok=True)
    links = {_name_of(file): os.path.abspath(file.path) for file in (*run.files, *run.graph_files)}
    copies = {_real_name(file.created, f"{n}_lineage"): file.path for n, file in enumerate(run.lineage_files)}
    sign = _real_name(max((file.created for file in run.files), default=0), "sign")
    for name, path in links.items():
        replace_link(os.path.join(directory, name), path, scratch)
    for name, path in copies.items():
        _copy(path, os.path.join(directory, name))
    newest = 0.0
    for path in links.values():
        with contextlib.suppress(OSError):  # deleted meanwhile
            newest = max(newest, os.stat(path).st_mtime)
    if links:
        _write_sign(os.path.join(directory, sign), newest)
    _remove(directory, {*links, *copies, *({sign} if links else ())})


def unlink_run(directory: str, *, is_base: bool = False) -> None:
    """Takes back what `link_run` made in a directory; an empty one goes too, but for the base."""
    if _remove(directory, set()) and not is_base:
        with contextlib.suppress(OSError):  # something else is in it
            os.rmdir(directory)


def _name_of(file: LogFile) -> str:
    """Returns the name of the link to a file: with its own in it, which MindInsight shows.

    MindInsight goes on in a file whose name stays, whatever the link leads to. So when another run, perhaps with files
    of the same names, gets the directory, its links have other names.
    """
    directory, name = os.path.split(os.path.abspath(file.path))
    if name.endswith(".pb"):
        return _OURS + name
    name = f"{_OURS}{hashlib.blake2b(os.fsencode(directory), digest_size=4).hexdigest()}.{name}"
    if _SHOWN.search(name):
        return name
    return f"{name}.summary.{_seconds(file.created)}_MS"  # what it holds says that it is MindSpore's


def _seconds(created: int) -> int:
    return min(max(created, 0), _LATEST)


def _real_name(created: int, end: str) -> str:
    return f"{_OURS}summary.{_seconds(created)}.{end}"


def _write_sign(path: str, modified: float) -> None:
    """Writes the real file for whose sake the links are read; by its time of writing the jobs are ordered."""
    if not os.path.exists(path):
        payload = MindSporeEncoder().encode(Event(modified, 0, FileVersion(""))).payload
        assert payload is not None
        replace_file(path, encode_record(payload))
    if os.stat(path).st_mtime != modified:
        os.utime(path, (modified, modified))


def _copy(source: str, path: str) -> None:
    with contextlib.suppress(OSError):
        one, other = os.stat(source), os.stat(path)
        if (one.st_size, one.st_mtime) == (other.st_size, other.st_mtime):
            return
    if os.path.exists(source):  # else it was deleted meanwhile
        with replacing(path) as temporary:
            shutil.copy2(source, temporary)


def _remove(directory: str, kept: set[str]) -> bool:
    """Removes what is ours and not to be kept; returns whether there was such."""
    with os.scandir(directory) as entries:
        paths = [
            entry.path
            for entry in entries
            if entry.name.startswith(_OURS) and entry.name not in kept and not entry.is_dir(follow_symlinks=False)
        ]
    for path in paths:
        os.unlink(path)
    return bool(paths)
