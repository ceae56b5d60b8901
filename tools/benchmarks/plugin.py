"""The first answer of the TensorBoard plugin's page, against TensorBoard's own loader on the same values.

One run of 1,000,000 scalars: ours is the process that begins to look at the logdir and ends when the page's first
whole answer is there; theirs loads the same values, converted, with the loader of TensorBoard in Python (`--load_fast
false`), as its server does. Both are whole processes in turn; the ratio is that of processor time. Then, in Chromium,
when the page shows its first row with 1,000 runs: see `benchmarks.page`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks import page
from benchmarks.measure import measure_process, spread
from benchmarks.summary_files import scalar_summaries, write_summary_file

NAME = "plugin"

_ROOT = Path(__file__).resolve().parents[2]
_TARGET = 4.0
_JUDGED = 1_000_000  # scalars; with fewer the start of either process would be judged
_JUDGED_RUNS = 1000
_OURS = """
import sys
from msgspec import json
from ms_summary_bridge.tensorboard_plugin.run_collector import RunCollector
collector = RunCollector(sys.argv[1], lambda text: print(text, file=sys.stderr))
answer = collector.describe_all()
while answer["unread"] or not answer["is_known"]:
    collector.wait(60)
    answer = collector.describe_all()
(row,) = map(json.decode, answer["rows"])
print(len(json.encode(collector.describe_one(row["key"]))) and row["last_step"])
"""
_THEIRS = """
import sys
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
multiplexer = EventMultiplexer()
multiplexer.AddRunsFromDirectory(sys.argv[1])
multiplexer.Reload()
(run,) = multiplexer.Runs()
accumulator = multiplexer.GetAccumulator(run)
tags = accumulator.Tags()["tensors"]
print(max(accumulator.Tensors(tag)[-1].step for tag in tags))
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of this benchmark."""
    parser.add_argument("--scalars", type=int, default=1_000_000, help="scalars of the run (default 1000000)")
    parser.add_argument("--runs", type=int, default=1000, help="runs of the page in Chromium (default 1000; 0: none)")
    parser.add_argument("--pairs", type=int, default=5, help="how often each leg runs (default 5)")


def run(arguments: argparse.Namespace) -> int:
    """Measures and prints; returns 1 when the target is missed."""
    env = {**os.environ, "PYTHONPATH": str(_ROOT)}
    console = Console(stderr=True)
    ratios, walls = [], []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        source, log = Path(scratch) / "source", Path(scratch) / "log"
        write_summary_file(source, scalar_summaries(1), events=arguments.scalars)
        program = [sys.executable, "-m", "ms_summary_bridge", "convert", str(source), str(log), "--quiet"]
        measure_process(program, env)
        for number in range(arguments.pairs):
            ours, said = measure_process([sys.executable, "-c", _OURS, str(source)], env)
            theirs, answer = measure_process([sys.executable, "-c", _THEIRS, str(log)], env)
            if not int(said) == int(answer) == arguments.scalars:
                raise AssertionError(f"last steps {said.strip()} and {answer.strip()} of {arguments.scalars}")
            ratios.append(theirs.cpu / ours.cpu)
            walls.append(theirs.wall / ours.wall)
            console.print(f"pair {number + 1}: CPU seconds: ours {ours.cpu:.2f}, TensorBoard {theirs.cpu:.2f}")
    cpu, wall = spread(ratios), spread(walls)
    lacking = page.can_be_measured() if arguments.runs else "no runs were asked for"
    paints = None if lacking else page.measure_paints(arguments.runs, arguments.pairs)
    is_fast = cpu.median >= _TARGET or arguments.scalars < _JUDGED
    is_met = is_fast and (paints is None or paints.is_met or arguments.runs < _JUDGED_RUNS)
    if arguments.json:
        outcome = {"scalars": arguments.scalars, "cpu_ratio": cpu, "wall_ratio": wall, "page": paints, "is_met": is_met}
        print(msgspec.json.encode({"plugin": outcome}).decode())
        return 0 if is_met else 1
    print(f"TensorBoard takes {cpu} times as long in CPU time, {wall} in wall time (min / median / max)")
    print(f"target {_TARGET:g}: {'met' if is_fast else 'MISSED'}")
    if paints is None:
        print(f"the page was not looked at: {lacking}")
        return 0 if is_met else 1
    print(f"first row of {paints.runs} runs, seconds of processor time of server and browser:")
    for name, found in (("the first time", [paints.first]), ("after that", paints.known)):
        walls = spread([one.wall for one in found])
        parts = [statistics.median(part) for part in zip(*((one.server, one.browser) for one in found), strict=True)]
        cpu = spread([one.cpu for one in found])
        print(f"  {name} {cpu}, of the server {parts[0]:.2f}, of the browser {parts[1]:.2f}; wall time {walls}")
    print(f"all rows {paints.answer_bytes:,} bytes, an idle answer {paints.idle_bytes:,} bytes")
    verdict = "met" if paints.is_met else "MISSED"
    print(f"target {page.TARGET_SECS:g} s and {page.TARGET_IDLE_BYTES:,} bytes: {verdict}")
    return 0 if is_met else 1
