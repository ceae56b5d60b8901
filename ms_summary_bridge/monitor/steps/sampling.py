"""What becomes of the steps that were noted: facts, alarms, and a sample where one is due.

Imports no mindspore.

`settle` deals with all notes that wait. The training thread calls it where an alarm may be due, at the end of an epoch,
and where a metric must not be asked by another thread; `gather` does the rest, on the writing thread, again and again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from ms_summary_bridge.monitor.alarms.alarms import Alarms
from ms_summary_bridge.monitor.model.config import MonitorConfig
from ms_summary_bridge.monitor.model.facts import TrainingFacts, Window
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.steps.breakdown import Breakdown, Call
from ms_summary_bridge.monitor.steps.end_summary import EndSummary
from ms_summary_bridge.monitor.steps.measurement import Measurement
from ms_summary_bridge.monitor.steps.step_reader import Reading, StepReader, secs_left, step_in_epoch
from ms_summary_bridge.monitor.steps.warn_on_value import WarnOnValue
from ms_summary_bridge.training.faults import Faults

__all__ = ["Sampling"]

_PATIENCE_SECS: Final = 1.0
_END_SECS: Final = 30.0
_LIMIT: Final = 100_000  # notes that wait


class Sampling:
    """Makes samples, warnings and alarms of the steps of one training.

    Args:
        config: The configuration.
        training: The training.
        breakdown: Has the notes.
        reader: Makes facts of them.
        alarms: Is shown every step.
        put: Takes samples and notes.
        faults: Is told what fails.
        clock: Monotonic seconds.
        wall_clock: Seconds since epoch.
    """

    def __init__(
        self,
        config: MonitorConfig,
        training: TrainingFacts,
        breakdown: Breakdown,
        reader: StepReader,
        alarms: Alarms,
        put: Callable[[Sample | Note], None],
        faults: Faults,
        *,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self._training = training
        self._breakdown = breakdown
        self._reader = reader
        self._alarms = alarms
        self._put = put
        self._faults = faults
        self._clock = clock
        self._wall_clock = wall_clock
        self.warnings = WarnOnValue(config.callback, unsaid=alarms.says_nonfinite())
        self.measurement = Measurement(config.metrics, training, faults, self._check)
        self._is_at_once = self.measurement.is_at_once(())
        self._is_bound = self.measurement.is_bound
        self.summary = EndSummary(began=clock())
        self._lock = threading.RLock()  # a signal's handler may end the training from within
        self._is_stuck = False
        self.dropped = 0
        """Steps that nothing was made of."""
        self._window: Window | None = None
        self._last: Call | None = None  # the last step dealt with
        self._steps = 0  # of this session
        self._has_samples = False
        self._shares = (0.0, 0.0)

    def gather(self) -> None:
        """Deals with what was noted, on the writing thread: what only the training thread may do is left to that."""
        if not self._is_at_once and self._lock.acquire(blocking=False):  # else the training thread is at it
            self._take_all(self._is_left if self._is_bound else None)

    def _is_left(self, read: Any) -> bool:
        return isinstance(read, Reading) and read.is_due

    def settle(self, patience_secs: float | None = None) -> bool:
        """Deals with all that was noted. Where another thread is at it, and does not end, it is left to that one.

        Args:
            patience_secs: How long to wait for the other thread; None for not long, and no more once that was in vain.

        Returns:
            Whether nothing waits any more.
        """
        is_hurried = patience_secs is None
        if patience_secs is None:
            patience_secs = 0.0 if self._is_stuck else _PATIENCE_SECS
        if not self._lock.acquire(timeout=patience_secs):
            if is_hurried:
                self._is_stuck = True
                self._faults.warn("stuck", "a metric or a rule does not return: steps are looked at when it does")
                if len(self._breakdown.notes) > _LIMIT:
                    self._leave_out()
            return False
        self._is_stuck = False
        self._take_all(None)
        return True

    def _take_all(self, leaves: Callable[[Any], bool] | None) -> None:
        """Deals with what was noted, and gives the lock back."""
        try:
            for call in self._breakdown.settle(leaves):
                self._take(call)
        finally:
            self._lock.release()

    def _leave_out(self) -> None:
        """Forgets all that waits, and counts its steps."""
        steps = self._breakdown.clear()
        self.dropped += steps
        self._breakdown.pause(self._clock())  # what lies between is no step that was long
        self._faults.warn(f"left out {self.dropped}", f"a metric or a rule does not return: {steps} steps are left out")

    def _take(self, call: Call) -> None:
        facts = self._reader.facts(call, is_first=self._steps == 0)
        self._last = call
        self._steps += facts.steps
        if self._window is None:
            self._window = Window(last=facts)
        self._window.add(facts)
        self.summary.add(facts)
        reading = call.read if isinstance(call.read, Reading) else None
        given = {} if reading is None else reading.given
        self.measurement.observe(facts, given)
        self._alarms.observe_step(facts, given, call.monotonic, self._wall_time(call.monotonic))
        if reading is not None and reading.is_due:
            window, self._window = self._window, None
            window.learning_rates = lambda: reading.learning_rates
            self._take_sample(window, call.monotonic)

    def _wall_time(self, monotonic: float) -> float:
        """Returns the time of day of a moment that is not long ago."""
        return self._wall_clock() - (self._clock() - monotonic)

    def _take_sample(self, window: Window, monotonic: float) -> None:
        facts, training = window.last, self._training
        sample = Sample(
            step=facts.step,
            epoch=facts.epoch,
            step_in_epoch=step_in_epoch(facts, training),
            wall_time=self._wall_time(monotonic),
            monotonic=monotonic,
            interval_steps=window.steps,
            is_first=not self._has_samples,
            secs_left=secs_left(facts, training, window),
            data_share=self._data_share(),
        )
        self._has_samples = True
        self.measurement.take(sample, window)
        self._put(sample)

    def _data_share(self) -> float | None:
        """Returns which part of the time since the last sample was spent waiting for data."""
        data, total = self._breakdown.secs["data"], sum(self._breakdown.secs.values())
        last_data, last_total = self._shares
        self._shares = (data, total)
        return (data - last_data) / (total - last_total) if total > last_total else None

    def _check(self, metric: str, name: str, value: float) -> None:
        call = self._last
        if call is None or not self.warnings.watches(metric):
            return
        note = self.warnings.check(
            metric,
            name,
            value,
            step=call.ended[0],
            session_steps=self._steps,
            now=call.monotonic,
            wall_time=self._wall_time(call.monotonic),
        )
        if note is not None:
            self._put(note)

    def end(self, learning_rates: Callable[[], Mapping[str, float]]) -> None:
        """The training ends, and its last step was read: the steps since the last sample get one of their own.

        Args:
            learning_rates: Reads those of the last step.
        """
        if not self.settle(_END_SECS):
            self._leave_out()
            return  # the thread that does not return is inside all of this
        window = self._window
        if window is not None and self._last is not None:
            rates = learning_rates() if window.last.learning_rate is None else {}
            window.learning_rates = lambda: rates
            self._take_sample(window, self._last.monotonic)
        self._breakdown.pause(self._clock())
        self.settle(_END_SECS)
        self.measurement.close()
