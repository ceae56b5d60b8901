"""Limits on values: what is past one is said, and then not again before the cool-down is over."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from typing import Any, Final

from ms_summary_bridge.monitor.model.config import CallbackConfig
from ms_summary_bridge.monitor.model.sample import Note

__all__ = ["WarnOnValue"]

_NEVER_NONFINITE: Final = ("loss", "grad_norm")  # these warn without a limit when they are not finite


class WarnOnValue:
    """Compares values with their limits.

    Args:
        config: The limits, and when to warn.
        unsaid: Metrics of which a value that is not finite is an alarm: the console says it only once.
    """

    def __init__(self, config: CallbackConfig, *, unsaid: Collection[str] = ()) -> None:
        self._unsaid = unsaid
        self._bounds = config.warn_on_value
        self._after_steps = config.warn_after_steps
        self._cool_down = config.cool_down
        self._last: dict[str, float] = {}  # when each value's last warning was
        self._silent: dict[str, int] = {}  # and how often it was past its limit since
        self.counts: dict[str, int] = {}
        """How many warnings each value gave."""

    def watches(self, metric: str) -> bool:
        """Whether there is anything to compare the values of a metric with."""
        return metric in self._bounds or metric in _NEVER_NONFINITE

    def check(
        self, metric: str, name: str, value: float, *, step: int, session_steps: int, now: float, wall_time: float
    ) -> Note | None:
        """Returns the warning that a value calls for; None for none.

        Args:
            metric: Name of the metric.
            name: Name of the value, which is another for each group of a metric with several.
            value: The value.
            step: Step it is of.
            session_steps: Steps that this session has done.
            now: Monotonic seconds.
            wall_time: Seconds since epoch.
        """
        bounds = self._bounds.get(metric)
        fields: dict[str, Any] = {"metric": name, "value": value}
        if not math.isfinite(value):
            reason = f"{name} is {'NaN' if math.isnan(value) else value}"
        elif bounds is not None and bounds.above is not None and value > bounds.above:
            reason, fields["above"] = f"{name} is {value:.6g}, above {bounds.above:g}", bounds.above
        elif bounds is not None and bounds.below is not None and value < bounds.below:
            reason, fields["below"] = f"{name} is {value:.6g}, below {bounds.below:g}", bounds.below
        else:
            return None
        if session_steps <= self._after_steps:
            return None
        last = self._last.get(name)
        if last is not None and now - last < self._cool_down:
            self._silent[name] = self._silent.get(name, 0) + 1
            return None
        self._last[name] = now
        self.counts[name] = self.counts.get(name, 0) + 1
        silent = self._silent.pop(name, 0)
        again = f" ({silent} more since the last warning)" if silent else ""
        text = f"step {step}: {reason}{again}"
        level = None if metric in self._unsaid and not math.isfinite(value) else logging.WARNING
        return Note(kind="warning", step=step, wall_time=wall_time, text=text, fields=fields, level=level)
