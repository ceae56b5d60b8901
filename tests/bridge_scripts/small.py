"""What the training scripts share: a very small network, its data, and a few callbacks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.dataset import GeneratorDataset
from mindspore.train import Callback, Model
from mindspore.train.callback import RunContext, _InternalCallbackParam

BATCH = 4


class Net(nn.Cell):
    """One dense layer on a small picture; every summary operator stands in its forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.dense = nn.Dense(36, 2)
        self.scalar_summary = ops.ScalarSummary()
        self.histogram_summary = ops.HistogramSummary()
        self.image_summary = ops.ImageSummary()
        self.tensor_summary = ops.TensorSummary()

    def construct(self, images: mindspore.Tensor) -> mindspore.Tensor:
        out = self.dense(self.flatten(images))
        self.scalar_summary("mean", out.mean())
        self.histogram_summary("activation", out)
        self.image_summary("input", images)
        self.tensor_summary("logits", out)
        return out


def images(steps: int, **options: Any) -> Any:
    """Returns batches of pictures `[BATCH, 1, 6, 6]` with targets `[BATCH, 2]`, always the same ones."""

    def generate() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng(0)
        for _ in range(BATCH * steps):
            yield rng.random((1, 6, 6)).astype(np.float32), rng.random(2).astype(np.float32)

    given = {"shuffle": False, "num_parallel_workers": 1, **options}
    return GeneratorDataset(generate if not options else list(generate()), ["image", "target"], **given).batch(BATCH)


def vectors(steps: int) -> Any:
    """Returns batches `[BATCH, 3]` with targets `[BATCH, 1]`."""
    rng = np.random.default_rng(0)
    rows = [(rng.random(3).astype(np.float32), rng.random(1).astype(np.float32)) for _ in range(BATCH * steps)]
    return GeneratorDataset(rows, ["x", "y"], shuffle=False, num_parallel_workers=1).batch(BATCH)


def image_model(**options: Any) -> Model:
    mindspore.set_seed(0)
    net = Net()
    return Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.05, 0.9), **options)


def vector_model(learning_rate: Any = 0.05, optimizer: Callable[[Any], Any] | None = None, **options: Any) -> Model:
    mindspore.set_seed(0)
    net = nn.SequentialCell(nn.Dense(3, 2), nn.Dense(2, 1))
    made = optimizer(net) if optimizer else nn.Momentum(net.trainable_params(), learning_rate, 0.9)
    return Model(net, nn.MSELoss(), made, **options)


def train(model: Model, steps: int, *callbacks: Callback, epochs: int = 1, data: Any = None) -> None:
    model.train(epochs, data or vectors(steps), callbacks=list(callbacks), dataset_sink_mode=False)


class AtStep(Callback):
    """Calls something with the step after each one. It stands behind the bridge in the list."""

    def __init__(self, call: Callable[[int], object]) -> None:
        super().__init__()
        self._call = call

    def on_train_step_end(self, run_context: Any) -> None:
        self._call(int(run_context.original_args().cur_step_num))


def note_step(path: str) -> Callable[[int], None]:
    """Returns a function that writes a step to a side file, past all buffers."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(step: int) -> None:
        os.write(descriptor, b"%d\n" % step)

    return note


def fake_context(**fields: Any) -> RunContext:
    """Returns a run context as MindSpore hands it to callbacks, with these parameters."""
    parameters = _InternalCallbackParam()
    parameters.update(fields)
    return RunContext(parameters)
