"""The key `watchdog`: on or off, or its limits one by one."""

from __future__ import annotations

from typing import Any, Final

from ms_summary_bridge.monitor.config.action_kinds import Actions
from ms_summary_bridge.monitor.config.kinds import Choice, Flag, Number
from ms_summary_bridge.monitor.config.problems import INVALID, Kind, Problems, check_mapping, nearest
from ms_summary_bridge.monitor.config.yaml_text import join_path
from ms_summary_bridge.monitor.model.config import WatchdogConfig

__all__ = ["WatchdogKind"]

_SECS: Final = Number(above=0)

_KEYS: Final[dict[str, tuple[Kind, str]]] = {
    "enable": (Flag(), "false for no watchdog"),
    "floor": (_SECS, "no step is waited for less than so many seconds"),
    "factor": (Number(least=1), "a step may take so many times the median of those before it"),
    "compile_limit": (_SECS, "seconds for all that comes before the end of the first step"),
    "evaluation_limit": (_SECS, "seconds for one evaluation"),
    "checkpoint_limit": (_SECS, "seconds for saving one checkpoint"),
    "callback_limit": (_SECS, "seconds for what other callbacks do, and between two epochs"),
    "action": (Choice(("report", "kill")), "report alone, or kill as well"),
    "grace": (Number(least=0), "seconds between SIGTERM and SIGKILL"),
    "actions": (Actions(), "commands and webhooks that are told; those of alert_actions if not given"),
}


class WatchdogKind:
    """true, false, or the limits by name."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if isinstance(value, bool):
            return WatchdogConfig(enable=value)
        given = check_mapping(value, path, problems, "{floor: 600}, or true or false")
        if given is None:
            return INVALID
        values: dict[str, Any] = {}
        for name, item in given.items():
            inner = join_path(path, name)
            if name not in _KEYS:
                hint = nearest(name, _KEYS) or f"; there are {', '.join(_KEYS)}"
                problems.add(inner, f"there is no key {name!r} here{hint}")
                values[name] = INVALID
            elif item is not None:
                values[name] = _KEYS[name][0].check(item, inner, problems)
        return INVALID if INVALID in values.values() else WatchdogConfig(**values)

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        plain = WatchdogConfig()
        properties = {
            name: {
                "anyOf": [kind.schema(), {"type": "null"}],
                "description": meaning,
                "default": getattr(plain, name),
            }
            for name, (kind, meaning) in _KEYS.items()
        }
        return {
            "anyOf": [{"type": "boolean"}, {"type": "object", "properties": properties, "additionalProperties": False}]
        }
