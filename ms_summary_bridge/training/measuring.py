"""One measure of a training, from which everybody takes the numbers: bridge, monitor, console, end summary.

Each of our callbacks joins it when a training begins; those in one list of callbacks share it, so none of them can show
another number than its neighbour. MindSpore calls them one after the other, so the first one to join tells when steps
begin and end, and the others take that.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Literal

from ms_summary_bridge.training.callback_times import CallbackTimes, Phases
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts, Window
from ms_summary_bridge.training.learning_rate import LearningRates
from ms_summary_bridge.training.measures import StepOutputs
from ms_summary_bridge.training.parameters import TrainingParameters
from ms_summary_bridge.training.step_clock import Call, EndedStep, StepClock

__all__ = ["Measuring", "Role", "join"]

_KEY: Final = "ms_summary_bridge_measuring"  # among MindSpore's callback parameters
_MOST_NOTES: Final = 1024  # that wait where nobody asks for a long time

Role = Literal["bridge", "monitor"]


def join(parameters: TrainingParameters, role: Role, make: Callable[[], Measuring]) -> tuple[Measuring, bool]:
    """Returns the measure of a training, and whether the one who asks tells when steps begin and end.

    It is kept among MindSpore's parameters of the training. A second one of the same role gets a measure of its own.
    """
    shared = parameters.get(_KEY)
    if isinstance(shared, Measuring) and role not in shared.roles:
        shared.roles.append(role)
        return shared, False
    measuring = make()
    measuring.roles.append(role)
    parameters.keep(_KEY, measuring)
    return measuring, True


class Measuring:
    """Measures one training by a clock of monotonic seconds; what goes wrong is told as (kind, message)."""

    def __init__(
        self, facts: TrainingFacts, warn: Callable[[str, str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.facts = facts
        """What is known of the training. Who knows more puts its own in the place before the first step has ended."""
        self.roles: list[Role] = []
        """Who has joined, in that order."""
        self.step_clock = StepClock(clock)
        self.rates = LearningRates(warn)
        self._times: CallbackTimes | None = None
        self._eval_began: float | None = None
        self._window: Window | None = None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Is nothing in a copy of MindSpore's parameters: what is measured here belongs to this process."""
        return (type(None), ())

    # ------------------------------------------------------------------ what belongs to no step

    def time_callbacks(self, callbacks: Iterable[object], heartbeat: Phases | None = None) -> None:
        """Times the hooks of other callbacks: what they save and evaluate is left out of all rates."""
        self.leave()
        self._times = CallbackTimes(self.step_clock, heartbeat)
        self._times.begin(callbacks)

    def leave(self) -> None:
        """The training ends, for one that has joined and so for all: the timers are taken off."""
        if self._times is not None:
            self._times.end()
            self._times = None

    def begin_evaluation(self) -> None:
        """What follows is an evaluation, until `end_evaluation`. Each of those that joined may say so."""
        if self._eval_began is None:
            self._eval_began = self.step_clock.clock()

    def end_evaluation(self) -> None:
        """Leaves the evaluation out of all rates."""
        began, self._eval_began = self._eval_began, None
        if began is not None:
            self.step_clock.spend("evaluation", self.step_clock.clock() - began)

    # ------------------------------------------------------------------ steps

    def facts_of(self, call: Call, *, is_first: bool = False) -> StepFacts:
        """Returns what is known of a call that was timed. The loss is what the network returned by `loss_divisor`."""
        step, steps, epoch, *_ = call.ended
        samples, tokens = self._amounts(call.ended)
        read = call.read if isinstance(call.read, StepOutputs) else StepOutputs(call.read)
        return StepFacts(
            step=step,
            steps=steps,
            epoch=epoch,
            loss=None if read.loss is None else read.loss / self.facts.loss_divisor,
            grad_norm=read.grad_norm,
            loss_scale=read.loss_scale,
            learning_rate=read.learning_rate,
            overflow=read.overflow,
            local_loss=read.local_loss,
            local_squares=read.local_squares,
            sub_losses=read.sub_losses,
            samples=samples,
            tokens=tokens,
            secs=call.secs,
            data_secs=call.data_secs,
            is_first=is_first,
        )

    def _amounts(self, ended: EndedStep) -> tuple[int | None, int | None]:
        """Returns samples and tokens of a call over all cards.

        They are `samples_per_step * steps` and `samples * seq_length`, unless a loop of the user's own says them.
        """
        _, steps, _, samples, tokens = ended
        training = self.facts
        if samples is None and training.samples_per_step is not None:
            samples = training.samples_per_step * steps
        if tokens is None and samples is not None and training.seq_length is not None:
            tokens = samples * training.seq_length
        return samples, tokens

    # ------------------------------------------------------------------ for one that asks while the training waits

    def follow(self) -> None:
        """Keeps the steps that end from now on for `take`."""
        self.step_clock.ended_calls = deque()

    def end_step(self, ended: EndedStep, now: float, *, tells: bool) -> None:
        """A step has ended `now`, by the clock; `tells` is whether nobody else says so."""
        if tells:
            self.step_clock.note(("end", now, ended))
        if len(self.step_clock.notes) + len(self.step_clock.ended_calls or ()) >= _MOST_NOTES:
            self._fold()

    def take(self) -> Window | None:
        """Returns the steps that have ended since the last call; None for none."""
        self._fold()
        window, self._window = self._window, None
        return window

    def _fold(self) -> None:
        self.step_clock.settle()
        calls, window = self.step_clock.ended_calls, self._window
        if not calls:
            return
        if window is None:
            window = self._window = Window(last=self.facts_of(calls[-1]))
        while calls:
            call = calls.popleft()
            steps = call.ended[1]
            window.steps += steps
            if call.secs is not None:
                window.time(steps, call.secs, call.data_secs, *self._amounts(call.ended))
