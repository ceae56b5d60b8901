"""Reads a step that has ended: numbers out of whatever the network returned.

Layer: callback.measures, monitor.facts, monitor.faults < **monitor.step_reader**.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from ms_summary_bridge.callback.measures import StepOutputs, read_outputs, to_number
from ms_summary_bridge.monitor.facts import StepFacts, TrainingFacts, Window
from ms_summary_bridge.monitor.faults import Faults
from ms_summary_bridge.monitor.measurement import OWN_NAMES

__all__ = ["PendingStep", "StepReader", "secs_left", "step_in_epoch"]

_FIELDS: Final = {"lr": "learning_rate"}  # for what StepOutputs has another name


class PendingStep(msgspec.Struct):
    """A step that has ended, with its outputs as they are, and then as numbers.

    Attributes:
        step: Its number over all epochs and sessions.
        steps: How many steps it stands for.
        epoch: From 1.
        outputs: What the network returned; None once it was read.
        monotonic: When it ended.
        given: Numbers that a loop handed over, by name; once read, those that are not `numbers`.
        samples: Samples over all cards, where they differ from the training's own.
        tokens: Tokens over all cards.
        numbers: What was read: the loss alone, or all.
        secs: How long it took, once that is known.
        data_secs: How long of that it waited for data.
        learning_rates: Gives its learning rates, if a sample is due with it.
    """

    step: int
    steps: int
    epoch: int | None
    outputs: Any
    monotonic: float
    given: Mapping[str, Any] | None = None
    samples: int | None = None
    tokens: int | None = None
    numbers: float | StepOutputs | None = None
    secs: float | None = None
    data_secs: float | None = None
    learning_rates: Callable[[], Mapping[str, float]] | None = None


class StepReader:
    """Makes facts of steps.

    Args:
        training: What is known of the training.
        names: The metrics that are measured.
        faults: Is told, once, what cannot be read or known.
    """

    def __init__(self, training: TrainingFacts, names: Collection[str], faults: Faults) -> None:
        self._training = training
        self._names = names
        self._faults = faults

    def read(self, pending: PendingStep) -> float | StepOutputs | None:
        """Reads the numbers that a step returned, or that a loop handed over; returns `pending.numbers`."""
        outputs, pending.outputs = pending.outputs, None  # which may hold device memory
        try:
            # One tensor of one element, nearly always, so no more than a look at it.
            number = outputs.item() if pending.given is None and hasattr(outputs, "asnumpy") else None
        except Exception:  # several elements, or what is said below
            number = None
        if type(number) is float:
            pending.numbers = number
            return number
        try:
            numbers = StepOutputs() if outputs is None else read_outputs(outputs)
            pending.numbers = self._with_given(numbers, pending) if pending.given else numbers
        except Exception as error:  # a tensor whose computation failed raises what it likes
            self._faults.warn("outputs", f"the outputs of a step cannot be read: {error!r}")
            pending.numbers, pending.given = StepOutputs(), None
        return pending.numbers

    def _with_given(self, outputs: StepOutputs, pending: PendingStep) -> StepOutputs:
        given: dict[str, float] = {}
        for name, value in (pending.given or {}).items():
            number = to_number(value)
            if number is not None:
                given[name] = number
            else:
                self._faults.warn(f"given {name}", f"{name} is left out: {type(value).__name__} is no number")
        own = {_FIELDS.get(name, name): given.pop(name) for name in OWN_NAMES if name in given}
        pending.given = given
        return msgspec.structs.replace(outputs, **own) if own else outputs

    def facts(self, pending: PendingStep, *, is_first: bool) -> StepFacts:
        """Returns the facts of a step that was read and timed."""
        training = self._training
        numbers = pending.numbers
        outputs = numbers if isinstance(numbers, StepOutputs) else StepOutputs(loss=numbers)
        loss = outputs.loss
        if loss is None:
            self._faults.warn("loss", "the outputs of a step hold no number that can be the loss")
        elif training.loss_divisor != 1:
            loss /= training.loss_divisor
        samples, tokens = pending.samples, pending.tokens
        if samples is None and training.samples_per_step is not None:
            samples = training.samples_per_step * pending.steps
        if tokens is None and samples is not None and training.seq_length is not None:
            tokens = samples * training.seq_length
        if pending.secs is not None:
            self._miss(samples, tokens)
        return StepFacts(
            step=pending.step,
            steps=pending.steps,
            epoch=pending.epoch,
            loss=loss,
            grad_norm=outputs.grad_norm,
            loss_scale=outputs.loss_scale,
            learning_rate=outputs.learning_rate,
            overflow=outputs.overflow,
            samples=samples,
            tokens=tokens,
            secs=pending.secs,
            data_secs=pending.data_secs,
            is_first=is_first,
        )

    def _miss(self, samples: int | None, tokens: int | None) -> None:
        """Says which rates cannot be known, and what they need."""
        if samples is None and "samples_per_second" in self._names:
            self._faults.warn("samples", "samples_per_second is left out: give global_batch_size")
        if tokens is None and "tokens_per_second" in self._names:
            self._faults.warn("tokens", "tokens_per_second is left out: give seq_length (and global_batch_size)")


def step_in_epoch(facts: StepFacts, training: TrainingFacts) -> int | None:
    """Returns the number of a step in its epoch, from 1."""
    if not training.steps_per_epoch or facts.step <= training.initial_step:
        return None
    return (_steps_done(facts, training) - 1) % training.steps_per_epoch + 1


def secs_left(facts: StepFacts, training: TrainingFacts, window: Window) -> float | None:
    """Returns how long the rest takes at the speed of this interval."""
    if not window.timed_steps or not training.epochs or not training.steps_per_epoch:
        return None
    left = training.epochs * training.steps_per_epoch - _steps_done(facts, training)
    return max(0, left) * window.secs / window.timed_steps


def _steps_done(facts: StepFacts, training: TrainingFacts) -> int:
    """Returns how many of the steps that `epochs` counts are done."""
    return facts.step - training.initial_step + (training.steps_before or 0)
