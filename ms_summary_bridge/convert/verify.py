"""Verify: whether two logs hold the same points, also when their formats differ.

For each run, tag and kind, the ordered (step, wall_time, value) lists are compared: bit for bit, with renamed tags
undone, derived values left out, archives in their place, and repeats counted once. A list is kept as a running
hash, so memory grows with the number of tags, not of points; only series that differ are read a second time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from typing import Final

import msgspec

from ms_summary_bridge.convert.state import load_state
from ms_summary_bridge.convert.task import relative_path
from ms_summary_bridge.errors import BridgeError, NoEventsError
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.files.event_file import Path
from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.runs.logdir import Run, discover
from ms_summary_bridge.runs.reading import Point, RunReading, read_points
from ms_summary_bridge.runs.report import DamagedRange, IncompleteTail
from ms_summary_bridge.values import Histogram, Image, Scalar

__all__ = ["Difference", "RunComparison", "VerifyReport", "verify_logdirs"]

_EXPLAINED: Final = 20  # differing series for which the first difference is looked up
_HELD_LIVE: Final = frozenset({Scalar.kind, Histogram.kind, Image.kind})
_POINT: Final = struct.Struct("<qd")

_Key = tuple[str, str]  # kind, tag


class Difference(msgspec.Struct):
    """One series that is not the same on both sides."""

    kind: str
    tag: str
    points_a: int
    points_b: int
    detail: str


class RunComparison(msgspec.Struct):
    """One pair of runs."""

    run_a: str
    run_b: str
    series: int
    """Tags and kinds compared."""
    points: int
    """Points that are equal on both sides."""
    differences: list[Difference]
    not_compared: int = 0
    """Points that only one of the formats can have: kinds that a live TensorBoard file does not hold, and what users
    wrote for TensorBoard alone."""


class VerifyReport(msgspec.Struct):
    """The result of one comparison."""

    a: str
    b: str
    runs: list[RunComparison] = msgspec.field(default_factory=list)
    only_a: list[str] = msgspec.field(default_factory=list)
    """Runs without a counterpart in `b`."""
    only_b: list[str] = msgspec.field(default_factory=list)
    damaged: list[DamagedRange] = msgspec.field(default_factory=list)
    incomplete: list[IncompleteTail] = msgspec.field(default_factory=list)
    unreadable: list[str] = msgspec.field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether no difference was found."""
        return not self.only_a and not self.only_b and not any(run.differences for run in self.runs)


class _Series:
    """One series as a running hash over its points, repeats passed over."""

    __slots__ = ("_digest", "_last", "points")

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self._last: tuple[int, bytes] | None = None
        self.points = 0

    def add(self, point: Point) -> bool:
        if self._last == (point.step, point.fingerprint):
            return False
        self._last = (point.step, point.fingerprint)
        self._digest.update(_POINT.pack(point.step, point.wall_time))
        self._digest.update(point.fingerprint)
        self.points += 1
        return True

    def digest(self) -> bytes:
        return self._digest.digest()


def verify_logdirs(a: Path, b: Path) -> VerifyReport:
    """Compares every run below `a` with its counterpart below `b`.

    Runs are matched by name, or by the name that the conversion to the other side gave them; when each side has one
    run, these two are compared whatever they are called. When both arguments are the same directory, its source files
    are compared with the files this package made beside them.

    Raises:
        NoEventsError: A side has no event files.
        UsageError: An argument cannot be a path.
    """
    a, b = check_path("a", a), check_path("b", b)
    report = VerifyReport(a, b)
    found_a, found_b = discover(a), discover(b)
    is_same = "://" not in a and "://" not in b and os.path.exists(a) and os.path.samefile(a, b)
    runs_a, runs_b = list(found_a.runs), list(found_b.twins if is_same else found_b.runs)
    if is_same:  # runs without a twin (child runs that `add_scalars` makes) have nothing to be compared with
        places = {run.directory for run in runs_b}
        runs_a = [run for run in runs_a if run.directory in places]
    for side, runs in ((a, runs_a), (b, runs_b)):
        if not runs:
            raise NoEventsError(f"{side}: no event files to compare")
    problems = {f"{p.path}: {p.reason}" for p in (*found_a.problems, *found_b.problems)}
    report.unreadable = sorted(problems)
    pairs: list[tuple[Run, Run]]
    if len(runs_a) == 1 and len(runs_b) == 1:
        pairs = [(runs_a[0], runs_b[0])]
    else:
        names_a, names_b = _names(runs_a, a, b), _names(runs_b, b, a)
        by_name = dict(zip(names_b, runs_b, strict=True))
        pairs = [(run, by_name.pop(name)) for run, name in zip(runs_a, names_a, strict=True) if name in by_name]
        paired = {run.name for run, _ in pairs}
        if MINDSPORE in {run.format for run in runs_a} and "live" in {run.role for run in runs_a}:
            # Child runs that `SummaryWriter.add_scalars` makes beside a MindSpore run stay where they are.
            runs_a = [run for run in runs_a if run.role != "live" or run.name in paired]
        report.only_a = [run.name for run in runs_a if run.name not in paired]
        report.only_b = sorted(run.name for run in by_name.values())
    for run_a, run_b in pairs:
        report.runs.append(_compare(run_a, run_b, report))
    return report


def _names(runs: list[Run], source: str, other: str) -> list[str]:
    """Returns the names by which to look for runs in `other`: those a conversion gave them, if it is one of them."""
    owners: dict[str, str] = {}
    if "://" not in other:
        with contextlib.suppress(BridgeError):
            owners = {file: name for name, run in load_state(other).runs.items() for file in run.files}
    names: list[str] = []
    for run in runs:
        known = [owners.get(relative_path(file.path, source)) for file in run.sources]
        name = next((name for name in known if name is not None), run.name)
        names.append(name if name not in names else run.name)
    return names


def _compare(run_a: Run, run_b: Run, report: VerifyReport) -> RunComparison:
    # What a user wrote for TensorBoard alone is in no MindSpore file, so it is compared between TensorBoard files only.
    with_users = MINDSPORE not in (run_a.format, run_b.format)
    series_a, users_a = _digests(run_a, report, with_users)
    series_b, users_b = _digests(run_b, report, with_users)
    comparison = RunComparison(run_a.name, run_b.name, len(series_a.keys() | series_b.keys()), 0, [])
    comparison.not_compared = users_a + users_b
    differing: list[_Key] = []
    is_live = "live" in (run_a.role, run_b.role)
    for key in sorted(series_a.keys() | series_b.keys()):
        one, other = series_a.get(key), series_b.get(key)
        if is_live and key[0] not in _HELD_LIVE and (one is None or other is None):
            comparison.not_compared += sum(series.points for series in (one, other) if series is not None)
        elif one is not None and other is not None and one.digest() == other.digest():
            comparison.points += one.points
        else:
            differing.append(key)
    details = _explain(run_a, run_b, set(differing[:_EXPLAINED]))
    for key in differing:
        points_a = series_a[key].points if key in series_a else 0
        points_b = series_b[key].points if key in series_b else 0
        detail = "only in A" if not points_b else "only in B" if not points_a else details.get(key, "values differ")
        comparison.differences.append(Difference(*key, points_a, points_b, detail))
    return comparison


def _digests(run: Run, report: VerifyReport, with_users: bool) -> tuple[dict[_Key, _Series], int]:
    """Returns the series of a run, and how many points of users were left out."""
    table: dict[_Key, _Series] = {}
    reading = RunReading()
    for point in read_points(run, reading, with_users=with_users):
        key = (point.kind, point.tag)
        series = table.get(key)
        if series is None:
            series = table[key] = _Series()
        series.add(point)
    report.damaged += reading.damaged
    report.incomplete += reading.incomplete
    return table, reading.users


def _explain(run_a: Run, run_b: Run, keys: set[_Key]) -> dict[_Key, str]:
    """Finds the first point at which each of the series differs."""
    if not keys:
        return {}
    lists_a, lists_b = _lists(run_a, keys), _lists(run_b, keys)
    details = {}
    for key in keys:
        list_a, list_b = lists_a.get(key, []), lists_b.get(key, [])
        for index, (one, other) in enumerate(zip(list_a, list_b, strict=False)):
            if one != other:
                details[key] = f"point {index}: {_how(one, other)}"
                break
        else:
            longer, side = (list_a, "A") if len(list_a) > len(list_b) else (list_b, "B")
            first = longer[min(len(list_a), len(list_b))] if len(list_a) != len(list_b) else None
            details[key] = f"from step {first.step} on only in {side}" if first else "values differ"
    return details


def _lists(run: Run, keys: set[_Key]) -> dict[_Key, list[Point]]:
    lists: dict[_Key, list[Point]] = {}
    table: dict[_Key, _Series] = {}
    for point in read_points(run):
        key = (point.kind, point.tag)
        if key in keys and table.setdefault(key, _Series()).add(point):
            lists.setdefault(key, []).append(point)
    return lists


def _how(one: Point, other: Point) -> str:
    if one.step != other.step:
        return f"step {one.step} in A, {other.step} in B"
    if one.wall_time != other.wall_time:
        return f"step {one.step}: wall_time {one.wall_time!r} in A, {other.wall_time!r} in B"
    if one.kind == "scalar":
        return f"step {one.step}: value {_number(one.fingerprint)} in A, {_number(other.fingerprint)} in B"
    return f"step {one.step}: the values differ"


def _number(fingerprint: bytes) -> str:
    (number,) = struct.unpack("<f" if len(fingerprint) == 4 else "<d", fingerprint)
    return f"{number!r} (bits {fingerprint[::-1].hex()})"
