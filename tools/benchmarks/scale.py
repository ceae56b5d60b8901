"""How `convert` grows: many runs, and files from small to large.

1,000 runs of 100 KB each are to be converted in 20 seconds, with as many workers as there are cores. The time for one
file is to grow as its size does: start-up taken off, a MiB of one size may cost half as much again as a MiB of another.

Processor time is judged, since a busy machine disturbs it less: that of the runs as spread over two cores. Wall time is
printed beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Seconds, measure_process
from benchmarks.summary_files import mixed_summaries, scalar_summaries, write_summary_file

NAME = "scale"

_ROOT = Path(__file__).resolve().parents[2]
_MIB = 1 << 20
_RUN_BYTES = 100_000
_RUNS_SECS = 20.0
_MOST_GROWTH = 1.5
_CORES = 2


class Size(msgspec.Struct):
    """What one file took."""

    mib: int
    wall: float
    cpu: float
    cpu_per_mib: float
    """Milliseconds, start-up taken off."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--runs", type=int, default=1000, help="runs of 100 KB (default 1000)")
    parser.add_argument(
        "--mib",
        type=int,
        nargs="*",
        default=[10, 100, 1000, 5000],
        metavar="N",
        help="sizes of the files (default 10 100 1000 5000); the largest needs twice its size of disk",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when a target is missed."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        runs = _measure_runs(Path(scratch), arguments.runs)
        sizes = _measure_sizes(Path(scratch), arguments.mib)
    fair_secs = runs.cpu / _CORES
    growth = max((size.cpu_per_mib for size in sizes), default=1) / min((s.cpu_per_mib for s in sizes), default=1)
    is_met = fair_secs <= _RUNS_SECS and growth <= _MOST_GROWTH
    if arguments.json:
        outcome = {"runs": runs, "sizes": sizes, "growth": growth, "is_met": is_met}
        print(msgspec.json.encode({"scale": outcome}).decode())
        return 0 if is_met else 1
    console = Console()
    console.print(
        f"{arguments.runs} runs of 100 KB: {runs.wall:.1f} s, {runs.cpu:.1f} s of processor time, which is "
        f"{fair_secs:.1f} s on {_CORES} free cores (target {_RUNS_SECS:g})"
    )
    table = Table(title="scalars, histograms and images mixed, one file")
    for heading in ("MiB", "wall s", "CPU s", "CPU ms/MiB"):
        table.add_column(heading, justify="right")
    for size in sizes:
        table.add_row(f"{size.mib:,}", f"{size.wall:.2f}", f"{size.cpu:.2f}", f"{size.cpu_per_mib:.2f}")
    console.print(table)
    console.print(f"most against least: {growth:.2f} (at most {_MOST_GROWTH:g}): {'met' if is_met else 'MISSED'}")
    return 0 if is_met else 1


def _measure_runs(scratch: Path, count: int) -> Seconds:
    source = scratch / "runs"
    write_summary_file(source / "0", scalar_summaries(1), size=_RUN_BYTES)
    (first,) = (source / "0").iterdir()
    for number in range(1, count):
        (source / f"{number}").mkdir()
        shutil.copy(first, source / f"{number}")
    taken = _convert(source, scratch / "output")
    made = sum(1 for _ in (scratch / "output").glob("*/*tfevents*"))
    if made != count:
        raise AssertionError(f"{made} of {count} runs were converted")
    shutil.rmtree(source)
    shutil.rmtree(scratch / "output")
    return taken


def _measure_sizes(scratch: Path, sizes: list[int]) -> list[Size]:
    summaries = mixed_summaries()
    write_summary_file(scratch / "least", summaries[:1], events=1)
    start = min((_convert(scratch / "least", scratch / f"start{n}") for n in range(5)), key=lambda taken: taken.cpu)
    found = []
    for mib in sizes:
        source, output = scratch / "source", scratch / "output"
        write_summary_file(source, summaries, size=mib * _MIB)
        # A small one is measured oftener, since its time is the more disturbed.
        best = min((_convert(source, output, again=True) for _ in range(5 if mib <= 100 else 1)), key=lambda t: t.cpu)
        found.append(Size(mib, best.wall, best.cpu, (best.cpu - start.cpu) * 1000 / mib))
        shutil.rmtree(source)
        shutil.rmtree(output)
    return found


def _convert(source: Path, output: Path, *, again: bool = False) -> Seconds:
    if again and output.exists():
        shutil.rmtree(output)
    command = [sys.executable, "-m", "ms_summary_bridge", "convert", str(source), str(output), "--quiet"]
    return measure_process(command, {**os.environ, "PYTHONPATH": str(_ROOT)})[0]
