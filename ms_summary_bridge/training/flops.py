"""The floating point operations that a token takes, by the configuration of the model.

Counted are the multiplications and additions of all matrices: the projections of attention, scores and their sum over
the values, the feed-forward layers, the logits; each twice more for the way back. Of the scores half are counted, since
the others are masked. Not counted are embeddings, norms, softmax, rotary embedding, the optimizer, and what is computed
again to save memory.

Source: MindFormers 1.9.0, `models/utils.py` `num_floating_point_operations`, counts so for its newer models;
`models/llama/llama_layer.py` has the width of the feed-forward layer.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["llama_flops_per_token"]

_FORWARD_AND_BACKWARD: Final = 3


def llama_flops_per_token(config: Any) -> float | None:
    """Returns the operations of one token; None but for MindFormers' LlamaConfig without experts.

    Args:
        config: `hidden_size`, `num_layers`, `num_heads`, `n_kv_heads`, `vocab_size`, `seq_length`, `intermediate_size`,
            `multiple_of`, `ffn_dim_multiplier`.
    """
    if not any(kind.__name__ == "LlamaConfig" for kind in type(config).__mro__):
        return None
    if (getattr(getattr(config, "moe_config", None), "expert_num", None) or 1) > 1:
        return None
    hidden, layers, heads = config.hidden_size, config.num_layers, config.num_heads
    of_keys = hidden // heads * (config.n_kv_heads or heads)
    projections = 2 * hidden * (2 * hidden + 2 * of_keys)  # queries and output, keys and values
    scores = 2 * 2 * hidden * config.seq_length / 2
    feed_forward = 2 * 3 * hidden * _feed_forward_width(config)
    forward = layers * (projections + scores + feed_forward) + 2 * hidden * config.vocab_size
    return float(_FORWARD_AND_BACKWARD * forward)


def _feed_forward_width(config: Any) -> int:
    if config.intermediate_size:
        return int(config.intermediate_size)
    width, multiple = 4 * config.hidden_size, config.multiple_of or 256
    if config.ffn_dim_multiplier is not None:
        width = int((config.ffn_dim_multiplier + 0.01) * width)
    width = int(2 * width / 3)
    return int(multiple * ((width + multiple - 1) // multiple))
