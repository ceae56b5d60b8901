"""One rank of a data parallel training with GradientSummary and SaveBestCheckpoint, to be started by msrun.

Usage: msrun ... tests/train_two_ranks.py BASE

Each rank has batches of its own, and waits in its first step until the ranks of two such trainings are there.
BASE/rank_<n>.json has what the rank saw; the checkpoints are below the directory that it is started in, which is the
default.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import nn
from mindspore.communication import get_rank, init
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Callback, Model

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ms_summary_bridge import GradientSummary, SaveBestCheckpoint, SummaryBridge
from tests.gradient_cells import SIDE, Network, momentum
from tests.train_gradient_cells import BATCH, STEPS, Reference
from tests.train_gradients import Said


class Meeting(Callback):
    """Waits in the first step until all ranks of both trainings have come as far."""

    def __init__(self, here: Path) -> None:
        super().__init__()
        self.here = here

    def on_train_step_begin(self, run_context: Any) -> None:
        """Waits."""
        self.here.touch()
        until = time.monotonic() + 120
        while len(list(self.here.parent.glob("here_*"))) < 4 and time.monotonic() < until:
            time.sleep(0.05)


def main() -> None:
    """Trains."""
    base = Path(sys.argv[1])
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    init()
    mindspore.set_auto_parallel_context(parallel_mode=mindspore.ParallelMode.DATA_PARALLEL, gradients_mean=True)
    rank = get_rank()
    said = Said()
    mindspore.set_seed(1)
    network = nn.WithLossCell(Network(), nn.MSELoss())
    cell = nn.TrainOneStepCell(network, momentum(network))
    reduces = type(cell.grad_reducer).__name__
    x = np.random.default_rng(rank).standard_normal((BATCH * STEPS, SIDE)).astype(np.float32)
    data = NumpySlicesDataset((x, x[:, :1] ** 2), shuffle=False, num_parallel_workers=1).batch(BATCH)
    reference = Reference(network, cell.optimizer)
    saver = SaveBestCheckpoint(save_checkpoint_steps=1)
    callbacks = [
        SummaryBridge(str(base / "summary"), collect_freq=1),
        reference,
        saver,
        Meeting(base.parent / f"here_{base.name}_{rank}"),
    ]
    Model(GradientSummary(cell)).train(1, data, callbacks=callbacks, dataset_sink_mode=False)
    fresh = Network()
    answer = {
        "norms": {step: values["norm"][0] for step, values in reference.gradients.items()},
        "reduces": reduces,
        "directory": saver.directory,
        "best": saver.best is not None and saver.best.value,
        "loaded": SaveBestCheckpoint.load_best(saver.directory, fresh).value,
        "weight": float(fresh.out.weight.asnumpy().sum()),
        "log": said.lines,
    }
    (base / f"rank_{rank}.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main()
