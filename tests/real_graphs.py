"""Compiles networks on MindSpore and writes the graph of each into a summary file, as SummaryRecord does.

Usage: python tests/real_graphs.py DIRECTORY

What is then in DIRECTORY, each a summary directory of one run with the graph and one scalar:

* `lenet`: two convolutions and three dense layers, with loss and optimizer;
* `resnet`: residual blocks with normalization, then a loop and a branch that depend on a tensor's value;
* `transformer`: one encoder block: attention over four heads, normalization, a feed-forward layer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import mindspore
import numpy as np
from mindspore import nn, ops
from mindspore.train.summary import SummaryRecord

Tensor = mindspore.Tensor


class LeNet(nn.Cell):
    """LeNet, on images of 16 by 16 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(1, 6, 5, pad_mode="valid"), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 3), nn.ReLU()
        )
        self.flatten = nn.Flatten()
        self.classifier = nn.SequentialCell(
            nn.Dense(16 * 6 * 6, 32), nn.ReLU(), nn.Dense(32, 16), nn.ReLU(), nn.Dense(16, 3)
        )

    def construct(self, images: Tensor) -> Tensor:
        """Returns the logits."""
        return self.classifier(self.flatten(self.features(images)))


class Block(nn.Cell):
    """Two convolutions with normalization, and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3)
        self.norm2 = nn.BatchNorm2d(channels)
        self.relu = nn.ReLU()

    def construct(self, features: Tensor) -> Tensor:
        """Returns the sum of both ways."""
        out = self.relu(self.norm1(self.conv1(features)))
        return self.relu(self.norm2(self.conv2(out)) + features)


class ResNet(nn.Cell):
    """Residual blocks, and behind them a loop and a branch that only the running network can decide."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3)
        self.layer1 = nn.SequentialCell(Block(4), Block(4))
        self.dense = nn.Dense(4, 3)

    def construct(self, images: Tensor, count: Tensor) -> Tensor:
        """Returns the logits."""
        features = self.layer1(self.stem(images)).mean((2, 3))
        number = ops.zeros_like(count)
        while number < count:
            features = features * 0.5 + 1.0
            number = number + 1
        if features.sum() > 0:
            features = ops.tanh(features)
        else:
            features = ops.abs(features)
        return self.dense(features)


class Transformer(nn.Cell):
    """One encoder block."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.query, self.key, self.value = nn.Dense(width, width), nn.Dense(width, width), nn.Dense(width, width)
        self.output = nn.Dense(width, width)
        self.norm1, self.norm2 = nn.LayerNorm((width,)), nn.LayerNorm((width,))
        self.feed_forward = nn.SequentialCell(nn.Dense(width, 4 * width), nn.GELU(), nn.Dense(4 * width, width))

    def construct(self, tokens: Tensor) -> Tensor:
        """Returns the encoded tokens."""
        batch, length, _ = tokens.shape
        parts = [
            ops.transpose(ops.reshape(layer(tokens), (batch, length, self.heads, -1)), (0, 2, 1, 3))
            for layer in (self.query, self.key, self.value)
        ]
        scores = ops.softmax(ops.matmul(parts[0], ops.transpose(parts[1], (0, 1, 3, 2))) / 2.0, -1)
        mixed = ops.reshape(ops.transpose(ops.matmul(scores, parts[2]), (0, 2, 1, 3)), (batch, length, self.width))
        tokens = self.norm1(tokens + self.output(mixed))
        return self.norm2(tokens + self.feed_forward(tokens))


def write(directory: Path, network: nn.Cell, *inputs: Tensor) -> None:
    """Runs a network once and records its graph."""
    output = network(*inputs)
    with SummaryRecord(str(directory), network=network) as record:
        record.add_value("scalar", "mean", Tensor(float(output.asnumpy().mean()), mindspore.float32))
        if not record.record(1):
            raise SystemExit(f"{directory}: nothing was recorded")


def main() -> None:
    """Writes all of them."""
    directory = Path(sys.argv[1])
    mindspore.set_seed(0)
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    rng = np.random.default_rng(0)
    images = Tensor(rng.random((2, 1, 16, 16)), mindspore.float32)
    lenet = LeNet()
    training = nn.TrainOneStepCell(
        nn.WithLossCell(lenet, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")),
        nn.Momentum(lenet.trainable_params(), learning_rate=0.01, momentum=0.9),
    )
    write(directory / "lenet", training, images, Tensor([0, 1], mindspore.int32))
    write(directory / "resnet", ResNet(), images, Tensor(3, mindspore.int32))
    write(directory / "transformer", Transformer(), Tensor(rng.random((2, 5, 16)), mindspore.float32))


if __name__ == "__main__":
    main()
