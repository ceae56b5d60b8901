"""What one process knows of an incident, and what all of them together say."""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ms_summary_bridge import _version
from ms_summary_bridge.diagnose.cann_log import read_process, say_fact
from ms_summary_bridge.monitor.alarms.actions.message import STEP_METRICS
from ms_summary_bridge.monitor.model.alert import Alert

__all__ = [
    "LOST",
    "RECOVERED",
    "Report",
    "incident_key",
    "make_report",
    "merge_reports",
    "reaches_all_ranks",
    "say_cann_log",
    "stack_now",
]

LOST: Final = "lost"
"""The incident of ranks that hang or die: the one follows from the other."""
RECOVERED: Final = "recovered"
_KEYS: Final = {"critical": LOST, "warning": "near", "info": RECOVERED}
_STACK_LINES: Final = 12
_PACKAGE: Final = os.path.join(os.path.dirname(_version.__file__), "")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm of one rank, with what helps to find its reason.

    Attributes:
        rank: Global rank.
        host: Name of its host.
        alert: The alarm, as `Alert.plain` has it.
        phase: What the rank was doing, one of `training.phases.PHASES`; empty where nobody knows.
        stack: Of the thread that trains, innermost frame first, in faulthandler's words.
        checkpoint: Step and path of the last checkpoint from before it; None for none that is known.
        stops: Whether the alarm ends the training.
    """

    rank: int
    host: str
    alert: dict[str, Any]
    phase: str = ""
    stack: list[str] = []
    checkpoint: tuple[int, str] | None = None
    stops: bool = False


def make_report(
    alert: Alert,
    host: str,
    *,
    phase: str = "",
    stack: Sequence[str] = (),
    checkpoint: tuple[int, str] | None = None,
    stops: bool = False,
) -> Report:
    """Returns the report of an alarm that was raised in, or for, this rank."""
    phase = phase or str(alert.fields.get("phase", ""))
    saved = alert.fields.get("checkpoint")
    if checkpoint is None and isinstance(saved, dict):
        checkpoint = saved["step"], saved["path"]
    frames = [line.strip() for line in stack][:_STACK_LINES]
    return Report(
        rank=alert.rank,
        host=host,
        alert=alert.plain(),
        phase=phase,
        stack=frames,
        checkpoint=checkpoint,
        stops=stops,
    )


def stack_now(thread: int) -> list[str]:
    """Returns where a thread of this process is, by its `threading.get_ident()`: innermost frame first.

    Frames of this package, and what they call, are left out.
    """
    frame = sys._current_frames().get(thread)
    if frame is None:
        return []
    stack = traceback.extract_stack(frame)
    own = next((place for place, each in enumerate(stack) if each.filename.startswith(_PACKAGE)), len(stack))
    frames = reversed(stack[:own])
    return [f'File "{each.filename}", line {each.lineno} in {each.name}' for each in frames]


def say_cann_log(pid: int, since: float) -> list[str]:
    """Returns what CANN's logs say that is wrong in a process of this host since a moment, with file and line."""
    return [f"{say_fact(fact)} ({fact.where})" for fact in read_process(pid, since, os.environ)]


def incident_key(alert: Alert) -> str:
    """Returns what alarms of one incident have in common: the rule, and the metric where each is a matter of its own.

    Hangs and deaths are one, and so is whatever is not finite: one follows from the other within seconds.
    """
    if alert.rule in ("hang", "death"):
        return _KEYS[alert.severity]
    name = alert.rule if alert.rule == "nonfinite" or not alert.metric else f"{alert.rule}-{alert.metric}"
    return re.sub(r"[^\w-]", "_", name)[:100]


def reaches_all_ranks(alert: Alert) -> bool:
    """Whether rank 0 sees the same by itself: a rank that hangs stops all, and a bad gradient is reduced over all."""
    return alert.rule == "hang" or alert.metric in STEP_METRICS


def merge_reports(
    reports: Sequence[Report], *, doing: Sequence[str] = (), blamed: Sequence[int] = (), left_out: int = 0
) -> Alert:
    """Returns one alarm for all reports of an incident: that of the rank that was bad first, with what all say.

    Args:
        reports: One at least.
        doing: Lines about what groups of ranks do.
        blamed: Ranks that `diagnose` blames, first bad first.
        left_out: Messages that a send limit has left out since the last one.
    """
    ordered = sorted(reports, key=_badness)
    lost = [rank for report in ordered for rank in report.alert["fields"].get("lost_ranks", ())]
    first_rank = next(iter([*blamed, *lost, ordered[0].rank]))
    first = next((report for report in ordered if report.rank == first_rank), ordered[0])
    ranks = sorted({report.rank for report in reports})
    hosts: dict[str, list[int]] = {}
    for report in sorted(reports, key=lambda report: report.rank):
        if report.rank not in (known := hosts.setdefault(report.host, [])):
            known.append(report.rank)
    shown = next((report for report in [first, *ordered] if report.stack), first)
    saved = [report.checkpoint for report in reports if report.checkpoint is not None]
    # What one rank has, others may lack: a checkpoint of all is as old as the oldest of the last ones.
    checkpoint = first.checkpoint if len(ranks) == 1 else min(saved, default=None)
    alert = Alert.restore(first.alert)
    incident = {
        "ranks": ranks,
        "hosts": hosts,
        "first_rank": first_rank,
        "first_host": next((host for host, members in hosts.items() if first_rank in members), ""),
        "phase": first.phase,
        "stack_rank": shown.rank,
        "stack": shown.stack,
        "checkpoint": None if checkpoint is None else {"step": checkpoint[0], "path": checkpoint[1]},
        "doing": list(doing),
        "left_out": left_out,
    }
    return msgspec.structs.replace(alert, fields={**alert.fields, "incident": incident})


def _badness(report: Report) -> tuple[Any, ...]:
    """Orders reports by who was bad first: a death of its own, the step, a number of one rank alone, the time."""
    alert = report.alert
    is_lost = alert["rule"] in ("hang", "death")
    age = alert["value"] if alert["rule"] == "hang" and isinstance(alert["value"], (int, float)) else 0.0
    died = alert["rule"] == "death" and not alert["fields"].get("lost_ranks")
    step = alert["step"] if alert["since_step"] is None else alert["since_step"]
    is_local = alert["metric"].startswith("local_")
    return (not died, 0 if is_lost else step, not is_local, alert["wall_time"] - age, report.rank)
