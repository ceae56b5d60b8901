"""A model: any order of what a training, a person and a crash do, against what must be visible in a viewer."""

from __future__ import annotations

import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase
from hypothesis.stateful import run_state_machine_as_test

from tests import conversion_model
from torturing.report import Row

NAME = "model"
STEPS = 100_000
"""Of both directions together."""
EACH = 40
"""Steps of a history, which begins with nothing."""


def run(budget_seconds: float, out: Path) -> list[Row]:
    """Makes 100,000 steps, or as many as there is time for."""
    began = time.monotonic()
    rows = []
    machines = (conversion_model.ConversionMachine, conversion_model.BackMachine)
    for number, machine in enumerate(machines, 1):
        row = Row(f"steps of a state machine, to {machine.target}")
        rows.append(row)
        until = began + budget_seconds * number / len(machines)
        while row.tried < STEPS // len(machines) and time.monotonic() < until and not row.faults:
            _make_steps(machine, row, out)
    return rows


def _make_steps(machine: type[conversion_model.ConversionMachine], row: Row, out: Path) -> None:
    def count(_: conversion_model.ConversionMachine) -> None:
        row.tried += 1

    conversion_model.count_steps = count
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=50,
                stateful_step_count=EACH,
                deadline=None,
                database=DirectoryBasedExampleDatabase(out / "examples"),
                phases=[Phase.generate, Phase.shrink],
                suppress_health_check=list(HealthCheck),
                print_blob=True,
                report_multiple_bugs=False,
            ),
        )
    except Exception as error:
        row.fault(f"{type(error).__name__}: {error}: {' '.join(getattr(error, '__notes__', []))}")
