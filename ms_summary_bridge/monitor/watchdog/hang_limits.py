"""Decides when a training that shows no sign of life hangs: how long each phase may last, learned as it goes.

Reads no clock.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Final

import msgspec

from ms_summary_bridge.monitor.model.config import WatchdogConfig
from ms_summary_bridge.monitor.watchdog.collective_limits import has_own_limit
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat

__all__ = ["Hang", "HangDetector", "Near", "Recovery"]

_KEPT: Final = 512  # calls whose times are kept
_FEW: Final = 5  # with fewer the median says nothing yet
_LONGEST_FACTOR: Final = 2.0  # what has lasted this long and gone well may last twice as long
_BELOW: Final = 0.9  # of the time that a collective allows: a hang is told before the job is ended
_NEAR: Final = 0.75  # of it: what takes so long is told, before it is a hang
_LIMITS: Final = {
    "evaluation": "evaluation_limit",
    "checkpoint": "checkpoint_limit",
    "callbacks": "callback_limit",
    "other": "callback_limit",
}
_ASLEEP_POLLS: Final = 10
_ASLEEP_SECS: Final = 10.0


class Hang(msgspec.Struct, frozen=True):
    """A training that hangs.

    `age` is seconds since its last beat, without those in which the machine slept; `limit` is what was allowed.
    """

    beat: Beat
    age: float
    limit: float


class Recovery(msgspec.Struct, frozen=True):
    """A training that was reported and goes on.

    `secs` is how long it stood still.
    """

    beat: Beat
    secs: float


class Near(msgspec.Struct, frozen=True):
    """What one rank does takes so long that the others, if they wait for it in a collective, will soon be ended.

    `age` is as in `Hang`, and `collective_secs` what they are given.
    """

    beat: Beat
    age: float
    collective_secs: float


class HangDetector:
    """Looks at one beat after the other, and says each hang once and each recovery once.

    Time counts as it passes for the observer. Where it was itself not running for much longer than it wanted to wait
    (a laptop that slept, a machine that was frozen), and while the training is stopped on purpose (Ctrl-Z, a
    debugger), nothing is learned about the training: its whole limit begins anew.

    `poll_secs` is how often `observe` is meant to be called.
    """

    def __init__(self, config: WatchdogConfig, poll_secs: float) -> None:
        self._config = config
        self._asleep_secs = max(_ASLEEP_POLLS * poll_secs, _ASLEEP_SECS)
        self.collective_secs = math.inf
        """Seconds after which a rank that waits for another in a collective is ended; of several ranks on Ascend."""
        self._is_near = False
        self._beat: Beat | None = None
        self._now = 0.0
        self._age = 0.0
        self._is_reported = False
        self._longest: dict[str, float] = {}
        self._calls = 0
        self._called: float | None = None  # when the last call ended; None where the time since then is not one
        self._call_secs: deque[float] = deque(maxlen=_KEPT)
        self._first_secs = 0.0

    def observe(self, now: float, beat: Beat, *, is_stopped: bool = False) -> Hang | Near | Recovery | None:
        """Looks at a training."""
        gap, self._now = now - self._now, now
        last = self._beat
        if last is None:
            self._begin(beat)
            return None
        is_blind = is_stopped or gap > self._asleep_secs
        if is_blind:
            self._called = None
        if beat != last:
            return self._go_on(last, beat, None if is_blind else gap)
        if not is_blind:
            self._age += gap
        elif not self._is_reported:
            self._age = 0.0
        limit = self.limit(last)
        if self._is_reported or self._age <= limit:
            return self._look_near(last)
        self._is_reported = True
        return Hang(last, self._age, limit)

    def _look_near(self, beat: Beat) -> Near | None:
        """Says once of each beat, which is no step of all ranks, that it nears what a collective allows."""
        is_own = beat.phase in _LIMITS or (beat.calls == 0 and beat.phase not in ("start", "end"))
        if self._is_near or self._is_reported or not is_own or self._age <= _NEAR * self.collective_secs:
            return None
        self._is_near = True
        return Near(beat, self._age, self.collective_secs)

    def _begin(self, beat: Beat) -> None:
        self._beat, self._called, self._calls = beat, beat.monotonic, beat.calls
        self._age = max(0.0, self._now - beat.monotonic)

    def _go_on(self, last: Beat, beat: Beat, gap: float | None) -> Recovery | None:
        """Takes a new beat, `gap` seconds after the last look; None where that is not known."""
        age = 0.0 if gap is None else min(gap, max(0.0, self._now - beat.monotonic))
        secs = self._age + (gap or 0.0) - age
        if last.calls:
            self._longest[last.phase] = max(self._longest.get(last.phase, 0.0), secs)
        if beat.calls > self._calls:
            if self._called is not None:
                call_secs = max(0.0, beat.monotonic - self._called) / (beat.calls - self._calls)
                if self._calls == 0:
                    self._first_secs = call_secs
                else:
                    self._call_secs.append(call_secs)
            self._calls, self._called = beat.calls, None if gap is None else beat.monotonic
        self._beat = beat
        self._age = age
        self._is_near = False
        is_reported, self._is_reported = self._is_reported, False
        return Recovery(beat, secs) if is_reported else None

    def limit(self, beat: Beat) -> float:
        """Returns how many seconds may pass after a beat until the next."""
        config = self._config
        if beat.phase == "end":
            return math.inf
        least = self._limit_of(_LIMITS[beat.phase]) if beat.phase in _LIMITS else 0.0
        if beat.calls == 0:  # starting data workers, loading, compiling: all that comes once
            return max(least, config.compile_limit if beat.phase == "start" else self._limit_of("compile_limit"))
        if least == 0.0:
            median = statistics.median(self._call_secs or (0.0,))
            below = math.inf if has_own_limit(config, "floor") else _BELOW * self.collective_secs
            # A call may be a sink of many steps, none of which waits so long.
            least = max(min(max(config.floor, config.factor * median), below), _LONGEST_FACTOR * median)
            if len(self._call_secs) < _FEW:  # the first was one as well
                least = max(least, self._first_secs)
        return max(least, _LONGEST_FACTOR * self._longest.get(beat.phase, 0.0))

    def _limit_of(self, name: str) -> float:
        """Returns a limit of the configuration, by default below what a collective allows.

        Not where a hang is killed: ranks that all evaluate or compile at once wait for nobody, however long it takes.
        """
        limit = float(getattr(self._config, name))
        is_kept = self._config.action == "kill" or has_own_limit(self._config, name)
        return limit if is_kept else min(limit, _BELOW * self.collective_secs)
