"""Speed of `convert`, and of reading into arrays, against what people use today.

All legs are whole processes, start-up included, which run in turn: ours, then each peer, and again. Ours is the command
`convert --workers 1`, which verifies both checksums of every record and makes new ones, watches repeats and restarts,
keeps an archive and saves its state; for arrays it is `read_scalars`.

The peers: the loop that people write by hand (records without a look at their checksums, protobuf's message classes
under upb, tensorboardX's SummaryWriter); `mindinsight parse_summary`, in MindInsight's environment; TensorBoard's
EventFileLoader, which merely reads, its EventAccumulator, and its Rust data server until it has loaded all, checksums
verified; tbparse; `cp`. A peer that is not installed is left out, and named.

A ratio says how many times as long a peer takes. Of `cp` it is that of wall time, with `sync` on both sides; of all
others that of processor time, which a busy machine disturbs less. The median is held against the target.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.chart import draw_chart
from benchmarks.measure import Seconds, Spread, measure_process, spread
from benchmarks.summary_files import (
    histogram_summaries,
    image_summaries,
    scalar_summaries,
    write_scalar_log,
    write_summary_file,
)

NAME = "convert"

_TOOLS = Path(__file__).resolve().parent.parent
_MINDINSIGHT = Path(os.environ.get("MSB_VENVS") or _TOOLS.parent / ".venvs", "mindinsight", "bin", "mindinsight")
_LOADED = "Finished load cycle"  # what the data server says


class Peer(msgspec.Struct, frozen=True):
    """One program that does the same, or less.

    Attributes:
        name: Name in the table.
        leg: What `_command` knows it by.
        target: How many times as long as ours it is to take; 0 for information only.
        is_wall: Whether wall time counts.
        source: Name of the directory it reads.
    """

    name: str
    leg: str
    target: float = 0.0
    is_wall: bool = False
    source: str = "source"


class Case(msgspec.Struct, frozen=True):
    """One kind of log.

    Attributes:
        name: Name in the table.
        make: Writes the inputs below a directory, for so many events.
        events: How many.
        values: How many values each holds.
        kind: Their kind.
        to: The target format; empty where the log is read into arrays.
        peers: Who is measured beside us.
        syncs: Whether both sides wait for the disk.
        is_large: Whether it is measured with `--large` alone.
    """

    name: str
    make: Callable[[Path, int], None]
    events: int
    peers: tuple[Peer, ...]
    values: int = 1
    kind: str = "scalar"
    to: str = "tensorboard"
    syncs: bool = False
    is_large: bool = False


def _make_scalars(values: int, room: Path, events: int) -> None:
    write_summary_file(room / "source", scalar_summaries(values), events=events)
    write_scalar_log(room / "log", events=events)


def _make_histograms(room: Path, events: int) -> None:
    write_summary_file(room / "source", histogram_summaries(), events=events)


def _make_images(room: Path, events: int) -> None:
    write_summary_file(room / "source", image_summaries((468,), 8), events=events)


def _make_log(room: Path, events: int) -> None:
    write_scalar_log(room / "source", events=events)


_NAIVE = "loop by hand"
_SERVER = Peer("Rust data server", "server", 1.5, source="log")
_ONE = (Peer(_NAIVE, "naive_loop", 40), Peer("parse_summary", "parse_summary", 8), _SERVER)
_FIVE = (Peer(_NAIVE, "naive_loop", 60),)
_ARRAYS = (Peer("EventAccumulator", "event_accumulator", 15), Peer("tbparse", "tbparse", 15))

CASES = (
    Case("scalars, 1 an event", partial(_make_scalars, 1), 300_000, _ONE),
    Case("scalars, 5 an event", partial(_make_scalars, 5), 60_000, _FIVE, values=5),
    Case("3,000,000 scalars, 1 an event", partial(_make_scalars, 1), 3_000_000, _ONE, is_large=True),
    Case("3,000,000 scalars, 5 an event", partial(_make_scalars, 5), 600_000, _FIVE, values=5, is_large=True),
    Case("histograms of 90 buckets", _make_histograms, 100_000, (Peer(_NAIVE, "naive_loop", 6),), kind="histogram"),
    Case("images of 500 KB", _make_images, 500, (Peer("cp", "copy", 0.7, is_wall=True),), kind="image", syncs=True),
    Case(
        "TensorBoard to MindSpore",
        _make_log,
        300_000,
        (Peer("EventFileLoader", "event_file_loader", 20),),
        to="mindinsight",
    ),
    Case("TensorBoard to arrays", _make_log, 300_000, _ARRAYS, to=""),
)


class Result(msgspec.Struct):
    """What was measured of one case and peer."""

    case: str
    values: int
    peer: str
    target: float
    counts: str
    """Which of the ratios is held against the target: `cpu` or `wall`."""
    cpu_ratio: Spread
    wall_ratio: Spread
    ours: Seconds
    """Medians."""
    theirs: Seconds
    is_met: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--pairs", type=int, default=9, help="how often each leg runs (default 9)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases whose name holds TEXT")
    parser.add_argument("--peer", default="", metavar="TEXT", help="only the peers whose name holds TEXT")
    parser.add_argument("--large", action="store_true", help="also 3,000,000 scalars, where start-up no longer counts")
    parser.add_argument("--quick", action="store_true", help="tiny files, 2 pairs, no verdict: does it run at all?")
    parser.add_argument(
        "--mindinsight",
        type=Path,
        default=_MINDINSIGHT,
        metavar="PROGRAM",
        help="the program `mindinsight`; `tools/environment mindinsight` makes the one that is found by itself",
    )
    parser.add_argument("--chart", type=Path, metavar="FILE.svg", help="also draw the ratios")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown, as docs/speed.md has it")
    parser.add_argument(
        "--from",
        dest="measured",
        type=Path,
        metavar="FILE.json",
        help="print what --json gave earlier; measure nothing",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when a target is missed."""
    results = _measure_cases(arguments) if arguments.measured is None else _load(arguments.measured)
    if arguments.json:
        print(msgspec.json.encode({"convert": results}).decode())
    elif arguments.markdown:
        print(markdown_table(results))
    else:
        _print_results(results, is_judged=not arguments.quick)
    if arguments.chart:
        arguments.chart.write_text(draw_chart(results), encoding="utf-8")
    return 0 if arguments.quick or all(result.is_met for result in results) else 1


def _measure_cases(arguments: argparse.Namespace) -> list[Result]:
    console = Console(stderr=True)
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for case in CASES:
            is_wanted = arguments.only in case.name and any(arguments.peer in peer.name for peer in case.peers)
            if is_wanted and (arguments.large or not case.is_large):
                room = Path(scratch) / "case"
                results += _Measurement(case, room, arguments, console).run()
                shutil.rmtree(room)
    return results


def _load(path: Path) -> list[Result]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, list[Result]])["convert"]


class _Measurement:
    """One case: its inputs, and the commands that are measured."""

    def __init__(self, case: Case, room: Path, arguments: argparse.Namespace, console: Console) -> None:
        self._case = case
        self._room = room
        self._mindinsight: Path = arguments.mindinsight
        self._peer: str = arguments.peer
        self._pairs = 2 if arguments.quick else max(arguments.pairs, 1)
        self._events = max(case.events // 1000, 20) if arguments.quick else case.events
        self._values = self._events * case.values
        self._console = console
        self._env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (_TOOLS.parent, _TOOLS))), "HOME": str(room)}

    def run(self) -> list[Result]:
        """Measures the case."""
        case, console = self._case, self._console
        console.print(f"{case.name}: {self._values} values")
        case.make(self._room, self._events)
        peers = []
        for peer in case.peers:
            if lacks := self._lacks(peer.leg):
                console.print(f"  {lacks}")
            elif self._peer in peer.name:
                peers.append(peer)
        ours: list[Seconds] = []
        theirs: dict[str, list[Seconds]] = {peer.name: [] for peer in peers}
        for number in range(self._pairs):
            ours.append(self._measure("ours" if case.to else "ours_read"))
            for peer in peers:
                theirs[peer.name].append(self._measure(peer.leg, peer.source))
            times = ", ".join(f"{name} {seconds[-1].cpu:.2f}" for name, seconds in theirs.items())
            console.print(f"  round {number + 1}: CPU seconds: ours {ours[-1].cpu:.2f}, {times}")
        return [self._result(peer, ours, theirs[peer.name]) for peer in peers]

    def _lacks(self, leg: str) -> str:
        """Returns what is missing for a leg."""
        if leg == "parse_summary" and not self._mindinsight.is_file():
            return f"left out: {self._mindinsight} is not there; `tools/environment mindinsight` makes it"
        packages = {"server": "tensorboard_data_server", "tbparse": "tbparse", "naive_loop": "tensorboardX"}
        package = packages.get(leg, "tensorboard" if leg.startswith("event_") else "sys")
        return "" if importlib.util.find_spec(package) else f"left out: {package} is not installed"

    def _command(self, leg: str, source: Path, destination: Path) -> list[str]:
        if leg == "ours":
            program = [sys.executable, "-m", "ms_summary_bridge", "convert", str(source), str(destination), "--quiet"]
            return [*program, "--workers", "1", "--to", self._case.to, "--report", str(self._room / "report.json")]
        if leg == "parse_summary":
            program = [str(self._mindinsight), "parse_summary"]
            return [*program, "--summary-dir", str(source), "--output", str(destination)]
        if leg == "server":
            from tensorboard_data_server import server_binary

            options = ["--reload", "once", "--checksum", "--die-after-stdin", "--port", "0", "-vv"]
            return [server_binary(), "--logdir", str(source), "--samples-per-plugin", "scalars=all", *options]
        if leg == "copy":
            return ["cp", "-r", str(source), str(destination)]
        out = [str(destination)] if leg == "naive_loop" else []
        return [sys.executable, str(_TOOLS / "benchmarks" / "peers.py"), leg, str(source), *out]

    def _measure(self, leg: str, source: str = "source") -> Seconds:
        destination = self._room / "output"
        if leg == "parse_summary":
            destination.mkdir()
        command = self._command(leg, self._room / source, destination)
        if self._case.syncs:
            command = ["sh", "-c", '"$@" && find "$0" -type f -exec sync {} +', str(destination), *command]
        seconds, output = measure_process(command, self._env, until=_LOADED if leg == "server" else "")
        self._check(leg, output, destination)
        shutil.rmtree(destination, ignore_errors=True)
        return seconds

    def _check(self, leg: str, output: str, destination: Path) -> None:
        """Ends the measuring where a leg did not do its work."""
        if leg == "ours":
            report = msgspec.json.decode((self._room / "report.json").read_bytes())
            found = sum(run["values"].get(self._case.kind, 0) for run in report["runs"])
        elif leg == "parse_summary":
            (table,) = destination.rglob("scalar.csv")
            found = table.read_text().count("\n") - 1
        elif leg == "server":
            found = self._values if re.search(r"Finished load for run \"\.\"", output) else 0
        elif leg == "copy":
            found = self._values if [*destination.rglob("*_MS")] else 0
        else:
            found = int(output.split()[-1])
        if found != self._values:
            raise AssertionError(f"{self._case.name}, {leg}: {found} of {self._values} values")

    def _result(self, peer: Peer, ours: list[Seconds], theirs: list[Seconds]) -> Result:
        cpu = spread([their.cpu / our.cpu for our, their in zip(ours, theirs, strict=True)])
        wall = spread([their.wall / our.wall for our, their in zip(ours, theirs, strict=True)])
        return Result(
            case=self._case.name,
            values=self._values,
            peer=peer.name,
            target=peer.target,
            counts="wall" if peer.is_wall else "cpu",
            cpu_ratio=cpu,
            wall_ratio=wall,
            ours=_median(ours),
            theirs=_median(theirs),
            is_met=(wall if peer.is_wall else cpu).median >= peer.target,
        )


def _median(seconds: list[Seconds]) -> Seconds:
    return Seconds(spread([each.wall for each in seconds]).median, spread([each.cpu for each in seconds]).median)


def markdown_table(results: list[Result]) -> str:
    """Returns the table of docs/speed.md."""
    lines = [
        "| case | against | min | median | max | target | ours, s | theirs, s |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for result in results:
        ratio = result.wall_ratio if result.counts == "wall" else result.cpu_ratio
        numbers = (f"{ratio.min:.3g}", f"{ratio.median:.3g}", f"{ratio.max:.3g}")
        target = f"{result.target:g}{'' if result.is_met else ', missed'}" if result.target else ""
        ours, theirs = (getattr(leg, result.counts) for leg in (result.ours, result.theirs))
        cells = (result.case, result.peer, *numbers, target, f"{ours:.2f}", f"{theirs:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _print_results(results: list[Result], *, is_judged: bool) -> None:
    table = Table(title="how many times as long as ours a peer takes: min / median / max")
    for heading in ("case", "peer", "of CPU time", "of wall time", "target", "ours CPU s", "theirs CPU s", ""):
        table.add_column(heading, justify="left" if heading in ("case", "peer", "") else "right")
    for result in results:
        verdict = "" if not result.target or not is_judged else "met" if result.is_met else "MISSED"
        table.add_row(
            result.case,
            result.peer,
            str(result.cpu_ratio),
            str(result.wall_ratio),
            f"{result.target:g} {result.counts}" if result.target else "-",
            f"{result.ours.cpu:.2f}",
            f"{result.theirs.cpu:.2f}",
            verdict,
        )
    Console().print(table)
