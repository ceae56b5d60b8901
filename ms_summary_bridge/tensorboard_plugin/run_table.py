"""Runs as plain data for the page: a row for each in the table, and all of one run.

Imports no tensorboard. All answers are strict JSON below `data/plugin/mindspore/`. Times are seconds since the epoch,
spans are seconds, sizes bytes. A number that is not finite is the text `nan`, `inf` or `-inf` where it stands alone,
and null in a list of points. What is not known is null, an empty text, list or object.

`GET runs?cursor=C`: what has changed since the answer that gave the cursor C; everything without one. An idle answer
has no rows.

    cursor      opaque text for the next question
    is_full     whether `rows` are all there are: forget what was known (no cursor, or one of another process)
    rows        rows that are new or have changed, whole; see below
    removed     keys of runs that are gone
    tag_sets    {id: [tag, ...]} that were not sent yet, of scalars first, then of all else; a row names its set by
                `tag_set`
    settings    null where nothing changed; else [{name, known, distinct, usual}], those that differ most first: how
                many runs have it, how many values it has among those, the value most have (first seen of several)
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
    last_step   the highest that was trained, by the newest of several trainings
    first_time, last_write, duration_secs
    rate        {unit: number}: `steps/s`, `samples/s`, `tokens/s`
    loss        null or {tag, last, last_step, best, best_step, count, nonfinite, spark: [[step, value], ...]}, at most
                64 points; `best` null where no value was finite
    eval        {name: {value, step, best, best_step}} without the `eval/` of the tag; best is the highest, of a loss or
                an error the lowest
    health      {level, text, alarms, critical, nonfinite, nonfinite_tags, nonfinite_step, damaged, problems: [text]}:
                level `ok`, `warning` or `critical`; `text` says it in a few words, empty if ok; `nonfinite` counts
                scalars' and histograms' points with a value that is not finite, `nonfinite_step` is the first such
                step; `problems` tell what is wrong with files, each with its path
    settings    {name: number, text or truth value}: lineage, hyperparameters, what the journal's header says
    tag_set     see above
    links       {runs: [name, ...], dashboards: [id, ...]}: how TensorBoard calls the run (one for each rank), and which
                of its pages have something of it: `scalars`, `histograms`, `graphs`, `images`, `hparams`, `text`,
                `mesh`

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
    profiles    [{number, name, directory, path, bytes}] of MindSpore's profiler beside the run; `path` is that of its
                trace, empty for none, which `GET profile?key=K&number=N` has
    aggregate   null or what `aggregate` found of the ranks: {path, tags, missing, ranks: [{rank, values, last_step,
                gaps, last_share, first_bad: null or {rank, tag, step, wall_time, value}}]}
    reading     {damaged: [{file, start, end, reason}], damaged_count, incomplete: [{file, offset}], lost: [text],
                problems: [text]}
    journal     null or {directory, alerts, alert_counts, warning_counts, end, stop}

`GET series?tag=T&key=K1&key=K2&points=500`: the curves of a tag. {tag, series: [{key, steps, times, values}]}, in the
order of the keys, runs without it left out; each part of a long curve shows its lowest and its highest point.

`GET times?key=K&number=N`: where the time goes by a profile, as `inspect` has it: {directory, run, rank, steps, parts:
[{name, mean_us, share}], operators: [{type, core, count, total_us, share}], source, problems}.

`GET changes?a=K1&b=K2`: what `diff --json` says of two runs, and in its words: {same, a, b, changes: [{section, name,
a, b}], loss, problems, texts: [[a, b] for each change, null for nothing], loss_text}.

`GET metric?tag=T`: {tag, runs: {key: {count, nonfinite, last, last_step, min, min_step, max, max_step, mean}}}.

`GET ranks?key=K&tag=T&columns=200`: {tag, ranks: [number], steps: [step], values: [[value for each step] for each
rank]}; a step stands for those up to the next one, and shows the value that lies farthest from the median of the ranks.
Null is a rank without a value there; one that is not finite is its text. With `&from=aggregate` the lines are `max`,
`median`, `mean`, `min` and `std` over the ranks, as `aggregate` wrote them: each at the step where ranks are farthest
apart.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from ms_summary_bridge.formats.sessions.session import EVAL, HParam, Session
from ms_summary_bridge.states.facts import likeliest, role_of
from ms_summary_bridge.states.run_state import RankState
from ms_summary_bridge.tensorboard_plugin.page_run import PageRun
from ms_summary_bridge.tensorboard_plugin.run_facts import RunFacts
from ms_summary_bridge.tensorboard_plugin.series_facts import NonFinite, ScalarFacts, Sparkline

__all__ = ["describe_row", "list_series", "plain", "read_session", "summarize_settings"]

_LOWER_IS_BETTER: Final = ("loss", "error", "err", "perplexity", "ppl", "mae", "mse", "rmse", "wer", "cer")
_MOST_PROBLEMS: Final = 20


# ------------------------------------------------------------------ a row


def describe_row(run: PageRun) -> dict[str, Any]:
    """Returns the run's row, but for the key `tag_set`, in whose place are its `tags` of scalars and `other_tags`."""
    state, main = run.state, run.main
    name, life, evidence = _describe_state(run)
    session = read_session(run)
    known = None if state is None else state.step
    steps = [part.facts.last_step for part in run.parts] if known is None else [known]
    first, last = run.first_time, run.last_time
    formats = {part.run.format for part in run.parts} | ({"journal"} if run.journals else set())
    return {
        "key": run.key,
        "name": run.name,
        "group": run.name.rpartition("/")[0],
        "directory": run.directory,
        "formats": sorted(formats),
        "ranks": max(len(state.ranks) if state is not None else 0, 1),
        "is_read": run.is_read,
        "state": name,
        "life": life,
        "evidence": evidence,
        "last_step": max((step for step in steps if step is not None), default=None),
        "first_time": first,
        "last_write": last,
        "duration_secs": max(0.0, last - first) if first else 0.0,
        "rate": _rate(run),
        "loss": _describe_loss(run, main),
        "eval": _describe_evaluation(run, main, session),
        "health": _describe_health(run),
        "settings": _settings_of(run, session),
        "tags": sorted({*main.scalars, *(run.journal.scalars if not main.scalars else ())}),
        "other_tags": sorted({tag for part in run.parts for tag in part.facts.other_tags} - {*main.scalars}),
        "links": {
            "runs": [part.run.name for part in run.parts],
            "dashboards": sorted({kind for part in run.parts for kind in part.facts.kinds}),
        },
    }


def _describe_state(run: PageRun) -> tuple[str, str, list[str]]:
    if run.state is not None:
        return run.state.state, run.state.life, list(run.state.evidence)
    if not run.is_seen:
        return "reading", "reading", ["it has not been looked at yet"]
    if any(part.run.graph_files for part in run.parts):  # written once, before the first step
        return "unknown", "unknown", ["a graph file alone does not say whether the training runs"]
    return "unknown", "unknown", ["no scalar is there yet to tell it by"]


def _rate(run: PageRun) -> dict[str, float]:
    main = run.state.main if run.state is not None else None
    known = {main.rate_unit: main.rate} if main is not None and main.rate is not None else {}
    return run.journal.throughput or {unit: rate for unit, rate in known.items() if math.isfinite(rate)}


def _describe_loss(run: PageRun, main: RunFacts) -> dict[str, Any] | None:
    state: RankState | None = run.state.main if run.state is not None else None
    tag, facts, sparkline = _find_loss(run, main, state)
    if facts is None and (state is None or state.loss is None):
        return None
    last, last_step = (facts.last, facts.last_step) if facts is not None else (math.nan, 0)
    if state is not None and state.loss is not None and tag in ("", state.loss_tag):  # it may be ahead of the reading
        tag, last, last_step = state.loss_tag, state.loss, state.loss_step or 0
    has_best = facts is not None and math.isfinite(facts.min)
    return {
        "tag": tag,
        "last": plain(last),
        "last_step": last_step,
        "best": facts.min if facts is not None and has_best else None,
        "best_step": facts.min_step if facts is not None and has_best else None,
        "count": facts.count if facts is not None else 0,
        "nonfinite": facts.nonfinite.affected if facts is not None else 0,
        "spark": sparkline.plain() if sparkline is not None else [],
    }


def _find_loss(
    run: PageRun, main: RunFacts, state: RankState | None
) -> tuple[str, ScalarFacts | None, Sparkline | None]:
    """Returns the loss by whose newest value the state was judged, else the likeliest."""
    for facts in (main, run.journal):
        if state is not None and state.loss_tag in facts.sparklines:
            return state.loss_tag, facts.scalars[state.loss_tag], facts.sparklines[state.loss_tag]
    for facts in (main, run.journal):
        if facts.sparklines:
            tag = min(facts.sparklines, key=lambda one: (likeliest(one), one))
            return tag, facts.scalars[tag], facts.sparklines[tag]
    return "", None, None


def _describe_evaluation(run: PageRun, main: RunFacts, session: Session) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, value in session.metrics.items():
        if name.startswith(EVAL):
            found[name.removeprefix(EVAL)] = {"value": plain(value), "step": None, "best": None, "best_step": None}
    for name, (value, step) in run.journal.evaluations.items():
        found[name.removeprefix(EVAL)] = {"value": plain(value), "step": step, "best": None, "best_step": None}
    for tag, facts in main.scalars.items():
        if tag.startswith(EVAL) and facts.count:
            name = tag.removeprefix(EVAL)
            is_low = any(part in _LOWER_IS_BETTER for part in name.lower().replace("/", "_").split("_"))
            best, step = (facts.min, facts.min_step) if is_low else (facts.max, facts.max_step)
            found[name] = {
                "value": plain(facts.last),
                "step": facts.last_step,
                "best": best if math.isfinite(best) else None,
                "best_step": step if math.isfinite(best) else None,
            }
    return found


def _describe_health(run: PageRun) -> dict[str, Any]:
    state = run.state.state if run.state is not None else "unknown"
    listed = run.state.alarms if run.state is not None else ()
    counts = run.journal.alarm_counts
    alarms = max(len(listed), sum(counts.values()))
    critical = max(sum(alarm.severity == "critical" for alarm in listed), counts["critical"])
    bad = _nonfinite_series(run)
    is_loss_bad = state == "non-finite" or any(role_of(tag) == "loss" for tag, _ in bad)
    damaged = sum(part.facts.damaged_count for part in run.parts)
    problems = [*(run.state.problems if run.state is not None else ()), *run.problems]
    problems += [error for error in (*(part.facts.error for part in run.parts), run.journal.error) if error]
    nonfinite = sum(affected for _, (affected, _) in bad)
    words = [run.state.evidence[0]] if run.state is not None and state == "non-finite" else []
    if nonfinite and not words:
        words.append(f"{_count(nonfinite, 'point')} of {_count(len(bad), 'tag')} not finite")
    words += [_count(number, name) for number, name in ((alarms, "alarm"), (damaged, "damaged place")) if number]
    if problems and not damaged:
        words.append(problems[0] if len(problems) == 1 else _count(len(problems), "problem"))
    return {
        "level": "critical" if critical or is_loss_bad else "warning" if words else "ok",
        "text": ", ".join(words),
        "alarms": alarms,
        "critical": critical,
        "nonfinite": nonfinite,
        "nonfinite_tags": len(bad),
        "nonfinite_step": min((step for _, (_, step) in bad), default=None),
        "damaged": damaged,
        "problems": list(dict.fromkeys(problems))[:_MOST_PROBLEMS],
    }


def _count(number: int, name: str) -> str:
    return f"{number} {name}" + ("s" if number != 1 else "")


def list_series(run: PageRun) -> list[tuple[int, str, str, NonFinite]]:
    """Returns `(rank, kind, tag, what was not finite)` of the series of all ranks; journals' where no file has scalars.

    The kind is `scalar` or `histogram`.
    """
    found: list[tuple[int, str, str, NonFinite]] = []
    for part in run.parts:
        rank = part.run.rank or 0
        found += [(rank, "histogram", tag, one) for tag, one in part.facts.histograms.items()]
        found += [(rank, "scalar", tag, one.nonfinite) for tag, one in part.facts.scalars.items()]
    if not any(kind == "scalar" for _, kind, _, _ in found):
        for journal in run.journals:
            named = journal.header.get("rank")
            found += [
                (named if isinstance(named, int) else 0, "scalar", tag, one.nonfinite)
                for tag, one in journal.scalars.items()
            ]
    return found


def _nonfinite_series(run: PageRun) -> list[tuple[str, tuple[int, int]]]:
    """Returns the tags with points that are not finite: how many, and the first step."""
    found: dict[str, tuple[int, int]] = {}
    for _, _, tag, counts in list_series(run):
        if counts.affected:
            affected, step = found.get(tag, (0, counts.first_step))
            found[tag] = affected + counts.affected, min(step, counts.first_step)
    return sorted(found.items())


# ------------------------------------------------------------------ settings


def read_session(run: PageRun) -> Session:
    """Returns what lineage or hyperparameters say of a run; of its ranks, what the first one that says it."""
    for part in run.parts:
        session = part.facts.session
        if not session.is_empty:
            return session
    return Session()


def _settings_of(run: PageRun, session: Session) -> dict[str, HParam]:
    """Returns what the run was trained with: hyperparameters, and what the journal's header says of the program."""
    settings = {name: plain(value) for name, value in session.hparams.items()}
    header = run.journal.header
    for name, title in (("tags", "tag"), ("versions", "version")):
        found = header.get(name)
        if isinstance(found, dict):
            settings.update((f"{title}: {key}", str(value)) for key, value in found.items())
    for name in ("commit", "device", "ranks"):
        if header.get(name):
            settings[name] = str(header[name])
    command = header.get("command")
    if isinstance(command, list):
        settings["command"] = " ".join(map(str, command))
    return settings


def summarize_settings(runs: Iterable[dict[str, HParam]]) -> list[dict[str, Any]]:
    """Returns the names of the settings of some runs, those that differ most first.

    A setting differs where two runs that have it have two values; one that a run does not have, it does not tell.
    """
    counts: dict[str, Counter[tuple[bool, HParam]]] = {}
    for settings in runs:
        for name, value in settings.items():
            counts.setdefault(name, Counter())[isinstance(value, bool), value] += 1
    found = [
        {"name": name, "known": values.total(), "distinct": len(values), "usual": values.most_common(1)[0][0][1]}
        for name, values in counts.items()
    ]
    return sorted(found, key=lambda one: (-one["distinct"], -one["known"], one["name"]))


def plain(value: Any) -> Any:
    """Returns a value for strict JSON, which has no NaN and no infinities."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
