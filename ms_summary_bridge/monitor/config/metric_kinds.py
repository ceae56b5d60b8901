"""The kinds of value that speak of metrics: an entry of `metrics`, and the limits of `warn_on_value`."""

from __future__ import annotations

from typing import Any, Final

from ms_summary_bridge.monitor.config.kinds import Number, Whole
from ms_summary_bridge.monitor.config.problems import INVALID, Problems, check_mapping, nearest, show
from ms_summary_bridge.monitor.config.yaml_text import join_path
from ms_summary_bridge.monitor.model.config import Bounds, MetricConfig
from ms_summary_bridge.monitor.model.metric_names import ALIASES, METRICS, resolve

__all__ = ["Limits", "MetricEntry"]

_KEYS: Final = ("name", "from_step", "to_step")


def _say_no_metric(name: str) -> str:
    hint = nearest(name, [*METRICS, *ALIASES]) or f"; there are {', '.join(METRICS)}"
    return f"there is no metric {show(name)}{hint} (one of your own must be registered before)"


class MetricEntry:
    """A metric by its name, or with the steps in which it is measured."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if isinstance(value, str):
            given: Any = {"name": value}
        elif isinstance(value, dict) and "name" not in value and len(value) == 1:
            ((name, steps),) = value.items()
            path = join_path(path, name)
            given = check_mapping({} if steps is None else steps, path, problems, "{from_step: 100}")
            given = None if given is None else {"name": name, **given}
        else:
            given = check_mapping(value, path, problems, "{name: grad_norm, from_step: 100}")
        if given is None:
            return INVALID
        is_valid = True
        for key in [key for key in given if key not in _KEYS]:
            problems.add(join_path(path, key), f"there is no key {key!r} here{nearest(key, _KEYS)}")
            is_valid = False
        name = given.get("name")
        known = resolve(name) if isinstance(name, str) else None
        if known is None:
            problems.add(path, _say_no_metric(name) if isinstance(name, str) else f"has no name: {show(value)}")
            is_valid = False
        first, last = (
            None if given.get(key) is None else Whole(0).check(given[key], join_path(path, key), problems)
            for key in ("from_step", "to_step")
        )
        if INVALID in (first, last) or known is None or not is_valid:
            return INVALID
        if first is not None and last is not None and last < first:
            problems.add(path, f"to_step {last} is before from_step {first}: it would never be measured")
            return INVALID
        return MetricConfig(name=known, from_step=first or 0, to_step=last)

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        names = {"enum": [*METRICS, *ALIASES]}
        steps = {key: _or_null(Whole(0).schema()) for key in ("from_step", "to_step")}
        alone = {"type": ["object", "null"], "properties": steps, "additionalProperties": False}
        return {
            "anyOf": [
                names,
                {
                    "type": "object",
                    "properties": {"name": names, **steps},
                    "required": ["name"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "properties": dict.fromkeys(names["enum"], alone),
                    "additionalProperties": False,
                    "minProperties": 1,
                    "maxProperties": 1,
                },
            ]
        }


class Limits:
    """`warn_on_value`: for each metric a bare number, where the bad way is known, or `{above: x, below: y}`."""

    _number = Number(is_finite=False)  # .inf is a limit that is never passed

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        given = check_mapping(value, path, problems, "{loss: 50.0}")
        if given is None:
            return INVALID
        limits: dict[str, Any] = {}
        is_valid = True
        for name, limit in given.items():
            inner = join_path(path, name)
            known = resolve(name)
            if known is None:
                problems.add(inner, _say_no_metric(name))
                is_valid = False
            elif known in limits:
                problems.add(inner, f"{known!r} has a limit already: {name!r} is another name of it")
                is_valid = False
            elif limit is not None:
                limits[known] = self._check_bounds(known, limit, inner, problems)
        return limits if is_valid and INVALID not in limits.values() else INVALID

    def _check_bounds(self, name: str, limit: Any, path: str, problems: Problems) -> Any:
        if isinstance(limit, dict):
            return self._check_both(limit, path, problems)
        number = self._number.check(limit, path, problems)
        if number is INVALID:
            return INVALID
        way = METRICS[name].bad
        if way is None:
            problems.add(
                path,
                f"{name!r} may be wrong in either way: write {{above: {number:g}}} or {{below: {number:g}}}",
            )
            return INVALID
        return Bounds(above=number) if way == "above" else Bounds(below=number)

    def _check_both(self, limit: dict[str, Any], path: str, problems: Problems) -> Any:
        found: dict[str, Any] = {}
        for key, value in limit.items():
            inner = join_path(path, key)
            if key not in ("above", "below"):
                problems.add(inner, f"there is no key {key!r} here, only 'above' and 'below'")
                found[key] = INVALID
            elif value is not None:
                found[key] = self._number.check(value, inner, problems)
        if INVALID in found.values():
            return INVALID
        if not found:
            problems.add(path, "has no limit: write {above: 1.0} or {below: 1.0}")
            return INVALID
        bounds = Bounds(above=found.get("above"), below=found.get("below"))
        if bounds.above is not None and bounds.below is not None and bounds.above < bounds.below:
            problems.add(
                path,
                f"every value is above {bounds.above:g} or below {bounds.below:g}: the two are the wrong way round",
            )
            return INVALID
        return bounds

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        number = self._number.schema()
        both = {
            "type": "object",
            "properties": {"above": _or_null(number), "below": _or_null(number)},
            "additionalProperties": False,
            "minProperties": 1,
        }
        limits = {}
        for name in [*METRICS, *ALIASES]:
            known = METRICS[ALIASES.get(name, name)]
            forms = [both, {"type": "null"}] if known.bad is None else [number, both, {"type": "null"}]
            way = "above or below as given" if known.bad is None else known.bad
            limits[name] = {"anyOf": forms, "description": f"{known.meaning}; warns {way}"}
        return {"type": "object", "properties": limits, "additionalProperties": False}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}
