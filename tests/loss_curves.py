"""Losses as trainings have them: healthy ones, of which nobody wants to hear, and those that go wrong.

A bad one ends at least 50 % above its best for 500 steps; a healthy one is never there for two blocks of some hundred.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Curve = np.ndarray[Any, np.dtype[np.float64]]


def fall(first: float, last: float, steps: float, count: int) -> Curve:
    """Falls from one level to another, exponentially."""
    return last + (first - last) * np.exp(-np.arange(count) / steps)


def noisy(curve: Sequence[float] | Curve, spread: float, seed: int = 0) -> Curve:
    values = np.asarray(curve, float)
    return values + spread * np.random.default_rng(seed).standard_normal(len(values))


def scattered(curve: Curve, spread: float, seed: int = 0) -> Curve:
    """Noise in proportion, as small batches have it."""
    return curve * np.exp(spread * np.random.default_rng(seed).standard_normal(len(curve)))


def joined(*parts: Curve) -> Curve:
    return np.concatenate(parts)


def flat(level: float, count: int, spread: float, seed: int) -> Curve:
    return noisy(np.full(count, level), spread, seed)


def restarts(jump: float, steps: float, seed: int) -> Curve:
    """The learning rate begins anew every 2,500 steps."""
    at = np.arange(15_000)
    return noisy(fall(4, 1, 2000, 15_000) + np.where(at > 2500, jump * np.exp(-(at % 2500) / steps), 0), 0.05, seed)


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def healthy() -> dict[str, Curve]:
    """Returns healthy losses by what they are."""
    at = np.arange(20_000)
    language = 2 + 9 * np.exp(-np.arange(10_000) / 1500)
    curves = {
        f"noise in proportion {spread}": scattered(fall(11, 2, 1500, 12_000), spread, 1)
        for spread in (0, 0.02, 0.1, 0.3, 0.6, 0.9)
    }
    curves |= {f"noise {spread}": noisy(fall(7, 1.5, 800, 12_000), spread, 2) for spread in (0.01, 0.1, 0.5, 1.0)}
    curves |= {
        f"warm-up to {high} at {middle}": noisy(
            fall(low, low / 5, 1500, 6000) + (high - low) * np.exp(-(((np.arange(6000) - middle) / (middle / 2)) ** 2)),
            0.05,
            3,
        )
        for low, high, middle in ((2.3, 4.0, 40), (2.3, 8.0, 75), (2.3, 3.5, 125), (10.8, 25.0, 80))
    }
    curves |= {
        f"restarts {jump} {steps}": restarts(jump, steps, 5)
        for jump, steps in ((1, 100), (2, 100), (3, 120), (0.4, 3000), (1.5, 150), (5, 60))
    }
    for jump in (1.0, 3.0, 6.0):
        later = [noisy(0.6 + jump * np.exp(-np.arange(3000) / 130), 0.05, 7 + number) for number in range(4)]
        curves[f"curriculum {jump}"] = joined(noisy(fall(3, 0.6, 400, 3000), 0.05, 6), *later)
    tasks = np.array([0.3, 1.0, 3.0])[random(19).integers(0, 3, 12_000)]
    third = np.array([0.8, 1.0, 1.2])[(np.arange(12_000) // 100) % 3]
    return curves | {
        "D04 fall": noisy(language, 0.05, 3),
        "D04 heavy noise": scattered(language, 0.8, 3),
        "D04 stairs": noisy(np.repeat([3, 2.2, 1.8, 1.6, 1.5], 4000), 0.03, 3),
        "D04 constant": np.full(20_000, 2.0),
        "D04 sparse": (random(4).random(20_000) < 0.02).astype(float),
        "D04 waves": noisy(2 + 0.3 * np.sin(at / 500), 0.03, 3),
        "contrastive": noisy(fall(2, -8, 1500, 12_000), 0.3, 8),
        "log-likelihood": noisy(fall(50, -200, 2500, 20_000), 10, 9),
        "log-likelihood, heavy tails": -200 - 30 * random(10).standard_t(2.5, 20_000),
        "through zero": noisy(fall(3, -0.2, 2000, 15_000), 0.15, 11),
        "near zero": np.abs(noisy(fall(2.3, 0, 700, 15_000), 0.02, 12)),
        "nearer to zero": scattered(fall(2.3, 1e-5, 900, 15_000), 0.5, 13),
        "to zero": scattered(2.3 * np.exp(-np.arange(15_000) / 700), 0.3, 14),
        "around zero": random(15).standard_normal(20_000),
        "little gained": 0.1 * np.exp(-at / 500) + 0.5 * random(16).standard_normal(20_000),
        "accumulation": noisy(fall(9, 2, 1200, 12_000), 0.05, 18) * (1 + 0.6 * (np.arange(12_000) % 16) / 16),
        "accumulation, small": noisy(fall(9, 2, 1200, 12_000), 0.05, 18) + 0.4 * (np.arange(12_000) % 8) / 8,
        "several tasks": noisy(fall(6, 1, 1000, 12_000) * tasks, 0.05, 20),
        "several tasks in turn": noisy(fall(6, 1, 1000, 12_000) * third, 0.03, 20),
        "hinge": np.where(random(21).random(20_000) < 0.5, 0, random(22).random(20_000)),
        "right or wrong": (random(23).random(20_000) < 0.5).astype(float),
        "rarely wrong": 3.0 * (random(24).random(20_000) < 0.1),
        "heavy tails": 1 + random(25).pareto(1.5, 20_000),
        "slow waves": noisy(2 + 0.4 * np.sin(at / 300), 0.05, 27),
        "epochs": noisy(fall(5, 1, 3000, 20_000) * (1 + 0.25 * (1 - (at % 1000) / 1000)), 0.05, 28),
        "plateau, then a fall": joined(flat(2.3, 5000, 0.02, 29), noisy(fall(2.3, 0.1, 500, 5000), 0.05, 30)),
        "short": noisy(fall(2.3, 0.5, 80, 300), 0.1, 31),
        "a third above its best": noisy(joined(fall(5, 1, 800, 6000), np.linspace(1, 1.3, 10_000)), 0.05, 32),
        "a spike that recovers": joined(
            noisy(fall(5, 1, 800, 4000), 0.03, 33), noisy(1 + 8 * np.exp(-np.arange(4000) / 60), 0.03, 34)
        ),
        "outliers": np.where(random(35).random(20_000) < 0.002, 50.0, noisy(fall(5, 1, 800, 20_000), 0.1, 36)),
        "resumed": flat(2.0, 8000, 0.2, 37),
        "resumed with a bump": noisy(2 + 1.5 * np.exp(-np.arange(8000) / 100), 0.1, 38),
        "perplexity": np.exp(noisy(fall(9, 3, 1500, 12_000), 0.1, 39)),
        "slow noise": 2 + np.convolve(random(40).standard_normal(20_099), np.ones(100) / 100, "valid"),
        "large": noisy(fall(1e6, 1e5, 800, 9000), 5e3, 41),
        "tiny": noisy(fall(1e-4, 1e-6, 800, 9000), 1e-8, 42),
    }


def bad() -> dict[str, tuple[Curve, int]]:
    """Returns losses that go wrong by how they do, and the step by which it must be said."""
    language = 2 + 9 * np.exp(-np.arange(10_000) / 1500)
    base = noisy(fall(11, 2, 1500, 8000), 0.05, 50)
    contrast, likelihood = noisy(fall(2, -8, 1500, 8000), 0.3, 55), noisy(fall(50, -200, 2500, 12_000), 10, 9)
    small = np.abs(noisy(fall(2.3, 0.02, 700, 8000), 0.005, 12))
    curves: dict[str, tuple[Curve, int]] = {
        "D04 explodes at 60": (noisy([1.0] * 60 + [1000.0] * 1440, 0.02, 3), 130),
        "D04 bad rate": (noisy(joined(np.linspace(2.3, 50, 90), np.full(2000, 50.0)), 0.05, 3), 400),
        "D04 2 to 6": (noisy(joined(language, np.linspace(2, 6, 5000), np.full(5000, 6.0)), 0.05, 3), 15_000),
        "D04 2 to 4": (noisy(joined(language, np.linspace(2, 4, 1000), np.full(9000, 4.0)), 0.05, 3), 12_000),
        "D04 2 to 5": (noisy(joined(language, np.linspace(2, 5, 20_000)), 0.05, 3), 30_000),
        "D04 resumed": (noisy(joined(np.full(2000, 2.0), np.linspace(2, 6, 5000), np.full(5000, 6.0)), 0.05, 3), 7000),
        "contrastive": (joined(contrast, noisy(np.linspace(-8, -3, 3000), 0.3, 56), flat(-3, 800, 0.3, 57)), 11_800),
        "contrastive, above zero": (joined(contrast, flat(1, 900, 0.3, 57)), 8500),
        "log-likelihood": (joined(likelihood, flat(-80, 800, 10, 58)), 12_600),
        "near zero": (joined(small, flat(1, 800, 0.05, 59)), 8500),
        "nearer to zero": (joined(small, flat(0.2, 800, 0.02, 59)), 8500),
        "back to its beginning": (joined(noisy(fall(2.3, 0.4, 500, 3000), 0.1, 60), flat(2.3, 700, 0.02, 61)), 3500),
        "up from the start": (noisy(joined(np.linspace(2.3, 6, 300), np.full(900, 6.0)), 0.1, 62), 1200),
        "up from the start, noise": (scattered(joined(np.linspace(2.3, 9, 300), np.full(900, 9.0)), 0.4, 62), 1200),
        "a spike, then a plateau": (joined(base, noisy(4.5 + 20 * np.exp(-np.arange(900) / 30), 0.1, 64)), 8500),
        "a fast fall": (joined(noisy(fall(2.3, 0.5, 60, 400), 0.03, 65), flat(1.2, 700, 0.05, 66)), 900),
        "no rest at its best": (
            joined(
                noisy(fall(5, 1, 150, 1000), 0.03, 67), noisy(np.linspace(1, 2, 600), 0.03, 68), flat(2, 600, 0.03, 69)
            ),
            2200,
        ),
        "60 % above for 500 steps": (joined(base, flat(3.2, 500, 0.05, 70)), 8500),
    }
    curves |= {
        f"plateau x{factor}": (joined(base, flat(2 * factor, 1500, 0.05, 51)), 8500) for factor in (1.6, 2, 3, 5, 20)
    }
    curves |= {
        f"{rate} each step": (joined(base, noisy(2 + rate * np.arange(count), 0.05, 52)), 8000 + int(1.2 / rate) + 500)
        for rate, count in ((4e-4, 10_000), (1e-4, 30_000), (2e-3, 3000))
    }
    for begin in (20, 40, 70, 100, 130, 200, 290, 300, 350, 500, 1000, 3000):
        before = noisy(fall(2.3, 1, 300, begin), 0.03, 53)
        for factor in (3, 30, 1e4):
            after = flat(2.3 * factor, 900, 0.05 * factor, 54)
            curves[f"explodes at {begin} x{factor}"] = joined(before, after), begin + 500
    for begin in (60, 150, 400):
        before = noisy(fall(2.3, 1, 300, begin), 0.03, 53)
        curves[f"doubles from {begin}"] = joined(before, before[-1] * np.exp(np.arange(700) / 60)), begin + 500
    for spread, factor in ((0.1, 3), (0.3, 3), (0.6, 3), (0.1, 2), (0.3, 2)):
        curve = scattered(joined(fall(11, 2, 1500, 8000), np.full(800, 2.0 * factor)), spread, 63)
        curves[f"noise {spread} x{factor}"] = curve, 8700
    return curves
