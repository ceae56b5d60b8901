"""Where the time of a training goes, and how long each step takes.

Layer: errors < **monitor.breakdown**. Its clock is handed in.

MindSpore calls back when a step begins, after its data has come, and when it has ended. So the time from one end to
the next beginning is spent waiting for data, and from there to the end computing, but for what other callbacks take of
both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["KINDS", "Breakdown", "TimedCall", "describe"]

KINDS: Final = {
    "data": "waiting for data",
    "compute": "computing",
    "callbacks": "in callbacks",
    "checkpoint": "saving checkpoints",
    "evaluation": "evaluating",
    "compile": "in the first step, which compiles",
    "other": "between epochs",
}
"""Parts of a training, and how they are called."""

_NOT_TRAINING: Final = ("checkpoint", "evaluation")


class TimedCall(Protocol):
    """What `settle` fills in: seconds of a call and of its waiting for data; None where they cannot be known."""

    secs: float | None
    data_secs: float | None


_Call = TypeVar("_Call", bound=TimedCall)


class Breakdown(Generic[_Call]):
    """Adds up the parts of a training and times its steps.

    What happens is only noted, and dealt with by `settle`, for many steps at once.

    Args:
        clock: Monotonic seconds.
        tells_beginnings: Whether `begin_step` is called. Without it what lies between two ends is computing, but for
            what `spend` says of it.
    """

    def __init__(self, clock: Callable[[], float], *, tells_beginnings: bool = True) -> None:
        self._clock = clock
        self._between = "data" if tells_beginnings else "compute"
        self._notes: list[tuple[str, float, _Call | None]] = []
        self.secs: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        """Seconds of each part since the training began, up to the last `settle`."""
        self._phase = "other"
        self._since: float | None = None
        self._spent = 0.0  # by others, in this phase
        self._spent_ever = 0.0
        self._mark: float | None = None  # where the step that runs began
        self._excluded = 0.0  # since the mark
        self._data: float | None = None  # of the step that runs
        self._is_compiled = False

    def begin_step(self, now: float) -> None:
        """A step begins at `now`: its data is there."""
        self._notes.append(("begin", now, None))

    def end_step(self, now: float, call: _Call) -> None:
        """A step, or a call of several, has ended at `now`."""
        self._notes.append(("end", now, call))

    def pause(self, now: float) -> None:
        """What follows belongs to no step, until `resume` or the next step begins."""
        self._notes.append(("pause", now, None))

    def resume(self, now: float) -> None:
        """An epoch begins: what follows comes before its first step."""
        self._notes.append(("resume", now, None))

    def spend(self, kind: str, secs: float) -> None:
        """Counts seconds of another part inside the phase that runs; evaluation and saving belong to no step."""
        secs = max(0.0, secs)
        self._spent_ever += secs
        self._notes.append((kind, secs, None))

    @contextlib.contextmanager
    def spending(self, kind: str) -> Iterator[None]:
        """Counts what runs inside; parts within are not counted twice."""
        begin, before = self._clock(), self._spent_ever
        try:
            yield
        finally:
            self.spend(kind, self._clock() - begin - (self._spent_ever - before))

    def settle(self) -> list[_Call]:
        """Deals with all that was noted; returns the calls that have ended, with their times."""
        notes, self._notes = self._notes, []
        calls = []
        for what, number, call in notes:
            if call is not None:
                self._end(number, call)
                calls.append(call)
            elif what == "begin":
                self._begin(number)
            elif what == "pause":
                self._turn(number, "other")
                self._mark = None
            elif what == "resume":
                self._turn(number, self._between if self._is_compiled or self._between == "data" else "compile")
                self._mark, self._excluded = number, 0.0
            else:
                self._spend(what, number)
        return calls

    def _turn(self, now: float, phase: str) -> float:
        """Ends a phase and begins another; returns the seconds of the one that ended."""
        secs = 0.0
        if self._since is not None:
            secs = max(0.0, now - self._since - self._spent)
            self.secs[self._phase] += secs
        self._phase, self._since, self._spent = phase, now, 0.0
        return secs

    def _begin(self, now: float) -> None:
        was_waiting = self._phase == "data"
        secs = self._turn(now, "compute" if self._is_compiled else "compile")
        self._data = secs if was_waiting else None
        if self._mark is None:
            self._mark, self._excluded, self._data = now, 0.0, None

    def _end(self, now: float, call: _Call) -> None:
        self._turn(now, self._between)
        mark, self._mark = self._mark, now
        excluded, self._excluded = self._excluded, 0.0
        data, self._data = self._data, None
        is_compiled, self._is_compiled = self._is_compiled, True
        if is_compiled and mark is not None and now - mark - excluded > 0:
            call.secs, call.data_secs = now - mark - excluded, data

    def _spend(self, kind: str, secs: float) -> None:
        self.secs[kind] += secs
        self._spent += secs
        if kind == "data":
            self._data = (self._data or 0.0) + secs
        if kind in _NOT_TRAINING:
            self._excluded += secs


def describe(secs: dict[str, float]) -> str:
    """Returns the verdict in words: each part of at least one per cent, the largest first."""
    total = sum(secs.values())
    if total <= 0:
        return "no step was timed"
    shares = sorted(((part / total, kind) for kind, part in secs.items()), reverse=True)
    shown = [f"{share:.0%} {KINDS[kind]}".replace("%", " %") for share, kind in shares if share >= 0.01]
    return ", ".join(shown)
