"""Tells the outside of alarms, on threads of its own: an endpoint that is dead costs the training nothing."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from ms_summary_bridge.monitor.alarms.actions.message import ActionError, AlertSource
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig

__all__ = ["ActionRunner", "deliver"]

_KILL_SECS: Final = 2.0
_WAITING: Final = 32  # alarms that may wait for one action; a dead endpoint is not told of hundreds later on


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


class ActionRunner:
    """Runs each action on a thread of its own, so that one that waits does not hold up another.

    `outcome` is told, on such a thread, what became of an action: empty for well, else the reason why not.
    """

    def __init__(self, origin: AlertSource, outcome: Callable[[ActionConfig, Alert, str], None]) -> None:
        self._origin = origin
        self._outcome = outcome
        self._hurry = threading.Event()
        self._give_up = threading.Event()
        self._queues: dict[ActionConfig, queue.Queue[Alert | None]] = {}
        self._threads: list[threading.Thread] = []

    def put(self, action: ActionConfig, alert: Alert) -> None:
        """Takes an alarm for one action, at once. Called by one thread alone."""
        waiting = self._queues.get(action)
        if waiting is None:
            waiting = self._queues[action] = queue.Queue(_WAITING)
            thread = threading.Thread(
                target=self._run, args=(action, waiting), name=f"ms_summary_bridge {action.kind}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        try:
            waiting.put_nowait(alert)
        except queue.Full:
            self._outcome(action, alert, f"left out: {_WAITING} alarms are waiting already")

    def close(self, timeout_secs: float) -> bool:
        """Lets each action end what it is at, without trying again; returns False if that takes too long.

        A command that still runs then is killed: it must not outlive the training.
        """
        self._hurry.set()
        for waiting in self._queues.values():
            with contextlib.suppress(queue.Full):  # its thread ends when it gives up
                waiting.put_nowait(None)
        is_done = self._join(timeout_secs)
        self._give_up.set()
        if not is_done:
            self._join(_KILL_SECS)
        return is_done

    def _join(self, timeout_secs: float) -> bool:
        deadline = time.monotonic() + timeout_secs
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, action: ActionConfig, waiting: queue.Queue[Alert | None]) -> None:
        while (alert := waiting.get()) is not None and not self._give_up.is_set():
            try:
                deliver(action, alert, self._origin, hurry=self._hurry, give_up=self._give_up)
                problem = ""
            except ActionError as error:
                problem = str(error)
            except Exception as error:  # a thread of ours never ends with a traceback, whose lines may hold a token
                problem = type(error).__name__
            self._outcome(action, alert, problem)
