"""What a configuration says of alarms: which rules look, and what is done when one finds something.

The watchdog, which is another process, gets `ActionConfig`s as JSON; so they hold plain values alone.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

__all__ = [
    "ACTIONS",
    "DIALECTS",
    "HIDDEN",
    "ActionConfig",
    "ActionKind",
    "AlertConfig",
    "CommandConfig",
    "Dialect",
    "WebhookConfig",
    "hide_secrets",
]

ActionKind = Literal["log", "command", "webhook", "save_checkpoint", "stop", "dump_stacks"]
Dialect = Literal["json", "feishu", "dingtalk", "wecom", "slack"]

ACTIONS: Final[tuple[ActionKind, ...]] = ("log", "command", "webhook", "save_checkpoint", "stop", "dump_stacks")
DIALECTS: Final[tuple[Dialect, ...]] = ("json", "feishu", "dingtalk", "wecom", "slack")

HIDDEN: Final = "***"
_VARIABLE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9:_.-]+", re.ASCII)
_SECRETS: Final = ("url", "secret", "headers")


class CommandConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is started for each alarm.

    Attributes:
        argv: The program and its arguments; no shell reads them.
        timeout: Seconds after which it is killed, with all that it started.
    """

    argv: tuple[str, ...]
    timeout: float = 30.0


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An address that is told of each alarm. Address, secret and headers are never shown.

    Attributes:
        dialect: What the service behind it understands.
        url: The address, or `${NAME}` for the value of an environment variable.
        secret: Of the signature, where the service asks for one; `${NAME}` as above.
        headers: More lines of the request's head; `${NAME}` as above.
        keyword: A word that must be in each message, where the service asks for one.
        timeout: Seconds of one attempt.
        attempts: How often it is tried.
    """

    dialect: Dialect = "json"
    url: str
    secret: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    keyword: str = ""
    timeout: float = 10.0
    attempts: int = 4

    @property
    def place(self) -> str:
        """What may be shown of the address: its host, or the name of the variable."""
        if _VARIABLE.fullmatch(self.url):
            return self.url
        try:
            host = urlsplit(self.url).hostname or ""
        except ValueError:
            host = ""
        return host if _HOST.fullmatch(host) else HIDDEN

    def __repr__(self) -> str:
        return f"WebhookConfig(dialect={self.dialect!r}, url={self.place}...)"


class ActionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is done when an alarm is raised.

    Attributes:
        kind: A name of `ACTIONS`.
        command: Of the kind `command`.
        webhook: Of the kind `webhook`.
    """

    kind: ActionKind
    command: CommandConfig | None = None
    webhook: WebhookConfig | None = None

    @property
    def title(self) -> str:
        """What it is called where people read it."""
        if self.webhook is not None:
            return f"webhook {self.webhook.dialect} {self.webhook.place}"
        if self.command is not None:
            return f"command {self.command.argv[0]}"
        return self.kind


class AlertConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One rule.

    Attributes:
        rule: A name of `monitor.alarms.rules`.
        params: Arguments of its class.
        actions: What is done; None for what `alert_actions` says.
        cool_down: Seconds in which it is not repeated; None for that of the callback.
        after_steps: Steps of the session in which it says nothing.
    """

    rule: str
    params: dict[str, Any] = {}
    actions: tuple[ActionConfig, ...] | None = None
    cool_down: float | None = None
    after_steps: int = 0


def hide_secrets(value: Any) -> Any:
    """Returns a section, or a part of one, without the addresses and secrets of webhooks; `${NAME}` is kept.

    Of a command only the program is kept: an argument of `curl` is an address or a token as well.
    """
    if isinstance(value, dict):
        hiding = {"webhook": _hide, "command": _hide_arguments}
        return {name: hiding.get(name, hide_secrets)(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_secrets(inner) for inner in value]
    return value


def _hide(webhook: Any) -> Any:
    if isinstance(webhook, dict):
        return {name: _mask(inner) if name in _SECRETS else inner for name, inner in webhook.items()}
    if isinstance(webhook, (list, tuple)):
        return [_hide(inner) for inner in webhook]
    return _mask(webhook)


def _hide_arguments(command: Any) -> Any:
    if isinstance(command, dict):
        return {name: _hide_arguments(inner) if name == "argv" else inner for name, inner in command.items()}
    if isinstance(command, (list, tuple)):
        return [*command[:1], *map(_mask, command[1:])]
    return command


def _mask(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _mask(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mask(inner) for inner in value]
    if not value or (isinstance(value, str) and _VARIABLE.fullmatch(value)):
        return value
    return HIDDEN
