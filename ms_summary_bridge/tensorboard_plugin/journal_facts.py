"""What the dashboard tells of a monitor's journal: alerts, milestones, how it goes and how it ended.

Imports no tensorboard.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import LogdirError
from ms_summary_bridge.monitor.sinks.journal import JOURNAL, journal_files

__all__ = ["JournalFacts", "find_journals"]

_BATCH: Final = 256
_MOST_BYTES: Final = 1 << 20  # of one line; a longer one is none of the monitor's
_MOST_LISTED: Final = 200
_MOST_SAMPLES: Final = 20
_MOST_CHARACTERS: Final = 2000
_RATES: Final = {"samples_per_second": "samples/s", "tokens_per_second": "tokens/s"}
_SHOWN: Final = ("rule", "severity", "metric", "step", "epoch", "rank", "wall_time", "message", "advice", "actions")


def find_journals(source: str) -> list[str]:
    """Returns the directories below `source` that hold a journal of a run, or that of a rank where there is no other.

    Links are not followed: they may lead round in a circle.
    """
    found: list[str] = []
    for directory, below, names in os.walk(source):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if JOURNAL in names and _is_journal(os.path.join(directory, JOURNAL)):
            found.append(directory)
            below[:] = [name for name in below if not name.startswith("rank_")]  # the run's journal has them all
    return found


def _is_journal(path: str) -> bool:
    """Whether a file begins as the monitor's do; others use that name too."""
    try:
        with open(path, "rb") as file:
            line = _decode(file.readline(_MOST_BYTES))
    except OSError:
        return False
    return line is not None and line.get("kind") == "header" and "ranks" in line


class JournalFacts:
    """What has been read of one journal.

    Attributes:
        directory: Where it is.
        header: The newest header: project, tags, versions, commit, command line.
        alerts: The newest ones.
        milestones: `(step, wall_time, tag, text)`, the newest ones.
        alert_counts: Of all, by rule.
        warning_counts: Of all, by metric or text.
        best: `(loss, step)`; None before there is one.
        end: The last session's end; None while there is none.
        stop: Why the training was stopped; empty when it was not.
        last_step: Of the newest sample.
        last_time: Of the newest line.
        unread_lines: Lines that are no JSON, or that could not be taken.
        error: What ended the reading; empty when nothing did.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._offsets: dict[int, int] = {}  # by inode, since a full file gets another name
        self._reset()

    def _reset(self) -> None:
        self._offsets.clear()
        self.header: dict[str, Any] = {}
        self.alerts: deque[dict[str, Any]] = deque(maxlen=_MOST_LISTED)
        self.milestones: deque[tuple[int, float, str, str]] = deque(maxlen=_MOST_LISTED)
        self.alert_counts: Counter[str] = Counter()
        self.warning_counts: Counter[str] = Counter()
        self.best: tuple[float, int] | None = None
        self.end: dict[str, Any] | None = None
        self.stop = ""
        self.first_time = self.last_time = 0.0
        self.last_step = 0
        self.unread_lines = 0
        self.error = ""
        self._rates: dict[str, deque[float]] = {name: deque(maxlen=_MOST_SAMPLES) for name in (*_RATES, "step_time")}
        self._times: deque[float] = deque(maxlen=_MOST_SAMPLES)

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
                yield from self._read_file(path, status.st_ino)
        except LogdirError as error:
            self.error = str(error)
        except OSError as error:
            self.error = f"{error.filename}: cannot be read: {error.strerror or error}"

    def _read_file(self, path: str, inode: int) -> Iterator[None]:
        with open(path, "rb") as file:
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
                if number % _BATCH == 0:
                    yield

    def _take(self, line: dict[str, Any]) -> None:
        kind, step = line.get("kind"), _whole(line.get("step"))
        wall_time = _number(line.get("wall_time")) or 0.0
        self.first_time = self.first_time or wall_time
        self.last_time = max(self.last_time, wall_time)
        if kind == "header":
            self.header, self.end, self.stop = line, None, ""
        elif kind == "sample":
            self._take_sample(line, step, wall_time)
        elif kind == "alert":
            self.alerts.append({name: _plain(line.get(name)) for name in _SHOWN})
            self.alert_counts[_text(line.get("rule"))] += 1
        elif kind == "warning":
            self.warning_counts[_text(line.get("metric") or line.get("text"))] += 1
        elif kind in ("milestone", "evaluation"):
            self.milestones.append((step, wall_time, "", _text(line.get("text"))))
        elif kind == "stop":
            self.stop = _text(line.get("text"))
        elif kind == "end" and not line.get("rank"):
            self.end = {**line, "wall_time": wall_time}
            best = line.get("best")
            if isinstance(best, dict):
                self._take_loss(_number(best.get("loss")), _whole(best.get("step")))

    def _take_sample(self, line: dict[str, Any], step: int, wall_time: float) -> None:
        self.last_step = step
        self._times.append(wall_time)
        values = line.get("values")
        if not isinstance(values, dict) or line.get("is_first"):  # in which the graph was compiled
            return
        self._take_loss(_number(values.get("loss")), step)
        for name, rates in self._rates.items():
            rate = _number(values.get(name))
            if rate is not None and rate > 0:
                rates.append(rate)

    def _take_loss(self, loss: float | None, step: int) -> None:
        if loss is not None and (self.best is None or loss < self.best[0]):
            self.best = loss, step

    @property
    def throughput(self) -> dict[str, float]:
        """By unit, the mean of the last samples."""
        found = {
            _RATES[name]: sum(rates) / len(rates) for name, rates in self._rates.items() if rates and name in _RATES
        }
        secs = self._rates["step_time"]
        return {**({"steps/s": len(secs) / sum(secs)} if secs else {}), **found}

    @property
    def interval_secs(self) -> float:
        """How long it usually takes until the next sample; 0 where the times do not tell."""
        times = list(self._times)
        secs = sorted(two - one for one, two in itertools.pairwise(times) if two > one)
        return secs[len(secs) // 2] if secs else 0.0


def _decode(raw: bytes) -> dict[str, Any] | None:
    try:
        line = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
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
    return value if isinstance(value, int) else 0


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:_MOST_CHARACTERS]


def _plain(value: Any) -> str | float | int | None:
    """Returns a number or a text that is not too long, whatever stands in a journal."""
    return value if value is None or isinstance(value, (int, float)) else _text(value)
