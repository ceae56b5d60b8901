"""The rules about ranks that hang: which of them the others wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from ms_summary_bridge.diagnose.facts import Hung, RankFacts
from ms_summary_bridge.diagnose.finding import (
    Evidence,
    Finding,
    describe_place,
    group_by,
    hang_of,
    last_step,
    name_ranks,
    say,
    tell_waiting,
)
from ms_summary_bridge.diagnose.places import CODE, COLLECTIVE, COMPILE, OPTIMIZER, innermost

__all__ = ["OWN", "blame_own", "find_hung"]

OWN: Final = ("data", "callbacks", "checkpoint", "evaluation", "other", "start", OPTIMIZER, COMPILE, CODE)
"""Places in which a rank waits for no other."""

_SPREAD_SECS: Final = 30.0
_SETTLED_SECS: Final = 8.0  # after which a rank that has not told that it hangs does not hang as the others do
_BUSY, _IDLE = 0.5, 0.15  # processors


def find_hung(hung: list[RankFacts], ranks: Sequence[RankFacts], missing: Sequence[int], now: float) -> list[Finding]:
    """Returns whom the ranks that hang wait for, by the first rule that tells."""
    if not hung:
        return []
    own = [rank for rank in hung if hang_of(rank).place in OWN]
    waiting = [rank for rank in hung if rank not in own]
    told = max(hang_of(rank).told for rank in hung)
    quiet = [rank for rank in ranks if rank.hung is None and rank.end is None and rank.gone is None]
    stopped = [rank for rank in quiet if rank.newest < told - _SPREAD_SECS or rank.newest <= hang_of(hung[0]).since]
    if own and waiting:
        return blame_own(own, waiting)
    if stopped and len(stopped) * 2 <= len(ranks) and now - told >= _SETTLED_SECS and not own:
        numbers = [rank.rank for rank in stopped]
        text = f"{say(numbers, 'give')} no sign since step {last_step(stopped[0])} and told no hang, while "
        text += (
            f"{say([rank.rank for rank in hung], 'hang')}: lost, or in what may last longer (a callback, a checkpoint)"
        )
        evidence = [
            Evidence(rank.rank, rank.last.where, f"the last sample is of step {rank.last.step}")
            for rank in stopped
            if rank.last is not None
        ]
        since = min(rank.newest for rank in stopped)
        return [Finding("silent", numbers, last_step(stopped[0]), since, text, evidence + tell_waiting(hung))]
    at_start = all(hang_of(rank).step == 0 or hang_of(rank).phase in ("start", "compile") for rank in hung)
    if missing and at_start and len(missing) <= len(hung):
        text = f"{name_ranks(missing)} left nothing, "
        text += f"while {say([rank.rank for rank in hung], 'hang')} {describe_place(hang_of(hung[0]).place)}"
        return [Finding("absent", list(missing), 0, _first(hung).since, text, tell_waiting(hung))]
    return _by_step(hung) or _by_stack(hung) or _by_processor(hung) or _together(hung, ranks)


def _first(hung: Sequence[RankFacts]) -> Hung:
    return min((hang_of(rank) for rank in hung), key=lambda fact: fact.since)


def _finding(rule: str, odd: list[RankFacts], others: Sequence[RankFacts], what: str) -> Finding:
    odd = sorted(odd, key=lambda rank: (hang_of(rank).step, hang_of(rank).since))
    numbers = [rank.rank for rank in odd]
    first = hang_of(odd[0])
    text = f"{say(numbers, 'hang')} {what} after step {first.step}"
    waits = [rank.rank for rank in others]
    text += f"; {say(waits, 'wait')}" if waits else ""
    evidence = []
    for rank in odd[:3]:
        fact = hang_of(rank)
        where = innermost(fact.stack)
        evidence.append(
            Evidence(rank.rank, fact.where, f"{describe_place(fact.place)}" + (f": {where}" if where else ""))
        )
    return Finding(rule, numbers, first.step, first.since, text, evidence + tell_waiting(others))


def blame_own(own: list[RankFacts], waiting: list[RankFacts]) -> list[Finding]:
    """Returns a finding for each place in which ranks wait for no other."""
    found = []
    for place, members in group_by(own, lambda rank: hang_of(rank).place).items():
        found.append(_finding("hang", members, waiting, describe_place(place)))
    return sorted(found, key=lambda finding: (finding.step, finding.since))


def _by_step(hung: list[RankFacts]) -> list[Finding]:
    steps = Counter(hang_of(rank).step for rank in hung)
    if len(steps) == 1:
        return []
    behind = [rank for rank in hung if hang_of(rank).step < max(steps)]
    odd = behind if len(behind) * 2 <= len(hung) else [rank for rank in hung if hang_of(rank).step > min(steps)]
    if len(odd) * 2 > len(hung):
        usual = steps.most_common(1)[0][0]
        odd = [rank for rank in hung if hang_of(rank).step != usual]
    others = [rank for rank in hung if rank not in odd]
    where = f"{describe_place(hang_of(odd[0]).place)}, {'behind' if odd[0] in behind else 'ahead of'} the others"
    return [_finding("behind", odd, others, where)]


def _by_stack(hung: list[RankFacts]) -> list[Finding]:
    apart = [rank for rank in hung if hang_of(rank).place != COLLECTIVE]
    if len(apart) == len(hung) or not apart:
        if not all(hang_of(rank).stack for rank in hung):
            return []
        groups = group_by(hung, lambda rank: innermost(hang_of(rank).stack))
        usual = max(groups.values(), key=len)
        apart = [rank for rank in hung if rank not in usual]
        if len(usual) * 3 < len(hung) * 2:
            return []
    others = [rank for rank in hung if rank not in apart]
    return [_finding("apart", apart, others, describe_place(hang_of(apart[0]).place))] if apart and others else []


def _by_processor(hung: list[RankFacts]) -> list[Finding]:
    if len(hung) < 3:
        return []
    busy = [rank for rank in hung if hang_of(rank).cpu_share >= _BUSY]
    idle = [rank for rank in hung if hang_of(rank).cpu_share <= _IDLE]
    kernel = [rank for rank in hung if hang_of(rank).state == "disk-sleep"]
    for odd, rest, word in (
        (kernel, [], "in the kernel, for a driver or a disk,"),
        (busy, idle, "at work"),
        (idle, busy, "idle"),
    ):
        others = [rank for rank in hung if rank not in odd]
        if odd and len(odd) * 3 <= len(hung) and (not rest or len(rest) == len(others)):
            return [_finding("apart", odd, others, f"{word} alone")]
    return []


def _together(hung: list[RankFacts], ranks: Sequence[RankFacts]) -> list[Finding]:
    if len(hung) == 1 and len(ranks) > 1:
        return [_finding("hang", hung, [], describe_place(hang_of(hung[0]).place))]
    rule = "together" if len(ranks) > 1 else "hang"
    return [_finding(rule, hung, [], describe_place(hang_of(hung[0]).place))]
