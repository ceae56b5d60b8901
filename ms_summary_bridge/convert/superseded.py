"""Superseded: what `--on-restart latest` leaves out, found by going through what is new of a run ahead of writing it.

Left out is what a restart replaces: of each series the points at and above the lowest that the new training has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from ms_summary_bridge.convert.restarts import ReadAhead, Restart
from ms_summary_bridge.convert.series import SeriesKey, SeriesTable
from ms_summary_bridge.convert.state import FileState
from ms_summary_bridge.convert.task import RunTask
from ms_summary_bridge.convert.unread import Unread, begin_walk
from ms_summary_bridge.events import Decoder, Event, Summary
from ms_summary_bridge.runs.report import RestartMark, RunReport

__all__ = ["Superseded", "find_superseded"]

Superseded: TypeAlias = dict[SeriesKey, int]
"""For each series the step from which on a later restart replaces its points."""


def find_superseded(
    parts: Sequence[Unread],
    *,
    task: RunTask,
    report: RunReport,
    series: SeriesTable,
    read_ahead: Callable[[SeriesTable], ReadAhead],
    decoder: Decoder,
    is_wanted: Callable[[str], bool],
) -> dict[str, Superseded]:
    """Returns what is superseded in each file, by its path, and reports the restarts.

    Args:
        parts: What is new of each file.
        task: Their run.
        report: Where restarts are told.
        series: What has been written.
        read_ahead: Makes what decides by a table of series.
        decoder: One that may be used up.
        is_wanted: Whether a tag is converted at all.
    """
    if all(unread.is_decided for unread in parts):
        return {}
    states = dict(task.state.files)
    table = series.copy()
    ahead = read_ahead(table)
    replaced_by: list[Superseded] = []
    for unread in parts:
        walk = begin_walk(unread, task, states, decoder)
        is_restart = False
        lowest: Superseded = {}
        for piece in walk.pieces(ahead):
            if isinstance(piece, Restart):
                is_restart = True
                table.restart(piece.step)
                _report(report, unread.path, piece.step, series)
            elif isinstance(piece, Event) and isinstance(piece.content, Summary):
                summary = Summary(tuple(tagged for tagged in piece.content.values if is_wanted(tagged.tag)))
                table.observe(piece, summary)
                for tagged in summary.values if is_restart else ():
                    key = (tagged.value.kind, tagged.tag)
                    lowest[key] = min(piece.step, lowest.get(key, piece.step))
            elif isinstance(piece, Event):
                table.observe_whole(piece)
        states[unread.path] = FileState(order=unread.file.created, last_time=walk.last_time)
        replaced_by.append(lowest)
    later: Superseded = {}
    found: dict[str, Superseded] = {}
    for unread, lowest in zip(reversed(parts), reversed(replaced_by), strict=True):
        found[unread.file.path] = dict(later)
        for key, step in lowest.items():
            later[key] = min(step, later.get(key, step))
    return found


def _report(report: RunReport, path: str, step: int, written: SeriesTable) -> None:
    report.restarts.append(RestartMark(path, step))
    if written.lowest_from(step):
        report.problems.append(
            f"{path}: begins again at step {step}; an earlier conversion wrote points that are superseded by it now "
            "and stay in its output; --force leaves them out"
        )
