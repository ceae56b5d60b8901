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
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from ms_summary_bridge.files.links import is_link, replace_link
from ms_summary_bridge.mirror.home import Home

if TYPE_CHECKING:
    from ms_summary_bridge.mirror.directory import MirroredDirectory

__all__ = ["join_names", "show_tree"]

_ROOT: Final = "."


def show_tree(home: Home, directories: Collection[MirroredDirectory]) -> None:
    """Brings all links up to date with what has been converted, and with what the logdir's directories hold.

    Raises:
        OSError: The links cannot be written.
    """
    files: dict[str, dict[str, str]] = {}  # of each node: the converted files in it, by name
    hidden: dict[str, frozenset[str]] = {}
    for one in directories:
        for part, paths in one.converted_files.items():
            hidden[one.name] = one.hidden
            entries = files.setdefault(join_names(one.name, part), {})
            entries.update((os.path.basename(path), path) for path in paths)
    below: dict[str, dict[str, str]] = {}  # of each node: the nodes below it
    for node in list(files):
        while node != _ROOT:
            parent, _, name = node.rpartition("/")
            parent = parent or _ROOT
            below.setdefault(parent, {})[name] = _path_of(home, node)
            files.setdefault(parent, {})
            node = parent
    # The deepest first: a node is filled before anything leads to it.
    for node in sorted(files, key=lambda name: -1 if name == _ROOT else name.count("/"), reverse=True):
        entries = _list(os.path.normpath(os.path.join(home.source, node)), hidden.get(node, frozenset()))
        _fill(home, _path_of(home, node), {**entries, **files[node], **below.get(node, {})})
    home.point(_path_of(home, _ROOT) if files else home.source)
    wanted = {_path_of(home, node) for node in files}
    for path in _list(home.nodes).values():
        if path not in wanted:
            _fill(home, path, {})
            with contextlib.suppress(OSError):  # there is something of the viewer's in it
                os.rmdir(path)


def _path_of(home: Home, node: str) -> str:
    return os.path.join(home.nodes, hashlib.blake2b(os.fsencode(node), digest_size=12).hexdigest())


def _fill(home: Home, path: str, entries: dict[str, str]) -> None:
    os.makedirs(path, exist_ok=True)
    for name, target in entries.items():
        link = os.path.join(path, name)
        if is_link(link) or not os.path.isdir(link):  # else the viewer made one: a place for profiles, say
            replace_link(link, target, home.path)
    for name, link in _list(path).items():
        # A file that is no link is the viewer's; on Windows, where links to files may not be had, it is ours.
        if name not in entries and (is_link(link) or (sys.platform == "win32" and os.path.isfile(link))):
            os.unlink(link)


def join_names(directory: str, part: str) -> str:
    """Joins the names of a directory and of a run below it; `.` is the directory itself."""
    if part == _ROOT:
        return directory
    return part if directory == _ROOT else f"{directory}/{part}"


def _list(directory: str, hidden: frozenset[str] = frozenset()) -> dict[str, str]:
    """Returns the entries of a directory with their paths; none where it is missing or may not be listed."""
    try:
        return {name: os.path.join(directory, name) for name in os.listdir(directory) if name not in hidden}
    except OSError:
        return {}
