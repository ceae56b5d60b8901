"""The rules about speed, memory and divergence at their bounds, with numbers that can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.monitor.alarms.rules.divergence import _Range
from ms_summary_bridge.monitor.alarms.rules.memory_trend import _Trend
from ms_summary_bridge.monitor.alarms.rules.rule import Level, Observation, Rule, make_rule
from ms_summary_bridge.monitor.model.alert import Alert


def shown(rule: Rule, points: Iterable[Observation]) -> list[Alert]:
    """Returns the alerts of a rule."""
    return [alert for point in points if (alert := rule.observe(point)) is not None]


# ------------------------------------------------------------------ speed


def run_at(*parts: tuple[int, float]) -> list[Observation]:
    """Returns so many steps of so many seconds, one part after the other."""
    seconds = [secs for count, secs in parts for _ in range(count)]
    return [Observation(step, {"step_time": secs}, 0.0) for step, secs in enumerate(seconds, start=1)]


def slow(*parts: tuple[int, float], **params: Any) -> list[Alert]:
    """Returns the alerts of a rule that looks at 6 seconds, in slices of one."""
    return shown(make_rule("throughput_drop", {"secs": 6.0, "warm_up": 1, **params}), run_at(*parts))


def test_a_speed_of_half_the_usual_one_is_no_drop_and_less_is() -> None:
    """Of the six slices of a window k have one step, and the others four: 24 - 3k steps in 6 s."""
    alerts = slow((80, 0.25), (10, 1.0))
    assert [alert.step for alert in alerts] == [*range(85, 91)]
    first = alerts[0]
    assert (first.value, first.bound, first.first_step) == (1.5, 2.0, 77)
    assert first.fields == {"usual": 4.0, "secs": 6.0}
    assert first.message == "1.5 steps per second over 6 s, where 4 were usual"
    assert alerts[1].value == 1.0
    assert slow((80, 0.25), (40, 0.5)) == []


def test_a_drop_is_told_once_there_are_windows_enough_to_compare_with() -> None:
    for healthy, expected in ((20, []), (24, [25])):
        assert [alert.step for alert in slow((healthy, 0.25), (1, 30.0))] == expected
    for warm_up, healthy, expected in ((2, 44, []), (2, 48, [49]), (0, 24, [25]), (0, 20, [])):
        assert [alert.step for alert in slow((healthy, 0.25), (1, 30.0), warm_up=warm_up)] == expected


def test_a_window_has_three_steps_at_least() -> None:
    """Of steps of 6 s each is long enough alone; one that takes 30 s is judged with the two before it."""
    (alert,) = slow((20, 6.0), (1, 30.0))
    assert (alert.value, alert.fields["secs"], alert.first_step) == (3 / 42, 42.0, 19)
    assert slow((20, 6.0), (1, 24.0)) == [], "3 in 36 s are half of the usual"


def test_steps_without_a_time_count_for_nothing() -> None:
    parts = ((40, 0.25), (3, 0.0), (3, -1.0), (3, math.nan), (40, 0.25), (5, 1.0))
    (alert,) = slow(*parts)
    assert (alert.step, alert.first_step) == (94, 86)
    (alert,) = slow((80, 0.25), (2, 1.0), (3, 0.0), (3, 1.0))
    assert (alert.step, alert.value) == (88, 1.5)


def test_the_first_slice_has_its_own_steps() -> None:
    """Of the rates 4, 2, 2, 8, 8 and 8 the median is 6."""
    (alert,) = slow((4, 0.25), (4, 0.5), (24, 0.125), (1, 30.0))
    assert (alert.step, alert.fields["usual"]) == (33, 6.0)


def test_points_of_several_steps_count_for_each() -> None:
    rule = make_rule("throughput_drop", {"secs": 6.0, "warm_up": 1})
    points = [Observation(4 * n, {"step_time": 0.25}, 0.0, steps=4) for n in range(1, 21)]
    points += [Observation(80 + n, {"step_time": 1.0}, 0.0) for n in range(1, 6)]
    (alert,) = shown(rule, points)
    assert (alert.step, alert.value, alert.first_step) == (85, 1.5, 80)


@pytest.mark.parametrize("scale", [1, 16])
def test_a_speed_that_creeps_down_is_compared_with_the_best(scale: int) -> None:
    """4 and then 2 are each half of what was usual; 1.25 is not below half of 2, and below 0.8 of half of 4."""
    before = ((1200, 0.25 * scale), (800, 0.5 * scale))
    alerts = slow(*before, (1000, 0.8 * scale), secs=6.0 * scale)
    # Of the last 60 slices more than half must have it, and that lasts for 360 slices of two steps.
    assert alerts[0].step == 2000 + 2 * 32
    said = alerts[0].value, alerts[0].bound, alerts[0].fields["usual"]
    assert said == (pytest.approx(1.25 / scale), 2.0 / scale, 4.0 / scale)
    assert len(alerts) == 361
    assert alerts[-1].step == 2000 + 2 * (32 + 360)
    alert = slow(*before, (20, 1.25 * scale), secs=6.0 * scale)[0]
    assert alert.fields["usual"] == 2.0 / scale, "a drop is one from what was usual, and not from the best"


def test_a_speed_of_many_seconds_for_a_step_does_not_creep() -> None:
    assert slow((200, 10.0)) == []


def test_a_speed_creeps_below_the_best_settled_one() -> None:
    before = ((1200, 0.25), (800, 0.5))
    assert slow(*before, (1000, 0.625)) == [], "1.6 is 0.8 of it"
    for healthy, expected in ((31, 4.0), (29, None)):  # slices of 60, whose median is the first settled speed
        alerts = slow((4 * healthy, 0.25), (2 * 200, 0.5), (300, 0.8))
        assert (alerts[0].fields["usual"] if alerts else None) == expected


def test_a_speed_that_recovers_is_not_slow_for_long() -> None:
    """The best is forgotten only where the speed was low for 360 slices without a break."""
    alerts = slow((1200, 0.25), (800, 0.5), (600, 0.8), (80, 0.25), (800, 0.8))
    steps = [alert.step for alert in alerts]
    assert max(steps) > 2000 + 600 + 80 + 2 * 40


def use(values: Sequence[float], metric: str = "npu_utilization", **params: Any) -> list[Alert]:
    rule = make_rule("throughput_drop", {"warm_up": 1, **params})
    return shown(rule, [Observation(step, {metric: value}, 0.0) for step, value in enumerate(values, start=1)])


def test_a_device_used_for_half_of_what_was_usual_does_not_idle() -> None:
    assert use([90.0] * 3 + [45.0] * 3) == []
    (alert,) = use([90.0] * 3 + [44.0] * 3)
    assert (alert.step, alert.value, alert.bound, alert.fields) == (6, 44.0, 45.0, {"usual": 90.0})
    assert alert.message == "npu_utilization is 44, where 90 was usual"
    assert use([90.0] * 3 + [44.0] * 2) == []
    assert [alert.step for alert in use([90.0] * 6 + [44.0] * 3, warm_up=2)] == [9]
    assert use([0.0] * 9) == []
    assert use([90.0] * 3 + [50.0] * 20 + [40.0] * 3) == []
    assert [alert.step for alert in use([0.5] * 3 + [0.1] * 3)] == [6]
    assert [alert.step for alert in use([90.0] * 3 + [math.nan] * 9 + [44.0] * 3)] == [15]


def test_each_use_of_a_device_is_followed() -> None:
    rule = make_rule("throughput_drop", {"warm_up": 1})
    rows = [{"npu_utilization": 90.0, "gpu_utilization": 90.0, "mfu": 0.5}] * 3
    rows += [{"npu_utilization": 90.0, "gpu_utilization": 90.0, "mfu": 0.1}] * 3
    rows += [{"gpu_utilization": 10.0, "mfu": 0.5}] * 3
    alerts = shown(rule, [Observation(step, row, 0.0) for step, row in enumerate(rows, start=1)])
    assert [(alert.metric, alert.step) for alert in alerts] == [
        ("mfu", 6),
        ("mfu", 7),
        ("gpu_utilization", 8),
        ("gpu_utilization", 9),
    ]


# ------------------------------------------------------------------ memory


def memory(values: Iterable[float], secs: float, *, steps: int = 10, metric: str = "memory_usage") -> list[Observation]:
    return [Observation(steps * n, {metric: value}, secs * n) for n, value in enumerate(values, start=1)]


def filling(values: Iterable[float], secs: float, **given: Any) -> list[Alert]:
    return shown(make_rule("memory_trend", {"limit": 1000.0, "warm_up": 10_000}), memory(values, secs, **given))


def test_memory_that_fills_is_told_when_300_seconds_are_left() -> None:
    (alert,) = filling([400.0, 500.0, 600.0, 700.0], 100.0)
    assert (alert.step, alert.first_step, alert.value, alert.bound, alert.severity) == (
        40,
        10,
        700.0,
        1000.0,
        "critical",
    )
    assert alert.fields == pytest.approx({"mib_per_step": 10.0, "steps_left": 30.0, "hours_left": 300 / 3600})
    assert alert.message == (
        "the memory of the process on its device grows by 1e+04 MiB per 1000 steps: 700 of 1000 MiB are in use, "
        "and the rest lasts for 30 steps, 5 minutes"
    )
    assert filling([399.0, 499.0, 599.0, 699.0], 100.0) == [], "301 s"
    assert filling([500.0, 600.0, 700.0], 100.0) == [], "three points"


def test_memory_that_fills_is_told_from_two_fifths_on() -> None:
    assert [alert.value for alert in filling([100.0, 200.0, 300.0, 400.0], 10.0)] == [400.0]
    assert filling([99.0, 199.0, 299.0, 399.0], 10.0) == []


def test_memory_that_fills_rises_with_each_point_by_half_of_the_mean_rise() -> None:
    assert len(filling([500.0, 600.0, 700.0, 740.0], 10.0)) == 1
    assert filling([500.0, 600.0, 700.0, 739.0], 10.0) == []
    for values in ([900.0] * 9, [990.0, 980.0, 970.0, 960.0, 950.0]):
        assert filling(values, 10.0) == []
    assert filling([500.0, 600.0, 700.0, 800.0], 0.0) == [], "a clock that stands still"
    assert len(filling([500.0, 600.0, 700.0, 800.0], 0.25)) == 1
    tiny = make_rule("memory_trend", {"limit": 1.0, "warm_up": 10_000})
    assert len(shown(tiny, memory([0.5, 0.6, 0.7, 0.8], 10.0))) == 1


def test_memory_beyond_its_limit_has_nothing_left() -> None:
    (alert,) = filling([800.0, 900.0, 1000.0, 1100.0], 10.0, steps=0)
    assert (alert.fields["hours_left"], alert.fields["steps_left"]) == (0.0, 0.0)
    assert alert.fields["mib_per_step"] == 300.0, "of one step, where the count of steps stands still"


def test_each_kind_of_memory_is_followed_while_a_training_warms_up() -> None:
    rule = make_rule("memory_trend", {"limits": {"memory_usage": 1e6, "npu_memory": 1000.0, "host_memory": 0.0}})
    points = [
        Observation(n, {"memory_usage": 10.0, "host_memory": math.nan, "npu_memory": 300.0 + 100 * n}, 10.0 * n)
        for n in range(1, 5)
    ]
    (alert,) = shown(rule, points)
    assert (alert.metric, alert.step) == ("npu_memory", 4)


def growing(count: int, *, secs: float = 30.0, start: float = 100.0, by: float = 1.0, **params: Any) -> list[Alert]:
    """Returns the alerts of memory that grows by the same from point to point."""
    rule = make_rule("memory_trend", {"limit": 1000.0, "warm_up": 0, **params})
    return shown(rule, memory([start + by * n for n in range(count)], secs))


def test_a_trend_takes_16_points_and_600_seconds_and_reaches_ten_times_as_far() -> None:
    """1 MiB in 30 s: 818 MiB last for 24,540 s. Behind 48 points every second one is kept, so the 2nd is the first."""
    first = growing(200)[0]
    assert (first.step, first.first_step, first.value) == (850, 20, 182.0)
    assert first.fields["hours_left"] * 3600 == pytest.approx(24_540)
    assert first.fields["mib_per_step"] == pytest.approx(0.1)
    assert first.fields["steps_left"] == pytest.approx(8180)
    assert [alert.step for alert in growing(21, start=850.0)] == [210], "600 s"
    assert growing(20, start=850.0) == []
    assert [alert.step for alert in growing(16, secs=60.0, start=900.0)] == [160], "16 points"
    assert growing(15, secs=60.0, start=900.0) == []


def test_a_trend_is_told_when_few_hours_are_left() -> None:
    """16 points of 3,600 s: 1 MiB in an hour; of the last three the middle one counts."""
    assert [alert.step for alert in growing(16, secs=3600.0, start=962.0, hours=24.0)] == [160]
    assert growing(16, secs=3600.0, start=961.9, hours=24.0) == []
    (alert,) = growing(16, secs=64.0, start=999.0 - 14 / 64, by=1 / 64)
    assert alert.message.endswith("999 of 1000 MiB are in use, and the rest lasts for 640 steps, 1.1 hours")
    assert (alert.severity, alert.fields["hours_left"]) == ("warning", pytest.approx(4096 / 3600))
    (alert,) = growing(16, secs=56.25, start=999.0 - 14 / 64, by=1 / 64)
    assert (alert.severity, alert.fields["hours_left"], alert.message[-10:]) == ("warning", 1.0, " 1.0 hours")
    (alert,) = growing(16, secs=64.0, start=999.5 - 14 / 64, by=1 / 64)
    assert alert.fields["hours_left"] == pytest.approx(2048 / 3600)
    assert [alert.step for alert in growing(16, secs=64.0, start=918.0, by=0.5)] == [160], "ten times 960 s"
    assert growing(16, secs=64.0, start=917.5, by=0.5) == []
    (alert,) = growing(16, secs=56.0, start=999.0 - 14 / 64, by=1 / 64)
    assert (alert.severity, alert.message[-11:]) == ("critical", " 60 minutes")


def trend(
    values: Sequence[float], times: Sequence[float] | None = None, steps: Sequence[int] | None = None
) -> list[Alert]:
    """Returns the alerts of 16 points, 100 s and 10 steps apart, up to a limit that is as near as it must be."""
    rule = make_rule("memory_trend", {"limit": 1030.0, "warm_up": 0})
    points = [
        Observation(steps[n] if steps else 10 * n, {"memory_usage": value}, times[n] if times else 100.0 * n)
        for n, value in enumerate(values)
    ]
    return shown(rule, points)


FLAT_AT_FIRST = [1003, 1007, 1016, 1016, 1017, 1018, 1011, 1016, 1019, 1012, 1021, 1023, 1025, 1025, 1027, 1029]
"""Of 120 pairs 104 rise, and the first two thirds have one median."""
RISING = [1000.0 + n for n in range(16)]


def with_reversed(*blocks: int) -> list[float]:
    """Returns rising values of which some blocks of four are turned around."""
    order = [(number + 1) * 4 - 1 - n if number in blocks else number * 4 + n for number in range(4) for n in range(4)]
    return [RISING[n] for n in order]


def test_of_all_pairs_of_points_17_of_20_rise() -> None:
    assert len(trend(RISING)) == 1
    assert len(trend(with_reversed(0, 1, 3))) == 1, "102 of 120"
    assert trend(with_reversed(0, 1, 2, 3)) == [], "96"
    assert trend([1000.0 + n // 4 * 4 for n in range(16)]) == [], "and 24 are the same"


def test_a_clock_or_a_count_that_does_not_go_on_says_nothing() -> None:
    times = [100.0 * n for n in range(16)]
    assert len(trend(RISING, times=[*times[:8], times[7] + 0.5, *times[9:]])) == 1
    for time in (times[7], times[6]):
        assert trend(RISING, times=[*times[:8], time, *times[9:]]) == []
    steps = [*range(16)]
    assert len(trend(RISING, steps=steps)) == 1
    assert trend(RISING, steps=[*steps[:8], 7, *steps[9:]]) == []


def test_what_comes_to_rest_does_not_leak() -> None:
    """The slope of the last third against that before: a half of it is too little, and four fifths are not."""
    for share, count in ((0.5, 0), (0.8, 1), (1.5, 1)):
        values = [1000.0 + n for n in range(9)] + [1008.0 + share * n for n in range(1, 8)]
        assert len(trend(values)) == count


def test_what_stays_the_same_for_a_sixth_of_all_pairs_does_not_rise() -> None:
    assert trend([1000, *[1002] * 5, 1004, *[1008] * 5, 1010, 1014, 1015, 1016]) == []


def test_the_slope_at_last_is_seven_tenths_of_that_at_first_and_at_first_there_is_one() -> None:
    """Of six points each the medians are 1000, 1010 and 1017."""
    values = [997, 998, 999.5, 1000.5, 1001, 1002, 1005, 1007, 1009.5, 1010.5, 1012, 1013]
    values += [1014, 1015, 1016.5, 1017.5, 1018, 1019]
    assert trend(values)[-1].step == 170
    assert trend(FLAT_AT_FIRST) == []


def test_a_trend_is_looked_for_behind_50_steps_and_24_hours_ahead() -> None:
    """16 points, 700 s apart: 1 MiB in each, the last of them 1014 in their median."""
    for hours, found in ((23.5, [50]), (24.5, [])):
        rule = make_rule("memory_trend", {"limit": 1014 + hours * 3600 / 700})
        points = [Observation(0, {"memory_usage": 999.0}, -700.0)]
        points += [Observation(50 + n, {"memory_usage": 1000.0 + n}, 700.0 * n) for n in range(16)]
        assert [alert.first_step for alert in shown(rule, points)] == found


def test_memory_before_the_end_of_the_warm_up_and_none_at_all_are_left_out() -> None:
    for begin in (0, 1000):
        rule = make_rule("memory_trend", {"limit": 1030.0, "warm_up": 100})
        values = [*[5.0] * 10, *RISING]
        points = [Observation(begin + 10 * n, {"memory_usage": v}, 100.0 * n) for n, v in enumerate(values)]
        assert [(alert.step, alert.first_step) for alert in shown(rule, points)] == [(begin + 250, begin + 100)]
    rule = make_rule("memory_trend", {"limit": 1030.0, "warm_up": 0})
    values = [*[0.0] * 5, *[-1.0] * 5, *RISING]
    points = [Observation(10 * n, {"memory_usage": v}, 100.0 * n) for n, v in enumerate(values)]
    assert [(alert.step, alert.first_step) for alert in shown(rule, points)] == [(250, 100)]


def test_points_are_kept_ever_wider_apart() -> None:
    points = _Trend()
    kept = [n for n in range(190) if points.add(Observation(n, {}, 2.0 * n), 3.0 * n)]
    assert kept == [*range(49), *range(50, 99, 2), *range(102, 190, 4)]
    left = [*range(3, 48, 4), *range(52, 97, 4), *range(102, 190, 4)]
    assert points.points == [(float(n), 2.0 * n, 3.0 * n) for n in left]


# ------------------------------------------------------------------ divergence


def told_after(
    before: Iterable[float], level: float, earlier: Level | None = None, **params: Any
) -> tuple[int, int, float | None] | None:
    """Returns how many steps of a level are seen before the first alert, its first step and its bound."""
    rule = make_rule("divergence", params)
    if earlier is not None:
        rule.recall(earlier)
    begin = [*before]
    for step, value in enumerate([*begin, *[level] * 1000], start=1):
        alert = rule.observe(Observation(step, {"loss": value}, 0.0))
        if alert is not None:
            return step - len(begin), alert.first_step, alert.bound
    return None


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (3.0, None),  # half above the best
        (3.1, (440, 20, 3.0)),  # for 22 of 23 blocks: each group of blocks must be above in its middle
        (8.0, (440, 20, 3.0)),  # three times the size above it
        (8.1, (220, 20, 8.0)),  # for 11 of 12 blocks
        (22.0, (200, 20, 8.0)),  # ten times; for 10 of 12 blocks, as their oldest group is above in its mean
        (22.1, (60, 20, 22.0)),  # for three blocks
    ],
)
def test_how_long_a_loss_stays_far_above_its_best(level: float, expected: tuple[int, int, float] | None) -> None:
    assert told_after([2.0] * 600, level) == expected


def test_a_loss_is_measured_by_what_it_has_gained_too() -> None:
    """From 102 to 2 it has gained 100: a twentieth of that is more than half of 2."""
    before = [102.0] * 100 + [2.0] * 600
    assert told_after(before, 7.0) is None
    assert told_after(before, 7.1) == (440, 180, 7.0)
    assert told_after(before, 302.1) == (220, 180, 302.0)
    below = [98.0] * 100 + [-2.0] * 600
    assert told_after(below, 3.0) is None
    assert told_after(below, 3.1) == (440, 180, 3.0)


def test_share_and_window_are_what_they_say() -> None:
    assert told_after([2.0] * 600, 4.0, share=1.0) is None
    assert told_after([2.0] * 600, 4.1, share=1.0) == (440, 20, 4.0)
    assert told_after([2.0] * 600, 3.1, window=240) == (220, 20, 3.0)
    assert told_after([2.0] * 600, 3.1, window=241) == (260, 20, 3.0), "the 13th block is a group of its own"
    assert told_after([2.0] * 600, 3.1, window=16) == (60, 20, 3.0)
    assert told_after([2.0] * 100, 9.0) == (220, 20, 8.0), "before there are as many steps as a window has"


def test_the_best_level_is_looked_for_with_each_block_and_later_with_every_fourth() -> None:
    """Four of five blocks must have it."""
    assert told_after([5.0] * 380 + [2.0] * 600, 3.1) == (440, 460, 3.0)
    assert told_after([5.0] * 600 + [2.0] * 600, 3.1) == (440, 720, 3.0)


def test_the_whole_the_newest_and_each_group_of_a_window_must_be_above() -> None:
    for rest in (
        [2.8] * 400 + [3.1] * 80,
        [3.0] * 400 + [3.1] * 80,
        [3.1] * 400 + [2.8] * 400,
        [3.1] * 380 + [3.0] * 400,
    ):
        rule = make_rule("divergence", {})
        points = [Observation(step, {"loss": value}, 0.0) for step, value in enumerate([*[2.0] * 600, *rest], start=1)]
        assert shown(rule, points) == []
    assert told_after([2.0] * 600 + [2.7] * 460, 3.1) == (440, 20, 3.0)
    assert told_after([2.0] * 600 + [2.71] * 460, 3.1) == (240, 20, 3.0)


def test_the_range_of_a_median() -> None:
    for count, low, middle, high in ((1, 0, 0, 0), (4, 0, 2, 3), (20, 2, 10, 18), (100, 32, 50, 68)):
        found = _Range([np.arange(float(count))[::-1]])
        assert (found.low, found.median, found.high) == (low, middle, high)


def test_a_loss_that_comes_down_again_is_not_told() -> None:
    rule = make_rule("divergence", {})
    curve = [2.0] * 600 + [9.0] * 180 + [2.9] * 400
    assert shown(rule, [Observation(step, {"loss": value}, 0.0) for step, value in enumerate(curve, start=1)]) == []


def swinging(count: int) -> list[float]:
    return [1.0 if (step // 20) % 2 else 3.0 for step in range(count)]


@pytest.mark.parametrize(
    ("level", "expected"),
    [(6.0, None), (6.1, (440, 6.0)), (12.0, (440, 6.0)), (12.1, (220, 12.0)), (33.0, (200, 12.0)), (33.1, (60, 33.0))],
)
def test_a_loss_that_swings_is_measured_by_how_far_it_swung(level: float, expected: tuple[int, float] | None) -> None:
    found = told_after(swinging(2400), level, mode="oscillating")
    assert (found and (found[0], found[2])) == expected


def test_how_far_a_loss_swings_is_learned_from_its_first_100_blocks() -> None:
    for blocks, bound in ((98, 8.0), (99, 6.0)):  # two of five blocks must have it
        before = [*swinging(20 * blocks), *[4.0] * 40, *swinging(400)]
        found = told_after(before, 9.0, mode="oscillating")
        assert found is not None
        assert found[2] == bound


def test_while_it_learns_how_far_a_loss_swings_only_a_huge_rise_is_told() -> None:
    """Two blocks of a level are learned; where half of the first one is lower, that is what was learned."""
    assert told_after(swinging(600), 33.1, mode="oscillating") is None
    assert told_after([*swinging(600), *[4.0] * 10, *[44.0] * 50], 44.0, mode="oscillating") is None
    found = told_after([*swinging(600), *[4.0] * 10, *[44.1] * 49], 44.1, mode="oscillating")
    assert found is not None
    assert (found[0], found[2]) == (1, 44.0)


def test_what_an_alert_of_a_divergence_says() -> None:
    rule = make_rule("divergence", {"mode": "oscillating"})
    points = [Observation(step, {"loss": value}, 0.0) for step, value in enumerate([*swinging(2400), *[7.0] * 440], 1)]
    (alert,) = shown(rule, points)
    said = "loss has risen to 7 and stays there; the highest level that it had swung to was 3 at step "
    assert alert.message == f"{said}{alert.first_step}"
    assert alert.first_step == 20, "the first block had it"
    assert alert.fields == {"best": 3.0}


def test_values_that_stand_for_many_steps_make_a_block_of_four() -> None:
    """Of 7 steps each, and after four of them 28 steps have passed; of 4 steps five are needed."""
    for steps, block in ((7, 4), (5, 4), (4, 5), (3, 7), (1, 20), (100, 4)):
        rule = make_rule("divergence", {})
        values = [2.0] * (block * 30) + [100.0] * (block * 3)
        points = [Observation(steps * n, {"loss": value}, 0.0, steps=steps) for n, value in enumerate(values, start=1)]
        (alert,) = shown(rule, points)
        assert (alert.step, alert.first_step) == (steps * len(values), steps * block)


def test_the_best_of_earlier_sessions_counts_once_the_training_is_seen_to_go_on() -> None:
    """Of a checkpoint at once; else behind 100 steps, if the loss is nearer to the best than to the first."""
    known, unknown = (Level(first=800.0, best=2.0, step=7, is_known=is_known) for is_known in (True, False))
    assert told_after([], 400.0, known, window=60) == (60, 7, pytest.approx(2.0 + 0.05 * 798))
    assert told_after([], 400.0, unknown, window=60) == (100, 7, pytest.approx(2.0 + 0.05 * 798))
    assert told_after([], 401.0, unknown, window=60) is None, "as far from the one as from the other"


def test_the_best_of_earlier_sessions_counts_only_where_it_is_lower() -> None:
    same, higher = (Level(first=50.0, best=best, step=900, is_known=False) for best in (2.0, 10.0))
    for earlier in (same, higher):
        assert told_after([2.0] * 100, 4.5, earlier, window=60) == (60, 20, pytest.approx(2.0 + 0.05 * 48))
