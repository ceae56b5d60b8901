"""Arguments of public functions: refused with the argument's name, as the command line does."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from ms_summary_bridge.errors import UsageError

__all__ = ["check_choice", "check_number", "check_path"]


def check_path(name: str, value: Any, *, is_local: bool = False) -> str:
    """Returns a path, given as a str or an `os.PathLike[str]`, as text; with `is_local`, URLs are refused.

    Raises:
        UsageError: It is something else, or empty, or cannot be a path.
    """
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if not isinstance(path, str):
        raise UsageError(f"{name}: must be a str or an os.PathLike[str], not {value!r}")
    if not path or "\0" in path:
        raise UsageError(f"{name}: {path!r} cannot be a path")
    if is_local and ("://" in path or path.startswith("file:")):
        raise UsageError(f"{name}: {path} is a URL; name a local directory, and copy it there afterwards")
    return path


def check_number(name: str, value: Any, least: int, most: int | None = None) -> None:
    """Raises UsageError for what is not a whole number from `least` to `most`."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < least or (most is not None and value > most):
        end = "on" if most is None else f"to {most}"
        raise UsageError(f"{name}: must be a whole number from {least} {end}, not {value!r}")


def check_choice(name: str, value: Any, choices: Collection[Any]) -> None:
    """Raises UsageError for what is not one of several values."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise UsageError(f"{name}: must be {' or '.join(map(repr, choices))}, not {value!r}")
