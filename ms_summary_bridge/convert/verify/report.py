"""What a comparison of two logs found."""

from __future__ import annotations

import msgspec

from ms_summary_bridge.runs.report import DamagedRange, IncompleteTail

__all__ = ["Difference", "RunComparison", "VerifyReport"]


class Difference(msgspec.Struct):
    """One series that is not the same on both sides."""

    kind: str
    """Of its values; `file` where the bytes of an output file are not those that were written."""
    tag: str
    points_a: int
    points_b: int
    detail: str


class RunComparison(msgspec.Struct):
    """One pair of runs."""

    run_a: str
    run_b: str
    series: int
    """Tags and kinds compared, and names under which something is shown that was made from them."""
    points: int
    """Points that are equal on both sides."""
    differences: list[Difference]
    not_compared: int = 0
    """Points that only one of the formats can have: kinds that a live TensorBoard file does not hold, and what users
    wrote for TensorBoard alone."""
    derived: int = 0
    """Values that a conversion made from others (drawings, tables, statistics, approximations), compared with what it
    would make now, and equal."""
    derived_by_older: int = 0
    """The same, but made by an older version of the rules, so that only their number was compared."""


class VerifyReport(msgspec.Struct):
    """The result of one comparison."""

    a: str
    b: str
    runs: list[RunComparison] = msgspec.field(default_factory=list)
    only_a: list[str] = msgspec.field(default_factory=list)
    """Runs without a counterpart in `b`."""
    only_b: list[str] = msgspec.field(default_factory=list)
    left_out: list[str] = msgspec.field(default_factory=list)
    """Runs that a conversion from one side to the other does not take, since they are in its target's format."""
    options: str = ""
    """Options of the conversion that leave something out: what they leave out is not missed."""
    damaged: list[DamagedRange] = msgspec.field(default_factory=list)
    incomplete: list[IncompleteTail] = msgspec.field(default_factory=list)
    unreadable: list[str] = msgspec.field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        """Whether no difference was found."""
        return not self.only_a and not self.only_b and not any(run.differences for run in self.runs)
