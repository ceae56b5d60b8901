"""MindSpore's graph of a data set as plain stages with their parameters, for whoever draws it.

Layer: formats.protos < **formats.dataset_pipeline**.

Source: `proto/mindspore/lineage.proto`; what stands where is told in `formats.dataset_graph`, which writes the same as
a text.
"""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats.protos import ms_pb

__all__ = ["Operation", "Stage", "read_pipeline"]

_MOST_PARTS: Final = 200  # stages of a branch, branches, operations, parameters
_MOST_CHARACTERS: Final = 200  # of one value
_NAMES: Final = ("op_type", "tensor_op_name", "sampler_name")


class Operation(msgspec.Struct):
    """What a stage does to each row, or how it takes samples."""

    name: str
    parameters: list[tuple[str, str]]


class Stage(msgspec.Struct):
    """One stage of a pipeline."""

    name: str
    parameters: list[tuple[str, str]]
    operations: list[Operation]
    sampler: Operation | None
    branches: list[list[Stage]]
    """The pipelines it joins, each from its source on; none for a source and where there is one stage before it."""


def read_pipeline(payload: bytes) -> list[Stage]:
    """Returns the stages of a data set graph, from the source to what the network is fed with.

    Args:
        payload: A whole event of a lineage file.

    Raises:
        InvalidValueError: The payload holds no data set graph that can be read.
    """
    try:
        graph = ms_pb.LineageEvent.FromString(payload).dataset_graph
        return _read_chain(graph) if graph.ByteSize() else []
    except (DecodeError, RecursionError, ValueError) as error:  # a key that is not UTF-8 is found when it is looked at
        raise InvalidValueError(f"the data set graph cannot be read: {error}") from error


def _read_chain(graph: Any) -> list[Stage]:
    stages = [graph]
    while len(stages[-1].children) == 1:  # the outermost stage is the last one
        stages.append(stages[-1].children[0])
    return [_read_stage(stage) for stage in reversed(stages[:_MOST_PARTS])]


def _read_stage(stage: Any) -> Stage:
    operation = _named(_parameters(stage.parameter))
    return Stage(
        name=operation.name,
        parameters=operation.parameters,
        operations=[_read_operation(one) for one in stage.operations[:_MOST_PARTS]],
        sampler=_read_operation(stage.sampler) if stage.HasField("sampler") else None,
        branches=[_read_chain(child) for child in stage.children[:_MOST_PARTS]] if len(stage.children) > 1 else [],
    )


def _read_operation(operation: Any) -> Operation:
    parameters = _parameters(operation.operationParam)
    text = parameters.get("tensor_op_params", "")
    try:  # one text holds all parameters of an operation of a map, as JSON; `None` where it has none
        inner = {} if text == "None" else json.loads(text)
    except (ValueError, RecursionError):
        inner = None
    if isinstance(inner, dict):
        del parameters["tensor_op_params"]
        parameters.update((key, json.dumps(value)) for key, value in inner.items())
    for field in ("size", "weights"):
        numbers = getattr(operation, field)[:_MOST_PARTS]
        if numbers:
            parameters[field] = ", ".join(f"{number:.7g}" for number in numbers)
    return _named(parameters)


def _named(parameters: dict[str, str]) -> Operation:
    name = next((parameters[key] for key in _NAMES if parameters.get(key)), "")
    shown = [(key, _shorten(value)) for key, value in sorted(parameters.items()) if key not in _NAMES]
    return Operation(_shorten(name) or "(no name)", shown[:_MOST_PARTS])


def _shorten(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + "…"


def _parameters(message: Any) -> dict[str, str]:
    parameters: dict[str, str] = {key: _text(value) for key, value in message.mapStr.items()}
    lists = ((key, value.strValue[:_MOST_PARTS]) for key, value in message.mapStrList.items())
    parameters.update((key, "[" + ", ".join(map(_text, texts)) + "]") for key, texts in lists)
    parameters.update((key, str(value).lower()) for key, value in message.mapBool.items())
    parameters.update((key, str(value)) for key, value in message.mapInt.items())
    parameters.update((key, repr(value)) for key, value in message.mapDouble.items())
    return parameters


def _text(value: str | bytes) -> str:
    """Returns text for bytes, which protobuf gives where a text is not UTF-8."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
