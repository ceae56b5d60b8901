"""Folding: a line that is too long for a terminal goes on below itself, and not at the left edge in mid-sentence.

What follows hangs behind the column that a line begins with (`  damaged     ...`), else two cells behind its indent.
Lines break at blanks, and a path that has no place in one line behind a slash.
"""

from __future__ import annotations

import itertools
import re
from typing import Final

__all__ = ["fold", "fold_places", "hanging_indent"]

_COLUMN: Final = re.compile(r"\s*\S.*?\s{2,}(?=\S)")
_LABEL: Final = re.compile(r"\s*(?:\d+\. |(?:[\w-]+ )?[\w-]+: )(?=\S)", re.ASCII)
_MOST_INDENT: Final = 28
_LEAST_WIDTH: Final = 20  # of what hangs


def hanging_indent(line: str, width: int) -> int:
    """Returns the cells before what follows below a line, of a terminal so many cells wide."""
    found = (pattern.match(line) for pattern in (_COLUMN, _LABEL))
    ends = [match.end() for match in found if match is not None and match.end() <= _MOST_INDENT]
    indent = ends[0] if ends else len(line) - len(line.lstrip()) + 2
    return min(indent, max(0, width - _LEAST_WIDTH))


def fold(text: str, width: int, indent: int | None = None) -> list[str]:
    """Returns lines of at most so many cells.

    Args:
        text: One line.
        width: Cells of a line; nothing is folded into none.
        indent: Before what follows; by the line itself if not given.
    """
    indent = hanging_indent(text, width) if indent is None else indent
    places = [0, *fold_places(text, width, indent), len(text)]
    parts = [text[start:end].rstrip(" ") for start, end in itertools.pairwise(places)]
    return [" " * indent + part if number else part for number, part in enumerate(parts)]


def fold_places(text: str, width: int, indent: int) -> list[int]:
    """Returns where a line breaks: the places in the text at which what follows begins, no blanks before it."""
    from rich.cells import cell_len

    places: list[int] = []
    start, room = 0, width
    while room > 0 and cell_len(text[start : start + 2 * room + 1]) > room:
        end = start + 1
        while cell_len(text[start : end + 1]) <= room:
            end += 1
        if text[end] != " ":
            end = _break_before(text, start, end, width - indent)
        end += len(text[end:]) - len(text[end:].lstrip(" "))
        if end == len(text):
            break
        places.append(end)
        start, room = end, width - indent
    return places


def _break_before(text: str, start: int, end: int, room: int) -> int:
    """Returns the last good place to break at: behind a blank, or behind a slash of a word that fits in no line."""
    blank = text.rfind(" ", start, end) + 1
    if not text[start:blank].strip():
        blank = start
    close = text.find(" ", end)
    word = text[blank : len(text) if close < 0 else close]
    slash = text.rfind("/", blank, end) + 1
    if slash > start and len(word) > room:
        return slash
    return blank if blank > start else end
