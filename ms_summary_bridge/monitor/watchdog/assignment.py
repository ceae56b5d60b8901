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

    Attributes:
        rank: Global rank.
        ranks: How many processes train together.
        host: Name of the host.
        thread_ident: The thread that trains, as `threading.get_ident()`.
        thread: The same, as `threading.get_native_id()`.
    """

    rank: int
    ranks: int
    host: str
    thread_ident: int
    thread: int


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What a watchdog is to watch.

    Attributes:
        pid: The training's process, which has started the watchdog.
        heartbeat: Descriptor of the heartbeat.
        offer: How to ask for stacks; None if they cannot be had.
        console: Descriptor of the training's standard error if that is a regular file, else -1.
        config: The limits.
        actions: Commands and webhooks that are told of a hang, of its end, and of a death.
        project: As configured.
        project_directory: Where a run is made for what happens before the training has one.
        has_viewer: Whether there are files for the viewers.
        place: What the training says when it begins; until then what is known already.
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
