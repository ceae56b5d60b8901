"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["wait_for"]


def wait_for(
    answer: Callable[[], object], what: Callable[[], str] | str = "it did not come", secs: float = 60.0
) -> Any:
    """Asks again and again; returns the first answer that is true. `what` says what is wrong if there is none."""
    deadline = time.monotonic() + secs
    while not (found := answer()):
        assert time.monotonic() < deadline, what if isinstance(what, str) else what()
        time.sleep(0.05)
    return found
