"""Trains the network of `train_wide.py` with and without the monitor, in turns; what `bench monitor` measures.

Usage: python train_monitored.py INTERVAL PAIRS STEPS DIRECTORY

Prints one line of JSON: for each pair the median microseconds of a step with and without the monitor, and the median
and mean microseconds that the monitor took of each step on the training thread: in its own hooks, and around those of
the callback beside it. What measuring itself takes, with a callback that does nothing in its place, is taken off.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mindspore.dataset import MindDataset
from mindspore.mindrecord import FileWriter
from mindspore.train import Callback
from train_wide import BATCH, WIDTH, make_training

from ms_summary_bridge.monitor import MindSporeTransformersMonitor

METRICS = ["loss", "lr", "step_time", "samples_per_second", "tokens_per_second", "memory_usage", "global_rank"]
SKIPPED = 10  # first steps of a training: caches fill, threads start
_MICRO = 1e6


class Laps(Callback):
    """Waits for each step, as a callback that prints the loss does, and notes how long it took."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []
        self.secs: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        begun = time.perf_counter()
        run_context.original_args().net_outputs.asnumpy()
        self.ends.append(time.perf_counter())
        self.secs.append(self.ends[-1] - begun)

    @property
    def step(self) -> float:
        """Median microseconds of a step."""
        laps = [after - before for before, after in zip(self.ends, self.ends[1:], strict=False)]
        return _MICRO * statistics.median(laps[SKIPPED:])


class Idle(Callback):
    """Does nothing, in the place of the monitor."""

    def on_train_step_begin(self, run_context: Any) -> None:
        pass

    def on_train_step_end(self, run_context: Any) -> None:
        pass


class Stopwatch(Callback):
    """Times the hooks of the monitor, and those of the laps with all that the monitor has put around them.

    It is the last callback, so that it begins when the monitor has begun.
    """

    def __init__(self, laps: Laps, monitor: Callback) -> None:
        super().__init__()
        self._laps = laps
        self._monitor = monitor
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._around: list[float] = []

    def on_train_begin(self, run_context: Any) -> None:
        for callback, name, spent in (
            (self._monitor, "on_train_step_begin", self._begins),
            (self._monitor, "on_train_step_end", self._ends),
            (self._laps, "on_train_step_end", self._around),
        ):
            setattr(callback, name, timed(getattr(callback, name), spent))

    @property
    def steps(self) -> list[float]:
        """Microseconds of each step that were not the network's, nor the laps' own."""
        around = [outer - inner for outer, inner in zip(self._around, self._laps.secs, strict=True)]
        # The hook at the beginning of a step reads the one before.
        parts = zip(self._begins[1:], self._ends[:-1], around[:-1], strict=True)
        return [_MICRO * sum(part) for part in parts][SKIPPED:]


def timed(hook: Callable[[Any], None], spent: list[float]) -> Callable[[Any], None]:
    """Returns the hook, which then notes how long each call took."""

    def call(run_context: Any) -> None:
        begun = time.perf_counter()
        hook(run_context)
        spent.append(time.perf_counter() - begun)

    return call


def records(directory: Path, steps: int) -> MindDataset:
    """Returns a data set of that many steps, read from files by threads that run no Python.

    One in Python wants its lock at the very moment when a step begins, and then everybody who reads a tensor, as a
    callback that prints the loss does, waits for it up to a millisecond.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = str(directory / "data.mindrecord")
    generator = np.random.default_rng(0)
    writer = FileWriter(path, 1, overwrite=True)
    writer.add_schema({"x": {"type": "float32", "shape": [WIDTH]}, "y": {"type": "int32"}})
    writer.write_raw_data(
        [
            {"x": generator.standard_normal(WIDTH).astype(np.float32), "y": int(generator.integers(0, WIDTH))}
            for _ in range(steps * BATCH)
        ]
    )
    writer.commit()
    return MindDataset(path, ["x", "y"], shuffle=False).batch(BATCH)


def main() -> None:
    """Trains once to compile, then in turns."""
    interval, pairs, steps, directory = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    model, _ = make_training(1)
    data = records(Path(directory), steps)
    section = {
        "interval": interval,
        "backend": ["local"],
        "save_dir": directory,
        "metrics": METRICS,
        "auto_print": False,
        "seq_length": 1,
    }

    def train(callback: Callback) -> tuple[float, float, float]:
        laps = Laps()
        stopwatch = Stopwatch(laps, callback)
        model.train(1, data, callbacks=[laps, callback, stopwatch], dataset_sink_mode=False)
        return laps.step, statistics.median(stopwatch.steps), statistics.fmean(stopwatch.steps)

    train(Idle())
    results = []
    for number in range(pairs):
        monitor = MindSporeTransformersMonitor({**section, "run_id": str(number)})
        with_monitor, median, mean = train(monitor)
        without, idle_median, idle_mean = train(Idle())
        results.append(
            {
                "with": with_monitor,
                "without": without,
                "hooks_median": median - idle_median,
                "hooks_mean": mean - idle_mean,
            }
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
