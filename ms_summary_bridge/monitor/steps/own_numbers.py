"""What this rank tells the others of itself: the values of the metrics since the last time.

Imports no mindspore.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ms_summary_bridge.monitor.model.config import MetricConfig
from ms_summary_bridge.monitor.model.sample import Sample
from ms_summary_bridge.monitor.steps.measurement import Measurement
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window
from ms_summary_bridge.training.faults import Faults

__all__ = ["OwnNumbers"]

_OLD_SECS: Final = 5.0
_LATE: Final = ("memory_usage", "host_memory")  # of a host: to ask all processes takes milliseconds


class OwnNumbers:
    """Measures `names` beside the samples, of the same steps and by the same formulas.

    The memory of the host is measured by the writing thread, and up to five seconds old.
    """

    def __init__(self, names: Iterable[str], training: TrainingFacts, faults: Faults) -> None:
        self._faults = faults
        configs = [MetricConfig(name=name) for name in names]
        self._measurement = Measurement(configs, training, faults, lambda metric, name, value: None)
        self._window: Window | None = None
        self._late: dict[str, float] = {}
        first = Sample(step=0)
        self._measurement.take(first, Window(last=StepFacts(step=0)))
        self._pending = [(name, ask) for name, ask in first.pending if name in _LATE]
        self._looked = float("-inf")

    def observe(self, facts: StepFacts) -> None:
        """Takes a step, on the thread that deals with it."""
        if self._window is None:
            self._window = Window(last=facts)
        self._window.add(facts)
        self._measurement.observe(facts, {})

    def refresh(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Measures what may take some time, on the writing thread."""
        now = clock()
        if not self._pending or now - self._looked < _OLD_SECS:
            return
        self._looked = now
        for name, ask in self._pending:
            try:
                value = ask()
            except Exception as error:
                self._faults.warn(f"all {name}", f"aggregate: {name} cannot be measured: {error!r}")
                continue
            self._late.update(value if isinstance(value, Mapping) else {})

    def take(self) -> tuple[int, dict[str, float]]:
        """Returns the values of the steps since the last call, and the last of these steps; 0 where there was none."""
        window, self._window = self._window, None
        if window is None:
            return 0, {}
        sample = Sample(step=window.last.step)
        self._measurement.take(sample, window)
        for name, ask in sample.pending:
            if name not in _LATE:
                value = ask()
                sample.values.update(value if isinstance(value, Mapping) else {})
        return window.last.step, {**self._late, **sample.values}

    def close(self) -> None:
        """Lets go of the metrics."""
        self._measurement.close()
