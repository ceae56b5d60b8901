"""Waiting for what another process or a disk does and nobody announces, and not for ever."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["wait_for", "within"]

_Found = TypeVar("_Found")


def wait_for(
    look: Callable[[], _Found | None],
    every_secs: float,
    within_secs: float = math.inf,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> _Found | None:
    """Looks again and again, at least once, until there is something.

    Args:
        look: Returns what is waited for; None while it is not there.
        every_secs: Pause between two looks.
        within_secs: How long to go on.
        clock: Seconds of a clock that never goes back.
        sleep: Waits for the seconds it is given; `threading.Event().wait` ends a pause early.

    Returns:
        What was found; None if the time is over.
    """
    deadline = clock() + within_secs
    while (found := look()) is None and clock() < deadline:
        sleep(every_secs)
    return found


def within(secs: float, call: Callable[[], _Found]) -> _Found | None:
    """Returns what a call returns; None if that takes too long: a disk that hangs holds up nothing else."""
    found: list[_Found] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(secs)
    return found[0] if found else None
