"""Trains what tools/pictures takes its pictures of: a sweep of small networks that tell shapes apart, on this CPU.

Usage: python tools/picture_trainings.py LOGDIR NAME [NAME ...]

NAME is one of the trainings below. tools/pictures starts it, with this checkout and its examples on PYTHONPATH. The
rank is that of the launcher's variables (RANK_ID, RANK_SIZE), where they are set. Each is recorded by SummaryBridge and
watched by the monitor.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import mindspore
from mindspore import nn
from mindspore.train import Accuracy, Model
from train_with_summary_collector import SHAPES, SIDE, LossWithAccuracy, make_dataset

from ms_summary_bridge import SummaryBridge
from ms_summary_bridge.monitor import build_monitor_callbacks

STEPS = 20
EPOCHS = 3
OPTIMIZERS: dict[str, Any] = {"adam": nn.Adam, "momentum": nn.Momentum, "sgd": nn.SGD}
TRAININGS: dict[str, dict[str, Any]] = {
    "cnn-small/adam-lr0.001-seed1": {},
    "cnn-small/adam-lr0.005-seed1": {"lr": 0.005},
    "cnn-small/adam-lr0.005-seed2": {"lr": 0.005, "seed": 2},
    "cnn-small/sgd-lr0.1-seed1": {"optimizer": "sgd", "lr": 0.1},
    "cnn-wide/adam-lr0.005-seed1": {"width": 24, "lr": 0.005},
    "cnn-wide/momentum-lr40-seed1": {"width": 24, "optimizer": "momentum", "lr": 40.0},
    "four-ranks/adam-lr0.002": {"lr": 0.002},
}


class Network(nn.Cell):
    """Two convolutions and two dense layers, so wide; returns a score for each shape, `[batch, len(SHAPES)]`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(1, width, 3), nn.ReLU(), nn.MaxPool2d(2, 2),
            nn.Conv2d(width, 2 * width, 3), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.SequentialCell(nn.Dense(2 * width * (SIDE // 4) ** 2, 32), nn.ReLU(), nn.Dense(32, len(SHAPES)))

    def construct(self, pictures: mindspore.Tensor) -> mindspore.Tensor:
        """Returns the scores."""
        return self.head(self.features(pictures))


def train(logdir: Path, name: str) -> None:
    """Trains and evaluates one of them."""
    chosen = {"optimizer": "adam", "lr": 0.001, "seed": 1, "width": 8, **TRAININGS[name]}
    rank, seed = int(os.environ.get("RANK_ID", 0)), chosen["seed"]
    project, run = name.split("/")
    mindspore.set_seed(seed)
    network = Network(chosen["width"])
    more = {"momentum": 0.9} if chosen["optimizer"] == "momentum" else {}
    optimizer = OPTIMIZERS[chosen["optimizer"]](network.trainable_params(), learning_rate=chosen["lr"], **more)
    place = logdir / project / run
    bridge = SummaryBridge(
        str(place / "summary" / f"rank_{rank}" if "RANK_ID" in os.environ else place / "summary"),
        collect_freq=2,
        custom_lineage_data={"seed": seed, "width": chosen["width"]},
    )
    monitor = {"save_dir": str(logdir), "project": project, "run_id": run, "backend": ["local"], "interval": 1}
    callbacks = [bridge, *build_monitor_callbacks({"monitor_config": {**monitor, "auto_print": False}})]
    model = Model(network, LossWithAccuracy(), optimizer, metrics={"accuracy": Accuracy()})
    model.train(EPOCHS, make_dataset(seed * 100 + rank, STEPS), callbacks=callbacks, dataset_sink_mode=False)
    model.eval(make_dataset(seed + 1, steps=10), callbacks=[bridge], dataset_sink_mode=False)


def main() -> None:
    """Trains the named ones."""
    mindspore.set_device("CPU")
    # Threads that wait for each other cost more than so small a network, on a machine that does other things too.
    mindspore.set_context(mode=mindspore.GRAPH_MODE, runtime_num_threads=1)
    for name in sys.argv[2:]:
        train(Path(sys.argv[1]), name)
        print(f"trained {name}", flush=True)


if __name__ == "__main__":
    main()
