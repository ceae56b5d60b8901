"""What an alarm says to the outside, and which training it is of."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from ms_summary_bridge.diagnose.finding import name_ranks
from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.sample import Note
from ms_summary_bridge.training.phases import KINDS

__all__ = ["OUTSIDE", "STEP_METRICS", "ActionError", "AlertSource", "message_text", "name_action", "outcome_note"]

OUTSIDE = ("command", "webhook")
"""The kinds that `deliver` knows."""
STEP_METRICS = ("loss", "grad_norm", "loss_scale", "overflow", "step_time", "data_time")
"""What is known of every step, whether it is measured or not."""
_STACK_LINES = 5  # of a message
_NAMED_HOSTS = 4


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
    incident = alert.fields.get("incident")
    place.append(f"rank {alert.rank}" + (f" of {origin.ranks}" if origin.ranks > 1 else ""))
    if host := (origin.host if incident is None else incident["first_host"] or origin.host):
        place.append(f"host {host}")
    run = "/".join(filter(None, (origin.project, origin.run)))
    lines = [f"[{alert.severity.upper()}] {alert.rule}: {alert.message}", ", ".join(place)]
    lines += [f"run {run}"] if run else []
    lines += [] if incident is None else _describe_incident(incident, origin.ranks)
    lines += [alert.advice] if alert.advice else []
    return "\n".join(lines)


def _describe_incident(incident: dict[str, Any], ranks: int) -> list[str]:
    """Returns what all ranks say together; see `incidents.report.merge_reports`."""
    lines = []
    if ranks > 1:
        hosts = list(incident["hosts"])
        named = ", ".join(hosts[:_NAMED_HOSTS]) + (", ..." if len(hosts) > _NAMED_HOSTS else "")
        told = name_ranks(incident["ranks"])
        lines.append(
            f"told by {told} on {counted(len(hosts), 'host')} ({named}); "
            f"first bad: rank {incident['first_rank']}" + _on(incident["first_host"])
        )
    lines += incident["doing"]
    if incident["phase"]:
        lines.append(f"phase: {KINDS.get(incident['phase'], incident['phase'])}")
    if incident["stack"]:
        lines.append(f"stack of rank {incident['stack_rank']}, most recent call first:")
        lines += [f"  {line}" for line in incident["stack"][:_STACK_LINES]]
    saved = incident["checkpoint"]
    lines.append(
        "no checkpoint from before it is known"
        if saved is None
        else f"last good checkpoint: step {saved['step']}, {saved['path']}"
    )
    if incident["left_out"]:
        lines.append(
            f"{counted(incident['left_out'], 'message')} before this one were left out by the limit of the webhook"
        )
    return lines


def _on(host: str) -> str:
    return f" on {host}" if host else ""


def name_action(action: ActionConfig, actions: Sequence[ActionConfig]) -> str:
    """Returns what an action is called among others: two addresses of one host have one title, and are numbered."""
    same = [other for other in dict.fromkeys(actions) if other.title == action.title]
    number = same.index(action) if action in same else 0
    return f"{action.title} ({number + 1})" if number else action.title


def outcome_note(name: str, alert: Alert, problem: str, told_by: int | None = None) -> Note:
    """Returns what became of an action, as the journal takes it.

    `problem` is why it was not done; empty for done. `told_by` is the rank that does it in the place of this one.
    """
    fields = {"action": name, "rule": alert.rule, "alert_wall_time": alert.wall_time, "problem": problem}
    text = f"{name} was {'not ' if problem else ''}told of {alert.rule}" + (f": {problem}" if problem else "")
    if told_by is not None:
        text = f"{name} is told of {alert.rule} by rank {told_by}"
        fields["told_by"] = told_by
    return Note(kind="action", step=alert.step, wall_time=time.time(), text=text, fields=fields, level=None)
