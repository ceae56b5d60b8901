"""A row for each training: how it is, best and last loss, metrics of evaluations, settings."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Final

import msgspec
import numpy as np

from ms_summary_bridge.errors import FileTakenError, LogdirError, NoEventsError, UsageError, WriteError
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.files.atomic import replace_file
from ms_summary_bridge.files.event_file import Path
from ms_summary_bridge.states.compare.training import Series, Training, find_trainings, read_training
from ms_summary_bridge.states.watcher import RunWatcher

__all__ = ["RUNS_FILE", "RunRow", "RunRows", "list_run_rows", "make_row", "sort_rows", "write_run_rows"]

RUNS_FILE: Final = "runs.csv"
_HEAD: Final = (
    *("run", "state", "ranks", "last_step", "best_loss", "best_step", "last_loss", "loss_tag", "started", "commit"),
)


class RunRow(msgspec.Struct, kw_only=True):
    """One training.

    Attributes:
        run: Path below the source.
        state: How it is, in the word that `watch` has for it; empty where that is not known.
        ranks: How many processes it has.
        last_step: The highest step of any scalar; None for none.
        best_loss: The lowest finite loss; None for none.
        best_step: Its step.
        last_loss: The newest loss, finite or not.
        loss_tag: Whose these are.
        started: Seconds since the epoch, as the monitor recorded it, else of its first record; None where neither is.
        commit: Of the training's code; empty where nothing says so.
        metrics: Last value of each metric of an evaluation.
        settings: Hyperparameters, and the tags of the configuration under their own names.
    """

    run: str
    state: str = ""
    ranks: int = 1
    last_step: int | None = None
    best_loss: float | None = None
    best_step: int | None = None
    last_loss: float | None = None
    loss_tag: str = ""
    started: float | None = None
    commit: str = ""
    metrics: dict[str, float] = {}
    settings: dict[str, Any] = {}

    def cell(self, column: str) -> Any:
        """Returns what a column has of it; None for nothing."""
        if column in _HEAD:
            return getattr(self, column)
        return self.metrics.get(column, self.settings.get(column))


class RunRows(msgspec.Struct):
    """All trainings below a source."""

    source: str
    rows: list[RunRow]
    problems: list[str] = []

    @property
    def columns(self) -> list[str]:
        """Names of the columns: those that every training has, then metrics, then settings."""
        metrics = sorted({name for row in self.rows for name in row.metrics})
        settings = sorted({name for row in self.rows for name in row.settings} - {*metrics, *_HEAD})
        return [*_HEAD, *metrics, *settings]


def list_run_rows(
    source: Path,
    *,
    sort: str = "run",
    runs: Callable[[str], bool] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RunRows:
    """Reads all trainings below a directory into a table.

    Args:
        source: A directory with runs at any depth, of either format; or one with the monitor's journals alone.
        sort: Name of a column; with `-` before it the highest goes first. A row without it goes last.
        runs: Whether a training of this name is wanted; None for all.
        progress: Called with (trainings done, trainings in all).

    Raises:
        LogdirError: The source cannot be read.
        NoEventsError: There is no training below it.
        UsageError: There is no such column.
    """
    source = check_path("source", source, is_local=True)
    wanted = [one for one in find_trainings(source) if runs is None or runs(one.found.name)]
    if not wanted:
        raise NoEventsError(f"{source}: no training was found below it")
    states = {state.name: str(state.state) for state in RunWatcher(source).look(time.time())}
    found = RunRows(source, [])
    for number, one in enumerate(wanted):
        try:
            training = read_training(one)
        except LogdirError as error:
            found.problems.append(f"{one.found.name}: {error}")
            continue
        finally:
            if progress is not None:
                progress(number + 1, len(wanted))
        found.rows.append(make_row(training, state=states.get(one.found.name, "")))
        found.problems += training.problems
    found.rows = sort_rows(found, sort)
    return found


def make_row(training: Training, *, state: str = "") -> RunRow:
    """Returns the row of a training that was read."""
    steps = [int(one.steps[-1]) for one in training.series.values() if len(one.steps)]
    tags = training.header.get("tags")
    row = RunRow(
        run=training.name,
        state=state,
        ranks=training.ranks,
        last_step=max(steps, default=None),
        started=training.started,
        commit=str(training.header.get("commit") or ""),
        metrics=training.metrics,
        settings={**training.settings, **(tags if isinstance(tags, dict) else {})},
    )
    _add_loss(row, training.loss)
    return row


def _add_loss(row: RunRow, loss: Series | None) -> None:
    if loss is None or not len(loss.values):
        return
    row.loss_tag, row.last_loss = loss.tag, float(loss.values[-1])
    finite = np.isfinite(loss.values)
    if finite.any():
        best = int(np.argmin(np.where(finite, loss.values, np.inf)))
        row.best_loss, row.best_step = float(loss.values[best]), int(loss.steps[best])


def sort_rows(found: RunRows, column: str) -> list[RunRow]:
    """Returns the rows sorted by a column, with `-` before its name from the highest; those without it last.

    Raises:
        UsageError: No row has such a column.
    """
    name, is_reversed = column.removeprefix("-"), column.startswith("-")
    if name not in found.columns:
        raise UsageError(f"--sort: there is no column {name!r}; there are {', '.join(found.columns)}")

    def is_missing(value: Any) -> bool:
        return value is None or value == "" or (isinstance(value, float) and math.isnan(value))

    there = [row for row in found.rows if not is_missing(row.cell(name))]
    are_numbers = all(isinstance(row.cell(name), (int, float)) for row in there)
    there.sort(key=lambda row: row.cell(name) if are_numbers else _natural(str(row.cell(name))), reverse=is_reversed)
    return there + [row for row in found.rows if is_missing(row.cell(name))]


def _natural(text: str) -> list[tuple[bool, int, str]]:
    """Orders `run10` behind `run9`."""
    parts: list[str] = []
    for letter in text:
        if parts and parts[-1][-1].isdecimal() == letter.isdecimal():
            parts[-1] += letter
        else:
            parts.append(letter)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def write_run_rows(found: RunRows, destination: Path, *, force: bool = False) -> str:
    """Writes a table as `runs.csv` into a directory; returns its path.

    Raises:
        FileTakenError: It is there already, and `force` is not set.
        WriteError: It cannot be written.
    """
    path = os.path.join(check_path("destination", destination, is_local=True), RUNS_FILE)
    if os.path.exists(path) and not force:
        raise FileTakenError(f"{path}: exists and would be overwritten; --force replaces it")
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    columns = found.columns
    writer.writerow(columns)
    for row in found.rows:
        writer.writerow([_text(row.cell(column), is_time=column == "started") for column in columns])
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    except OSError as error:
        raise WriteError.of_system(path, "written", error) from error
    replace_file(path, text.getvalue().encode("utf-8", "replace"))
    return path


def _text(value: Any, *, is_time: bool = False) -> Any:
    if value is None:
        return ""
    if is_time:
        with contextlib.suppress(ValueError, OverflowError, OSError):  # as of a time that no calendar has
            return datetime.fromtimestamp(value, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return repr(value) if isinstance(value, float) else value if isinstance(value, (int, str)) else str(value)
