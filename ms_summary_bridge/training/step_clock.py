"""Where the time of a training goes, and how long each step takes.

Its clock is handed in.

MindSpore calls back when a step begins, after its data has come, and when it has ended. So the time from one end to
the next beginning is spent waiting for data, and from there to the end computing, but for what other callbacks take of
both. Where no beginning is told, all of it is computing but for what `spend` says. The seconds of a step are those from
the end of the one before, or from the beginning of an epoch, without evaluation and the saving of checkpoints. The
first step compiles and is not timed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from ms_summary_bridge.training.phases import KINDS

__all__ = ["NOT_TRAINING", "Call", "EndedStep", "StepClock", "describe"]

NOT_TRAINING: Final = ("checkpoint", "evaluation")
"""Parts that are left out of the time of a step, and so of all rates."""


EndedStep = tuple[int, int, "int | None", "int | None", "int | None"]


class Call(msgspec.Struct):
    """A call of the training network that was timed.

    Attributes:
        ended: What is known of it: its last step over all epochs and sessions, how many steps it stands for, its epoch
            from 1, and samples and tokens over all cards where they differ from the training's own.
        monotonic: When it ended.
        secs: Seconds of it; None where they cannot be known.
        data_secs: Seconds of these in which it waited for data; None as well.
        breaks: How many evaluations and savings there were before it, and their seconds, by kind.
        waited: Seconds in which the training waited for data, from its beginning to the end of this call.
        elapsed: All seconds of the training up to there.
        read: What was read of it: the loss alone, a `measures.StepOutputs`, or None.
    """

    ended: EndedStep
    monotonic: float
    secs: float | None = None
    data_secs: float | None = None
    breaks: Mapping[str, tuple[int, float]] = {}
    waited: float = 0.0
    elapsed: float = 0.0
    read: Any = None


class StepClock:
    """Adds up the parts of a training and times its steps.

    What happens is only noted, by the training thread. `settle` deals with many notes at once, and may be called by
    any thread. The clock gives monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.notes: deque[tuple[str, float, Any]] = deque()
        """What waits for `settle`."""
        self.note = self.notes.append
        """Takes what happened, when, and what belongs to it. One callback of a training says `start`: a step begins,
        or `begin`, with what was read of the step before, and `end` with an `EndedStep`. Another one beside it says
        `told` with its own `EndedStep`, and `read` with what it read. A part of the training comes with its seconds."""
        self.read_calls: deque[Call] | None = None
        """Calls that were settled and read, for one that reads them and takes them out; None while there is nobody."""
        self.ended_calls: deque[Call] | None = None
        """Calls that were settled, read or not, for another one that takes them out; None while there is nobody."""
        self.secs: dict[str, float] = dict.fromkeys(KINDS, 0.0)
        """Seconds of each part since the training began, up to the last `settle`."""
        self._lock = threading.RLock()  # a signal's handler may settle inside of it
        self._elapsed = 0.0  # all of `secs`
        self._breaks: Mapping[str, tuple[int, float]] = {}  # replaced by each break
        self._phase = "other"
        self._since: float | None = None
        self._spent = 0.0  # by others, in this phase
        self.spent_ever = 0.0
        """What `spend` was told of in all, in seconds: who times something takes off what was spent inside it."""
        self._mark: float | None = None  # where the step that runs began
        self._excluded = 0.0  # since the mark
        self._data: float | None = None  # of the step that runs
        self._is_compiled = False
        self._tells_beginnings = False
        self._unread: deque[Call] = deque()  # ended, and to be read

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

    def settle(self) -> None:
        """Deals with all that was noted: parts are added up, calls are timed and handed on."""
        take_next = self.notes.popleft
        with self._lock, contextlib.suppress(IndexError):  # the end
            while True:
                what, number, content = take_next()
                if what == "end":
                    self._end(number, content)
                elif what == "start":
                    self._begin(number)
                elif what == "begin":
                    self._read(content)
                    self._begin(number)
                elif what == "read":
                    self._read(content)
                else:
                    self._take(what, number, content)

    def _read(self, content: Any) -> None:
        if self._unread and self.read_calls is not None:
            call = self._unread.popleft()
            call.read = content
            self.read_calls.append(call)

    def _take(self, what: str, number: float, content: Any) -> None:
        if what == "told":
            if self._unread:  # its reader is behind the others: the one before was read by now
                newest = msgspec.structs.replace(self._unread[-1], ended=content)
                self._unread = deque((newest,))
        elif what == "pause":
            if not self._tells_beginnings:
                self._was_computing()
            self._turn(number, "other")
            self._mark = None
        elif what == "resume":
            self._turn(number, "data")
            self._mark, self._excluded = number, 0.0
        else:
            self._spend(what, number)

    def _was_computing(self) -> None:
        """What was taken for waiting was computing: nobody said when the step began."""
        if self._phase == "data":
            self._phase = "compute" if self._is_compiled else "compile"

    def _turn(self, now: float, phase: str) -> float:
        """Ends a phase and begins another; returns the seconds of the one that ended."""
        secs = 0.0
        if self._since is not None:
            secs = max(0.0, now - self._since - self._spent)
            self.secs[self._phase] += secs
            self._elapsed += secs
        self._phase, self._since, self._spent = phase, now, 0.0
        return secs

    def _begin(self, now: float) -> None:
        self._tells_beginnings = True
        was_waiting = self._phase == "data"
        secs = self._turn(now, "compute" if self._is_compiled else "compile")
        self._data = secs if was_waiting else None
        if self._mark is None:
            self._mark, self._excluded, self._data = now, 0.0, None

    def _end(self, now: float, content: Any) -> None:
        self._was_computing()
        self._turn(now, "data")
        mark, self._mark = self._mark, now
        excluded, self._excluded = self._excluded, 0.0
        data, self._data = self._data, None
        is_compiled, self._is_compiled = self._is_compiled, True
        call = Call(content, now, waited=self.secs["data"], elapsed=self._elapsed, breaks=self._breaks)
        if is_compiled and mark is not None and now - mark - excluded > 0:
            call.secs, call.data_secs = now - mark - excluded, data
        if self.read_calls is not None:
            self._unread.append(call)
        if self.ended_calls is not None:
            self.ended_calls.append(call)

    def _spend(self, kind: str, secs: float) -> None:
        self.secs[kind] += secs
        self._elapsed += secs
        self._spent += secs
        if kind == "data":
            self._data = (self._data or 0.0) + secs
        if kind in NOT_TRAINING:
            self._excluded += secs
            count, before = self._breaks.get(kind, (0, 0.0))
            self._breaks = {**self._breaks, kind: (count + 1, before + secs)}


def describe(secs: dict[str, float]) -> str:
    """Returns the verdict in words: each part of at least one per cent, the largest first."""
    total = sum(secs.values())
    if total <= 0:
        return "no step was timed"
    shares = sorted(((part / total, kind) for kind, part in secs.items()), reverse=True)
    shown = [f"{share:.0%} {KINDS[kind]}".replace("%", " %") for share, kind in shares if share >= 0.01]
    return ", ".join(shown)
