"""What each rank left: finds it, and reads it in windows of steps.

A rank's values come from its summary or event files, or from its journal. A file is open only while its next window is
read, so thousands of ranks need no more descriptors than one.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
import numpy as np

from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.columns.growing import Columns, GrowingColumns, join_columns
from ms_summary_bridge.columns.read import iter_items, problems_of
from ms_summary_bridge.errors import LogdirError, NoEventsError, UsageError, counted
from ms_summary_bridge.monitor.sinks.journal import JOURNAL, read_journal
from ms_summary_bridge.runs.logdir import Run, discover
from ms_summary_bridge.runs.reading import RunReading
from ms_summary_bridge.training.distributed import MOST_RANKS

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["RankSource", "find_ranks"]

_RANK_NAME: Final = re.compile(r"(?:^|[/_\-.])(?:rank|device|card|npu)[_\-]?(\d+)(?=$|[/_\-.])", re.IGNORECASE)
_RANK_DIRECTORY: Final = re.compile(r"rank_\d+", re.ASCII)
_LAST_NUMBER: Final = re.compile(r"(\d+)(?=\D*$)", re.ASCII)
_LOOKED_AT: Final = 20  # samples of a journal that tell whose it is
_GATHERED: Final = 4096  # values of a journal that are handed on together
_HELD_BYTES: Final = 64 << 20  # of the files of all ranks together


class _Sample(msgspec.Struct):
    """A line of a journal; see docs/formats.md."""

    step: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    values: dict[str, float | None]
    wall_time: float = 0.0
    nonfinite: dict[str, Literal["nan", "inf", "-inf"]] = msgspec.field(default_factory=dict)


class RankSource:
    """The scalars of one rank, in the order of its steps.

    Args:
        rank: Its number.
        name: Where it stands below the source, for people.
        columns: Takes the scalars; the numbers of tags are those of all ranks.
        run: Its files, or
        journal: its journal.
        chunk_bytes: Bytes of a file that are looked at together.

    Attributes:
        last_step: The highest step read so far; -1 before the first.
        is_at_end: Whether all has been read.
        went_back: Values left out because their step is not above one that was given out before.
        problems: What could not be read.
    """

    def __init__(
        self,
        rank: int,
        name: str,
        columns: GrowingColumns,
        *,
        run: Run | None = None,
        journal: str = "",
        chunk_bytes: int = 1 << 20,
    ) -> None:
        self.rank = rank
        self.name = name
        self.last_step = -1
        self.is_at_end = False
        self.went_back = 0
        self.problems: list[str] = []
        self._columns = columns
        self._reading = RunReading()
        self._items = self._read_run(run, chunk_bytes) if run is not None else self._read_journal(journal)
        self._held: Columns = join_columns([])
        self._torn: list[int] = []
        self._given = -1  # all steps up to this one were given out

    def read_until(self, step: int, rows: int) -> None:
        """Reads on until a step above `step` was met and so many rows are held, or the end is reached."""
        parts = [self._held]
        held = len(self._held[0])
        while not self.is_at_end and (self.last_step <= step or held < rows):
            try:
                found = next(self._items)
            except StopIteration:
                self.is_at_end = True
                self.problems += problems_of(self._reading)
                break
            except LogdirError as error:
                self.is_at_end = True
                self.problems.append(str(error))
                break
            if len(found[2]):
                parts.append(found)
                held += len(found[2])
                self.last_step = max(self.last_step, int(found[2].max()))
        self._held = join_columns(parts)

    def take(self, horizon: int) -> Columns:
        """Returns the rows held of steps below `horizon`, by step, and lets go of them."""
        steps = self._held[2]
        is_old = steps <= self._given
        if is_old.any():
            self.went_back += int(is_old.sum())
            self._held = _select(self._held, ~is_old)
            steps = self._held[2]
        is_taken = steps < horizon
        taken, self._held = _select(self._held, is_taken), _select(self._held, ~is_taken)
        self._given = max(self._given, horizon - 1)
        order = np.argsort(taken[2], kind="stable")
        return _select(taken, order)

    def _read_run(self, run: Run, chunk_bytes: int) -> Iterator[Columns]:
        for count, item in enumerate(iter_items(run, self._reading, chunk_bytes=chunk_bytes), 1):
            if isinstance(item, Batch):
                self._columns.add_batch(item)
            else:
                self._columns.add_event(item)
                if count % 64:
                    continue
            yield self._columns.take()
        yield self._columns.take()

    def _read_journal(self, path: str) -> Iterator[Columns]:
        rows: list[tuple[int, int, float, float]] = []
        odd = 0
        for line in read_journal(path, self._torn.append):
            if line.get("kind") != "sample":
                continue
            try:
                sample = msgspec.convert(line, _Sample)
            except msgspec.ValidationError:
                odd += 1
                continue
            for tag, value in sample.values.items():
                # What strict JSON cannot hold is null there, and named beside it.
                number = float(sample.nonfinite[tag]) if tag in sample.nonfinite else value
                code = self._columns.code(tag)
                if number is not None and code >= 0:
                    rows.append((code, sample.step, sample.wall_time, number))
            if len(rows) >= _GATHERED:
                yield _columns_of(rows)
                rows = []
        yield _columns_of(rows)
        if odd or self._torn:
            lines = counted(odd + len(self._torn), "line is torn, or no sample", "lines are torn, or not samples")
            self.problems.append(f"{path}: {lines} as the monitor writes them")


def _columns_of(rows: list[tuple[int, int, float, float]]) -> Columns:
    codes, steps, times, values = zip(*rows, strict=True) if rows else ((), (), (), ())
    return Columns(
        np.zeros(len(codes), np.int32),
        np.array(codes, np.int32),
        np.array(steps, np.int64),
        np.array(times, np.float64),
        np.array(values, np.float64),
    )


def _select(columns: Columns, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Columns:
    return Columns._make(column[chosen] for column in columns)


class _Found(msgspec.Struct):
    rank: int | None
    name: str
    run: Run | None = None
    journal: str = ""


def find_ranks(
    source: str, columns: GrowingColumns, *, what: Literal["auto", "files", "journals"] = "auto"
) -> tuple[list[RankSource], list[str]]:
    """Finds what the ranks of one training left below a directory.

    A rank's number is that in a MindSpore file's name where the files of a directory differ in it, else that of the
    directory (`rank_3`, or the number that its name ends with); where neither tells, or one tells a number that no rank
    can have, ranks are numbered in the order of their names.

    Args:
        source: The training's directory.
        columns: Takes the scalars of all ranks.
        what: Which to read where there are both; `auto` takes journals if two or more ranks have one.

    Returns:
        The ranks by number, and what else could not be read.

    Raises:
        NoEventsError: Nothing below it is a summary file, an event file or a journal.
        UsageError: Two sources have the same rank: it is the directory of several trainings.
    """
    journals = _find_journals(source) if what != "files" else []
    problems: list[str] = []
    found = journals
    if what == "files" or (what == "auto" and len(journals) < 2):
        try:
            logdir = discover(source)
        except NoEventsError:
            if not journals:
                raise
        else:
            runs = [run for run in logdir.runs if run.files]
            if runs:
                found = [_Found(_rank_of(run, runs), run.name, run=run) for run in runs]
            problems = [f"{problem.path}: {problem.reason}" for problem in (*logdir.problems, *logdir.empty)]
    if not found:
        raise NoEventsError(f"{source}: no summary file, event file or journal ({JOURNAL}) found below it")
    odd = [one for one in found if one.rank is not None and not 0 <= one.rank < MOST_RANKS]
    problems += [
        f"{one.name}: rank {one.rank} is beyond all that a training can have: ranks are numbered in the order of names"
        for one in odd
    ]
    if odd or any(one.rank is None for one in found):
        for number, one in enumerate(found):
            one.rank = number
    by_rank: dict[int, _Found] = {}
    for one in found:
        assert one.rank is not None
        other = by_rank.setdefault(one.rank, one)
        if other is not one:
            raise UsageError(
                f"{source}: {other.name!r} and {one.name!r} are both of rank {one.rank}: aggregate one training at a "
                "time, by naming its own directory"
            )
    chunk_bytes = min(max(_HELD_BYTES // len(by_rank), 1 << 13), 1 << 20)
    sources = [
        RankSource(rank, one.name, columns, run=one.run, journal=one.journal, chunk_bytes=chunk_bytes)
        for rank, one in sorted(by_rank.items())
    ]
    return sources, problems


def _find_journals(source: str) -> list[_Found]:
    found = []
    for directory, names, files in os.walk(source):
        names.sort()
        ranks_below = (name for name in names if _RANK_DIRECTORY.fullmatch(name))
        if any(os.path.exists(os.path.join(directory, name, JOURNAL)) for name in ranks_below):
            continue  # the journal here is the run's own, whichever rank wrote its samples
        if JOURNAL in files:
            path = os.path.join(directory, JOURNAL)
            name = os.path.relpath(directory, source).replace(os.sep, "/")
            first = itertools.islice(_samples(path), _LOOKED_AT)
            ranks = {line["rank"] for line in first if isinstance(line.get("rank"), int)}
            if len(ranks) == 1:
                found.append(_Found(ranks.pop(), name, journal=path))
    return found


def _samples(path: str) -> Iterator[dict[str, Any]]:
    try:
        yield from (line for line in read_journal(path) if line.get("kind") == "sample")
    except LogdirError:
        return


def _rank_of(run: Run, runs: list[Run]) -> int | None:
    named = _RANK_NAME.search(run.name)
    if named:
        return int(named[1])
    beside = {other.rank for other in runs if other.directory == run.directory}
    everywhere = [other.rank for other in runs]
    if run.rank is not None and (len(beside) > 1 or len(set(everywhere)) == len(runs) > 1):
        return run.rank
    if len(runs) == 1:
        return run.rank or 0
    number = _LAST_NUMBER.search(run.name)
    return int(number[1]) if number else None
