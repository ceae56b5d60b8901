"""A default configuration alarms on each loss that goes wrong, in time, and on none that is well."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.monitor.alarms.earlier import read_level
from ms_summary_bridge.monitor.alarms.rules.rule import Level, Observation, make_rule
from ms_summary_bridge.monitor.config.file import load_config
from tests.loss_curves import Curve, bad, fall, flat, healthy, joined, noisy
from tests.monitor_run import Engine, strict_lines

HEALTHY, BAD = healthy(), bad()
ABOUT_LOSSES = ("nonfinite", "spike", "divergence", "not_improving")


def first_alarm(curve: Iterable[float], **divergence: Any) -> tuple[int, str] | None:
    """Returns step and message of the first alarm that the default rules raise of a loss."""
    alerts = load_config({"alerts": [{"rule": "divergence", **divergence}] if divergence else True}).alerts
    rules = [make_rule(alert.rule, alert.params) for alert in alerts if alert.rule in ABOUT_LOSSES]
    assert len(rules) == 3
    for step, value in enumerate(curve, start=1):
        point = Observation(step=step, values={"loss": float(value)}, monotonic=float(step))
        for rule in rules:
            found = rule.observe(point)
            if found is not None:
                return step, f"{found.rule}: {found.message}"
    return None


def test_there_are_curves_enough() -> None:
    assert len(HEALTHY) >= 50
    assert len(BAD) >= 60


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_loss_raises_no_alarm(name: str) -> None:
    assert first_alarm(HEALTHY[name]) is None


@pytest.mark.parametrize("name", BAD)
def test_a_loss_that_goes_wrong_is_told_in_time(name: str) -> None:
    curve, by = BAD[name]
    found = first_alarm(curve)
    assert found is not None
    assert found[0] <= by, found


@pytest.mark.parametrize("every", [5, 37])
def test_steps_that_are_skipped_or_nan_count_for_nothing(every: int) -> None:
    rule = make_rule("divergence", {})
    curve = noisy(fall(9, 2, 1200, 6000), 0.1, 17)
    for step, value in enumerate(curve, start=1):
        is_skipped = step % every == 0
        number = math.inf if step % 2 else 1e30
        values = {"loss": number if is_skipped else float(value)}
        assert rule.observe(Observation(step=step, values=values, monotonic=float(step), overflow=is_skipped)) is None


def test_in_data_sink_mode_a_value_stands_for_many_steps() -> None:
    rule, found = make_rule("divergence", {}), []
    curve = joined(noisy(fall(9, 2, 100, 800), 0.05, 1), flat(5, 200, 0.05, 2))
    for number, value in enumerate(curve, start=1):
        alert = rule.observe(
            Observation(step=100 * number, values={"loss": float(value)}, monotonic=float(number), steps=100)
        )
        found += [alert] if alert is not None else []
    assert found
    assert 80_000 < found[0].step < 90_000


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_swings_by_nature_has_a_mode_of_its_own(seed: int) -> None:
    at = np.arange(20_000)
    random = np.random.default_rng(seed)
    swinging = noisy(2 + 1.5 * np.sin(at / 400 + seed) * (1 + 0.3 * random.standard_normal(20_000)), 0.3, seed)
    assert first_alarm(swinging) is not None, "by default it is one that has gone wrong"
    assert first_alarm(swinging, mode="oscillating") is None
    worse = joined(swinging[:10_000], flat(40, 1500, 2, seed))
    found = first_alarm(worse, mode="oscillating")
    assert found is not None
    assert 10_000 < found[0] <= 10_500


def test_what_an_alarm_says() -> None:
    found = first_alarm(BAD["plateau x2"][0])
    assert found is not None
    assert found[1].startswith("divergence: loss has risen to 3.9")
    assert "and stays there; its best level was 2.0" in found[1]


# ------------------------------------------------------------------ over restarts


def level(*, is_known: bool) -> Level:
    return Level(first=11.0, best=2.0, step=900, is_known=is_known)


@pytest.mark.parametrize(
    ("begins_at", "is_known", "is_bad"),
    [
        (3.5, True, True),  # the optimizer's state was lost
        (3.5, False, True),  # nearer to what the run had reached than to its beginning
        (11.0, True, True),  # the wrong checkpoint
        (11.0, False, False),  # a training from scratch in the same run
        (2.05, True, False),
        (2.05, False, False),
    ],
)
def test_a_resumed_run_is_judged_by_its_best(begins_at: float, is_known: bool, is_bad: bool) -> None:
    rule = make_rule("divergence", {})
    rule.recall(level(is_known=is_known))
    steps = []
    for step, value in enumerate(flat(begins_at, 1000, 0.05, 4), start=901):
        alert = rule.observe(Observation(step=step, values={"loss": float(value)}, monotonic=float(step)))
        steps += [step] if alert is not None else []
    assert bool(steps) == is_bad
    if is_bad:
        assert steps[0] <= 901 + 500


def train(directory: Path, curve: Curve, *, initial_step: int = 0) -> list[dict[str, Any]]:
    """Trains with a default configuration but for a sample every 100 s; returns the journal."""
    engine = Engine(directory, interval=100, metrics=["loss"]).begin(initial_step=initial_step)
    for step, value in enumerate(curve, start=initial_step + 1):
        engine.step(step, outputs=float(value), epoch=1)
        if step % 500 == 0:
            assert engine.recorder.flush()
    engine.recorder.end()
    return strict_lines(engine.directory / "rank_0")


def alarms(lines: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(line["rule"], line["step"]) for line in lines if line["kind"] == "alert" and line["metric"] == "loss"]


def test_the_best_of_a_run_is_read_from_its_journal(tmp_path: Path) -> None:
    first = train(tmp_path, noisy(fall(11, 2, 300, 2500), 0.05, 1))
    assert alarms(first) == []
    found = read_level(str(tmp_path / "default" / "run" / "rank_0"), "loss")
    assert found is not None
    assert found.best == pytest.approx(2.0, abs=0.1)
    assert found.first > 8
    assert not found.is_known
    again = train(tmp_path, flat(3.5, 1000, 0.05, 2), initial_step=2500)
    rule, step = alarms(again)[0]
    assert rule == "divergence"
    assert step <= 3000
    # From scratch in the same run: the old best says nothing of it.
    assert alarms(train(tmp_path, noisy(fall(11, 6, 300, 1500), 0.05, 3))) == alarms(again)


def test_what_came_after_the_loaded_checkpoint_counts_no_more(tmp_path: Path) -> None:
    train(tmp_path, noisy(fall(11, 2, 300, 2500), 0.05, 1))
    rank = str(tmp_path / "default" / "run" / "rank_0")
    found = read_level(rank, "loss", initial_step=500)
    assert found is not None
    assert found.is_known
    assert 3 < found.best < 5
    assert found.step <= 500
    assert read_level(rank, "loss", initial_step=50) is None
    assert read_level(rank, "accuracy") is None
    assert read_level(str(tmp_path / "nothing"), "loss") is None
