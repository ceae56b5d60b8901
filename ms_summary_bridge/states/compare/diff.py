"""What changed between two trainings: configuration, tags, versions, commit, command line, data, and their losses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from ms_summary_bridge.errors import NoEventsError, UsageError, counted
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.files.event_file import Path
from ms_summary_bridge.states.compare.training import Series, Training, find_trainings, read_training

__all__ = ["Change", "Diff", "LossDiff", "describe_loss", "diff_runs", "diff_trainings", "render_diff", "show_value"]

_HEADER: Final = ("tags", "versions", "commit", "command", "ranks", "device", "config")
_WINDOW: Final = 9  # points of a median
_NOISE: Final = 4.0  # so many times the noise of both, losses are apart


class Change(msgspec.Struct, frozen=True):
    """One thing that is not the same; None where one side has nothing."""

    section: str
    """`settings`, `config`, `tags`, `versions`, `commit`, `command`, `ranks`, `device`, `series` or `dataset`."""
    name: str
    a: Any
    b: Any


class LossDiff(msgspec.Struct, frozen=True):
    """How two losses go.

    Attributes:
        tag_a: Whose the loss of A is.
        tag_b: Of B.
        common: Steps that both have.
        first_difference: The first of these at which they are not the same number; None for none.
        parts_at: The first of these from which on they stay farther apart than their noise; None where they do not.
        best_a: The lowest finite loss of A.
        best_b: Of B.
    """

    tag_a: str
    tag_b: str
    common: int
    first_difference: int | None
    parts_at: int | None
    best_a: float | None
    best_b: float | None


class Diff(msgspec.Struct):
    """Two trainings."""

    a: str
    b: str
    changes: list[Change] = []
    loss: LossDiff | None = None
    """None where one of them has no loss."""
    problems: list[str] = []

    @property
    def is_same(self) -> bool:
        """Whether nothing is different."""
        return not self.changes and (self.loss is None or self.loss.first_difference is None)

    def plain(self) -> dict[str, Any]:
        """Returns it for programs."""
        return {"same": self.is_same, **msgspec.structs.asdict(self)}


def diff_runs(a: Path, b: Path) -> Diff:
    """Compares two trainings.

    Args:
        a: Directory of one training: its event files or its journals, of one rank or of many.
        b: Of another.

    Raises:
        LogdirError: One cannot be read.
        NoEventsError: There is no training.
        UsageError: There are several.
    """
    sides = [check_path(name, path, is_local=True) for name, path in (("A", a), ("B", b))]
    one, two = (_read_one(path) for path in sides)
    diff = diff_trainings(one, two)
    diff.a, diff.b = sides
    return diff


def _read_one(path: str) -> Training:
    found = find_trainings(path)
    if not found:
        raise NoEventsError(f"{path}: no training was found below it")
    if len(found) > 1:
        names = ", ".join(one.found.name for one in found[:5])
        raise UsageError(
            f"{path}: {counted(len(found), 'training is', 'trainings are')} below it ({names}, ...): "
            "name the directory of one"
        )
    return read_training(found[0])


def diff_trainings(a: Training, b: Training) -> Diff:
    """Compares two trainings that were read."""
    diff = Diff(a.name, b.name, problems=[*a.problems, *b.problems])
    changes = [*_changes("settings", a.settings, b.settings)]
    for section in _HEADER:
        if section in a.header or section in b.header:
            changes += _changes(section, a.header.get(section), b.header.get(section))
    if not a.header or not b.header:
        changes += _changes("ranks", a.ranks, b.ranks)
    series_a, series_b = set(a.series), set(b.series)
    changes += [Change("series", tag, "recorded", None) for tag in sorted(series_a - series_b)]
    changes += [Change("series", tag, None, "recorded") for tag in sorted(series_b - series_a)]
    changes += _diff_dataset(a.dataset, b.dataset)
    diff.changes = changes
    if a.loss is not None and b.loss is not None:
        diff.loss = _diff_losses(a.loss, b.loss)
    return diff


def _changes(section: str, a: Any, b: Any) -> list[Change]:
    left, right = dict(_flatten(a)), dict(_flatten(b))
    names = list(dict.fromkeys([*left, *right]))
    return [Change(section, name, left.get(name), right.get(name)) for name in names if not _equal(left, right, name)]


def _equal(left: dict[str, Any], right: dict[str, Any], name: str) -> bool:
    if (name in left) != (name in right):
        return False
    a, b = left[name], right[name]
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the leaves of a section by their path; a list of plain things, such as a command line, is one."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flatten(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(inner, (dict, list)) for inner in value):
        for number, inner in enumerate(value):
            yield from _flatten(inner, f"{name}[{number}]")
    elif value is not None:
        yield name, value


def _diff_dataset(a: str, b: str) -> list[Change]:
    """Returns a change for each line of the pipeline that only one has."""
    left, right = ([line.strip() for line in text.splitlines() if line.strip()] for text in (a, b))
    if left == right:
        return []
    only_a = [line for line in left if line not in right]
    only_b = [line for line in right if line not in left]
    if not only_a and not only_b:
        return [Change("dataset", "order", "\n".join(left), "\n".join(right))]
    return [
        *(Change("dataset", "stage", line, None) for line in only_a),
        *(Change("dataset", "stage", None, line) for line in only_b),
    ]


# ------------------------------------------------------------------ losses


def _diff_losses(a: Series, b: Series) -> LossDiff:
    steps, in_a, in_b = np.intersect1d(a.steps, b.steps, assume_unique=True, return_indices=True)
    left, right = a.values[in_a], b.values[in_b]
    is_same = (left == right) | (np.isnan(left) & np.isnan(right))
    first = None if is_same.all() else int(steps[int(np.argmin(is_same))])
    place = None if first is None else _find_parting(left, right)
    return LossDiff(
        tag_a=a.tag,
        tag_b=b.tag,
        common=len(steps),
        first_difference=first,
        parts_at=None if place is None else int(steps[place]),
        best_a=_best(a),
        best_b=_best(b),
    )


def _best(series: Series) -> float | None:
    finite = series.values[np.isfinite(series.values)]
    return float(finite.min()) if len(finite) else None


def _find_parting(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64]) -> int | None:
    """Returns the place from which on two losses stay apart, or from which on one alone is not finite.

    Noise is what a loss jumps from point to point; the difference is smoothed by a running median, so that one point
    that jumps is no parting.
    """
    is_apart = np.isfinite(a) != np.isfinite(b)
    window = min(_WINDOW, max(1, len(a) // 4 * 2 - 1))
    both = np.isfinite(a) & np.isfinite(b)
    if both.any():
        gap = np.zeros(len(a))
        gap[both] = a[both] - b[both]
        padded = np.pad(gap, window // 2, mode="reflect")
        smooth = np.median(np.lib.stride_tricks.sliding_window_view(padded, window), axis=1)
        bound = _NOISE * max(_noise(a[both]), _noise(b[both])) / math.sqrt(window)
        least = 1e-6 * np.maximum(np.abs(a), np.abs(b))
        is_apart |= both & (np.abs(smooth) > np.maximum(bound, least))
    together = np.flatnonzero(~is_apart)
    place = int(together[-1]) + 1 if len(together) else 0
    return place if len(a) - place >= min(window, len(a)) else None


def _noise(values: npt.NDArray[np.float64]) -> float:
    """Returns the standard deviation of a series around its course, from the second differences."""
    if len(values) < 4:
        return 0.0
    return float(1.4826 * np.median(np.abs(np.diff(values, 2))) / math.sqrt(6))


# ------------------------------------------------------------------ in words


def render_diff(diff: Diff) -> Iterator[str]:
    """Yields lines for people."""
    yield f"A  {diff.a}"
    yield f"B  {diff.b}"
    section = ""
    for change in diff.changes:
        if change.section != section:
            section = change.section
            yield f"{section}:"
        name = f"{change.name}: " if change.name else ""
        yield f"  {name}{show_value(change.a)} -> {show_value(change.b)}"
    yield describe_loss(diff.loss)
    for problem in diff.problems:
        yield f"not read: {problem}"
    yield "the same" if diff.is_same else "different"


def describe_loss(loss: LossDiff | None) -> str:
    """Returns in a sentence how two losses go."""
    if loss is None:
        return "loss: one of them has none"
    if not loss.common:
        return f"loss: {loss.tag_a} and {loss.tag_b} have no step in common"
    if loss.first_difference is None:
        return f"loss: the same numbers at all {counted(loss.common, 'common step')}"
    names = loss.tag_a if loss.tag_a == loss.tag_b else f"{loss.tag_a}, {loss.tag_b}"
    apart = "but within their noise" if loss.parts_at is None else f"and apart from step {loss.parts_at} on"
    best = f"best {show_value(loss.best_a)} -> {show_value(loss.best_b)}"
    return f"loss ({names}): not the same from step {loss.first_difference} on, {apart}; {best}"


def show_value(value: Any) -> str:
    """Returns a side of a change for people."""
    if value is None:
        return "(nothing)"
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
