"""Pairs: which runs are compared, and which side of a pair was converted from the other.

What a conversion takes of a source, and what it calls it, is asked of the conversion itself.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from ms_summary_bridge.convert.state import RunState, State, load_state
from ms_summary_bridge.convert.task import ConvertOptions, RunTask, make_tasks, relative_path
from ms_summary_bridge.convert.verify.report import VerifyReport
from ms_summary_bridge.errors import BridgeError, NoEventsError, UsageError
from ms_summary_bridge.files.event_file import is_url
from ms_summary_bridge.files.file_names import MINDSPORE, TENSORBOARD
from ms_summary_bridge.runs.log_files import CONVERT, LIVE, SOURCE
from ms_summary_bridge.runs.logdir import Logdir, Run, discover
from ms_summary_bridge.runs.msprobe import MSPROBE

__all__ = ["Pair", "pair_runs"]

_FORMATS = {"tensorboard": TENSORBOARD, "mindinsight": MINDSPORE}


class Pair(msgspec.Struct, frozen=True):
    """Two runs to compare."""

    run_a: Run
    run_b: Run
    task: RunTask | None = None
    """How one of them was converted from the other; None for two logs that are only compared."""
    is_swapped: bool = False
    """A was converted from B."""
    known: tuple[RunState | None, RunState | None] = (None, None)
    """What the states say of each side as an output."""


class _Side:
    """One side: its runs, and the state that speaks of them."""

    def __init__(self, path: str, found: Logdir) -> None:
        self.path = path
        self.found = found
        self.runs = [*found.runs]
        self.state, self.home = _find_state(path)
        places = {os.path.realpath(os.path.join(self.home, name)): run for name, run in self.state.runs.items()}
        self._known = {} if is_url(path) else places
        self.format = _FORMATS.get(self.state.to, "")
        """Format of the outputs here; empty where nothing was converted."""
        if not self.format:
            formats = {run.format for run in self.runs if run.role == CONVERT}
            if len(formats) == 1 and all(run.role != SOURCE for run in self.runs):
                self.format = formats.pop()

    def known(self, run: Run) -> RunState | None:
        """Returns what the state says of a run as an output."""
        if run.format != _FORMATS.get(self.state.to) or run.role == LIVE:
            return None
        known = self._known.get(os.path.realpath(run.directory))
        names = set() if known is None else {output.name for output in known.outputs}
        is_made = run.role == CONVERT or any(os.path.basename(file.path) in names for file in run.files)
        return known if is_made else None

    def root_of(self, source: _Side) -> str | None:
        """Returns what was converted into this side, if another side lies in it."""
        if not self.state.source or is_url(self.state.source) or is_url(source.path):
            return None
        home, path = self.state.source, os.path.abspath(source.path)
        try:
            if os.path.realpath(home) == os.path.realpath(path):
                return source.path
            return home if os.path.commonpath([home, path]) == home else None
        except ValueError:  # on another drive; or what a damaged state holds is no path
            return None

    def likelihood(self, source: _Side) -> int:
        """Returns how much speaks for it that this side was converted from another; 0 where it cannot be."""
        if not self.format or all(run.format == self.format for run in source.runs):
            return 0
        if self.root_of(source) is not None:
            return 3
        files = {relative_path(file.path, source.path) for run in source.runs for file in run.sources}
        if any(files & run.files.keys() for run in self.state.runs.values()):
            return 2
        # Of another source it may be a copy, but not where there is something of this side's own format to compare.
        is_other = bool(self.state.source) and any(run.format == self.format for run in source.runs)
        return 0 if is_other else 1

    @property
    def options(self) -> ConvertOptions:
        """The options that the outputs here were made with."""
        options = self.state.options
        return ConvertOptions(
            on_restart="latest" if options.get("on_restart") == "latest" else "mark",
            tags=options.get("tags", ""),
            keep_archive=options.get("archive") != "false",
        )


def _find_state(path: str) -> tuple[State, str]:
    """Returns the state that speaks of a path, from its own directory or one above, and where it lies."""
    if not is_url(path):
        place = os.path.abspath(path)
        while True:
            with suppress(BridgeError):
                state = load_state(place)
                if state.to:
                    return state, place
            if place == (place := os.path.dirname(place)):
                break
    return State(), path


def pair_runs(report: VerifyReport) -> list[Pair]:
    """Finds the pairs of the two sides of a report, and enters there what is not compared.

    Raises:
        NoEventsError: A side has no event files.
        LogdirError: One cannot be looked at.
        UsageError: A side has tables of msprobe.
    """
    a, b = report.a, report.b
    found_a = discover(a)
    is_same = not is_url(a) and not is_url(b) and os.path.exists(a) and os.path.exists(b) and os.path.samefile(a, b)
    found_b = found_a if is_same else discover(b)
    for found in (found_a, found_b):
        if any(run.format == MSPROBE for run in found.runs):
            raise UsageError(
                f"{found.source}: tables of msprobe hold no records by which an output could be proved; `inspect` "
                "tells the points of each tag on both sides"
            )
    side_a, side_b = _Side(a, found_a), _Side(b, found_b)
    report.unreadable = sorted({f"{p.path}: {p.reason}" for p in (*found_a.problems, *found_b.problems)})
    pairs = _part(side_a, side_b) if is_same else []
    for side in (side_a, side_b):
        if not side.runs and not pairs:
            raise NoEventsError(f"{side.path}: no event files to compare")
    if not (side_a.runs or side_b.runs):
        return pairs
    likely_a, likely_b = side_a.likelihood(side_b), side_b.likelihood(side_a)
    if likely_b >= max(likely_a, 1):
        return pairs + _pair_conversions(side_a, side_b, report, is_swapped=False)
    if likely_a:
        return pairs + _pair_conversions(side_b, side_a, report, is_swapped=True)
    return pairs + _pair_by_names(side_a, side_b, report)


def _part(side_a: _Side, side_b: _Side) -> list[Pair]:
    """Parts the runs of one directory: its sources, what was converted from them, and what was written beside them.

    Returns:
        The pairs of what was written beside a source.
    """
    live = {twin.directory: twin for twin in side_b.found.twins if twin.role == LIVE}
    pairs = [Pair(run, live[run.directory]) for run in side_a.runs if run.directory in live]
    made = [run for run in side_a.runs if run.role == CONVERT or side_a.known(run) is not None]
    made += [twin for twin in side_b.found.twins if twin.role == CONVERT]
    side_b.runs = [run for run in made if side_b.format in ("", run.format)]
    # Without a conversion, runs without a twin (child runs that `add_scalars` makes) have nothing to be compared with.
    side_a.runs = [run for run in side_a.runs if run not in made] if side_b.runs else []
    return pairs


def _pair_conversions(source: _Side, output: _Side, report: VerifyReport, *, is_swapped: bool) -> list[Pair]:
    options = output.options
    report.options = " ".join(
        ["--on-restart latest"] * (options.on_restart == "latest")
        + [f"--tags {options.tags!r}"] * bool(options.tags)
        + ["--no-archive"] * (not options.keep_archive)
    )
    for side, is_taken in ((source, False), (output, True)):
        report.left_out += [run.name for run in side.runs if (run.format == output.format) != is_taken]
        side.runs = [run for run in side.runs if (run.format == output.format) == is_taken]
    root = output.root_of(source) or source.path
    tasks = make_tasks(source.runs, source.found, root, output.home, options, output.state)
    outputs: dict[str, Run] = {}
    for run in sorted(output.runs, key=lambda run: (run.role == CONVERT, output.known(run) is not None)):
        outputs[os.path.realpath(run.directory)] = run
    left = {id(run): run for run in output.runs}
    missing = []
    pairs = []
    for name, task in tasks:
        found = outputs.get(os.path.realpath(task.destination))
        if found is None and len(tasks) == len(output.runs) == 1:
            found = output.runs[0]
        if found is None:
            missing.append(name if task.run.name == "." else task.run.name)
            continue
        left.pop(id(found), None)
        known = output.known(found)
        is_made = found.role == CONVERT or known is not None
        one, other = (found, task.run) if is_swapped else (task.run, found)
        states = (known, None) if is_swapped else (None, known)
        pairs.append(Pair(one, other, task if is_made else None, is_swapped, states))
    rest = [run.name for run in left.values()]
    report.only_a += rest if is_swapped else missing
    report.only_b += missing if is_swapped else rest
    return pairs


def _pair_by_names(side_a: _Side, side_b: _Side, report: VerifyReport) -> list[Pair]:
    runs_a, runs_b = side_a.runs, side_b.runs
    if len(runs_a) == 1 and len(runs_b) == 1:
        matches = [(runs_a[0], runs_b[0])]
    else:
        by_name = {run.name: run for run in runs_b}
        matches = [(run, by_name[run.name]) for run in runs_a if run.name in by_name]
        paired = {run.name for run, _ in matches}
        if MINDSPORE in {run.format for run in runs_a} and LIVE in {run.role for run in runs_a}:
            # Child runs that `SummaryWriter.add_scalars` makes beside a MindSpore run stay where they are.
            runs_a = [run for run in runs_a if run.role != LIVE or run.name in paired]
        report.only_a = [run.name for run in runs_a if run.name not in paired]
        report.only_b = sorted(run.name for run in runs_b if run.name not in paired)
    return [Pair(a, b, known=(side_a.known(a), side_b.known(b))) for a, b in matches]
