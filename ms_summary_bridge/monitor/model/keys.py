"""How a field of a configuration describes itself: its type holds the bounds, and `key` what it means.

The check, the schema, the template and the site's reference are all made from these descriptions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

__all__ = [
    "AboveZero",
    "BridgeArgument",
    "CallbackType",
    "Count",
    "DirectoryName",
    "MetricKey",
    "NotNegative",
    "Share",
    "ZeroOrMore",
    "key",
]


def key(meaning: str, example: Any = None, **marks: bool | str) -> Meta:
    """Returns the description of one key.

    Args:
        meaning: What it does, in one line.
        example: A value for the template and for messages; None for the default.
        marks: `one`: a list of one item may be written as the item. `in_params`: the key may stand in
            `callback.params` as well. `form`: the name of a written form that the type alone does not tell.
    """
    return Meta(description=meaning, extra={"example": example, **marks})


Count = Annotated[int, Meta(ge=1)]
ZeroOrMore = Annotated[int, Meta(ge=0)]
AboveZero = Annotated[float, Meta(gt=0)]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, le=1)]
DirectoryName = Annotated[str, Meta(extra={"form": "directory name"})]
MetricKey = Annotated[str, Meta(extra={"form": "metric"})]
CallbackType = Annotated[
    str,
    Meta(
        pattern=r"^(?:[A-Za-z_]\w*|[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*)$",
        extra={"words": "the name of a registered class, or package.module:Class"},
    ),
]

BridgeArgument = Literal[
    "summary_dir",
    "collect_freq",
    "num_process",
    "collect_specified_data",
    "keep_default_action",
    "custom_lineage_data",
    "collect_tensor_freq",
    "max_file_size",
    "export_options",
    "tensorboard_dir",
    "collect_graph",
    "collect_trainable_params",
    "collect_loss",
    "collect_lr",
    "collect_landmark",
    "flush_secs",
    "fsync",
    "queue_bytes",
]
"""The arguments of SummaryBridge, written out because importing it takes MindSpore; a test compares them."""
