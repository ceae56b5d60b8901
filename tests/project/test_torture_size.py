"""The part `size` of tools/torture in small: each case finds what it looks for, within its bounds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorboard")
sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))

from torturing import size


def test_sizes_at_a_thousandth(tmp_path: Path) -> None:
    rows = size.run(240, tmp_path, 0.001)
    assert [row.details for row in rows] == [[]] * len(size.CASES)
    assert all(row.tried for row in rows)
    assert rows[0].counted == 1, "the record above 1 GiB is damage"
