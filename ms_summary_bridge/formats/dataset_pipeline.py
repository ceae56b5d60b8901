"""MindSpore's graph of a data set as plain stages with their parameters, for whoever shows it.

Source: `proto/mindspore/lineage.proto`. What stands where was measured on MindSpore 2.10: the outermost stage is the
last one, `op_type` names a stage and `sampler_name` a sampler; an operation of a `map` is named by `tensor_op_name`,
and its parameters are one JSON object, `tensor_op_params`. Lists are lists of JSON texts.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import NOT_JSON, InvalidValueError
from ms_summary_bridge.formats.protos import PARSE_ERRORS, ms_pb, parse_fault

__all__ = ["Operation", "Stage", "read_pipeline"]

_TUNING: Final = ("num_parallel_workers", "connector_queue_size")  # of nearly every stage; they stand last


class Operation(msgspec.Struct):
    """What a stage does to each row, or how it takes samples."""

    name: str
    """Empty where it has none."""
    parameters: list[tuple[str, str]]
    """In the order in which a person reads them."""


class Stage(msgspec.Struct):
    """One stage of a pipeline."""

    name: str
    """Empty where it has none."""
    parameters: list[tuple[str, str]]
    """In the order in which a person reads them."""
    operations: list[Operation]
    sampler: Operation | None
    branches: list[list[Stage]]
    """The pipelines it joins, each from its source on; none for a source and where there is one stage before it."""


def read_pipeline(payload: bytes) -> list[Stage]:
    """Returns all stages of the data set graph in an event of a lineage file, from the source to the network.

    Raises:
        InvalidValueError: The payload holds no data set graph that can be read.
    """
    try:
        graph = ms_pb.LineageEvent.FromString(payload).dataset_graph
        return _read_chain(graph) if graph.ByteSize() else []
    except PARSE_ERRORS as error:
        raise InvalidValueError(f"the data set graph cannot be read: {parse_fault(error)}") from error


def _read_chain(graph: Any) -> list[Stage]:
    stages = [graph]
    while len(stages[-1].children) == 1:
        stages.append(stages[-1].children[0])
    return [_read_stage(stage) for stage in reversed(stages)]


def _read_stage(stage: Any) -> Stage:
    parameters = _parameters(stage.parameter)
    return Stage(
        name=parameters.pop("op_type", ""),
        parameters=list(parameters.items()),
        operations=[_read_operation(one) for one in stage.operations],
        sampler=_read_operation(stage.sampler) if stage.HasField("sampler") else None,
        branches=[_read_chain(child) for child in stage.children] if len(stage.children) > 1 else [],
    )


def _read_operation(operation: Any) -> Operation:
    parameters = _parameters(operation.operationParam)
    name = parameters.pop("tensor_op_name", "") or parameters.pop("sampler_name", "") or parameters.pop("op_type", "")
    inner = _load_object(parameters.get("tensor_op_params", "{}"))
    if inner is not None:
        parameters.pop("tensor_op_params", None)
        parameters.update(inner)
    for field in ("size", "weights"):
        numbers = getattr(operation, field)
        if numbers:
            parameters[field] = "[" + ", ".join(f"{number:.7g}" for number in numbers) + "]"
    return Operation(name, list(parameters.items()))


def _load_object(text: str) -> dict[str, str] | None:
    """Returns the entries of a JSON object as JSON texts; none for `None`, and None when it is something else."""
    if text == "None":
        return {}
    try:
        found = json.loads(text)
    except NOT_JSON:
        return None
    return {key: json.dumps(value) for key, value in found.items()} if isinstance(found, dict) else None


def _parameters(message: Any) -> dict[str, str]:
    """Returns the parameters by name, as texts, sorted."""
    parameters: dict[str, str] = {key: _text(value) for key, value in message.mapStr.items()}
    lists = ((key, map(_text, value.strValue)) for key, value in message.mapStrList.items())
    parameters.update((key, "[" + ", ".join(texts) + "]") for key, texts in lists)
    parameters.update((key, str(value).lower()) for key, value in message.mapBool.items())
    parameters.update((key, str(value)) for key, value in message.mapInt.items())
    parameters.update((key, repr(value)) for key, value in message.mapDouble.items())
    return dict(sorted(parameters.items(), key=lambda item: (item[0] in _TUNING, item)))


def _text(value: str | bytes) -> str:
    """Returns text for bytes: protobuf in C gives these where a text is not UTF-8, as a path need not be."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
