"""Validates against the part of JSON schema that `config_schema` uses; refuses a schema that uses more."""

from __future__ import annotations

import re
from typing import Any

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_NOTES = {"$schema", "title", "description", "default"}


def _is_of_type(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def is_valid(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is what a schema describes."""
    return all(_holds(value, word, schema) for word in schema.keys() - _NOTES)


def _holds(value: Any, word: str, schema: dict[str, Any]) -> bool:
    rule = schema[word]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match word:
        case "type":
            return any(_is_of_type(value, name) for name in ([rule] if isinstance(rule, str) else rule))
        case "enum":
            return value in rule
        case "anyOf":
            return any(is_valid(value, one) for one in rule)
        case "if":
            return not is_valid(value, rule) or is_valid(value, schema["then"])
        case "then":
            return True
        case "minimum":
            return not is_number or value >= rule
        case "maximum":
            return not is_number or value <= rule
        case "exclusiveMinimum":
            return not is_number or value > rule
        case "pattern":
            return not isinstance(value, str) or re.search(rule, value) is not None
        case "items":
            return not isinstance(value, list) or all(is_valid(item, rule) for item in value)
        case "uniqueItems":
            return not isinstance(value, list) or all(item not in value[:place] for place, item in enumerate(value))
        case "minItems":
            return not isinstance(value, list) or len(value) >= rule
        case "required":
            return not isinstance(value, dict) or rule == [key for key in rule if key in value]
        case "minProperties":
            return not isinstance(value, dict) or len(value) >= rule
        case "maxProperties":
            return not isinstance(value, dict) or len(value) <= rule
        case "properties":
            return not isinstance(value, dict) or all(
                is_valid(item, rule[key]) for key, item in value.items() if key in rule
            )
        case "additionalProperties":
            if not isinstance(value, dict):
                return True
            others = [item for key, item in value.items() if key not in schema.get("properties", {})]
            return not others if rule is False else all(is_valid(item, rule) for item in others)
    raise AssertionError(f"the schema uses {word!r}, which is not checked here")
