"""The parts of a training that time is spent in."""

from __future__ import annotations

from typing import Final

__all__ = ["KINDS"]

KINDS: Final = {
    "data": "waiting for data",
    "compute": "computing",
    "callbacks": "in callbacks",
    "checkpoint": "saving checkpoints",
    "evaluation": "evaluating",
    "compile": "in the first step, which compiles",
    "other": "between epochs",
}
"""Parts of a training, and how they are called."""
