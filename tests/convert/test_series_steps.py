"""Steps that come many at a time are held as those that come one by one."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.convert.series import Series

_DISTANCES = st.lists(
    st.tuples(st.sampled_from((0, 1, 1, 2, 3, 7, -1, -5)), st.integers(1, 9)), min_size=1, max_size=90
)


def _one_by_one(series: Series, steps: list[int]) -> None:
    for step in steps:
        distance = step - series.step
        if distance and distance != series.stride:
            series.turn(step)
        series.step = step


def _at_once(series: Series, steps: list[int]) -> None:
    array = np.array(steps, np.int64)
    series.take(array, np.diff(array, prepend=series.step))
    series.step = steps[-1]


@given(_DISTANCES, st.lists(st.integers(1, 400), max_size=5))
def test_steps_taken_at_once_leave_what_single_ones_leave(distances: list[tuple[int, int]], cuts: list[int]) -> None:
    steps = np.cumsum([1000, *(distance for distance, times in distances for _ in range(times))]).tolist()
    single, many = Series(500, b"", 0, 500), Series(500, b"", 0, 500)
    edges = sorted({0, *(cut for cut in cuts if cut < len(steps)), len(steps)})
    for begin, end in itertools.pairwise(edges):
        _one_by_one(single, steps[begin:end])
        _at_once(many, steps[begin:end])
        assert single == many
    single.cut(1003)
    many.cut(1003)
    _one_by_one(single, [1005, 1008, 1011])
    _at_once(many, [1005, 1008, 1011])
    assert single == many


@pytest.mark.parametrize("head", [[1], [1, 1], [2, 2, 1], [3, 3, 3], [1, 2, 2, 2, 2, 1], [1, 1, 2], [2, 1, 1, 2, 2]])
@pytest.mark.parametrize("tail", [[1, 2], [2, 1], [1, 2, 3], [5, 1, 1, 2, 1, 2, 1, 2]])
def test_uneven_steps_behind_a_few_even_ones(head: list[int], tail: list[int]) -> None:
    """What is even at the beginning decides where the many runs behind it begin."""
    for count in (150, 151):
        steps = np.cumsum([*head, *(tail * 150)][: count + len(head)]).tolist()
        single, many = Series(0, b"", 0, 0), Series(0, b"", 0, 0)
        _one_by_one(single, steps)
        _at_once(many, steps)
        assert single == many


@given(
    st.integers(0, 2**32), st.sampled_from(((1, 2), (3, 5, 1), (1, 1, 1, 2), (2, 2, 1, 2, 1))), st.integers(300, 700)
)
def test_many_uneven_steps(seed: int, distances: tuple[int, ...], count: int) -> None:
    rng = np.random.default_rng(seed)
    ahead = np.tile(distances, count) if seed % 2 else rng.choice(distances, count)
    steps = (np.cumsum(ahead[:count]) + 7).tolist()
    single, many = Series(7, b"", 0, 7), Series(7, b"", 0, 7)
    middle = seed % count
    for part in (steps[: middle + 1], steps[middle + 1 :]):
        if part:
            _one_by_one(single, part)
            _at_once(many, part)
            assert single == many
