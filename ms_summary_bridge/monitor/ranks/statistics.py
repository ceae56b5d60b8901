"""What is told by each rank as one row of numbers, and what that says of all ranks.

Imports no mindspore.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["PREFIX", "join_rows", "make_row"]

PREFIX: Final = "all/"
_SLOWEST: Final = {
    "step_time": np.argmax,
    "data_time": np.argmax,
    "samples_per_second": np.argmin,
    "tokens_per_second": np.argmin,
    "mfu": np.argmin,
}
"""Metrics of which a rank can be slow, and where the slowest is found; of others the rank of the greatest is told."""


def make_row(names: Sequence[str], values: Mapping[str, float]) -> npt.NDArray[np.float32]:
    """Returns [2, metrics] float32: the values, NaN for those that this rank has not, and for each whether it has."""
    has = [name in values for name in names]
    with np.errstate(over="ignore"):  # what is beyond float32 is infinite there
        return np.asarray([[values.get(name, math.nan) for name in names], has]).astype(np.float32)


def join_rows(names: Sequence[str], rows: npt.NDArray[np.float32]) -> tuple[dict[str, float], str]:
    """Returns the values over all ranks by their names below `all/`, and the same in words.

    Of each metric `mean`, `min` and `max`, and `slowest_rank` or `max_rank`. Ranks without a value count in none of
    them, and `absent_ranks` says how many they are. A value that is not finite makes the mean what it is, counts in
    `nonfinite_ranks`, and not in the others.

    Args:
        names: The metrics, in the order of the rows.
        rows: [ranks, 2, metrics] float32, as `make_row` makes them.
    """
    values: dict[str, float] = {}
    said = []
    for number, name in enumerate(names):
        numbers, has = rows[:, 0, number].astype(np.float64), rows[:, 1, number] > 0
        if not has.any():
            continue
        found = {"mean": float(np.mean(numbers[has]))}
        finite = has & np.isfinite(numbers)
        part = f"{name} {found['mean']:.5g}"
        if finite.any():
            place: Any = _SLOWEST.get(name, np.argmax)
            ranks, kept = np.flatnonzero(finite), numbers[finite]
            odd = int(ranks[place(kept)])
            kind = "slowest" if name in _SLOWEST else "max"
            found.update({"min": float(kept.min()), "max": float(kept.max()), f"{kind}_rank": odd})
            part += (
                f" ({found['min']:.5g} to {found['max']:.5g}, {'slowest' if kind == 'slowest' else 'most'} on {odd})"
            )
        if not has.all():
            found["absent_ranks"] = int((~has).sum())
        if (bad := np.flatnonzero(has & ~np.isfinite(numbers))).size:
            found["nonfinite_ranks"] = int(bad.size)
            part += f" (not finite on {', '.join(map(str, bad[:5]))}{', ...' if bad.size > 5 else ''})"
        values.update({f"{PREFIX}{name}/{kind}": value for kind, value in found.items()})
        said.append(part)
    return values, ", ".join(said)
