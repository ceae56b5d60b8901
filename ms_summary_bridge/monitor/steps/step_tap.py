"""The training thread's part of recording: notes when a step begins and ends, and reads what it returned.

Imports no mindspore.

Between two steps of a network everything of ours has left the processor's caches, and code takes ten times as long as
it does when it has just run. So no more is done here than nobody else can do: times are noted, the loss of the step
before is read and compared with its limits. All the rest is made of the notes, by `monitor.steps.sampling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.steps.breakdown import Breakdown
from ms_summary_bridge.monitor.steps.step_reader import Reading, StepReader
from ms_summary_bridge.monitor.watchdog.heartbeat import CALLS, EPOCH, STEP, Heartbeat, number_of
from ms_summary_bridge.training.faults import Faults

__all__ = ["StepTap"]

_READ: Final = object()
_COMPILE: Final = number_of("compile")
_COMPUTE: Final = number_of("compute")
_DATA: Final = number_of("data")


class _Given(msgspec.Struct):
    """Outputs, and the numbers that a loop handed over beside them."""

    outputs: Any
    given: Mapping[str, Any]


class StepTap:
    """Notes steps.

    Args:
        breakdown: Takes the notes.
        heartbeat: Is told as well, for a process that watches.
        reader: Reads outputs.
        settle: Is called where something is to be dealt with before the training goes on.
        faults: Is told what fails.
        reads_rates: Whether learning rates are measured.
        interval: Seconds between two samples.
        every: Steps between two samples beside that; None for no such.
        limits: The loss, as the network returns it, is quiet between these two.
        most_notes: How many notes may wait before the training deals with them itself.
        settles_samples: Whether a sample that is due is taken by the training thread.
        initial_step: Step from which the training counts.
        between: Number of the phase between two steps.
    """

    __slots__ = (
        "_between",
        "_calls",
        "_due_at",
        "_ended_at",
        "_epoch",
        "_every",
        "_faults",
        "_heartbeat",
        "_high",
        "_interval",
        "_look_at",
        "_low",
        "_most_notes",
        "_note",
        "_notes",
        "_outputs",
        "_places",
        "_printed_step",
        "_reader",
        "_reads_rates",
        "_settle",
        "_settles_samples",
        "_stepping",
        "initial_step",
        "is_asked",
        "learning_rates",
        "step",
    )

    def __init__(
        self,
        breakdown: Breakdown,
        heartbeat: Heartbeat,
        reader: StepReader,
        settle: Callable[[], object],
        *,
        faults: Faults,
        reads_rates: bool,
        interval: float,
        every: int | None,
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
        self._calls = 0
        self._epoch: int | None = None
        self._notes = breakdown.notes
        self._note = breakdown.note
        self._reader = reader
        self._settle = settle
        self._faults = faults
        self._reads_rates = reads_rates
        self.learning_rates: Callable[[], Mapping[str, float]] | None = None
        """Reads those of the step that has ended last."""
        self._interval = interval
        self._every = every
        self._low, self._high = limits
        self._most_notes = most_notes
        self._settles_samples = settles_samples
        self._due_at = self._look_at = self._ended_at = -math.inf
        self._outputs: Any = _READ
        self.initial_step = initial_step
        """Step from which the training counts."""
        self._printed_step = self.step = initial_step
        """The last step that has ended."""
        self.is_asked = False
        """Whether the training thread is to look for what alarms ask of it."""

    def begin_step(self, now: float) -> None:
        """A step begins: the one before it is read."""
        self._places[self._stepping] = now
        self._heartbeat.phase = self._stepping
        outputs = self._outputs
        if outputs is _READ:
            self._note(("begin", now, None))
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
            self._note(("begin", now, number))
            if len(self._notes) >= self._most_notes:
                self._settle()
            return
        self._read("begin", now, number)

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
        self._calls = places[CALLS] = self._calls + 1
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
        self._note(("end", now, (step, steps, epoch, samples, tokens)))

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
        is_due = self._ended_at >= self._due_at
        if self._every is not None and self.step // self._every != self._printed_step // self._every:
            self._printed_step = self.step
            is_due = True
        if is_due:
            reading.is_due = True
            self._due_at = self._ended_at + self._interval
            self._look_at = self._due_at if self._every is None else -math.inf
            # They are those of this step now. Nobody is asked for what the step's own outputs say.
            if self._reads_rates and reading.learning_rate is None:
                reading.learning_rates = self.read_rates()
        self._note((what, now, reading))
        if (is_due and self._settles_samples) or not self._is_quiet(reading) or len(self._notes) >= self._most_notes:
            self._settle()

    def read_rates(self) -> Mapping[str, float]:
        """Returns the learning rates of the step that has ended last."""
        if self.learning_rates is None or not self._reads_rates:
            return {}
        try:
            return self.learning_rates()
        except Exception as error:  # a schedule is the user's own code
            self._faults.warn("lr", f"the learning rate cannot be read and is left out: {error!r}")
            self._reads_rates = False
            return {}

    def _is_quiet(self, reading: Reading) -> bool:
        """Whether there is nothing to warn of in what a step returned."""
        loss, norm = reading.loss, reading.grad_norm
        return (loss is None or self._low < loss < self._high) and (norm is None or norm < math.inf)
