"""Compiles large networks on MindSpore, with loss and optimizer, and writes the graph of each as SummaryRecord does.

Usage: python tests/real_networks.py DIRECTORY [NAME...]

What is then in DIRECTORY, each a summary directory of one run with the graph and one scalar:

* `resnet50`: all its layers, on small images, trained with momentum;
* `llama`: two decoder layers with root mean square norms, rotary embeddings, grouped queries and a gated feed-forward
  layer, trained with AdamW;
* `bert`: two encoder layers with embeddings, a pooler and a head that predicts masked words, trained with Adam.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.train.summary import SummaryRecord

# ---------------------------------------------------------------- ResNet-50


class Bottleneck(nn.Cell):
    """Three convolutions, and a way around them."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        out = 4 * channels
        self.conv1 = nn.Conv2d(channels_in, channels, 1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out, 1)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.has_shortcut = stride != 1 or channels_in != out
        if self.has_shortcut:
            self.down_sample = nn.SequentialCell(nn.Conv2d(channels_in, out, 1, stride), nn.BatchNorm2d(out))

    def construct(self, x: Tensor) -> Tensor:
        """Returns the sum of both ways."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        shortcut = self.down_sample(x) if self.has_shortcut else x
        return self.relu(out + shortcut)


class ResNet50(nn.Cell):
    """The network of 50 layers."""

    def __init__(self, classes: int = 10, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.max_pool = nn.MaxPool2d(3, 2, pad_mode="same")
        layers, channels_in = [], 64
        for number, count in enumerate(blocks):
            channels = 64 << number
            cells = []
            for index in range(count):
                cells.append(Bottleneck(channels_in, channels, 2 if number and not index else 1))
                channels_in = 4 * channels
            layers.append(nn.SequentialCell(*cells))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.fc = nn.Dense(channels_in, classes)

    def construct(self, x: Tensor) -> Tensor:
        """Returns the logits."""
        x = self.max_pool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


# ---------------------------------------------------------------- Llama


class RMSNorm(nn.Cell):
    """Scales by the root of the mean square."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = Parameter(ops.ones((width,), mindspore.float32), name="weight")

    def construct(self, x: Tensor) -> Tensor:
        """Returns the scaled tokens."""
        return x * ops.rsqrt(ops.square(x).mean(-1, keep_dims=True) + 1e-6) * self.weight


class LlamaAttention(nn.Cell):
    """Causal attention with rotary embeddings, two query heads for each key head."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size, self.length = heads, heads // 2, width // heads, length
        self.wq = nn.Dense(width, width, has_bias=False)
        self.wk = nn.Dense(width, width // 2, has_bias=False)
        self.wv = nn.Dense(width, width // 2, has_bias=False)
        self.wo = nn.Dense(width, width, has_bias=False)
        angles = np.outer(np.arange(length), 1e4 ** (-np.arange(0, self.size, 2) / self.size))
        angles = np.concatenate([angles, angles], 1)
        self.cos, self.sin = (Tensor(f(angles), mindspore.float32) for f in (np.cos, np.sin))
        self.mask = Tensor(np.triu(np.full((length, length), -1e4), 1), mindspore.float32)

    def rotate(self, x: Tensor) -> Tensor:
        """Returns heads turned by their positions."""
        one, two = ops.split(x, self.size // 2, -1)
        return x * self.cos + ops.concat((-two, one), -1) * self.sin

    def split(self, x: Tensor, heads: int) -> Tensor:
        """Returns tokens taken apart into heads."""
        return ops.transpose(ops.reshape(x, (-1, self.length, heads, self.size)), (0, 2, 1, 3))

    def construct(self, x: Tensor) -> Tensor:
        """Returns the mixed tokens."""
        query = self.rotate(self.split(self.wq(x), self.heads))
        key = ops.repeat_elements(self.rotate(self.split(self.wk(x), self.kv_heads)), 2, 1)
        value = ops.repeat_elements(self.split(self.wv(x), self.kv_heads), 2, 1)
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) * self.size**-0.5 + self.mask
        mixed = ops.transpose(ops.matmul(ops.softmax(scores, -1), value), (0, 2, 1, 3))
        return self.wo(ops.reshape(mixed, (-1, self.length, self.heads * self.size)))


class LlamaFeedForward(nn.Cell):
    """The gated feed-forward layer."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.w1 = nn.Dense(width, hidden, has_bias=False)
        self.w2 = nn.Dense(hidden, width, has_bias=False)
        self.w3 = nn.Dense(width, hidden, has_bias=False)

    def construct(self, x: Tensor) -> Tensor:
        """Returns the changed tokens."""
        return self.w2(ops.silu(self.w1(x)) * self.w3(x))


class LlamaDecodeLayer(nn.Cell):
    """Attention and feed-forward layer, each behind a norm and beside a way around it."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(width), RMSNorm(width)
        self.attention = LlamaAttention(width, heads, length)
        self.feed_forward = LlamaFeedForward(width, 2 * width)

    def construct(self, x: Tensor) -> Tensor:
        """Returns the changed tokens."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class LlamaModel(nn.Cell):
    """Embedding, decoder layers, norm."""

    def __init__(self, words: int, width: int, heads: int, length: int, layers: int) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(words, width)
        self.layers = nn.CellList([LlamaDecodeLayer(width, heads, length) for _ in range(layers)])
        self.norm_out = RMSNorm(width)

    def construct(self, tokens: Tensor) -> Tensor:
        """Returns the hidden states."""
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.norm_out(x)


class LlamaForCausalLM(nn.Cell):
    """The language model with its loss."""

    def __init__(self, words: int = 100, width: int = 32, heads: int = 4, length: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.model = LlamaModel(words, width, heads, length, layers)
        self.lm_head = nn.Dense(width, words, has_bias=False)
        self.loss = nn.CrossEntropyLoss()
        self.words = words

    def construct(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss."""
        logits = self.lm_head(self.model(tokens))
        return self.loss(ops.reshape(logits, (-1, self.words)), ops.reshape(labels, (-1,)))


# ---------------------------------------------------------------- BERT


class BertEmbeddings(nn.Cell):
    """Words, positions and kinds of tokens."""

    def __init__(self, words: int, width: int, length: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(words, width)
        self.position_embeddings = nn.Embedding(length, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.layernorm = nn.LayerNorm((width,))
        self.positions = Tensor(np.arange(length)[None], mindspore.int32)

    def construct(self, tokens: Tensor, kinds: Tensor) -> Tensor:
        """Returns their normed sum."""
        words = self.word_embeddings(tokens) + self.token_type_embeddings(kinds)
        return self.layernorm(words + self.position_embeddings(self.positions))


class BertSelfAttention(nn.Cell):
    """Attention over all tokens."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Dense(width, width), nn.Dense(width, width), nn.Dense(width, width)
        self.heads, self.size, self.length = heads, width // heads, length

    def construct(self, x: Tensor) -> Tensor:
        """Returns the mixed tokens."""
        query, key, value = [
            ops.transpose(ops.reshape(layer(x), (-1, self.length, self.heads, self.size)), (0, 2, 1, 3))
            for layer in (self.query, self.key, self.value)
        ]
        scores = ops.softmax(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) * self.size**-0.5, -1)
        mixed = ops.transpose(ops.matmul(scores, value), (0, 2, 1, 3))
        return ops.reshape(mixed, (-1, self.length, self.heads * self.size))


class BertOutput(nn.Cell):
    """A dense layer, added and normed."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Dense(width_in, width)
        self.layernorm = nn.LayerNorm((width,))

    def construct(self, x: Tensor, around: Tensor) -> Tensor:
        """Returns the normed sum."""
        return self.layernorm(self.dense(x) + around)


class BertLayer(nn.Cell):
    """One encoder layer."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.attention = BertSelfAttention(width, heads, length)
        self.attention_output = BertOutput(width, width)
        self.intermediate = nn.Dense(width, 4 * width, activation="gelu")
        self.output = BertOutput(4 * width, width)

    def construct(self, x: Tensor) -> Tensor:
        """Returns the encoded tokens."""
        x = self.attention_output(self.attention(x), x)
        return self.output(self.intermediate(x), x)


class BertModel(nn.Cell):
    """Embeddings, encoder and pooler."""

    def __init__(self, words: int, width: int, heads: int, length: int, layers: int) -> None:
        super().__init__()
        self.embeddings = BertEmbeddings(words, width, length)
        self.encoder = nn.SequentialCell(*(BertLayer(width, heads, length) for _ in range(layers)))
        self.pooler = nn.Dense(width, width, activation="tanh")

    def construct(self, tokens: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the encoded tokens, and what is read off the first."""
        x = self.encoder(self.embeddings(tokens, kinds))
        return x, self.pooler(x[:, 0])


class BertForPreTraining(nn.Cell):
    """Predicts words, and whether two sentences follow each other; with its loss."""

    def __init__(self, words: int = 100, width: int = 32, heads: int = 4, length: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.bert = BertModel(words, width, heads, length, layers)
        self.predictions = nn.SequentialCell(
            nn.Dense(width, width, activation="gelu"), nn.LayerNorm((width,)), nn.Dense(width, words)
        )
        self.seq_relationship = nn.Dense(width, 2)
        self.loss = nn.CrossEntropyLoss()
        self.words = words

    def construct(self, tokens: Tensor, kinds: Tensor, labels: Tensor, follows: Tensor) -> Tensor:
        """Returns the loss."""
        x, pooled = self.bert(tokens, kinds)
        logits = ops.reshape(self.predictions(x), (-1, self.words))
        return self.loss(logits, ops.reshape(labels, (-1,))) + self.loss(self.seq_relationship(pooled), follows)


# ---------------------------------------------------------------- trainings


def make_resnet() -> tuple[nn.Cell, list[Tensor]]:
    """Returns the training of the ResNet and its inputs."""
    network = ResNet50()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    optimizer = nn.Momentum(network.trainable_params(), learning_rate=0.1, momentum=0.9)
    images = Tensor(np.ones((1, 3, 32, 32)), mindspore.float32)
    training = nn.TrainOneStepCell(nn.WithLossCell(network, loss), optimizer)
    return training, [images, Tensor([1], mindspore.int32)]


def make_llama() -> tuple[nn.Cell, list[Tensor]]:
    """Returns the training of the Llama and its inputs."""
    network = LlamaForCausalLM()
    optimizer = nn.AdamWeightDecay(network.trainable_params(), learning_rate=1e-4)
    tokens = Tensor(np.ones((2, 8)), mindspore.int32)
    return nn.TrainOneStepCell(network, optimizer), [tokens, tokens]


def make_bert() -> tuple[nn.Cell, list[Tensor]]:
    """Returns the training of the BERT and its inputs."""
    network = BertForPreTraining()
    optimizer = nn.Adam(network.trainable_params(), learning_rate=1e-4)
    tokens = Tensor(np.ones((2, 8)), mindspore.int32)
    return nn.TrainOneStepCell(network, optimizer), [tokens, tokens, tokens, Tensor([0, 1], mindspore.int32)]


NETWORKS: dict[str, Callable[[], tuple[nn.Cell, list[Tensor]]]] = {
    "resnet50": make_resnet,
    "llama": make_llama,
    "bert": make_bert,
}


def write(directory: Path, training: nn.Cell, inputs: list[Tensor]) -> None:
    """Trains a step and records the graph."""
    training.set_train()
    loss = training(*inputs)
    with SummaryRecord(str(directory), network=training) as record:
        record.add_value("scalar", "loss", Tensor(float(loss.asnumpy().mean()), mindspore.float32))
        if not record.record(1):
            raise SystemExit(f"{directory}: nothing was recorded")


def main() -> None:
    """Writes all of them, or those that are named."""
    mindspore.set_seed(0)
    mindspore.set_device("CPU")
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    for name in sys.argv[2:] or NETWORKS:
        write(Path(sys.argv[1]) / name, *NETWORKS[name]())


if __name__ == "__main__":
    main()
