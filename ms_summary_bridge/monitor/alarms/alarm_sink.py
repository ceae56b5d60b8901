"""Does what an alarm asks for, on the thread that writes: stacks, the report of a stop, and the word to the outside."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
from collections.abc import Callable
from typing import Final

import psutil

from ms_summary_bridge.files.atomic import replace_file
from ms_summary_bridge.monitor.alarms.actions.message import (
    OUTSIDE,
    STEP_METRICS,
    AlertSource,
    message_text,
    name_action,
    outcome_note,
)
from ms_summary_bridge.monitor.alarms.alarms import Alarms
from ms_summary_bridge.monitor.alarms.alert_note import AlertNote, describe_checkpoint
from ms_summary_bridge.monitor.alarms.incidents.board import Board
from ms_summary_bridge.monitor.alarms.incidents.desk import IncidentDesk
from ms_summary_bridge.monitor.alarms.incidents.report import make_report, say_cann_log
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.writer import Sink

__all__ = ["REPORT", "AlarmSink"]

REPORT: Final = "stop_report"
"""Name of the report's two files, without their endings."""
_CLOSE_SECS: Final = 15.0


class AlarmSink(Sink):
    """Shows samples to the rules, and does what alarms ask for.

    `put` takes notes from any thread, also while all is being closed. `exit_code` is for the report. `board` is where
    ranks tell each other of incidents, and `look` gives the stack of the thread that trains, innermost frame first.
    """

    def __init__(
        self,
        alarms: Alarms,
        origin: AlertSource,
        directory: str,
        *,
        exit_code: int | None,
        warn: Callable[[str, str], None],
        put: Callable[[Note], None],
        board: Board,
        rank: int = 0,
        look: Callable[[], list[str]] = list,
    ) -> None:
        self._alarms = alarms
        self._origin = origin
        self._directory = directory
        self._exit_code = exit_code
        self._warn = warn
        self._put = put
        self._has_reported = False
        self._board = board
        self._rank = rank
        self._look = look
        self._desk = IncidentDesk(origin, board, rank=rank, role="training", outcome=self._hear, left=self._leave)
        self.outcomes: list[tuple[str, str]] = []
        """What became of actions for the outside: name and problem, empty for none."""

    def open(self) -> None:
        """Tells the ranks where to agree on a stop, and the rules what the run had reached before."""
        self._alarms.stop.open(self._origin.run_directory)
        if self._rank == 0 and self._origin.ranks > 1:
            with contextlib.suppress(OSError):
                self._board.clear()
        self._alarms.recall(self._directory)

    def write_sample(self, sample: Sample) -> None:
        """Shows a sample to the rules."""
        self._alarms.observe_sample(sample)

    def write_note(self, note: Note) -> None:
        """Does what an alarm asks for."""
        if not isinstance(note, AlertNote):
            return
        outside = [action for action in note.actions if action.kind in OUTSIDE]
        if outside:
            report = make_report(
                note.alert,
                self._origin.host,
                phase="compute" if note.alert.metric in STEP_METRICS else "",
                stack=self._look(),
                checkpoint=note.checkpoint,
                stops=any(action.kind == "stop" for action in note.actions),
            )
            self._desk.tell(outside, note.alert, report)
        for action in note.actions:
            if action.kind == "dump_stacks":
                self._dump_stacks(note.alert)
            elif action.kind == "stop" and not self._has_reported:
                self._has_reported = True  # what came first is the reason; what follows from it is in the journal
                self._report(note)

    def close(self) -> None:
        """Waits until the outside knows what it can."""
        if not self._desk.close(_CLOSE_SECS):
            self._warn("actions", "the end of the training came before all actions of alarms were done")

    def _hear(self, action: ActionConfig, alert: Alert, problem: str) -> None:
        name = name_action(action, self._alarms.actions)
        note = outcome_note(name, alert, problem)
        self.outcomes.append((name, problem))
        self._put(note)
        if problem:
            self._warn(f"action {name}", note.text)

    def _leave(self, action: ActionConfig, alert: Alert, rank: int) -> None:
        self._put(outcome_note(name_action(action, self._alarms.actions), alert, "", told_by=rank))

    def _path(self, name: str) -> str:
        os.makedirs(self._directory, exist_ok=True)
        return os.path.join(self._directory, name)

    def _dump_stacks(self, alert: Alert) -> None:
        try:
            path = self._path(f"stacks-{alert.rule}-step_{alert.step}.txt")
            with open(path, "w", encoding="utf-8") as file:
                faulthandler.dump_traceback(file, all_threads=True)
        except OSError as error:
            self._warn("stacks", f"{self._directory}: the stacks cannot be written: {error.strerror}")

    def _report(self, note: AlertNote) -> None:
        alert, checkpoint = note.alert, note.checkpoint
        cann = say_cann_log(os.getpid(), psutil.Process().create_time())
        content = {
            "alert": alert.plain(),
            "since_step": alert.first_step,
            "last_good_checkpoint": None if checkpoint is None else {"step": checkpoint[0], "path": checkpoint[1]},
            "project": self._origin.project,
            "run": self._origin.run,
            "host": self._origin.host,
            "rank": alert.rank,
            "ranks": self._origin.ranks,
            "exit_code": self._exit_code,
            "cann_log": cann,
        }
        text = f"{message_text(alert, self._origin)}\n{describe_checkpoint(checkpoint)}\n"
        text += "".join(f"CANN's log: {line}\n" for line in cann)
        try:
            for ending, body in (("json", json.dumps(content, indent=1) + "\n"), ("txt", text)):
                replace_file(self._path(f"{REPORT}.{ending}"), body.encode(errors="backslashreplace"))
        except OSError as error:
            self._warn("report", f"{self._directory}: the report of the stop cannot be written: {error}")
