"""Limits on values: what is past one is said, and then not again before the cool-down is over."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from typing import Any, Final

from ms_summary_bridge.monitor.model.config import Bounds, CallbackConfig
from ms_summary_bridge.monitor.model.sample import Note
from ms_summary_bridge.training.step_clock import Call

__all__ = ["WarnOnValue"]

_NEVER_NONFINITE: Final = ("loss", "grad_norm")  # these warn without a limit when they are not finite


class WarnOnValue:
    """Compares values with their limits. Where one that is not finite is an alarm (`unsaid`) the console has that."""

    def __init__(self, config: CallbackConfig, *, unsaid: Collection[str] = ()) -> None:
        self._config = config
        self._unsaid = unsaid
        self._last: dict[str, float] = {}  # when each value's last warning was
        self._silent: dict[str, int] = {}  # and how often it was past its limit since
        self.counts: dict[str, int] = {}
        """How many warnings each value gave."""

    def watches(self, metric: str) -> bool:
        """Whether there is anything to compare the values of a metric with."""
        return metric in self._config.warn_on_value or metric in _NEVER_NONFINITE

    def check(
        self, metric: str, name: str, value: float, call: Call, *, session_steps: int, wall_time: float
    ) -> Note | None:
        """Returns the warning that a value calls for; None for none. A metric of several groups has several names."""
        bounds = self._config.warn_on_value.get(metric, Bounds())
        fields: dict[str, Any] = {"metric": name, "value": value}
        if not math.isfinite(value):
            reason = f"{name} is {'NaN' if math.isnan(value) else value}"
        elif bounds.above is not None and value > bounds.above:
            reason, fields["above"] = f"{name} is {value:.6g}, above {bounds.above:g}", bounds.above
        elif bounds.below is not None and value < bounds.below:
            reason, fields["below"] = f"{name} is {value:.6g}, below {bounds.below:g}", bounds.below
        else:
            return None
        if session_steps <= self._config.warn_after_steps:
            return None
        last = self._last.get(name)
        if last is not None and call.monotonic - last < self._config.cool_down:
            self._silent[name] = self._silent.get(name, 0) + 1
            return None
        self._last[name] = call.monotonic
        self.counts[name] = self.counts.get(name, 0) + 1
        silent = self._silent.pop(name, 0)
        again = f" ({silent} more since the last warning)" if silent else ""
        step = call.ended[0]
        text = f"step {step}: {reason}{again}"
        level = None if metric in self._unsaid and not math.isfinite(value) else logging.WARNING
        return Note(kind="warning", step=step, wall_time=wall_time, text=text, fields=fields, level=level)
