"""What is known of one process of a training, put together from all that it wrote, in bounded memory."""

from __future__ import annotations

import bisect
import itertools
import math
import re
import statistics
from collections import deque
from typing import Final

import msgspec

from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.states.judgement import End, Evidence, Process

__all__ = ["LossSeries", "RankFacts", "is_of_evaluation", "likeliest", "role_of"]

_MOST_POINTS: Final = 120
_MOST_TIMES: Final = 30
_MOST_LISTED: Final = 200
_MOST_SERIES: Final = 100
_MOST_HIGHEST: Final = 32
_AFTER_END_SECS: Final = 5.0

_LOSS: Final = re.compile(r"(?:^|[/_. ])loss(?:$|[/_. ])", re.IGNORECASE)
_NO_LOSS: Final = re.compile(r"loss_scale", re.IGNORECASE)
_OF_EVALUATION: Final = re.compile(
    r"(?:^|[/_. ])(?:eval|evaluation|val|valid|validation|test)(?:$|[/_. ])", re.IGNORECASE
)
_LIKELY: Final = ("loss/auto", "loss", "train/loss", "monitor/loss", "train_loss")
_NUMBERS: Final = {
    "lr": "lr",
    "learning_rate": "lr",
    "step_time": "step_time",
    "samples_per_second": "samples/s",
    "tokens_per_second": "tokens/s",
    "memory_usage": "memory",
    "allocated_mib": "memory",
    "host_memory": "host memory",
}
_RATES: Final = ("tokens/s", "samples/s")


def role_of(tag: str) -> str:
    """Returns what a tag tells: `loss`, a name of a number such as `lr` or `samples/s`, or nothing of interest."""
    if _LOSS.search(tag) and not _NO_LOSS.search(tag):
        return "loss"
    return _NUMBERS.get(tag.rpartition("/")[2], "")


def is_of_evaluation(tag: str) -> bool:
    """Whether a tag is of an evaluation, and not of the training itself."""
    return _OF_EVALUATION.search(tag) is not None


def likeliest(tag: str) -> tuple[bool, int]:
    """Returns what the losses of a run are ordered by: the training's own first, the usual names before others."""
    return is_of_evaluation(tag), _LIKELY.index(tag) if tag in _LIKELY else len(_LIKELY)


class LossSeries(msgspec.Struct):
    """The newest points of one loss."""

    tag: str
    steps: deque[int] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST_POINTS))
    values: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST_POINTS))
    times: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST_POINTS))
    """Seconds since the epoch."""

    @property
    def nonfinite_count(self) -> int:
        """How many of the points are not finite."""
        return sum(not math.isfinite(value) for value in self.values)

    @property
    def nonfinite_since(self) -> int | None:
        """Step from which on no value is finite; None if the newest is."""
        since = None
        for step, value in zip(reversed(self.steps), reversed(self.values), strict=True):
            if math.isfinite(value):
                break
            since = step
        return since

    @property
    def nonfinite_name(self) -> str:
        """What those values are: `nan`, `inf` or `-inf`, and `not finite` where one became another; empty for none."""
        last = itertools.takewhile(lambda value: not math.isfinite(value), reversed(self.values))
        names = {*map(str, last)}
        return "not finite" if len(names) > 1 else "".join(names)

    @property
    def interval(self) -> int:
        """Steps from the last point but one to the last; 0 where there is one."""
        return abs(self.steps[-1] - self.steps[-2]) if len(self.steps) > 1 else 0


class RankFacts(msgspec.Struct):
    """What one process of a training wrote.

    Attributes:
        highest: `(wall_time, step)` of points that no later one has reached, the oldest and highest first.
        last_time: Seconds since the epoch, the newest sign of life.
        losses: By tag.
        numbers: The newest of each: learning rate, samples/s, tokens/s, seconds of a step, MiB of memory.
        times: `(step, wall_time)`, the newest.
        end: The newest end that was recorded.
        began: Seconds since the epoch, when the newest session began, unless it has ended.
        session: The same, whether it has ended or not.
        evaluated: Seconds since the epoch, when the newest lineage of an evaluation was written.
        awaits_lineage: Whether there is lineage that is written at the beginning of a training.
        has_lineage: Whether there is that which is written at its end.
        hang: A hang that has not passed.
        alarms: The newest alarms.
        host: Where the process is; empty where nothing says so.
        pid: Its number; 0 where nothing says so.
        records_end: Whether the process records an end if it comes to one.
        has_journal: Whether there is a journal.
        milestones: `(step, wall_time, text)`, the newest.
    """

    highest: list[tuple[float, int]] = msgspec.field(default_factory=list)
    last_time: float = 0.0
    losses: dict[str, LossSeries] = msgspec.field(default_factory=dict)
    numbers: dict[str, float] = msgspec.field(default_factory=dict)
    times: deque[tuple[int, float]] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST_TIMES))
    end: End | None = None
    began: float = 0.0
    session: float = 0.0
    evaluated: float = 0.0
    awaits_lineage: bool = False
    has_lineage: bool = False
    hang: tuple[float, str] | None = None
    alarms: dict[tuple[str, int, int, float], Alert] = msgspec.field(default_factory=dict)
    host: str = ""
    pid: int = 0
    records_end: bool = False
    has_journal: bool = False
    milestones: deque[tuple[int, float, str]] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST_LISTED))

    @property
    def last_step(self) -> int | None:
        """The highest of the newest session, else of all; None before there is one."""
        own = [step for time, step in self.highest if time >= self.session] or [step for _, step in self.highest]
        return max(own, default=None)

    # ------------------------------------------------------------------ what is taken

    def live(self, wall_time: float) -> None:
        """Takes a sign of life; 0 where a writer gave no time."""
        if wall_time > self.last_time:
            self.last_time = wall_time

    def begin(self, wall_time: float) -> None:
        """Takes the beginning of a session."""
        self.began = max(self.began, wall_time)
        self.session = max(self.session, wall_time)

    def take_step(self, step: int, wall_time: float) -> None:
        """Takes a step that has values."""
        if len(self.highest) == 1 and wall_time >= self.highest[0][0] and step >= self.highest[0][1]:
            self.highest[0] = wall_time, step  # as almost always
        elif not any(time >= wall_time and other >= step for time, other in self.highest):
            self.highest = [one for one in self.highest if one[0] > wall_time or one[1] > step]
            bisect.insort(self.highest, (wall_time, step))
            del self.highest[1 : max(1, len(self.highest) - _MOST_HIGHEST)]
        if not self.times or (step > self.times[-1][0] and wall_time > self.times[-1][1]):
            self.times.append((step, wall_time))
        elif step < self.times[-1][0] and wall_time > self.times[-1][1]:  # another session, or a small file after it
            self.times.clear()
            self.times.append((step, wall_time))

    def take_number(self, role: str, tag: str, step: int, wall_time: float, value: float) -> None:
        """Takes the value of a tag, by its role (`role_of`)."""
        if role != "loss":
            self.numbers[role] = value
            return
        series = self.losses.get(tag)
        if series is None:
            if len(self.losses) >= _MOST_SERIES:
                return
            series = self.losses[tag] = LossSeries(tag)
        if not series.steps or (step, wall_time) != (series.steps[-1], series.times[-1]):
            series.steps.append(step)
            series.values.append(value)
            series.times.append(wall_time)

    def take_end(self, end: End) -> None:
        """Takes an end; of two at the same moment the failure."""
        old = self.end
        if (
            old is None
            or end.wall_time > old.wall_time + _AFTER_END_SECS
            or (end.wall_time >= old.wall_time - _AFTER_END_SECS and (end.has_failed or not old.has_failed))
        ):
            self.end = end

    def take_alarm(self, alarm: Alert) -> None:
        """Takes an alarm, which may be met in two journals."""
        if alarm.severity == "info":
            return
        self.alarms[alarm.rule, alarm.rank, alarm.step, alarm.wall_time] = alarm
        if len(self.alarms) > _MOST_LISTED:
            del self.alarms[next(iter(self.alarms))]

    # ------------------------------------------------------------------ what it comes to

    @property
    def loss(self) -> LossSeries | None:
        """The training's loss: the one that is not finite, else the newest by `_newest_loss`."""
        return self._find_nonfinite()[1] or self._newest_loss()

    def _newest_loss(self) -> LossSeries | None:
        return min(self.losses.values(), key=self._order, default=None)

    def _order(self, one: LossSeries) -> tuple[object, ...]:
        """Returns what losses are ordered by: of those with a usual name, which are the same, the newest is first.

        Of two at the same step it is the one with more steps, so that it stays the same while a training goes on.
        """
        is_other, place = likeliest(one.tag)
        if place == len(_LIKELY):
            return is_other, True, False, 0, 0, place, -len(one.steps), one.tag
        is_old = one.times[-1] < self.began
        return is_other, False, is_old, -one.steps[-1], one.interval, place, -len(one.steps), one.tag

    @property
    def rate(self) -> tuple[float, str] | None:
        """How fast it goes, and in what: tokens or samples in a second, else steps."""
        for unit in _RATES:
            if unit in self.numbers:
                return self.numbers[unit], unit
        if self.numbers.get("step_time", 0.0) > 0:
            return 1 / self.numbers["step_time"], "steps/s"
        rates = [
            (two[0] - one[0]) / (two[1] - one[1])
            for one, two in itertools.pairwise(self.times)
            if two[0] > one[0] and two[1] > one[1]
        ]
        return (statistics.median(rates), "steps/s") if rates else None

    def evidence(
        self,
        *,
        seen: float,
        opened: float,
        is_closed: bool | None,
        process: Process | None,
        beat: tuple[str, float] | None = None,
    ) -> Evidence:
        """Returns what a judgement needs.

        Args:
            seen: When a file of it was seen to grow, or written where no event has a time; 0 for never.
            opened: When the newest file that still grows was begun; 0 for none.
            is_closed: Whether all files have the mode of a closed file; None where modes do not tell.
            process: The process, where it is one of this host.
            beat: What its heartbeat says, and for how many seconds.
        """
        secs = [two[1] - one[1] for one, two in itertools.pairwise(self.times)]
        since, bad = self._find_nonfinite()
        main = min(self.losses.values(), key=lambda one: (*likeliest(one.tag), -len(one.steps), one.tag), default=None)
        end, after = self.end, 0
        if end is not None and main is not None and not is_of_evaluation(main.tag):
            over = max(end.wall_time, self.evaluated) + _AFTER_END_SECS
            after = len({step for step, time in zip(main.steps, main.times, strict=True) if time > over})
        if end is None and self.evaluated and main is None:
            end = End(self.evaluated, False, "the lineage of an evaluation was written")
        return Evidence(
            last_time=max(self.last_time, seen),
            interval_secs=statistics.median(secs) if secs else 0.0,
            longest_secs=max(secs, default=0.0),
            end=end,
            began=self.began,
            losses_after_end=after,
            opened=opened,
            is_beginning=self.began > (self.times[-1][1] if self.times else 0.0),
            hang=self.hang,
            process=process,
            beat=beat,
            is_closed=is_closed,
            lacks_lineage=self.awaits_lineage and not self.has_lineage,
            has_journal=self.has_journal,
            records_end=self.records_end,
            nonfinite=bad.nonfinite_name if bad is not None else "",
            nonfinite_step=since,
            nonfinite_count=bad.nonfinite_count if bad is not None else 0,
            loss_count=len(bad.values) if bad is not None else 0,
            is_empty=self.last_step is None and not self.has_journal,
        )

    def _find_nonfinite(self) -> tuple[int, LossSeries | None]:
        """Returns the loss that is not finite since the earliest step, and that step; the newest says if it is over."""
        own = [one for one in self.losses.values() if not is_of_evaluation(one.tag)] or list(self.losses.values())
        newest = self._newest_loss()
        is_over = newest is not None and newest.tag in _LIKELY and math.isfinite(newest.values[-1])
        first, found = 0, None
        for series in sorted(own, key=self._order):
            since = series.nonfinite_since
            if since is None or series.times[-1] < self.began or (is_over and series.tag in _LIKELY):
                continue
            if found is None or since < first:
                first, found = since, series
        return first, found
