"""Waiting for what another process does."""

from __future__ import annotations

import pytest

from ms_summary_bridge.files.waiting import wait_for


class Clock:
    """Seconds that pass only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, secs: float) -> None:
        self.now += secs


@pytest.mark.parametrize(
    ("there_at", "within", "found_at"), [(0, 5, 0), (3, 5, 3), (3, 3, 3), (4, 3, None), (0, 0, 0), (1, 0, None)]
)
def test_it_looks_until_it_is_there_or_the_time_is_over(there_at: int, within: int, found_at: int | None) -> None:
    clock = Clock()

    def look() -> float | None:
        return clock.now if clock.now >= there_at else None

    assert wait_for(look, 1.0, within, clock=clock, sleep=clock.sleep) == found_at
    assert clock.now == (within if found_at is None else found_at)


def test_what_is_false_but_there_is_found() -> None:
    assert wait_for(lambda: 0, 1.0) == 0
