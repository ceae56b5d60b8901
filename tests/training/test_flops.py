"""The operations of a token by the configuration of a model, against sums made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ms_summary_bridge.training.flops import llama_flops_per_token
from ms_summary_bridge.training.parameters import TrainingParameters, flops_per_token_of_model


class LlamaConfig:
    """As MindFormers' own, with its defaults."""

    intermediate_size: int | None = None
    n_kv_heads: int | None = None
    ffn_dim_multiplier: float | None = None
    multiple_of = 256
    moe_config: Any = None

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)


SEVEN = {"hidden_size": 4096, "num_layers": 32, "num_heads": 32, "vocab_size": 32000, "seq_length": 4096}


def test_llama_2_7b_by_hand() -> None:
    attention = 4 * 4096 * 4096  # weights of queries, keys, values and the output
    feed_forward = 3 * 4096 * 11008
    weights = 32 * (attention + feed_forward) + 4096 * 32000
    assert weights == 6_607_077_376, "of 6.74e9: without the table of embeddings and the norms"
    scores = 32 * 2 * 4096 * 4096 / 2  # a row of scores, and its sum over the values, of half a sequence
    assert llama_flops_per_token(LlamaConfig(**SEVEN)) == 3 * 2 * (weights + scores)


def test_keys_and_values_of_groups_and_a_width_of_ones_own() -> None:
    """Llama 3 8B."""
    config = LlamaConfig(
        hidden_size=4096, num_layers=32, num_heads=32, n_kv_heads=8, vocab_size=128256, seq_length=8192,
        intermediate_size=14336,
    )  # fmt: skip
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    scores = 2 * 4096 * 8192 / 2
    assert llama_flops_per_token(config) == 6 * (32 * (layer + scores) + 4096 * 128256)


@pytest.mark.parametrize(
    ("given", "width"),
    [({}, 11008), ({"multiple_of": 4096, "ffn_dim_multiplier": 1.3}, 16384), ({"multiple_of": 1}, 10922)],
)
def test_the_width_is_that_of_mindformers_layer(given: dict[str, Any], width: int) -> None:
    explicit = LlamaConfig(**SEVEN, intermediate_size=width)
    assert llama_flops_per_token(LlamaConfig(**{**SEVEN, **given})) == llama_flops_per_token(explicit)


def test_what_cannot_be_counted_is_not() -> None:
    assert llama_flops_per_token(SimpleNamespace(**SEVEN)) is None
    assert llama_flops_per_token(LlamaConfig(**SEVEN, moe_config=SimpleNamespace(expert_num=8))) is None
    assert llama_flops_per_token(LlamaConfig(**SEVEN, moe_config=SimpleNamespace(expert_num=1))) is not None


def test_the_configuration_is_found_inside_the_network() -> None:
    network = SimpleNamespace(network=SimpleNamespace(config=LlamaConfig(**SEVEN)))
    found = flops_per_token_of_model(TrainingParameters({"train_network": network}))
    assert found == llama_flops_per_token(LlamaConfig(**SEVEN))
    assert flops_per_token_of_model(TrainingParameters({})) is None
