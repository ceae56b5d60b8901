"""What the training tells its watchdog: what to watch, and once it begins, where it stands."""

from __future__ import annotations

from typing import Final

import msgspec

from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.config import WatchdogConfig
from ms_summary_bridge.monitor.watchdog.stacks import Offer

__all__ = ["Assignment", "Begun", "poll_secs"]

_POLLS_PER_LIMIT: Final = 20
_LEAST_POLL_SECS: Final = 0.05
_MOST_POLL_SECS: Final = 5.0


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What is known once a training begins.

    `thread_ident` and `thread` are `threading.get_ident()` and `get_native_id()` of the thread that trains.
    `collective_secs` is how long a rank may wait for the others in a collective; None for as long as it takes.
    """

    rank: int
    ranks: int
    host: str
    thread_ident: int
    thread: int
    collective_secs: float | None = None


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What a watchdog is to watch.

    `heartbeat` and `console` are descriptors; the latter is -1 where the standard error is not a regular file. `offer`
    is None where stacks cannot be had. In `project_directory` a run is made for what happens before the training has
    one, and `place` is what is known until the training says more. Alarms of one kind within `window_secs` are one
    incident.
    """

    pid: int
    heartbeat: int
    offer: Offer | None
    console: int
    config: WatchdogConfig
    actions: tuple[ActionConfig, ...]
    project: str
    project_directory: str
    has_viewer: bool
    place: Begun
    window_secs: float = 300.0


def poll_secs(config: WatchdogConfig) -> float:
    """Returns how long the watchdog waits between two looks: a small part of the shortest limit."""
    limits = (
        config.floor,
        config.compile_limit,
        config.evaluation_limit,
        config.checkpoint_limit,
        config.callback_limit,
    )
    return min(max(min(limits) / _POLLS_PER_LIMIT, _LEAST_POLL_SECS), _MOST_POLL_SECS)
