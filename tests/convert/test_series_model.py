"""What a series says of its points, against the plain list of their steps."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.convert.series import Series

RUNS_HELD = 32


def series_of(steps: list[int]) -> Series:
    """Returns a series that has seen these steps one by one."""
    series = Series(steps[0], b"x", 0, steps[0])
    for step in steps[1:]:
        if step != series.step and step - series.step != series.stride:
            series.turn(step)
        series.step = step
    return series


def assert_says(series: Series, steps: set[int]) -> None:
    """Highest and lowest steps are right, and the lowest may only be lower where runs were put together."""
    assert series.highest == max(steps)
    for step in range(min(steps) - 2, max(steps) + 3):
        lowest = min((each for each in steps if each >= step), default=None)
        said = series.lowest_from(step)
        if lowest is None or len(series.closed) < RUNS_HELD:
            assert said == lowest
        else:
            assert said is not None
            assert step <= said <= lowest


_STEPS = st.lists(st.integers(-5, 40), min_size=1, max_size=25)


@given(_STEPS, st.integers(-7, 45))
def test_steps_that_go_anywhere(steps: list[int], cut: int) -> None:
    series = series_of(steps)
    assert_says(series, {*steps})
    left = {step for step in steps if step < cut}
    assert series.cut(cut) == bool(left)
    if left:
        assert series.fingerprint == b""
        assert_says(series, left)


@given(st.lists(st.sampled_from((1, 1, 2, 3, -1, -4)), min_size=90, max_size=300))
def test_the_oldest_of_very_many_runs_are_put_together(distances: list[int]) -> None:
    steps = np.cumsum([200, *distances]).tolist()
    series = series_of(steps)
    assert len(series.closed) <= RUNS_HELD
    assert_says(series, {*steps})


def test_what_was_put_together_reaches_as_far_as_its_steps() -> None:
    """The first two runs overlap nothing that comes later, so only their range knows of them."""
    first, second = [900, 910, 920], [100, 101, 102]
    for begin in (first + second, second + first):
        later = [500 + (number * number) % 97 for number in range(70)]
        series = series_of(begin + later)
        assert len(series.closed) == RUNS_HELD
        assert series.closed[0] == (100, 920, 0)
        assert (series.highest, series.lowest_from(0), series.lowest_from(903)) == (920, 100, 903)
        assert series.cut(903)
        assert series.highest == 902


def test_runs_are_held_as_they_are_up_to_a_number() -> None:
    steps = [step for number in range(RUNS_HELD + 1) for step in (-7 * number, -7 * number + 2, -7 * number + 4)]
    series = series_of(steps)
    assert len(series.closed) == RUNS_HELD
    assert series.closed[0] == (0, 4, 2)
    many = Series(0, b"x", 0, 0)
    array = np.array(steps[1:], np.int64)
    many.take(array, np.diff(array, prepend=0))
    many.step = steps[-1]
    assert many == series
    series.turn(-1000)
    assert len(series.closed) == RUNS_HELD
    assert series.closed[0] == (-7, 4, 0)
