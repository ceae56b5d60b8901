"""What the page of `watch` shows at the moment, and what each key makes of it. Prints nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from ms_summary_bridge.states.judgement import State
from ms_summary_bridge.states.run_state import RankState, RunState

__all__ = ["HELP", "SORTS", "Row", "WatchView", "make_rows"]

HELP: Final = "q quit  s sort  r reverse  / filter  f state  t ranks  enter open"

_STATES: Final[tuple[State, ...]] = ("non-finite", "failed", "stalled", "running", "unknown", "ended")
_TROUBLE: Final = ("non-finite", "failed", "stalled")
_FILTERS: Final = ("", "trouble", "running", "ended")
_PAGE: Final = 10


class Row(msgspec.Struct, frozen=True):
    """One line of the table: a run, or a rank of it."""

    name: str
    run: RunState
    rank: RankState
    """Whose numbers are shown."""
    is_rank: bool

    @property
    def state(self) -> State:
        """How it is."""
        return self.rank.state if self.is_rank else self.run.state

    @property
    def evidence(self) -> tuple[str, ...]:
        """What that is known by."""
        return self.rank.evidence if self.is_rank else self.run.evidence

    @property
    def step(self) -> int | None:
        """The highest step."""
        return self.rank.step if self.is_rank else self.run.step

    @property
    def last_time(self) -> float:
        """Seconds since the epoch, the newest sign of life."""
        return self.rank.last_time if self.is_rank else self.run.last_time

    @property
    def alarms(self) -> int:
        """How many alarms it has."""
        return sum(1 for one in self.run.alarms if not self.is_rank or one.rank == self.rank.rank)

    @property
    def problems(self) -> tuple[str, ...]:
        """Files that are damaged or empty: told once, with the run."""
        return () if self.is_rank else self.run.problems

    @property
    def is_trouble(self) -> bool:
        """Whether somebody should look."""
        return self.state in _TROUBLE


SORTS: Final[dict[str, Callable[[Row], Any]]] = {
    "state": lambda row: _STATES.index(row.state),
    "name": lambda row: 0,
    "age": lambda row: -row.last_time,
    "step": lambda row: -(row.step if row.step is not None else -1),
    "loss": lambda row: row.rank.loss if row.rank.loss is not None and math.isfinite(row.rank.loss) else math.inf,
    "alarms": lambda row: -row.alarms,
}
"""By what the table can be sorted; rows that are alike stay in the order of their names."""


def make_rows(runs: Sequence[RunState], *, by_rank: bool = False) -> list[Row]:
    """Returns the rows of a table, by name."""
    if not by_rank:
        return [Row(run.name, run, run.main, False) for run in runs]
    return [
        Row(f"{run.name} rank {rank.rank}" if len(run.ranks) > 1 else run.name, run, rank, True)
        for run in runs
        for rank in run.ranks
    ]


class WatchView(msgspec.Struct):
    """What is shown.

    Attributes:
        sort: One of `SORTS`.
        is_reversed: Whether the other way round.
        pattern: What the names are filtered by: a regular expression, or a text where it is none.
        typed: A filter that is being typed; None for none.
        only: `trouble`, `running`, `ended`, or nothing for all.
        by_rank: Whether the table has a row for each rank.
        cursor: Number of the chosen row.
        opened: Name of the run whose page is open; None for the table.
        is_over: Whether it is time to quit.
    """

    sort: str = "state"
    is_reversed: bool = False
    pattern: str = ""
    typed: str | None = None
    only: str = ""
    by_rank: bool = False
    cursor: int = 0
    opened: str | None = None
    is_over: bool = False

    def choose(self, runs: Sequence[RunState]) -> list[Row]:
        """Returns the rows that are shown, in their order; keeps the cursor among them."""
        rows = make_rows(runs, by_rank=self.by_rank)
        pattern = self.pattern if self.typed is None else self.typed
        if pattern:
            try:
                search = re.compile(pattern, re.IGNORECASE).search
            except re.error:  # not typed to its end, or meant as it stands
                search = re.compile(re.escape(pattern), re.IGNORECASE).search
            rows = [row for row in rows if search(row.name)]
        if self.only:
            rows = [row for row in rows if (row.is_trouble if self.only == "trouble" else row.state == self.only)]
        rows.sort(key=SORTS[self.sort])
        if self.is_reversed:
            rows.reverse()
        self.cursor = max(0, min(self.cursor, len(rows) - 1))
        return rows

    def press(self, key: str, runs: Sequence[RunState]) -> None:
        """Takes a key."""
        if self.typed is not None:
            self._type(key)
        elif key == "q":
            self.is_over = True
        elif self.opened is not None:
            self._press_in_run(key)
        else:
            self._press_in_table(key, runs)

    def _type(self, key: str) -> None:
        assert self.typed is not None
        if key == "enter":
            self.pattern, self.typed = self.typed, None
        elif key == "escape":
            self.typed = None
        elif key == "backspace":
            self.typed = self.typed[:-1]
        elif len(key) == 1 and key.isprintable():
            self.typed += key

    def _press_in_run(self, key: str) -> None:
        if key in ("escape", "backspace", "left", "enter"):
            self.opened = None

    def _press_in_table(self, key: str, runs: Sequence[RunState]) -> None:
        moves = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -_PAGE, "page down": _PAGE}
        if key in moves:
            self.cursor += moves[key]
        elif key in ("home", "g"):
            self.cursor = 0
        elif key in ("end", "G"):
            self.cursor = 1 << 62
        elif key in ("enter", "right"):
            rows = self.choose(runs)
            self.opened = rows[self.cursor].run.name if rows else None
        elif key == "s":
            names = list(SORTS)
            self.sort = names[(names.index(self.sort) + 1) % len(names)]
        elif key == "r":
            self.is_reversed = not self.is_reversed
        elif key == "/":
            self.typed = self.pattern
        elif key == "f":
            self.only = _FILTERS[(_FILTERS.index(self.only) + 1) % len(_FILTERS)]
        elif key == "t":
            self.by_rank = not self.by_rank
        elif key == "escape":
            self.pattern = self.only = ""
        self.choose(runs)
