"""Drives the monitor's engine by hand, with a clock that only moves when it is told to. Imports no mindspore."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.recorder import Recorder
from ms_summary_bridge.monitor.sinks.journal import journal_files
from ms_summary_bridge.monitor.steps.call_queue import Patience
from ms_summary_bridge.training.distributed import ProcessRank
from ms_summary_bridge.training.facts import TrainingFacts
from ms_summary_bridge.training.faults import Faults
from tests.bridge_scripts.runs import output_of
from tests.conftest import ROOT, TESTS

START = 1_700_000_000.0


class FakeClock:
    """Seconds that stand still, as a monotonic clock and as the time of day."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wall(self) -> float:
        return START + self.now


def refuse(constant: str) -> NoReturn:
    """Is called by json for what strict JSON does not have."""
    raise AssertionError(f"{constant} is not JSON")


def strict_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a journal, each of which must be strict JSON."""
    return [
        json.loads(line, parse_constant=refuse)
        for name in journal_files(path)
        for line in Path(name).read_text(encoding="utf-8").splitlines()
    ]


class Engine:
    """A recorder on a fake clock whose files are in a directory.

    Args:
        directory: `save_dir`.
        place: Which rank this is.
        patience: How long is waited for what does not return.
        section: The keys of `monitor_config`.
    """

    def __init__(
        self, directory: Path, place: ProcessRank | None = None, *, patience: Patience | None = None, **section: Any
    ) -> None:
        self.clock = FakeClock()
        self.place = place or ProcessRank(host="host")
        given = {"backend": ["local"], "save_dir": str(directory), "run_id": "run", "auto_print": False, **section}
        self.recorder = Recorder(
            load_config(given),
            Faults("test"),
            place=self.place,
            clock=self.clock,
            wall_clock=self.clock.wall,
            patience=patience,
        )
        self.directory = directory / given.get("project", "default") / "run"

    def begin(self, **facts: Any) -> Engine:
        """Begins a training; arguments that are no facts of a training go to `Recorder.begin`."""
        options = {key: facts.pop(key) for key in ("learning_rates", "tells_beginnings", "link") if key in facts}
        self.recorder.begin(TrainingFacts(**facts), **options)
        return self

    def step(self, number: int, secs: float = 1.0, *, data_secs: float = 0.0, outputs: Any = 0.5, **more: Any) -> None:
        """Trains one step, in the order in which MindSpore calls back."""
        self.clock.now += data_secs
        self.recorder.tap.begin_step(self.clock.now)
        self.clock.now += secs - data_secs
        self.end_step(number, outputs=outputs, **more)

    def end_step(self, number: int, *, outputs: Any = None, **more: Any) -> None:
        """Ends a step now."""
        self.recorder.tap.end_step(number, self.clock.now, outputs, **more)

    def end(self, reason: str = "") -> list[dict[str, Any]]:
        """Ends the training; returns the lines of this rank's journal."""
        self.recorder.end(reason)
        return self.lines()

    def lines(self, kind: str = "") -> list[dict[str, Any]]:
        """Returns the lines of this rank's journal, of one kind or of all."""
        lines = strict_lines(self.directory / f"rank_{self.place.rank}")
        return [line for line in lines if kind in ("", line["kind"])]

    def samples(self) -> list[dict[str, Any]]:
        """Returns the samples in this rank's journal."""
        return self.lines("sample")


def values_of(samples: list[dict[str, Any]], name: str, where: str = "values") -> dict[int, float | None]:
    """Returns one series by step."""
    return {line["step"]: line[where][name] for line in samples if name in line[where]}


def run_script(cwd: Path, program: list[str], name: str, *arguments: str) -> None:
    """Runs a script to its end. Its output goes to a file: writer processes would hold a pipe open."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # msrun starts the python it finds there
    with (cwd / "output.txt").open("ab") as output:
        done = subprocess.run(
            [*program, str(TESTS / "monitor_scripts" / name), *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=280,
        )
    assert done.returncode == 0, output_of(cwd)
