"""MindSpore's graph of a data set, as a numbered pipeline that a person reads in TensorBoard's text page.

Layer: formats.protos < **formats.dataset_graph**.

Source: `proto/mindspore/lineage.proto`. What stands where was measured on MindSpore 2.10: the outermost stage is the
last one, `op_type` names a stage and `sampler_name` a sampler; an operation of a `map` is named by `tensor_op_name`,
and its parameters are one JSON object, `tensor_op_params`. Lists are lists of JSON texts.

The markdown is that of TensorBoard 2.21 (Python-Markdown): a list inside a list is indented by four spaces, and two
lists at one depth would run into one, so there is only the numbered kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.message import DecodeError

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats.protos import ms_pb

__all__ = ["TAG", "describe_dataset_graph"]

TAG: Final = "dataset_graph"
"""Tag of the text; a data set graph has none of its own."""

_SHOWN_CHARACTERS: Final = 200  # of one value
_SHOWN_PARTS: Final = 200  # stages of a branch, operations of a stage, parameters
_TUNING: Final = ("num_parallel_workers", "connector_queue_size")  # of nearly every stage; they stand last
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]()>#+\-.!|])")
_INDENT: Final = "    "


def describe_dataset_graph(payload: bytes) -> str:
    """Returns the markdown for one event of a lineage file: each stage with its parameters, from the source on.

    Args:
        payload: The whole event.

    Raises:
        InvalidValueError: The payload holds no data set graph that can be read.
    """
    try:
        return _describe(ms_pb.LineageEvent.FromString(payload).dataset_graph)
    except (DecodeError, RecursionError, ValueError) as error:  # a key that is not UTF-8 is found when it is looked at
        raise InvalidValueError(f"the data set graph cannot be read: {error}") from error


def _describe(graph: Any) -> str:
    if not graph.ByteSize():
        return "**Data pipeline**: no stage is recorded.\n"
    count = _count(graph)
    stages = "1 stage" if count == 1 else f"{count} stages, from the source to what the network is fed with"
    return "\n".join([f"**Data pipeline**: {stages}.", "", *_describe_chain(graph, "")]) + "\n"


def _count(graph: Any) -> int:
    return 1 + sum(map(_count, graph.children))


def _describe_chain(graph: Any, indent: str) -> Iterator[str]:
    """Yields the lines for a stage and everything before it, sources first."""
    stages = [graph]
    while len(stages[-1].children) == 1:
        stages.append(stages[-1].children[0])
    for number, stage in enumerate(_bounded(reversed(stages)), 1):
        yield f"{indent}{number}. {stage if isinstance(stage, str) else _title(stage)}"
        if not isinstance(stage, str):
            yield from _describe_parts(stage, indent + _INDENT)


def _describe_parts(stage: Any, indent: str) -> Iterator[str]:
    """Yields what stands below a stage: the branches it joins, or its operations."""
    number = 0
    for branch in _bounded(stage.children if len(stage.children) > 1 else ()):
        number += 1
        if isinstance(branch, str):
            yield f"{indent}{number}. {branch}"
            continue
        yield f"{indent}{number}. branch into {_bold(_text(stage.parameter.mapStr.get('op_type', '')))}"
        yield from _describe_chain(branch, indent + _INDENT)
    for operation in _bounded(stage.operations):
        number += 1
        yield f"{indent}{number}. {operation if isinstance(operation, str) else _operation(operation)}"


def _bounded(parts: Iterable[Any]) -> Iterator[Any]:
    """Yields so many parts as a person may look at, and a text for the rest."""
    listed = list(parts)
    yield from listed[:_SHOWN_PARTS]
    if len(listed) > _SHOWN_PARTS:
        yield f"and {len(listed) - _SHOWN_PARTS} more"


def _title(stage: Any) -> str:
    parameters = _parameters(stage.parameter)
    title = _bold(parameters.pop("op_type", ""))
    if len(stage.children) > 1:
        title += f" joins {len(stage.children)} branches"
    title = " ".join([title, *_tokens(parameters)])
    if stage.HasField("sampler"):
        title += ", sampled by " + _operation(stage.sampler)
    return title


def _operation(operation: Any) -> str:
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
    return " ".join([_bold(name), *_tokens(parameters)])


def _load_object(text: str) -> dict[str, str] | None:
    """Returns the entries of a JSON object as JSON texts; none for `None`, and None when it is something else."""
    if text == "None":
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
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


def _bold(name: str) -> str:
    text = _MARKDOWN.sub(r"\\\1", " ".join(_shorten(name).split())).replace("&", "&amp;").replace("<", "&lt;")
    return f"**{text}**" if text else "(no name)"


def _tokens(parameters: dict[str, str]) -> Iterator[str]:
    for part in _bounded(parameters.items()):
        yield part if isinstance(part, str) else _code(f"{part[0]}={_shorten(part[1])}")


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"


def _code(text: str) -> str:
    """Returns a text as inline code; the marks around it are longer than any run of the same inside."""
    line = " ".join(text.split())
    ticks = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{ticks} {line} {ticks}" if len(ticks) > 1 else f"`{line}`"
