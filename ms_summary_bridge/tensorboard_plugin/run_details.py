"""All of one run as plain data for the page; its shape is in `run_table`.

Imports no tensorboard.
"""

from __future__ import annotations

import math
import os
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats.dataset_pipeline import read_pipeline
from ms_summary_bridge.formats.sessions.session import Session
from ms_summary_bridge.states.run_state import RankState
from ms_summary_bridge.tensorboard_plugin.journal_facts import JournalFacts
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun
from ms_summary_bridge.tensorboard_plugin.run_table import list_series, plain, read_session

__all__ = ["describe_run"]

_MOST_CHARTS: Final = 20
_MOST_POINTS: Final = 200  # of one chart
_MOST_METRICS: Final = 2000
_LINEAGE_PARTS: Final = {"train_lineage": "training", "evaluation_lineage": "evaluation", "user_defined_info": "own"}


def describe_run(run: PageRun) -> dict[str, Any]:
    """Returns all that the page shows of one run beside its row and the profiles."""
    main, session, journal = run.main, read_session(run), run.journal
    scalars = main.scalars or journal.scalars
    ranks = run.state.ranks if run.state is not None else ()
    pipeline = next((part.facts.dataset_graph for part in run.parts if part.facts.dataset_graph is not None), None)
    return {
        "directory": run.directory,
        "files": len(run.paths),
        "bytes": sum(_size_of(path) for path in run.paths),
        "events": sum(part.facts.events for part in run.parts),
        "lineage": _describe_lineage(run, session),
        "pipeline": _describe_pipeline(pipeline),
        "nonfinite": _describe_nonfinite(run),
        "metrics": [{"tag": tag, **scalars[tag].plain()} for tag in sorted(scalars)[:_MOST_METRICS]],
        "timeline": _describe_timeline(run),
        "ranks": [_describe_rank(rank) for rank in ranks],
        "heat_tags": sorted(scalars)[:_MOST_METRICS] if len(ranks) > 1 else [],
        "reading": _describe_reading(run, session),
        "journal": _describe_journal(run),
        "fault": run.fault,
    }


def _size_of(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _describe_rank(rank: RankState) -> dict[str, Any]:
    shown = msgspec.structs.asdict(rank)
    for name in ("losses", "loss_tag", "lr"):
        del shown[name]
    return {name: plain(value) for name, value in shown.items()}


def _describe_lineage(run: PageRun, session: Session) -> dict[str, Any]:
    known = {kind for part in run.parts for kind in part.facts.lineage}
    return {
        "parts": [name for kind, name in _LINEAGE_PARTS.items() if kind in known],
        "hparams": sorted((name, plain(value)) for name, value in session.hparams.items()),
        "metrics": sorted((name, plain(value)) for name, value in session.metrics.items()),
        "status": session.status,
        "start_time": session.start_time,
        "end_time": session.end_time,
    }


def _describe_pipeline(event: bytes | None) -> dict[str, Any]:
    if event is None:
        return {"stages": [], "error": ""}
    try:
        return {"stages": msgspec.to_builtins(read_pipeline(event)), "error": ""}
    except InvalidValueError as error:
        return {"stages": [], "error": str(error)}


def _describe_nonfinite(run: PageRun) -> dict[str, Any]:
    series = list_series(run)
    has_ranks = len({rank for rank, _, _, _ in series}) > 1
    affected = sorted(
        (one for one in series if one[3].affected), key=lambda one: (one[3].first_step, one[2], one[1] == "scalar")
    )
    charts = [
        {
            "tag": f"{tag} (rank {rank})" if has_ranks else tag,
            "kind": kind,
            **msgspec.structs.asdict(one),
            "points": _thin(one.points),
        }
        for rank, kind, tag, one in affected[:_MOST_CHARTS]
    ]
    count = [len({(kind, tag) for _, kind, tag, _ in some}) for some in (series, affected)]
    return {"tags": count[0], "affected": count[1], "charts": charts}


def _thin(points: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Returns at most so many points, each the worst of those it stands for."""
    size = math.ceil(len(points) / _MOST_POINTS)
    if size <= 1:
        return points
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[0][0], max(one[1] for one in group), max(one[2] for one in group)) for group in groups]


def _describe_timeline(run: PageRun) -> list[dict[str, Any]]:
    """Returns what happened, by time; what both the callback and the monitor tell, and two ranks, once."""
    found: dict[tuple[str, int, str], dict[str, Any]] = {}

    def add(kind: str, step: int, wall_time: float, text: str, severity: str = "", tag: str = "") -> None:
        if text.startswith("checkpoint saved"):
            kind = "checkpoint"
        what = {"kind": kind, "step": step, "wall_time": wall_time, "text": text, "severity": severity, "tag": tag}
        found.setdefault((kind, step, text), what)

    for part in run.parts:
        for step, wall_time, tag, text in part.facts.milestones:
            add("checkpoint" if tag == "checkpoint" else "milestone", step, wall_time, text, tag=tag)
        session = part.facts.session
        if session.status in ("success", "failure") and session.end_time:
            how = "failed" if session.status == "failure" else "was ended"
            add("end", part.facts.last_step or 0, session.end_time, f"the lineage says that the training {how}")
    for journal in run.journals:
        for kind, step, wall_time, text in journal.notes:
            add(kind, step, wall_time, text)
        for alert in journal.alerts:
            words = str(alert.get("message") or alert.get("rule") or "")
            at, when = alert.get("step"), alert.get("wall_time")
            severity = str(alert.get("severity") or "")
            place = at if isinstance(at, int) else 0, when if isinstance(when, int | float) else 0.0
            add("milestone" if severity == "info" else "alarm", *place, words, severity, str(alert.get("metric") or ""))
    if run.state is not None:
        for step, wall_time, text in run.state.milestones:
            add("milestone", step, wall_time, text)
        for alarm in run.state.alarms:
            kind = "hang" if alarm.rule == "hang" else "alarm"
            add(kind, alarm.step, alarm.wall_time, alarm.message or alarm.rule, alarm.severity, alarm.metric)
    return sorted(found.values(), key=lambda item: (item["wall_time"], item["step"]))


def _describe_reading(run: PageRun, session: Session) -> dict[str, Any]:
    lost: list[str] = []
    damaged: list[Any] = []
    incomplete: list[dict[str, Any]] = []
    problems = [*(run.state.problems if run.state is not None else ()), *run.problems]
    for part in run.parts:
        facts = part.facts
        unread = sorted(facts.unread.items())
        lost += [f"{kind}: {count} not understood: {reason}" for (kind, reason), count in unread if reason]
        damaged += [msgspec.to_builtins(facts.damaged[key]) for key in sorted(facts.damaged)]
        incomplete += [{"file": path, "offset": offset} for path, offset in sorted(facts.incomplete.items())]
        problems += [facts.error] if facts.error else []
    lost += [f"lineage: {text}" for text in session.left_out]
    for journal in run.journals:
        problems += [journal.error] if journal.error else []
        if journal.unread_lines:
            lost.append(f"journal: {journal.unread_lines} lines that cannot be read")
        if dropped := (journal.end or {}).get("dropped"):
            lost.append(f"monitor: {dropped} items left out because they came too fast")
    return {
        "damaged": damaged,
        "damaged_count": sum(part.facts.damaged_count for part in run.parts),
        "incomplete": incomplete,
        "lost": list(dict.fromkeys(lost)),
        "problems": list(dict.fromkeys(problems)),
    }


def _describe_journal(run: PageRun) -> dict[str, Any] | None:
    if not run.journals:
        return None
    journal: JournalFacts = run.journal
    return {
        "directory": journal.directory,
        "alerts": list(reversed(journal.alerts)),
        "alert_counts": dict(journal.alert_counts),
        "warning_counts": dict(journal.warning_counts.most_common(50)),
        "end": "" if journal.end is None else str(journal.end.get("text", "")),
        "stop": journal.stop,
    }
