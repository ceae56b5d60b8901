"""Peak memory of `convert`, of a large file against a small one, for each kind of value.

Both files hold the same values again and again; each is converted by a process of its own. Memory must not grow with
the file, so the difference of the two peaks has a bound.
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

from benchmarks.summary_files import (
    histogram_summaries,
    image_summaries,
    mixed_summaries,
    scalar_summaries,
    tensor_summaries,
    write_scalar_log,
    write_summary_file,
)

NAME = "memory"

_MIB = 1 << 20
_LIMIT_MIB = 60
_KINDS = {
    "mixed": mixed_summaries,
    "scalars": lambda: scalar_summaries(1),
    "histograms": histogram_summaries,
    "images": lambda: image_summaries((468,), 8),
    "tensors": tensor_summaries,
}
_LOG = "scalars of TensorBoard"


class Result(msgspec.Struct):
    """The peak of one conversion."""

    kind: str
    file_mib: float
    events: int
    peak_mib: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--small-mib", type=int, default=10, help="size of the small file (default 10)")
    parser.add_argument("--large-mib", type=int, default=1024, help="size of the large file (default 1024)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the kinds whose name holds TEXT")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when a difference is above the limit."""
    results: list[Result] = []
    growth: dict[str, float] = {}
    for kind in (*_KINDS, _LOG):
        if arguments.only in kind:
            small, large = (_measure_file(kind, size) for size in (arguments.small_mib, arguments.large_mib))
            results += [small, large]
            growth[kind] = large.peak_mib - small.peak_mib
    is_met = all(mib <= _LIMIT_MIB for mib in growth.values())
    if arguments.json:
        outcome = {"memory": results, "growth_mib": growth, "limit_mib": _LIMIT_MIB, "is_met": is_met}
        print(msgspec.json.encode(outcome).decode())
        return 0 if is_met else 1
    table = Table(title=f"convert: peak resident memory in MiB; it may grow by {_LIMIT_MIB}")
    for heading in ("values", "file", "events", "peak", "grows by", ""):
        table.add_column(heading, justify="left" if heading in ("values", "") else "right")
    for small, large in zip(results[::2], results[1::2], strict=True):
        table.add_row(small.kind, f"{small.file_mib:g}", f"{small.events:,}", f"{small.peak_mib:.1f}")
        grows = growth[small.kind]
        verdict = "met" if grows <= _LIMIT_MIB else "MISSED"
        table.add_row("", f"{large.file_mib:g}", f"{large.events:,}", f"{large.peak_mib:.1f}", f"{grows:.1f}", verdict)
    Console().print(table)
    return 0 if is_met else 1


def _measure_file(kind: str, mib: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        source = Path(scratch) / "source"
        if kind == _LOG:
            events = mib * _MIB // 49  # bytes of its records, about
            write_scalar_log(source, events=events)
        else:
            events = write_summary_file(source, _KINDS[kind](), size=mib * _MIB)
        to = "mindinsight" if kind == _LOG else "tensorboard"
        return Result(kind, mib, events, _measure(source, Path(scratch) / "output", to) / _MIB)


def _measure(source: Path, destination: Path, to: str) -> int:
    """Converts in a process of its own and returns its peak in bytes."""
    roots = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent.parent.parent)]
    program = (
        f"import sys; sys.path[:0] = {roots!r}; from benchmarks.memory import convert_here; convert_here(*sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, str(source), str(destination), to]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def convert_here(source: str, destination: str, to: str) -> None:
    """Converts in this process and prints its peak resident memory in bytes."""
    from ms_summary_bridge.convert.logdir import convert_logdir

    report = convert_logdir(source, destination, to=to, workers=1)
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
