"""Peak memory of `convert`, of a large file against a small one.

Both files hold the same mix of scalars, histograms and images; each is converted by a process of its own. Memory
must not grow with the file, so the difference of the two peaks has a bound.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.summary_files import mixed_summaries, write_summary_file

NAME = "memory"

_MIB = 1 << 20
_LIMIT_MIB = 60


class Result(msgspec.Struct):
    """The peak of one conversion."""

    file_mib: float
    events: int
    peak_mib: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--small-mib", type=int, default=10, help="size of the small file (default 10)")
    parser.add_argument("--large-mib", type=int, default=1024, help="size of the large file (default 1024)")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when the difference is above the limit."""
    summaries = mixed_summaries()
    results: list[Result] = []
    for size in (arguments.small_mib, arguments.large_mib):
        with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
            source = Path(scratch) / "source"
            events = write_summary_file(source, summaries, size=size * _MIB)
            results.append(Result(size, events, _measure(source, Path(scratch) / "output") / _MIB))
    growth = results[1].peak_mib - results[0].peak_mib
    is_met = growth <= _LIMIT_MIB
    if arguments.json:
        outcome = {"memory": results, "growth_mib": growth, "limit_mib": _LIMIT_MIB, "is_met": is_met}
        print(msgspec.json.encode(outcome).decode())
        return 0 if is_met else 1
    table = Table(title="convert: peak resident memory, scalars, histograms and images mixed")
    for heading in ("file MiB", "events", "peak MiB"):
        table.add_column(heading, justify="right")
    for result in results:
        table.add_row(f"{result.file_mib:g}", f"{result.events:,}", f"{result.peak_mib:.1f}")
    console = Console()
    console.print(table)
    console.print(f"difference {growth:.1f} MiB, limit {_LIMIT_MIB} MiB: {'met' if is_met else 'MISSED'}")
    return 0 if is_met else 1


def _measure(source: Path, destination: Path) -> int:
    """Converts in a process of its own and returns its peak in bytes."""
    roots = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent.parent)]
    program = (
        f"import sys; sys.path[:0] = {roots!r}; from benchmarks.memory import convert_here; convert_here(*sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, str(source), str(destination)]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def convert_here(source: str, destination: str) -> None:
    """Converts in this process and prints its peak resident memory in bytes."""
    from ms_summary_bridge.convert.logdir import convert_logdir

    report = convert_logdir(source, destination, to="tensorboard", workers=1)
    if any(converted.failed for converted in report.runs):
        raise SystemExit(f"not converted: {[converted.failed for converted in report.runs]}")
    print(_peak_bytes())


def _peak_bytes() -> int:
    """Returns the peak of this program alone: Linux's ru_maxrss may still hold that of the one which started it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
