"""TensorBoard's side of a training session: the values of its `hparams` plugin.

Source: `proto/tensorboard/hparams.proto`. Measured on TensorBoard 2.21, in both loaders: a session is a run with a
value under `_hparams_/session_start_info`, which has an empty tensor and says everything in its metadata; of several
such values in one run the first counts; every scalar of the run is a metric; hyperparameters that are not finite are
not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ms_summary_bridge.errors import EventDecodeError
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.plugin_data import (
    DATA_CLASS_SCALAR,
    DATA_CLASS_TENSOR,
    Origin,
    decode_metadata,
    decode_origin,
    encode_metadata,
)
from ms_summary_bridge.formats.protos import PARSE_ERRORS, tb_pb
from ms_summary_bridge.formats.sessions.session import EVAL, STATUSES, TRAIN_LOSS, HParam, Session
from ms_summary_bridge.values import Scalar

__all__ = [
    "END_TAG",
    "START_TAG",
    "encode_session_end",
    "encode_session_start",
    "is_lineage",
    "is_metric_of_lineage",
    "read_session",
    "read_session_end",
]

START_TAG: Final = "_hparams_/session_start_info"
END_TAG: Final = "_hparams_/session_end_info"

_KIND: Final = "lineage"  # of the origin in what we write
_EMPTY_TENSOR: Final = b"\x42\x08\x08\x01\x12\x04\x12\x02\x08\x00"  # DT_FLOAT, shape [0]


# ------------------------------------------------------------------ values -> session


def read_session(values: Mapping[str, bytes], metrics: Mapping[str, float]) -> Session | None:
    """Reads a session; None where the value that starts one cannot be read.

    Args:
        values: Message of each value of the plugin, by its tag.
        metrics: The last value of each scalar of the run. Of a session made from lineage only lineage's are taken.
    """
    if START_TAG not in values:  # as in most runs: protobuf is not loaded for them
        return None
    content = _content(values[START_TAG])
    start = _plugin_data(content)
    if start is None or not start.HasField("session_start_info"):
        return None
    info = start.session_start_info
    session = Session({name: _plain(value) for name, value in sorted(info.hparams.items())})
    session.metrics = {
        tag: value for tag, value in metrics.items() if not is_lineage(content) or is_metric_of_lineage(tag)
    }
    session.start_time, session.model_uri = info.start_time_secs, info.model_uri
    session.status, session.end_time = read_session_end(values.get(END_TAG, b""))
    return session


def read_session_end(message: bytes) -> tuple[str, float]:
    """Returns the status in the message of a value `END_TAG`, and when that was; `unknown` and 0 where it has none."""
    end = _plugin_data(_content(message))
    if end is None or not end.HasField("session_end_info"):
        return STATUSES[0], 0.0
    status = end.session_end_info.status
    return STATUSES[status] if 0 <= status < len(STATUSES) else STATUSES[0], end.session_end_info.end_time_secs


def is_lineage(message: bytes) -> bool:
    """Whether a value of the plugin (its message, or the content in its metadata) was made from lineage, by us."""
    origin = decode_origin(message) or decode_origin(_content(message))
    return origin is not None and origin.derived


def is_metric_of_lineage(tag: str) -> bool:
    """Whether a scalar has the tag of one that `encode_session_end` writes."""
    return tag == TRAIN_LOSS or tag.startswith(EVAL)


def _content(message: bytes) -> bytes:
    """Returns what the metadata in a value's message holds for its plugin."""
    try:
        metadata = wire.last_fields(message).get(0x4A, b"")
        return decode_metadata(metadata, 0, len(metadata))[1]
    except EventDecodeError:
        return b""


def _plugin_data(content: bytes) -> Any:
    try:
        return tb_pb.hparams.HParamsPluginData.FromString(content)
    except PARSE_ERRORS:
        return None


def _plain(value: Any) -> HParam:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        return float(value.number_value)
    if kind == "bool_value":
        return bool(value.bool_value)
    if kind == "string_value":
        return str(value.string_value)
    if kind in (None, "null_value"):
        return ""
    import json  # here: most runs need none, and each would wait for it

    return json.dumps(_tree(value), ensure_ascii=False)


def _tree(value: Any) -> Any:
    """Returns a list or a struct as JSON has them."""
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        return [_tree(item) for item in value.list_value.values]
    if kind == "struct_value":
        return {name: _tree(item) for name, item in sorted(value.struct_value.fields.items())}
    return None if kind in (None, "null_value") else getattr(value, kind)


# ------------------------------------------------------------------ session -> values


def encode_session_start(session: Session) -> bytes:
    """Returns the event that starts a session made from lineage."""
    data = tb_pb.hparams.HParamsPluginData()
    info = data.session_start_info
    info.SetInParent()
    for name, value in session.hparams.items():
        name = _utf8(name)
        if isinstance(value, bool):
            info.hparams[name].bool_value = value
        elif isinstance(value, float):
            info.hparams[name].number_value = value
        else:
            info.hparams[name].string_value = _utf8(value)
    info.start_time_secs, info.model_uri = session.start_time, _utf8(session.model_uri)
    return _event(session.start_time, [_value(START_TAG, data)])


def encode_session_end(session: Session, taken: Mapping[str, str]) -> bytes | None:
    """Returns the event with the metrics and the end of a session made from lineage; None when it has neither.

    Its step is 0, as MindSpore's own record of them has it.

    Args:
        session: What to write.
        taken: Names of the run's series, with their kinds. A metric with the tag of a scalar is left out: the series is
            the metric then. One with the tag of another kind gets another name.
    """
    values = []
    for tag, number in session.metrics.items():
        wish = name = _utf8(tag)
        if taken.get(name) != "scalar":
            while name in taken:
                name += "/metric"
            message = wire.text(b"\x0a", name) + b"\x15" + Scalar.from_float32(number).bits
            origin = Origin(None if name == wish else wish, derived=True, kind=_KIND)
            values.append(message + encode_metadata("scalars", DATA_CLASS_SCALAR, origin))
    if session.status != "unknown":
        data = tb_pb.hparams.HParamsPluginData()
        data.session_end_info.status = STATUSES.index(session.status)
        data.session_end_info.end_time_secs = session.end_time
        values.append(_value(END_TAG, data))
    return _event(session.end_time or session.start_time, values) if values else None


def _event(wall_time: float, values: list[bytes]) -> bytes:
    body = b"".join(wire.length_delimited(b"\x0a", value) for value in values)
    return wire.fixed64(b"\x09", wall_time) + wire.length_delimited(b"\x2a", body)


def _value(tag: str, data: Any) -> bytes:
    content = data.SerializeToString(deterministic=True)
    metadata = encode_metadata("hparams", DATA_CLASS_TENSOR, Origin(derived=True, kind=_KIND), content)
    return wire.text(b"\x0a", tag) + _EMPTY_TENSOR + metadata


def _utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
