"""The tail of a monitor's journal, and of the watchdog's file beside it: its last lines, and later what has been added.

Lines are read as anything may stand in them: one that is no JSON, or has other types, costs itself alone.
"""

from __future__ import annotations

import contextlib
import glob
import math
import os
import stat
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import NOT_JSON, counted
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.states.facts import RankFacts, role_of
from ms_summary_bridge.states.judgement import End
from ms_summary_bridge.states.reading import Reading, read_at

__all__ = ["JournalTail"]

_TAIL_BYTES: Final = 16 << 10
_WHOLE_BYTES: Final = 32 << 20
_MOST_BYTES: Final = 8 << 20
_MOST_SAMPLES: Final = 64
_BLOCK_BYTES: Final = 64 << 10
_SAMPLE: Final = b'"kind":"sample"'
_HEADER: Final = b'"kind":"header"'
_TOLD: Final = ("hang", "death", "blame", "action")  # what the watchdog says of a training that stands still
_OTHERS: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class JournalTail(msgspec.Struct):
    """One file of lines.

    Attributes:
        path: Where it is.
        is_of_run: Whether it is the journal of the whole run beside those of its ranks, of which the alarms are taken.
        inode: By which it is known.
        mode: What kind of file it is, and its permissions.
        size: In bytes, when it was read; -1 before.
        offset: How far it was read.
        start: Where the last reading began.
        unread: How many lines could not be taken.
        has_header: Whether its newest header was met, or looked for.
        is_alive: Whether the training itself wrote some of what was read last: the watchdog writes of one that hangs.
        stop: Why the training was stopped; empty where it was not.
        fault: Why it could not be read; empty where it could.
    """

    path: str
    is_of_run: bool = False
    inode: int = 0
    mode: int = 0
    size: int = -1
    offset: int = 0
    start: int = 0
    unread: int = 0
    has_header: bool = False
    is_alive: bool = False
    stop: str = ""
    fault: str = ""

    @property
    def is_damaged(self) -> bool:
        """Whether a part of it, or all, could not be read."""
        return bool(self.fault or self.unread)

    @property
    def problem(self) -> str:
        """What is wrong with it; empty for nothing."""
        if self.fault or not self.unread:
            return self.fault or ("zero bytes" if self.size == 0 else "")
        return f"{counted(self.unread, 'line')} cannot be read"

    def is_replaced(self, status: os.stat_result) -> bool:
        """Whether it is another file by now, or was cut. A journal that is full is renamed, and a new one begun."""
        return self.size >= 0 and (status.st_ino != self.inode or status.st_size < self.size)

    def read(self, status: os.stat_result, facts: RankFacts, reading: Reading) -> None:
        """Reads what is new; `status` is that of now."""
        self.is_alive = False
        if not stat.S_ISREG(status.st_mode):
            self.fault = "not a regular file"
            return
        if self.is_replaced(status):  # what it said before stays true
            self._finish(facts, reading)
            self.size, self.offset = 0, 0
        if status.st_size == self.size:
            return
        is_first, self.size, self.inode = self.size < 0, status.st_size, status.st_ino
        window = _MOST_BYTES
        if is_first:
            window = _WHOLE_BYTES if self.is_of_run else _TAIL_BYTES
        self.start = max(self.offset, self.size - window)
        try:
            self.fault = ""
            data = read_at(self.path, self.start, self.size - self.start, reading)
        except OSError as error:
            self.fault = f"cannot be read: {error.strerror or error}"
            return
        is_cut = self.start > self.offset
        self.offset = self.start + self._take_lines(data, facts, is_cut=is_cut)

    def _finish(self, facts: RankFacts, reading: Reading) -> None:
        """Reads the rest of a full journal, which has another name by now: `metrics.<n>.jsonl`."""
        root, ending = os.path.splitext(self.path)
        for path in sorted(glob.glob(f"{glob.escape(root)}.*{ending}")):
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == self.inode:
                    self._take_lines(read_at(path, self.offset, _MOST_BYTES, reading), facts, is_cut=False)

    def _take_lines(self, data: bytes, facts: RankFacts, *, is_cut: bool) -> int:
        """Takes the whole lines; returns the bytes of them, and of what stands before the first if that is cut."""
        lines = data.split(b"\n")
        size = len(data) - len(lines.pop())
        if is_cut and lines:
            del lines[0]
        samples = len(lines) - _MOST_SAMPLES
        for number, raw in enumerate(lines):
            if raw and (number >= samples or _SAMPLE not in raw):
                self._take(raw, facts)
        return size

    def find_header(self, facts: RankFacts, reading: Reading) -> None:
        """Looks for the newest header before what was read, where none was: it says which process it is."""
        end = self.start
        while not self.has_header and end > 0:
            begin = max(0, end - _BLOCK_BYTES)
            try:
                data = read_at(self.path, begin, end - begin + len(_HEADER), reading)
            except OSError:
                break
            place = data.rfind(_HEADER)
            if place >= 0:
                first = begin + data.rfind(b"\n", 0, place) + 1
                raw = read_at(self.path, first, _BLOCK_BYTES, reading).partition(b"\n")[0]
                self._take(raw, facts)
                break
            end = begin
        self.has_header = True  # it is not looked for again

    def _take(self, raw: bytes, facts: RankFacts) -> None:
        try:
            line = msgspec.json.decode(raw)
        except NOT_JSON:
            line = None
        if not isinstance(line, dict):
            self.unread += 1
            return
        kind, step, wall_time = line.get("kind"), _whole(line.get("step")), _number(line.get("wall_time")) or 0.0
        if kind == "alert":
            facts.take_alarm(_alarm_of(line))
        if self.is_of_run:
            return
        if kind not in _TOLD and not (kind == "alert" and line.get("rule") in _TOLD):
            facts.live(wall_time)
            self.is_alive = True
        if kind == "header":
            self.has_header = facts.has_journal = facts.records_end = True
            facts.begin(wall_time)
            facts.host, facts.pid = _text(line.get("host")), _whole(line.get("pid"))
            self.stop = ""
            if facts.hang is not None and facts.hang[0] < wall_time:  # the watchdog's file may be read before this one
                facts.hang = None
        elif kind == "sample":
            facts.has_journal = facts.records_end = True
            self._take_sample(line, step, wall_time, facts)
        elif kind == "milestone":
            facts.milestones.append((step, wall_time, _text(line.get("text"))))
        elif kind == "stop":
            self.stop = _text(line.get("text"))
        elif kind == "end":
            reason = _text(line.get("reason"))
            words = f"the training ended by {reason}" if reason else self.stop or "the journal has its end"
            facts.take_end(End(wall_time, bool(reason), words))
            facts.began = 0.0  # by the order of the lines, whatever the clocks say
        elif kind == "hang":
            if wall_time >= facts.began:
                facts.hang = wall_time, _text(line.get("message"))
            facts.take_alarm(_alarm_of(line))
        elif kind == "recovered":
            facts.hang = None
        elif kind == "death":
            facts.take_end(End(wall_time, True, _text(line.get("message"))))
            facts.take_alarm(_alarm_of(line))

    def _take_sample(self, line: dict[str, Any], step: int, wall_time: float, facts: RankFacts) -> None:
        facts.take_step(step, wall_time)
        values, nonfinite = line.get("values"), line.get("nonfinite")
        if not isinstance(values, dict):
            return
        others = nonfinite if isinstance(nonfinite, dict) else {}
        for name, value in values.items():
            role = role_of(name)
            number = _OTHERS.get(str(others.get(name))) if value is None else _number(value)
            if number is None or not role or (role != "loss" and (line.get("is_first") or not math.isfinite(number))):
                continue  # the first step has compiled the graph: its rate tells nothing
            facts.take_number(role, name, step, wall_time, number)


def _alarm_of(line: dict[str, Any]) -> Alert:
    severity, others = line.get("severity"), line.get("nonfinite")
    value = line.get("value")
    if value is None and isinstance(others, dict):
        value = others.get("value")
    return Alert(
        rule=_text(line.get("rule")),
        metric=_text(line.get("metric")),
        value=_OTHERS.get(value) if isinstance(value, str) else _number(value),
        bound=_number(line.get("bound")),
        step=_whole(line.get("step")),
        epoch=_whole(line.get("epoch")) or None,
        rank=_whole(line.get("rank")),
        wall_time=_number(line.get("wall_time")) or 0.0,
        severity=severity if severity in ("info", "warning", "critical") else "warning",
        message=_text(line.get("message") or line.get("text")),
        advice=_text(line.get("advice")),
    )


def _number(value: Any) -> float | None:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number of hundreds of digits
        return None


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and abs(value) < 1 << 63 else 0


def _text(value: Any) -> str:
    return "" if value is None else str(value)[:2000]
