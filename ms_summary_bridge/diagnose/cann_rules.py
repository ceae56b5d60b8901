"""What CANN's logs say of ranks: which one HCCL lost or found stuck, and which one has an error of its own.

The number of a rank inside of a group is never taken for a global one: it is looked up in the logs of all processes,
which say what group each joined as which rank, and only in a group of all ranks it is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ms_summary_bridge.diagnose.cann_log import CODES, CannFact, CannLogs, GroupRank, say_fact
from ms_summary_bridge.diagnose.facts import RankFacts
from ms_summary_bridge.diagnose.finding import Evidence, Finding, last_step, name_ranks

__all__ = ["add_cann_evidence", "find_cann"]

_FOLLOWS: Final = ("EI0002", "EI0006", "EI0015", "EE1002")
"""Codes of a rank that waited for another one."""
_SHOWN: Final = 6  # lines of evidence
_NO_RANK: Final = -1


class _Places:
    """Which global rank wrote a log, and which is meant by it."""

    def __init__(self, ranks: Sequence[RankFacts], logs: CannLogs) -> None:
        pids = Counter(rank.pid for rank in ranks)
        self.size = max((rank.size for rank in ranks), default=0)
        # Two hosts may use one number for two processes: which of them wrote into a shared directory nobody knows.
        self.of_pid = {rank.pid: rank.rank for rank in ranks if rank.pid and pids[rank.pid] == 1}
        self._ranks = ranks
        self._members: dict[GroupRank, set[int]] = {}
        for pid, joined in logs.members.items():
            for member in joined:
                self._members.setdefault(member, set()).add(self.of_pid.get(pid, _NO_RANK))

    def of_member(self, member: GroupRank) -> int | None:
        """Returns the global rank of a group's; None where nobody says it, or two do."""
        known = self._members.get(member, set())
        if len(known) == 1:
            (rank,) = known
            return None if rank == _NO_RANK else rank
        return member.rank if not known and 0 < self.size == member.size else None

    def of_device(self, address: str, device: int) -> int | None:
        """Returns the rank on a device of a host; None where the address is unknown, or two hosts have it."""
        hosts = {rank.host for rank in self._ranks if address in rank.addresses}
        all_hosts = {rank.host for rank in self._ranks}
        if not hosts and len(all_hosts) == 1:
            hosts = all_hosts
        found = [rank.rank for rank in self._ranks if rank.host in hosts and rank.device_id == device]
        return found[0] if len(found) == 1 else None


def find_cann(ranks: Sequence[RankFacts], logs: CannLogs) -> list[Finding]:
    """Returns who is to blame by CANN's logs: what HCCL names first, then errors that follow from no other rank's."""
    places = _Places(ranks, logs)
    by_rank = {rank.rank: rank for rank in ranks}
    found = _find_exceptions(places, logs, by_rank) or _find_own_errors(places, logs, by_rank)
    return found or _find_awaited(places, logs, by_rank) or _find_waiting(places, logs, by_rank)


def _evidence(places: _Places, facts: Sequence[CannFact]) -> list[Evidence]:
    """Returns lines of evidence; of one process each code once."""
    first = {(fact.pid, fact.code, fact.kind, fact.device): fact for fact in reversed(facts)}
    chosen = sorted(first.values(), key=lambda fact: fact.wall_time)[:_SHOWN]
    return [Evidence(places.of_pid.get(fact.pid, _NO_RANK), fact.where, say_fact(fact)) for fact in chosen]


def _finding(
    places: _Places, by_rank: Mapping[int, RankFacts], numbers: list[int], text: str, facts: Sequence[CannFact]
) -> Finding:
    step = max((last_step(by_rank[rank]) for rank in numbers if rank in by_rank), default=0)
    return Finding("cann", numbers, step, facts[0].wall_time, text, _evidence(places, facts))


def _find_exceptions(places: _Places, logs: CannLogs, by_rank: Mapping[int, RankFacts]) -> list[Finding]:
    told = [fact for fact in logs.facts if fact.device is not None]
    if not told:
        return []
    first = told[0]
    assert first.device is not None
    address, device = first.device
    rank = places.of_device(address, device)
    same = [fact for fact in told if fact.device == first.device]
    name = f"device {device} of {address}"
    name = f"{name} (its rank is not known)" if rank is None else f"rank {rank} ({name})"
    tellers = sorted({places.of_pid[fact.pid] for fact in same if fact.pid in places.of_pid})
    text = f"HCCL says of {name}: {first.kind}" + (f"; told by {name_ranks(tellers)}" if tellers else "")
    return [_finding(places, by_rank, [] if rank is None else [rank], text, same)]


def _find_own_errors(places: _Places, logs: CannLogs, by_rank: Mapping[int, RankFacts]) -> list[Finding]:
    own = [
        fact for fact in logs.facts if fact.code in CODES and fact.code not in _FOLLOWS and fact.pid in places.of_pid
    ]
    if not own:
        return []
    first = own[0]
    rank = places.of_pid[first.pid]
    text = f"rank {rank} has CANN's error {first.code}: {CODES[first.code]}"
    return [_finding(places, by_rank, [rank], text, [fact for fact in own if fact.pid == first.pid])]


def _find_awaited(places: _Places, logs: CannLogs, by_rank: Mapping[int, RankFacts]) -> list[Finding]:
    """Ranks for which others waited, and which themselves waited for nobody."""
    waits = [fact for fact in logs.facts if fact.remote is not None]
    waiting = {places.of_pid.get(fact.pid) for fact in waits}
    awaited: dict[int, list[CannFact]] = {}
    for fact in waits:
        assert fact.remote is not None
        rank = places.of_member(fact.remote)
        if rank is not None and rank not in waiting:
            awaited.setdefault(rank, []).append(fact)
    if not awaited:
        return []
    numbers = sorted(awaited)
    facts = sorted((fact for each in awaited.values() for fact in each), key=lambda fact: fact.wall_time)
    tellers = sorted({places.of_pid[fact.pid] for fact in facts if fact.pid in places.of_pid})
    text = f"{name_ranks(tellers)} waited in a collective for {name_ranks(numbers)}" if tellers else ""
    return [_finding(places, by_rank, numbers, text or f"a collective waited for {name_ranks(numbers)}", facts)]


def _find_waiting(places: _Places, logs: CannLogs, by_rank: Mapping[int, RankFacts]) -> list[Finding]:
    """Nobody is named: all that have an error are, with what their groups say."""
    facts = [fact for fact in logs.facts if fact.code in CODES and fact.pid in places.of_pid]
    if not facts:
        return []
    numbers = sorted({places.of_pid[fact.pid] for fact in facts})
    codes = ", ".join(sorted({fact.code for fact in facts}))
    text = f"{name_ranks(numbers)}: CANN's error {codes}: {CODES[facts[0].code]}"
    remote = next((fact.remote for fact in facts if fact.remote is not None), None)
    if remote is not None and places.of_member(remote) is None:
        text += f"; it waited for rank {remote.rank} of the group {remote.group} of {remote.size}, "
        text += "whose global rank is not known"
    return [_finding(places, by_rank, numbers, text, facts)]


def add_cann_evidence(findings: Sequence[Finding], cann: Sequence[Finding]) -> list[Finding]:
    """Returns findings with what CANN says of them.

    Where both name a rank, it is one finding. Else HCCL's word goes before one that names all ranks together, or only
    says that ranks wait, and behind others.
    """
    found = list(findings)
    for own in cann:
        same = next((place for place, other in enumerate(found) if set(own.ranks) & set(other.ranks)), None)
        if same is not None and found[same].rule != "together":
            other = found[same]
            found[same] = Finding(
                other.rule,
                other.ranks,
                other.step,
                other.since,
                f"{other.text}; {own.text}",
                [*other.evidence, *own.evidence],
            )
        elif not found or found[0].rule in ("together", "apart", "slow"):
            found = [own, *(other for other in found if other.rule != "together")]
        else:
            found.append(own)
    return found
