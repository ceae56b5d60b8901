"""Names of runs in a destination: flattened for MindInsight, shortened for the file system, and both undone.

A file system holds names of 255 bytes, and Windows takes not every character. Any other name is cut and changed, and a
hash of all of it is put behind, so that what a name becomes depends on nothing else; the whole name lies in a hidden
file in the run's directory, wherever that goes.
"""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from typing import Final

from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.files.event_file import open_source
from ms_summary_bridge.files.system import allowed_name
from ms_summary_bridge.formats import tensorboard
from ms_summary_bridge.runs.log_files import CONVERT
from ms_summary_bridge.runs.logdir import Run

__all__ = ["NAME_FILE", "flatten", "shorten", "target_name"]

NAME_FILE: Final = ".ms_summary_bridge.name"
_MOST_BYTES: Final = 255
_SHORTENED: Final = re.compile(r"~h[0-9a-f]{16}")  # `flatten` never makes `~h`


def target_name(run: Run) -> str:
    """Returns where a run goes below the destination, before it is shortened.

    MindInsight lists the directories directly below its base, and no deeper, so a nested name is flattened for it. What
    a conversion flattened or shortened is as it was before on the way back, unless that would lead somewhere else: the
    name of a directory is anybody's.
    """
    if run.role != CONVERT:
        return flatten(run.name) if run.format == tensorboard.FORMAT else run.name
    whole = _whole_name(run)
    names = whole if run.format == tensorboard.FORMAT else _unflatten(whole), whole
    return next((name for name in names if _stays_below(name)), run.name)


def _stays_below(name: str) -> bool:
    """Whether a name leads to a place of its own below a directory, and to that by no other way; or is that itself."""
    return name == "." or not {"", ".", ".."} & {*name.split("/")}


def flatten(name: str) -> str:
    """Makes one directory's name of a path: `a/b` becomes `a+b`, and `a+b` becomes `a~1b`."""
    return name.replace("~", "~0").replace("+", "~1").replace("/", "+")


def _unflatten(name: str) -> str:
    return name.replace("+", "/").replace("~1", "+").replace("~0", "~")


def shorten(name: str) -> str:
    """Returns a path whose parts a file system can hold; the same path where it can hold them all."""
    return "/".join(map(_shorten_part, name.split("/")))


def _shorten_part(part: str) -> str:
    allowed = allowed_name(part)
    if len(os.fsencode(part)) <= _MOST_BYTES and allowed == part:
        return part
    end = _end_of(part)
    count = room = 0
    for character in allowed:  # whole ones, of one byte or several
        room += len(os.fsencode(character))
        if room > _MOST_BYTES - len(end):
            break
        count += 1
    return allowed[:count] + end


def _end_of(part: str) -> str:
    return f"~h{hashlib.blake2b(os.fsencode(part), digest_size=8).hexdigest()}"


def _whole_name(run: Run) -> str:
    """Returns a run's name with its directory's as it was before it was shortened."""
    base = re.split(r"[/\\]", run.directory.rstrip("/").split("::")[0])[-1]
    parts = run.name.split("/")
    if base not in parts or not _SHORTENED.search(base):
        return run.name
    with suppress(LogdirError, OSError), open_source(f"{run.directory}/{NAME_FILE}") as file:
        whole = os.fsdecode(file.read(1 << 16))
        if "/" not in whole and "\0" not in whole and base.endswith(_end_of(whole)):  # else it is of another directory
            return "/".join(whole if part == base else part for part in parts)
    return run.name
