"""Trains the network of `train_wide.py` with and without the monitor, in turns; what `bench monitor` measures.

Usage: python train_monitored.py INTERVAL PAIRS STEPS DIRECTORY

Prints one line of JSON: for each pair the median microseconds of a step with and without the monitor, and the median
and mean microseconds that the monitor's own hooks took in each step, on the training thread.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from mindspore.train import Callback
from train_wide import make_training

from ms_summary_bridge.monitor import MindSporeTransformersMonitor

METRICS = ["loss", "lr", "step_time", "samples_per_second", "tokens_per_second", "memory_usage", "global_rank"]
SKIPPED = 10  # first steps of a training: caches fill, threads start
_MICRO = 1e6


class Laps(Callback):
    """Waits for each step, as a callback that prints the loss does, and notes how long it took."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_train_step_end(self, run_context: Any) -> None:
        run_context.original_args().net_outputs.asnumpy()
        self.ends.append(time.perf_counter())

    @property
    def step(self) -> float:
        """Median microseconds of a step."""
        laps = [after - before for before, after in zip(self.ends, self.ends[1:], strict=False)]
        return _MICRO * statistics.median(laps[SKIPPED:])


def timed(hook: Callable[[Any], None], spent: list[float]) -> Callable[[Any], None]:
    """Returns the hook, which then notes how long each call took."""

    def call(run_context: Any) -> None:
        begun = time.perf_counter()
        hook(run_context)
        spent.append(time.perf_counter() - begun)

    return call


def main() -> None:
    """Trains once to compile, then in turns."""
    interval, pairs, steps, directory = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    model, dataset = make_training(steps)
    section = {
        "interval": interval,
        "backend": ["local"],
        "save_dir": directory,
        "metrics": METRICS,
        "auto_print": False,
        "seq_length": 1,
    }

    def train(*callbacks: Callback) -> float:
        laps = Laps()
        model.train(1, dataset(steps), callbacks=[laps, *callbacks], dataset_sink_mode=False)
        return laps.step

    train()
    results = []
    for number in range(pairs):
        monitor = MindSporeTransformersMonitor({**section, "run_id": str(number)})
        begins: list[float] = []
        ends: list[float] = []
        monitor.on_train_step_begin = timed(monitor.on_train_step_begin, begins)
        monitor.on_train_step_end = timed(monitor.on_train_step_end, ends)
        with_monitor, without = train(monitor), train()
        hooks = [begin + end for begin, end in zip(begins[1:], ends[:-1], strict=True)][SKIPPED:]
        results.append(
            {
                "with": with_monitor,
                "without": without,
                "hooks_median": _MICRO * statistics.median(hooks),
                "hooks_mean": _MICRO * statistics.fmean(hooks),
            }
        )
    print(json.dumps(results))


if __name__ == "__main__":
    main()
