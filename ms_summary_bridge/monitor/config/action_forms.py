"""How the actions of alarms are written: names, commands, webhooks.

No problem shows a value from inside a webhook: it may be an address with a token in it.
"""

from __future__ import annotations

from typing import Any, Final, get_args
from urllib.parse import urlsplit

from ms_summary_bridge.monitor.config.fields import object_schema, read_fields
from ms_summary_bridge.monitor.config.problems import INVALID, join_path, nearest
from ms_summary_bridge.monitor.config.walk import Describe, Form, Marks, Walk
from ms_summary_bridge.monitor.model.alert_config import (
    ACTIONS,
    VARIABLE,
    ActionConfig,
    CommandConfig,
    Dialect,
    WebhookConfig,
)
from ms_summary_bridge.monitor.model.config import Backend

__all__ = ["ACTION_FORMS"]

_HOSTS: Final[dict[str, Dialect]] = {
    "open.feishu.cn": "feishu",
    "open.larksuite.com": "feishu",
    "oapi.dingtalk.com": "dingtalk",
    "qyapi.weixin.qq.com": "wecom",
    "hooks.slack.com": "slack",
}
"""Which dialect a host understands, for an address without one."""
_LISTED: Final = ", ".join(ACTIONS)
_ALWAYS: Final = ("journal", *get_args(Backend))
_TEXT: Final = {"type": "string"}


def _check_action(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    if isinstance(value, dict) and len(value) == 1:
        ((name, given),) = value.items()
        inner = join_path(path, name)
        if name == "command":
            command = walk.struct(CommandConfig, given, inner)
            return INVALID if command is INVALID else ActionConfig(kind=name, command=command)
        if name == "webhook":
            webhook = _check_webhook(walk, given, inner)
            return INVALID if webhook is INVALID else ActionConfig(kind=name, webhook=webhook)
        if given is not None and name in ACTIONS:
            return walk.problems.add(path, f"{name} takes no values")
        value = name
    if isinstance(value, str) and value in ("command", "webhook"):
        text = f"{value} must say which: {{{value}: ...}}"
    elif isinstance(value, str) and value in ACTIONS:
        return ActionConfig(kind=value)
    elif isinstance(value, str) and value in _ALWAYS:
        text = f"{value!r} cannot be an action: every alarm goes to each backend, and to the journal, without one"
    elif isinstance(value, str) and "/" not in value:
        text = f"there is no action {value[:30]!r}{nearest(value, ACTIONS) or f'; there are {_LISTED}'}"
    else:  # it may be an address
        text = f"must be an action: {_LISTED}; like {{webhook: {{url: ...}}}}"
    return walk.problems.add(path, text)


def _check_webhook(walk: Walk, value: Any, path: str) -> Any:
    given = dict(value) if isinstance(value, dict) else {"url": value}
    if given.get("dialect") is None:
        given["dialect"] = _HOSTS.get(_find_host(given.get("url")), "json")
    webhook = walk.struct(WebhookConfig, given, path)
    if webhook is not INVALID and webhook.secret and webhook.dialect not in ("feishu", "dingtalk"):
        return walk.problems.add(path, f"{webhook.dialect} has no signature, so a secret has no effect: use headers")
    return webhook


def _find_host(address: Any) -> str:
    try:
        parts = urlsplit(address) if isinstance(address, str) else None
        return (parts.hostname or "") if parts is not None and parts.scheme in ("http", "https") else ""
    except ValueError:
        return ""


def _check_address(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    if isinstance(value, str):
        is_one_word = not any(letter.isspace() or ord(letter) < 0x20 for letter in value)
        if VARIABLE.fullmatch(value) or (_find_host(value) and is_one_word):
            return walk.expand(value, path, is_kept=True)
    text = "must be an address like https://host/path, or ${NAME} of a variable (it is not shown)"
    return walk.problems.add(path, text)


def _check_hidden(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    if isinstance(value, str) and value.strip() and value.isprintable():
        return walk.expand(value, path, is_kept=True)
    return walk.problems.add(path, "must be text in one line (it is not shown)")


def _check_headers(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    if not isinstance(value, dict):
        return walk.problems.add(path, "must be a mapping, like {Authorization: '${NAME}'} (it is not shown)")
    found = {name: _check_hidden(walk, text, join_path(path, name), marks) for name, text in value.items()}
    return INVALID if INVALID in found.values() else tuple(found.items())


def _check_argv(walk: Walk, value: Any, path: str, marks: Marks) -> Any:
    if isinstance(value, list) and value and all(isinstance(part, str | int | float) for part in value):
        return tuple(map(str, value))
    return walk.problems.add(path, "must be the program and its arguments as a list, like [notify-send, training]")


def _describe_action(describe: Describe) -> dict[str, Any]:
    named = {name: describe(read_fields(ActionConfig)[name].kind) for name in ("command", "webhook")}
    names = {"enum": [name for name in ACTIONS if name not in named]}
    return {"anyOf": [names, *(object_schema({name: schema}, name) for name, schema in named.items())]}


ACTION_FORMS: Final[dict[Any, Form]] = {
    "address": Form(_check_address, lambda describe: _TEXT),
    "argv": Form(
        _check_argv, lambda describe: {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1}
    ),
    "headers": Form(_check_headers, lambda describe: {"type": "object", "additionalProperties": _TEXT}),
    "hidden": Form(_check_hidden, lambda describe: _TEXT),
    ActionConfig: Form(_check_action, _describe_action),
}
"""Part of `forms.FORMS`."""
