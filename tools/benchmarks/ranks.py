"""What one collective over two ranks takes of the training thread, and so of a step.

Two real ranks, started by msrun on this machine, train a small network with `aggregate: true` and without it, in turns.
A collective is timed in the monitor's hook at the end of its step, with the wait for the other rank; a step has the
hundredth part of it with the default of 100 steps.
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

NAME = "ranks"

_ROOT = Path(__file__).resolve().parent.parent.parent
_SCRIPT = Path(__file__).resolve().parent / "train_ranks.py"
_EVERY = 10
_DEFAULT_STEPS = 100  # of aggregate_steps
_PORT = 8171


class Result(msgspec.Struct):
    """One clock, over all pairs; times in microseconds."""

    clock: str
    hook: Spread
    """Of the monitor's hook in a training without collectives."""
    between: Spread
    """Of the hook in steps without one, in a training with them."""
    collective: Spread
    """How much longer the hook takes with one."""
    of_a_step: float
    """The median by the default number of steps."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--pairs", type=int, default=9, help="turns (default 9)")
    parser.add_argument("--steps", type=int, default=500, help="steps of a training (default 500)")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints."""
    results = _measure(arguments.pairs, arguments.steps)
    if arguments.json:
        print(msgspec.json.encode({"ranks": results}).decode())
        return 0
    table = Table(title="microseconds of the hook at the end of a step (min / median / max)")
    for heading in ("", "without", "between", "a collective more", f"of a step, every {_DEFAULT_STEPS}"):
        table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
    for result in results:
        numbers = (str(result.hook), str(result.between), str(result.collective), f"{result.of_a_step:.2f}")
        table.add_row(result.clock, *numbers)
    Console(width=140).print(table)
    return 0


def _measure(pairs: int, steps: int) -> list[Result]:
    bin_directory = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as scratch:
        ranks = ("--worker_num=2", "--local_worker_num=2", "--join=True", f"--master_port={_PORT}")
        done = subprocess.run(
            [
                *(str(bin_directory / "msrun"), *ranks, f"--log_dir={scratch}/logs"),
                *(str(_SCRIPT), str(_EVERY), str(pairs), str(steps), scratch),
            ],
            check=False,
            cwd=scratch,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "PATH": f"{bin_directory}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        result = Path(scratch, "result.json")
        if done.returncode or not result.exists():
            log = Path(scratch, "logs", "worker_0.log")
            said = log.read_text(errors="replace")[-2000:] if log.exists() else ""
            raise SystemExit(f"bench ranks: the ranks ended with exit code {done.returncode}: {said}")
        rows = json.loads(result.read_text())
    found = []
    for number, clock in enumerate(("by the clock", "processor time")):
        more = spread([row["collective"][number] - row["between"][number] for row in rows])
        hook, between = (spread([row[name][number] for row in rows]) for name in ("without", "between"))
        found.append(Result(clock, hook, between, more, more.median / _DEFAULT_STEPS))
    return found
