"""`aggregate`: one TensorBoard run for each statistic over ranks, and what stood out, by rank."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import numpy as np

from ms_summary_bridge.aggregate.outputs import Outputs
from ms_summary_bridge.aggregate.sources import RankSource, find_ranks
from ms_summary_bridge.aggregate.statistics import ByTag, Carried, Row, align, summarise
from ms_summary_bridge.columns.growing import Columns, GrowingColumns
from ms_summary_bridge.columns.read import matcher
from ms_summary_bridge.errors import FileTakenError, WriteError
from ms_summary_bridge.export.values import json_number
from ms_summary_bridge.files.arguments import check_choice, check_path
from ms_summary_bridge.files.event_file import Path

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["AggregateReport", "NonFinite", "RankReport", "aggregate_ranks"]

_TOGETHER: Final = 1024
"""Tags whose rows are put together, before all are."""
_ROWS: Final = 200_000  # held of all ranks together
_FEWEST_ROWS: Final = 64  # held of one rank
_NAMED: Final = 20  # gaps told of one rank and tag


class RankReport(msgspec.Struct):
    """One rank."""

    rank: int
    source: str
    values: int = 0
    first_step: int | None = None
    last_step: int | None = None
    gaps: int = 0
    """Values that other ranks have at a step, and this one lacks."""
    gap_steps: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """The first such steps, by tag."""
    last_share: float = 0.0
    """Share of the steps, of those that all ranks have, at which it was the last one, by the clocks of the hosts."""
    went_back: int = 0
    """Values left out since the rank went back to steps that it had passed."""


class NonFinite(msgspec.Struct, frozen=True):
    """The first value of a rank that is not a finite number."""

    rank: int
    tag: str
    step: int
    wall_time: float
    value: str


class AggregateReport(msgspec.Struct):
    """One call of `aggregate`."""

    source: str
    destination: str
    ranks: list[RankReport] = msgspec.field(default_factory=list)
    missing: list[int] = msgspec.field(default_factory=list)
    """Ranks below the highest one that left nothing."""
    tags: list[str] = msgspec.field(default_factory=list)
    steps: int = 0
    """Steps at which anything was written."""
    left_out: int = 0
    """Values of a tag and step that not all ranks have; with `fill` none is."""
    first_bad: list[NonFinite] = msgspec.field(default_factory=list)
    """The first value that is not finite of each rank that has one, earliest first."""
    problems: list[str] = msgspec.field(default_factory=list)


def aggregate_ranks(
    source: Path,
    destination: Path,
    *,
    fill: bool = False,
    tags: str = "",
    what: Literal["auto", "files", "journals"] = "auto",
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> AggregateReport:
    """Computes statistics over the ranks of one training.

    Ranks are aligned by step: a tag counts at a step where all ranks have it. All sums are made in float64. What is
    held is a window of steps, whatever the length of the training. TensorBoard's files hold float32; `aggregate.json`
    holds float64.

    Args:
        source: The training's directory, with summary files, event files or journals of its ranks.
        destination: Directory for the runs `mean`, `min`, `max`, `std`, `median`, and `aggregate.json`.
        fill: Where a rank has no value, take its last one, and leave out ranks that have none yet.
        tags: Regular expression; tags that it is not found in are left out.
        what: Which to read where ranks left files and journals; `auto` takes journals if two or more have one.
        force: Replace what an earlier call wrote there.
        progress: Called with the step that has been reached.

    Raises:
        LogdirError: The source cannot be read at all, or the destination cannot be written.
        FileTakenError: The destination has files of that name, and `force` is not set.
        UsageError: An argument cannot be so, or the source has several trainings.
    """
    source, destination = check_path("source", source), check_path("destination", destination, is_local=True)
    check_choice("what", what, ("auto", "files", "journals"))
    columns = GrowingColumns(matcher("tags", tags))
    ranks, problems = find_ranks(source, columns, what=what)
    report = AggregateReport(source, destination, problems=problems)
    report.ranks = [RankReport(rank.rank, rank.name) for rank in ranks]
    present = {rank.rank for rank in ranks}
    report.missing = [rank for rank in range(max(present)) if rank not in present]
    try:
        with Outputs(destination, is_forced=force) as outputs:
            aggregation = _Aggregation(ranks, columns, report, is_filled=fill)
            for rows in aggregation.windows():
                outputs.write(rows)
                if progress is not None and rows:
                    progress(rows[-1].step)
            report.tags = columns.tags
            for rank, one in zip(ranks, report.ranks, strict=True):
                one.went_back = rank.went_back
                report.problems += [f"rank {rank.rank}: {problem}" for problem in rank.problems]
            report.first_bad.sort(key=lambda bad: (bad.step, bad.wall_time))
            said = msgspec.to_builtins(report)
            del said["destination"]
            outputs.end(said)
    except OSError as error:
        if isinstance(error, (FileTakenError, WriteError)):
            raise
        raise WriteError.of_system(destination, "written", error) from error
    return report


class _Aggregation:
    def __init__(
        self, ranks: list[RankSource], columns: GrowingColumns, report: AggregateReport, *, is_filled: bool
    ) -> None:
        self._ranks = ranks
        self._columns = columns
        self._report = report
        self._is_filled = is_filled
        self._carried = Carried(len(ranks))
        self._bad: set[int] = set()
        self._last = np.zeros(len(ranks), np.int64)  # how often each was the last
        self._compared = 0

    def windows(self) -> Iterator[list[Row]]:
        """Yields the rows of one window of steps after the other."""
        rows_each = max(_ROWS // len(self._ranks), _FEWEST_ROWS)
        horizon = -1
        while True:
            for rank in self._ranks:
                rank.read_until(horizon, rows_each)
            growing = [rank.last_step for rank in self._ranks if not rank.is_at_end]
            horizon = min(growing) if growing else 1 << 62
            parts = [rank.take(horizon) for rank in self._ranks]
            yield self._rows(parts)
            if not growing:
                break
        shares = self._last / max(self._compared, 1)
        for one, share in zip(self._report.ranks, shares.tolist(), strict=True):
            one.last_share = share

    def _rows(self, parts: list[Columns]) -> list[Row]:
        for number, part in enumerate(parts):
            self._note(number, part)
        by_tag = [ByTag(part) for part in parts]
        tags: list[tuple[str, int]] = []  # and how many rows each has
        together: list[tuple[npt.NDArray[Any], ...]] = []  # steps, wall times, counts, values, which are there
        blocks: list[tuple[npt.NDArray[Any], ...]] = []  # the same of many tags
        slowest: dict[int, npt.NDArray[np.float64]] = {}
        for tag in np.unique(np.concatenate([part.tags for part in by_tag])).tolist():
            steps, values, times, has = align([part.points(tag) for part in by_tag])
            for row in np.flatnonzero(has.all(axis=1)).tolist():
                slowest.setdefault(int(steps[row]), times[row])
            self._note_gaps(tag, steps, has)
            counted = has.sum(axis=1)
            wall = times.max(axis=1)
            if self._is_filled:
                values, has = self._fill(tag, values, has)
                kept = np.arange(len(steps))
            else:
                kept = np.flatnonzero(has.all(axis=1))
                self._report.left_out += len(steps) - len(kept)
            tags.append((self._columns.tags[tag], len(kept)))
            together.append((steps[kept], wall[kept], counted[kept], values[kept], has[kept]))
            if len(together) == _TOGETHER:  # an array of a few numbers takes far more than these
                blocks.append(_join(together))
                together = []
        if len(parts) > 1:
            for times in slowest.values():
                if times.max() > np.partition(times, -2)[-2]:
                    self._last[int(times.argmax())] += 1
                self._compared += 1
        if not tags:
            return []
        steps, wall, counted, values, has = _join([*blocks, *together])
        self._report.steps += len(np.unique(steps))
        names = itertools.chain.from_iterable(itertools.repeat(*each) for each in tags)
        numbers = summarise(values, has)  # of all tags at once: there may be thousands, of few steps each
        columns = zip(steps.tolist(), wall.tolist(), names, counted.tolist(), numbers.tolist(), strict=True)
        rows = [Row(step, time, name, count, *row) for step, time, name, count, row in columns]
        rows.sort(key=lambda row: row.step)
        return rows

    def _note(self, number: int, part: Columns) -> None:
        _, tags, steps, times, values = part
        if not len(steps):
            return
        one = self._report.ranks[number]
        one.values += len(steps)
        one.first_step = int(steps[0]) if one.first_step is None else one.first_step
        one.last_step = int(steps[-1])
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad) and number not in self._bad:
            self._bad.add(number)
            at = int(bad[0])
            tag = self._columns.tags[int(tags[at])]
            text = str(json_number(float(values[at])))
            self._report.first_bad.append(NonFinite(one.rank, tag, int(steps[at]), float(times[at]), text))

    def _note_gaps(self, tag: int, steps: npt.NDArray[np.int64], has: npt.NDArray[np.bool_]) -> None:
        for number in np.flatnonzero(~has.all(axis=0)).tolist():
            one = self._report.ranks[number]
            lacking = steps[~has[:, number]]
            one.gaps += len(lacking)
            told = one.gap_steps.setdefault(self._columns.tags[tag], [])
            told += lacking[: max(0, _NAMED - len(told))].tolist()

    def _fill(
        self, tag: int, values: npt.NDArray[np.float64], has: npt.NDArray[np.bool_]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        last, known = self._carried.of(tag)
        values, has = values.copy(), has.copy()
        for row in range(len(values)):
            own = has[row].copy()
            last[own], known[own] = values[row][own], True
            values[row], has[row] = last, known
        return values, has


def _join(parts: list[tuple[npt.NDArray[Any], ...]]) -> tuple[npt.NDArray[Any], ...]:
    return tuple(map(np.concatenate, zip(*parts, strict=True)))
