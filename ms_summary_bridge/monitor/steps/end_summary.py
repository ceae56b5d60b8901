"""What is said at the end of a training: the best loss, the warnings, where the time went, where the files are."""

from __future__ import annotations

import math
import os
import shlex
import shutil
import sys
from typing import Any

from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.sinks.console import duration
from ms_summary_bridge.monitor.sinks.journal import JOURNAL
from ms_summary_bridge.training.distributed import rank_directory
from ms_summary_bridge.training.facts import StepFacts
from ms_summary_bridge.training.step_clock import describe

__all__ = ["EndSummary"]


class EndSummary:
    """Remembers what the end will tell of a training that `began` at this moment, in monotonic seconds."""

    def __init__(self, *, began: float) -> None:
        self._began = began
        self._best: tuple[float, int] | None = None
        self._overflows = 0
        self._has_steps = False

    def add(self, facts: StepFacts) -> None:
        """Takes a step. The loss of one that overflowed counts as little as one that is not finite."""
        self._has_steps = True
        if facts.overflow:
            self._overflows += 1
        elif facts.loss is not None and math.isfinite(facts.loss) and (not self._best or facts.loss < self._best[0]):
            self._best = (facts.loss, facts.step)

    def describe(
        self,
        config: MonitorConfig,
        reason: str,
        *,
        step: int,
        now: float,
        warnings: dict[str, int],
        alarms: dict[str, int],
        dropped: int,
        breakdown: dict[str, float],
        rank: int,
        run_directory: str | None,
        viewed: str,
    ) -> tuple[str, dict[str, Any]]:
        """Returns the summary for people, and for programs.

        `warnings` are counted by value and `alarms` by rule, `breakdown` has the seconds of each part, `dropped` is how
        many items were left out, and `viewed` what the viewers open. `reason` says why it ended before its time.
        """
        verdict = describe(breakdown) if self._has_steps else "no step has ended"
        how = f"ended by {reason}" if reason else "ended"
        lines = [f"training {how} at step {step} after {duration(now - self._began)}"]
        if self._best is not None:
            lines.append(f"best loss: {self._best[0]:.6g} at step {self._best[1]}")
        listed = ", ".join(f"{name} {count}" for name, count in warnings.items())
        lines.append(f"warnings: {sum(warnings.values())}" + (f" ({listed})" if listed else ""))
        if alarms:
            raised = ", ".join(f"{name} {count}" for name, count in alarms.items())
            lines.append(f"alarms: {sum(alarms.values())} ({raised})")
        if self._overflows:
            lines.append(f"steps skipped for overflow: {self._overflows}")
        if dropped:
            lines.append(f"left out because it came too fast: {dropped}")
        lines.append(f"time: {verdict}")
        if run_directory is not None:
            lines += _places(config, run_directory, rank, viewed)
        fields = {
            "reason": reason,
            "best": None if self._best is None else {"loss": self._best[0], "step": self._best[1]},
            "warnings": dict(warnings),
            "alarms": dict(alarms),
            "overflows": self._overflows,
            "dropped": dropped,
            "breakdown": dict(breakdown),
            "verdict": verdict,
        }
        return "\n".join(lines), fields


def _places(config: MonitorConfig, run_directory: str, rank: int, viewed: str) -> list[str]:
    """Returns where the files are: of those that are there, with the commands that can be run here."""
    journal = os.path.join(rank_directory(run_directory, rank), JOURNAL)
    lines = [f"journal: {journal}"] if os.path.exists(journal) else []
    # The process that writes for the viewers may not have made the monitor's own directory yet.
    is_there = os.path.isdir(viewed) or (os.path.isdir(run_directory) and os.path.dirname(viewed) == run_directory)
    commands = {
        "tensorboard": ("TensorBoard", "tensorboard --logdir"),
        "mindinsight": ("MindInsight", "mindinsight start --summary-base-dir"),
    }
    for backend, (viewer, command) in commands.items():
        if backend in config.backends and is_there:
            beside = os.path.dirname(sys.executable)  # of an environment that is not activated
            program = backend if shutil.which(backend) else shutil.which(backend, path=beside)
            if program:
                _, _, arguments = command.partition(" ")
                lines.append(f"{viewer}: {shlex.quote(program)} {arguments} {shlex.quote(viewed)}")
            else:
                lines.append(f"files for {viewer}, which is not installed here: {viewed}")
    return lines
