"""What the types of a configuration do not tell by themselves: short forms, names of metrics, limits, rules."""

from __future__ import annotations

import functools
from inspect import signature
from typing import Annotated, Any, Final

from msgspec import inspect

from ms_summary_bridge.monitor.alarms.rules.rule import find_rule
from ms_summary_bridge.monitor.config.action_forms import ACTION_FORMS
from ms_summary_bridge.monitor.config.fields import Field, describe_fields, make_field, object_schema, read_fields
from ms_summary_bridge.monitor.config.problems import INVALID, join_path, nearest, show
from ms_summary_bridge.monitor.config.walk import Describe, Form, Marks, Walk
from ms_summary_bridge.monitor.model.alert_config import AlertConfig
from ms_summary_bridge.monitor.model.config import Bounds, MetricConfig
from ms_summary_bridge.monitor.model.keys import key
from ms_summary_bridge.monitor.model.metric_names import AGGREGATES, ALIASES, DEFAULT_AGGREGATE, METRICS, resolve
from ms_summary_bridge.monitor.model.rule_keys import RULE_KEYS

__all__ = ["FORMS"]

_DIRECTORY_NAME: Final = r"^(?!\.{1,2}$)[^/\\\s]([^/\\]*[^/\\\s])?$"
_LONGEST_NAME: Final = 200  # bytes; a file system takes 255, and a suffix may follow
_SWITCH: Final = {
    "enable": make_field(
        "enable", inspect.type_info(Annotated[bool, key("false switches a rule off that is on by default")]), True
    )
}
_LIMIT: Final = read_fields(Bounds)["above"].kind


# ---------------------------------------------------------------- names and tags


def _check_directory_name(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    if isinstance(value, float):
        return walk.problems.add(path, f"must be text, got the number {show(value)}: put it in quotes")
    name = walk.text(str(value) if type(value) is int else value, path)
    if name is INVALID:
        return INVALID
    if "/" in name or "\\" in name or name in (".", "..") or name != name.strip():
        return walk.problems.add(path, f"must be the name of one directory, without a slash, got {show(name)}")
    if len(name.encode("utf-8")) > _LONGEST_NAME:
        return walk.problems.add(path, f"is longer than {_LONGEST_NAME} bytes: {show(name)}")
    return name


def _check_tag(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    if isinstance(value, list | dict):
        return walk.problems.add(path, f"must be a text, a number or a boolean, got {show(value)}")
    if isinstance(value, str):
        return walk.expand(value, path)
    return walk.check(inspect.FloatType(), value, path) if isinstance(value, float) else value


# ---------------------------------------------------------------- metrics


def _check_metric_name(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    if not isinstance(value, str):
        return walk.problems.add(path, f"must be the name of a metric, got {show(value)}")
    hint = nearest(value, [*METRICS, *ALIASES]) or f"; there are {', '.join(METRICS)}"
    unknown = f"there is no metric {show(value)}{hint} (one of your own must be registered before)"
    return resolve(value) or walk.problems.add(path, unknown)


def _check_metric(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    """A metric by its name, or with the steps in which it is measured."""
    if isinstance(value, dict) and "name" not in value and len(value) == 1:
        ((name, steps),) = value.items()
        path = join_path(path, name)
        given = walk.mapping({} if steps is None else steps, path, {"from_step": 100})
        if given is None or _check_metric_name(walk, name, path, marks) is INVALID:
            return INVALID
        value = {"name": name, **given}
    elif not isinstance(value, str) and walk.mapping(value, path, {"name": "grad_norm", "from_step": 100}) is None:
        return INVALID
    return walk.struct(MetricConfig, value, path)


def _describe_metric(describe: Describe) -> dict[str, Any]:
    names = _describe_metric_name(describe)
    keys = describe_fields(read_fields(MetricConfig), describe)
    steps = {**object_schema({name: keys[name] for name in keys if name != "name"}), "type": ["object", "null"]}
    one_key = {**object_schema(dict.fromkeys(names["enum"], steps)), "minProperties": 1, "maxProperties": 1}
    return {"anyOf": [names, object_schema({**keys, "name": names}, "name"), one_key]}


def _describe_metric_name(describe: Describe) -> dict[str, Any]:
    return {"enum": [*METRICS, *ALIASES]}


def _check_aggregate(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    """Returns the metrics: some for true, none for false, one by its name, or a list."""
    if isinstance(value, bool):
        return DEFAULT_AGGREGATE if value else ()
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list):
        return walk.problems.add(path, f"must be true, false or a list of metrics, got {show(value)}")
    names = []
    for number, name in enumerate(given):
        inner = path if isinstance(value, str) else join_path(path, number)
        found = _check_metric_name(walk, name, inner, marks)
        if found is not INVALID and found not in AGGREGATES:
            found = walk.problems.add(inner, f"{found!r} has no value over ranks; there are {', '.join(AGGREGATES)}")
        names.append(found)
    return INVALID if INVALID in names else tuple(dict.fromkeys(names))


def _describe_aggregate(describe: Describe) -> dict[str, Any]:
    names = [*AGGREGATES, *(alias for alias, name in ALIASES.items() if name in AGGREGATES)]
    return {"anyOf": [{"type": "boolean"}, {"enum": names}, {"type": "array", "items": {"enum": names}}]}


def _check_limits(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    """For each metric a bare number, where the bad way is known, or `{above: x, below: y}`."""
    given = walk.mapping(value, path, marks["example"])
    if given is None:
        return INVALID
    limits: dict[str, Any] = {}
    for name, limit in given.items():
        inner = join_path(path, name)
        metric = _check_metric_name(walk, name, inner, marks)
        if metric is INVALID:
            limits[name] = INVALID
        elif metric in limits:
            limits[name] = walk.problems.add(inner, f"{metric!r} has a limit already: {name!r} is another name of it")
        elif limit is not None:
            limits[metric] = _check_bounds(walk, metric, limit, inner)
    return INVALID if INVALID in limits.values() else limits


def _check_bounds(walk: Walk, name: str, limit: Any, path: str) -> Any:
    if isinstance(limit, dict):
        bounds = walk.struct(Bounds, limit, path)
        if bounds == Bounds():
            return walk.problems.add(path, "has no limit: write {above: 1.0} or {below: 1.0}")
        return bounds
    number = walk.check(_LIMIT, limit, path)
    if number is INVALID:
        return INVALID
    way = METRICS[name].bad
    if way is None:
        both = f"{{above: {number:g}}} or {{below: {number:g}}}"
        return walk.problems.add(path, f"{name!r} may be wrong in either way: write {both}")
    return Bounds(**{way: number})


def _describe_limits(describe: Describe) -> dict[str, Any]:
    number = describe(_LIMIT)
    both = {**object_schema(describe_fields(read_fields(Bounds), describe)), "minProperties": 1}
    limits = {}
    for name in [*METRICS, *ALIASES]:
        metric = METRICS[ALIASES.get(name, name)]
        forms = [both, {"type": "null"}] if metric.bad is None else [number, both, {"type": "null"}]
        way = "above or below as given" if metric.bad is None else metric.bad
        limits[name] = {"anyOf": forms, "description": f"{metric.meaning}; warns {way}"}
    return object_schema(limits)


# ---------------------------------------------------------------- watchdog and rules


@functools.cache
def _rule_fields(rule: str) -> dict[str, Field]:
    """Returns the keys of a rule, but `rule` itself, with the defaults of its class."""
    defaults = signature(find_rule(rule)).parameters
    own = {
        name: make_field(name, inspect.type_info(kind), defaults[name].default)
        for name, kind in RULE_KEYS[rule].items()
    }
    rest = {
        name: field for name, field in read_fields(AlertConfig).items() if name not in ("rule", "params", "is_default")
    }
    return {**own, **_SWITCH, **rest}


def _check_alerts(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    """Returns true, false, or the rules that are named, with None for one that is switched off."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, list):
        return walk.problems.add(path, "must be true, false or a list of rules, like [{rule: spike, factor: 20}]")
    found = [_check_rule(walk, given, join_path(path, number)) for number, given in enumerate(value)]
    return INVALID if INVALID in found else tuple(found)


def _check_rule(walk: Walk, value: Any, path: str) -> Any:
    given = walk.mapping({"rule": value} if isinstance(value, str) else value, path, {"rule": "spike"})
    if given is None:
        return INVALID
    rule = given.pop("rule", None)
    if not isinstance(rule, str) or rule not in RULE_KEYS:
        hint = (rule is not None and nearest(rule, RULE_KEYS)) or f"; there are {', '.join(RULE_KEYS)}"
        problem = "must name a rule" if rule is None else f"there is no rule {str(rule)[:30]!r}"
        return walk.problems.add(join_path(path, "rule"), problem + hint)
    values = walk.keys(_rule_fields(rule), given, path)
    if INVALID in values.values():
        return INVALID
    is_on = values.pop("enable", True)
    own = {name: values.pop(name) for name in AlertConfig.__struct_fields__ if name in values}
    problem = _find_fault(values) if rule == "threshold" and is_on else ""
    if problem:
        return walk.problems.add(path, problem)
    return (rule, AlertConfig(rule=rule, params=values, **own) if is_on else None)


def _find_fault(threshold: dict[str, Any]) -> str:
    if "metric" not in threshold:
        return "threshold must name a metric"
    if not threshold.keys() & {"above", "below"}:
        return "threshold has no bound: write above: 1.0 or below: 1.0"
    try:
        Bounds(above=threshold.get("above"), below=threshold.get("below"))
    except ValueError as error:
        return str(error)
    return ""


def _describe_alerts(describe: Describe) -> dict[str, Any]:
    one = [
        object_schema(
            {"rule": {"enum": [rule]}, **describe_fields(_rule_fields(rule), describe)},
            *(["rule", "metric"] if rule == "threshold" else ["rule"]),
        )
        for rule in RULE_KEYS
    ]
    names = {"enum": [rule for rule in RULE_KEYS if rule != "threshold"]}
    return {"anyOf": [{"type": "boolean"}, {"type": "array", "items": {"anyOf": [names, *one]}}]}


FORMS: Final[dict[Any, Form]] = {
    **ACTION_FORMS,
    "aggregate": Form(_check_aggregate, _describe_aggregate),
    "alerts": Form(_check_alerts, _describe_alerts),
    "directory name": Form(
        _check_directory_name, lambda describe: {"type": ["string", "integer"], "pattern": _DIRECTORY_NAME}
    ),
    "limits": Form(_check_limits, _describe_limits),
    "metric": Form(_check_metric_name, _describe_metric_name),
    "tag": Form(_check_tag, lambda describe: {"type": ["string", "number", "boolean"]}),
    MetricConfig: Form(_check_metric, _describe_metric),
}
"""What has a form of its own, by the mark `form` of its type or by its struct."""
