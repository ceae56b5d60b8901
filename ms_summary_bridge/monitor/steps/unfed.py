"""What was configured and gets no number: named once, with what it takes.

A sink, because some values are measured by the thread that writes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ms_summary_bridge.monitor.alarms.alarms import Alarms
from ms_summary_bridge.monitor.model.metric_names import say_needs
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.writer import Sink
from ms_summary_bridge.monitor.steps.measurement import Measurement
from ms_summary_bridge.training.facts import TrainingFacts

__all__ = ["Unfed"]

_SAMPLES: Final = 2
_NONE: Final = "no number comes for"


class Unfed(Sink):
    """Says after the second sample which metrics and rules have no number, why, and what to do: a line for each need.

    `warn` is told of metrics and of rules that somebody named; `tell` of rules that nobody named, None where others say
    that. What those look at has its needs said only where the device should give it, else its name alone. The alarms
    have been shown a sample before. A process without a loss misses none.
    """

    def __init__(
        self,
        measurement: Measurement,
        alarms: Alarms,
        warn: Callable[[str, str], None],
        tell: Callable[[str], None] | None,
        training: TrainingFacts,
    ) -> None:
        self._measurement = measurement
        self._alarms = alarms
        self._warn = warn
        self._tell = tell
        self._training = training
        self._samples = 0
        self._said: set[str] = set()

    def open(self) -> None:
        """Does nothing."""

    def write_sample(self, sample: Sample) -> None:
        """Counts it, and looks where it is time."""
        self._samples += not sample.of_all
        if self._samples >= _SAMPLES:
            self._look()

    def _look(self) -> None:
        metrics, waiting = self._measurement.find_unfed(_SAMPLES)
        rules, expected = self._alarms.find_blind(waiting)
        passed_over = {*self._said, *(("loss",) if self._training.lacks_loss else ())}
        names = [name for name in dict.fromkeys([*metrics, *rules]) if name not in passed_over]
        if not names:
            return
        self._said.update(names)
        told = self._measurement.say_needs()
        for need in say_needs([name for name in names if name in expected.union(metrics)], rules, metrics, told):
            self._warn(f"{_NONE} {need}", f"{_NONE} {need}")
        usual = [name for name in names if name not in expected.union(metrics)]
        if usual and self._tell is not None:
            self._tell(f"{_NONE} {', '.join(usual)}, which rules look at by default: config check says what it takes")

    def write_note(self, note: Note) -> None:
        """Does nothing."""

    def flush(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""
