"""Sends an alarm to a webhook, and tries again while that is worth while.

An address holds a token, and so does what is said of it by an exception or by a server: whatever leaves this module
has gone through `_Secrets.clean`.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from typing import IO, Any, Final
from urllib.parse import parse_qsl, urlsplit

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.alarms.actions.dialects import Verdict, build_request, judge
from ms_summary_bridge.monitor.alarms.actions.message import ActionError, AlertSource
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import HIDDEN, WebhookConfig

__all__ = ["send"]

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 30.0
_MAX_ANSWER: Final = 64 << 10
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
_SHORTEST_SECRET: Final = 6  # shorter parts of an address, such as v2 or send, may be shown


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A service that has moved is an error: the address holds a token, which is not for another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


class _Secrets:
    """What must not be shown."""

    def __init__(self, url: str, others: Iterable[str]) -> None:
        found = {url, *others}
        try:
            parts = urlsplit(url)
            found |= {parts.path, parts.query, parts.password or "", parts.username or "", *parts.path.split("/")}
            found |= {value for _, value in parse_qsl(parts.query)}
        except ValueError:
            pass
        self._parts = sorted((part for part in found if len(part) >= _SHORTEST_SECRET), key=len, reverse=True)

    def clean(self, text: str) -> str:
        for part in self._parts:
            text = text.replace(part, HIDDEN)
        return text


def _expand(text: str) -> str:
    def look_up(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if not value:
            raise ActionError(f"the environment variable {match[1]} is not set")
        return value.strip()

    return _VARIABLE.sub(look_up, text)


def send(
    config: WebhookConfig,
    alert: Alert,
    origin: AlertSource,
    *,
    hurry: threading.Event | None = None,
    clock: Callable[[], float] = time.time,
) -> None:
    """Sends an alarm; waits until the service has taken it.

    When `hurry` is set, nothing is tried again. `clock` gives seconds since epoch, for the signature.

    Raises:
        ActionError: It was not taken. The message holds neither address nor secret.
    """
    hurry = threading.Event() if hurry is None else hurry
    url, secret = _expand(config.url), _expand(config.secret)
    headers = {name: _expand(value) for name, value in config.headers}
    secrets = _Secrets(url, (secret, *headers.values()))
    wait = _FIRST_WAIT
    for attempt in range(1, config.attempts + 1):
        # Anew for each attempt: a signature is about the time.
        request = build_request(config.dialect, alert, origin, secret=secret, keyword=config.keyword, seconds=clock())
        address = url + (("&" if urlsplit(url).query else "?") + request.query if request.query else "")
        verdict, reason, pause = _post(config, address, request.body, headers)
        if verdict == "done":
            return
        if verdict == "refused" or attempt == config.attempts or hurry.wait(min(pause or wait, _LONGEST_WAIT)):
            break
        wait *= 2
    tried = f" ({counted(attempt, 'attempt')})" if attempt > 1 else ""
    raise ActionError(secrets.clean(f"{reason}{tried}"))


def _post(
    config: WebhookConfig, address: str, body: bytes, headers: dict[str, str]
) -> tuple[Verdict, str, float | None]:
    """Returns what came of one attempt, the reason, and the seconds that the service asks to wait."""
    try:
        # Made in here: the message of a ValueError holds the whole address.
        request = urllib.request.Request(
            address, body, {"Content-Type": "application/json; charset=utf-8", **headers}, method="POST"
        )
        with _OPENER.open(request, timeout=config.timeout) as answer:
            verdict, reason = judge(config.dialect, answer.status, answer.read(_MAX_ANSWER))
            return verdict, reason, None
    except urllib.error.HTTPError as error:
        with error:
            verdict, reason = judge(config.dialect, error.code, b"")
            return verdict, reason, _seconds(error.headers.get("Retry-After"))
    except urllib.error.URLError as error:
        return "again", f"no connection: {_kind(error.reason)}", None
    except (TimeoutError, http.client.HTTPException, OSError) as error:
        return "again", f"no answer: {_kind(error)}", None
    except ValueError:
        return "refused", "the address must begin with https:// or http://", None


def _kind(error: object) -> str:
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "it took too long"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def _seconds(text: str | None) -> float | None:
    return float(text) if text and text.isdecimal() else None
