"""The judgement: how a training is and by what that is known. Pure functions; no I/O, no clock.

The order of the evidence is: an end that was recorded, a hang that was, the process, the mode of the files, the run's
own pace, and the heartbeat of one that is silent. What was written last is never enough: an evaluation after a training
is no training. A loss that is not finite is told first of all, whatever else is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from ms_summary_bridge.errors import counted

__all__ = ["End", "Evidence", "Judgement", "Process", "State", "describe_age", "judge", "judge_ranks"]

State: TypeAlias = Literal["non-finite", "failed", "stalled", "running", "ended", "unknown"]

_WORST: Final[tuple[State, ...]] = ("non-finite", "failed", "stalled", "running", "ended", "unknown")
_SHORTEST_LIMIT: Final = 120.0
_FIRST_STEP_LIMIT: Final = 1800.0
_LIMIT_INTERVALS: Final = 20.0
_LIMIT_PAUSES: Final = 3.0
_LONGEST_PAUSE_LIMIT: Final = 1800.0
_GONE_SECS: Final = 10.0  # so long after the last sign of life a process that is gone may still have an end on its way
_GONE_INTERVALS: Final = 3.0
_AFTER_END_SECS: Final = 5.0  # so much later than the end what was on its way may still come
_RESUMED_LOSSES: Final = 2
_FORGOTTEN_SECS: Final = 86400.0
_FOREVER: Final = float("inf")


class End(msgspec.Struct, frozen=True):
    """An end that was recorded."""

    wall_time: float
    """Seconds since the epoch."""
    has_failed: bool
    evidence: str
    """What says so, and the reason where it is known."""


class Process(msgspec.Struct, frozen=True):
    """The process that trains, where it is one of this host."""

    pid: int
    is_alive: bool
    records_end: bool
    """Whether it would have recorded an end if it had come to one."""
    was_seen: bool = False
    """Whether it was seen alive before. Else its number may be one of a container that has the name of this host."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one process of a training; every field has the value for "not known".

    Attributes:
        last_time: Seconds since the epoch, the newest sign of life: of an event, of a line in the journal.
        interval_secs: Seconds from one step that is recorded to the next, as it goes.
        longest_secs: The longest of them.
        end: The newest end.
        began: Seconds since the epoch, when the newest session began; 0 where nothing says so.
        losses_after_end: Steps of the training's loss that came after that end.
        opened: Seconds since the epoch, when the newest file that still grows was begun; 0 for none.
        is_beginning: Whether that session has no step yet: a graph is compiled, data are loaded.
        hang: A hang that has not passed: seconds since the epoch, and what the watchdog says.
        process: The process.
        beat: What it does by the heartbeat that the watchdog reads, and since how many seconds.
        is_closed: Whether all files have the mode that a closed file has; None where modes do not tell.
        lacks_lineage: Whether the lineage that a training writes at its end is missing beside that of its beginning.
        has_journal: Whether there is a journal, in which an end would be.
        records_end: Whether what writes these files records an end at all.
        nonfinite: What the newest losses are, where not finite: `nan`, `inf`, `-inf`; `not finite` for several.
        nonfinite_step: Since which step.
        nonfinite_count: How many of the last losses are not finite.
        loss_count: Of how many.
        is_empty: Whether there is neither a value nor a line.
    """

    last_time: float = 0.0
    interval_secs: float = 0.0
    longest_secs: float = 0.0
    end: End | None = None
    began: float = 0.0
    losses_after_end: int = 0
    opened: float = 0.0
    is_beginning: bool = False
    hang: tuple[float, str] | None = None
    process: Process | None = None
    beat: tuple[str, float] | None = None
    is_closed: bool | None = None
    lacks_lineage: bool = False
    has_journal: bool = False
    records_end: bool = True
    nonfinite: str = ""
    nonfinite_step: int = 0
    nonfinite_count: int = 0
    loss_count: int = 0
    is_empty: bool = False


class Judgement(msgspec.Struct, frozen=True):
    """How a training is."""

    state: State
    life: State
    """The same without regard to the loss."""
    evidence: tuple[str, ...]
    """What it is known by, the strongest first."""
    holds_until: float = 0.0
    """Seconds since the epoch until which it is the same if nothing new comes."""


def judge(evidence: Evidence, now: float, stall_after: float | None = None) -> Judgement:
    """Returns how a process of a training is.

    Args:
        evidence: What is known.
        now: Seconds since the epoch.
        stall_after: Seconds without a sign of life after which it counts as stalled; None for a limit by its own pace.
    """
    life, words, until = _find_life(evidence, now, stall_after)
    if not evidence.nonfinite:
        return Judgement(life, life, (words,), until)
    loss = f"the loss is {evidence.nonfinite} since step {evidence.nonfinite_step}"
    if evidence.nonfinite_count > 1:
        loss += f" ({evidence.nonfinite_count} of the last {evidence.loss_count} are not finite)"
    return Judgement("non-finite", life, (loss, f"{life}: {words}"), until)


def _find_life(known: Evidence, now: float, stall_after: float | None) -> tuple[State, str, float]:
    age = max(0.0, now - known.last_time)
    limit = _limit(known) if stall_after is None else stall_after
    expires = known.last_time + limit
    end = known.end
    if end is not None and not _has_resumed(known, end):
        if known.opened > end.wall_time + _AFTER_END_SECS and known.is_closed is False and age <= limit:
            return "running", f"a file was begun after the end, and grows ({end.evidence})", expires
        return ("failed" if end.has_failed else "ended"), end.evidence, _FOREVER
    if known.is_empty:
        return "unknown", "no scalar is there yet to tell it by", _FOREVER
    if known.hang is not None and known.last_time <= known.hang[0] + _AFTER_END_SECS:
        return "stalled", f"the watchdog: {known.hang[1]}", _FOREVER
    process = known.process
    patience = max(_GONE_SECS, _GONE_INTERVALS * known.interval_secs)
    if process is not None and not process.is_alive and age > (patience if process.was_seen else limit):
        gone = f"process {process.pid} is gone"
        if process.records_end:
            return "failed", f"{gone}, and no end was recorded", 0.0
        return "ended", f"{gone}; whether it reached its end is not recorded", 0.0
    if known.is_closed and not known.has_journal and known.lacks_lineage and age > _GONE_SECS:
        return "failed", "its files were closed, without the lineage that the end of a training writes", _FOREVER
    if known.is_closed and not known.has_journal:
        if known.lacks_lineage:  # which may be on its way
            return "running", "its files were closed just now", known.last_time + _GONE_SECS
        return "ended", "its files were closed; whether the training reached its end is not recorded", _FOREVER
    if age <= limit:
        return "running", f"written to within {describe_age(limit)}", 0.0 if process is not None else expires
    if known.beat is not None and known.beat[1] <= limit:
        return "running", f"its heartbeat says so: in {known.beat[0]} for {describe_age(known.beat[1])}", 0.0
    alive = ""
    if process is not None and process.is_alive:
        doing = f", in {known.beat[0]} for {describe_age(known.beat[1])}" if known.beat is not None else ""
        alive = f"process {process.pid} is alive{doing}, but "
    if not known.records_end and not alive and age > max(_FORGOTTEN_SECS, limit):
        return "unknown", f"nothing was written for {describe_age(age)}, and such files record no end", 0.0
    words = f"{alive}nothing was written for {describe_age(age)} (limit {describe_age(limit)})"
    return "stalled", words if alive else f"{words}, and no end is recorded", 0.0


def _has_resumed(known: Evidence, end: End) -> bool:
    """Whether the training went on after its end: a new session, or new losses; an evaluation is neither."""
    return known.began > end.wall_time or known.losses_after_end >= _RESUMED_LOSSES


def _limit(known: Evidence) -> float:
    """Returns after how many seconds of silence a run counts as stalled, by its own pace.

    A pause that it made before, for an evaluation say, it may make again, and a first step may take half an hour.
    """
    pause = min(_LIMIT_PAUSES * known.longest_secs, _LONGEST_PAUSE_LIMIT)
    first = _FIRST_STEP_LIMIT if known.is_beginning else _SHORTEST_LIMIT
    return max(first, _LIMIT_INTERVALS * known.interval_secs, pause)


def judge_ranks(ranks: Sequence[tuple[int, Judgement, float]]) -> Judgement:
    """Returns how a run of several processes is: as the worst of them, told of the one that was first.

    Args:
        ranks: Rank, judgement and the newest sign of life of each.
    """
    if len(ranks) == 1:
        return ranks[0][1]
    states, lives = {one.state for _, one, _ in ranks}, {one.life for _, one, _ in ranks}
    state = next((state for state in _WORST if state in states), _WORST[-1])
    life = next((life for life in _WORST if life in lives), _WORST[-1])
    until = min((judgement.holds_until for _, judgement, _ in ranks), default=0.0)
    same = [one for one in ranks if one[1].state == state]
    if not same:
        return Judgement("unknown", "unknown", ("there is no rank",))
    rank, first, _ = min(same, key=lambda one: (one[2], one[0]))
    if len(same) == len(ranks):
        head = f"all {counted(len(ranks), 'rank')}"
    else:
        head = f"rank {rank}" + (f" and {len(same) - 1} more" if len(same) > 1 else "") + f" of {len(ranks)}"
    return Judgement(state, life, (f"{head}: {first.evidence[0]}", *first.evidence[1:]), until)


def describe_age(secs: float) -> str:
    """Returns a time span as people say it."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if secs >= 2 * size:
            return f"{secs / size:.0f} {unit}"
    return counted(secs, "second")
