"""One rank of a data parallel training, in which rank 1 goes wrong in one way, to be started by msrun.

Usage: msrun ... tests/monitor_scripts/odd_rank.py SAVE_DIR FAULT
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.communication import get_rank, init
from mindspore.dataset import GeneratorDataset

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bridge_scripts"))
from slow_optimizer import SlowOptimizer
from small import BATCH, AtStep, train, vector_model

from ms_summary_bridge.monitor import build_monitor_callbacks

STEPS, AT = 8, 5
FOR_EVER = 10_000.0


class Rows:
    """Data that stop at a row, or have no number there."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        if self._fault == "data" and index == BATCH * AT:
            time.sleep(FOR_EVER)
        x = np.nan if self._fault == "nan" and index == BATCH * AT else index / 100
        return np.full(3, x, np.float32), np.ones(1, np.float32)


@ops.constexpr(check=False)
def compile_for_ever() -> int:
    time.sleep(FOR_EVER)
    return 1


class SlowToCompile(nn.SequentialCell):
    """Is evaluated by the compiler, which does not return."""

    def construct(self, x: Any) -> Any:
        return self.cell_list[0](x) * compile_for_ever()


def main() -> None:
    directory, fault = sys.argv[1:]
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE if fault == "optimizer" else mindspore.GRAPH_MODE)
    init()
    mindspore.set_auto_parallel_context(parallel_mode=mindspore.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    is_odd = get_rank() == 1
    limits = {"floor": 4, "callback_limit": 600, "compile_limit": 12 if fault == "compile" else 120}
    section = {
        "interval": 0,
        "backend": ["local"],
        "save_dir": directory,
        "run_id": "run",
        "metrics": ["loss", "step_time", "data_time"],
        "watchdog": limits,
    }

    def act(step: int) -> None:
        if is_odd and fault == "callback" and step == AT:
            time.sleep(FOR_EVER)
        if is_odd and fault == "killed" and step == AT:
            time.sleep(2)  # by which all of it is in the files
            os.kill(os.getpid(), signal.SIGKILL)
        SlowOptimizer.stops = is_odd and step == AT

    optimizer = (lambda net: SlowOptimizer(net.trainable_params())) if fault == "optimizer" else None
    model = vector_model(optimizer=optimizer)
    if is_odd and fault == "compile":
        net = SlowToCompile(nn.SequentialCell(nn.Dense(3, 2), nn.Dense(2, 1)))
        model = mindspore.train.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.05, 0.9))
    data = GeneratorDataset(Rows(fault if is_odd else ""), ["x", "y"], shuffle=False, num_parallel_workers=1)
    train(model, STEPS, *build_monitor_callbacks(section), AtStep(act), data=data.batch(BATCH))


if __name__ == "__main__":
    main()
