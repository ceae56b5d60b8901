"""What a configuration says of alarms: which rules look, and what is done when one finds something.

The watchdog, which is another process, gets `ActionConfig`s as JSON; so they hold plain values alone.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from ms_summary_bridge.monitor.model.keys import AboveZero, Count, NotNegative, ZeroOrMore, key

__all__ = [
    "ACTIONS",
    "DIALECTS",
    "HIDDEN",
    "VARIABLE",
    "ActionConfig",
    "ActionKind",
    "AlertConfig",
    "CommandConfig",
    "Dialect",
    "Per",
    "WebhookConfig",
    "hide_secrets",
]

ActionKind = Literal["log", "command", "webhook", "save_checkpoint", "stop", "dump_stacks"]
Dialect = Literal["json", "feishu", "dingtalk", "wecom", "slack"]
Per = Literal["incident", "rank"]

ACTIONS: Final[tuple[ActionKind, ...]] = get_args(ActionKind)
DIALECTS: Final[tuple[Dialect, ...]] = get_args(Dialect)

HIDDEN: Final = "***"
VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
"""What stands for the value of an environment variable."""
_HOST: Final = re.compile(r"[A-Za-z0-9:_.-]+", re.ASCII)
_SECRETS: Final = ("url", "secret", "headers")
_Hidden = Annotated[str, Meta(extra={"form": "hidden"})]


class CommandConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is started for each alarm."""

    argv: Annotated[tuple[str, ...], key("the program and its arguments, as a list; no shell reads them", form="argv")]
    timeout: Annotated[AboveZero, key("seconds after which it is killed, with all that it started")] = 30.0
    per: Annotated[Per, key("incident: once for all ranks, with what all report; rank: for each rank's alarm")] = "rank"


class WebhookConfig(msgspec.Struct, frozen=True, kw_only=True):
    """An address that is told of each alarm. Address, secret and headers are never shown; each may hold `${NAME}`."""

    url: Annotated[str, key("the address, or ${NAME} for that in an environment variable", form="address")]
    dialect: Annotated[Dialect, key("what the service understands; found by the host if not given")] = "json"
    secret: Annotated[_Hidden, key("of the signature (Feishu, DingTalk), or ${NAME}")] = ""
    headers: Annotated[
        tuple[tuple[str, str], ...], key("more lines of the request's head, {name: text}", form="headers")
    ] = ()
    keyword: Annotated[str, key("a word that the service wants in each message")] = ""
    timeout: Annotated[AboveZero, key("seconds of one attempt")] = 10.0
    attempts: Annotated[Count, key("how often it is tried")] = 4
    per: Annotated[Per, key("incident: once for all ranks, with what all report; rank: for each rank's alarm")] = (
        "incident"
    )
    limit: Annotated[
        Count, key("messages of a run within an hour; more are counted, and the next one says how many")
    ] = 20

    @property
    def place(self) -> str:
        """What may be shown of the address: its host, or the name of the variable."""
        if VARIABLE.fullmatch(self.url):
            return self.url
        try:
            host = urlsplit(self.url).hostname or ""
        except ValueError:
            host = ""
        return host if _HOST.fullmatch(host) else HIDDEN

    def __repr__(self) -> str:
        return f"WebhookConfig(dialect={self.dialect!r}, url={self.place}...)"


class ActionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is done when an alarm is raised; the kinds `command` and `webhook` say more under their name."""

    kind: ActionKind
    command: CommandConfig | None = None
    webhook: WebhookConfig | None = None

    @property
    def is_of_incident(self) -> bool:
        """Whether it is done once for the alarms of all ranks."""
        detail = self.webhook or self.command
        return detail is not None and detail.per == "incident"

    @property
    def title(self) -> str:
        """What it is called where people read it."""
        if self.webhook is not None:
            return f"webhook {self.webhook.dialect} {self.webhook.place}"
        if self.command is not None:
            return f"command {self.command.argv[0]}"
        return self.kind


class AlertConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One rule: a name of `monitor.alarms.rules`, and in `params` the arguments of its class (see `rule_keys`).

    `is_default` is true where nobody named it.
    """

    rule: str
    params: dict[str, Any] = {}
    actions: Annotated[tuple[ActionConfig, ...] | None, key("what is done; alert_actions if not given", one=True)] = (
        None
    )
    cool_down: Annotated[
        NotNegative | None, key("seconds in which it is not repeated; that of the callback if not given")
    ] = None
    after_steps: Annotated[ZeroOrMore, key("steps of the session in which it says nothing")] = 0
    is_default: bool = False


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
    return [_hide(inner) for inner in webhook] if isinstance(webhook, (list, tuple)) else _mask(webhook)


def _hide_arguments(command: Any) -> Any:
    if isinstance(command, dict):
        return {name: _hide_arguments(inner) if name == "argv" else inner for name, inner in command.items()}
    return [*command[:1], *map(_mask, command[1:])] if isinstance(command, (list, tuple)) else command


def _mask(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _mask(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mask(inner) for inner in value]
    if not value or (isinstance(value, str) and VARIABLE.fullmatch(value)):
        return value
    return HIDDEN
