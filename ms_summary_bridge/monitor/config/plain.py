"""Brings what a dict of the user's holds to plain values: mappings, lists, texts, numbers, booleans.

The dict may come from any program: tuples, paths, numpy numbers and the dict classes of frameworks are what is meant;
objects, a value that holds itself, and keys that are no text are not.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ms_summary_bridge.monitor.config.problems import Problems, show
from ms_summary_bridge.monitor.config.yaml_text import MAX_DEPTH, MAX_NODES, join_path

__all__ = ["to_plain"]


def to_plain(value: Any, path: str, problems: Problems) -> Any:
    """Returns a copy of plain values that shares nothing with `value`; what has no plain form becomes None."""
    return _Plain(problems).convert(value, path, 0)


class _Plain:
    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._count = 0

    def convert(self, value: Any, path: str, depth: int) -> Any:
        self._count += 1
        if self._count > MAX_NODES:
            return None if self._count > MAX_NODES + 1 else self._refuse(path, f"more than {MAX_NODES:,} values")
        if depth > MAX_DEPTH:
            return self._refuse(path, f"more than {MAX_DEPTH} levels deep, or a value that holds itself")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self._convert_text(str.__str__(value), path)
        if isinstance(value, int):
            fits = -(1 << 63) <= value < 1 << 63
            return int(value) if fits else self._refuse(path, "a whole number of more than 64 bits")
        if isinstance(value, float):
            return float(value)
        if isinstance(value, Mapping):
            return self._convert_mapping(value, path, depth)
        if isinstance(value, list | tuple):
            return [self.convert(item, join_path(path, number), depth + 1) for number, item in enumerate(value)]
        if isinstance(value, os.PathLike):
            return self.convert(os.fspath(value), path, depth + 1)
        if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a number of numpy
            return self.convert(value.item(), path, depth + 1)
        return self._refuse(path, f"is no value of a configuration: {show(value)}")

    def _refuse(self, path: str, text: str) -> None:
        self._problems.add(path, text)

    def _convert_text(self, text: str, path: str) -> str | None:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:  # an escape such as "\ud800", which no file can hold
            self._refuse(path, f"holds half a character: {show(text)}")
            return None
        return text

    def _convert_mapping(self, value: Mapping[Any, Any], path: str, depth: int) -> dict[str, Any]:
        plain = {}
        for key, item in value.items():
            if not isinstance(key, str):
                hint = ": on, off, yes and no are keys only in quotes" if isinstance(key, bool) else ""
                self._refuse(path, f"has a key that is no text, {show(key)}{hint}")
            elif self._convert_text(key, path) is not None:
                plain[str.__str__(key)] = self.convert(item, join_path(path, key), depth + 1)
        return plain
