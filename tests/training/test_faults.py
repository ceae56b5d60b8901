"""What is said once."""

from __future__ import annotations

from ms_summary_bridge.training.faults import Once


def test_each_kind_is_said_once_and_not_without_end() -> None:
    said: list[str] = []
    once = Once(said.append, most=3)
    told = [("disk", "full"), ("disk", "still full"), ("a line", ""), ("a line", ""), ("x", "y"), ("z", "")]
    for kind, message in told:
        once(kind, message)
    assert said == ["full", "a line", "y"]
