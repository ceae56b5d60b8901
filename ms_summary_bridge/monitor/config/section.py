"""Checks a section and makes the configuration of it; all problems come out at once."""

from __future__ import annotations

import os
from typing import Any, Final

from ms_summary_bridge.monitor.alarms.device_rules import find_twin
from ms_summary_bridge.monitor.alarms.rules.rule import make_rule
from ms_summary_bridge.monitor.config.fields import OWN_TYPES, PARAMS, SECTION, SHARED, read_fields
from ms_summary_bridge.monitor.config.forms import FORMS
from ms_summary_bridge.monitor.config.problems import INVALID, Problems, join_path, nearest
from ms_summary_bridge.monitor.config.walk import Walk
from ms_summary_bridge.monitor.model.alert_config import AlertConfig
from ms_summary_bridge.monitor.model.config import CallbackConfig, MetricConfig, MonitorConfig

__all__ = ["check_section", "make_walk"]

_TYPE: Final = read_fields(CallbackConfig)["type"]


def make_walk(problems: Problems, *, expands: bool = True) -> Walk:
    """Returns what checks values of a section; `expands` for `${NAME}` in a text to be looked up."""
    return Walk(problems, FORMS, os.environ if expands else None)


def check_section(section: Any, path: str, problems: Problems, source: str) -> MonitorConfig:
    """Returns the configuration of a section; what it holds means something only if no problem was added.

    A section is plain values, or true for all defaults, false for no monitor. It stands at `path` in the file `source`.
    """
    if isinstance(section, bool) or section is None:
        return MonitorConfig(enable=section is not False, source=source, raw={"enable": section is not False})
    # What is switched off may name variables that are set elsewhere.
    walk = make_walk(problems, expands=not isinstance(section, dict) or section.get("enable") is not False)
    given = walk.mapping(section, path, {"interval": 30})
    if given is None:
        return MonitorConfig()
    given.pop("extends", None)  # followed already
    callback = given.pop("callback", None)
    values = walk.keys({**SECTION, **PARAMS}, given, path)
    inner = join_path(path, "callback")
    kind, params, of_callback = (_TYPE.default, {}, {}) if callback is None else _check_callback(walk, callback, inner)
    for name in sorted(values.keys() & of_callback.keys() & {*PARAMS, *SHARED}):
        problems.add(join_path(path, name), "is given here and in callback.params: keep one of the two")
    values.update(of_callback)
    _choose_backends(values, given, path, problems)
    if INVALID in values.values():
        return MonitorConfig()
    values["alerts"] = _join_alerts(values.get("alerts", True))
    watched = [*values.get("warn_on_value", {}), *_find_watched(values["alerts"])]
    metrics = values.get("metrics", MonitorConfig().metrics)
    names = {metric.name for metric in metrics}
    # What is watched must be measured.
    added = (MetricConfig(name=name) for name in dict.fromkeys(watched) if name not in names)
    values["metrics"] = (*metrics, *added)
    warnings = {name: values.pop(name) for name in PARAMS if name in values}
    return MonitorConfig(
        callback=CallbackConfig(type=kind, params=params, **warnings), source=source, raw=section, **values
    )


def _check_callback(walk: Walk, callback: Any, path: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Returns the type, the parameters as given, and those of them that are ours, checked."""
    given = walk.mapping(callback, path, {"type": _TYPE.default, "params": {"log_level": "INFO"}}) or {}
    kind = _TYPE.default
    if given.get("type") is not None:
        kind = walk.check(_TYPE.kind, given["type"], join_path(path, "type"))
    ours = {**PARAMS, **SHARED}
    for name in given.keys() - {"type", "params"}:
        if name in ours:
            text = "belongs one level down, into params"
        elif name in SECTION:
            text = "belongs one level up, beside callback"
        else:
            text = f"there is no key {name!r}{nearest(name, ['type', 'params'])}, only type and params"
        walk.problems.add(join_path(path, name), text)
    inner = join_path(path, "params")
    params: dict[str, Any] = {}
    if given.get("params") is not None:
        params = walk.mapping(given["params"], inner, {"log_level": "INFO"}) or {}
    if kind not in OWN_TYPES:
        # A class of the user's takes what it likes; what bears one of our names is held to our rules all the same.
        return kind, params, walk.keys(ours, {k: v for k, v in params.items() if k in ours}, inner)
    elsewhere = {name: "belongs two levels up, beside callback" for name in SECTION if name not in ours}
    return kind, params, walk.keys(ours, params, inner, elsewhere)


def _choose_backends(values: dict[str, Any], given: dict[str, Any], path: str, problems: Problems) -> None:
    wanted = values.pop("tensorboard", None)
    backends = values.setdefault("backends", MonitorConfig().backends)
    if INVALID in (wanted, backends):
        values["backends"] = INVALID
    elif wanted is True and "tensorboard" not in backends:
        values["backends"] = (*backends, "tensorboard")
    elif wanted is False and "tensorboard" in backends:
        if given.get("backend") is not None:
            problems.add(join_path(path, "tensorboard"), "is false, but backend names tensorboard: keep one of the two")
        values["backends"] = tuple(name for name in backends if name != "tensorboard")


def _join_alerts(given: bool | tuple[tuple[str, AlertConfig | None], ...]) -> tuple[AlertConfig, ...]:
    """Returns the rules: those that are on by default, but for the ones that are named, and then these."""
    if isinstance(given, bool):
        return MonitorConfig().alerts if given else ()
    named = {rule for rule, _ in given}
    defaults = [alert for alert in MonitorConfig().alerts if alert.rule not in named]
    return (*defaults, *(alert for _, alert in given if alert is not None))


def _find_watched(alerts: tuple[AlertConfig, ...]) -> list[str]:
    """Returns the metrics that rules with parameters of the user's look at, but those that depend on the device."""
    rules = [make_rule(alert.rule, alert.params) for alert in alerts if alert.params]
    return [name for rule in rules for name in rule.watched if find_twin(name) not in rule.metrics]
