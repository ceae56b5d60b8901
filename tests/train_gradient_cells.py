"""Trains each cell of gradient_cells.py with GradientSummary and without, in both modes.

Usage: python tests/train_gradient_cells.py BASE

BASE/result.json has, by mode and cell: the losses with and without, and of each step the norm of all gradients and
each parameter's least and greatest, as the bridge's files have them and as an `ops.GradOperation` of the same network
gave them for the same batch before the step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Callback, Model

from ms_summary_bridge import GradientSummary, SummaryBridge
from tests.gradient_cells import CELLS, IN_FIRST_STEP, REFUSED, SIDE, Build, Losses, Network, Outer
from tests.train_gradients import Said, refusal

BATCH = 4
STEPS = 3
MODES = {"graph": mindspore.GRAPH_MODE, "pynative": mindspore.PYNATIVE_MODE}


class Reference(Callback):
    """Takes the gradients of each step before the step, and keeps the losses."""

    def __init__(self, network: nn.Cell, optimizer: Any) -> None:
        super().__init__()
        self.network, self.parameters = network, optimizer.parameters
        self.operation = ops.GradOperation(get_by_list=True)
        self.gradients: dict[int, dict[str, list[float]]] = {}
        self.losses: list[float] = []

    def on_train_step_begin(self, run_context: Any) -> None:
        """Takes them."""
        given = run_context.original_args()
        arrays = [
            each.asnumpy() for each in self.operation(self.network, self.parameters)(*given.train_dataset_element)
        ]
        squares = sum(float((array.astype(np.float64) ** 2).sum()) for array in arrays)
        shown = {parameter.name: array for parameter, array in zip(self.parameters, arrays, strict=True)}
        self.gradients[given.cur_step_num] = {
            "norm": [squares**0.5],
            **{name: [float(array.min()), float(array.max())] for name, array in shown.items()},
        }

    def on_train_step_end(self, run_context: Any) -> None:
        """Keeps the loss."""
        outputs = run_context.original_args().net_outputs
        self.losses.append(float((outputs[0] if isinstance(outputs, tuple) else outputs).asnumpy().mean()))


def dataset() -> NumpySlicesDataset:
    """Returns random batches, the same every time."""
    x = np.random.default_rng(0).standard_normal((BATCH * STEPS, SIDE)).astype(np.float32)
    return NumpySlicesDataset((x, x[:, :1] ** 2), shuffle=False, num_parallel_workers=1).batch(BATCH)


def make_network(name: str) -> nn.Cell:
    """Returns what gives the loss, with the same parameters every time."""
    mindspore.set_seed(1)
    return Losses(Network()) if "losses" in name else nn.WithLossCell(Network(), nn.MSELoss())


def train(directory: Path, name: str, build: Build, *, records: bool) -> Reference:
    """Trains STEPS steps; returns what was seen."""
    network = make_network(name)
    cell = build(network)
    inner = cell
    if records:
        scale = {"loss scaler": getattr(cell, "loss_scaler", None), "own losses": 1024}.get(name)
        cell = GradientSummary(cell, loss_scale=scale)
        inner = cell
        cell = Outer(cell) if name == "outer" else cell
    reference = Reference(inner.network, inner.optimizer)
    bridge = [SummaryBridge(str(directory), collect_freq=1)] if records else []
    Model(cell).train(1, dataset(), callbacks=[*bridge, reference], dataset_sink_mode=False)
    return reference


def main() -> None:
    """Trains them all."""
    base = Path(sys.argv[1])
    mindspore.set_device("CPU")
    said = Said()
    result: dict[str, Any] = {"trained": {}, "refused": {}, "in first step": {}}
    for mode, number in MODES.items():
        mindspore.set_context(mode=number)
        cells = {**CELLS, "outer": CELLS["plain"]}
        for name, build in cells.items():
            said.lines.clear()
            reference = train(base / f"{mode} {name}", name, build, records=True)
            plain = train(base, name, build, records=False)
            result["trained"][f"{mode} {name}"] = {
                "losses": reference.losses,
                "plain": plain.losses,
                "gradients": reference.gradients,
                "log": list(said.lines),
            }
        for name, build in IN_FIRST_STEP.items():
            said.lines.clear()
            network = make_network(name)
            cell = GradientSummary(build(network))
            directory = base / f"{mode} refused {name}"
            bridge = SummaryBridge(str(directory), collect_freq=1)
            Model(cell).train(1, dataset(), callbacks=[bridge], dataset_sink_mode=False)
            result["in first step"][f"{mode} {name}"] = list(said.lines)
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    for name, build in REFUSED.items():
        result["refused"][name] = refusal(lambda build=build: GradientSummary(build(make_network(""))))
    (base / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
