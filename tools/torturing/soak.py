"""A long training, recorded, followed and shown: does anything grow, and is every value there at the end.

MindSpore trains at 250 steps a second with the callback and the monitor: in 24 minutes as many as a step of a second
makes in two hours at 50 times its speed. `convert --follow` follows its files, and a TensorBoard with the plugin shows
all and is asked every few seconds. Memory, descriptors, threads and processes of each are measured all the while.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from tensorboard_api import TensorBoardClient, running_tensorboard

from ms_summary_bridge import read_scalars, verify_logdirs
from ms_summary_bridge.monitor.sinks.journal import read_journal
from torturing.report import Row

NAME = "soak"

PACE = 250.0
_LOOK_SECS = 5.0
_START_SECS = 90.0
"""Of the budget, for the start and the accounts."""
_MIB = 1 << 20
_GROWTH_MIB = 12.0
"""What memory may grow by between the middle and the last third, beside a twentieth of it."""
_COUNTS = 2
"""What descriptors, threads and processes may differ by: one comes and goes with a look."""
_PAGES = ("run?key={0}", "series?key={0}&tag=loss/auto", "ranks?key={0}&tag=loss/auto", "metric?tag=loss/auto")


@dataclass
class Watched:
    """A process with all that it started, looked at again and again."""

    name: str
    pid: int
    memory: list[float] = field(default_factory=list)
    counts: dict[str, list[int]] = field(default_factory=lambda: {"descriptors": [], "threads": [], "processes": []})

    def look(self) -> None:
        memory, found = 0.0, {"descriptors": 0, "threads": 0, "processes": 0}
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self.pid)
            for process in (top, *top.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    memory += process.memory_info().rss / _MIB
                    found["descriptors"] += process.num_fds()
                    found["threads"] += process.num_threads()
                    found["processes"] += 1
        if found["processes"]:
            self.memory.append(memory)
            for what, count in found.items():
                self.counts[what].append(count)

    def row(self) -> Row:
        """Says whether the last third of the time was as the one before."""
        row = Row(f"{self.name}: memory, descriptors, threads, processes flat", tried=len(self.memory))
        third = len(self.memory) // 3
        if third < 3:
            row.fault(f"{self.name}: only {len(self.memory)} looks: give it more minutes")
            return row
        middle, last = (statistics.median(self.memory[start : start + third]) for start in (third, 2 * third))
        text = f"{self.name}: memory {middle:.0f} MiB in the middle third, {last:.0f} MiB in the last"
        for what, counts in self.counts.items():
            before, after = statistics.median(counts[third : 2 * third]), statistics.median(counts[-third:])
            text += f", {what} {before:g} and {after:g}"
            if after > before + _COUNTS:
                row.fault(f"{self.name}: {what} {before:g} in the middle third, {after:g} in the last")
        print(text, file=sys.stderr)
        if last > middle * 1.05 + _GROWTH_MIB:
            row.fault(text)
        return row


def run(budget_seconds: float, out: Path, pace: float = PACE) -> list[Row]:
    """Trains for most of the budget."""
    seconds = max(20.0, budget_seconds - _START_SECS)
    (out / "logs").mkdir()
    script = Path(__file__).parent / "train_soak.py"
    root = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": root, "XDG_CACHE_HOME": str(out / "cache")}
    programs = {
        "training": [sys.executable, script, out / "logs", seconds, pace],
        "follow": [
            sys.executable,
            "-m",
            "ms_summary_bridge",
            "convert",
            out / "logs" / "summary",
            out / "followed",
            "--follow",
        ],
    }
    os.environ["XDG_CACHE_HOME"] = environment["XDG_CACHE_HOME"]
    with contextlib.ExitStack() as stack:
        started = {}
        for name, words in programs.items():
            log = stack.enter_context((out / f"{name}.log").open("wb"))
            started[name] = subprocess.Popen(
                [str(word) for word in words],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=out,
            )
            stack.callback(_end, started[name])
            while name == "training" and not (out / "logs" / "summary").exists() and started[name].poll() is None:
                time.sleep(0.1)
        client = stack.enter_context(running_tensorboard(out / "logs", out / "tensorboard.log"))
        (board,) = (
            process
            for process in psutil.Process().children()
            if any("tensorboard.main" in word for word in process.cmdline())
        )
        watched = [Watched(name, process.pid) for name, process in started.items()]
        watched.append(Watched("TensorBoard with the plugin", board.pid))
        asked = Row("questions to the plugin's page while all is written")
        while started["training"].poll() is None:
            for one in watched:
                one.look()
            _ask(client, asked)
            time.sleep(_LOOK_SECS)
        code = started["training"].wait()
        steps = np.fromfile(out / "logs" / "losses", "<f4") if code == 0 else np.zeros(0, "<f4")
        ended = Row("every value is there at the end", tried=len(steps))
        if code:
            ended.fault(f"the training ended with {code}: {_tail(out / 'training.log')}")
        else:
            _account_for(steps, out, client, started["follow"], ended)
    print(f"{len(steps):,} steps in {seconds:.0f} s, {len(steps) / seconds:.0f} a second", file=sys.stderr)
    return [*(one.row() for one in watched), asked, ended]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(30)
        process.kill()
    process.wait()


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-300:]


def _ask(client: TensorBoardClient, row: Row) -> None:
    rows = client.get_json("data/plugin/mindspore/runs")["rows"]
    for page in (page.format(urllib.parse.quote(one["key"])) for one in rows for page in _PAGES):
        row.tried += 1
        try:
            client.get(f"data/plugin/mindspore/{page}")
        except OSError as error:  # an HTTPError is one; 404 before the run is known
            if getattr(error, "code", 0) == 404:
                row.counted += 1
            else:
                row.fault(f"{page}: {error}")


def _account_for(
    losses: np.ndarray, out: Path, client: TensorBoardClient, follow: subprocess.Popen[bytes], row: Row
) -> None:
    """Looks for each loss, bit for bit, in each place that should have it."""
    wanted = dict(enumerate(losses.tolist(), 1))
    _expect_losses("the callback's summary files", out / "logs" / "summary", wanted, row)
    _expect_losses("the callback's TensorBoard files", out / "logs" / "live", wanted, row)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            if verify_logdirs(out / "logs" / "summary", out / "followed").is_equal:
                break
        time.sleep(1)
    _end(follow)
    verification = verify_logdirs(out / "logs" / "summary", out / "followed")
    if not verification.is_equal:
        row.fault("verify: what --follow wrote is another log than its source")
    _expect_losses("what --follow wrote", out / "followed", wanted, row)
    samples = [
        line for line in read_journal(out / "logs" / "monitor" / "soak" / "run" / "rank_0") if line["kind"] == "sample"
    ]
    counted = sum(sample["interval_steps"] for sample in samples)
    if counted != len(losses):
        row.fault(f"the journal's samples are about {counted} steps", lost=abs(len(losses) - counted))
    total = sum(sample["mean"]["loss"] * sample["interval_steps"] for sample in samples)
    if abs(total - float(losses.astype("f8").sum())) > 1e-6 * max(1.0, abs(total)):
        row.fault(f"the journal's means of the loss come to {total}, the training's losses to {losses.sum()}")

    def shown() -> int:
        rows = json.loads(client.get("data/plugin/mindspore/runs"))["rows"]
        return max((one["loss"] or {}).get("count", 0) for one in rows) if rows else 0

    deadline = time.monotonic() + 60
    while shown() != len(losses) and time.monotonic() < deadline:
        time.sleep(1)
    if shown() != len(losses):
        row.fault(f"the page counts {shown()} losses", lost=abs(len(losses) - shown()))


def _expect_losses(where: str, directory: Path, wanted: dict[int, float], row: Row) -> None:
    table = read_scalars(directory)
    tags = [tag for tag in dict.fromkeys(table.tag.tolist()) if tag.startswith("loss") and "scale" not in tag]
    found: dict[int, float] = {}
    doubled = 0
    for tag in tags[:1]:
        steps, values = table.series(tag)
        found = dict(zip(steps.tolist(), values.tolist(), strict=True))
        doubled = len(steps) - len(found)
    wrong = sum(found.get(step) != value for step, value in wanted.items()) + len(found.keys() - wanted.keys())
    if wrong or doubled:
        row.fault(f"{where} ({tags}): {wrong} losses are missing or other ones, {doubled} are doubled", lost=wrong)
    if table.problems:
        row.fault(f"{where}: {table.problems[:3]}")
