"""Where the time of a training goes, and how long each step takes.

Its clock is handed in.

MindSpore calls back when a step begins, after its data has come, and when it has ended. So the time from one end to
the next beginning is spent waiting for data, and from there to the end computing, but for what other callbacks take of
both.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from ms_summary_bridge.monitor.model.phases import KINDS

__all__ = ["Breakdown", "Call", "EndedStep", "describe"]

_NOT_TRAINING: Final = ("checkpoint", "evaluation")


EndedStep = tuple[int, int, "int | None", "int | None", "int | None"]


class Call(msgspec.Struct):
    """A call of the training network that was timed.

    Attributes:
        ended: What is known of it: its last step over all epochs and sessions, how many steps it stands for, its epoch
            from 1, and samples and tokens over all cards where they differ from the training's own.
        read: What was read of it: the loss alone, a `step_reader.Reading`, or None.
        monotonic: When it ended.
        secs: Seconds of it; None where they cannot be known.
        data_secs: Seconds of these in which it waited for data; None as well.
    """

    ended: EndedStep
    monotonic: float
    secs: float | None = None
    data_secs: float | None = None
    read: Any = None


class Breakdown:
    """Adds up the parts of a training and times its steps.

    What happens is only noted, by the training thread. `settle` deals with many notes at once, and may be called by
    another thread, though by one at a time.

    Args:
        clock: Monotonic seconds.
        tells_beginnings: Whether the beginnings of steps are noted. Without it what lies between two ends is computing,
            but for what `spend` says of it.
    """

    def __init__(self, clock: Callable[[], float], *, tells_beginnings: bool = True) -> None:
        self.clock = clock
        self._between = "data" if tells_beginnings else "compute"
        self.notes: deque[tuple[str, float, Any]] = deque()
        """What waits for `settle`."""
        self.note = self.notes.append
        """Takes what happened, when, and what belongs to it: `begin` or `read` with what was read of the step before,
        `end` with what is known of the step, or a part of the training with its seconds."""
        self.secs: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        """Seconds of each part since the training began, up to the last `settle`."""
        self._phase = "other"
        self._since: float | None = None
        self._spent = 0.0  # by others, in this phase
        self.spent_ever = 0.0
        """What `spend` was told of in all, in seconds: who times something takes off what was spent inside it."""
        self._mark: float | None = None  # where the step that runs began
        self._excluded = 0.0  # since the mark
        self._data: float | None = None  # of the step that runs
        self._is_compiled = False
        self._call: Call | None = None  # the one that ended last, not read yet

    def clear(self) -> int:
        """Forgets what waits; returns how many steps were among it."""
        steps = 0
        with contextlib.suppress(IndexError):  # the end
            while True:
                what, _, content = self.notes.popleft()
                steps += content[1] if what == "end" else 0
        return steps

    def pause(self, now: float) -> None:
        """What follows belongs to no step, until `resume` or the next step begins."""
        self.note(("pause", now, None))

    def resume(self, now: float) -> None:
        """An epoch begins: what follows comes before its first step."""
        self.note(("resume", now, None))

    def spend(self, kind: str, secs: float) -> None:
        """Counts seconds of another part inside the phase that runs; evaluation and saving belong to no step."""
        secs = max(0.0, secs)
        self.spent_ever += secs
        self.note((kind, secs, None))

    @contextlib.contextmanager
    def spending(self, kind: str) -> Iterator[None]:
        """Counts what runs inside; parts within are not counted twice."""
        begin, before = self.clock(), self.spent_ever
        try:
            yield
        finally:
            self.spend(kind, self.clock() - begin - (self.spent_ever - before))

    def settle(self, leaves: Callable[[Any], bool] | None = None) -> Iterator[Call]:
        """Deals with all that was noted; yields each call that has ended and was read.

        Args:
            leaves: Is asked of what `begin_step`, or `read`, was given; with True it ends before that.
        """
        notes = self.notes
        while True:
            try:
                if leaves is not None and notes[0][0] in ("begin", "read") and leaves(notes[0][2]):
                    return
                what, number, content = notes.popleft()
            except IndexError:  # the end
                return
            if what == "end":
                self._end(number, content)
                continue
            if what == "begin":
                self._begin(number)
            elif what == "pause":
                self._turn(number, "other")
                self._mark = None
            elif what == "resume":
                self._turn(number, self._between if self._is_compiled or self._between == "data" else "compile")
                self._mark, self._excluded = number, 0.0
            elif what != "read":
                self._spend(what, number)
                continue
            if what in ("begin", "read") and self._call is not None:
                call, self._call = self._call, None
                call.read = content
                yield call

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

    def _end(self, now: float, content: Any) -> None:
        self._turn(now, self._between)
        mark, self._mark = self._mark, now
        excluded, self._excluded = self._excluded, 0.0
        data, self._data = self._data, None
        is_compiled, self._is_compiled = self._is_compiled, True
        self._call = call = Call(content, now)
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
