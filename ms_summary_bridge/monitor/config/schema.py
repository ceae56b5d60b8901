"""Says to editors, as JSON schema, what a configuration may hold.

It comes from the same table as the check. What no schema can say is left to the check: keys given twice, limits the
wrong way round, a metric named twice under two names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ms_summary_bridge.monitor.config.check import OWN_TYPES
from ms_summary_bridge.monitor.config.keys import CALLBACK_TYPE, PARAMS, SECTION, WITHIN_BOTH, Key
from ms_summary_bridge.monitor.model.config import CallbackConfig, MonitorConfig

__all__ = ["build_schema", "build_section_schema"]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_EXTENDS = {"type": ["string", "null"], "pattern": r"\S", "description": "a file whose section this one changes"}


def build_schema() -> dict[str, Any]:
    """Returns the schema of a whole file, with `monitor_config` among keys of others."""
    return {
        "$schema": _DRAFT,
        "title": "A file with a monitor_config section",
        "type": "object",
        "properties": {"monitor_config": build_section_schema(), "extends": _EXTENDS},
        "required": ["monitor_config"],
    }


def build_section_schema() -> dict[str, Any]:
    """Returns the schema of the section alone."""
    ours = {**PARAMS, **WITHIN_BOTH}
    callback = {
        "type": ["object", "null"],
        "description": "the callback that carries the monitor, and when it warns",
        "properties": {
            "type": _describe(CALLBACK_TYPE, CallbackConfig().type),
            "params": {"type": ["object", "null"], "properties": _describe_all(ours)},
        },
        "additionalProperties": False,
        # The parameters of a class of the user's are not known here.
        "if": {"properties": {"type": {"enum": [*OWN_TYPES, None]}}},
        "then": {"properties": {"params": {"properties": {name: {} for name in ours}, "additionalProperties": False}}},
    }
    section = {
        "type": "object",
        "properties": {**_describe_all({**SECTION, **PARAMS}), "callback": callback, "extends": _EXTENDS},
        "additionalProperties": False,
    }
    return {
        "description": "what the monitor records; true for all defaults and the best checkpoint, false for no monitor",
        "anyOf": [{"type": ["boolean", "null"]}, section],
    }


def _describe_all(keys: Mapping[str, Key]) -> dict[str, Any]:
    plain = {field: getattr(MonitorConfig(), field) for field in MonitorConfig.__struct_fields__}
    plain.update({field: getattr(CallbackConfig(), field) for field in CallbackConfig.__struct_fields__})
    return {name: _describe(key, plain.get(name)) for name, key in keys.items()}


def _describe(key: Key, default: Any) -> dict[str, Any]:
    # A key without a value asks for the default.
    schema: dict[str, Any] = {"anyOf": [key.kind.schema(), {"type": "null"}], "description": key.meaning}
    if isinstance(default, str | int | float):
        schema["default"] = default
    return schema
