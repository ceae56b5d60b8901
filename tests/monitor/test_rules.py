"""The rules of alarms, with numbers that are made up for them: no clock, no file, no training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.monitor.alarms.rules.rule import Observation, Rule, make_rule, rule_names
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.config import DEFAULT_ALERTS

NAN = math.nan


def show(rule: Rule, points: Iterable[Mapping[str, Any]]) -> list[Alert]:
    """Shows points to a rule, one each step and second where they do not say otherwise; returns its alerts."""
    alerts = []
    for number, given in enumerate(points, start=1):
        given = dict(given)
        known = {
            name: given.pop(name)
            for name in ("step", "steps", "overflow", "monotonic", "epoch", "rank")
            if name in given
        }
        point = Observation(values=given, **{"step": number, "monotonic": float(number), **known})
        found = rule.observe(point)
        if found is not None:
            assert_says_everything(found, rule, point)
            alerts.append(found)
    return alerts


def assert_says_everything(alert: Alert, rule: Rule, point: Observation) -> None:
    """An alert says which value was past which bound, where, since when, what that means and what to look at."""
    assert alert.rule == rule.name
    assert alert.metric
    assert alert.message
    assert alert.advice
    assert "\n" not in alert.message + alert.advice
    assert alert.value is not None
    assert (alert.bound is None) == (rule.name == "nonfinite"), "a value that is no number is past no bound"
    assert (alert.step, alert.rank) == (point.step, point.rank)
    assert alert.first_step <= alert.step


def losses(values: Iterable[float]) -> list[dict[str, float]]:
    return [{"loss": float(value)} for value in values]


def test_each_rule_can_be_made_without_arguments_and_says_what_it_looks_at() -> None:
    for name in rule_names():
        rule = make_rule(name, {})
        assert rule.name == name
        assert rule.metrics
        assert rule.observe(Observation(step=1, values={}, monotonic=0.0)) is None
    assert set(DEFAULT_ALERTS) <= set(rule_names())


# ------------------------------------------------------------------ bounds


def test_a_threshold_is_passed_so_many_times_in_a_row() -> None:
    rule = make_rule("threshold", {"metric": "loss", "above": 5.0, "times": 3})
    (alert,) = show(rule, losses([6, 6, 1, 6, 6, 6, 1]))
    assert (alert.step, alert.first_step, alert.value, alert.bound) == (6, 4, 6.0, 5.0)
    assert alert.message == "loss is 6, above 5, 3 times in a row"
    (alert,) = show(make_rule("threshold", {"metric": "mfu", "below": 0.3}), [{"mfu": 0.4}, {"mfu": 0.2}])
    assert alert.message == "mfu is 0.2, below 0.3"


def test_a_device_is_overloaded_when_it_lasts() -> None:
    rule = make_rule("overload", {"temperature": 90.0, "secs": 30.0})
    hot = [{"temperature": 91.0, "monotonic": 10.0 * n} for n in range(3)]
    cool = [{"temperature": 80.0, "monotonic": 30.0}]
    again = [{"temperature": 95.0, "monotonic": 40.0 + 10.0 * n} for n in range(4)]
    (alert,) = show(rule, [*hot, *cool, *again])
    assert (alert.metric, alert.value, alert.bound, alert.severity) == ("temperature", 95.0, 90.0, "critical")
    assert alert.fields["secs"] == 30.0
    assert alert.first_step == 5


def test_memory_and_use_of_a_device_have_bounds_of_their_own() -> None:
    rule = make_rule("overload", {"temperature": None, "memory": 60_000.0, "utilization": 99.0, "secs": 0.0})
    assert [alert.metric for alert in show(rule, [{"npu_memory": 61_000.0}, {"gpu_utilization": 100.0}])] == [
        "npu_memory",
        "gpu_utilization",
    ]
    assert show(rule, [{"temperature": 200.0}]) == []


# ------------------------------------------------------------------ numbers


@pytest.mark.parametrize("value", [NAN, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_said_at_its_step(value: float) -> None:
    (alert,) = show(make_rule("nonfinite", {}), losses([1.0, 2.0, value, 1.0]))
    assert (alert.step, alert.metric, alert.severity) == (3, "loss", "critical")


def test_nan_with_patience_is_said_once_it_has_lasted() -> None:
    """B26, true divergence."""
    rows = [(2.0, 1.0), (NAN, NAN), (NAN, NAN), (NAN, NAN)]
    rule = make_rule("nonfinite", {"patience": 3})
    (alert,) = show(rule, [{"loss": loss, "grad_norm": norm, "overflow": False} for loss, norm in rows])
    assert (alert.step, alert.first_step) == (4, 2)
    assert alert.message == "loss is NaN since step 2"


def test_a_skipped_step_is_no_nan() -> None:
    """B26, skipped steps: neither the losses nor the norms of steps that overflowed say anything."""
    rows = [
        (9.1, True, math.inf),
        (9.1, True, NAN),
        (9.0, True, None),
        (8.9, False, 3.2),
        (8.8, False, 3.1),
        (NAN, True, NAN),
        (8.7, False, 3.0),
    ]
    points = [
        {"loss": loss, "overflow": skipped, **({} if norm is None else {"grad_norm": norm})}
        for loss, skipped, norm in rows
    ]
    for name in ("nonfinite", "overflow_streak", "spike", "gradient_explosion"):
        assert show(make_rule(name, {}), points) == []


def test_endless_overflow_is_said_once_the_streak_is_long_enough() -> None:
    """B26."""
    alerts = show(make_rule("overflow_streak", {"steps": 50}), [{"overflow": True}] * 200)
    assert (alerts[0].step, alerts[0].first_step, alerts[0].value) == (50, 1, 50.0)
    broken = [{"overflow": n % 40 != 0} for n in range(1, 400)]
    assert show(make_rule("overflow_streak", {"steps": 50}), broken) == []
    assert show(make_rule("overflow_streak", {"steps": 50}), losses([1.0] * 100)) == []


def test_gradients_vanish_when_they_stay_at_nothing() -> None:
    rule = make_rule("gradient_vanishing", {"below": 1e-8, "steps": 10})
    norms = [1.0] * 5 + [1e-12] * 9 + [1.0] + [0.0] * 10
    (alert,) = show(rule, [{"grad_norm": norm} for norm in norms])
    assert (alert.step, alert.first_step, alert.value) == (25, 16, 0.0)


# ------------------------------------------------------------------ jumps


EACH = {"reach": 0}  # each jump, however far the training has been before


def noisy(seed: int, count: int, level: float = 2.0, spread: float = 0.05) -> np.ndarray[Any, np.dtype[np.float64]]:
    return level + spread * np.random.default_rng(seed).standard_normal(count)


@pytest.mark.parametrize("level", [2.0, 0.0, -3.0, 1e-6, 1e6])
def test_a_spike_is_seen_whatever_the_sign_and_scale_of_a_loss(level: float) -> None:
    spread = 0.05 * (abs(level) or 1.0)
    series = noisy(1, 400, level, spread)
    series[300:303] += 30 * spread
    alerts = show(make_rule("spike", EACH), losses(series))
    assert alerts
    assert (alerts[0].step, alerts[0].first_step) == (302, 301)
    assert alerts[0].bound is not None
    assert alerts[0].value is not None
    assert alerts[0].value > alerts[0].bound


def test_one_enormous_value_is_enough_and_one_bad_batch_is_not() -> None:
    series = noisy(2, 400)
    series[250] = 2.0 + 30 * 0.05
    assert show(make_rule("spike", EACH), losses(series)) == []
    series[300] = 50.0
    (alert,) = show(make_rule("spike", EACH), losses(series))
    assert alert.step == 301


def test_nothing_is_said_before_there_is_anything_to_compare_with() -> None:
    assert show(make_rule("spike", EACH), losses([1.0, 1000.0, 1.0, 5000.0] * 20)) == []


def test_a_nan_never_poisons_the_window() -> None:
    series = noisy(3, 600)
    series[100:400:3] = NAN
    series[200] = math.inf
    series[500:503] = 5.0
    alerts = show(make_rule("spike", EACH), losses(series))
    assert [alert.step for alert in alerts][:1] == [502]
    assert all(math.isfinite(alert.fields["median"]) for alert in alerts)


def test_a_loss_of_zeros_is_judged_by_its_other_steps() -> None:
    """A hinge loss is zero in most steps: its median absolute deviation is zero, and yet nothing is wrong."""
    random = np.random.default_rng(4)
    series = np.where(random.random(5000) < 0.7, 0.0, random.random(5000))
    assert show(make_rule("spike", EACH), losses(series)) == []
    assert show(make_rule("spike", EACH), losses([0.0] * 1000)) == []


def test_a_new_level_is_learned() -> None:
    series = np.concatenate([noisy(5, 400), noisy(6, 1000, level=8.0)])
    steps = [alert.step for alert in show(make_rule("spike", EACH), losses(series))]
    assert steps
    assert max(steps) < 1000


def test_a_jump_that_is_no_farther_than_the_training_has_been_is_no_spike() -> None:
    falling = 0.5 + 2.5 * np.exp(-np.arange(2000) / 300) + 0.02 * np.random.default_rng(3).standard_normal(2000)
    falling[1000:1100] += 2.0
    assert show(make_rule("spike", EACH), losses(falling)), "far out of the noise"
    assert show(make_rule("spike", {}), losses(falling)) == [], "a curriculum begins anew"
    falling[1500:] = 40.0
    assert show(make_rule("spike", {}), losses(falling))[0].step in (1501, 1502)


def test_gradients_explode_by_their_own_measure() -> None:
    norms = np.exp(0.4 * np.random.default_rng(7).standard_normal(500))
    norms[300:302] = 100.0
    (alert,) = show(make_rule("gradient_explosion", {}), [{"grad_norm": float(norm)} for norm in norms])
    assert (alert.step, alert.first_step) == (302, 301)
    norms[400] = 1e9
    assert [
        alert.step for alert in show(make_rule("gradient_explosion", {}), [{"grad_norm": float(n)} for n in norms])
    ][-1] == 401
    norms[400] = 1e300
    (*_, alert) = show(make_rule("gradient_explosion", {}), [{"grad_norm": float(n)} for n in norms])
    assert len(alert.message) < 80  # not all 300 digits


# ------------------------------------------------------------------ the way of a loss


def test_a_loss_that_stands_still() -> None:
    falling = 2.0 + 8.0 / np.sqrt(np.arange(1, 3001))
    assert show(make_rule("not_improving", {"patience": 1000}), losses(falling)) == []
    still = np.concatenate([falling, noisy(8, 3000, level=float(falling[-1]))])
    alerts = show(make_rule("not_improving", {"patience": 1000}), losses(still))
    assert alerts
    assert 3900 <= alerts[0].step <= 6000
    more = show(make_rule("not_improving", {"patience": 1000, "mode": "max"}), losses(-still))
    assert [alert.step for alert in more] == [alert.step for alert in alerts]


def test_a_loss_that_creeps_up_over_night() -> None:
    falling = 2.0 + 8.0 / np.sqrt(np.arange(1, 5001)) + 0.05 * np.random.default_rng(9).standard_normal(5000)
    rising = falling[-1] + np.linspace(0.0, 8.0, 20_000) + 0.05 * np.random.default_rng(10).standard_normal(20_000)
    series = losses(np.concatenate([falling, rising]))
    assert show(make_rule("spike", EACH), series) == []  # it is too slow for a spike
    alerts = show(make_rule("divergence", {}), series)
    assert alerts
    assert alerts[0].step < 15_000
    assert abs(alerts[0].first_step - 5000) < 600
    assert show(make_rule("divergence", {}), losses(noisy(11, 20_000))) == []  # what never fell


# ------------------------------------------------------------------ speed and memory


def steps_of(*parts: tuple[int, float]) -> list[dict[str, float]]:
    """Returns points of `count` steps that take `secs` each, one part after the other."""
    now, points = 0.0, []
    for count, secs in parts:
        for _ in range(count):
            now += secs
            points.append({"step_time": secs, "monotonic": now})
    return points


@pytest.mark.parametrize("secs", [0.001, 0.2, 5.0, 90.0])
def test_a_throughput_drop_to_a_third_is_seen_within_one_window(secs: float) -> None:
    healthy = round(max(1200.0, 40 * secs) / secs)
    slow = max(4, round(600.0 / secs / 3))
    points = steps_of((healthy, secs), (slow, 3 * secs))
    alerts = show(make_rule("throughput_drop", {"secs": 60.0}), points)
    assert alerts
    fell = points[healthy - 1]["monotonic"]
    reported = points[alerts[0].step - 1]["monotonic"] - fell
    assert 0 < reported <= max(60.0, 2 * 3 * secs)  # of very long steps, two
    assert alerts[0].metric == "steps_per_second"
    assert alerts[0].fields["usual"] == pytest.approx(1 / secs, rel=0.01)


@pytest.mark.parametrize(("hours", "noise"), [(6.0, 0.1), (24.0, 0.3)])
def test_a_throughput_that_creeps_to_a_third_is_seen(hours: float, noise: float) -> None:
    random = np.random.default_rng(5)
    rule = make_rule("throughput_drop", {})
    now, step, found = 0.0, 0, []
    while now < (hours + 1) * 3600:
        secs = float(1 + 2 * min(1.0, now / (hours * 3600))) * math.exp(noise * random.standard_normal())
        now, step = now + secs, step + 1
        alert = rule.observe(Observation(step=step, values={"step_time": secs}, monotonic=now))
        if alert is not None:
            found.append((now, alert))
    assert found
    first, alert = found[0]
    assert first < (hours + 0.5) * 3600
    assert alert.fields["usual"] > 0.9, "what it was before"
    steady = [(20_000, 1.0), (1000, 1.5), (20_000, 1.0)]
    assert show(make_rule("throughput_drop", {}), steps_of(*steady)) == []


def test_a_speed_that_is_meant_is_learned_in_the_end() -> None:
    alerts = show(make_rule("throughput_drop", {}), steps_of((10_000, 1.0), (20_000, 3.0)))
    assert alerts
    assert alerts[-1].step < 14_000


def test_steps_that_come_several_at_a_time_count_as_so_many() -> None:
    points = [{"step_time": 0.5, "steps": 100, "step": 100 * n} for n in range(1, 60)]
    points += [{"step_time": 1.6, "steps": 100, "step": 5900 + 100 * n} for n in range(1, 3)]
    assert [alert.step for alert in show(make_rule("throughput_drop", {}), points)][:1] == [6000]


def test_a_device_that_idles_while_steps_go_on() -> None:
    points = [{"npu_utilization": 90.0 + n % 5} for n in range(20)] + [{"npu_utilization": 20.0}] * 3
    (alert,) = show(make_rule("throughput_drop", {}), points)[:1]
    assert (alert.metric, alert.value) == ("npu_utilization", 20.0)
    peaks = [{"npu_utilization": 0.0 if n % 4 == 0 else 95.0} for n in range(200)]
    assert show(make_rule("throughput_drop", {}), peaks) == []


def memory(growth: float, count: int, *, noise: float = 20.0, seed: int = 1) -> list[dict[str, float]]:
    """Returns samples of every 30 s and 100 steps."""
    random = np.random.default_rng(seed)
    values = 20_000 + growth * np.arange(count) + noise * random.standard_normal(count)
    return [
        {"memory_usage": float(value), "step": 100 * n, "monotonic": 30.0 * n}
        for n, value in enumerate(values, start=1)
    ]


def test_a_slow_leak_is_predicted_before_the_bound() -> None:
    """10 MiB each sample, which is 0.1 each step: 30,000 MiB are reached at step 100,000."""
    rule = make_rule("memory_trend", {"limit": 30_000.0, "hours": 24.0})
    alerts = show(rule, memory(10.0, 900))
    first = alerts[0]
    assert first.step < 20_000
    assert first.value is not None
    assert first.value < 25_000
    assert first.step + first.fields["steps_left"] == pytest.approx(100_000, rel=0.1)
    assert first.fields["hours_left"] == pytest.approx((100_000 - first.step) * 0.3 / 3600, rel=0.1)
    assert first.fields["mib_per_step"] == pytest.approx(0.1, rel=0.15)
    last = alerts[-1]
    assert last.step + last.fields["steps_left"] == pytest.approx(100_000, rel=0.05)


@pytest.mark.parametrize("seed", range(10))
def test_memory_that_is_noisy_or_comes_to_rest_is_no_leak(seed: int) -> None:
    def rule() -> Rule:
        return make_rule("memory_trend", {"limit": 30_000.0, "hours": 1000.0})

    assert show(rule(), memory(0.0, 3000, noise=200.0, seed=seed)) == []
    filling = memory(0.0, 3000, seed=seed)
    for number, point in enumerate(filling):
        point["memory_usage"] += 5000 * (1 - math.exp(-number / 10))  # caches fill in the first minutes
    assert show(rule(), filling) == []
    sawtooth = memory(0.0, 3000, seed=seed)
    for number, point in enumerate(sawtooth):
        point["memory_usage"] += 100 * (number % 20)
    assert show(rule(), sawtooth) == []


@pytest.mark.parametrize("interval", [10.0, 30.0, 60.0])
def test_memory_that_fills_within_5_minutes_is_seen_before(interval: float) -> None:
    points = [
        {"memory_usage": 3000 + 29_000 * interval * n / 300, "step": 10 * n, "monotonic": interval * n}
        for n in range(1, int(300 / interval) + 1)
    ]
    alerts = show(make_rule("memory_trend", {"limit": 32_000.0}), points)
    assert alerts
    assert alerts[0].severity == "critical"
    assert alerts[0].value is not None
    assert alerts[0].value < 0.85 * 32_000
    assert alerts[0].fields["hours_left"] * 3600 < 300


def test_what_fills_at_the_beginning_and_comes_to_rest_is_no_leak() -> None:
    def filling(top: float, secs: float) -> list[dict[str, float]]:
        return [
            {"memory_usage": top * min(1.0, 30.0 * n / secs), "step": 10 * n, "monotonic": 30.0 * n}
            for n in range(1, 200)
        ]

    for top, secs in ((12_000.0, 300.0), (20_000.0, 60.0), (30_000.0, 90.0)):
        assert show(make_rule("memory_trend", {"limit": 32_000.0}), filling(top, secs)) == []


def test_without_a_limit_nothing_can_be_predicted() -> None:
    assert show(make_rule("memory_trend", {}), memory(50.0, 500)) == []
    alerts = show(make_rule("memory_trend", {"limits": {"memory_usage": 40_000.0}}), memory(50.0, 500))
    assert alerts


# ------------------------------------------------------------------ what each alert says

ALARMING: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "threshold": ({"metric": "loss", "above": 5.0}, losses([6.0])),
    "overload": ({"secs": 1.0}, [{"temperature": 99.0}] * 2),
    "nonfinite": ({}, losses([NAN])),
    "overflow_streak": ({"steps": 2}, [{"overflow": True}] * 2),
    "spike": ({}, losses([*noisy(2, 400), 19.0, 19.0])),
    "gradient_explosion": ({}, [{"grad_norm": norm} for norm in (*noisy(2, 400), 900.0, 900.0)]),
    "gradient_vanishing": ({"steps": 2}, [{"grad_norm": 0.0}] * 2),
    "divergence": ({}, losses([*np.linspace(9.0, 1.0, 5000), *np.linspace(1.0, 9.0, 5000)])),
    "not_improving": ({"patience": 1000}, losses([*np.linspace(9.0, 1.0, 3000), *noisy(8, 3000, level=1.0)])),
    "throughput_drop": ({}, steps_of((6000, 0.2), (1000, 0.6))),
    "memory_trend": ({"limit": 30_000.0}, memory(10.0, 900)),
}


@pytest.mark.parametrize("name", rule_names())
def test_each_alert_says_what_where_and_what_to_look_at(name: str) -> None:
    params, points = ALARMING[name]
    assert show(make_rule(name, params), [{**point, "rank": 3} for point in points])  # which looks at each of them


# ------------------------------------------------------------------ what is well


def healthy(seed: int, count: int) -> list[dict[str, float]]:
    """Returns a training as they are: a falling loss with outliers of heavy tails, norms, times, memory."""
    random = np.random.default_rng(seed)
    step = np.arange(count)
    level = 1.5 + 9.0 / np.sqrt(1 + step / 50)
    loss = level * (1 + 0.03 * random.standard_t(5, count))
    if seed % 3 == 0:
        loss -= 5.0  # below zero on its way
    if seed % 3 == 1:
        loss += 0.3 * np.abs(np.sin(step / 3000))  # the learning rate goes up and down
    norm = np.exp(0.5 * random.standard_normal(count)) * (1 + 5 / np.sqrt(1 + step / 100))
    secs = 0.2 * np.exp(0.2 * random.standard_normal(count))
    secs[random.random(count) < 0.001] += 5.0  # somebody else used the disk
    memory_mib = 20_000 + 2000 * (1 - np.exp(-step / 300)) + 100 * random.standard_normal(count)
    now = np.cumsum(secs)
    return [
        {
            "loss": float(loss[n]),
            "grad_norm": float(norm[n]),
            "step_time": float(secs[n]),
            "memory_usage": float(memory_mib[n]),
            "temperature": 70.0,
            "monotonic": float(now[n]),
            "overflow": False,
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_training_of_100_000_steps_raises_no_alarm(seed: int) -> None:
    points = healthy(seed, 100_000)
    rules = [
        make_rule(name, {"limits": {"memory_usage": 60_000.0}} if name == "memory_trend" else {})
        for name in DEFAULT_ALERTS
    ]
    alerts = []
    for number, given in enumerate(points, start=1):
        monotonic, overflow = given.pop("monotonic"), bool(given.pop("overflow"))
        point = Observation(step=number, values=given, monotonic=monotonic, overflow=overflow)
        for rule in rules:
            found = rule.observe(point)
            if found is not None:
                alerts.append(found.headline())
    assert alerts == []
