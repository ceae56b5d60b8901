"""Reads a `monitor_config` section from a YAML file or a dict: finds it, follows `extends`, applies overrides."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor.config.document import read_file, read_text, to_plain
from ms_summary_bridge.monitor.config.fields import PARAMS, SECTION, read_fields
from ms_summary_bridge.monitor.config.mindformers_section import (
    MONITOR_TYPE,
    check_bridge_entries,
    find_entries,
    is_mindformers,
    refuse_misplaced,
)
from ms_summary_bridge.monitor.config.problems import INVALID, Problems, join_path, nearest, show
from ms_summary_bridge.monitor.config.section import check_section, make_walk
from ms_summary_bridge.monitor.model.config import MonitorConfig, WrittenKeys

__all__ = ["load_config"]

_OUR_KEYS: Final = {*SECTION, *PARAMS, "callback", "extends"}
_EXTENDS: Final = read_fields(WrittenKeys)["extends"].kind
_MAX_BASES: Final = 16
_KEY: Final = "monitor_config"
_ALONE: Final = {"save_best_ckpt": True}  # what `monitor_config: true` says: all defaults, and the best checkpoint


class _Section(NamedTuple):
    """A section as it is in its file: plain values, where it is, and the place of each value."""

    value: Any
    path: str
    places: dict[str, str]
    problems: list[str]


def load_config(
    source: str | os.PathLike[str] | Mapping[str, Any] | bool, *, overrides: Sequence[str] = ()
) -> MonitorConfig:
    """Returns a checked configuration.

    Args:
        source: Path of a YAML file, or a dict: a whole file with `monitor_config` among its keys, the section alone, or
            a file of MindFormers with an entry of ours in `callbacks:`. An empty section for all defaults, True for
            these and the best checkpoint, False for no monitor.
        overrides: `a.b=value`, paths relative to the section, values as YAML.

    Raises:
        ConfigError: Names every problem, with its path, its place in the file, the value and the nearest right key.
    """
    section = _read(source)
    problems = Problems(section.places)
    problems.lines += section.problems
    if section.value is True:
        section = section._replace(value=dict(_ALONE))
    value = _follow_bases(section, problems, source)
    value = _override(value, overrides, section, problems)
    name = "dict" if isinstance(source, Mapping | bool) else os.fspath(source)
    config = check_section(value, section.path, problems, name)
    if problems.lines:
        raise ConfigError(list(dict.fromkeys(problems.lines)))
    return config


def _read(source: Any) -> _Section:
    if isinstance(source, str | os.PathLike):
        path = os.fspath(source)
        if not isinstance(path, str) or "\n" in path:
            raise ConfigError([f"{show(path)} cannot be the path of a file: give a path, or a dict"])
        document = read_file(path)
        section = _find(document.data, document.places)
        return section._replace(problems=document.problems + section.problems)
    if isinstance(source, bool | Mapping):
        return _find(source, {})
    raise ConfigError([f"$: must be the path of a YAML file or a dict, got {show(source)}"])


def _find(data: Any, places: dict[str, str]) -> _Section:
    """Returns the section that a whole document holds, or is."""
    problems = Problems(places)
    value, path = _locate(data, problems)
    plain = to_plain(value, path, problems)
    if isinstance(data, Mapping) and _KEY in data and "extends" in data and path == f"$.{_KEY}":
        plain = _as_mapping(plain)
        if isinstance(plain, dict):
            if "extends" in plain:
                problems.add("$.extends", f"is given here and in {_KEY}: keep one of the two")
            plain = {"extends": to_plain(data["extends"], "$.extends", problems), **plain}
    return _Section(plain, path, places, problems.lines)


def _locate(data: Any, problems: Problems) -> tuple[Any, str]:
    if data is None or isinstance(data, bool):
        return data, "$"
    if not isinstance(data, Mapping):
        problems.add("$", f"must be a mapping with {_KEY}, or the section itself, got {show(data)}")
        return {}, "$"
    if is_mindformers(data):
        return _locate_entry(data, problems)
    if _KEY in data:
        return data[_KEY], f"$.{_KEY}"
    if data and not data.keys() & _OUR_KEYS:
        close = [key for key in data if nearest(key, [_KEY])]
        if close:
            problems.add(join_path("$", close[0]), f"there is no key {show(close[0])}; did you mean {_KEY!r}?")
            return {}, "$"
        if not any(nearest(key, _OUR_KEYS, likeness=0.8) for key in data):
            problems.add("$", f"has no {_KEY}, and its keys are not those of a section either: {show(list(data))}")
            return {}, "$"
    return data, "$"


def _locate_entry(data: Mapping[Any, Any], problems: Problems) -> tuple[Any, str]:
    refuse_misplaced(data, problems)
    check_bridge_entries(data, problems)
    entries = [(path, entry) for path, kind, entry in find_entries(data) if kind == MONITOR_TYPE]
    if len(entries) > 1:
        problems.add(entries[1][0], f"is a second {MONITOR_TYPE}: one is enough, and two would write the same files")
    if entries:
        path, entry = entries[0]
        options = {key: value for key, value in entry.items() if key not in ("type", "auto_register")}
        if "config" in options:
            for key in [key for key in options if key != "config"]:
                problems.add(join_path(path, key), "is not read beside config: move it there")
            if isinstance(options["config"], Mapping):
                return options["config"], f"{path}.config"
            problems.add(f"{path}.config", "names another file: check that one")
            return {}, path
        return options, path
    if not problems.lines:
        problems.add(
            "$",
            "is a file of MindFormers without the monitor; its place is an entry of callbacks:\n"
            f"    callbacks:\n    - type: {MONITOR_TYPE}",
        )
    return {}, "$"


def _as_mapping(value: Any) -> Any:
    """Returns a section that is only switched on or off as the mapping that says the same."""
    if value is None or value is True:
        return {}
    return {"enable": False} if value is False else value


def _follow_bases(section: _Section, problems: Problems, source: Any) -> Any:
    """Returns the section merged over the files that it extends, the nearest one on top."""
    value = section.value
    directory = os.getcwd()
    seen: list[str] = []
    if isinstance(source, str | os.PathLike):
        directory = os.path.dirname(os.path.abspath(os.fspath(source)))
        seen.append(os.path.realpath(os.fspath(source)))
    here = join_path(section.path, "extends")
    while isinstance(value, dict) and "extends" in value:
        base = value.pop("extends")
        if base is None:
            break
        base = make_walk(problems).check(_EXTENDS, base, here)
        if base is INVALID:
            break
        path = os.path.join(directory, os.path.expanduser(base))
        if os.path.realpath(path) in seen:
            problems.add(here, f"leads back to {base}: a file cannot extend itself")
            break
        if len(seen) > _MAX_BASES:
            problems.add(here, f"leads through more than {_MAX_BASES} files")
            break
        seen.append(os.path.realpath(path))
        directory = os.path.dirname(path)
        try:
            found = _read(path)
        except ConfigError as error:
            problems.add(here, "; ".join(error.problems))
            break
        problems.lines += found.problems
        for inner, place in found.places.items():
            if inner == found.path or inner.startswith((found.path + ".", found.path + "[")):
                section.places.setdefault(section.path + inner[len(found.path) :], place)
        value = _merge(_as_mapping(found.value), value)
    return value


def _merge(base: Any, over: Any) -> Any:
    """Returns two values laid over each other: mappings key by key, of everything else the upper one."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: _merge(base[key], value) if key in base else value for key, value in over.items()}}
    return over


def _override(value: Any, overrides: Sequence[str], section: _Section, problems: Problems) -> Any:
    for override in overrides:
        key, equals, text = override.partition("=")
        names = key.strip().removeprefix(f"{_KEY}.").split(".")
        option = f"--set {override}"
        if not equals or not all(names):
            problems.lines.append(f"{option}: must be a path and a value, like interval=30 or tags.dataset=v3")
            continue
        try:
            document = read_text(text, option)
        except ConfigError as error:
            problems.lines += error.problems
            continue
        problems.lines += document.problems
        value = _as_mapping(value)
        path = section.path
        inner = value
        for name in names[:-1]:
            path = join_path(path, name)
            if not isinstance(inner, dict):
                break
            if inner.get(name) is None:
                inner[name] = {}
            inner = inner[name]
        if not isinstance(inner, dict):
            problems.lines.append(f"{option}: {path} is {show(inner)}, which has no keys")
            continue
        path = join_path(path, names[-1])
        section.places[path] = option
        inner[names[-1]] = to_plain(document.data, path, problems)
    return value
