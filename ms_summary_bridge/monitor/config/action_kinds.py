"""The key `alert_actions`, and `actions` of a rule: what is done when an alarm is raised.

No text of a problem shows a value from inside a webhook: it may be an address with a token in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from ms_summary_bridge.monitor.config.kinds import Choice, Number, Text, Whole
from ms_summary_bridge.monitor.config.problems import INVALID, Kind, Problems, nearest
from ms_summary_bridge.monitor.config.yaml_text import join_path
from ms_summary_bridge.monitor.model.alert_config import (
    ACTIONS,
    DIALECTS,
    ActionConfig,
    CommandConfig,
    Dialect,
    WebhookConfig,
)

__all__ = ["Actions", "Parameter", "check_keys", "describe_keys", "object_schema"]

_HOSTS: Final[dict[str, Dialect]] = {
    "open.feishu.cn": "feishu",
    "open.larksuite.com": "feishu",
    "oapi.dingtalk.com": "dingtalk",
    "qyapi.weixin.qq.com": "wecom",
    "hooks.slack.com": "slack",
}
"""Which dialect a host understands, for an address without one."""

_SECS: Final = Number(above=0)
_ALWAYS: Final = ("journal", "tensorboard", "mindinsight", "wandb", "local")


class Parameter(NamedTuple):
    """One key of a rule or an action.

    Attributes:
        kind: What values it takes.
        meaning: What it does, in one line.
    """

    kind: Kind
    meaning: str


class _Address(Text):
    """An address of http or https, or `${NAME}`. Its problems do not show it."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if isinstance(value, str) and value.startswith("${") and value.endswith("}"):
            return value
        try:
            parts = urlsplit(value) if isinstance(value, str) else None
            is_right = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            is_right = False
        if not is_right or any(letter.isspace() or ord(letter) < 0x20 for letter in value):
            problems.add(path, "must be an address like https://host/path, or ${NAME} of a variable (it is not shown)")
            return INVALID
        return value


class _Hidden(Text):
    """A text that no problem shows."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if isinstance(value, str) and value.strip() and value.isprintable():
            return value
        problems.add(path, "must be text in one line (it is not shown)")
        return INVALID


class _Headers:
    """Lines of a request's head: a text under each name."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        if not isinstance(value, dict):
            problems.add(path, "must be a mapping, like {Authorization: '${NAME}'} (it is not shown)")
            return INVALID
        found = {str(name): _Hidden().check(text, join_path(path, name), problems) for name, text in value.items()}
        return INVALID if INVALID in found.values() else tuple(found.items())

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        return {"type": "object", "additionalProperties": {"type": "string"}}


_WEBHOOK: Final[dict[str, Parameter]] = {
    "url": Parameter(_Address(), "the address, or ${NAME} for that in a variable of the environment"),
    "dialect": Parameter(Choice(DIALECTS), "what the service understands; found by the host if not given"),
    "secret": Parameter(_Hidden(), "of the signature (Feishu, DingTalk), or ${NAME}"),
    "headers": Parameter(_Headers(), "more lines of the request's head"),
    "keyword": Parameter(Text(), "a word that the service wants in each message"),
    "timeout": Parameter(_SECS, "seconds of one attempt"),
    "attempts": Parameter(Whole(1), "how often it is tried"),
}
_COMMAND: Final[dict[str, Parameter]] = {
    "argv": Parameter(Text(), "the program and its arguments, as a list; no shell reads them"),
    "timeout": Parameter(_SECS, "seconds after which it is killed"),
}


def check_keys(
    given: Mapping[str, Any], keys: Mapping[str, Parameter], path: str, problems: Problems
) -> dict[str, Any] | None:
    """Returns the checked values, or None after adding problems."""
    values: dict[str, Any] = {}
    for name, value in given.items():
        inner = join_path(path, name)
        if name not in keys:
            problems.add(
                inner, f"there is no key {name!r} here{nearest(name, keys) or '; there are ' + ', '.join(keys)}"
            )
            values[name] = INVALID
        elif value is not None:
            values[name] = keys[name].kind.check(value, inner, problems)
    return None if INVALID in values.values() else values


class Actions:
    """What is done: the name of an action, a command or webhook with its keys, or a list of these."""

    def check(self, value: Any, path: str, problems: Problems) -> Any:
        """See `Kind`."""
        listed = value if isinstance(value, list) else [value]
        actions = []
        for number, given in enumerate(listed):
            inner = join_path(path, number) if isinstance(value, list) else path
            action = self._check_one(given, inner, problems)
            if action in actions and action is not INVALID:
                problems.add(inner, "is in the list twice")
                action = INVALID
            actions.append(action)
        return INVALID if INVALID in actions else tuple(actions)

    def _check_one(self, value: Any, path: str, problems: Problems) -> Any:
        if isinstance(value, dict) and len(value) == 1:
            ((name, given),) = value.items()
            if name == "command":
                return self._check_command(given, join_path(path, name), problems)
            if name == "webhook":
                return self._check_webhook(given, join_path(path, name), problems)
            if given is not None:
                problems.add(path, self._say_unknown(name) if name not in ACTIONS else f"{name} takes no values")
                return INVALID
            value = name
        if isinstance(value, str) and value in ACTIONS:
            if value in ("command", "webhook"):
                problems.add(path, f"{value} must say which: {{{value}: ...}}")
                return INVALID
            return ActionConfig(kind=value)
        if isinstance(value, str) and value in _ALWAYS:
            problems.add(path, f"{value!r} is no action: every alarm goes to each backend, and to the journal")
        elif isinstance(value, str) and "/" not in value:
            problems.add(path, self._say_unknown(value))
        else:
            problems.add(path, f"must be an action: {', '.join(ACTIONS)}; like {{webhook: {{url: ...}}}}")
        return INVALID

    def _say_unknown(self, name: object) -> str:
        hint = nearest(name, ACTIONS) or f"; there are {', '.join(ACTIONS)}"
        return f"there is no action {str(name)[:30]!r}{hint}"

    def _check_command(self, value: Any, path: str, problems: Problems) -> Any:
        given = dict(value) if isinstance(value, dict) else {"argv": value}
        argv = given.pop("argv", None)
        values = check_keys(given, _COMMAND, path, problems)
        if not isinstance(argv, list) or not argv or not all(isinstance(part, str | int | float) for part in argv):
            problems.add(path, "must be the program and its arguments as a list, like [notify-send, training]")
            return INVALID
        if values is None:
            return INVALID
        return ActionConfig(kind="command", command=CommandConfig(argv=tuple(map(str, argv)), **values))

    def _check_webhook(self, value: Any, path: str, problems: Problems) -> Any:
        given = value if isinstance(value, dict) else {"url": value}
        values = check_keys(given, _WEBHOOK, path, problems)
        if values is None:
            return INVALID
        if "url" not in values:
            problems.add(path, "has no url")
            return INVALID
        if "dialect" not in values:
            try:
                values["dialect"] = _HOSTS.get(urlsplit(values["url"]).hostname or "", "json")
            except ValueError:
                values["dialect"] = "json"
        if values.get("secret") and values["dialect"] not in ("feishu", "dingtalk"):
            problems.add(path, f"{values['dialect']} has no signature, so a secret says nothing: write headers")
            return INVALID
        return ActionConfig(kind="webhook", webhook=WebhookConfig(**values))

    def schema(self) -> dict[str, Any]:
        """See `Kind`."""
        argv = {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}
        keys = {**describe_keys(_COMMAND), "argv": {**argv, "description": _COMMAND["argv"].meaning}}
        command = {"anyOf": [argv, object_schema(keys, required=["argv"])]}
        webhook = {"anyOf": [{"type": "string"}, object_schema(describe_keys(_WEBHOOK), required=["url"])]}
        one = {
            "anyOf": [
                {"enum": [name for name in ACTIONS if name not in ("command", "webhook")]},
                object_schema({"command": command}, required=["command"]),
                object_schema({"webhook": webhook}, required=["webhook"]),
            ]
        }
        return {"anyOf": [one, {"type": "array", "items": one, "uniqueItems": True}]}


def describe_keys(keys: Mapping[str, Parameter]) -> dict[str, Any]:
    """Returns the JSON schemas of keys."""
    return {
        name: {"anyOf": [key.kind.schema(), {"type": "null"}], "description": key.meaning} for name, key in keys.items()
    }


def object_schema(properties: dict[str, Any], *, required: list[str]) -> dict[str, Any]:
    """Returns the JSON schema of a mapping with these keys and no others."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
