"""Brings what a dict of the user's holds to plain values: mappings, lists, texts, numbers, booleans.

The dict may come from any program: tuples, paths, numpy numbers and the dict classes of frameworks are what is meant;
objects, a value that holds itself, and keys that are not text are refused.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ms_summary_bridge.monitor.config.problems import Problems, join_path, show
from ms_summary_bridge.monitor.config.yaml_text import MAX_DEPTH, MAX_NODES

__all__ = ["to_plain"]


def to_plain(value: Any, path: str, problems: Problems) -> Any:
    """Returns a copy of plain values that shares nothing with `value`; what has no plain form becomes None."""
    count = 0

    def convert(value: Any, path: str, depth: int) -> Any:
        nonlocal count
        count += 1
        problem = ""
        if count > MAX_NODES:
            problem = f"more than {MAX_NODES:,} values" if count == MAX_NODES + 1 else ""
        elif depth > MAX_DEPTH:
            problem = f"more than {MAX_DEPTH} levels deep, or a value that holds itself"
        elif value is None or isinstance(value, bool):
            return value
        elif isinstance(value, str):
            if is_unicode(value):
                return str.__str__(value)
            problem = f"holds half a character: {show(value)}"
        elif isinstance(value, int):
            if -(1 << 63) <= value < 1 << 63:
                return int(value)
            problem = "a whole number of more than 64 bits"
        elif isinstance(value, float):
            return float(value)
        elif isinstance(value, Mapping):
            return convert_mapping(value, path, depth)
        elif isinstance(value, list | tuple):
            return [convert(item, join_path(path, number), depth + 1) for number, item in enumerate(value)]
        elif isinstance(value, os.PathLike):
            return convert(os.fspath(value), path, depth + 1)
        elif getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of numpy
            return convert(value.item(), path, depth + 1)
        else:
            problem = f"cannot be a value of a configuration: {show(value)}"
        if problem:
            problems.add(path, problem)
        return None

    def convert_mapping(value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str):
                hint = ": on, off, yes and no are keys only in quotes" if isinstance(key, bool) else ""
                problems.add(path, f"has a key that is not text, {show(key)}{hint}")
            elif not is_unicode(key):
                problems.add(path, f"holds half a character: {show(key)}")
            else:
                plain[str.__str__(key)] = convert(item, join_path(path, key), depth + 1)
        return plain

    return convert(value, path, 0)


def is_unicode(text: str) -> bool:
    """Whether a file can hold a text; an escape can make half a character."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
