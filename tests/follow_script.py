"""Plays the clock and everybody else for a follower: things happen in its pauses, and no time passes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.runs.report import Report


def nothing() -> None:
    """A pause in which nothing happens."""


class FollowScript:
    """Follows while a script runs.

    Args:
        actions: Each is done in one pause, in this order; then the follower goes on for `rest` rounds and is ended.
        rest: Enough for what a follower puts off.

    Attributes:
        reports: What it said, round by round.
        pauses: How long it wanted to wait each time.
        now: Seconds on its clock; an action may put it forward.
        total: What it returned.
    """

    def __init__(self, *actions: Callable[[], object], rest: int = 5) -> None:
        self.reports: list[Report] = []
        self.pauses: list[float] = []
        self.now = 0.0
        self.total: Report | None = None
        self.stop = threading.Event()
        self._actions = [*actions, *[nothing] * rest]

    def _wait(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        if self._actions:
            self._actions.pop(0)()
        else:
            self.stop.set()

    def follow(self, source: Path | str, destination: Path, **options: Any) -> FollowScript:
        """Runs the script; `options` are those of `follow_logdir`."""
        self.total = follow_logdir(
            str(source),
            str(destination),
            stop=self.stop,
            on_round=self.reports.append,
            wait=self._wait,
            clock=lambda: self.now,
            **options,
        )
        return self

    @property
    def problems(self) -> list[str]:
        """Every problem that was told, in order."""
        return [problem for report in self.reports for run in report.runs for problem in run.problems]
