"""Reads a step that has ended: numbers out of whatever the network returned."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.model.facts import StepFacts, TrainingFacts, Window
from ms_summary_bridge.monitor.steps.breakdown import Call
from ms_summary_bridge.monitor.steps.measurement import OWN_NAMES
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.measures import read_outputs, to_number

__all__ = ["Reading", "StepReader", "secs_left", "step_in_epoch"]

_FIELDS: Final = {"lr": "learning_rate"}  # for what Reading has another name


class Reading(msgspec.Struct):
    """What was read of a step, where there is more than a loss, or more is to be done.

    Attributes:
        loss: As the network returned it.
        grad_norm: Norm of all gradients.
        loss_scale: Of mixed precision.
        learning_rate: As the outputs, or a loop, give it.
        overflow: Whether the step was skipped, because its gradients overflowed.
        given: Other numbers that a loop handed over, by name.
        is_due: Whether a sample is to be taken with this step.
        learning_rates: Those of the step, where a sample is due and the outputs do not say it.
    """

    loss: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    learning_rate: float | None = None
    overflow: bool | None = None
    given: Mapping[str, float] = {}
    is_due: bool = False
    learning_rates: Mapping[str, float] = {}


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

    def read(self, outputs: Any, given: Mapping[str, Any] | None) -> Reading:
        """Reads the numbers that a step returned, or that a loop handed over."""
        try:
            reading = Reading() if outputs is None else Reading(**msgspec.structs.asdict(read_outputs(outputs)))
            if given:
                self._take_given(reading, given)
        except Exception as error:  # a tensor whose computation failed raises what it likes
            self._faults.warn("outputs", f"the outputs of a step cannot be read: {error!r}")
            return Reading()
        return reading

    def _take_given(self, reading: Reading, handed: Mapping[str, Any]) -> None:
        given: dict[str, float] = {}
        for name, value in handed.items():
            number = to_number(value)
            if number is not None:
                given[name] = number
            else:
                self._faults.warn(f"given {name}", f"{name} is left out: {type(value).__name__} is no number")
        for name in OWN_NAMES:
            if name in given:
                setattr(reading, _FIELDS.get(name, name), given.pop(name))
        reading.given = given

    def facts(self, call: Call, *, is_first: bool) -> StepFacts:
        """Returns the facts of a step that was read and timed."""
        training = self._training
        step, steps, epoch, samples, tokens = call.ended
        reading = call.read if isinstance(call.read, Reading) else Reading(call.read)
        loss = reading.loss
        if loss is None:
            self._faults.warn("loss", "the outputs of a step hold no number that can be the loss")
        elif training.loss_divisor != 1:
            loss /= training.loss_divisor
        if samples is None and training.samples_per_step is not None:
            samples = training.samples_per_step * steps
        if tokens is None and samples is not None and training.seq_length is not None:
            tokens = samples * training.seq_length
        if call.secs is not None:
            self._miss(samples, tokens)
        return StepFacts(
            step=step,
            steps=steps,
            epoch=epoch,
            loss=loss,
            grad_norm=reading.grad_norm,
            loss_scale=reading.loss_scale,
            learning_rate=reading.learning_rate,
            overflow=reading.overflow,
            samples=samples,
            tokens=tokens,
            secs=call.secs,
            data_secs=call.data_secs,
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
