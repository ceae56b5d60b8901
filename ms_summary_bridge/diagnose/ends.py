"""The rules about ranks that are gone, have ended, or give no sign."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from ms_summary_bridge.diagnose.facts import RankFacts
from ms_summary_bridge.diagnose.finding import (
    Evidence,
    Finding,
    hang_of,
    last_step,
    name_ranks,
    say,
    tell_waiting,
)

__all__ = ["find_failed", "find_killed", "find_silent"]

_ASKED: Final = ("KeyboardInterrupt", "SystemExit", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
_QUIET: Final = ("the end of the process", "the beginning of another training")
_SPREAD_SECS: Final = 60.0  # what belongs together is told within so long
_SILENT_SECS: Final = 120.0
_SILENT_INTERVALS: Final = 20


def find_killed(ranks: Sequence[RankFacts]) -> list[Finding]:
    """Returns the rank whose process was gone first."""
    gone = [rank for rank in ranks if rank.gone is not None and not rank.gone.lost_before]
    if not gone:
        return []
    first = min(gone, key=lambda rank: rank.gone.wall_time)  # type: ignore[union-attr]
    fact = first.gone
    assert fact is not None
    others = [rank.rank for rank in ranks if rank.gone is not None and rank is not first]
    text = f"rank {first.rank} died by {fact.ending}, without a word, after step {last_step(first)}"
    text += f"; {name_ranks(others)} died after it" if others else ""
    evidence = [Evidence(first.rank, fact.where, f"gone: {fact.ending}")]
    return [
        Finding(
            "killed", [first.rank], last_step(first), fact.wall_time, text, evidence + tell_waiting(ranks, first.rank)
        )
    ]


def find_failed(ranks: Sequence[RankFacts]) -> list[Finding]:
    """Returns the rank that ended first, where its end is a fault or others wait for it."""
    ended = sorted((rank for rank in ranks if rank.end is not None and rank.gone is None), key=_end_time)
    if not ended:
        return []
    first = ended[0]
    end = first.end
    assert end is not None
    waits = [rank for rank in ranks if rank.hung is not None and rank.end is None]
    went_on = [
        rank
        for rank in ranks
        if rank is not first and (last_step(rank) > end.step or (rank.end is not None and rank.end.reason in _ASKED))
    ]
    reason = end.reason.partition(" of the watchdog")[0]
    if first.hung is not None and first.hung.since < end.wall_time:
        return []  # it hung before
    is_asked = reason in _ASKED or not reason
    if reason and not is_asked and reason not in _QUIET:
        how = f"ended by {end.reason}"
    elif waits and min(hang_of(rank).since for rank in waits) >= end.wall_time - _SPREAD_SECS:
        how = f"ended by {end.reason}" if reason else "came to its end"
    elif reason in _QUIET and went_on:
        how = f"ended by {end.reason}"
    else:
        return []
    text = f"rank {first.rank} {how} after step {end.step}"
    text += f"; {say([rank.rank for rank in waits], 'hang')} since then" if waits else ""
    evidence = [Evidence(first.rank, end.where, f"end: {end.reason or 'the training came to its end'}")]
    return [Finding("failed", [first.rank], end.step, end.wall_time, text, evidence + tell_waiting(ranks, first.rank))]


def _end_time(rank: RankFacts) -> float:
    return rank.end.wall_time if rank.end is not None else float("inf")


def find_silent(ranks: Sequence[RankFacts]) -> list[Finding]:
    """Those whose journals stop, while others go on."""
    going = [rank for rank in ranks if rank.last is not None]
    if len(going) < 2:
        return []
    pace = statistics.median(rank.interval_secs for rank in going)
    newest = sorted(rank.newest for rank in going)[len(going) // 2]
    patience = max(_SILENT_SECS, _SILENT_INTERVALS * pace)
    odd = [
        rank
        for rank in going
        if rank.end is None and rank.gone is None and rank.hung is None and rank.newest < newest - patience
    ]
    if not odd:
        return []
    odd.sort(key=lambda rank: rank.newest)
    numbers = [rank.rank for rank in odd]
    text = f"{say(numbers, 'give')} no sign since step {last_step(odd[0])}, "
    text += f"and others went on to step {max(map(last_step, going))}"
    evidence = [
        Evidence(rank.rank, rank.last.where, f"the last sample is of step {last_step(rank)}")
        for rank in odd[:3]
        if rank.last
    ]
    return [Finding("silent", numbers, last_step(odd[0]), odd[0].newest, text, evidence)]
