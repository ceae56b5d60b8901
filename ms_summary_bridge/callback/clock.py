"""How long steps take, from the moments a callback is called.

No clock of its own: times are handed in.
"""

from __future__ import annotations

__all__ = ["StepClock"]


class StepClock:
    """Adds up the time between steps of one training.

    The first step compiles the graph and is left out, as is what lies between two epochs (evaluation, checkpoints).
    """

    def __init__(self) -> None:
        self._mark: float | None = None
        self._is_compiled = False
        self._steps = 0
        self._secs = 0.0

    def begin_step(self, now: float) -> None:
        """A step begins at `now`, seconds of a monotonic clock."""
        if self._mark is None:
            self._mark = now

    def end_step(self, now: float, steps: int) -> None:
        """`steps` steps (several in data sink mode) have ended at `now`."""
        if self._is_compiled and self._mark is not None and now > self._mark and steps > 0:
            self._secs += now - self._mark
            self._steps += steps
        self._mark = now
        self._is_compiled = True

    def pause(self) -> None:
        """What follows belongs to no step."""
        self._mark = None

    def take(self, batch_size: int | None) -> dict[str, float]:
        """Returns `step_time` in seconds and `samples_per_second` since the last call; nothing before a whole step."""
        steps, secs, self._steps, self._secs = self._steps, self._secs, 0, 0.0
        if not steps or secs <= 0:
            return {}
        measured = {"step_time": secs / steps}
        if batch_size:
            measured["samples_per_second"] = batch_size * steps / secs
        return measured
