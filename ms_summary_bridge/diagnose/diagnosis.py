"""`diagnose`: reads what all ranks of a training left, groups them by what they do, and names the odd ones."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from ms_summary_bridge.diagnose.cann_log import CannLogs, find_log_files, log_places, read_logs
from ms_summary_bridge.diagnose.cann_rules import add_cann_evidence, find_cann
from ms_summary_bridge.diagnose.facts import RankFacts, read_rank
from ms_summary_bridge.diagnose.finding import Finding, Group, list_ranks, name_ranks
from ms_summary_bridge.diagnose.rank_directories import find_rank_directories
from ms_summary_bridge.diagnose.rules import find_findings, find_groups
from ms_summary_bridge.errors import counted
from ms_summary_bridge.files.arguments import check_path
from ms_summary_bridge.files.event_file import Path

__all__ = ["Diagnosis", "diagnose_facts", "diagnose_ranks", "render_diagnosis"]

_SESSION_SECS: Final = 600.0  # how far apart the ranks of one training begin
_NAMED: Final = 3


class Diagnosis(msgspec.Struct):
    """One training."""

    source: str
    ranks: int = 0
    groups: list[Group] = []
    findings: list[Finding] = []
    """Who is to blame, first bad first; empty for nobody."""
    missing: list[int] = []
    """Ranks that left nothing of this session."""
    problems: list[str] = []
    others: list[str] = []
    """Directories of the other trainings of which this is the newest, the newest of them first."""


def diagnose_ranks(
    source: Path,
    *,
    now: float | None = None,
    since: float | None = None,
    tail_bytes: int | None = None,
    cann_logs: Sequence[str] | None = None,
) -> Diagnosis:
    """Reads journals and watchdogs' files of all ranks and CANN's logs, and says who is to blame.

    Args:
        source: Directory of one training, with `rank_<n>` at any depth; of several the newest is taken.
        now: Seconds since the epoch; the present moment by default.
        since: Seconds since the epoch; what is older is of an earlier session.
        tail_bytes: Read no more than this of the end of each journal.
        cann_logs: Directories with CANN's logs; by default those below the source, and where this user's are.

    Raises:
        LogdirError: The source cannot be read.
        NoEventsError: No rank left anything there.
    """
    source = check_path("source", source, is_local=True)
    found = find_rank_directories(source)
    facts = [read_rank(rank, path, since=since, tail_bytes=tail_bytes) for rank, path in found.ranks]
    began = min((rank.began for rank in facts if rank.began is not None), default=since or 0.0)
    logs = _read_cann_logs(source, cann_logs, facts, began - _SESSION_SECS)
    diagnosis = diagnose_facts(found.source, facts, time.time() if now is None else now, logs)
    diagnosis.others = found.others
    return diagnosis


def _read_cann_logs(source: str, places: Sequence[str] | None, facts: list[RankFacts], since: float) -> CannLogs:
    problems: list[str] = []
    pids = frozenset(rank.pid for rank in facts if rank.pid)
    if places is None:
        files = find_log_files([source], problems, pids=pids, since=since)
        # A directory of this host's has logs of this host's processes, whatever numbers those of others have.
        here = frozenset(rank.pid for rank in facts if rank.pid and rank.host in ("", platform.node()))
        files += find_log_files(log_places(os.environ), problems, pids=here, since=since)
    else:
        missing = [place for place in places if not os.path.isdir(place)]
        problems += [f"{place}: not a directory that can be read: give the one of CANN's logs" for place in missing]
        files = find_log_files(places, problems, pids=pids, since=since)
    return read_logs(dict.fromkeys(files), problems, since=since)


def diagnose_facts(source: str, facts: list[RankFacts], now: float, logs: CannLogs | None = None) -> Diagnosis:
    """Says who is to blame, from what the ranks left, and CANN."""
    logs = CannLogs() if logs is None else logs
    begun = max((rank.began for rank in facts if rank.began is not None), default=0.0)
    there = [rank for rank in facts if _is_of_session(rank, begun)]
    if not any(rank.hung is not None and rank.hung.is_told for rank in there):
        for rank in there:  # of those that only stand still none hangs
            rank.hung = None
    size = max([rank.size for rank in there] + [0])
    present = {rank.rank for rank in there}
    # Where hosts have disks of their own, the files of one host alone may be here: no rank is blamed for that.
    missing = sorted({*range(size), *(rank.rank for rank in facts)} - present)
    return Diagnosis(
        source=source,
        ranks=len(there),
        groups=find_groups(there),
        findings=add_cann_evidence(find_findings(there, missing, now), find_cann(there, logs)),
        missing=missing,
        problems=[problem for rank in facts for problem in rank.problems] + logs.problems,
    )


def _is_of_session(rank: RankFacts, begun: float) -> bool:
    told = [rank.hung.told if rank.hung else 0.0, rank.gone.wall_time if rank.gone else 0.0, rank.newest]
    return max(told) > begun - _SESSION_SECS


def render_diagnosis(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields lines for people."""
    yield f"{counted(diagnosis.ranks, 'rank')} of {diagnosis.source}"
    if diagnosis.others:
        named = ", ".join(diagnosis.others[:_NAMED]) + (", ..." if len(diagnosis.others) > _NAMED else "")
        count = len(diagnosis.others) + 1
        yield f"  the newest of {count} trainings; for another: ms-summary-bridge diagnose DIR ({named})"
    for group in diagnosis.groups:
        steps = str(group.first_step) + (f" to {group.last_step}" if group.last_step != group.first_step else "")
        yield f"  {name_ranks(group.ranks)}: {group.doing} (step {steps})"
    if diagnosis.missing:
        yield f"  missing: {list_ranks(diagnosis.missing)}"
    for number, finding in enumerate(diagnosis.findings, 1):
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(finding.since))
        yield f"{number}. {finding.rule}: {finding.text} (since {moment})"
        for evidence in finding.evidence:
            yield f"     {evidence.where}  {evidence.text}"
    if not diagnosis.findings:
        yield "no rank is to blame"
    for problem in diagnosis.problems:
        yield f"not read: {problem}"
