"""Hyperparameters and metrics of a TensorBoard run, as MindInsight's lineage.

Layer: values, formats.wire, formats.protos < **formats.hparams**.

Source: the messages in `proto/`; what MindInsight 2.3.1 lists was measured. It
needs a training, evaluation or data set lineage to list a run at all; each hyperparameter is an item of
`user_info` of its own, and an item without one makes it lose the lineage of every run.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from google.protobuf.message import DecodeError

from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats._origin import decode_metadata
from ms_summary_bridge.formats.protos import tb_pb

__all__ = ["read_hparams", "write_lineage"]

_MAX_INT32: Final = (1 << 31) - 1


def read_hparams(message: bytes) -> dict[str, str | float | bool] | None:
    """Returns the hyperparameters that one value of the `hparams` plugin starts a session with.

    Args:
        message: The value's bytes, its metadata among them.

    Returns:
        None when the value says something else (the experiment's layout, a session's end), or cannot be read.
    """
    content = b""
    for key, a, b in wire.fields(message, 0, len(message)):
        if key == 0x4A:
            _, content = decode_metadata(message, a, b)
    try:
        data = tb_pb.hparams.HParamsPluginData.FromString(content)
    except DecodeError:
        return None
    if not data.HasField("session_start_info"):
        return None
    return {name: _plain(value) for name, value in sorted(data.session_start_info.hparams.items())}


def _plain(value: Any) -> str | float | bool:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        return float(value.number_value)
    if kind == "bool_value":
        return bool(value.bool_value)
    return str(value.string_value) if kind == "string_value" else ""


def write_lineage(wall_time: float, hparams: dict[str, str | float | bool], metrics: dict[str, float]) -> list[bytes]:
    """Returns the payloads of a lineage file: the hyperparameters as the user's own, the metrics as an evaluation.

    Args:
        wall_time: Seconds since the epoch, for both events.
        hparams: Hyperparameters by name.
        metrics: The last value of each metric; those that are not finite are left out, since the field is JSON.
    """
    head = wire.fixed64(b"\x09", wall_time)
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    metric = wire.length_delimited(b"\x12", json.dumps(finite, sort_keys=True).encode())
    payloads = [head + wire.length_delimited(b"\x3a", metric)]
    items = b"".join(wire.length_delimited(b"\x0a", _entry(name, value)) for name, value in hparams.items())
    if items:
        payloads.append(head + wire.length_delimited(b"\x52", items))
    return payloads


def _entry(name: str, value: str | float | bool) -> bytes:
    key = wire.length_delimited(b"\x0a", name.encode("utf-8", "replace"))
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_INT32:
        return wire.length_delimited(b"\x1a", key + b"\x10" + wire.varint(int(value)))
    if isinstance(value, float):
        return wire.length_delimited(b"\x2a", key + wire.fixed64(b"\x11", value))
    text = str(value).lower() if isinstance(value, bool) else value
    return wire.length_delimited(b"\x22", key + wire.length_delimited(b"\x12", text.encode("utf-8", "replace")))
