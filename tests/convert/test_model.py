"""Two thousand steps of what a training, a person and a crash do, against a plain model of what must be visible."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.conversion_model import BackMachine, ConversionMachine

STEPS = 1000
EACH = 40


@pytest.mark.tensorboard
@pytest.mark.parametrize("machine", [ConversionMachine, BackMachine])
def test_what_is_visible_is_what_the_model_says(machine: type[ConversionMachine]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=STEPS // EACH * 5 // 4,  # some histories are shorter
            stateful_step_count=EACH,
            deadline=None,
            derandomize=True,  # other histories each time are for `tools/torture model`
            suppress_health_check=list(HealthCheck),
        ),
    )
