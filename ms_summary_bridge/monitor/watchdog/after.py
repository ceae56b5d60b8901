"""Writes for a training that cannot: into its journal, and beside its files for the viewers.

A journal has one writer. While a training records, that is the training; before, and once its process is gone, it is
the watchdog.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ms_summary_bridge.live_writer.live_run import LiveRun
from ms_summary_bridge.monitor.alarms.alert_note import watchdog_note
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.sample import Note
from ms_summary_bridge.monitor.sinks.backends import TAG_PREFIX, alarm_marker, live_config, note_text
from ms_summary_bridge.monitor.sinks.journal import JOURNAL, json_lines, note_line
from ms_summary_bridge.monitor.sinks.line_file import LineFile
from ms_summary_bridge.monitor.watchdog.assignment import Begun

__all__ = ["write_after"]

_TAIL_BYTES: Final = 1 << 20


def write_after(
    items: Sequence[tuple[Alert, Sequence[str]] | Note], directory: str, summary: str, place: Begun
) -> list[str]:
    """Writes alarms and notes; returns what could not be done.

    An alarm that the training has written already is left out.

    `directory` is that of the rank, and `summary` that of its files for the viewers; empty for none.
    """
    problems: list[str] = []
    path = os.path.join(directory, JOURNAL)
    there = _read_tail(path)
    notes: list[Note] = []
    for item in items:
        if isinstance(item, Note):
            notes.append(item)
            continue
        alert, titles = item
        same = [line for line in there if line.get("kind") == "alert" and line.get("rule") == alert.rule]
        if any(line.get("wall_time") == alert.wall_time for line in same):
            continue
        count = len(same) + 1 + sum(note.fields.get("rule") == alert.rule for note in notes)
        notes.append(watchdog_note(alert, ranks=place.ranks, count=count, titles=titles))
    # The journal of the whole run is rank 0's as well; from others it takes what it finds in theirs.
    for journal in [path, *([os.path.join(os.path.dirname(directory), JOURNAL)] if place.rank == 0 else [])]:
        file = LineFile(journal, lambda _, message: problems.append(message), takes_over=True)
        for note in notes:
            file.append(msgspec.json.encode(note_line(note, place.rank)))
        file.close()
    if summary:
        live = LiveRun(live_config(summary, place.rank, place.host), lambda _, message: problems.append(message))
        for note in notes:
            marker = alarm_marker(note)
            if marker:
                live.write_values(note.step, note.wall_time, marker)
            live.write_note(note.step, note.wall_time, f"{TAG_PREFIX}{note.kind}", note_text(note))
        live.close()
    return problems


def _read_tail(path: str) -> list[dict[str, Any]]:
    """Returns the last lines of a journal that are of its last session."""
    lines: list[dict[str, Any]] = []
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        for line in json_lines(file.read().splitlines()):
            if line.get("kind") == "header":
                lines.clear()
            lines.append(line)
    return lines
