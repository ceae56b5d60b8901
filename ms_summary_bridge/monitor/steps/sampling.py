"""What becomes of a step that was timed and read: facts, alarms, and a sample where one is due.

Imports no mindspore.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ms_summary_bridge.monitor.alarms.alarms import Alarms
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.steps.end_summary import EndSummary
from ms_summary_bridge.monitor.steps.measurement import Measurement
from ms_summary_bridge.monitor.steps.own_numbers import OwnNumbers
from ms_summary_bridge.monitor.steps.step_reader import Reading
from ms_summary_bridge.monitor.steps.warn_on_value import WarnOnValue
from ms_summary_bridge.training.facts import Window
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.measuring import Measuring
from ms_summary_bridge.training.step_clock import Call

__all__ = ["Sampling"]


class Sampling:
    """Makes samples, warnings and alarms of the steps of one training; `put` takes samples and notes.

    `own` is shown each step too, for what is told to other ranks.
    """

    def __init__(
        self,
        config: MonitorConfig,
        measuring: Measuring,
        alarms: Alarms,
        put: Callable[[Sample | Note], None],
        faults: Faults,
        *,
        wall_clock: Callable[[], float],
        own: OwnNumbers | None = None,
    ) -> None:
        self._measuring = measuring
        self._alarms = alarms
        self._put = put
        self._faults = faults
        self._wall_clock = wall_clock
        self._own = own
        self.warnings = WarnOnValue(config.callback, unsaid=alarms.says_nonfinite())
        self.measurement = Measurement(config.metrics, measuring.facts, faults, self._check)
        self.summary = EndSummary(began=measuring.step_clock.clock())
        self._window: Window | None = None
        self._last: Call | None = None  # the last step dealt with
        self._sampled: Call | None = None  # the last one that was a sample
        self._steps = 0  # of this session
        self._breaks: dict[str, tuple[int, int, float]] = {}  # of each kind: step before the last, count, seconds

    def take(self, call: Call) -> None:
        """Takes one step. By one thread at a time."""
        facts = self._measuring.facts_of(call, is_first=self._steps == 0)
        if facts.loss is None:
            self._faults.warn("loss", "the outputs of a step hold no number that can be the loss")
        for kind, (count, secs) in call.breaks.items():
            if count != self._breaks.get(kind, (0, 0, 0.0))[1]:
                before = self._measuring.facts.initial_step if self._last is None else self._last.ended[0]
                self._breaks[kind] = before, count, secs
        self._last = call
        self._steps += facts.steps
        if self._window is None:
            self._window = Window(last=facts)
        self._window.add(facts)
        self.summary.add(facts)
        reading = call.read if isinstance(call.read, Reading) else None
        given = {} if reading is None else reading.given
        self.measurement.observe(facts, given)
        if self._own is not None:
            self._own.observe(facts)
        self._alarms.observe_step(facts, given, call.monotonic, self._wall_time(call.monotonic))
        if reading is not None and reading.is_due:
            self._take_sample(call, reading.learning_rates)

    def end(self, learning_rates: Callable[[int], Mapping[str, float]]) -> None:
        """The training ends, and its last step was taken: those since the last sample get one of their own."""
        if self._window is not None and self._last is not None:
            is_given = self._window.last.learning_rate is not None
            self._take_sample(self._last, {} if is_given else learning_rates(self._last.ended[0]))

    def _wall_time(self, monotonic: float) -> float:
        """Returns the time of day of a moment that is not long ago."""
        return self._wall_clock() - (self._measuring.step_clock.clock() - monotonic)

    def _take_sample(self, call: Call, learning_rates: Mapping[str, float]) -> None:
        window, self._window = self._window, None
        if window is None:
            return
        window.learning_rates = lambda: learning_rates
        facts, training, before = window.last, self._measuring.facts, self._sampled
        elapsed = call.elapsed - (0.0 if before is None else before.elapsed)
        sample = Sample(
            step=facts.step,
            epoch=facts.epoch,
            step_in_epoch=training.step_in_epoch(facts.step),
            wall_time=self._wall_time(call.monotonic),
            monotonic=call.monotonic,
            interval_steps=window.steps,
            is_first=before is None,
            secs_left=training.secs_left(facts.step, window, self._breaks.values()),
            data_share=(call.waited - (0.0 if before is None else before.waited)) / elapsed if elapsed > 0 else None,
        )
        self._sampled = call
        self.measurement.take(sample, window)
        self._put(sample)

    def _check(self, metric: str, name: str, value: float) -> None:
        call = self._last
        if metric == "loss" and self._measuring.facts.lacks_loss:
            return
        if call is not None and self.warnings.watches(metric):
            wall_time = self._wall_time(call.monotonic)
            note = self.warnings.check(metric, name, value, call, session_steps=self._steps, wall_time=wall_time)
            if note is not None:
                self._put(note)
