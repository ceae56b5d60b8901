"""MindSpore's graph of a data set, as a numbered pipeline that a person reads in TensorBoard's text page.

The markdown is that of TensorBoard 2.21 (Python-Markdown): a list inside a list is indented by four spaces, and two
lists at one depth would run into one, so there is only the numbered kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from ms_summary_bridge.formats.dataset_pipeline import Operation, Stage, read_pipeline

__all__ = ["TAG", "describe_dataset_graph"]

TAG: Final = "dataset_graph"
"""Tag of the text; a data set graph has none of its own."""

_SHOWN_CHARACTERS: Final = 200  # of one value
_SHOWN_PARTS: Final = 200  # stages of a branch, operations of a stage, parameters
_MARKDOWN: Final = re.compile(r"([\\`*_{}\[\]()>#+\-.!|])")
_INDENT: Final = "    "


def describe_dataset_graph(payload: bytes) -> str:
    """Returns the markdown for one event of a lineage file: each stage with its parameters, from the source on.

    Raises:
        InvalidValueError: The payload holds no data set graph that can be read.
    """
    stages = read_pipeline(payload)
    if not stages:
        return "**Data pipeline**: no stage is recorded.\n"
    count = _count(stages)
    text = "1 stage" if count == 1 else f"{count} stages, from the source to what the network is fed with"
    return "\n".join([f"**Data pipeline**: {text}.", "", *_describe_chain(stages, "")]) + "\n"


def _count(stages: list[Stage]) -> int:
    return len(stages) + sum(_count(branch) for stage in stages for branch in stage.branches)


def _describe_chain(stages: list[Stage], indent: str) -> Iterator[str]:
    """Yields the lines for the stages of a chain and everything before them, sources first."""
    for number, stage in enumerate(_bounded(stages), 1):
        yield f"{indent}{number}. {stage if isinstance(stage, str) else _title(stage)}"
        if not isinstance(stage, str):
            yield from _describe_parts(stage, indent + _INDENT)


def _describe_parts(stage: Stage, indent: str) -> Iterator[str]:
    """Yields what stands below a stage: the branches it joins, or its operations."""
    number = 0
    for branch in _bounded(stage.branches):
        number += 1
        if isinstance(branch, str):
            yield f"{indent}{number}. {branch}"
            continue
        yield f"{indent}{number}. branch into {_bold(stage.name)}"
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


def _title(stage: Stage) -> str:
    title = _bold(stage.name)
    if stage.branches:
        title += f" joins {len(stage.branches)} branches"
    title = " ".join([title, *_tokens(stage.parameters)])
    if stage.sampler is not None:
        title += ", sampled by " + _operation(stage.sampler)
    return title


def _operation(operation: Operation) -> str:
    return " ".join([_bold(operation.name), *_tokens(operation.parameters)])


def _bold(name: str) -> str:
    text = _MARKDOWN.sub(r"\\\1", " ".join(_shorten(name).split())).replace("&", "&amp;").replace("<", "&lt;")
    return f"**{text}**" if text else "(no name)"


def _tokens(parameters: list[tuple[str, str]]) -> Iterator[str]:
    for part in _bounded(parameters):
        yield part if isinstance(part, str) else _code(f"{part[0]}={_shorten(part[1])}")


def _shorten(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"


def _code(text: str) -> str:
    """Returns a text as inline code; the marks around it are longer than any run of the same inside."""
    line = " ".join(text.split())
    ticks = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{ticks} {line} {ticks}" if len(ticks) > 1 else f"`{line}`"
