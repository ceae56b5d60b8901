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
from ms_summary_bridge.training.phases import number_of
from ms_summary_bridge.training.step_clock import StepClock

__all__ = ["StepTap"]

_READ: Final = object()
_COMPILE: Final = number_of("compile")
_COMPUTE: Final = number_of("compute")


class _Given(msgspec.Struct):
    """Outputs, and the numbers that a loop handed over beside them."""

    outputs: Any
    given: Mapping[str, Any]


class StepTap:
    """Notes steps, for the clock and for a process that watches.

    `settle` is called where something is to be dealt with before the training goes on: where `most_notes` wait, where a
    sample is due that only this thread may take (`settles_samples`), and where the loss, as the network returns it, is
    not between its `limits`. Where `tells` is False somebody else tells the clock when steps begin and end. `between`
    is the phase between two steps.
    """

    def __init__(
        self,
        step_clock: StepClock,
        heartbeat: Heartbeat,
        reader: StepReader,
        settle: Callable[[], object],
        *,
        tells: bool,
        limits: tuple[float, float],
        most_notes: int,
        settles_samples: bool,
        initial_step: int,
        between: str = "data",
    ) -> None:
        self._heartbeat = heartbeat
        self._stepping = _COMPILE
        self._between = number_of(between)
        self._epoch: int | None = None
        self._notes = step_clock.notes
        self._note = step_clock.note
        self._tells = tells
        self._reader = reader
        self.settle = settle
        self._limits = limits
        self._most_notes = most_notes
        self._settles_samples = settles_samples
        self._ended_at = -math.inf
        self._outputs: Any = _READ
        self.initial_step = self.step = initial_step
        """Step from which the training counts, and the last step that has ended."""
        self.is_asked = False
        """Whether the training thread is to look for what alarms ask of it."""

    def begin_step(self, now: float) -> None:
        """A step begins: the one before it is read."""
        heartbeat = self._heartbeat
        heartbeat.places[self._stepping] = now
        heartbeat.phase = self._stepping
        begins = "begin" if self._tells else "read"
        outputs = self._outputs
        if outputs is _READ:
            self._note((begins, now, None))
            return
        try:
            # One tensor of one element, nearly always, so no more than a look at it.
            number = outputs.item()
        except Exception:  # several elements, or no tensor: to be looked at more closely
            number = None
        if type(number) is not float:
            number = None
        elif self._limits[0] < number < self._limits[1] and self._ended_at < self._reader.look_at:
            self._outputs = _READ
            self._note((begins, now, number))
            if len(self._notes) >= self._most_notes:
                self.settle()
            return
        self._read(begins, now, number)

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
        heartbeat = self._heartbeat
        places = heartbeat.places
        if epoch != self._epoch:
            self._epoch = epoch
            places[EPOCH] = epoch or 0
        places[STEP] = step
        places[CALLS] += 1
        places[self._between] = now
        heartbeat.phase = self._between
        self._stepping = _COMPUTE
        if self._outputs is not _READ:
            self._read("read", now)  # where nobody says when a step begins
        self._ended_at = now
        self._outputs = outputs if given is None else _Given(outputs, given)
        if not steps:
            steps = step - self.step if step > self.step else 1
        self.step = step
        self._note(("end" if self._tells else "told", now, (step, steps, epoch, samples, tokens)))

    def ask(self) -> None:
        """Has the training thread look for what alarms ask of it, from now on. May be called by any thread."""
        self.is_asked = True

    def finish_step(self, now: float) -> None:
        """Reads the step that has ended last, though no other begins."""
        if self._outputs is not _READ:
            self._read("read", now)

    def _read(self, what: str, now: float, number: float | None = None) -> None:
        """Reads whatever a step returned, in any form: `number` is its loss, if that was; `what` begins at `now`."""
        outputs, self._outputs = self._outputs, _READ  # which may hold device memory
        given = None
        if isinstance(outputs, _Given):
            outputs, given = outputs.outputs, outputs.given
        reading = self._reader.read(outputs, given, number, self.step, self._ended_at)
        self._note((what, now, reading))
        is_to_be_taken = reading.is_due and self._settles_samples
        if is_to_be_taken or not self._is_quiet(reading) or len(self._notes) >= self._most_notes:
            self.settle()

    def _is_quiet(self, reading: Reading) -> bool:
        """Whether there is nothing to warn of in what a step returned."""
        (low, high), loss, norm = self._limits, reading.loss, reading.grad_norm
        return (loss is None or low < loss < high) and (norm is None or norm < math.inf)
