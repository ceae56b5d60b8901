"""The keys of a configuration, read from the structs that hold it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
import yaml
from msgspec import inspect

from ms_summary_bridge.monitor.model.config import CallbackConfig, MonitorConfig, WrittenKeys

__all__ = [
    "OWN_TYPES",
    "PARAMS",
    "SECTION",
    "SHARED",
    "Field",
    "describe_fields",
    "make_field",
    "object_schema",
    "read_fields",
    "say_flow",
]


class Field(NamedTuple):
    """One key: the attribute that it becomes, its type, and what it does in one line.

    `marks` are what `keys.key` was told besides, `default` is what it is where nobody says it, as a file holds it.
    """

    name: str
    kind: inspect.Type
    meaning: str
    marks: Mapping[str, Any]
    default: Any
    is_required: bool

    @property
    def example(self) -> Any:
        """A value, as a file holds it."""
        return self.default if self.marks.get("example") is None else self.marks["example"]


def make_field(name: str, kind: inspect.Type, default: Any = None, *, is_required: bool = False) -> Field:
    """Returns the key that a type describes."""
    schema: Mapping[str, Any] = {}
    marks: Mapping[str, Any] = {}
    if isinstance(kind, inspect.Metadata):
        schema, marks = kind.extra_json_schema or {}, kind.extra or {}
    return Field(name, kind, schema.get("description", ""), marks, _write(default), is_required)


@functools.cache
def read_fields(cls: type) -> dict[str, Field]:
    """Returns the keys of a struct, by the name that a file has for each."""
    info = inspect.type_info(cls)
    defaults = dict(zip(cls.__struct_fields__[::-1], cls.__struct_defaults__[::-1], strict=False))  # type: ignore[attr-defined]
    return {
        field.encode_name: make_field(field.name, field.type, defaults.get(field.name), is_required=field.required)
        for field in getattr(info, "fields", ())
    }


def _write(default: Any) -> Any:
    """Returns a default as a file holds it: a struct is written as its first field."""
    if isinstance(default, tuple):
        return [_write(item) for item in default]
    if isinstance(default, msgspec.Struct):
        return getattr(default, default.__struct_fields__[0])
    return default if isinstance(default, bool | int | float | str) else None


def say_flow(value: Any) -> str:
    """Returns a value as YAML in one line."""
    if isinstance(value, float) and value >= 1e6:
        return f"{value:.1e}".replace("e+0", "e+")
    text = yaml.safe_dump([value], default_flow_style=True, width=1 << 20, allow_unicode=True, sort_keys=False)
    return text.strip()[1:-1]


def object_schema(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    """Returns the JSON schema of a mapping with these keys and no others."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": dict(properties), **needed, "additionalProperties": False}


def describe_fields(fields: Mapping[str, Field], describe: Callable[[inspect.Type], dict[str, Any]]) -> dict[str, Any]:
    """Returns the JSON schemas of keys; each may stand without a value, which asks for the default."""
    return {
        name: {
            "anyOf": [describe(field.kind), {"type": "null"}],
            "description": field.meaning,
            **({} if field.default is None else {"default": field.default}),
        }
        for name, field in fields.items()
    }


_ELSEWHERE: Final = ("callback", "extends", "source", "raw")

SECTION: Final = {
    name: field
    for name, field in {**read_fields(MonitorConfig), **read_fields(WrittenKeys)}.items()
    if name not in _ELSEWHERE
}
"""Keys of the section, but `callback` and `extends`."""
PARAMS: Final = {name: field for name, field in read_fields(CallbackConfig).items() if name not in ("type", "params")}
"""Keys of `callback.params`; the section takes them too, for a MindFormers entry, which has no `callback`."""
SHARED: Final = {name: field for name, field in SECTION.items() if field.marks.get("in_params")}
"""Keys of the section that `callback.params` takes too, since people write them in either place."""
OWN_TYPES: Final = (CallbackConfig().type,)
"""Values of `callback.type` whose parameters are ours; another class has parameters of its own."""
