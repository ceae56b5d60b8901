"""Says to editors, as JSON schema, what a configuration may hold.

It comes from the same structs as the check. What no schema can say is left to the check: keys given twice, limits the
wrong way round, a metric named twice under two names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import inspect

from ms_summary_bridge.monitor.config.fields import (
    OWN_TYPES,
    PARAMS,
    SECTION,
    SHARED,
    describe_fields,
    object_schema,
    read_fields,
)
from ms_summary_bridge.monitor.config.forms import FORMS
from ms_summary_bridge.monitor.model.config import CallbackConfig, MonitorConfig, WrittenKeys

__all__ = ["build_schema", "build_section_schema"]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"


def build_schema() -> dict[str, Any]:
    """Returns the schema of a whole file, with `monitor_config` among keys of others."""
    return {
        "$schema": _DRAFT,
        "title": "A file with a monitor_config section",
        "type": "object",
        "properties": {"monitor_config": build_section_schema(), **_describe_extends()},
        "required": ["monitor_config"],
    }


def build_section_schema() -> dict[str, Any]:
    """Returns the schema of the section alone."""
    ours = {**PARAMS, **SHARED}
    callback = {
        "type": ["object", "null"],
        "description": read_fields(MonitorConfig)["callback"].meaning,
        "properties": {
            **describe_fields({"type": read_fields(CallbackConfig)["type"]}, _describe),
            "params": {"type": ["object", "null"], "properties": describe_fields(ours, _describe)},
        },
        "additionalProperties": False,
        # The parameters of a class of the user's are not known here.
        "if": {"properties": {"type": {"enum": [*OWN_TYPES, None]}}},
        "then": {"properties": {"params": {"properties": {name: {} for name in ours}, "additionalProperties": False}}},
    }
    section = {**describe_fields({**SECTION, **PARAMS}, _describe), "callback": callback, **_describe_extends()}
    return {
        "description": "what the monitor records; true for all defaults and the best checkpoint, false for no monitor",
        "anyOf": [{"type": ["boolean", "null"]}, object_schema(section)],
    }


def _describe_extends() -> dict[str, Any]:
    return describe_fields({"extends": read_fields(WrittenKeys)["extends"]}, _describe)


def _describe(kind: inspect.Type, marks: Mapping[str, Any] | None = None) -> dict[str, Any]:
    marks = marks or {}
    if isinstance(kind, inspect.Metadata):
        return _describe(kind.type, {**marks, **(kind.extra or {})})
    form = FORMS.get(marks.get("form", getattr(kind, "cls", None)))
    if form is not None:
        return form.schema(_describe)
    match kind:
        case inspect.UnionType():
            kinds = [_describe(one, marks) for one in kind.types if not isinstance(one, inspect.NoneType)]
            return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType() | inspect.FloatType():
            limits = {"exclusiveMinimum": kind.gt, "minimum": kind.ge, "maximum": kind.le}
            name = "integer" if isinstance(kind, inspect.IntType) else "number"
            return {"type": name, **{word: limit for word, limit in limits.items() if limit is not None}}
        case inspect.StrType(pattern=pattern):
            return {"type": "string", "pattern": pattern or r"\S"}
        case inspect.LiteralType(values=values):
            words = [str(word) for word in values]
            return {"enum": sorted({*words, *(word.lower() for word in words)})}
        case inspect.StructType(cls=cls):
            fields = read_fields(cls)
            needed = [name for name, field in fields.items() if field.is_required]
            whole = object_schema(describe_fields(fields, _describe), *needed)
            return {"anyOf": [_describe(next(iter(fields.values())).kind), whole]}
        case inspect.VarTupleType(item_type=item):
            many = {"type": "array", "items": _describe(item), "uniqueItems": True}
            return {"anyOf": [_describe(item), many]} if marks.get("one") else many
        case inspect.DictType(key_type=inspect.LiteralType(values=names), value_type=inner):
            return object_schema({str(name): _describe(inner) for name in names})
        case inspect.DictType(value_type=inner):
            return {"type": "object", "additionalProperties": {"anyOf": [_describe(inner), {"type": "null"}]}}
    return {}
