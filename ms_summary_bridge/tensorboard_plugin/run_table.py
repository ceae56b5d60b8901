"""Runs as plain data for the page: a row for each in the table, and all of one run.

Imports no tensorboard. All answers are strict JSON below `data/plugin/mindspore/`. Times are seconds since the epoch,
spans are seconds, sizes bytes. A number that is not finite is the text `nan`, `inf` or `-inf` where it stands alone,
and null in a list of points. What is not known is null, an empty text, list or object.

`GET runs?cursor=C`: what has changed since the answer that gave the cursor C; everything without one. An idle answer has
no rows.

    cursor      opaque text for the next question
    is_full     whether `rows` are all there are: forget what was known (no cursor, or one of another process)
    rows        rows that are new or have changed, whole; see below
    removed     keys of runs that are gone
    tag_sets    {id: [tag, ...]} that were not sent yet; a row names its set by `tag_set`
    settings    null where nothing changed; else [{name, known, distinct, usual}], those that differ most first: how many
                runs have it, how many values it has among those, the value most have (first seen of several)
    tags        null where nothing changed; else [{tag, runs}] of scalars, those of most runs first
    is_known    whether the first look at the directory has ended
    unread      runs that are not read to their end yet
    left_out    older runs beyond the most that are shown (they have rows with a state, but are not read whole)
    problems    texts: what of the logdir could not be read
    fault       what of ours went wrong; empty for nothing
    source      the logdir
    now         the server's clock
    advice      null; where there is no run: {title, text, examples: [{title, code}]}

A row:

    key         unique and stable
    name        path below the logdir (`.` for itself); `job/summary` is `job`
    group       the name's folder: all before the last slash
    directory   where it is
    formats     of `mindspore`, `tensorboard`, `journal`
    ranks       how many processes trained
    is_read     whether all that is there has been read at least once: before that `state`, `last_step`, `loss.last` and
                alarms are known by the ends of the files, minima, maxima and counts are of what was read so far
    state       `reading` (not looked at yet), `non-finite`, `failed`, `stalled`, `running`, `ended`, `unknown`
    life        the same without regard to the loss, of a non-finite one
    evidence    [text, ...], the strongest first: what the state is known by
    last_step   the highest that was trained
    first_time, last_write, duration_secs
    rate        {unit: number}: `steps/s`, `samples/s`, `tokens/s`
    loss        null or {tag, last, last_step, best, best_step, count, nonfinite, spark: [[step, value], ...]}, at most 64
                points; `best` null where no value was finite
    eval        {name: {value, step, best, best_step}} without the `eval/` of the tag; best is the highest, of a loss or
                an error the lowest
    health      {level, text, alarms, critical, nonfinite, nonfinite_tags, nonfinite_step, damaged, problems: [text]}:
                level `ok`, `warning` or `critical`; `text` says it in a few words, empty if ok; `nonfinite` counts
                scalars' and histograms' points with a value that is not finite, `nonfinite_step` is the first such step;
                `problems` tell what is wrong with files, each with its path
    settings    {name: number, text or truth value}: lineage, hyperparameters, what the journal's header says
    tag_set     see above
    links       {runs: [name, ...], dashboards: [id, ...]}: how TensorBoard calls the run (one for each rank), and which
                of its pages have something of it: `scalars`, `histograms`, `graphs`, `images`, `hparams`, `text`, `mesh`

`GET run?key=K`: 404 where there is none, else

    row, directory, files (count), bytes, events, fault
    lineage     {parts, hparams: [[name, value]], metrics: [[name, value]], status, start_time, end_time}
    pipeline    {stages, error}
    nonfinite   {tags, affected, charts: [{tag, kind, total, affected, nan, pos_inf, neg_inf, first_step, last_step,
                points: [[step, nan, inf]]}]}: kind `scalar` or `histogram`, worst first by step
    metrics     [{tag, count, nonfinite, first_step, last_step, last, min, min_step, max, max_step, mean}]
    timeline    [{kind, step, wall_time, text, severity, tag}] by time; kind `milestone`, `alarm`, `checkpoint`,
                `restart`, `evaluation`, `hang`, `stop`, `end`
    ranks       [{rank, host, state, life, evidence, step, loss, loss_step, rate, rate_unit, memory, last_time}]
    heat_tags   tags that `GET ranks` can draw; empty for a run of one process
    profiles    [{number, name, path, bytes}] of MindSpore's profiler beside the run; `GET profile?key=K&number=N` has one
    reading     {damaged: [{file, start, end, reason}], damaged_count, incomplete: [{file, offset}], lost: [text],
                problems: [text]}
    journal     null or {directory, alerts, alert_counts, warning_counts, end, stop}

`GET series?tag=T&key=K1&key=K2&points=500`: the curves of a tag. {tag, series: [{key, steps, times, values}]}, in the
order of the keys, runs without it left out; each part of a long curve shows its lowest and its highest point.

`GET metric?tag=T`: {tag, runs: {key: {count, nonfinite, last, last_step, min, min_step, max, max_step, mean}}}.

`GET ranks?key=K&tag=T&columns=200`: {tag, ranks: [number], steps: [step], values: [[value for each step] for each rank]};
a step stands for those up to the next one, and shows the value that lies farthest from the median of the ranks.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats.dataset_pipeline import read_pipeline
from ms_summary_bridge.formats.sessions.session import HParam, Session
from ms_summary_bridge.tensorboard_plugin.journal_facts import JournalFacts
from ms_summary_bridge.tensorboard_plugin.run_facts import RunFacts
from ms_summary_bridge.tensorboard_plugin.series_facts import NonFinite

__all__ = ["PageRun", "compare_configs", "describe_row", "describe_run"]

_STALLED_SECS: Final = 120.0
_STALLED_INTERVALS: Final = 20.0
_AFTER_END_SECS: Final = 5.0  # so much later than the last value the record of an end may be, or earlier
_MOST_CHARTS: Final = 20
_MOST_POINTS: Final = 200  # of one chart
_LINEAGE_PARTS: Final = {"train_lineage": "training", "evaluation_lineage": "evaluation", "user_defined_info": "own"}


_NOTHING: Final = JournalFacts("")


class PageRun(msgspec.Struct):
    """One run, and what belongs to it."""

    key: str
    """Unique among all runs."""
    name: str
    directory: str
    format: str
    """`mindspore`, `tensorboard`, or `journal` where there is nothing else."""
    facts: RunFacts = msgspec.field(default_factory=RunFacts)
    journal: JournalFacts | None = None
    files: list[str] = msgspec.field(default_factory=list)
    is_graph: bool = False
    """Whether a graph file is all that it has."""
    bytes: int = 0
    modified: float = 0.0
    """When something was last written to it."""
    problems: list[str] = msgspec.field(default_factory=list)
    is_read: bool = False
    """Whether all that is there has been read at least once."""
    fault: str = ""
    """What of ours went wrong with it."""

    @property
    def journal_facts(self) -> JournalFacts:
        """What its journal tells; nothing where it has none."""
        return self.journal or _NOTHING

    @property
    def last_time(self) -> float:
        """Of what it recorded last."""
        return max(self.facts.last_time, self.journal_facts.last_time)


# ------------------------------------------------------------------ comparison


def describe_row(run: PageRun, now: float) -> dict[str, Any]:
    """Returns the run's line in the comparison; `now` is in seconds since the epoch."""
    facts, journal = run.facts, run.journal_facts
    session = facts.session
    state, why = _find_state(run, session, now)
    first = min(filter(None, (facts.first_time, journal.first_time)), default=0.0)
    return {
        "key": run.key,
        "name": run.name,
        "format": run.format,
        "is_read": run.is_read,
        "state": state,
        "why": why,
        "last_step": max(facts.last_step, journal.last_step),
        "best_loss": _best_loss(run),
        "throughput": _throughput(run),
        "first_time": first,
        "duration_secs": max(0.0, run.last_time - first) if first else 0.0,
        "alerts": sum(journal.alert_counts.values()),
        "damaged": facts.damaged_count,
        "nonfinite": sum(1 for one in facts.histograms.values() if one.affected),
        "config": _config_of(run, session),
    }


def _find_state(run: PageRun, session: Session, now: float) -> tuple[str, str]:
    """Returns `running`, `ended`, `failed`, `stalled` or `unknown`, and what it is known by."""
    end = run.journal_facts.end  # a new session's header takes the end before it away
    if end is not None and end["wall_time"] >= run.facts.last_time - _AFTER_END_SECS:
        reason = str(end.get("reason") or "")
        if reason:
            return "failed", f"the training ended by {reason}"
        return "ended", run.journal_facts.stop or "the journal has its end"
    is_newest = session.end_time >= run.facts.last_time - _AFTER_END_SECS
    if session.status in ("success", "failure") and is_newest and (run.journal is None or end is not None):
        has_failed = session.status == "failure"
        return ("failed" if has_failed else "ended"), "its lineage says so" if has_failed else "its lineage was written"
    if run.is_graph and run.journal is None:  # written once, before the first step
        return "unknown", "a graph file alone does not say whether the training runs"
    newest = max(run.last_time, run.modified)
    if not newest:
        return "unknown", "it has no event yet"
    interval = max(run.facts.interval_secs, run.journal_facts.interval_secs)
    age = max(0.0, now - newest)
    if age > max(_STALLED_SECS, _STALLED_INTERVALS * interval):
        return "stalled", f"no end is recorded, and nothing was written for {_age(age)}"
    return "running", "it was written to a moment ago"


def _age(secs: float) -> str:
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if secs >= 2 * size:
            return f"{secs / size:.0f} {unit}"
    return f"{secs:.0f} seconds"


def _best_loss(run: PageRun) -> dict[str, Any] | None:
    best = run.journal_facts.best
    found = run.facts.best_loss if best is None else ("loss", *best)
    return None if found is None else {"value": found[1], "step": found[2], "tag": found[0]}


def _throughput(run: PageRun) -> dict[str, float]:
    steps = run.facts.steps_per_second
    return run.journal_facts.throughput or ({} if steps is None else {"steps/s": steps})


def _config_of(run: PageRun, session: Session) -> dict[str, HParam]:
    """Returns what the run was trained with: hyperparameters, and what the journal's header says of the program."""
    config = dict(session.hparams)
    header = run.journal_facts.header
    for name, title in (("tags", "tag"), ("versions", "version")):
        found = header.get(name)
        if isinstance(found, dict):
            config.update((f"{title}: {key}", str(value)) for key, value in found.items())
    for name in ("commit", "device", "ranks"):
        if header.get(name):
            config[name] = str(header[name])
    command = header.get("command")
    if isinstance(command, list):
        config["command"] = " ".join(map(str, command))
    return config


def compare_configs(configs: list[dict[str, HParam]]) -> dict[str, Any]:
    """Returns the names by which runs differ, each with its most usual value, and how many names are equal in all.

    A name that a run does not have is a difference from the runs with which it has others in common: one without
    lineage is not another by all of lineage.
    """
    holders: dict[str, list[dict[str, HParam]]] = {}
    for config in configs:
        for name in config:
            holders.setdefault(name, []).append(config)
    different = {}
    for name, having in sorted(holders.items()):
        related = {other for config in having for other in config}
        peers = [config.get(name) for config in configs if not related.isdisjoint(config)]
        counts = Counter(map(repr, peers))
        if len(counts) > 1:
            usual = counts.most_common(1)[0][0]
            different[name] = next(value for value in peers if repr(value) == usual)
    return {"different": different, "equal": len(holders) - len(different)}


# ------------------------------------------------------------------ one run


def describe_run(run: PageRun, now: float) -> dict[str, Any]:
    """Returns all that the page shows of one run; `now` is in seconds since the epoch."""
    facts, session = run.facts, run.facts.session
    milestones = sorted([*facts.milestones, *run.journal_facts.milestones], key=lambda item: item[:2])
    return {
        "row": describe_row(run, now),
        "directory": run.directory,
        "files": len(run.files),
        "bytes": run.bytes,
        "events": facts.events,
        "lineage": _describe_lineage(facts, session),
        "pipeline": _describe_pipeline(facts),
        "nonfinite": _describe_nonfinite(facts.histograms),
        "milestones": [{"step": m[0], "wall_time": m[1], "tag": m[2], "text": m[3]} for m in milestones],
        "reading": _describe_reading(run, session),
        "journal": None if run.journal is None else _describe_journal(run.journal),
        "fault": run.fault,
    }


def _describe_lineage(facts: RunFacts, session: Session) -> dict[str, Any]:
    return {
        "parts": [name for kind, name in _LINEAGE_PARTS.items() if kind in facts.lineage],
        "hparams": sorted((name, _plain(value)) for name, value in session.hparams.items()),
        "metrics": sorted((name, _plain(value)) for name, value in session.metrics.items()),
        "status": session.status,
        "start_time": session.start_time,
        "end_time": session.end_time,
    }


def _plain(value: HParam) -> HParam:
    """Strict JSON has no NaN and no infinities."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _describe_pipeline(facts: RunFacts) -> dict[str, Any]:
    if facts.dataset_graph is None:
        return {"stages": [], "error": ""}
    try:
        return {"stages": msgspec.to_builtins(read_pipeline(facts.dataset_graph)), "error": ""}
    except InvalidValueError as error:
        return {"stages": [], "error": str(error)}


def _describe_nonfinite(histograms: dict[str, NonFinite]) -> dict[str, Any]:
    affected = sorted(
        (one for one in histograms.items() if one[1].affected), key=lambda one: (one[1].first_step, one[0])
    )
    charts = [
        {"tag": tag, **msgspec.structs.asdict(one), "points": _thin(one.points)} for tag, one in affected[:_MOST_CHARTS]
    ]
    return {"tags": len(histograms), "affected": len(affected), "charts": charts}


def _thin(points: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Returns at most so many points, each the worst of those it stands for."""
    size = math.ceil(len(points) / _MOST_POINTS)
    if size <= 1:
        return points
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[0][0], max(one[1] for one in group), max(one[2] for one in group)) for group in groups]


def _describe_reading(run: PageRun, session: Session) -> dict[str, Any]:
    facts, journal = run.facts, run.journal_facts
    lost = [f"{kind}: {count} not understood: {reason}" for (kind, reason), count in sorted(facts.unread.items())]
    lost += [f"lineage: {text}" for text in session.left_out]
    problems = [*run.problems, *filter(None, [facts.error, journal.error])]
    if journal.unread_lines:
        lost.append(f"journal: {journal.unread_lines} lines that cannot be read")
    if dropped := (journal.end or {}).get("dropped"):
        lost.append(f"monitor: {dropped} items left out because they came too fast")
    return {
        "damaged": [msgspec.to_builtins(facts.damaged[key]) for key in sorted(facts.damaged)],
        "damaged_count": facts.damaged_count,
        "incomplete": [{"file": path, "offset": offset} for path, offset in sorted(facts.incomplete.items())],
        "lost": lost,
        "problems": problems,
    }


def _describe_journal(journal: JournalFacts) -> dict[str, Any]:
    return {
        "directory": journal.directory,
        "alerts": list(reversed(journal.alerts)),
        "alert_counts": dict(journal.alert_counts),
        "warning_counts": dict(journal.warning_counts.most_common(50)),
        "end": "" if journal.end is None else str(journal.end.get("text", "")),
        "stop": journal.stop,
    }
