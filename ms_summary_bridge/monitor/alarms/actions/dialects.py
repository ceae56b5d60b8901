"""The chat services' dialects: what a message looks like to each of them, and what its answer means.

No network.

The shapes are those of the services' public documentation of group robots and incoming webhooks.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any, Final, Literal
from urllib.parse import urlencode

import msgspec

from ms_summary_bridge.errors import NOT_JSON
from ms_summary_bridge.monitor.alarms.actions.message import AlertSource, message_text
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import Dialect

__all__ = ["Request", "Verdict", "build_request", "judge"]

_LONGEST: Final = 1900
"""Bytes of a text. WeCom takes 2,048 of UTF-8; the others take more."""

_BUSY: Final = {
    "feishu": (9499, 11232),  # too many requests
    "dingtalk": (-1, 130101),  # system busy; more than 20 messages a minute
    "wecom": (-1, 45009),  # system busy; more than 20 messages a minute
}
"""Codes in an answer after which it is worth while to try again."""

Verdict = Literal["done", "again", "refused"]


class Request(msgspec.Struct):
    """What is sent.

    `query` is added to the address, and `body` is JSON.
    """

    query: str
    body: bytes


def build_request(
    dialect: Dialect, alert: Alert, origin: AlertSource, *, secret: str, keyword: str, seconds: float
) -> Request:
    """Returns the message of an alarm.

    `secret` is that of the signature, empty for none, and `seconds` the time of day for it. `keyword` is added where
    the text lacks it.
    """
    text = message_text(alert, origin)
    if keyword and keyword not in text:
        text = f"{keyword} {text}"
    text = _shorten(text)
    query = ""
    body: dict[str, Any]
    if dialect == "feishu":
        body = {"msg_type": "text", "content": {"text": text}}
        if secret:
            # The key of the signature is what others sign, and the message is empty.
            moment = str(int(seconds))
            body |= {"timestamp": moment, "sign": _sign(f"{moment}\n{secret}", "")}
    elif dialect == "dingtalk":
        body = {"msgtype": "text", "text": {"content": text}}
        if secret:
            moment = str(round(seconds * 1000))
            query = urlencode({"timestamp": moment, "sign": _sign(secret, f"{moment}\n{secret}")})
    elif dialect == "wecom":
        body = {"msgtype": "text", "text": {"content": text}}
    elif dialect == "slack":
        # Slack reads these three as marks of its own, and takes them as entities.
        body = {"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")}
    else:
        body = {"text": text, "alert": alert.plain(), "origin": msgspec.structs.asdict(origin)}
    return Request(query, msgspec.json.encode(body))


def _sign(key: str, message: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), message.encode(), hashlib.sha256).digest()).decode()


def _shorten(text: str) -> str:
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= _LONGEST:
        return encoded.decode()
    return encoded[: _LONGEST - 3].decode("utf-8", "ignore") + "..."


def judge(dialect: Dialect, status: int, body: bytes) -> tuple[Verdict, str]:
    """Returns what an answer means, and for a failure the reason in words."""
    if status == 429 or status >= 500:
        return "again", f"HTTP status {status}"
    if not 200 <= status < 300:
        return "refused", f"HTTP status {status}"
    if dialect in ("json", "slack"):
        return "done", ""
    try:
        answer = msgspec.json.decode(body)
    except NOT_JSON:
        answer = None
    if not isinstance(answer, dict):
        return "refused", "the answer is not the service's: is the address right?"
    names = ("code", "StatusCode") if dialect == "feishu" else ("errcode",)
    codes = [answer[name] for name in names if isinstance(answer.get(name), int)]
    if codes and codes[0] == 0:
        return "done", ""
    text = answer.get("msg") or answer.get("errmsg") or "no reason"
    reason = f"code {codes[0] if codes else None}: {str(text)[:200]}"
    return ("again" if codes and codes[0] in _BUSY[dialect] else "refused"), reason
