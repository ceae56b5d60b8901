"""`convert` in its plain form, which needs no parser.

Scripts start `convert` once for each run, and typer alone takes as long to start as half a million scalars to convert.
What is here may be deleted without changing anything else: typer then takes the plain form, too, in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["plain_arguments"]

_FLAGS: Final = ("--follow", "--no-archive", "--strict", "--dry-run", "--force", "--quiet")
_TEXTS: Final = ("--dask", "--tags", "--report")
_CHOICES: Final = {"--to": ("tensorboard", "mindinsight"), "--on-restart": ("mark", "latest")}
_PLACES: Final = ("src", "dst")


def plain_arguments(words: Sequence[str]) -> dict[str, Any] | None:
    """Returns what `convert` is called with; None where a parser has to look.

    That is any other command, `--help`, wrong usage, `--option=value`, an option given twice, a value that begins with
    a dash, and words that are not UTF-8; on Windows all, since there the words may be patterns.
    """
    if not words or words[0] != "convert" or os.name == "nt":
        return None
    found: dict[str, Any] = {}
    places: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            places.append(word)
            continue
        name = word[2:].replace("-", "_")
        if name in found:
            return None
        if word in _FLAGS:
            found[name] = True
            continue
        value = next(rest, "-")
        if value.startswith("-"):
            return None
        if word in _TEXTS or value in _CHOICES.get(word, ()):
            found[name] = value
        elif word == "--workers" and value.isascii() and value.isdigit() and 0 < len(value) < 5 and int(value):
            found[name] = int(value)
        else:
            return None
    if len(places) != len(_PLACES) or any(not text.isascii() and _is_odd(text) for text in words):
        return None
    return {**dict(zip(_PLACES, places, strict=True)), **found}


def _is_odd(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
