"""What an alarm says to the outside, and which training it is of."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.sample import Note

__all__ = ["OUTSIDE", "ActionError", "AlertSource", "message_text", "name_action", "outcome_note"]

OUTSIDE = ("command", "webhook")
"""The kinds that `deliver` knows."""


class ActionError(Exception):
    """An action failed. The message holds no address, secret or token."""


class AlertSource(msgspec.Struct, frozen=True, kw_only=True):
    """Which training an alarm is of."""

    project: str = ""
    run: str = ""
    run_directory: str = ""
    host: str = ""
    ranks: int = 1


def message_text(alert: Alert, origin: AlertSource) -> str:
    """Returns an alarm as people read it in a chat: what, where, since when, what to do."""
    place = [f"step {alert.step}"]
    if alert.first_step < alert.step:
        place.append(f"since step {alert.first_step}")
    if alert.epoch is not None:
        place.append(f"epoch {alert.epoch}")
    place.append(f"rank {alert.rank}" + (f" of {origin.ranks}" if origin.ranks > 1 else ""))
    if origin.host:
        place.append(f"host {origin.host}")
    run = "/".join(filter(None, (origin.project, origin.run)))
    lines = [f"[{alert.severity.upper()}] {alert.rule}: {alert.message}", ", ".join(place)]
    lines += [f"run {run}"] if run else []
    lines += [alert.advice] if alert.advice else []
    return "\n".join(lines)


def name_action(action: ActionConfig, actions: Sequence[ActionConfig]) -> str:
    """Returns what an action is called among others: two addresses of one host have one title, and are numbered."""
    same = [other for other in dict.fromkeys(actions) if other.title == action.title]
    number = same.index(action) if action in same else 0
    return f"{action.title} ({number + 1})" if number else action.title


def outcome_note(name: str, alert: Alert, problem: str) -> Note:
    """Returns what became of an action, as the journal takes it.

    `problem` is why it was not done; empty for done.
    """
    text = f"{name} was {'not ' if problem else ''}told of {alert.rule}" + (f": {problem}" if problem else "")
    fields = {"action": name, "rule": alert.rule, "alert_wall_time": alert.wall_time, "problem": problem}
    return Note(kind="action", step=alert.step, wall_time=time.time(), text=text, fields=fields, level=None)
