"""The `model` and `dataset` that the README trains: one dense layer, eight steps of an epoch, a second on a CPU."""

from __future__ import annotations

import mindspore
import numpy as np
from mindspore import nn
from mindspore.dataset import NumpySlicesDataset
from mindspore.train import Model

mindspore.set_device("CPU")  # or Ascend, or GPU
mindspore.set_context(mode=mindspore.GRAPH_MODE)  # in MindSpore's default mode a network has no graph to record

_RNG = np.random.default_rng(0)
_INPUTS = _RNG.normal(size=(64, 3)).astype(np.float32)
_LABELS = _INPUTS @ np.array([[1.0], [-2.0], [0.5]], np.float32)

dataset = NumpySlicesDataset({"data": _INPUTS, "label": _LABELS}, shuffle=False).batch(8)
network = nn.Dense(3, 1)
model = Model(network, nn.MSELoss(), nn.Momentum(network.trainable_params(), 0.05, 0.9), metrics={"mae"})
