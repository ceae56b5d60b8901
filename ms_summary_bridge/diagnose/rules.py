"""The rules: who is to blame, from facts alone. Reads no file and no clock."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeVar

import msgspec

from ms_summary_bridge.diagnose.facts import Bad, End, Hung, RankFacts
from ms_summary_bridge.diagnose.places import CODE, COLLECTIVE, COMPILE, COMPUTE, OPTIMIZER, innermost
from ms_summary_bridge.training.phases import KINDS

__all__ = ["RULES", "Evidence", "Finding", "Group", "describe_place", "find_findings", "find_groups", "list_ranks"]

_ASKED: Final = ("KeyboardInterrupt", "SystemExit", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
_QUIET: Final = ("the end of the process", "the beginning of another training")
_SPREAD_SECS: Final = 60.0  # what belongs together is told within so long
_SETTLED_SECS: Final = 8.0  # after which a rank that has not told that it hangs does not hang as the others do
_SILENT_SECS: Final = 120.0
_SILENT_INTERVALS: Final = 20
_SLOW_SECS: Final = 1800.0  # a rank that is slow for less is not named
_SLOW_PARTS: Final = 6
_FEWEST_PARTS: Final = 4  # in which there are samples
_SLOW_FACTOR: Final = 1.2
_FEWEST: Final = 12  # samples
_BUSY, _IDLE = 0.5, 0.15  # processors
_OWN: Final = ("data", "callbacks", "checkpoint", "evaluation", "other", "start", OPTIMIZER, COMPILE, CODE)
_LOSSES: Final = ("local_loss", "loss")

RULES: Final = {
    "killed": "A process is gone without a word, and its watchdog found none that was lost before it.",
    "failed": "A rank has ended by an exception, or by itself while others went on, before the others ended or hung.",
    "silent": "A rank gives no sign, and says nothing of an end, while the others go on or all tell that they hang.",
    "absent": "The others hang in what comes before the second step, and a rank of theirs has left nothing.",
    "hang": "Ranks hang; those that do something of their own (data, a callback, a checkpoint, an evaluation, the "
    "compiler, the optimizer, Python code of the step) are to blame, since the others wait for them in the step.",
    "behind": "All that hang are in the step, and a few have not come as far as the others, or farther.",
    "apart": "All that hang are in the step, and a few stand at another place by their stacks: not in the collective "
    "in which the others are, or at another line, or they alone compute, or they alone do not.",
    "together": "All that hang do the same: it is what they share, such as the storage or the network.",
    "nan": "The loss of a rank is not finite from a step on; the rank at which that was first is named, before the "
    "gradients of all were reduced.",
    "slow": "A rank has needed a fifth more time for a step than the median rank, or has waited for data for a fifth "
    "of a step more, for the last half hour at least.",
}
"""What each rule says, by its name."""


class Evidence(msgspec.Struct, frozen=True):
    """What a finding rests on: a line of a file of one rank."""

    rank: int
    where: str
    text: str


class Finding(msgspec.Struct, frozen=True):
    """Who is to blame, and by which rule.

    `step` is the last that ended before, and `since` seconds since the epoch.
    """

    rule: str
    ranks: list[int]
    step: int
    since: float
    text: str
    evidence: list[Evidence]


class Group(msgspec.Struct, frozen=True):
    """Ranks that do the same."""

    ranks: list[int]
    doing: str
    first_step: int
    last_step: int


_T = TypeVar("_T")
_Key = TypeVar("_Key", bound=Hashable)


def list_ranks(ranks: Sequence[int]) -> str:
    """Returns numbers of ranks in words, such as `0-6, 8`."""
    parts: list[list[int]] = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _say(ranks: Sequence[int], verb: str) -> str:
    return f"rank {ranks[0]} {verb}s" if len(ranks) == 1 else f"ranks {list_ranks(ranks)} {verb}"


def describe_place(place: str) -> str:
    """Returns in words what a rank that hangs does."""
    words = {
        **KINDS,
        COLLECTIVE: "in a collective, waiting for other ranks",
        OPTIMIZER: "in the optimizer",
        COMPILE: "compiling",
        CODE: "in Python code of the step",
        COMPUTE: "in the step, computing or waiting for other ranks",
        "start": "before the first step",
    }
    return words.get(place, place or "in an unknown place")


# ------------------------------------------------------------------ what ranks do


def find_groups(ranks: Sequence[RankFacts]) -> list[Group]:
    """Groups ranks by what they do, the largest group first."""
    groups = _group(ranks, _doing)
    found = []
    for doing, members in groups.items():
        steps = [_step(rank) for rank in members]
        found.append(Group([rank.rank for rank in members], doing, min(steps), max(steps)))
    return sorted(found, key=lambda group: (-len(group.ranks), group.ranks))


def _doing(rank: RankFacts) -> str:
    if rank.gone is not None:
        return f"died by {rank.gone.ending}"
    if rank.end is not None:
        return f"ended by {rank.end.reason}" if rank.end.reason else "ended"
    if rank.hung is not None:
        where = innermost(rank.hung.stack)
        return f"hangs {describe_place(rank.hung.place)}" + (f": {where}" if where else "")
    if rank.last is None:
        return "has no sample" if rank.began is not None else "left nothing"
    return "told no hang and no end"


def _step(rank: RankFacts) -> int:
    steps = [rank.last.step if rank.last else 0, rank.hung.step if rank.hung else 0]
    return max(steps)


def _group(items: Sequence[_T], key: Callable[[_T], _Key]) -> dict[_Key, list[_T]]:
    groups: dict[_Key, list[_T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


# ------------------------------------------------------------------ findings


def find_findings(ranks: Sequence[RankFacts], missing: Sequence[int], now: float) -> list[Finding]:
    """Returns who is to blame, first bad first; what follows from an earlier finding is left out.

    Args:
        ranks: All that left anything.
        missing: Ranks that left nothing.
        now: Seconds since the epoch.
    """
    ends = [*_killed(ranks), *_failed(ranks, now)]
    first_end = min((finding.since for finding in ends), default=float("inf"))
    hung = [rank for rank in ranks if rank.hung is not None and _end_of(rank) is None]
    stuck = _hung([rank for rank in hung if _hang(rank).since < first_end - _SPREAD_SECS], ranks, missing, now)
    if not stuck:  # those that wait for one that is gone are told with it; who does its own all the same is not
        own = [rank for rank in hung if _hang(rank).place in _OWN and _hang(rank).since < first_end]
        stuck = _by_own(own, [rank for rank in hung if rank not in own]) if ends else []
    found = [*ends, *stuck]
    if stuck:
        # Ends after a hang of their own are what somebody did about it.
        hang_since = min(finding.since for finding in stuck)
        found = [finding for finding in found if finding in stuck or finding.since < hang_since]
    if not found:
        found = _silent(ranks)
    found.sort(key=lambda finding: finding.since)
    bad = _not_finite(ranks)
    found = sorted([*found, *bad], key=lambda finding: finding.since)
    return [*found, *_slow(ranks)]


def _hang(rank: RankFacts) -> Hung:
    assert rank.hung is not None
    return rank.hung


def _end_of(rank: RankFacts) -> End | None:
    """Returns the end of a rank that came before any hang of it."""
    if rank.end is None or (rank.hung is not None and rank.hung.since < rank.end.wall_time):
        return None
    return rank.end


def _killed(ranks: Sequence[RankFacts]) -> list[Finding]:
    gone = [rank for rank in ranks if rank.gone is not None and not rank.gone.lost_before]
    if not gone:
        return []
    first = min(gone, key=lambda rank: rank.gone.wall_time)  # type: ignore[union-attr]
    fact = first.gone
    assert fact is not None
    others = [rank.rank for rank in ranks if rank.gone is not None and rank is not first]
    text = f"rank {first.rank} died by {fact.ending}, without a word, after step {_step(first)}"
    text += f"; {_name(others)} died after it" if others else ""
    evidence = [Evidence(first.rank, fact.where, f"gone: {fact.ending}")]
    return [Finding("killed", [first.rank], _step(first), fact.wall_time, text, evidence + _waiting(ranks, first.rank))]


def _waiting(ranks: Sequence[RankFacts], *but: int) -> list[Evidence]:
    """Returns a line for each place in which others hang."""
    hung = [rank for rank in ranks if rank.hung is not None and rank.rank not in but]
    found = []
    for place, members in _group(hung, lambda rank: _hang(rank).place).items():
        one, numbers = members[0], [rank.rank for rank in members]
        text = f"{_say(numbers, 'hang')} {describe_place(place)} after step {_hang(one).step}"
        found.append(Evidence(one.rank, _hang(one).where, text))
    return found


def _failed(ranks: Sequence[RankFacts], now: float) -> list[Finding]:
    ended = sorted((rank for rank in ranks if rank.end is not None and rank.gone is None), key=_end_time)
    if not ended:
        return []
    first = ended[0]
    end = first.end
    assert end is not None
    waits = [rank for rank in ranks if rank.hung is not None and rank.end is None]
    went_on = [rank for rank in ranks if rank is not first and _step(rank) > end.step]
    reason = end.reason.partition(" of the watchdog")[0]
    if first.hung is not None and first.hung.since < end.wall_time:
        return []  # it hung before
    is_asked = reason in _ASKED or not reason
    if reason and not is_asked and reason not in _QUIET:
        how = f"ended by {end.reason}"
    elif waits and min(_hang(rank).since for rank in waits) >= end.wall_time - _SPREAD_SECS:
        how = f"ended by {end.reason}" if reason else "came to its end"
    elif reason in _QUIET and went_on:
        how = f"ended by {end.reason}"
    else:
        return []
    text = f"rank {first.rank} {how} after step {end.step}"
    text += f"; {_say([rank.rank for rank in waits], 'hang')} since then" if waits else ""
    evidence = [Evidence(first.rank, end.where, f"end: {end.reason or 'the training came to its end'}")]
    found = [Finding("failed", [first.rank], end.step, end.wall_time, text, evidence + _waiting(ranks, first.rank))]
    return found if now >= end.wall_time else []


def _end_time(rank: RankFacts) -> float:
    return rank.end.wall_time if rank.end is not None else float("inf")


# ------------------------------------------------------------------ hangs


def _hung(hung: list[RankFacts], ranks: Sequence[RankFacts], missing: Sequence[int], now: float) -> list[Finding]:
    if not hung:
        return []
    own = [rank for rank in hung if _hang(rank).place in _OWN]
    waiting = [rank for rank in hung if rank not in own]
    told = max(_hang(rank).told for rank in hung)
    quiet = [rank for rank in ranks if rank.hung is None and rank.end is None and rank.gone is None]
    stopped = [rank for rank in quiet if rank.newest < told - _SPREAD_SECS / 2 or rank.newest <= _hang(hung[0]).since]
    if own and waiting:
        return _by_own(own, waiting)
    if stopped and len(stopped) * 2 <= len(ranks) and now - told >= _SETTLED_SECS and not own:
        numbers = [rank.rank for rank in stopped]
        text = f"{_say(numbers, 'give')} no sign since step {_step(stopped[0])} and told no hang, while "
        text += (
            f"{_say([rank.rank for rank in hung], 'hang')}: lost, or in what may last longer (a callback, a checkpoint)"
        )
        evidence = [
            Evidence(rank.rank, rank.last.where, f"the last sample is of step {rank.last.step}")
            for rank in stopped
            if rank.last is not None
        ]
        since = min(rank.newest for rank in stopped)
        return [Finding("silent", numbers, _step(stopped[0]), since, text, evidence + _waiting(hung))]
    at_start = all(_hang(rank).step == 0 or _hang(rank).phase in ("start", "compile") for rank in hung)
    if missing and at_start and len(missing) <= len(hung):
        text = f"{_name(missing)} left nothing, "
        text += f"while {_say([rank.rank for rank in hung], 'hang')} {describe_place(_hang(hung[0]).place)}"
        return [Finding("absent", list(missing), 0, _first(hung).since, text, _waiting(hung))]
    return _by_step(hung) or _by_stack(hung) or _by_processor(hung) or _together(hung, ranks)


def _first(hung: Sequence[RankFacts]) -> Hung:
    return min((_hang(rank) for rank in hung), key=lambda fact: fact.since)


def _finding(rule: str, odd: list[RankFacts], others: Sequence[RankFacts], what: str) -> Finding:
    odd = sorted(odd, key=lambda rank: (_hang(rank).step, _hang(rank).since))
    numbers = [rank.rank for rank in odd]
    first = _hang(odd[0])
    text = f"{_say(numbers, 'hang')} {what} after step {first.step}"
    waits = [rank.rank for rank in others]
    text += f"; {_say(waits, 'wait')}" if waits else ""
    evidence = []
    for rank in odd[:3]:
        fact = _hang(rank)
        where = innermost(fact.stack)
        evidence.append(
            Evidence(rank.rank, fact.where, f"{describe_place(fact.place)}" + (f": {where}" if where else ""))
        )
    return Finding(rule, numbers, first.step, first.since, text, evidence + _waiting(others))


def _by_own(own: list[RankFacts], waiting: list[RankFacts]) -> list[Finding]:
    found = []
    for place, members in _group(own, lambda rank: _hang(rank).place).items():
        found.append(_finding("hang", members, waiting, describe_place(place)))
    return sorted(found, key=lambda finding: (finding.step, finding.since))


def _by_step(hung: list[RankFacts]) -> list[Finding]:
    steps = Counter(_hang(rank).step for rank in hung)
    if len(steps) == 1:
        return []
    behind = [rank for rank in hung if _hang(rank).step < max(steps)]
    odd = behind if len(behind) * 2 <= len(hung) else [rank for rank in hung if _hang(rank).step > min(steps)]
    if len(odd) * 2 > len(hung):
        usual = steps.most_common(1)[0][0]
        odd = [rank for rank in hung if _hang(rank).step != usual]
    others = [rank for rank in hung if rank not in odd]
    where = f"{describe_place(_hang(odd[0]).place)}, {'behind' if odd[0] in behind else 'ahead of'} the others"
    return [_finding("behind", odd, others, where)]


def _by_stack(hung: list[RankFacts]) -> list[Finding]:
    apart = [rank for rank in hung if _hang(rank).place != COLLECTIVE]
    if len(apart) == len(hung) or not apart:
        if not all(_hang(rank).stack for rank in hung):
            return []
        groups = _group(hung, lambda rank: innermost(_hang(rank).stack))
        usual = max(groups.values(), key=len)
        apart = [rank for rank in hung if rank not in usual]
        if len(usual) * 3 < len(hung) * 2:
            return []
    others = [rank for rank in hung if rank not in apart]
    return [_finding("apart", apart, others, describe_place(_hang(apart[0]).place))] if apart and others else []


def _by_processor(hung: list[RankFacts]) -> list[Finding]:
    if len(hung) < 3:
        return []
    busy = [rank for rank in hung if _hang(rank).cpu_share >= _BUSY]
    idle = [rank for rank in hung if _hang(rank).cpu_share <= _IDLE]
    kernel = [rank for rank in hung if _hang(rank).state == "disk-sleep"]
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
        return [_finding("hang", hung, [], describe_place(_hang(hung[0]).place))]
    rule = "together" if len(ranks) > 1 else "hang"
    return [_finding(rule, hung, [], describe_place(_hang(hung[0]).place))]


def _silent(ranks: Sequence[RankFacts]) -> list[Finding]:
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
    text = f"{_say(numbers, 'give')} no sign since step {_step(odd[0])}, "
    text += f"and others went on to step {max(map(_step, going))}"
    evidence = [
        Evidence(rank.rank, rank.last.where, f"the last sample is of step {_step(rank)}")
        for rank in odd[:3]
        if rank.last
    ]
    return [Finding("silent", numbers, _step(odd[0]), odd[0].newest, text, evidence)]


# ------------------------------------------------------------------ numbers


def _not_finite(ranks: Sequence[RankFacts]) -> list[Finding]:
    for metric in _LOSSES:
        bad = [(rank, rank.bad[metric]) for rank in ranks if metric in rank.bad]
        if not bad:
            continue
        step = min(fact.step for _, fact in bad)
        first = sorted(((rank, fact) for rank, fact in bad if fact.step == step), key=lambda pair: pair[0].rank)
        numbers = [rank.rank for rank, _ in first]
        with_metric = sum(metric in rank.metrics for rank in ranks)
        text = f"{metric} is {first[0][1].text} from step {step} on, "
        text += "on all ranks at once" if len(numbers) == with_metric > 1 else f"first on {_name(numbers)}"
        evidence = [Evidence(rank.rank, fact.where, f"{metric}: {fact.text}") for rank, fact in first[:3]]
        later = [(rank, fact) for rank, fact in bad if fact.step > step]
        if later:
            rank, fact = min(later, key=lambda pair: pair[1].step)
            text += f"; on {_name([other.rank for other, _ in later])} from step {fact.step} on"
            evidence.append(Evidence(rank.rank, fact.where, f"{metric}: {fact.text}"))
        return [Finding("nan", numbers, max(step - 1, 0), _since(first), text, evidence)]
    return []


def _name(numbers: Sequence[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {list_ranks(numbers)}"


def _since(bad: Sequence[tuple[RankFacts, Bad]]) -> float:
    return min(fact.wall_time for _, fact in bad)


def _slow(ranks: Sequence[RankFacts]) -> list[Finding]:
    paced = [rank for rank in ranks if len(rank.pace) >= _FEWEST]
    if len(paced) < 2:
        return []
    until = min(rank.pace[-1][0] for rank in paced)
    since = max(rank.pace[0][0] for rank in paced)
    if until - since < _SLOW_SECS:
        return []
    edges = [until - _SLOW_SECS * (1 - part / _SLOW_PARTS) for part in range(_SLOW_PARTS + 1)]
    tables = {rank.rank: [_medians(rank, *edge) for edge in itertools.pairwise(edges)] for rank in paced}
    step = statistics.median(row[0] for table in tables.values() for row in table if row is not None)
    odd: list[tuple[RankFacts, str]] = []
    for rank in paced:
        words = []
        for column, name in enumerate(("a step took", "waiting for data took")):
            pairs = []
            for part, own in enumerate(tables[rank.rank]):
                others = [row for other, table in tables.items() if other != rank.rank and (row := table[part])]
                if own is None or not others:
                    continue  # all stood still
                usual = statistics.median(row[column] for row in others)
                if own[column] - usual < (_SLOW_FACTOR - 1) * step or step <= 0.0:
                    break
                pairs.append((own[column], usual))
            else:
                if len(pairs) >= _FEWEST_PARTS:
                    mine, usual = (statistics.median(column) for column in zip(*pairs, strict=True))
                    words.append(f"{name} {mine:.3g} s, {usual:.3g} s on the median rank")
        if words:
            odd.append((rank, ", ".join(words)))
    if not odd or len(odd) * 2 > len(paced):
        return []
    numbers = [rank.rank for rank, _ in odd]
    text = f"{_name(numbers)} {'is' if len(odd) == 1 else 'are'} slow, for half an hour at least: {odd[0][1]}"
    evidence = [Evidence(rank.rank, rank.last.where, words) for rank, words in odd[:3] if rank.last]
    return [Finding("slow", numbers, _step(odd[0][0]), edges[0], text, evidence)]


def _medians(rank: RankFacts, begin: float, end: float) -> tuple[float, float] | None:
    rows = [row for row in rank.pace if begin < row[0] <= end]
    if not rows:
        return None
    return statistics.median(row[1] for row in rows), statistics.median(row[2] for row in rows)
