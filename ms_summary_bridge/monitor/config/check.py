"""Checks a section and makes the configuration of it; all problems come out at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ms_summary_bridge.monitor.alarms.rules import make_rule
from ms_summary_bridge.monitor.config.keys import CALLBACK_TYPE, PARAMS, SECTION, WITHIN_BOTH, Key
from ms_summary_bridge.monitor.config.problems import INVALID, Problems, check_mapping, nearest
from ms_summary_bridge.monitor.config.yaml_text import join_path
from ms_summary_bridge.monitor.model.alert_config import AlertConfig
from ms_summary_bridge.monitor.model.config import CallbackConfig, MetricConfig, MonitorConfig

__all__ = ["OWN_TYPES", "check_section"]

OWN_TYPES: Final = ("MindSporeTransformersMonitor",)
"""Values of `callback: type` whose parameters are ours; another class has parameters of its own."""

_ALL_KEYS: Final = "; `ms-summary-bridge config schema` lists all keys"


def check_section(section: Any, path: str, problems: Problems, source: str) -> MonitorConfig:
    """Returns the configuration of a section; what it holds means something only if no problem was added.

    Args:
        section: Plain values; true for all defaults, false for no monitor.
        path: Where the section is, for the problems.
        problems: Where problems go.
        source: File it came from, or `dict`.
    """
    if isinstance(section, bool) or section is None:
        return MonitorConfig(enable=section is not False, source=source, raw={"enable": section is not False})
    given = check_mapping(section, path, problems, "{interval: 30}")
    if given is None:
        return MonitorConfig()
    given.pop("extends", None)  # followed already
    callback = given.pop("callback", None)
    values = _check_keys(given, {**SECTION, **PARAMS}, path, problems, elsewhere={})
    kind, params, of_callback = _check_callback(callback, join_path(path, "callback"), problems)
    for name in sorted(values.keys() & of_callback.keys()):
        problems.add(join_path(path, name), "is given here and in callback.params: keep one of the two")
    values.update(of_callback)
    _choose_backends(values, given, path, problems)
    if INVALID in values.values():
        return MonitorConfig()
    values["alerts"] = _join_alerts(values.get("alerts", True))
    limits = values.get("warn_on_value", {})
    watched = [*limits, *(name for name in _find_watched(values["alerts"]) if name not in limits)]
    if watched:
        values["metrics"] = _add_watched(values.get("metrics", MonitorConfig().metrics), watched)
    warnings = {name: values.pop(name) for name in PARAMS if name in values}
    return MonitorConfig(
        callback=CallbackConfig(type=kind, params=params, **warnings), source=source, raw=section, **values
    )


def _check_keys(
    given: dict[str, Any], keys: Mapping[str, Key], path: str, problems: Problems, elsewhere: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the checked values; `elsewhere` says where a key belongs that is not here."""
    values = {}
    for name, value in given.items():
        inner = join_path(path, name)
        if name in keys and value is None:
            continue  # asks for the default
        if name in keys:
            values[name] = keys[name].kind.check(value, inner, problems)
        elif name in elsewhere:
            problems.add(inner, elsewhere[name])
        else:
            hint = nearest(name, [*keys, *elsewhere, "callback", "extends"])
            problems.add(inner, f"there is no key {name!r}{hint or _ALL_KEYS}")
    return values


def _check_callback(callback: Any, path: str, problems: Problems) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Returns the type, the parameters as given, and those of them that are ours, checked."""
    default = CallbackConfig().type
    if callback is None:
        return default, {}, {}
    given = check_mapping(callback, path, problems, f"{{type: {default}, params: {{log_level: INFO}}}}")
    if given is None:
        return default, {}, {}
    kind = default
    if given.get("type") is not None:
        kind = CALLBACK_TYPE.kind.check(given["type"], join_path(path, "type"), problems)
    inner = join_path(path, "params")
    params: dict[str, Any] = {}
    if given.get("params") is not None:
        params = check_mapping(given["params"], inner, problems, "{log_level: INFO}") or {}
    for name in [name for name in given if name not in ("type", "params")]:
        place = join_path(path, name)
        if name in PARAMS or name in WITHIN_BOTH:
            problems.add(place, "belongs one level down, into params")
        elif name in SECTION:
            problems.add(place, "belongs one level up, beside callback")
        else:
            problems.add(place, f"there is no key {name!r}{nearest(name, ['type', 'params'])}, only type and params")
    ours = {**PARAMS, **WITHIN_BOTH}
    if kind not in OWN_TYPES:
        # A class of the user's takes what it likes; what bears one of our names is held to our rules all the same.
        return str(kind), params, _check_keys({k: v for k, v in params.items() if k in ours}, ours, inner, problems, {})
    elsewhere = {name: "belongs two levels up, beside callback" for name in SECTION if name not in ours}
    return str(kind), params, _check_keys(params, ours, inner, problems, elsewhere)


def _choose_backends(values: dict[str, Any], given: dict[str, Any], path: str, problems: Problems) -> None:
    wanted = values.pop("tensorboard", None)
    backends = values.pop("backend", MonitorConfig().backends)
    if INVALID in (wanted, backends):
        values["backends"] = INVALID
        return
    if wanted is True and "tensorboard" not in backends:
        backends = (*backends, "tensorboard")
    elif wanted is False and "tensorboard" in backends:
        if given.get("backend") is not None:
            problems.add(join_path(path, "tensorboard"), "is false, but backend names tensorboard: keep one of the two")
        backends = tuple(name for name in backends if name != "tensorboard")
    values["backends"] = backends


def _join_alerts(given: bool | tuple[tuple[str, AlertConfig | None], ...]) -> tuple[AlertConfig, ...]:
    """Returns the rules: those that are on by default, but for the ones that are named, and then these."""
    if isinstance(given, bool):
        return MonitorConfig().alerts if given else ()
    named = {rule for rule, _ in given}
    defaults = [alert for alert in MonitorConfig().alerts if alert.rule not in named]
    return (*defaults, *(alert for _, alert in given if alert is not None))


def _find_watched(alerts: tuple[AlertConfig, ...]) -> list[str]:
    """Returns the metrics that rules with parameters of the user's look at."""
    names: list[str] = []
    for alert in alerts:
        if alert.params:
            names += make_rule(alert.rule, alert.params).watched
    return list(dict.fromkeys(names))


def _add_watched(metrics: tuple[MetricConfig, ...], watched: Iterable[str]) -> tuple[MetricConfig, ...]:
    """Adds the metrics that are watched and not in the list: what is watched must be measured."""
    known = {metric.name for metric in metrics}
    return (*metrics, *(MetricConfig(name=name) for name in watched if name not in known))
