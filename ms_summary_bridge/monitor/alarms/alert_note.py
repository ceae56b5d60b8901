"""What an alarm looks like: as a note that all sinks take, and in words.

Imports no mindspore.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.sample import Note

__all__ = ["AlertNote", "alert_note", "describe_checkpoint", "watchdog_note"]

_WIDTH: Final = 78


class AlertNote(Note, kw_only=True):
    """An alarm on its way to the sinks.

    `actions` is what is to be done. `checkpoint` is step and path of the last checkpoint from before it; None for none
    that is known.
    """

    alert: Alert
    actions: tuple[ActionConfig, ...] = ()
    checkpoint: tuple[int, str] | None = None


def alert_note(
    alert: Alert,
    *,
    ranks: int,
    count: int,
    titles: Sequence[str],
    silent: int = 0,
    stops: bool = False,
    checkpoint: tuple[int, str] | None = None,
) -> AlertNote:
    """Returns an alarm as all sinks take it; there is nothing to be done for it, and the console does not say it.

    `count` is how many of its rule there were, with this one; `silent` how often it would have been raised since the
    last. `stops` is whether it ends the training, and `checkpoint` the last one from before it.
    """
    fields: dict[str, Any] = {**msgspec.structs.asdict(alert), "fields": alert.plain()["fields"]}
    for name in ("step", "wall_time", "rank"):  # every line of a journal has these
        del fields[name]
    fields |= {"since_step": alert.first_step, "actions": list(titles), "count": count, "silent": silent}
    return AlertNote(
        kind="alert",
        step=alert.step,
        wall_time=alert.wall_time,
        text=_describe(alert, ranks, silent, stops, checkpoint),
        fields=fields,
        level=None,
        alert=alert,
        checkpoint=checkpoint,
    )


def watchdog_note(alert: Alert, *, ranks: int, count: int, titles: Sequence[str]) -> Note:
    """Returns an alarm of the watchdog as all sinks take it, or that one is over; arguments as `alert_note`."""
    if alert.severity == "info":
        return Note(kind="milestone", step=alert.step, wall_time=alert.wall_time, text=alert.message, level=None)
    return alert_note(alert, ranks=ranks, count=count, titles=titles)


def _describe(alert: Alert, ranks: int, silent: int, stops: bool, checkpoint: tuple[int, str] | None) -> str:
    title = f" ALARM: {alert.rule} "
    place = f"step {alert.step}" + (f", epoch {alert.epoch}" if alert.epoch is not None else "")
    place += f", rank {alert.rank}" if ranks > 1 else ""
    lines = [title.center(_WIDTH, "="), f"{place}: {alert.message}"]
    lines += [alert.advice] if alert.advice else []
    lines += [f"{silent} more since the last alarm"] if silent else []
    if stops:
        lines.append("the training is stopped; " + describe_checkpoint(checkpoint))
    return "\n".join([*lines, "=" * _WIDTH])


def describe_checkpoint(checkpoint: tuple[int, str] | None) -> str:
    """Returns the last good checkpoint in words."""
    if checkpoint is None:
        return "no checkpoint from before it is known"
    return f"the last checkpoint from before it is of step {checkpoint[0]}: {checkpoint[1]}"
