"""Overlay: the tree of links that shows converted files in the place of MindSpore's, and all else as it is.

A directory of the logdir with converted runs in it, or below it, has a node: a real directory whose entries are links
to all that the logdir's directory holds, to the converted files, and to the nodes of directories below. Every other
directory is one link, so whatever happens in it, now or later, the viewer sees without us. Nodes lie side by side and
are entered through links alone, so a directory gets its node, or loses it, in one step.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Final

import msgspec

from ms_summary_bridge.files.atomic import replace_link
from ms_summary_bridge.mirror.home import Home

__all__ = ["Overlay", "Shown", "join_names"]

_ROOT: Final = "."


class Shown(msgspec.Struct):
    """What one directory of the logdir has become."""

    directory: str
    """Path below the logdir, with slashes; `.` for the logdir itself."""
    files: dict[str, list[str]]
    """Paths of converted files, by the run's path below the directory; `.` for the directory itself."""
    hidden: frozenset[str] = frozenset()
    """Names in the directory that must not be seen: files that hold the same data again."""


class Overlay:
    """The links of one mirror."""

    def __init__(self, home: Home) -> None:
        self._home = home

    def show(self, shown: list[Shown]) -> None:
        """Brings all links up to date with what has been converted, and with what the logdir's directories hold.

        Raises:
            OSError: The links cannot be written.
        """
        files: dict[str, dict[str, str]] = {}  # of each node: the converted files in it, by name
        hidden = {item.directory: item.hidden for item in shown}
        for item in shown:
            for part, paths in item.files.items():
                entries = files.setdefault(join_names(item.directory, part), {})
                entries.update((os.path.basename(path), path) for path in paths)
        below: dict[str, dict[str, str]] = {}  # of each node: the nodes below it
        for node in list(files):
            while node != _ROOT:
                parent, _, name = node.rpartition("/")
                parent = parent or _ROOT
                below.setdefault(parent, {})[name] = self._node(node)
                files.setdefault(parent, {})
                node = parent
        # The deepest first: a node is filled before anything leads to it.
        for node in sorted(files, key=lambda name: -1 if name == _ROOT else name.count("/"), reverse=True):
            directory = self._home.source if node == _ROOT else os.path.join(self._home.source, node)
            entries = _list(directory, hidden.get(node, frozenset()))
            entries.update(files[node])
            entries.update(below.get(node, {}))
            self._fill(self._node(node), entries)
        self._home.point(self._node(_ROOT) if files else self._home.source)
        self._remove_except({self._node(node) for node in files})

    def _node(self, name: str) -> str:
        digest = hashlib.blake2b(os.fsencode(name), digest_size=12).hexdigest()
        return os.path.join(self._home.nodes, digest)

    def _fill(self, node: str, entries: dict[str, str]) -> None:
        os.makedirs(node, exist_ok=True)
        for name, target in entries.items():
            path = os.path.join(node, name)
            if os.path.islink(path) or not os.path.isdir(path):  # else the viewer made one: a place for profiles, say
                replace_link(path, target, self._home.path)
        for name in os.listdir(node):
            if name not in entries and os.path.islink(os.path.join(node, name)):
                os.unlink(os.path.join(node, name))

    def _remove_except(self, wanted: set[str]) -> None:
        for name in _list(self._home.nodes, frozenset()):
            node = os.path.join(self._home.nodes, name)
            if node not in wanted:
                self._fill(node, {})
                with contextlib.suppress(OSError):  # there is something of the viewer's in it
                    os.rmdir(node)


def join_names(directory: str, part: str) -> str:
    """Joins the names of a directory and of a run below it; `.` is the directory itself."""
    if part == _ROOT:
        return directory
    return part if directory == _ROOT else f"{directory}/{part}"


def _list(directory: str, hidden: frozenset[str]) -> dict[str, str]:
    """Returns the entries of a directory with their paths; none where it is missing or may not be listed."""
    try:
        return {name: os.path.join(directory, name) for name in os.listdir(directory) if name not in hidden}
    except OSError:
        return {}
