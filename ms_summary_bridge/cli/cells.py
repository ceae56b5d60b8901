"""Texts for a terminal that fit into so many cells: numbers, ages, paths, and bars for a series."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from ms_summary_bridge.cli.folding import fold
from ms_summary_bridge.states.run_state import RankState

__all__ = ["fit", "show_age", "show_memory", "show_moment", "show_number", "show_rate", "sparkline", "wrap"]

_BARS: Final = "▁▂▃▄▅▆▇█"
_ASCII_BARS: Final = "_.,-~=*#"
_THOUSAND_DAYS: Final = 999.5 * 86400


def sparkline(values: Sequence[float], width: int, *, is_ascii: bool = False) -> str:
    """Returns the last values as bars; several in one where they are more than `width`; `x` is not finite."""
    bars = _ASCII_BARS if is_ascii else _BARS
    count = min(len(values), max(0, width))
    groups = [values[len(values) * n // count : len(values) * (n + 1) // count] for n in range(count)]
    means = [sum(value / len(group) for value in group) for group in groups]
    halves = [mean / 2 for mean in means if math.isfinite(mean)]  # the difference of two may be more than a float
    low, high = min(halves, default=0.0), max(halves, default=0.0)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    return "".join(bars[round((mean / 2 - low) * scale)] if math.isfinite(mean) else "x" for mean in means)


def show_age(now: float, last_time: float) -> str:
    """Returns how long ago something was, in at most four characters."""
    if not last_time:
        return "-"
    secs = max(0.0, now - last_time)
    if secs >= _THOUSAND_DAYS:
        return f"{secs / 86400 / 365.25:.0f}y"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if secs >= size:
            return f"{secs / size:.0f}{unit}"
    return f"{secs:.0f}s"


def show_number(value: float | None, digits: int = 4) -> str:
    """Returns a number with so many digits."""
    return "-" if value is None else f"{value:.{digits}g}"


def show_rate(rank: RankState) -> str:
    """Returns how fast a rank goes, with its unit."""
    if rank.rate is None:
        return "-"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if rank.rate >= size:
            return f"{rank.rate / (1e3 if letter == 'k' else size):.3g}{letter} {rank.rate_unit}"
    return f"{rank.rate:.3g} {rank.rate_unit}"


def show_memory(mib: float | None) -> str:
    """Returns MiB as people write them."""
    return "-" if mib is None else f"{mib / 1024:.1f}G" if mib >= 1024 else f"{mib:.0f}M"


def fit(text: str, width: int, *, keeps_end: bool = False, is_right: bool = False, is_ascii: bool = False) -> str:
    """Returns a text in just so many cells; what is too long is cut, a path at its beginning."""
    if cell_len(text) > width:
        mark = "~" if is_ascii else "…"
        if keeps_end:
            while cell_len(text) > width - 1:
                text = text[1:]
            return set_cell_size(mark + text, width)
        return set_cell_size(set_cell_size(text, max(0, width - 1)).rstrip() + mark, width)
    return " " * (width - cell_len(text)) + text if is_right else set_cell_size(text, width)


def show_moment(wall_time: float) -> str:
    """Returns a time of the day with its date."""
    try:
        return time.strftime("%m-%d %H:%M:%S", time.localtime(wall_time))
    except (OverflowError, ValueError, OSError):
        return "-"


def wrap(text: str, width: int) -> list[str]:
    """Returns lines of at most so many cells, broken at blanks, else behind a slash, else anywhere."""
    return fold(text, width, 0)
