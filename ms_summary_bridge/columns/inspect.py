"""Inspect: what is in a log, of either format, without converting it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.columns.profile import Profile, find_profiles
from ms_summary_bridge.columns.read import iter_items
from ms_summary_bridge.errors import counted
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.files.event_file import Path, is_url
from ms_summary_bridge.runs.logdir import Run, discover
from ms_summary_bridge.runs.reading import RunReading, entries_of
from ms_summary_bridge.runs.report import DamagedRange, IncompleteTail
from ms_summary_bridge.values import Scalar

__all__ = ["InspectReport", "RunInspection", "TagInspection", "inspect_logdir"]


class TagInspection(msgspec.Struct):
    """One series."""

    kind: str
    tag: str
    points: int
    first_step: int
    last_step: int
    first_wall_time: float
    last_wall_time: float


class RunInspection(msgspec.Struct):
    """One run."""

    run: str
    directory: str
    format: str
    role: str
    host: str
    rank: int | None
    files: list[str]
    bytes: int
    records: int
    versions: list[str]
    tags: list[TagInspection]
    """By kind and tag; a whole event (`graph`, `train_lineage`, ...) has an empty tag."""
    derived: int
    """Values that this package computed; they are not among the tags."""
    damaged: list[DamagedRange]
    incomplete: list[IncompleteTail]
    padding_bytes: int
    twins: list[str]
    """Directories of files that this package made from this run and that count as part of it."""
    problems: list[str] = msgspec.field(default_factory=list)
    """What else a person should know."""


class InspectReport(msgspec.Struct):
    """One source."""

    source: str
    runs: list[RunInspection]
    unreadable: list[str]
    empty: list[str]
    profiles: list[Profile] = []
    """What MindSpore's profiler left in the source and beside runs."""

    @property
    def is_partial(self) -> bool:
        """Whether damaged records or unreadable files were met."""
        is_partial = any(run.damaged for run in self.runs) or any(profile.problems for profile in self.profiles)
        return bool(self.unreadable) or is_partial


def inspect_logdir(source: Path) -> InspectReport:
    """Reads everything below `source` and tells what is there.

    Raises:
        NoEventsError: No event file was found.
        LogdirError: One cannot be read.
        UsageError: `source` cannot be a path.
    """
    source = check_path("source", source)
    found = discover(source)
    if not found.runs and not found.twins and not found.empty:
        raise found.no_events()
    return InspectReport(
        source,
        [_inspect_run(run, [twin for twin in found.twins if twin.directory == run.directory]) for run in found.runs],
        [f"{problem.path}: {problem.reason}" for problem in found.problems],
        [file.path for file in found.empty],
        _find_profiles(source, found.runs),
    )


def _find_profiles(source: str, runs: Iterable[Run]) -> list[Profile]:
    if is_url(source):
        return []
    return find_profiles(source, [(run.name, run.directory) for run in runs])


def _inspect_run(run: Run, twins: list[Run]) -> RunInspection:
    reading = RunReading()
    tags: dict[tuple[str, str], TagInspection] = {}
    for item in iter_items(run, reading):
        if isinstance(item, Batch):
            _add_batch(tags, item)
        else:
            for kind, name, _ in entries_of(item):
                _add(tags, (kind, name), 1, (item.step, item.wall_time), (item.step, item.wall_time))
    return RunInspection(
        run=run.name,
        directory=run.directory,
        format=run.format,
        role=run.role,
        host=run.host,
        rank=run.rank,
        files=[file.path for file in run.sources],
        bytes=sum(file.size for file in run.sources),
        records=reading.records,
        versions=sorted(set(reading.versions)),
        tags=[tags[key] for key in sorted(tags)],
        derived=reading.derived,
        damaged=reading.damaged,
        incomplete=reading.incomplete,
        padding_bytes=reading.padding_bytes,
        twins=[f"{twin.role}: {counted(len(twin.files), 'file')}" for twin in twins],
        problems=reading.problems + reading.notes,
    )


def _add(
    tags: dict[tuple[str, str], TagInspection],
    key: tuple[str, str],
    points: int,
    first: tuple[int, float],
    last: tuple[int, float],
) -> None:
    """Adds points that follow those of their series so far, given step and wall time of the first and the last."""
    tag = tags.get(key)
    if tag is None:
        tag = tags[key] = TagInspection(*key, 0, first[0], first[0], first[1], first[1])
    tag.points += points
    tag.last_step, tag.last_wall_time = last


def _add_batch(tags: dict[tuple[str, str], TagInspection], batch: Batch) -> None:
    scan = batch.scan
    spans: dict[str, tuple[int, int, int]] = {}  # by tag: points, row of the first one, row of the last one
    for group, part in batch.groups():
        rows = group.rows[part]
        first, last = int(rows[0]), int(rows[-1])
        for tag in group.form.shape.tags:
            points, before, after = spans.get(tag, (0, first, last))
            spans[tag] = points + len(rows), min(before, first), max(after, last)
    for tag, (points, *ends) in spans.items():
        first_point, last_point = ((int(scan.steps[row]), float(scan.wall_times[row])) for row in ends)
        _add(tags, (Scalar.kind, tag), points, first_point, last_point)
