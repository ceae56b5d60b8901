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


@pytest.mark.tensorboard
@pytest.mark.parametrize("machine", [ConversionMachine, BackMachine])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_point_behind_a_cut_is_no_repeat_of_what_was_cut_off(machine: type[ConversionMachine], at_once: bool) -> None:
    """Found by `tools/torture model`: whether a follower looks between the cut and the point makes no difference."""
    state = machine()
    try:
        state.begin("one")
        state.append(run="one", tags=2, count=1, stride=0)
        state.append(run="one", tags=1, count=1, stride=0)
        state.convert()
        state.truncate(keep=2, number=0, run="one")
        if at_once:
            state.append(run="one", tags=1, count=1, stride=0)
            state.convert()
        else:
            state.follow(grown=[("one", 1, 0)])
        assert state.runs["one"].points == {"lr": [(0, 1.0)] * 2, "loss": [(0, 1.0)] * 2}
        state.append(run="one", tags=3, count=1, stride=0)
        state.convert()
        assert state.runs["one"].points == {"lr": [(0, 1.0)] * 2, "loss": [(0, 1.0)] * 2}
    finally:
        state.teardown()


@pytest.mark.tensorboard
def test_what_an_earlier_file_gets_after_a_plan_was_made_comes_behind_the_plan() -> None:
    """Found by `tools/torture model`: the points of a plan that a killed converter left are written as planned."""
    state = ConversionMachine()
    try:
        state.begin("one")
        state.kill(cut=0.5, run="one")
        state.restart(back=0, run="one")
        state.append(run="one", tags=1, count=1, stride=0)
        state.kill_converter(cut=0.0, has_plan=True)
        state.complete("one")
        state.convert()
        assert state.runs["one"].points == {"loss": [(0, 2.0), (0, 1.0)]}
    finally:
        state.teardown()
