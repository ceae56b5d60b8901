"""Who deals with the steps that were noted, and when.

`settle` deals with all that waits. The training thread calls it where an alarm may be due, at the end of an epoch, and
where a metric must not be asked by another thread; `gather` does the rest, on the writing thread, again and again.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from ms_summary_bridge.errors import counted
from ms_summary_bridge.monitor.steps.step_reader import Reading
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.step_clock import Call, StepClock

__all__ = ["CallQueue", "Patience"]


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long is waited for what does not return, a metric or a rule of the user's own, or a disk.

    Attributes:
        step_secs: Between two steps.
        end_secs: At the end of the training.
        close_secs: For the files, there.
        most_calls: How many steps may wait; more are left out and counted.
    """

    step_secs: float = 1.0
    end_secs: float = 30.0
    close_secs: float = 30.0
    most_calls: int = 50_000


class CallQueue:
    """Hands on each call of the training network that was timed and read, one at a time, to `take`.

    With `is_at_once` only the training thread may deal with steps, with `is_bound` only it with samples.
    """

    def __init__(
        self,
        step_clock: StepClock,
        take: Callable[[Call], None],
        faults: Faults,
        patience: Patience,
        *,
        is_at_once: bool,
        is_bound: bool,
    ) -> None:
        self._step_clock = step_clock
        self._calls: deque[Call] = deque()
        step_clock.read_calls = self._calls
        self._take = take
        self._faults = faults
        self._patience = patience
        self._is_at_once = is_at_once
        self._is_bound = is_bound
        self._lock = threading.RLock()  # a signal's handler may end the training from within
        self._is_stuck = False
        self.dropped = 0
        """Steps that nothing was made of."""

    def gather(self) -> None:
        """Deals with what was noted, on the writing thread: what only the training thread may do is left to that."""
        if not self._is_at_once and self._lock.acquire(blocking=False):  # else the training thread is at it
            self._take_all(_is_due if self._is_bound else None)

    def settle(self, patience_secs: float | None = None) -> bool:
        """Deals with all that was noted. Where another thread is at it, and does not end, it is left to that one.

        It waits for that thread not for long, and no more once that was in vain; unless `patience_secs` are given.
        Returns whether nothing waits any more.
        """
        is_hurried = patience_secs is None
        if patience_secs is None:
            patience_secs = 0.0 if self._is_stuck else self._patience.step_secs
        if not self._lock.acquire(timeout=patience_secs):
            if is_hurried:
                self._is_stuck = True
                self._faults.warn("stuck", "a metric or a rule does not return: steps are looked at when it does")
                self._step_clock.settle()
                if len(self._calls) > self._patience.most_calls:
                    self._leave_out()
            return False
        self._is_stuck = False
        self._take_all(None)
        return True

    def settle_last(self) -> bool:
        """Deals with all, at the end of the training; what does not return by then is left out. Returns as `settle`."""
        if self.settle(self._patience.end_secs):
            return True
        self._step_clock.settle()
        self._leave_out()
        return False

    def _take_all(self, leaves: Callable[[Any], bool] | None) -> None:
        """Deals with what was noted, but for a call that is to be left and those behind it; gives the lock back."""
        calls = self._calls
        try:
            self._step_clock.settle()
            with contextlib.suppress(IndexError):  # the end
                while leaves is None or not leaves(calls[0].read):
                    self._take(calls.popleft())
        finally:
            self._lock.release()

    def _leave_out(self) -> None:
        """Forgets all that waits, and counts its steps."""
        steps = 0
        with contextlib.suppress(IndexError):  # the end
            while True:
                steps += self._calls.popleft().ended[1]
        self.dropped += steps
        self._faults.warn(
            f"left out {self.dropped}",
            f"a metric or a rule does not return: {counted(steps, 'step is', 'steps are')} left out",
        )


def _is_due(read: Any) -> bool:
    return isinstance(read, Reading) and read.is_due
