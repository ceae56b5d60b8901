"""What the page tells of a monitor's journal: samples, alerts, milestones, and what was said at the end.

Imports no tensorboard. How the training is, `states` says.
"""

from __future__ import annotations

import math
import os
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import numpy as np

from ms_summary_bridge.errors import NOT_JSON, LogdirError
from ms_summary_bridge.files.system import open_regular
from ms_summary_bridge.monitor.sinks.journal import JOURNAL, journal_files
from ms_summary_bridge.states.facts import role_of
from ms_summary_bridge.tensorboard_plugin.series_facts import ScalarFacts, Sparkline

__all__ = ["JournalFacts", "is_journal"]

_BATCH: Final = 256
_MOST_BYTES: Final = 1 << 20  # of one line; a longer one is none of the monitor's
_MOST_LISTED: Final = 200
_MOST_SAMPLES: Final = 20
_MOST_STEPS: Final = 100_000  # between two samples
_MOST_CHARACTERS: Final = 2000
_RATES: Final = {"samples_per_second": "samples/s", "tokens_per_second": "tokens/s"}
_OTHERS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_SHOWN: Final = ("rule", "severity", "metric", "step", "epoch", "rank", "wall_time", "message", "advice", "actions")


def is_journal(path: str) -> bool:
    """Whether a file begins as the monitor's do; others use that name too."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            line = _decode(file.readline(_MOST_BYTES))
    except OSError:
        return False
    return line is not None and line.get("kind") == "header" and "ranks" in line


class JournalFacts:
    """What has been read of one journal.

    Attributes:
        directory: Where it is.
        changes: Rises with whatever is read.
        header: The newest header: project, tags, versions, commit, command line.
        scalars: By the name of the metric.
        sparklines: Of the names that look like a loss.
        evaluations: `{metric: (value, step)}`, the newest.
        alerts: The newest ones.
        notes: `(kind, step, wall_time, text)` of milestones, evaluations, restarts and ends, the newest ones.
        alert_counts: Of all, by rule.
        alarm_counts: Of those that are more than information, by severity.
        warning_counts: Of all, by metric or text.
        end: The last session's end; None while there is none.
        stop: Why the training was stopped; empty when it was not.
        first_time: Of the first line.
        last_time: Of the newest line.
        unread_lines: Lines that are no JSON, or that could not be taken.
        error: What ended the reading; empty when nothing did.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._offsets: dict[int, int] = {}  # by inode, since a full file gets another name
        self.changes = 0
        self._reset()

    def _reset(self) -> None:
        self._offsets.clear()
        self.changes += 1
        self.header: dict[str, Any] = {}
        self.scalars: dict[str, ScalarFacts] = {}
        self.sparklines: dict[str, Sparkline] = {}
        self.evaluations: dict[str, tuple[float, int]] = {}
        self.alerts: deque[dict[str, Any]] = deque(maxlen=_MOST_LISTED)
        self.notes: deque[tuple[str, int, float, str]] = deque(maxlen=_MOST_LISTED)
        self.alert_counts: Counter[str] = Counter()
        self.alarm_counts: Counter[str] = Counter()
        self.warning_counts: Counter[str] = Counter()
        self.end: dict[str, Any] | None = None
        self.stop = ""
        self.first_time = self.last_time = 0.0
        self.unread_lines = 0
        self.error = ""
        self._rates: dict[str, deque[float]] = {name: deque(maxlen=_MOST_SAMPLES) for name in (*_RATES, "step_time")}
        self._pending: dict[str, list[tuple[int, float, float]]] = {}

    @property
    def path(self) -> str:
        """Its newest file."""
        return os.path.join(self.directory, JOURNAL)

    def read(self) -> Iterator[None]:
        """Reads what is new, and pauses now and then, so that the caller may rest or stop."""
        self.error = ""
        try:
            files = [(path, os.stat(path)) for path in journal_files(self.directory)]
            if any(status.st_size < self._offsets.get(status.st_ino, 0) for _, status in files):
                self._reset()  # it is another one, under the same name
            for path, status in files:
                if status.st_size > self._offsets.get(status.st_ino, 0):
                    yield from self._read_file(path, status.st_ino)
        except LogdirError as error:
            self.error = str(error)
        except OSError as error:
            self.error = f"{error.filename}: cannot be read: {error.strerror or error}"
        finally:
            self._gather()

    def _read_file(self, path: str, inode: int) -> Iterator[None]:
        with open(path, "rb", opener=open_regular) as file:
            file.seek(self._offsets.get(inode, 0))
            number = 0
            while (raw := file.readline(_MOST_BYTES)).endswith(b"\n") or len(raw) == _MOST_BYTES:
                number += 1
                self._offsets[inode] = file.tell()  # first of all: a line that ends the reading is not met again
                line = _decode(raw)
                if line is None:
                    self.unread_lines += 1
                else:
                    self.unread_lines += 1  # until it is taken: a fault is said once, the line is counted for good
                    self._take(line)
                    self.unread_lines -= 1
                self.changes += 1
                if number % _BATCH == 0:
                    self._gather()
                    yield

    def _take(self, line: dict[str, Any]) -> None:
        kind, step = line.get("kind"), _whole(line.get("step"))
        wall_time = _number(line.get("wall_time")) or 0.0
        self.first_time = self.first_time or wall_time
        self.last_time = max(self.last_time, wall_time)
        if kind == "header":
            if self.header and (self.end is not None or self._is_new_session(line)):
                self.notes.append(("restart", step, wall_time, "the training was started again"))
            self.header, self.end, self.stop = line, None, ""
        elif kind == "sample":
            self._take_sample(line, step, wall_time)
        elif kind == "alert":
            self.alerts.append({name: _plain(line.get(name)) for name in _SHOWN})
            self.alert_counts[_text(line.get("rule"))] += 1
            if line.get("severity") != "info":
                self.alarm_counts[_text(line.get("severity"))] += 1
        elif kind == "warning":
            self.warning_counts[_text(line.get("metric") or line.get("text"))] += 1
        elif kind in ("milestone", "evaluation"):
            self.notes.append((kind, step, wall_time, _text(line.get("text"))))
            metrics = line.get("metrics")
            for name, value in (metrics if isinstance(metrics, dict) else {}).items():
                if (number := _number(value)) is not None and len(self.evaluations) < _MOST_LISTED:
                    self.evaluations[name] = number, step
        elif kind == "stop":
            self.stop = _text(line.get("text"))
            self.notes.append((kind, step, wall_time, self.stop))
        elif kind == "end" and not line.get("rank"):
            self.end = {**line, "wall_time": wall_time}
            self.notes.append((kind, step, wall_time, _text(line.get("text"))))
            best = line.get("best")
            if isinstance(best, dict) and (loss := _number(best.get("loss"))) is not None and "loss" in self._tags():
                facts = self.scalars["loss"]
                facts.widen(loss, _whole(best.get("step")))
                facts.min_step = _whole(best.get("step")) if loss == facts.min else facts.min_step

    def _tags(self) -> dict[str, ScalarFacts]:
        self._gather()
        return self.scalars

    def _is_new_session(self, line: dict[str, Any]) -> bool:
        """Whether a header is that of another process; a full journal goes on in a new file with the same again."""
        return any(line.get(name) != self.header.get(name) for name in ("host", "pid"))

    def _take_sample(self, line: dict[str, Any], step: int, wall_time: float) -> None:
        values, others = line.get("values"), line.get("nonfinite")
        if not isinstance(values, dict):
            return
        for name, value in values.items():
            number = _number(value)
            if number is None and value is None and isinstance(others, dict):
                number = _OTHERS.get(str(others.get(name)))
            if number is not None and (name in self.scalars or len(self.scalars) < _MOST_LISTED):
                self._pending.setdefault(name, []).append((step, wall_time, number))
                self._take_between(line, name, step, math.isfinite(number))
        if line.get("is_first"):  # in which the graph was compiled
            return
        for name, rates in self._rates.items():
            rate = _number(values.get(name))
            if rate is not None and rate > 0:
                rates.append(rate)

    def _take_between(self, line: dict[str, Any], name: str, step: int, is_finite: bool) -> None:
        """Takes what a sample says of the steps since the one before it."""
        facts = self.scalars.setdefault(name, ScalarFacts())
        for part in ("min", "max"):
            found = line.get(part)
            if isinstance(found, dict) and (value := _number(found.get(name))) is not None:
                facts.widen(value, step)
        counts = line.get("nonfinite_steps")
        if isinstance(counts, dict):
            for _ in range(min(_whole(counts.get(name)), _MOST_STEPS) - (not is_finite)):
                facts.nonfinite.total += 1
                facts.nonfinite.add(step, 1, 0, 0)

    def _gather(self) -> None:
        """Takes the samples that have come since the last time."""
        pending, self._pending = self._pending, {}
        for name, points in pending.items():
            steps = np.array([point[0] for point in points], np.int64)
            times, values = np.array([point[1:] for point in points], np.float64).T
            steps, values = self.scalars.setdefault(name, ScalarFacts()).add(steps, times, values)
            if role_of(name) == "loss":
                self.sparklines.setdefault(name, Sparkline()).add(steps, values)

    @property
    def throughput(self) -> dict[str, float]:
        """By unit, the mean of the last samples."""
        found = {
            _RATES[name]: sum(rates) / len(rates) for name, rates in self._rates.items() if rates and name in _RATES
        }
        secs = self._rates["step_time"]
        return {**({"steps/s": len(secs) / sum(secs)} if secs else {}), **found}


def _decode(raw: bytes) -> dict[str, Any] | None:
    try:
        line = msgspec.json.decode(raw)
    except NOT_JSON:
        return None
    return line if isinstance(line, dict) else None


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 63 else 0


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:_MOST_CHARACTERS]


def _plain(value: Any) -> str | float | int | None:
    """Returns a number or a text that is not too long, whatever stands in a journal."""
    return value if value is None or isinstance(value, (int, float)) else _text(value)
