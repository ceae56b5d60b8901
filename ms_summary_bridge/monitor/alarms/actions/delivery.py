"""What is done when an alarm is raised: outside of the training a command and a webhook, inside of it the rest.

`deliver` waits for the outside; in a training `actions.runner` calls it on a thread of its own. The watchdog calls it
directly, since the training it speaks of may do nothing any more.
"""

from __future__ import annotations

import threading

from ms_summary_bridge.monitor.alarms.actions.message import AlertSource
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig

__all__ = ["deliver"]


def deliver(
    action: ActionConfig,
    alert: Alert,
    origin: AlertSource,
    *,
    hurry: threading.Event | None = None,
    give_up: threading.Event | None = None,
) -> None:
    """Tells the outside of an alarm, and waits until it knows. Does nothing for a kind that is not in `OUTSIDE`.

    When `hurry` is set nothing is tried again, and when `give_up` is set a command is killed.

    Raises:
        ActionError: It could not be done.
    """
    # Loaded here: a training without alarms needs neither, and the modules of HTTP take their time.
    if action.command is not None:
        from ms_summary_bridge.monitor.alarms.actions.command import run_command

        run_command(action.command, alert, origin, give_up=give_up)
    elif action.webhook is not None:
        from ms_summary_bridge.monitor.alarms.actions.webhook import send

        send(action.webhook, alert, origin, hurry=hurry)
