"""Moves our keys out of MindFormers' own `monitor_config` into an entry of `callbacks:`, in the text of a file.

Lines that are not moved stay as they are, with their comments. Where the moving cannot be done line by line (flow
style, anchors), the whole file is written anew, without its comments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor.config.document import read_text
from ms_summary_bridge.monitor.config.mindformers_section import (
    MONITOR_TYPE,
    build_entry,
    find_entries,
    find_misplaced,
    is_mindformers,
)

__all__ = ["Fixed", "move_misplaced"]


class Fixed(NamedTuple):
    """The text of a file in which our keys stand where they belong, and whether its comments are still there."""

    text: str
    keeps_comments: bool


def move_misplaced(text: str, source: str) -> Fixed | None:
    """Returns the text of a file of MindFormers with our keys moved; None where there are none to move.

    Raises:
        ConfigError: It is not YAML, holds a key twice, or has an entry of the monitor already.
    """
    document = read_text(text, source)
    data = document.data
    if not isinstance(data, Mapping) or not is_mindformers(data):
        return None
    ours = find_misplaced(data)
    if not ours:
        return None
    if document.problems:
        raise ConfigError(document.problems)
    callbacks = data.get("callbacks") or []
    if not isinstance(callbacks, list) or any(kind == MONITOR_TYPE for _, kind, _ in find_entries(data)):
        reason = f"has an entry {MONITOR_TYPE} already" if isinstance(callbacks, list) else "must be a list"
        place = document.places.get("$.callbacks", source)
        raise ConfigError([f"$.callbacks: {reason}: move {', '.join(ours)} out of monitor_config by hand ({place})"])
    entry = build_entry(ours)
    rest = {key: value for key, value in data["monitor_config"].items() if key not in ours}
    wanted = {**data, "monitor_config": rest, "callbacks": [*callbacks, *entry]}
    if not rest:
        del wanted["monitor_config"]
    moved = _move_lines(text if text.endswith("\n") else text + "\n", set(ours), entry)
    try:
        if moved is not None and read_text(moved, source).data == wanted:
            return Fixed(moved, keeps_comments=True)
    except ConfigError:
        pass  # an anchor went with what was moved
    return Fixed(_dump(wanted), keeps_comments=False)


def _dump(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110)


def _move_lines(text: str, ours: set[str], entry: list[dict[str, Any]]) -> str | None:
    """Returns the text with the lines of our keys moved; None where they share lines with others."""
    root = yaml.compose(text, yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    nodes = {key.value: (key, value) for key, value in root.value}
    key, section = nodes["monitor_config"]
    if not isinstance(section, yaml.MappingNode) or section.flow_style:
        return None
    lines = text.splitlines(keepends=True)
    gone = [(name, value) for name, value in section.value if name.value in ours]
    if len(gone) == len(section.value):
        gone = [(key, section)]
    dropped = {n for name, value in gone for n in range(name.start_mark.line, _end(value, lines))}
    new = _dump(entry).splitlines(keepends=True)
    place, list_node = len(lines), nodes.get("callbacks", (None, None))[1]
    if list_node is None:
        new.insert(0, "callbacks:\n")
    elif isinstance(list_node, yaml.SequenceNode) and not list_node.flow_style:
        new = [" " * list_node.start_mark.column + line for line in new]
        place = _end(list_node, lines)
    else:
        return None
    kept = [line for n, line in enumerate(lines[:place]) if n not in dropped]
    return "".join([*kept, *new, *(line for n, line in enumerate(lines) if n >= place and n not in dropped)])


def _end(node: yaml.Node, lines: list[str]) -> int:
    """Returns the line behind a value, without comments and blank lines that follow it."""
    mark = node.end_mark
    is_block = isinstance(node, yaml.CollectionNode) and not node.flow_style
    end = mark.line if is_block or mark.column == 0 else mark.line + 1
    while is_block and lines[end - 1].strip()[:1] in ("", "#"):
        end -= 1
    return int(end)
