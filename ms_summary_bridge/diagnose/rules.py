"""The rules: who is to blame, from facts alone. Reads no file and no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ms_summary_bridge.diagnose.ends import find_failed, find_killed, find_silent
from ms_summary_bridge.diagnose.facts import End, RankFacts
from ms_summary_bridge.diagnose.finding import Finding, Group, describe_place, group_by, hang_of, last_step
from ms_summary_bridge.diagnose.hangs import OWN, blame_own, find_hung
from ms_summary_bridge.diagnose.numbers import find_not_finite, find_slow
from ms_summary_bridge.diagnose.places import innermost

__all__ = ["RULES", "find_findings", "find_groups"]

_OF_MANY: Final = {"hangs": "hang", "has": "have"}
_SPREAD_SECS: Final = 60.0  # what belongs together is told within so long


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
    "cann": "CANN's logs, whose shape is from documentation, name a rank: HCCL lost it or found it stuck, it has an "
    "error that follows from no other rank, or others waited for it in a collective.",
}
"""What each rule says, by its name."""


def find_groups(ranks: Sequence[RankFacts]) -> list[Group]:
    """Groups ranks by what they do, the largest group first."""
    groups = group_by(ranks, _doing)
    found = []
    for doing, members in groups.items():
        steps = [last_step(rank) for rank in members]
        if len(members) > 1:
            verb, blank, rest = doing.partition(" ")
            doing = _OF_MANY.get(verb, verb) + blank + rest
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


def find_findings(ranks: Sequence[RankFacts], missing: Sequence[int], now: float) -> list[Finding]:
    """Returns who is to blame, first bad first; what follows from an earlier finding is left out.

    Args:
        ranks: All that left anything.
        missing: Ranks that left nothing.
        now: Seconds since the epoch.
    """
    ends = [*find_killed(ranks), *find_failed(ranks)]
    first_end = min((finding.since for finding in ends), default=float("inf"))
    hung = [rank for rank in ranks if rank.hung is not None and _end_of(rank) is None]
    stuck = find_hung([rank for rank in hung if hang_of(rank).since < first_end - _SPREAD_SECS], ranks, missing, now)
    if not stuck:  # those that wait for one that is gone are told with it; who does its own all the same is not
        own = [rank for rank in hung if hang_of(rank).place in OWN and hang_of(rank).since < first_end]
        stuck = blame_own(own, [rank for rank in hung if rank not in own]) if ends else []
    found = [*ends, *stuck]
    if stuck:
        # Ends after a hang of their own are what somebody did about it.
        hang_since = min(finding.since for finding in stuck)
        found = [finding for finding in found if finding in stuck or finding.since < hang_since]
    if not found:
        found = find_silent(ranks)
    found.sort(key=lambda finding: finding.since)
    bad = find_not_finite(ranks)
    found = sorted([*found, *bad], key=lambda finding: finding.since)
    return [*found, *find_slow(ranks)]


def _end_of(rank: RankFacts) -> End | None:
    """Returns the end of a rank that came before any hang of it."""
    if rank.end is None or (rank.hung is not None and rank.hung.since < rank.end.wall_time):
        return None
    return rank.end
