"""Real trainings with MindSpore's SummaryCollector: what docs/callback.md says of it, beside what SummaryBridge does.

Usage: python tests/bridge_scripts/stock.py DIRECTORY RESULT.json [NAME ...]

tests/callback/test_stock.py says what must be true of them.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import mindspore
import psutil
from mindspore import Tensor, nn
from mindspore.train import Callback, Model, SummaryCollector
from scenario_run import run_all
from small import AtStep, fake_context, train, vector_model

from ms_summary_bridge import SummaryBridge

FEW: dict[str, Any] = {"collect_graph": False, "collect_landscape": None}
IDLE_SECS = 1.0


def default(directory: Path) -> None:
    train(vector_model(), 20, SummaryCollector(str(directory)))


def full_file(directory: Path) -> None:
    train(vector_model(), 60, SummaryCollector(str(directory), 1, collect_specified_data=FEW, max_file_size=3000))


def sink(directory: Path) -> None:
    """A CPU has no data sink mode: the callback is told of ten sinks of five steps."""
    net = vector_model().train_network
    fields = {"train_network": net, "network": net, "optimizer": None, "batch_num": 5, "epoch_num": 10, "mode": "train"}
    fields |= {"train_dataset": None, "dataset_sink_mode": True, "net_outputs": Tensor(1.0), "list_callback": []}
    chosen = {**FEW, "collect_dataset_graph": False, "collect_train_lineage": False, "collect_input_data": False}
    with SummaryCollector(str(directory), 3, collect_specified_data=chosen) as collector:
        collector.begin(fake_context(**fields, cur_epoch_num=1, cur_step_num=1))
        for epoch in range(1, 11):
            context = fake_context(**fields, cur_epoch_num=epoch, cur_step_num=5 * epoch)
            collector.step_end(context)
            collector.epoch_end(context)
        collector.end(context)


def parameters(directory: Path) -> None:
    """Of six, in a training with each callback, at their defaults."""
    for name, kind in (("stock", SummaryCollector), ("bridge", SummaryBridge)):
        mindspore.set_seed(0)
        net = nn.SequentialCell(nn.Dense(3, 2), nn.Dense(2, 2), nn.Dense(2, 1))
        model = Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.05, 0.9))
        train(model, 1, kind(str(directory / name), collect_specified_data={"collect_landscape": None}))


def idle(directory: Path) -> dict[str, Any]:
    """Returns of each callback how many processes it has, and their CPU seconds while the training waits."""
    found = {}
    for name, callback in (
        ("stock", SummaryCollector(str(directory / "stock"), 1, collect_specified_data=FEW)),
        ("bridge", SummaryBridge(str(directory / "bridge"), 1, num_process=32)),
    ):
        found[name] = _watch(callback)
    return {**found, "cores": os.cpu_count()}


def _watch(callback: Callback) -> dict[str, float]:
    before = set(psutil.Process().children(recursive=True))
    told: dict[str, float] = {}

    def measure(step: int) -> None:
        if step == 3:
            time.sleep(IDLE_SECS)  # what came has been written
            processes = [each for each in psutil.Process().children(recursive=True) if each not in before]
            begin = _cpu_secs(processes)
            time.sleep(IDLE_SECS)
            told.update(processes=len(processes), secs=_cpu_secs(processes) - begin)

    train(vector_model(), 4, callback, AtStep(measure))
    return told


def _cpu_secs(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


if __name__ == "__main__":
    run_all({"default": default, "full_file": full_file, "sink": sink, "parameters": parameters, "idle": idle})
