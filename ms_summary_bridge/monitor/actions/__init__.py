"""What is done when an alarm is raised: outside of the training a command and a webhook, inside of it the rest.

Layer: monitor.alert, monitor.alert_config < **monitor.actions**. Imports no mindspore.

`deliver` waits for the outside; in a training `actions.runner` calls it on a thread of its own. The watchdog calls it
directly, since the training it speaks of may do nothing any more.
"""

from __future__ import annotations

import threading

import msgspec

from ms_summary_bridge.monitor.alert import Alert
from ms_summary_bridge.monitor.alert_config import ActionConfig

__all__ = ["OUTSIDE", "ActionError", "Origin", "deliver", "message_text"]

OUTSIDE = ("command", "webhook")
"""The kinds that `deliver` knows."""


class ActionError(Exception):
    """An action failed. The message holds no address, secret or token."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Which training an alarm is of.

    Attributes:
        project: As configured.
        run: Name of the run's directory.
        run_directory: The directory.
        host: Name of the host.
        ranks: How many processes train together.
    """

    project: str = ""
    run: str = ""
    run_directory: str = ""
    host: str = ""
    ranks: int = 1


def message_text(alert: Alert, origin: Origin) -> str:
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


def deliver(action: ActionConfig, alert: Alert, origin: Origin, *, hurry: threading.Event | None = None) -> None:
    """Tells the outside of an alarm, and waits until it knows. Does nothing for a kind that is not in `OUTSIDE`.

    Args:
        action: What to do.
        alert: The alarm.
        origin: Where it comes from.
        hurry: When this is set, nothing is tried again.

    Raises:
        ActionError: It could not be done.
    """
    if action.command is not None:
        from ms_summary_bridge.monitor.actions.command import run_command

        run_command(action.command, alert, origin)
    elif action.webhook is not None:
        from ms_summary_bridge.monitor.actions.webhook import send

        send(action.webhook, alert, origin, hurry=hurry)
