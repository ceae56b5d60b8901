"""Processor time of a follower: at rest beside many runs, and while one of them grows.

A follower runs in a process of its own; what the system has counted for it is read at the begin and the end of a span.
At rest it must take less than one percent of a core.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
from rich.console import Console
from rich.table import Table

NAME = "follow"

_LIMIT_PERCENT = 1.0
_GROWS_EVERY_SECS = 0.5
_TAGS = 20


class Share(msgspec.Struct):
    """What a follower took of one core over a span."""

    what: str
    percent: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--runs", type=int, default=100, help="runs in the source (default 100)")
    parser.add_argument("--secs", type=float, default=20.0, help="length of each span (default 20)")
    parser.add_argument("--warm-up", type=float, default=8.0, help="seconds before the first span (default 8)")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when the follower at rest is above the limit."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        shares = _measure(Path(scratch), arguments.runs, arguments.secs, arguments.warm_up)
    is_met = shares[0].percent <= _LIMIT_PERCENT
    if arguments.json:
        outcome = {"follow": shares, "runs": arguments.runs, "limit_percent": _LIMIT_PERCENT, "is_met": is_met}
        print(msgspec.json.encode(outcome).decode())
        return 0 if is_met else 1
    table = Table(title=f"convert --follow: processor time beside {arguments.runs} runs of {_TAGS} tags")
    table.add_column("source")
    table.add_column("% of a core", justify="right")
    for share in shares:
        table.add_row(share.what, f"{share.percent:.2f}")
    console = Console()
    console.print(table)
    console.print(f"at rest, limit {_LIMIT_PERCENT:g} %: {'met' if is_met else 'MISSED'}")
    return 0 if is_met else 1


def _measure(scratch: Path, runs: int, secs: float, warm_up: float) -> list[Share]:
    from ms_summary_bridge.convert.logdir import convert_logdir

    source, destination = scratch / "source", scratch / "output"
    for number in range(runs):
        _write(source / f"run{number}", range(50))
    convert_logdir(str(source), str(destination))
    program = "import sys; sys.path[:0] = [sys.argv.pop(1)]; from ms_summary_bridge.cli import main; sys.exit(main())"
    root = str(Path(__file__).resolve().parent.parent.parent)
    command = [sys.executable, "-c", program, root, "convert", str(source), str(destination), "--follow", "--quiet"]
    follower = subprocess.Popen(command)
    try:
        time.sleep(warm_up)
        at_rest = _share(follower.pid, secs, lambda count: None)
        growing = _share(follower.pid, secs, lambda count: _write(source / "run0", range(50 + count, 51 + count)))
    finally:
        follower.terminate()
        follower.wait()
    return [Share("at rest", at_rest), Share("one run grows twice a second", growing)]


def _share(pid: int, secs: float, grow: Callable[[int], None]) -> float:
    process = psutil.Process(pid)
    before, begun = process.cpu_times(), time.monotonic()
    count = 0
    while time.monotonic() - begun < secs:
        grow(count)
        count += 1
        time.sleep(min(_GROWS_EVERY_SECS, max(0.0, begun + secs - time.monotonic())))
    after, ended = process.cpu_times(), time.monotonic()
    return 100 * (after.user + after.system - before.user - before.system) / (ended - begun)


def _write(directory: Path, steps: range) -> None:
    """Appends scalars to the summary file of a run, which is begun if it is missing."""
    from ms_summary_bridge.events import Event, FileVersion, Summary, TaggedValue
    from ms_summary_bridge.files.records import encode_record
    from ms_summary_bridge.formats.mindspore import FILE_VERSION, FORMAT, MindSporeEncoder
    from ms_summary_bridge.values import Scalar

    start = 1_700_000_000
    path = directory / f"events.out.events.summary.{start}.0.host_MS"
    encoder = MindSporeEncoder()
    events = [] if path.exists() else [Event(float(start), 0, FileVersion(FILE_VERSION), FORMAT)]
    for step in steps:
        values = tuple(TaggedValue(f"tag{number}", Scalar.from_float32(step)) for number in range(_TAGS))
        events.append(Event(float(start + step), step, Summary(values), FORMAT))
    directory.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for event in events:
            payload = encoder.encode(event).payload
            assert payload is not None  # both kinds have a place in this format
            file.write(encode_record(payload))
