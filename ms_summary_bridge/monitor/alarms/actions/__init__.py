"""What is done when an alarm is raised: outside of the training a command and a webhook, inside of it the rest."""

from __future__ import annotations

from ms_summary_bridge.monitor.alarms.actions.delivery import deliver
from ms_summary_bridge.monitor.alarms.actions.message import (
    OUTSIDE,
    ActionError,
    AlertSource,
    message_text,
    name_action,
    outcome_note,
)

__all__ = ["OUTSIDE", "ActionError", "AlertSource", "deliver", "message_text", "name_action", "outcome_note"]
