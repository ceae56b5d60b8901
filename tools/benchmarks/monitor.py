"""What the monitor adds to each step of a training, at an interval of 30 seconds and at every step.

A network of 100 parameters and about 1M elements is trained with the monitor and without it, in turns. What counts is
the time that the monitor takes on the training thread, in its own hooks and around those of others: the difference
between two trainings is shown beside it, and is as often noise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Spread, spread

NAME = "monitor"

_ROOT = Path(__file__).resolve().parent.parent.parent
_SCRIPT = Path(__file__).resolve().parent / "train_monitored.py"


class Case(msgspec.Struct, frozen=True):
    """One interval, and what it may cost: a share of the step, or microseconds of it."""

    name: str
    interval: float
    share_limit: float | None
    micro_limit: float | None


CASES = (
    Case("interval of 30 s", 30.0, 0.002, None),
    Case("every step", 0.0, None, 100.0),
)


class Result(msgspec.Struct):
    """One case, over all pairs; times in microseconds."""

    name: str
    step: Spread
    """Of a step without the monitor."""
    hooks: Spread
    """Of the monitor in a step: the medians of the pairs."""
    hooks_mean: Spread
    """As `hooks`, the means: with the samples, and with whatever else ran on the machine."""
    added: Spread
    """By how much a step with the monitor was longer than one without, as a share."""
    share: float
    """Of the hooks in the step."""
    is_met: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--pairs", type=int, default=5, help="turns of each case (default 5)")
    parser.add_argument("--steps", type=int, default=400, help="steps of a training (default 400)")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when a limit is passed."""
    results = [_measure(case, arguments.pairs, arguments.steps) for case in CASES]
    is_met = all(result.is_met for result in results)
    if arguments.json:
        print(msgspec.json.encode({"monitor": results, "is_met": is_met}).decode())
        return 0 if is_met else 1
    table = Table(title="microseconds of a step on the training thread (min / median / max)")
    for heading in ("", "step", "monitor", "monitor, mean", "share", "step longer by", "limit", ""):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for case, result in zip(CASES, results, strict=True):
        limit = f"{case.share_limit:.1%}" if case.share_limit is not None else f"{case.micro_limit:g} us"
        added = f"{result.added.min:+.1%} / {result.added.median:+.1%} / {result.added.max:+.1%}"
        spreads = (result.step, result.hooks, result.hooks_mean)
        cells = [f"{numbers.min:.0f} / {numbers.median:.0f} / {numbers.max:.0f}" for numbers in spreads]
        table.add_row(case.name, *cells, f"{result.share:.2%}", added, limit, "met" if result.is_met else "MISSED")
    Console(width=max(Console().width, 150)).print(table)
    return 0 if is_met else 1


def _measure(case: Case, pairs: int, steps: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        command = [sys.executable, str(_SCRIPT), str(case.interval), str(pairs), str(steps), f"{scratch}/monitor"]
        with open(f"{scratch}/output", "w+b") as output:  # not a pipe: MindSpore's processes would hold it open
            subprocess.run(
                command,
                check=True,
                cwd=scratch,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
            )
            output.seek(0)
            rows = json.loads(output.read().splitlines()[-1])
    hooks = spread([row["hooks_median"] for row in rows])
    share = statistics.median(row["hooks_median"] / row["without"] for row in rows)
    is_met = (case.share_limit is None or share <= case.share_limit) and (
        case.micro_limit is None or hooks.median <= case.micro_limit
    )
    return Result(
        case.name,
        spread([row["without"] for row in rows]),
        hooks,
        spread([row["hooks_mean"] for row in rows]),
        spread([row["with"] / row["without"] - 1 for row in rows]),
        share,
        is_met,
    )
