"""What a training can be doing, by name and by number."""

from __future__ import annotations

from typing import Final

__all__ = ["END", "KINDS", "PHASES", "START", "number_of"]

KINDS: Final = {
    "data": "waiting for data",
    "compute": "computing",
    "callbacks": "in callbacks",
    "checkpoint": "saving checkpoints",
    "evaluation": "evaluating",
    "compile": "in the first step, which compiles",
    "other": "between epochs",
}
"""Parts of a training that time is spent in, and how they are called."""

START: Final = "start"
END: Final = "end"
PHASES: Final = (START, *KINDS, END)
"""All phases: before the first part, the parts, behind the last one."""

_NUMBERS: Final = {phase: number for number, phase in enumerate(PHASES)}


def number_of(phase: str) -> int:
    """Returns the place of a phase in `PHASES`."""
    return _NUMBERS[phase]
