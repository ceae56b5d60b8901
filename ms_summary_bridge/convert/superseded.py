"""Superseded: what `--on-restart latest` leaves out, found by going through what is new of a run ahead of writing it.

Left out is what a restart replaces: of each series the points at and above the lowest that the new training has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ms_summary_bridge.convert.restarts import ReadAhead, Restart
from ms_summary_bridge.convert.series import SeriesKey, SeriesTable
from ms_summary_bridge.convert.state import FileState
from ms_summary_bridge.convert.task import RunTask
from ms_summary_bridge.convert.unread import Unread, begin_walk
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.runs.report import RestartMark, RunReport

__all__ = ["Superseded", "find_superseded"]

Superseded: TypeAlias = dict[SeriesKey, int]
"""For each series the step from which on a later restart replaces its points."""


def find_superseded(
    parts: Sequence[Unread], task: RunTask, report: RunReport, ahead: ReadAhead
) -> dict[str, Superseded]:
    """Returns what is superseded in each file of a run, by its path, and reports the restarts.

    `parts` are what is new of the files; `ahead` knows what has been written.
    """
    if all(unread.is_decided for unread in parts):
        return {}
    states = dict(task.state.files)
    written, ahead = ahead.series, ahead.fork()
    table, decoder = ahead.series, ahead.make_decoder()
    replaced_by: list[Superseded] = []
    for unread in parts:
        walk = begin_walk(unread, task, states, decoder)
        is_restart = False
        lowest: Superseded = {}
        for piece in walk.pieces(ahead):
            if isinstance(piece, Restart):
                is_restart = True
                table.restart(piece.step)
                _report(report, unread.path, piece.step, written)
            elif isinstance(piece, Event) and isinstance(piece.content, Summary):
                summary = Summary(tuple(tagged for tagged in piece.content.values if ahead.is_wanted(tagged.tag)))
                table.observe(piece, summary)
                if is_restart:
                    _note_lowest(lowest, {(tagged.value.kind, tagged.tag): piece.step for tagged in summary.values})
            elif isinstance(piece, Event):
                table.observe_whole(piece)
        states[unread.path] = FileState(order=unread.file.created, last_time=walk.last_time)
        replaced_by.append(lowest)
    later: Superseded = {}
    found: dict[str, Superseded] = {}
    for unread, lowest in zip(reversed(parts), reversed(replaced_by), strict=True):
        found[unread.file.path] = dict(later)
        _note_lowest(later, lowest)
    return found


def _note_lowest(lowest: Superseded, steps: Superseded) -> None:
    for key, step in steps.items():
        lowest[key] = min(step, lowest.get(key, step))


def _report(report: RunReport, path: str, step: int, written: SeriesTable) -> None:
    report.restarts.append(RestartMark(path, step))
    if written.lowest_from(step):
        report.problems.append(
            f"{path}: begins again at step {step}; an earlier conversion wrote points that are superseded by it now "
            "and stay in its output; --force leaves them out"
        )
