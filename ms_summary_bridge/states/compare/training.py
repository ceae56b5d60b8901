"""One training, read as a whole: its scalars, settings, what was recorded of its start, and its data pipeline."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ms_summary_bridge.batches.reader import Batch
from ms_summary_bridge.columns.growing import GrowingColumns, keep_newest
from ms_summary_bridge.columns.read import iter_items, problems_of
from ms_summary_bridge.columns.table import ScalarTable
from ms_summary_bridge.errors import BridgeError, ReadError
from ms_summary_bridge.events import FileVersion, Summary
from ms_summary_bridge.files.lines import read_lines
from ms_summary_bridge.formats.dataset_graph import describe_dataset_graph
from ms_summary_bridge.formats.sessions import hparams
from ms_summary_bridge.formats.sessions.lineage import read_lineage
from ms_summary_bridge.formats.sessions.session import EVAL, SESSION_KINDS, HParam, Session
from ms_summary_bridge.monitor.sinks.journal import journal_files, json_lines
from ms_summary_bridge.runs.logdir import Run, discover
from ms_summary_bridge.runs.reading import RunReading
from ms_summary_bridge.states.facts import is_of_evaluation, likeliest, role_of
from ms_summary_bridge.states.reading import Reading
from ms_summary_bridge.states.tree import FoundRun, Tree
from ms_summary_bridge.values import Opaque

__all__ = ["FoundTraining", "Series", "Training", "find_trainings", "make_series", "read_training"]


class Series(msgspec.Struct, frozen=True):
    """The points of one scalar, in the order in which they were written; of a step that came twice the later one."""

    tag: str
    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


class FoundTraining(msgspec.Struct):
    """A training before it is read: what the tree says, and its event files as runs, the lowest rank first."""

    found: FoundRun
    runs: list[Run]

    @property
    def journals(self) -> list[tuple[int, str]]:
        """Rank and path of each journal, the lowest rank first; that of all ranks last."""
        named = [(file.rank, file.path) for file in self.found.files if file.kind == "journal"]
        return sorted(named, key=lambda one: (one[0] < 0, one))

    @property
    def ranks(self) -> int:
        """How many processes left anything."""
        return len({max(file.rank, 0) for file in self.found.files})


class Training(msgspec.Struct):
    """What is known of one training.

    Attributes:
        name: Path below the source.
        series: All scalars, by tag, of the lowest rank that has a loss.
        settings: Hyperparameters, from lineage or an HParams session.
        metrics: Those of evaluations: the last value of each.
        header: What the monitor recorded at the start: configuration, tags, versions, commit, command line, ranks.
        dataset: The data pipeline as text; empty where none was recorded.
        ranks: How many processes left anything, or how many the training says there are.
        problems: What could not be read.
        first_record: The earliest time in its event files, seconds since the epoch; None where none has one.
    """

    name: str
    series: dict[str, Series] = {}
    settings: dict[str, HParam] = {}
    metrics: dict[str, float] = {}
    header: dict[str, Any] = {}
    dataset: str = ""
    ranks: int = 1
    problems: list[str] = []
    first_record: float | None = None

    @property
    def started(self) -> float | None:
        """When it began, as the monitor recorded it, else by its first record; None where neither tells."""
        moment = self.header.get("wall_time")
        return float(moment) if isinstance(moment, (int, float)) else self.first_record

    @property
    def loss(self) -> Series | None:
        """The training's loss; None where nothing is called so."""
        losses = [one for tag, one in self.series.items() if role_of(tag) == "loss"]
        return min(losses, key=lambda one: (*likeliest(one.tag), -len(one.steps), one.tag), default=None)


def find_trainings(source: str) -> list[FoundTraining]:
    """Finds the trainings below a directory, by name.

    Raises:
        LogdirError: It cannot be read, or is not there.
    """
    found = Tree(source).find(time.time(), Reading())
    by_path = {os.path.abspath(file.path): run.name for run in found for file in run.files}
    runs: dict[str, list[Run]] = {}
    for run in discover(source).runs:
        names = {by_path.get(os.path.abspath(file.path)) for file in run.sources} - {None}
        for name in names:
            runs.setdefault(str(name), []).append(run)
    return [FoundTraining(run, _by_rank(runs.get(run.name, []))) for run in found]


def _by_rank(runs: list[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: (run.rank or 0, run.name))


def read_training(found: FoundTraining) -> Training:
    """Reads a training: event files, else journals, and what the monitor recorded beside them."""
    training = Training(found.found.name, ranks=found.ranks)
    for run in found.runs:
        _read_run(run, training)
        if training.loss is not None:
            break
    _read_journals(found.journals, training)
    return training


def _read_run(run: Run, training: Training) -> None:
    columns = GrowingColumns(lambda tag: True)
    columns.begin_run(0)
    reading = RunReading()
    lineage: dict[str, bytes] = {}
    sessions: dict[str, bytes] = {}
    starts: list[float] = []
    places: list[int] = []  # how many scalars stand before each file
    try:
        for item in iter_items(run, reading):
            if isinstance(item, Batch):
                columns.add_batch(item)
                continue
            columns.add_event(item)
            content = item.content
            if isinstance(content, FileVersion):
                starts.append(item.wall_time)
                places.append(columns.rows)
            elif isinstance(content, Opaque) and content.kind in SESSION_KINDS:
                lineage[content.kind] = content.payload
            elif isinstance(content, Opaque) and content.kind == "dataset_graph":
                with contextlib.suppress(BridgeError):
                    training.dataset = describe_dataset_graph(content.payload)
            elif isinstance(content, Summary):
                for tagged in content.values:
                    if isinstance(tagged.value, Opaque) and tagged.value.kind == "hparams":
                        sessions[tagged.tag] = tagged.value.payload
    except ReadError as error:
        training.problems.append(f"run {run.name}: {error}")
    training.problems += problems_of(reading)
    points = columns.take()
    times = [*starts, float(np.min(points.wall_time, where=points.wall_time > 0, initial=math.inf))]
    table = ScalarTable([run.name], columns.tags, keep_newest(points, places), [])
    known = [moment for moment in [training.first_record, *times] if moment is not None and 0 < moment < math.inf]
    training.first_record = min(known, default=None)
    for tag in table.tags:
        steps, values = table.series(tag)
        training.series.setdefault(tag, make_series(tag, steps, values))
    session = read_lineage(lineage, starts) if lineage else hparams.read_session(sessions, {}) or Session()
    training.settings = {**session.hparams, **training.settings}
    metrics = {name: value for name, value in session.metrics.items() if name.startswith(EVAL)}
    for tag, series in training.series.items():
        if is_of_evaluation(tag) and len(series.values):
            metrics[tag] = float(series.values[-1])
    training.metrics = {**metrics, **training.metrics}


def make_series(tag: str, steps: Sequence[int] | npt.NDArray[np.int64], values: Any) -> Series:
    """Returns a series whose steps rise; of a step that came twice the later one counts."""
    steps, values = np.asarray(steps, np.int64), np.asarray(values, np.float64)
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    is_last = np.ones(len(steps), bool)
    is_last[:-1] = steps[1:] != steps[:-1]
    return Series(tag, steps[is_last], values[is_last])


def _read_journals(journals: list[tuple[int, str]], training: Training) -> None:
    """Reads the start from the first journal that has one; and the numbers where event files have none."""
    for _, path in journals:
        points: dict[str, tuple[list[int], list[float]]] = {}
        header: dict[str, Any] = {}
        for name in journal_files(path):
            try:
                for line in json_lines(read_lines(name)):
                    if line.get("kind") == "header":
                        header = line
                    elif line.get("kind") == "sample":
                        _take_sample(line, points)
                    elif line.get("kind") == "evaluation":
                        _take_evaluation(line, training)
            except OSError as error:
                training.problems.append(f"{name}: cannot be read: {error.strerror}")
        if header and not training.header:
            training.header = header
            training.ranks = max(training.ranks, header["ranks"] if isinstance(header.get("ranks"), int) else 1)
        if training.loss is None:
            for tag, (steps, values) in points.items():
                training.series.setdefault(tag, make_series(tag, steps, values))
        if training.header and training.loss is not None:
            return


def _take_sample(line: Mapping[str, Any], points: dict[str, tuple[list[int], list[float]]]) -> None:
    step, values = line.get("step"), line.get("values")
    if not isinstance(step, int) or not isinstance(values, dict):
        return
    others = line.get("nonfinite") or {}
    for tag, value in values.items():
        number = float(others.get(tag, "nan")) if value is None else value
        if isinstance(number, (int, float)):
            steps, numbers = points.setdefault(tag, ([], []))
            steps.append(step)
            numbers.append(float(number))


def _take_evaluation(line: Mapping[str, Any], training: Training) -> None:
    metrics = line.get("metrics")
    if isinstance(metrics, dict):
        for name, value in metrics.items():
            training.metrics[f"{EVAL}{name}"] = math.nan if value is None else float(value)
