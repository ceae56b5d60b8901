"""Trains a small network in many ways with GradientSummary and the bridge, and keeps what `value_and_grad` says.

Usage: python tests/train_gradients.py BASE

Each training writes to BASE/<name>; BASE/<name>.npz has its gradients, `<step>/<parameter>`, computed apart from the
training before each step (where there were two trainings, of the last), and BASE/result.json what else there is to say.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Callback, Model, SummaryCollector

from ms_summary_bridge import GradientSummary, SummaryBridge, UsageError
from ms_summary_bridge.monitor import MindSporeTransformersMonitor

BATCH = 4
SIDE = 8
SCALE = 1024.0


class Network(nn.Cell):
    """Two dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Dense(SIDE, SIDE)
        self.out = nn.Dense(SIDE, 1)

    def construct(self, x: Any) -> Any:
        """Returns one number for each row."""
        return self.out(ops.relu(self.hidden(x)))


class ScaledCell(nn.TrainOneStepWithLossScaleCell):
    """With an overflow check that a CPU has; the optimizer stands in a branch, as in the cell above it."""

    def get_overflow_status(self, status: Any, compute_output: Any) -> Any:
        """Says whether a gradient is not finite."""
        return ops.logical_not(ops.isfinite(compute_output[0]).all())


class OwnCell(nn.Cell):
    """A one-step cell of somebody's own, without a reducer."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.optimizer = optimizer
        self.grad = ops.GradOperation(get_by_list=True)
        self.weights = optimizer.parameters

    def construct(self, *inputs: Any) -> Any:
        """Trains one step."""
        loss = self.network(*inputs)
        return ops.depend(loss, self.optimizer(self.grad(self.network, self.weights)(*inputs)))


class Sparse(nn.Cell):
    """An embedding whose gradients are sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingLookup(10, 4, target="CPU", sparse=True)

    def construct(self, indices: Any) -> Any:
        """Returns a loss."""
        return self.table(indices).mean()


class Reference(Callback):
    """Computes the gradients of each step before the step, and keeps the losses."""

    def __init__(self, network: nn.Cell, optimizer: nn.Cell) -> None:
        super().__init__()
        self.names = [parameter.name for parameter in optimizer.parameters]
        self.gradients: dict[str, np.ndarray[Any, Any]] = {}
        self.losses: list[float] = []
        self.compute = mindspore.value_and_grad(network, None, optimizer.parameters)

    def on_train_step_begin(self, run_context: Any) -> None:
        """Computes."""
        parameters = run_context.original_args()
        gradients = self.compute(*parameters.train_dataset_element)[1]
        for name, gradient in zip(self.names, gradients, strict=True):
            self.gradients[f"{parameters.cur_step_num}/{name}"] = gradient.asnumpy()

    def on_train_step_end(self, run_context: Any) -> None:
        """Keeps the loss."""
        outputs = run_context.original_args().net_outputs
        self.losses.append(float((outputs[0] if isinstance(outputs, tuple) else outputs).asnumpy()))


class Said(logging.Handler):
    """Keeps what the package logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        logging.getLogger("ms_summary_bridge").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


Make = Callable[[nn.Cell, nn.Cell], nn.Cell]
Collect = Callable[[str], Callback]


def dataset(steps: int) -> NumpySlicesDataset:
    """Returns random batches, the same every time."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((BATCH * steps, SIDE)).astype(np.float32)
    return NumpySlicesDataset((x, x[:, :1] ** 2), shuffle=False, num_parallel_workers=1).batch(BATCH)


def bridge(freq: int) -> Collect:
    """Returns what makes the bridge."""
    return lambda directory: SummaryBridge(directory, collect_freq=freq)


def monitor(directory: str) -> Callback:
    """Returns the monitor, which reads the squares that the cell keeps."""
    section = {"interval": 0, "backend": "local", "save_dir": directory, "run_id": "run", "auto_print": False}
    return MindSporeTransformersMonitor({**section, "metrics": ["loss", "local_grad_norm", "local_grad_norms"]})


def collector(freq: int) -> Collect:
    """Returns what makes MindSpore's own collector."""
    data = {"collect_landscape": None}
    return lambda directory: SummaryCollector(directory, collect_freq=freq, collect_specified_data=data)


def train(
    base: Path, name: str, make: Make, collect: Collect, *, steps: int, loss_scale: float = 1.0, trainings: int = 1
) -> list[float]:
    """Trains; returns the losses."""
    mindspore.set_seed(1)
    network = nn.WithLossCell(Network(), nn.MSELoss())
    optimizer = nn.Momentum(network.trainable_params(), 0.05, 0.9, loss_scale=loss_scale)
    model = Model(make(network, optimizer))
    reference = Reference(network, optimizer)
    callback = collect(str(base / name))
    for _ in range(trainings):
        model.train(1, dataset(steps), callbacks=[callback, reference], dataset_sink_mode=False)
    np.savez(base / f"{name}.npz", **reference.gradients)
    return reference.losses


def train_sparse(said: Said) -> dict[str, Any]:
    """Trains on sparse gradients, which no operator takes."""
    network = Sparse()
    cell = GradientSummary(network, nn.Adam(network.trainable_params(), 0.1))
    cell.set_train()
    indices = mindspore.Tensor([1, 2, 2], mindspore.int32)
    said.lines.clear()
    losses = [float(cell(indices).asnumpy()) for _ in range(3)]
    return {"losses": losses, "log": list(said.lines)}


def train_deep(base: Path) -> None:
    """Trains a network of many parameters, all with a histogram."""
    network = nn.SequentialCell(*[nn.Dense(SIDE, SIDE) for _ in range(30)], nn.Dense(SIDE, 1))
    optimizer = nn.Momentum(network.trainable_params(), 0.01, 0.9)
    model = Model(GradientSummary(nn.WithLossCell(network, nn.MSELoss()), optimizer))
    model.train(1, dataset(1), callbacks=[SummaryBridge(str(base / "deep"))], dataset_sink_mode=False)


def refusal(make: Callable[[], object]) -> str:
    """Returns why something is refused."""
    try:
        make()
    except UsageError as error:
        return str(error)
    return ""


def main() -> None:
    """Trains in every way."""
    base = Path(sys.argv[1])
    said = Said()
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    result: dict[str, Any] = {}

    def weights(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return GradientSummary(network, optimizer, pattern=".*weight")

    def scaled(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        manager = nn.DynamicLossScaleUpdateCell(SCALE, 2, 1000)
        return GradientSummary(ScaledCell(network, optimizer, manager), every=2)

    def fixed(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return GradientSummary(nn.TrainOneStepCell(network, optimizer, sens=SCALE), pattern=None)

    def own(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return GradientSummary(OwnCell(network, optimizer), pattern="hidden")

    def every_third(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return GradientSummary(network, optimizer, every=3)

    def every_other(network: nn.Cell, optimizer: nn.Cell) -> nn.Cell:
        return GradientSummary(nn.TrainOneStepCell(network, optimizer, sens=SCALE), pattern=None, every=2)

    # Summary values are kept for one collector at a time, so each training ends before the next begins.
    result["plain"] = train(base, "plain", nn.TrainOneStepCell, bridge(4), steps=10)
    result["graph"] = train(base, "graph", weights, bridge(4), steps=10, trainings=2)
    result["scaled"] = train(base, "scaled", scaled, bridge(1), steps=4)
    result["fixed"] = train(base, "fixed", fixed, bridge(2), steps=3, loss_scale=SCALE)
    result["own"] = train(base, "own", own, bridge(2), steps=3)
    result["collector"] = train(base, "collector", every_third, collector(3), steps=6)
    result["monitored"] = train(base, "monitored", every_other, monitor, steps=5, loss_scale=SCALE)
    result["sparse"] = train_sparse(said)
    train_deep(base)
    network = Network()
    optimizer = nn.Momentum(network.trainable_params(), 0.05, 0.9)
    cells = [make(nn.WithLossCell(network, nn.MSELoss()), optimizer) for make in (nn.TrainOneStepCell, GradientSummary)]
    result["names"] = [sorted(parameter.name for parameter in cell.get_parameters()) for cell in cells]
    result["refused"] = {
        "no optimizer": refusal(lambda: GradientSummary(network)),
        "pattern": refusal(lambda: GradientSummary(network, optimizer, pattern="(")),
        "no parameter": refusal(lambda: GradientSummary(network, optimizer, pattern="conv")),
        "every": refusal(lambda: GradientSummary(network, optimizer, every=0)),
    }
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    result["pynative"] = train(base, "pynative", weights, bridge(4), steps=10)
    train(base, "monitored_pynative", every_other, monitor, steps=5, loss_scale=SCALE)
    (base / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
