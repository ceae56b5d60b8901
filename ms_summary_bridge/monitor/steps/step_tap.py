"""The training thread's part of recording: notes when a step begins and ends, and reads what it returned.

Imports no mindspore.

Between two steps of a network everything of ours has left the processor's caches, and code takes ten times as long as
it does when it has just run. So no more is done here than nobody else can do: times are noted, the loss of the step
before is read and compared with its limits. All the rest is made of the notes, by `monitor.steps.call_queue`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.steps.step_reader import Reading, StepReader
from ms_summary_bridge.monitor.watchdog.heartbeat import CALLS, EPOCH, STEP, Heartbeat
from ms_summary_bridge.training.learning_rate import LearningRates
from ms_summary_bridge.training.phases import number_of
from ms_summary_bridge.training.step_clock import StepClock

__all__ = ["SampleTimes", "StepTap"]

_READ: Final = object()
_COMPILE: Final = number_of("compile")
_COMPUTE: Final = number_of("compute")
_DATA: Final = number_of("data")


class _Given(msgspec.Struct):
    """Outputs, and the numbers that a loop handed over beside them."""

    outputs: Any
    given: Mapping[str, Any]


class SampleTimes:
    """When a sample is due: with the first step, and then by time, or by steps too.

    Args:
        interval: Seconds between two samples.
        every: Steps between two samples beside that; None for no such.
        initial_step: Step from which the training counts.
    """

    def __init__(self, interval: float, every: int | None, initial_step: int) -> None:
        self._interval = interval
        self._every = every
        self._step = initial_step  # of the last one by steps
        self._due_at = -math.inf
        self.look_at = -math.inf
        """No step that has ended before this moment need be asked about."""

    def is_due(self, step: int, ended_at: float) -> bool:
        """Returns whether a step is a sample; the next ones count from it."""
        is_due = ended_at >= self._due_at
        if self._every is not None and step // self._every != self._step // self._every:
            self._step = step
            is_due = True
        if is_due:
            self._due_at = ended_at + self._interval
            self.look_at = self._due_at if self._every is None else -math.inf
        return is_due


class StepTap:
    """Notes steps.

    Args:
        step_clock: Takes the notes.
        heartbeat: Is told as well, for a process that watches.
        reader: Reads outputs.
        settle: Is called where something is to be dealt with before the training goes on.
        tells: Whether nobody else tells the clock when steps begin and end.
        rates: Learning rates; None where they are not measured.
        times: When samples are due.
        limits: The loss, as the network returns it, is quiet between these two.
        most_notes: How many notes may wait before the training deals with them itself.
        settles_samples: Whether a sample that is due is taken by the training thread.
        initial_step: Step from which the training counts.
        between: Number of the phase between two steps.
    """

    __slots__ = (
        "_begins",
        "_between",
        "_ended_at",
        "_ends",
        "_epoch",
        "_heartbeat",
        "_high",
        "_look_at",
        "_low",
        "_most_notes",
        "_note",
        "_notes",
        "_outputs",
        "_places",
        "_rates",
        "_reader",
        "_settle",
        "_settles_samples",
        "_stepping",
        "_times",
        "initial_step",
        "is_asked",
        "step",
    )

    def __init__(
        self,
        step_clock: StepClock,
        heartbeat: Heartbeat,
        reader: StepReader,
        settle: Callable[[], object],
        *,
        tells: bool,
        rates: LearningRates | None,
        times: SampleTimes,
        limits: tuple[float, float],
        most_notes: int,
        settles_samples: bool,
        initial_step: int,
        between: int = _DATA,
    ) -> None:
        self._heartbeat = heartbeat
        self._places = heartbeat.places
        self._stepping = _COMPILE
        self._between = between
        self._epoch: int | None = None
        self._notes = step_clock.notes
        self._note = step_clock.note
        self._begins, self._ends = ("begin", "end") if tells else ("read", "told")
        self._reader = reader
        self._settle = settle
        self._rates = rates
        self._times = times
        self._low, self._high = limits
        self._most_notes = most_notes
        self._settles_samples = settles_samples
        self._look_at = self._ended_at = -math.inf
        self._outputs: Any = _READ
        self.initial_step = self.step = initial_step
        """Step from which the training counts, and the last step that has ended."""
        self.is_asked = False
        """Whether the training thread is to look for what alarms ask of it."""

    def begin_step(self, now: float) -> None:
        """A step begins: the one before it is read."""
        self._places[self._stepping] = now
        self._heartbeat.phase = self._stepping
        outputs = self._outputs
        if outputs is _READ:
            self._note((self._begins, now, None))
            return
        try:
            # One tensor of one element, nearly always, so no more than a look at it.
            number = outputs.item()
        except Exception:  # several elements, or no tensor: to be looked at more closely
            number = None
        if type(number) is not float:
            number = None
        elif self._low < number < self._high and self._ended_at < self._look_at:
            self._outputs = _READ
            self._note((self._begins, now, number))
            if len(self._notes) >= self._most_notes:
                self._settle()
            return
        self._read(self._begins, now, number)

    def end_step(
        self,
        step: int,
        now: float,
        outputs: Any,
        epoch: int | None = None,
        steps: int = 0,
        given: Mapping[str, Any] | None = None,
        samples: int | None = None,
        tokens: int | None = None,
    ) -> None:
        """A step has ended, or a call of several. Nothing of it is read yet.

        Args:
            step: Its number over all epochs and sessions.
            now: When it ended, by the clock.
            outputs: What the network returned, in any form that MindSpore's training cells give it.
            epoch: From 1.
            steps: How many steps the call stands for; 0 for those since the last one.
            given: Numbers by name, which go before those of `outputs`.
            samples: Samples of the call over all cards, where they differ from the training's own.
            tokens: Tokens of the call over all cards, where they differ.
        """
        places = self._places
        if epoch != self._epoch:
            self._epoch = epoch
            places[EPOCH] = epoch or 0
        places[STEP] = step
        places[CALLS] += 1
        places[self._between] = now
        self._heartbeat.phase = self._between
        self._stepping = _COMPUTE
        if self._outputs is not _READ:
            self._read("read", now)  # where nobody says when a step begins
        self._ended_at = now
        self._outputs = outputs if given is None else _Given(outputs, given)
        if not steps:
            steps = step - self.step if step > self.step else 1
        self.step = step
        self._note((self._ends, now, (step, steps, epoch, samples, tokens)))

    def ask(self) -> None:
        """Has the training thread look for what alarms ask of it, from now on. May be called by any thread."""
        self.is_asked = True

    def finish_step(self, now: float) -> None:
        """Reads the step that has ended last, though no other begins."""
        if self._outputs is not _READ:
            self._read("read", now)

    def _read(self, what: str, now: float, number: float | None = None) -> None:
        """Reads whatever a step returned, in any form, and with what a sample needs if one is due.

        Args:
            what: What begins at `now`.
            now: By the clock.
            number: The loss, if it was read already.
        """
        outputs, self._outputs = self._outputs, _READ  # which may hold device memory
        given = None
        if isinstance(outputs, _Given):
            outputs, given = outputs.outputs, outputs.given
        reading = self._reader.read(outputs, given) if number is None else Reading(number)
        is_due = reading.is_due = self._times.is_due(self.step, self._ended_at)
        if is_due:
            self._look_at = self._times.look_at
            # They are those of this step now. Nobody is asked for what the step's own outputs say.
            if self._rates is not None and reading.learning_rate is None:
                reading.learning_rates = self._rates.at(self.step)
        self._note((what, now, reading))
        if (is_due and self._settles_samples) or not self._is_quiet(reading) or len(self._notes) >= self._most_notes:
            self._settle()

    def read_rates(self) -> Mapping[str, float]:
        """Returns the learning rates of the step that has ended last."""
        return {} if self._rates is None else self._rates.at(self.step)

    def _is_quiet(self, reading: Reading) -> bool:
        """Whether there is nothing to warn of in what a step returned."""
        loss, norm = reading.loss, reading.grad_norm
        return (loss is None or self._low < loss < self._high) and (norm is None or norm < math.inf)
