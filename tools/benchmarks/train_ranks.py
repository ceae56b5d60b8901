"""One rank of trainings with and without values over all ranks, in turns; what `bench ranks` measures.

Usage: msrun ... python train_ranks.py EVERY PAIRS STEPS DIRECTORY

Rank 0 leaves DIRECTORY/result.json: for each pair the median microseconds of the hook at the end of a step, by clock
and by the processor time of the thread that trains, in steps with a collective, in those without one, and in a training
without any.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import nn
from mindspore.communication import get_rank, init
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, Model

from ms_summary_bridge.monitor import MindSporeTransformersMonitor

SKIPPED = 10  # first steps of a training: caches fill, threads start
BATCH = 4
_MICRO = 1e6


class Stopwatch(Callback):
    """Times the hook of the monitor at the end of a step. It comes after the monitor, whose hook it has around it."""

    def __init__(self, monitor: Callback) -> None:
        super().__init__()
        self._monitor = monitor
        self.spent: list[tuple[float, float]] = []

    def on_train_begin(self, run_context: Any) -> None:
        hook = self._monitor.on_train_step_end

        def timed(run_context: Any) -> None:
            run_context.original_args().net_outputs.asnumpy()  # the step itself is not measured
            began, began_cpu = time.perf_counter(), time.thread_time()
            hook(run_context)
            cpu, now = time.thread_time(), time.perf_counter()
            self.spent.append((_MICRO * (now - began), _MICRO * (cpu - began_cpu)))

        self._monitor.on_train_step_end = timed

    def medians(self, every: int, *, is_due: bool) -> tuple[float, float]:
        """Returns the medians, by the clock and of the processor, over steps with a collective or without one."""
        steps = list(enumerate(self.spent, 1))[SKIPPED:]
        chosen = [spent for step, spent in steps if (step % every == 0) == is_due]
        return statistics.median(wall for wall, _ in chosen), statistics.median(cpu for _, cpu in chosen)


def main(every: int, pairs: int, steps: int, directory: str) -> None:
    """Trains in turns."""
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    init()
    mindspore.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    net = nn.SequentialCell(nn.Dense(64, 64), nn.Dense(64, 1))
    model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.01, 0.9))
    generator = np.random.default_rng(get_rank())
    rows = [
        (generator.random(64).astype(np.float32), generator.random(1).astype(np.float32)) for _ in range(BATCH * steps)
    ]
    data = GeneratorDataset(rows, ["x", "y"], shuffle=False, num_parallel_workers=1).batch(BATCH)

    def train(name: str, **section: Any) -> Stopwatch:
        given = {"interval": 30, "backend": ["local"], "save_dir": directory, "run_id": name, "auto_print": False}
        monitor = MindSporeTransformersMonitor({**given, **section})
        stopwatch = Stopwatch(monitor)
        model.train(1, data, callbacks=[monitor, stopwatch], dataset_sink_mode=False)
        return stopwatch

    train("first")
    results = []
    for pair in range(pairs):
        with_it = train(f"with-{pair}", aggregate=True, aggregate_steps=every)
        without = train(f"without-{pair}")
        results.append(
            {
                "collective": with_it.medians(every, is_due=True),
                "between": with_it.medians(every, is_due=False),
                "without": without.medians(every, is_due=False),
            }
        )
    if get_rank() == 0:
        Path(directory, "result.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
