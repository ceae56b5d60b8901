"""The rules of alarms at their bounds: the last value that is right, and the first that is not."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from typing import Any

import pytest

from ms_summary_bridge.monitor.alarms.rules.rule import (
    Level,
    Observation,
    Rule,
    Streak,
    find_rule,
    make_rule,
    rule_names,
    say_number,
)
from ms_summary_bridge.monitor.alarms.rules.spike import RunningSpread
from ms_summary_bridge.monitor.model.alert import Alert


def seen(rule: Rule, metric: str, values: Iterable[float | None], **known: Any) -> list[Alert]:
    """Shows values to a rule, one each step from 1 on; returns its alerts."""
    found = []
    for step, value in enumerate(values, start=1):
        given = {} if value is None else {metric: value}
        alert = rule.observe(Observation(**{"step": step, "values": given, "monotonic": float(step), **known}))
        found += [] if alert is None else [alert]
    return found


def steps_seen(rule: Rule, metric: str, values: Iterable[float | None]) -> list[tuple[int, int]]:
    """Returns step and first step of each alert."""
    return [(alert.step, alert.first_step) for alert in seen(rule, metric, values)]


# ------------------------------------------------------------------ what all share


def test_an_alert_has_what_its_point_says() -> None:
    point = Observation(7, {"loss": 3.0}, 5.0, wall_time=99.0, epoch=2, rank=4)
    alert = make_rule("threshold", {"above": 2.0}).observe(point)
    assert alert is not None
    assert (alert.step, alert.epoch, alert.rank, alert.wall_time, alert.first_step) == (7, 2, 4, 99.0, 7)
    assert (alert.severity, alert.value, alert.bound, alert.fields) == ("warning", 3.0, 2.0, {})


def test_a_streak_counts_and_knows_its_first_step() -> None:
    streak = Streak()
    found = [
        (streak.add(Observation(step, {}, 0.0), is_on=is_on, steps=steps), streak.since)
        for step, is_on, steps in ((2, False, 1), (3, True, 1), (4, True, 5), (5, False, 9), (6, True, 2), (7, True, 1))
    ]
    assert found == [(0, 0), (1, 3), (6, 3), (0, 3), (2, 6), (3, 6)]


def test_numbers_in_messages() -> None:
    said = [say_number(value) for value in (1 / 3, math.nan, math.inf, -math.inf, 0.0)]
    assert said == ["0.333333", "NaN", "infinite", "minus infinite", "0"]


def test_a_rule_of_a_value_passes_over_steps_that_overflowed() -> None:
    for overflow, count in ((True, 0), (False, 1), (None, 1)):
        assert len(seen(make_rule("threshold", {"above": 1.0}), "loss", [2.0], overflow=overflow)) == count


# ------------------------------------------------------------------ bounds and numbers


def test_a_threshold_is_the_last_right_value() -> None:
    assert steps_seen(make_rule("threshold", {"above": 2.0}), "loss", [1.9, 2.0, 2.1]) == [(3, 3)]
    assert steps_seen(make_rule("threshold", {"below": 2.0}), "loss", [2.1, 2.0, 1.9]) == [(3, 3)]
    both = make_rule("threshold", {"above": 2.0, "below": 1.0, "times": 2})
    assert [alert.message for alert in seen(both, "loss", [3.0, 0.5, 1.0, 0.5, 2.0, 2.5, 2.5])] == [
        "loss is 0.5, below 1, 2 times in a row",
        "loss is 2.5, above 2, 2 times in a row",
    ]
    assert make_rule("threshold", {"metric": "mfu", "above": 1.0}).watched == ("mfu",)


def overload(*points: tuple[float, dict[str, float]], **params: Any) -> list[tuple[str, int, int, float]]:
    """Returns metric, step, first step and seconds of each alert of points with their times."""
    rule = make_rule("overload", params)
    found = []
    for step, (now, values) in enumerate(points, start=1):
        alert = rule.observe(Observation(step, values, now))
        if alert is not None:
            found.append((alert.metric, alert.step, alert.first_step, alert.fields["secs"]))
    return found


def test_an_overload_lasts_for_its_seconds_and_a_bound_is_no_overload() -> None:
    hot, warm = {"temperature": 90.1}, {"temperature": 90.0}
    assert overload((0, hot), (9.9, hot), (10, hot), temperature=90.0, secs=10.0) == [("temperature", 3, 1, 10.0)]
    assert overload((0, hot), (5, warm), (10, hot), (19, hot), temperature=90.0, secs=10.0) == []
    assert overload((0, hot), (99, {}), (100, hot), temperature=90.0, secs=10.0) == [("temperature", 3, 1, 100.0)]


def test_each_metric_of_an_overload_is_followed_and_one_is_told() -> None:
    bounds = {"temperature": 90.0, "memory": 100.0, "secs": 10.0}
    both = {"temperature": 99.0, "npu_memory": 101.0}
    assert overload((0, both), (10, both), (20, {"npu_memory": 101.0}), **bounds) == [
        ("temperature", 2, 1, 10.0),
        ("npu_memory", 3, 1, 20.0),
    ]
    cool = {"temperature": 1.0, "npu_memory": 101.0}
    assert overload((0, cool), (10, cool), **bounds) == [("npu_memory", 2, 1, 10.0)]
    later = {"temperature": 99.0}
    assert overload((0, {"npu_memory": 101.0}), (5, later), (10, cool), **bounds) == [("npu_memory", 3, 1, 10.0)]


def test_what_an_overload_must_have_measured() -> None:
    assert make_rule("overload", {}).watched == ("temperature",)
    rule = make_rule("overload", {"temperature": None, "memory": 1.0, "utilization": 2.0})
    assert rule.watched == ("npu_memory", "npu_utilization")
    assert rule.metrics == ("npu_memory", "gpu_memory", "memory_usage", "npu_utilization", "gpu_utilization")


def test_a_value_that_is_not_finite_is_told_of_each_metric_and_after_its_patience() -> None:
    rule = make_rule("nonfinite", {"metrics": ["loss", "grad_norm", "lr"], "patience": 2})
    rows = [
        {"grad_norm": math.nan, "lr": math.nan},
        {"loss": math.inf, "grad_norm": 1.0, "lr": math.nan},
        {"loss": math.inf, "lr": math.nan},
        {"loss": 1.0, "lr": math.nan},
    ]
    alerts = [rule.observe(Observation(step, row, 0.0)) for step, row in enumerate(rows, start=1)]
    assert [alert and alert.message for alert in alerts] == [
        None,
        "lr is NaN since step 1",
        "loss is infinite since step 2",
        "lr is NaN since step 1",
    ]
    at_once = make_rule("nonfinite", {})
    assert [alert.message for alert in seen(at_once, "loss", [math.nan])] == ["loss is NaN"]


def test_skipped_steps_count_for_as_many_as_a_point_stands_for() -> None:
    rule = make_rule("overflow_streak", {"steps": 5})
    points = [(1, True, 4), (2, None, 9), (3, True, 1), (4, False, 9), (5, True, 4), (6, True, 1)]
    alerts = [rule.observe(Observation(step, {}, 0.0, overflow=over, steps=n)) for step, over, n in points]
    assert [(alert.step, alert.first_step, alert.value, alert.bound) for alert in alerts if alert] == [
        (3, 1, 5.0, 5.0),
        (6, 5, 5.0, 5.0),
    ]
    assert "5 steps in a row" in next(alert.message for alert in alerts if alert)


def test_a_gradient_at_the_bound_does_not_vanish() -> None:
    rule = make_rule("gradient_vanishing", {"below": 1e-8, "steps": 2})
    assert steps_seen(rule, "grad_norm", [1e-8, 1e-8, 9e-9, 1e-8, 9e-9, 0.0, 0.0]) == [(6, 5), (7, 5)]


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_loss_stands_still_when_no_block_was_better_by_enough(mode: str) -> None:
    sign = 1.0 if mode == "min" else -1.0
    rule = make_rule("not_improving", {"patience": 40, "min_delta": 0.5, "mode": mode})
    blocks = [9.0] * 4 + [8.5] * 4 + [8.4, 1.0, 8.4, 99.0] + [8.0] * 60
    (alert, *_) = alerts = seen(rule, "loss", [sign * value for value in blocks])
    # In blocks of 4, the first best is 9, then 8.5 is not below it by more than 0.5, and 8.4 is; then nothing.
    assert [each.step for each in alerts] == [52, 56, 60, 64, 68, 72]
    assert (alert.first_step, alert.value, alert.bound) == (12, sign * 8.0, sign * 8.4)
    assert alert.message == f"loss has not improved for 40 steps; its best level was {sign * 8.4:g}"


def test_the_blocks_of_a_loss_that_stands_still_are_a_tenth_of_the_patience_and_at_most_100() -> None:
    for patience, first in ((1, 2), (9, 10), (25, 28), (2000, 2100), (990, 1089)):
        rule = make_rule("not_improving", {"patience": patience})
        assert steps_seen(rule, "loss", [5.0] * 2100)[0] == (first, max(1, min(100, patience // 10)))
    gaps = make_rule("not_improving", {"patience": 10})
    assert steps_seen(gaps, "loss", [5.0, math.nan, math.inf, *[5.0] * 9]) == [(11, 1), (12, 1)]


# ------------------------------------------------------------------ jumps


def spread_of(values: Iterable[float], window: int, warm_up: int) -> RunningSpread:
    spread = RunningSpread(window, warm_up)
    for value in values:
        spread.add(value)
    return spread


@pytest.mark.parametrize(
    ("values", "median", "spread"),
    [
        ([5.0, 1.0, 3.0, 2.0], 3.0, 2 * 1.4826),  # distances 0, 1, 2, 2: the median one counts
        ([3.0, 4.0, 2.0, -8.0], 3.0, 1.2533 * 13 / 4),  # the mean one
        ([-50.0, -50.0, -50.0, -50.0], -50.0, 0.5),  # a hundredth of the median
        ([0.0, 0.0, 0.0, 0.0], 0.0, 0.0),
    ],
)
def test_median_and_spread(values: list[float], median: float, spread: float) -> None:
    found = spread_of(values[:3], 32, 4)
    assert (found.is_ready, found.median, found.spread) == (False, 0.0, 0.0)
    found.add(values[3])
    assert (found.is_ready, found.median, found.spread) == (True, median, pytest.approx(spread))


def test_median_and_spread_follow_every_32_values_and_forget_what_is_behind_the_window() -> None:
    found = spread_of([*range(16), *[100.0] * 15], 48, 16)
    assert found.median == 8.0
    found.add(100.0)
    assert found.median == 100.0
    for _ in range(31):
        found.add(500.0)
    assert found.median == 100.0
    found.add(500.0)
    assert found.median == 500.0, "of the last 48, 32 are"
    assert spread_of([1.0] * 8, 8, 100).is_ready, "a window cannot hold more"


NOISE = 10 * 1.4826  # of 4, 1, 3, 2, whose median is 3, with a factor of 10


def spike(*values: float, **params: Any) -> list[tuple[int, int]]:
    rule = make_rule("spike", {"factor": 10.0, "window": 64, "warm_up": 4, "reach": 0.0, **params})
    return steps_seen(rule, "loss", [4.0, 1.0, 3.0, 2.0, *values])


def test_two_of_five_values_beyond_the_bound_are_a_spike() -> None:
    far, near = 3 + NOISE + 0.01, 3 + NOISE - 0.01
    assert spike(near, near, near) == []
    assert spike(far, far) == [(6, 5)]
    assert spike(far, 3.0, 3.0, 3.0, far) == [(9, 5)]
    assert spike(far, 3.0, 3.0, 3.0, 3.0, far) == []
    assert spike(far, 3.0, 3.0, 3.0, 3.0, far, far) == [(11, 10)]
    assert spike(far, math.nan, math.nan, math.nan, math.nan, far) == [(10, 5)], "what is not finite is not counted"


def test_one_value_beyond_five_times_the_bound_is_a_spike() -> None:
    assert spike(3 + 5 * NOISE - 0.01) == []
    assert spike(3 + 5 * NOISE + 0.01) == [(5, 5)]


def test_the_bounds_of_a_spike_are_no_spike() -> None:
    """The median is -50, the spread a hundredth of it, and both are what they are to the last bit."""
    for values, expected in (([-44.0] * 3, []), ([-43.9] * 2, [(6, 5)]), ([-20.0], []), ([-19.9], [(5, 5)])):
        rule = make_rule("spike", {"factor": 12.0, "window": 64, "warm_up": 4, "reach": 0.0})
        assert steps_seen(rule, "loss", [*[-50.0] * 4, *values]) == expected


def test_an_enormous_value_long_after_one_that_stood_alone_begins_with_itself() -> None:
    far, enormous = 3 + NOISE + 1, 3 + 6 * NOISE
    assert spike(far, *[3.0] * 8, enormous) == [(14, 14)]
    assert explosion(150.0, *[2.0] * 8, 5000.0) == [(14, 14)]


def test_what_an_alert_of_a_spike_says() -> None:
    rule = make_rule("spike", {"factor": 10.0, "window": 64, "warm_up": 4, "reach": 0.0})
    (alert,) = seen(rule, "loss", [4.0, 1.0, 3.0, 2.0, 500.0])
    assert alert.message == "loss jumped to 500; the median before was 3"
    assert alert.bound == pytest.approx(3 + NOISE)
    assert alert.fields == {"median": 3.0, "spread": pytest.approx(1.4826)}


def test_a_jump_beyond_all_that_was_is_measured_by_it() -> None:
    """The highest value is 4, the lowest -8: beyond 4 + 3 * 12 it is a spike, and below that it is learned."""
    before = (-8.0, 3.0, 4.0, 2.0)

    def reached(*values: float) -> list[tuple[int, int]]:
        rule = make_rule("spike", {"factor": 1.0, "window": 64, "warm_up": 4, "reach": 3.0})
        return steps_seen(rule, "loss", [*before, *values])

    assert reached(40.1, 40.1) == [(6, 5)]
    assert reached(39.9, 39.9) == []
    assert reached(30.0, 143.0, 143.0) == [], "30 + 3 * 38"
    assert reached(30.0, 145.0, 145.0) == [(7, 6)]
    assert reached(-20.0, 75.0, 75.0) == [], "4 + 3 * 24"
    assert reached(-20.0, 77.0, 77.0) == [(7, 6)]
    # One that stood alone is what the training does: from the next one on it counts as having been reached.
    alone = (50.0, *[3.0] * 5)
    assert reached(*alone, 50.0, *[3.0] * 5, 223.0, 223.0) == []
    assert reached(*alone, 50.0, *[3.0] * 5, 225.0, 225.0) == [(18, 17)]
    assert reached(*alone, 45.0, 45.0) == [], "the second is no more beyond all that was"


def test_a_high_loss_is_measured_by_its_size() -> None:
    rule = make_rule("spike", {"factor": 1.0, "window": 64, "warm_up": 4, "reach": 3.0})
    assert steps_seen(rule, "loss", [104.0, 101.0, 103.0, 102.0, 415.0, 415.0]) == []
    rule = make_rule("spike", {"factor": 1.0, "window": 64, "warm_up": 4, "reach": 3.0})
    assert steps_seen(rule, "loss", [104.0, 101.0, 103.0, 102.0, 417.0, 417.0]) == [(6, 5)]


def test_the_bound_itself_enters_the_window_for_what_is_beyond_it() -> None:
    rule = make_rule("spike", {"factor": 10.0, "window": 32, "warm_up": 4, "reach": 0.0})
    values = [4.0, 1.0, 3.0, 2.0, *[1000.0] * 28]
    alerts = seen(rule, "loss", [*values, 1000.0])
    assert alerts[-1].fields["median"] == pytest.approx(3 + NOISE)
    rule = make_rule("spike", {"factor": 10.0, "window": 32, "warm_up": 4, "reach": 1000.0})
    seen(rule, "loss", [4.0, 1.0, 3.0, 2.0, *[1000.0] * 28])
    (alert, *_) = seen(rule, "loss", [1e9])
    assert alert.fields["median"] == pytest.approx(3 + NOISE), "within reach, and yet noise is all that it may add"


def test_what_is_no_noise_enters_the_window_as_it_is() -> None:
    rule = make_rule("spike", {"factor": 10.0, "window": 32, "warm_up": 4, "reach": 0.0})
    alerts = seen(rule, "loss", [4.0, 1.0, 3.0, 2.0, *[5.0] * 28, 1000.0])
    assert [alert.fields["median"] for alert in alerts] == [5.0]


def explosion(*values: float) -> list[tuple[int, int]]:
    rule = make_rule("gradient_explosion", {"factor": 50.0, "window": 64, "warm_up": 4})
    return steps_seen(rule, "grad_norm", [4.0, 1.0, 2.0, 2.0, *values])


def test_gradients_explode_beyond_a_factor_of_their_median() -> None:
    assert explosion(99.9, 99.9) == []
    assert explosion(100.1, 100.1) == [(6, 5)]
    assert explosion(100.1, 1.0, 1.0, 1.0, 100.1) == [(9, 5)]
    assert explosion(100.1, 1.0, 1.0, 1.0, 1.0, 100.1) == []
    assert explosion(100.1, 0.0, math.inf, math.nan, -1.0, 100.1) == [(10, 5)]
    assert explosion(499.0) == []
    assert explosion(501.0) == [(5, 5)]
    for values, expected in (([50.0] * 2, []), ([50.1] * 2, [(6, 5)]), ([250.0], []), ([250.1], [(5, 5)])):
        rule = make_rule("gradient_explosion", {"warm_up": 4})
        assert steps_seen(rule, "grad_norm", [*[1.0] * 4, *values]) == expected
    rule = make_rule("gradient_explosion", {"warm_up": 4})
    late = [*[0.0] * 10, 4.0, 1.0, 2.0, 2.0, 100.1, 1.0, 1.0, 1.0, 1.0, 100.1]
    assert steps_seen(rule, "grad_norm", late) == []
    rule = make_rule("gradient_explosion", {"warm_up": 4})
    (alert,) = seen(rule, "grad_norm", [4.0, 1.0, 2.0, 2.0, 1000.0])
    assert alert.message == "the gradient norm is 1000, 500 times its median of 2"
    assert (alert.bound, alert.fields) == (pytest.approx(100.0), {"median": pytest.approx(2.0)})


def test_the_factor_itself_enters_the_window_for_a_gradient_beyond_it() -> None:
    rule = make_rule("gradient_explosion", {"factor": 50.0, "window": 32, "warm_up": 4})
    alerts = seen(rule, "grad_norm", [4.0, 1.0, 2.0, 2.0, *[1e6] * 29])
    assert alerts[-1].fields["median"] == pytest.approx(100.0)


DEFAULTS: dict[str, dict[str, Any]] = {
    "threshold": {"metric": "loss", "above": None, "below": None, "times": 1},
    "overload": {"temperature": 95.0, "memory": None, "utilization": None, "secs": 60.0},
    "nonfinite": {"metrics": ("loss", "grad_norm"), "patience": 1},
    "overflow_streak": {"steps": 30},
    "spike": {"metric": "loss", "factor": 12.0, "window": 300, "warm_up": 100, "reach": 3.0},
    "gradient_explosion": {"factor": 50.0, "window": 300, "warm_up": 100},
    "gradient_vanishing": {"below": 1e-9, "steps": 50},
    "divergence": {"metric": "loss", "share": 0.5, "window": 460, "mode": "falling"},
    "not_improving": {"metric": "loss", "patience": 10_000, "min_delta": 0.0, "mode": "min"},
    "throughput_drop": {"ratio": 0.5, "secs": 60.0, "warm_up": 2},
    "memory_trend": {"limit": None, "hours": 24.0, "warm_up": 50, "limits": None},
}


@pytest.mark.parametrize("name", rule_names())
def test_what_a_rule_takes_where_nothing_is_said(name: str) -> None:
    parameters = inspect.signature(find_rule(name)).parameters
    assert {key: parameter.default for key, parameter in parameters.items()} == DEFAULTS[name]


def test_what_a_point_and_a_level_are_where_nothing_is_said() -> None:
    assert Observation(1, {}, 0.0) == Observation(1, {}, 0.0, 0.0, 1, None, 0, None)
    assert not Level(first=1.0, best=1.0, step=1).is_known


def test_every_name_has_a_class_that_knows_it() -> None:
    with pytest.raises(KeyError):
        find_rule("no such rule")
    assert find_rule("spike").name == "spike"


def test_values_that_are_all_zero_have_no_spike() -> None:
    """There is nothing by which to measure how far one is off; another rule sees it if it stays."""
    assert steps_seen(make_rule("spike", {}), "loss", [0.0] * 300 + [1e6] * 5) == []
