"""MindSpore's side of a training session: the records of a lineage file.

Source: `proto/mindspore/lineage.proto`. What MindInsight 2.3.1 lists was measured: it needs a training, an evaluation
or a data set to list a run at all; each hyperparameter of the user's is an item of `user_info` of its own, and an item
without one makes it lose the lineage of every run.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ms_summary_bridge.errors import NOT_JSON
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.plugin_data import Origin, decode_origin, encode_origin
from ms_summary_bridge.formats.protos import PARSE_ERRORS, ms_pb, parse_fault
from ms_summary_bridge.formats.sessions.session import EVAL, SESSION_KINDS, TRAIN_LOSS, HParam, Session, shortest
from ms_summary_bridge.values import Scalar

__all__ = ["failed_training", "read_lineage", "write_lineage"]

_USER: Final = "user/"
_FAILURE: Final = "failure"  # kind of the origin behind a training that did not reach its end
_FAILED: Final = encode_origin(Origin(kind=_FAILURE))
_MAX_INT32: Final = (1 << 31) - 1
_FLOAT32: Final = struct.Struct("<f")
_FIELDS: Final = {
    **{
        name: ("train_lineage", "hyper_parameters", name)
        for name in (
            "optimizer",
            "learning_rate",
            "loss_function",
            "epoch",
            "batch_size",
            "parallel_mode",
            "device_num",
        )
    },
    "network": ("train_lineage", "algorithm", "network"),
    "train_dataset_path": ("train_lineage", "train_dataset", "train_dataset_path"),
    "train_dataset_size": ("train_lineage", "train_dataset", "train_dataset_size"),
    "model_path": ("train_lineage", "model", "path"),
    "model_size": ("train_lineage", "model", "size"),
    "valid_dataset_path": ("evaluation_lineage", "valid_dataset", "valid_dataset_path"),
    "valid_dataset_size": ("evaluation_lineage", "valid_dataset", "valid_dataset_size"),
}
"""Hyperparameter: the record, the part of it and the field that it is in."""


# ------------------------------------------------------------------ records -> session


def read_lineage(records: Mapping[str, bytes], start_times: Sequence[float] = ()) -> Session:
    """Reads a session out of its records; what cannot be read is named in `Session.left_out`.

    The user's own values keep their names where these are free; others get `user/` before them.

    Args:
        records: Payload of the last record of each kind, see `SESSION_KINDS`.
        start_times: When the run's summary files were begun. The session starts with the last one before its end.
    """
    session = Session()
    found: dict[str, Any] = {}
    for kind in SESSION_KINDS:
        if kind not in records:
            continue
        try:
            event = ms_pb.LineageEvent.FromString(records[kind])
            _READERS[kind](getattr(event, kind), session)
            found[kind] = event
        except PARSE_ERRORS as error:
            session.left_out.append(f"{kind} cannot be read: {parse_fault(error)}")
    last = found.get("train_lineage") or found.get("evaluation_lineage")
    if last is not None:
        session.status, session.end_time = "success", last.wall_time
        origin = decode_origin(last.train_lineage.SerializeToString())
        if origin is not None and origin.kind == _FAILURE:
            session.status = "failure"
    times = [event.wall_time for event in found.values()]
    if times:
        earlier = [begin for begin in start_times if begin <= (session.end_time or max(times))]
        session.start_time = earlier[-1] if earlier else min(times)
    return session


def _read_train(lineage: Any, session: Session) -> None:
    _read_fields("train_lineage", lineage, session)
    algorithm = lineage.algorithm
    if algorithm.HasField("loss"):
        session.metrics[TRAIN_LOSS] = shortest(Scalar.from_float32(algorithm.loss))
    session.model_uri = _checkpoint_of(_text(lineage.model.path))
    if session.model_uri:
        session.hparams["model_path"] = session.model_uri
    else:  # MindSpore writes {"ckpt": null} and a size of 0
        session.hparams.pop("model_path", None)
        if not session.hparams.get("model_size"):
            session.hparams.pop("model_size", None)


def _read_evaluation(lineage: Any, session: Session) -> None:
    _read_fields("evaluation_lineage", lineage, session)
    if not lineage.metric:
        return
    try:
        metrics = json.loads(lineage.metric)
    except ValueError as error:
        session.left_out.append(f"the metrics are not JSON: {error}")
        return
    for name, value in _flatten(metrics):
        if isinstance(value, (int, float)):
            session.metrics[f"{EVAL}{name or 'metric'}"] = _float(value)
        else:
            session.left_out.append(f"the metric {name!r} is not a number")


def _read_user(info: Any, session: Session) -> None:
    for name, value in _entries(info):
        is_free = name and name not in _FIELDS and not name.startswith(_USER)
        session.hparams[name if is_free else _USER + name] = _hparam(value)


_READERS: Final = {
    "train_lineage": _read_train,
    "evaluation_lineage": _read_evaluation,
    "user_defined_info": _read_user,
}


def _read_fields(kind: str, lineage: Any, session: Session) -> None:
    for name, (record, part, field) in _FIELDS.items():
        if record == kind and getattr(lineage, part).HasField(field):
            value = _text(getattr(getattr(lineage, part), field))
            if name == "learning_rate":  # the one float32
                value = shortest(Scalar.from_float32(value))
            session.hparams[name] = _hparam(value, is_text=isinstance(value, str))


def _hparam(value: Any, *, is_text: bool = False) -> HParam:
    """Returns a value as TensorBoard has them. NaN and infinities become texts, since its table leaves them out."""
    if isinstance(value, str):
        return value == "true" if value in ("true", "false") and not is_text else value
    return float(value) if math.isfinite(value) else str(float(value))


def _checkpoint_of(path: str) -> str:
    """MindSpore writes the path of the checkpoint as JSON."""
    try:
        found = json.loads(path)
    except NOT_JSON:
        return path
    checkpoint = found.get("ckpt") if isinstance(found, dict) else path
    return checkpoint if isinstance(checkpoint, str) else ""


def _entries(info: Any) -> Iterator[tuple[str, Any]]:
    """Yields the user's values: MindSpore writes a list of items, and the format has room for trees."""
    for item in info.user_info:
        yield from _entries(item)
    for field in (info.map_int32, info.map_double, info.map_str):
        yield from sorted((_text(name), _text(value)) for name, value in field.items())
    for outer, inner in sorted(info.map_dict.items(), key=lambda item: item[0]):
        yield from ((f"{outer}/{name}", value) for name, value in _entries(inner))


def _text(value: Any) -> Any:
    """Returns text for bytes: protobuf gives these where a text is not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _flatten(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what a JSON value holds, under paths: `{"a": [1, {"b": 2}]}` gives `a/0` and `a/1/b`."""
    if isinstance(value, (dict, list)):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _flatten(inner, f"{name}/{key}" if name else str(key))
    else:
        yield name, value


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # JSON's integers have no end
        return math.inf if value > 0 else -math.inf


# ------------------------------------------------------------------ session -> records


def write_lineage(wall_time: float, session: Session, *, is_lineage: bool) -> list[bytes]:
    """Returns the payloads of a lineage file.

    Args:
        wall_time: Seconds since the epoch, for all events.
        session: What to write. Metrics of an evaluation that are not finite are left out, since the field is JSON, and
            named in `Session.left_out`.
        is_lineage: The session was read from lineage, and goes where it came from. Otherwise all hyperparameters are
            the user's own, and all metrics those of an evaluation.
    """
    hparams = dict(session.hparams)
    metrics = dict(session.metrics)
    train, evaluation = ms_pb.TrainLineage(), ms_pb.EvaluationLineage()
    if is_lineage:
        for name, (kind, part, field) in _FIELDS.items():
            message = getattr(train if kind == "train_lineage" else evaluation, part)
            if name in hparams and _set(message, field, hparams[name]):
                del hparams[name]
        if TRAIN_LOSS in metrics:
            _set(train.algorithm, "loss", metrics[TRAIN_LOSS])
        if train.model.HasField("path"):
            train.model.path = json.dumps({"ckpt": train.model.path})
        hparams = {name.removeprefix(_USER): value for name, value in hparams.items()}
        metrics = {tag[len(EVAL) :]: value for tag, value in metrics.items() if tag.startswith(EVAL)}
    elif session.status != "unknown":
        hparams.setdefault("status", session.status)
    for name in [name for name, value in metrics.items() if not math.isfinite(value)]:
        session.left_out.append(f"the metric {name!r} is {metrics.pop(name)}, which JSON does not hold")
    has_training = bool(train.ByteSize())
    if metrics or not (has_training or evaluation.ByteSize()):  # MindInsight lists nothing that has neither
        evaluation.metric = json.dumps(metrics, sort_keys=True)
    head = wire.fixed64(b"\x09", wall_time)
    payloads = []
    if has_training:
        data = train.SerializeToString(deterministic=True) + (_FAILED if session.status == "failure" else b"")
        payloads.append(head + wire.length_delimited(b"\x32", data))
    if evaluation.ByteSize():
        payloads.append(head + wire.length_delimited(b"\x3a", evaluation.SerializeToString(deterministic=True)))
    items = b"".join(wire.length_delimited(b"\x0a", _entry(name, value)) for name, value in sorted(hparams.items()))
    if items:
        payloads.append(head + wire.length_delimited(b"\x52", items))
    return payloads


def failed_training(train_lineage: bytes) -> bytes:
    """Returns the `TrainLineage` of a training that did not reach its end, from the one that it began with.

    It has no loss, and a field of ours that MindSpore's readers pass over says that it failed.

    Raises:
        DecodeError: The bytes are not such a message.
    """
    lineage = ms_pb.TrainLineage.FromString(train_lineage)
    lineage.algorithm.ClearField("loss")
    data: bytes = lineage.SerializeToString(deterministic=True)
    return data + _FAILED


def _set(message: Any, field: str, value: HParam) -> bool:
    """Sets a field; returns whether it can hold the value."""
    kind = type(getattr(message, field))
    try:
        if kind is int and not (isinstance(value, float) and value.is_integer()):
            return False
        converted = kind(value)
        if kind is float:  # all of them are float32; the digits of the largest, read as float64, lie above it
            (converted,) = _FLOAT32.unpack(_FLOAT32.pack(converted))
        setattr(message, field, converted)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _entry(name: str, value: HParam) -> bytes:
    key = wire.length_delimited(b"\x0a", name.encode("utf-8", "replace"))
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_INT32:
        return wire.length_delimited(b"\x1a", key + b"\x10" + wire.varint(int(value)))
    if isinstance(value, float):
        return wire.length_delimited(b"\x2a", key + wire.fixed64(b"\x11", value))
    text = str(value).lower() if isinstance(value, bool) else value
    return wire.length_delimited(b"\x22", key + wire.length_delimited(b"\x12", text.encode("utf-8", "replace")))
