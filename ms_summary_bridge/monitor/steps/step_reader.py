"""Reads a step that has ended: numbers out of whatever the network returned, or a loop handed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ms_summary_bridge.monitor.steps.measurement import OWN_NAMES
from ms_summary_bridge.training.facts import StepFacts
from ms_summary_bridge.training.faults import Faults
from ms_summary_bridge.training.measures import StepOutputs, read_outputs, to_number

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
    """Reads steps, and says what cannot be read or known of them.

    Args:
        faults: Is told, once, of each.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def read(self, outputs: Any, given: Mapping[str, Any] | None) -> Reading:
        """Reads the numbers that a step returned, or that a loop handed over."""
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
            number = to_number(value)
            if number is not None:
                given[name] = number
            else:
                self._faults.warn(f"given {name}", f"{name} is left out: a {type(value).__name__} is not a number")
        for name in OWN_NAMES:
            if name in given:
                setattr(reading, _FIELDS.get(name, name), given.pop(name))
        reading.given = given

    def say_missing(self, facts: StepFacts) -> None:
        """Says that a step has no loss."""
        if facts.loss is None:
            self._faults.warn("loss", "the outputs of a step hold no number that can be the loss")
