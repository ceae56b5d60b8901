"""Verify: whether two logs hold the same points, also when their formats differ.

For each run, tag and kind, the ordered (step, wall_time, value) lists are compared: bit for bit, with renamed tags
undone and archives in their place. Where one side was converted from the other, what was made on the way (drawings,
tables, statistics, approximations, sessions) is compared with what would be made now, and an output's files with the
checksums that the conversion remembers. A list is kept as a running hash, so memory grows with the number of tags, not
of points; only series that differ are read a second time.

Repeats are left out of sources only: in an output of ours a repeat is a difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from ms_summary_bridge.convert.verify.output import changed_files, read_output
from ms_summary_bridge.convert.verify.pairs import Pair, pair_runs
from ms_summary_bridge.convert.verify.report import Difference, RunComparison, VerifyReport
from ms_summary_bridge.convert.verify.series import (
    ENCODING,
    Key,
    PointLists,
    Series,
    SeriesHashes,
    Taker,
    first_difference,
)
from ms_summary_bridge.convert.verify.source import SourceSide
from ms_summary_bridge.events import FileVersion, SessionLog
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.files.event_file import Path
from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.runs.log_files import LIVE
from ms_summary_bridge.runs.logdir import Run
from ms_summary_bridge.runs.reading import RunReading, read_points
from ms_summary_bridge.values import Histogram, Image, Scalar

__all__ = ["verify_logdirs"]

_NO_VALUES: Final = frozenset({FileVersion.kind, SessionLog.kind, ENCODING})
_EXPLAINED: Final = 20  # differing series for which the first difference is looked up
_HELD_LIVE: Final = frozenset({Scalar.kind, Histogram.kind, Image.kind})

_Read: TypeAlias = Callable[[Taker, RunReading], None]


def verify_logdirs(a: Path, b: Path) -> VerifyReport:
    """Compares every run below `a` with its counterpart below `b`.

    Where one side was converted from the other, runs are chosen and named as the conversion does it, with the options
    that its state remembers. Others are matched by name; when each side has one run, these two are compared whatever
    they are called. When both arguments are the same directory, its source files are compared with the files this
    package made beside them.

    Raises:
        NoEventsError: A side has no event files.
        UsageError: An argument cannot be a path.
    """
    report = VerifyReport(check_path("a", a), check_path("b", b))
    report.runs = [_Comparison(pair, report).compare() for pair in pair_runs(report)]
    return report


class _Comparison:
    """The comparison of one pair."""

    def __init__(self, pair: Pair, report: VerifyReport) -> None:
        self._pair = pair
        self._report = report
        self._is_ordered = True
        self._users = 0
        self._orphans: dict[Key, int] = {}
        run_a, run_b = pair.run_a, pair.run_b
        self._reads: tuple[_Read, _Read]
        if pair.task is None:
            # What a user wrote for TensorBoard alone is in no MindSpore file, so it is compared between TensorBoard
            # files only.
            with_users = MINDSPORE not in (run_a.format, run_b.format)
            self._reads = self._reader(run_a, with_users), self._reader(run_b, with_users)
            return
        source = SourceSide(pair.task, pair.known[0] or pair.known[1])
        self._is_ordered = source.is_ordered
        output = run_a if pair.is_swapped else run_b

        def read_result(taker: Taker, reading: RunReading) -> None:
            read_output(output, taker, reading, self._orphans)

        self._reads = (read_result, source.read) if pair.is_swapped else (source.read, read_result)

    def _reader(self, run: Run, with_users: bool) -> _Read:
        def read(taker: Taker, reading: RunReading) -> None:
            last: dict[Key, tuple[int, bytes]] = {}
            for point in read_points(run, reading, with_users=with_users):
                key = (point.kind, point.tag, "")
                shown = (point.step, point.fingerprint)
                if last.get(key) != shown:
                    last[key] = shown
                    taker.take(key, point.step, point.wall_time, point.fingerprint)

        return read

    def compare(self) -> RunComparison:
        """Reads both sides and compares them."""
        run_a, run_b = self._pair.run_a, self._pair.run_b
        series_a, series_b = (self._hash(read) for read in self._reads)
        keys = series_a.keys() | series_b.keys()
        comparison = RunComparison(run_a.name, run_b.name, len(keys), 0, [])
        comparison.not_compared = self._users
        is_live = LIVE in (run_a.role, run_b.role)
        differing: list[Key] = []
        for key in sorted(keys):
            one, other = series_a.get(key), series_b.get(key)
            if is_live and key[0] not in _HELD_LIVE and (one is None or other is None):
                comparison.not_compared += sum(series.points for series in (one, other) if series is not None)
            elif one is None or other is None or not one.equals(other):
                differing.append(key)
            elif not key[2]:
                comparison.points += 0 if key[0] in _NO_VALUES else one.points
            elif one.is_counted or other.is_counted:
                comparison.derived_by_older += one.points
            else:
                comparison.derived += one.points
        # What was made from a series that differs is bound to differ.
        differing = [key for key in differing if not key[2] or not any(_is_made_from(key, k) for k in differing)]
        details = self._explain(set(differing[:_EXPLAINED]))
        for key in differing:
            points_a, points_b = (series[key].points if key in series else 0 for series in (series_a, series_b))
            comparison.differences.append(
                Difference(key[0], key[1], points_a, points_b, self._word(key, points_a, points_b, details.get(key)))
            )
        if not differing:
            comparison.differences = self._changed_files()
        return comparison

    def _hash(self, read: _Read) -> dict[Key, Series]:
        hashes = SeriesHashes(is_ordered=self._is_ordered)
        reading = RunReading()
        read(hashes, reading)
        self._report.damaged += reading.damaged
        self._report.incomplete += reading.incomplete
        self._users += reading.users
        return hashes.series

    def _explain(self, keys: set[Key]) -> dict[Key, str]:
        """Finds the first point at which each of the series differs."""
        if not keys:
            return {}
        sides = [PointLists(keys, is_ordered=self._is_ordered) for _ in self._reads]
        for lists, read in zip(sides, self._reads, strict=True):
            read(lists, RunReading())
        return {key: first_difference(key, sides[0].of(key), sides[1].of(key)) for key in keys}

    def _word(self, key: Key, points_a: int, points_b: int, detail: str | None) -> str:
        output = "A" if self._pair.is_swapped else "B"
        if not (points_a and points_b):
            side = "B" if not points_a else "A"
            if not key[2]:
                return f"only in {side}{self._orphaned(key)}"
            what = "made of nothing in the source" if side == output else f"not shown in {output}"
            return f"{key[2]!r}: {what}" + (f" ({detail})" if detail else "")
        detail = detail or "values differ"
        return f"{key[2]!r}, which is made from others: {detail}" if key[2] else detail + self._orphaned(key)

    def _orphaned(self, key: Key) -> str:
        if key not in self._orphans:
            return ""
        side = "A" if self._pair.is_swapped else "B"
        return f"; at step {self._orphans[key]} its original is in the archive, but what stands for it is not in {side}"

    def _changed_files(self) -> list[Difference]:
        """Returns a line for each output file whose bytes were changed where nothing else tells."""
        return [
            Difference("file", name, 0, 0, reason)
            for run, known in zip((self._pair.run_a, self._pair.run_b), self._pair.known, strict=True)
            if known is not None
            for name, reason in changed_files(run.directory, known).items()
        ]


def _is_made_from(key: Key, other: Key) -> bool:
    """Whether what is shown under a name was made from another series."""
    return not other[2] and key[1] == other[1] and (bool(key[1]) or key[0] == other[0])
