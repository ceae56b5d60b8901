"""One rank of trainings whose ranks tell each other of themselves, one after the other, to be started by msrun.

Usage: msrun ... tests/monitor_scripts/all_ranks.py DIRECTORY

Each training has a directory of its own there; `rank_<n>.json` has what was said, and by which collectives were called.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor, ops
from mindspore.communication import get_rank, init
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from small import BATCH, vector_model

from ms_summary_bridge.monitor import MindSporeTransformersMonitor, Monitor

METRICS = ["loss", "local_loss", "step_time", "data_time", "samples_per_second", "memory_usage", "grad_norm"]


class Collectives:
    """Counts the calls of our collective, and can be told to lack the operation."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_lacking = False
        self._made = ops.AllGather

    def __call__(self) -> Callable[[Tensor], Tensor]:
        operation = self._made()

        def gather(row: Tensor) -> Tensor:
            self.calls += 1
            if self.is_lacking:
                raise RuntimeError("Unsupported op [AllGather] on this backend.\nMore follows.")
            return operation(row)

        return gather


class Said(logging.Handler):
    """Keeps what is said."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Poison(Callback):
    """Makes the loss NaN that one rank is shown, from a step on."""

    def on_train_step_end(self, run_context: Any) -> None:
        parameters = run_context.original_args()
        if get_rank() == 1 and parameters.cur_step_num >= 4:
            parameters.net_outputs = Tensor(float("nan"))


class Broken(MindSporeTransformersMonitor):
    """On one rank its own numbers cannot be read."""

    def _read_own(self) -> tuple[int, dict[str, float]]:
        if get_rank() == 1:
            raise ValueError("broken on purpose")
        return super()._read_own()


class Unbegun(MindSporeTransformersMonitor):
    """On one rank the training cannot be recorded at all."""

    def _begin(self, *arguments: Any, **options: Any) -> None:
        if get_rank() == 1:
            raise OSError("broken on purpose")
        super()._begin(*arguments, **options)


def rows(steps: int) -> Any:
    """Returns data that each rank has for itself."""

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        generator = np.random.default_rng(get_rank())
        for _ in range(BATCH * steps):
            yield generator.random(3).astype(np.float32), generator.random(1).astype(np.float32)

    return GeneratorDataset(list(generate()), ["x", "y"], shuffle=False, num_parallel_workers=1).batch(BATCH)


def main(directory: str) -> None:
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    init()
    mindspore.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    collectives = ops.AllGather = Collectives()
    handler = Said()
    logging.getLogger("ms_summary_bridge").addHandler(handler)
    found: dict[str, Any] = {}

    def train(
        name: str,
        steps: int,
        *others: Callback,
        kind: Any = MindSporeTransformersMonitor,
        sink: bool = False,
        evaluates: bool = False,
        epochs: int = 1,
        **section: Any,
    ) -> None:
        given = {
            "interval": 0,
            "backend": ["local", "tensorboard"],
            "save_dir": str(Path(directory, name)),
            "run_id": "run",
            "csv": True,
            "aggregate": METRICS,
            "aggregate_steps": 3,
            "metrics": ["loss", "local_loss", "step_time", "samples_per_second", "memory_usage"],
            "alerts": [{"rule": "nonfinite", "actions": ["log", "stop"]}],
            "stop_patience": 20,
            **section,
        }
        monitor = kind(given)
        before, handler.lines = collectives.calls, []
        model = vector_model(metrics={"mae"}) if evaluates else vector_model()
        callbacks = [*others, monitor]
        if evaluates:
            model.fit(epochs, rows(steps), rows(2), callbacks=callbacks, dataset_sink_mode=False)
        else:
            model.train(epochs, rows(steps), callbacks=callbacks, dataset_sink_mode=sink)
        found[name] = {
            "calls": collectives.calls - before,
            "said": [line for line in handler.lines if "aggregate" in line or "all 2 ranks" in line],
            "faults": [line for line in handler.lines if "failed" in line],
        }

    train("graph", 10)
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    train("pynative", 9)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    train("evaluation", 5, evaluates=True, epochs=2)
    train("sink", 4, sink=True, epochs=2)
    train("odd", 7, aggregate_steps=2 + get_rank())
    train("broken", 7, kind=Broken)
    train("unbegun", 7, kind=Unbegun)
    train("stopped", 4000, Poison(), aggregate_steps=1)
    collectives.is_lacking = True
    train("lacking", 7)
    collectives.is_lacking = False

    handler.lines, before = [], collectives.calls
    section = {"interval": 0, "backend": ["local"], "save_dir": str(Path(directory, "loop")), "run_id": "run"}
    with Monitor({**section, "aggregate": "loss", "aggregate_steps": 2}) as monitor:
        for step in range(1, 6):
            monitor.step(loss=step + 10.0 * get_rank())
    found["loop"] = {"calls": collectives.calls - before, "said": [], "faults": []}

    Path(directory, f"rank_{get_rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
