"""Profiles of MindSpore's beside a run, and where the time of their steps goes; their shape is in `run_table`.

Imports no tensorboard.
"""

from __future__ import annotations

import glob
import os
import stat
from collections import OrderedDict
from typing import Any, Final

import msgspec

from ms_summary_bridge.columns.profile import list_profiles, read_profile
from ms_summary_bridge.mirror.home import is_below

__all__ = ["ProfileReader"]

_MOST_KEPT: Final = 64
_OUTPUT: Final = "ASCEND_PROFILER_OUTPUT"
_TRACE: Final = os.path.join(_OUTPUT, "trace_view.json")
_READ: Final = ("*.json", os.path.join(_OUTPUT, "*.csv"), os.path.join("FRAMEWORK", "*.csv"))


class ProfileReader:
    """Finds profiles, and keeps what the last ones said."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[object, dict[str, Any]]] = OrderedDict()

    def find(self, directory: str, *, is_parent_own: bool) -> list[dict[str, Any]]:
        """Returns the profiles of a run, by name; looks at the disk. Arguments as of `list_profiles`.

        What a link has out of these directories is left out: a log from elsewhere may lead to any file of this machine.
        """
        tops = [directory, os.path.dirname(directory)][: 1 + is_parent_own]
        found: list[dict[str, Any]] = []
        for path in list_profiles(directory, is_parent_own=is_parent_own):
            if not _is_in(os.path.join(path, _OUTPUT), tops):
                continue
            trace, size = os.path.join(path, _TRACE), 0
            try:
                status = os.stat(trace)
            except OSError:
                trace = ""
            else:
                size = status.st_size
                if not stat.S_ISREG(status.st_mode) or not _is_in(trace, tops):
                    trace, size = "", 0
            name = os.path.relpath(path, os.path.dirname(directory)).replace(os.sep, "/")
            found.append({"number": len(found), "name": name, "directory": path, "path": trace, "bytes": size})
        return found

    def read(self, directory: str) -> dict[str, Any]:
        """Returns the parts of a step and the operators of a profile; reads it again where a file of it has changed."""
        paths = sorted(path for name in _READ for path in glob.iglob(os.path.join(glob.escape(directory), name)))
        mark = [(path, _changed(path)) for path in paths]
        kept = self._kept.get(directory)
        if kept is None or kept[0] != mark:
            kept = self._kept[directory] = mark, msgspec.to_builtins(read_profile(directory))
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return kept[1]


def _is_in(path: str, directories: list[str]) -> bool:
    return any(is_below(path, directory) for directory in directories)


def _changed(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
