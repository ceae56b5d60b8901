"""What SummaryBridge adds to a training, against what SummaryCollector adds.

A network of 100 parameters and about 1M elements is trained, without a callback, with SummaryCollector
and with SummaryBridge, in turns, each in a process of its own. What a callback adds is the difference to the training
without one in the same turn; the time until everything is on disk counts, and so do all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Spread, spread
from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.formats.mindspore import MindSporeDecoder

NAME = "callback"

_ROOT = Path(__file__).resolve().parent.parent.parent
_SCRIPT = Path(__file__).resolve().parent / "train_wide.py"


class Case(msgspec.Struct, frozen=True):
    """One thing to collect, and the shares of SummaryCollector's cost that are allowed."""

    name: str
    histograms: bool
    wall_limit: float | None
    cpu_limit: float
    steps: int


# The loss alone is measured over two lengths: in 100 steps the start of the writer process (0.1 s, once) is most of
# what the bridge adds, in 500 steps it is spread out.
CASES = (
    Case("histograms of all parameters at every step", True, 0.35, 0.35, 100),
    Case("loss at every step, 100 steps", False, None, 0.10, 100),
    Case("loss at every step, 500 steps", False, None, 0.10, 500),
)


class Result(msgspec.Struct):
    """One case: seconds added by each callback, and the ratio bridge / collector of each turn."""

    name: str
    collector_wall: Spread
    bridge_wall: Spread
    collector_cpu: Spread
    bridge_cpu: Spread
    wall_ratio: float
    """Of the medians."""
    cpu_ratio: float
    is_met: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--pairs", type=int, default=5, help="turns of each case (default 5)")
    parser.add_argument("--steps", type=int, default=0, help="steps of a training (default: each case's own)")
    parser.add_argument("--only", default="", help="only cases whose name holds this text")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when a limit is passed."""
    console = Console(stderr=True)
    results = []
    for case in CASES:
        if arguments.only in case.name:
            results.append(_measure_case(case, arguments.pairs, arguments.steps or case.steps, console))
    is_met = all(result.is_met for result in results)
    if arguments.json:
        print(msgspec.json.encode({"callback": results, "is_met": is_met}).decode())
        return 0 if is_met else 1
    table = Table(title="seconds added to a training (min / median / max)")
    for heading in ("", "SummaryCollector", "SummaryBridge", "ratio of medians", "limit", ""):
        table.add_column(heading, justify="left" if not heading else "right")
    for case, result in zip([c for c in CASES if arguments.only in c.name], results, strict=True):
        rows = (
            ("wall", result.collector_wall, result.bridge_wall, result.wall_ratio, case.wall_limit),
            ("processor", result.collector_cpu, result.bridge_cpu, result.cpu_ratio, case.cpu_limit),
        )
        for kind, theirs, ours, ratio, limit in rows:
            verdict = "" if limit is None else "met" if ratio <= limit else "MISSED"
            shown = "-" if limit is None else f"{limit:g}"
            table.add_row(f"{case.name}, {kind}", _text(theirs), _text(ours), f"{ratio:.3f}", shown, verdict)
    Console(width=max(Console().width, 120)).print(table)
    return 0 if is_met else 1


def _text(numbers: Spread) -> str:
    return f"{numbers.min:.2f} / {numbers.median:.2f} / {numbers.max:.2f}"


def _measure_case(case: Case, turns: int, steps: int, console: Console) -> Result:
    added: dict[str, list[dict[str, float]]] = {"collector": [], "bridge": []}
    for turn in range(turns):
        times = {kind: _train(kind, steps, case.histograms) for kind in ("none", "collector", "bridge")}
        for kind, rows in added.items():
            rows.append({unit: times[kind][unit] - times["none"][unit] for unit in ("wall", "cpu")})
        console.print(f"{case.name}, turn {turn + 1} of {turns}: {times}", highlight=False, style="dim")
    spreads = {
        (kind, unit): spread([row[unit] for row in rows]) for kind, rows in added.items() for unit in ("wall", "cpu")
    }
    ratios = {unit: spreads["bridge", unit].median / spreads["collector", unit].median for unit in ("wall", "cpu")}
    is_met = ratios["cpu"] <= case.cpu_limit and (case.wall_limit is None or ratios["wall"] <= case.wall_limit)
    return Result(
        case.name,
        spreads["collector", "wall"],
        spreads["bridge", "wall"],
        spreads["collector", "cpu"],
        spreads["bridge", "cpu"],
        ratios["wall"],
        ratios["cpu"],
        is_met,
    )


def _train(kind: str, steps: int, histograms: bool) -> dict[str, float]:
    """Trains in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        command = [sys.executable, str(_SCRIPT), kind, f"{scratch}/summary", str(steps), "1" if histograms else "0"]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        with open(f"{scratch}/output", "w+b") as output:  # not a pipe: writer processes would hold it open
            subprocess.run(
                command, check=True, cwd=scratch, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            output.seek(0)
            times: dict[str, float] = json.loads(output.read().splitlines()[-1])
        collected = _count_events(Path(scratch) / "summary") if kind != "none" else steps
        if collected < steps:
            raise SystemExit(f"{kind} wrote {collected} of {steps} steps: its time is not that of the whole work")
        return times


def _count_events(directory: Path) -> int:
    """Returns how many steps are in the summary files: a callback that drops some would be cheap for that."""
    steps = set()
    for path in directory.glob("*_MS"):
        for item in EventFileReader(path, MindSporeDecoder()):
            if isinstance(item, Event) and isinstance(item.content, Summary):
                steps.add(item.step)
    return len(steps)
