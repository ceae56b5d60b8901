"""Tells what the watchdog has found: on the console, to the actions, in files, in the journal and for the viewers."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import msgspec

from ms_summary_bridge.files.waiting import within
from ms_summary_bridge.monitor.alarms.actions.message import AlertSource, name_action, outcome_note
from ms_summary_bridge.monitor.alarms.incidents.board import Board
from ms_summary_bridge.monitor.alarms.incidents.desk import IncidentDesk
from ms_summary_bridge.monitor.alarms.incidents.report import make_report
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.sample import Note
from ms_summary_bridge.monitor.watchdog.assignment import Assignment
from ms_summary_bridge.monitor.watchdog.hang_report import Console, HangFiles
from ms_summary_bridge.training.distributed import rank_directory

__all__ = ["Item", "Telling"]

_CLOSE_SECS: Final = 60.0
_WRITE_SECS: Final = 30.0
_SESSION_SECS: Final = 120.0  # how far apart the ranks of one training may start

Item: TypeAlias = tuple[Alert, Sequence[str]] | Note
"""What is recorded: an alarm with the titles of what was done for it, or a note."""


class Telling:
    """Tells of one training. What is to be recorded is handed to the training while that records.

    `answers` is the descriptor on which it is told.
    """

    def __init__(self, assignment: Assignment, answers: int) -> None:
        self._assignment = assignment
        self._answers = answers
        self.place = assignment.place
        """Where the training stands."""
        self.console = Console(assignment.pid, assignment.console)
        self.run_directory = ""
        """Of the run; empty until it is known."""
        self.has_begun = False
        """Whether a training has recorded anything."""
        self._directory = ""  # of the rank
        self._summary: str | None = None  # where the training has its files for the viewers
        self._is_recording = False  # the training writes its journal
        self._sent: list[Item] = []  # alarms given to the training to record
        self._desk: IncidentDesk | None = None
        self._began = time.time()
        self._writing = threading.Lock()

    def set_run(self, run_directory: str) -> None:
        """It is known where files will go."""
        self.run_directory = run_directory
        self._directory = rank_directory(run_directory, self.place.rank)

    def begin(self, directory: str, summary: str) -> None:
        """The training records: its rank's files, and those for the viewers, are in these directories."""
        self._directory, self._summary = directory, summary
        self.run_directory = os.path.dirname(directory)
        self._is_recording = self.has_begun = True

    def end(self) -> list[Item]:
        """The training records no more; returns what was given to it."""
        self._is_recording = False
        return list(self._sent)

    @property
    def titles(self) -> list[str]:
        """What the actions are called."""
        return [action.title for action in self._assignment.actions]

    @property
    def files(self) -> HangFiles:
        """The files of the rank; a run is made for them where the training has none yet, and it is told of that."""
        if not self._directory:
            from ms_summary_bridge.monitor.sinks.launch import make_run_directory

            self.set_run(make_run_directory(self._assignment.project_directory))
            self._answer({"run": self.run_directory})  # rank 0 goes on there
        return HangFiles(self._directory)

    def _open_desk(self) -> IncidentDesk:
        place, assignment = self.place, self._assignment
        if self._desk is None:
            origin = AlertSource(
                project=assignment.project,
                run=os.path.basename(self.run_directory),
                run_directory=self.run_directory,
                host=place.host,
                ranks=place.ranks,
            )
            board = Board(
                self.run_directory,
                rank=place.rank,
                host=place.host,
                pid=assignment.pid,
                window_secs=assignment.window_secs,
                began=self._began - _SESSION_SECS,
            )
            self._desk = IncidentDesk(
                origin, board, rank=place.rank, role="watchdog", outcome=self._take_outcome, left=self._leave
            )
        return self._desk

    def act(self, alert: Alert, *, stack: str = "", checkpoint: tuple[int, str] | None = None) -> None:
        """Tells those who are to be told; nobody waits for them.

        `stack` is that of the thread that trains, and `checkpoint` step and path of the last one.
        """
        if self._assignment.actions:
            report = make_report(alert, self.place.host, stack=stack.splitlines(), checkpoint=checkpoint)
            self._open_desk().tell(self._assignment.actions, alert, report)

    def adopt(self) -> None:
        """The training has died: tells those who are to be told what it was to tell."""
        if self._assignment.actions and self.place.ranks > 1 and self.run_directory:
            self._open_desk().adopt(self._assignment.actions)

    def _leave(self, action: ActionConfig, alert: Alert, rank: int) -> None:
        self._record(outcome_note(name_action(action, self._assignment.actions), alert, "", told_by=rank))

    def _take_outcome(self, action: ActionConfig, alert: Alert, problem: str) -> None:
        note = outcome_note(name_action(action, self._assignment.actions), alert, problem)
        if problem:
            self.console.write(f"rank {alert.rank}: {note.text}\n")
        self._record(note)

    def _record(self, note: Note) -> None:
        self.files.write({"kind": "action", **note.fields, "wall_time": note.wall_time})
        if self._is_recording:
            self._answer({"note": note})
        else:
            self.write_after([note])

    def record_and_act(self, alert: Alert, *, stack: str = "", checkpoint: tuple[int, str] | None = None) -> None:
        """Has an alarm written, by the training while it records, and tells those who are to be told; see `act`."""
        if self._is_recording:
            self._sent.append((alert, self.titles))
            self._answer({"alert": alert, "titles": self.titles})
        else:
            self.write_after([(alert, self.titles)])
        self.act(alert, stack=stack, checkpoint=checkpoint)

    def _answer(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # nobody reads, or it has ended; then it is written afterwards
            os.write(self._answers, msgspec.json.encode(message) + b"\n")

    def write_after(self, items: Sequence[Item]) -> None:
        """Writes what the training cannot; waits, but not for long."""
        place, summary = self.place, self._summary
        if summary is None and self._assignment.has_viewer:
            summary = rank_directory(os.path.join(self.run_directory, "summary"), place.rank, place.ranks)

        def write() -> None:
            try:
                # Here: it is numpy and the formats, of which a watchdog that has nothing to write needs nothing.
                from ms_summary_bridge.monitor.watchdog.after import write_after

                with self._writing:
                    problems = write_after(items, self._directory, summary or "", place)
            except Exception as error:  # whoever is to be told will be all the same
                problems = [repr(error)]
            for problem in problems:
                self.console.write(f"rank {place.rank}: {problem}\n")

        within(_WRITE_SECS, write)

    def close(self) -> None:
        """Waits until all who are to be told have been, but not for ever."""
        if self._desk is not None:
            self._desk.close(_CLOSE_SECS)
