"""Reads a step that has ended: numbers out of whatever the network returned, or a loop handed over.

With the step in which a sample is due comes what the sample needs besides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from ms_summary_bridge.monitor.steps.beside import Beside
from ms_summary_bridge.monitor.steps.measurement import OWN_NAMES
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.learning_rate import LearningRates
from ms_summary_bridge.training.measures import StepOutputs, read_outputs, to_array, to_number

__all__ = ["Reading", "StepReader"]

_FIELDS: Final = {"lr": "learning_rate"}  # for what Reading has another name


class Reading(StepOutputs):
    """What was read of a step, where there is more than a loss, or more is to be done.

    Attributes:
        given: Other numbers that a loop handed over, by name.
        is_due: Whether a sample is to be taken with this step.
        learning_rates: Those of the step, where a sample is due and the outputs do not say it.
    """

    given: Mapping[str, float] = {}
    is_due: bool = False
    learning_rates: Mapping[str, float] = {}


class StepReader:
    """Reads steps. A sample is due with the first one, and then every `interval` seconds, and every `every` steps too.

    `rates` are None where learning rates are not measured; the training counts from `initial_step`.
    """

    def __init__(
        self,
        faults: Faults,
        rates: LearningRates | None,
        *,
        interval: float,
        every: int | None,
        initial_step: int,
    ) -> None:
        self._faults = faults
        self._rates = rates
        self.beside: Beside | None = None
        """What tells more of steps than their outputs do."""
        self._interval = interval
        self._every = every
        self._sampled_step = initial_step  # of the last one by steps
        self._due_at = -math.inf
        self.look_at = -math.inf
        """In no step that has ended before this moment is a sample due."""

    def read(
        self, outputs: Any, given: Mapping[str, Any] | None, number: float | None, step: int, ended_at: float
    ) -> Reading:
        """Reads a step that ended at `ended_at`; `number` is its loss if that was read already."""
        reading = self._read_outputs(outputs, given) if number is None else Reading(number)
        reading.is_due = self._is_due(step, ended_at)
        if self.beside is not None:
            try:
                self.beside.fill(reading, is_due=reading.is_due)
            except Exception as error:  # a tensor whose computation failed raises what it likes
                self._faults.warn("beside", f"what others tell of a step cannot be read: {error!r}")
        # They are those of this step now. Nobody is asked for what the step's own outputs say.
        if reading.is_due and reading.learning_rate is None:
            reading.learning_rates = self.read_rates(step)
        return reading

    def read_rates(self, step: int) -> Mapping[str, float]:
        """Returns the learning rates of the step that has ended last."""
        return {} if self._rates is None else self._rates.at(step)

    def _is_due(self, step: int, ended_at: float) -> bool:
        is_due = ended_at >= self._due_at
        if self._every is not None and step // self._every != self._sampled_step // self._every:
            self._sampled_step = step
            is_due = True
        if is_due:
            self._due_at = ended_at + self._interval
            self.look_at = self._due_at if self._every is None else -math.inf
        return is_due

    def _read_outputs(self, outputs: Any, given: Mapping[str, Any] | None) -> Reading:
        try:
            reading = read_outputs(outputs, Reading)
            if given:
                self._take_given(reading, given)
        except Exception as error:  # a tensor whose computation failed raises what it likes
            self._faults.warn("outputs", f"the outputs of a step cannot be read: {error!r}")
            return Reading()
        return reading

    def _take_given(self, reading: Reading, handed: Mapping[str, Any]) -> None:
        given: dict[str, float] = {}
        for name, value in handed.items():
            size = getattr(to_array(value), "size", 1) if name != "loss" else 1  # of a loss the mean counts
            number = to_number(value) if size == 1 else None
            if number is not None:
                given[name] = number
            elif size > 1:
                text = f"{name} is left out: it has {size} numbers, give each under a name of its own, such as {name}_0"
                self._faults.warn(f"given {name}", text)
            else:
                self._faults.warn(f"given {name}", f"{name} is left out: a {type(value).__name__} is not a number")
        for name in OWN_NAMES:
            if name in given:
                setattr(reading, _FIELDS.get(name, name), given.pop(name))
        reading.given = given
