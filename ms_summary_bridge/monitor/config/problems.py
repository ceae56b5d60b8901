"""Collects what is wrong with a configuration, each problem with its path, its place and the nearest right word.

A check never raises: it adds a line to `Problems` and returns `INVALID`, so that all problems come out at once.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["INVALID", "Problems", "join_path", "nearest", "show"]

INVALID: Final[Any] = object()
"""What a check returns for a value that it has refused."""

_SHOWN: Final = 60
_PLAIN_KEY: Final = re.compile(r"[\w-]+")


class Problems:
    """Collects a text for each problem, with the place of the value it is about.

    `places` are by path; a value that is not in it stands where the one around it does.
    """

    def __init__(self, places: Mapping[str, str] | None = None) -> None:
        self._places = {} if places is None else places
        self.lines: list[str] = []

    def add(self, path: str, text: str) -> Any:
        """Adds a problem with the value at this path; returns `INVALID`."""
        place = self._find(path)
        line, newline, more = text.partition("\n")  # what follows are lines to write into a file
        self.lines.append(f"{path}: {line}{f' ({place})' if place else ''}{newline}{more}")
        return INVALID

    def _find(self, path: str) -> str:
        while path not in self._places:
            shorter = re.sub(r'(?:\.[^.\[\]"]+|\[[^\[\]]*\])$', "", path)
            if shorter == path:
                return ""
            path = shorter
        return self._places[path]


def join_path(path: str, key: object) -> str:
    """Returns the path of an item: `$.a`, `$.a[0]`, `$["a.b"]`."""
    if isinstance(key, int) and not isinstance(key, bool):
        return f"{path}[{key}]"
    text = str(key)
    return f"{path}.{text}" if _PLAIN_KEY.fullmatch(text) else f'{path}["{text}"]'


def show(value: Any) -> str:
    """Returns a value as one short line."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def nearest(word: object, words: Iterable[str], *, likeness: float = 0.6) -> str:
    """Returns `; did you mean 'loss'?` for a word that is nearly one of these, and nothing for another one."""
    close = difflib.get_close_matches(str(word).lower()[:100], list(words), n=1, cutoff=likeness)
    return f"; did you mean {close[0]!r}?" if close else ""
