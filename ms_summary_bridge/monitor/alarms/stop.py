"""How all ranks of a training agree to stop after the same step.

A rank that stops alone leaves the others in a collective call for ever. They agree through files in the run's
directory, which they share, and not through a collective: one more collective call beside those of the network can
itself hang, when a rank is in another call at that time, and none works where the communication is what has failed.

One rank proposes a step that lies ahead. Every rank that sees the proposal acknowledges it with the step that it has
done by then. Nobody waits before the proposed step, so all can come there; there each waits, outside of any
collective, until all acknowledgements are readable. If each of them is of a step not past the proposed one, all stop.
If one saw the proposal too late, all go on, and the next proposal lies farther ahead. After `patience` without the
others all go on as well, since one may wait in a collective for the rest. The second time the rank that wants to stop
gives up the agreement: it ends its process alone, and the launcher ends the others.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

from ms_summary_bridge.errors import NOT_JSON
from ms_summary_bridge.files.atomic import create_file, replace_file
from ms_summary_bridge.files.waiting import wait_for

__all__ = ["StopAgreement", "Verdict"]

Verdict = Literal["go", "stop", "leave"]
"""`go`: train on. `stop`: all ranks stop after this step. `leave`: the others do not answer, this one ends alone."""

_DIRECTORY: Final = ".stop"
_LOOK_SECS: Final = 0.2  # longest time between two looks at the directory
_LOOK_SHARE: Final = 100  # times what a look takes must lie between two: a look at a shared disk is not free
_POLL_SECS: Final = 0.02
_LEAD_SECS: Final = 1.0  # how far ahead of now a proposal lies, and
_LEAST_LEAD: Final = 2  # at least so many steps
_FARTHER: Final = 4  # times, after each proposal that came too late
_MAX_PROPOSALS: Final = 5
_MAX_TIMEOUTS: Final = 2
_OLD_SECS: Final = 30.0  # a proposal from so long before the beginning is of another session


class StopAgreement:
    """One rank's part. `poll` is called by the training thread: after each step, or of one rank once it wants to stop.

    `patience` is how many seconds it waits for the others at the proposed step.
    """

    def __init__(
        self,
        rank: int,
        ranks: int,
        patience: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rank = rank
        self._ranks = ranks
        self._patience = patience
        self._clock = clock
        self._wall_clock = wall_clock
        self._sleep = sleep
        self._began = wall_clock()
        self._directory: Path | None = None
        self._attempt = 1
        self._target: int | None = None
        self._timeouts = 0
        self._unable_since: float | None = None  # when this rank first could not even propose
        self._looked = -math.inf
        self._gap = 0.0  # seconds between two looks
        self._last: tuple[float, int] | None = None  # the last look, to know how long a step takes
        self._step_secs: float | None = None
        self._reason: str | None = None
        self.reason = ""
        """Why, in the words of the rank that proposed to stop."""
        self.proposer = rank
        """Which rank that was."""

    def open(self, run_directory: str) -> None:
        """Learns where the files are; what an earlier session has left there goes."""
        if self._ranks <= 1:
            return
        directory = Path(run_directory, _DIRECTORY)
        if self._rank == 0:
            shutil.rmtree(directory, ignore_errors=True)
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True)
            for path in directory.glob(f"ack-*-{self._rank}.json"):
                path.unlink()
        self._directory = directory

    @property
    def is_asked(self) -> bool:
        """Whether this rank wants to stop."""
        return self._reason is not None

    def ask(self, reason: str) -> None:
        """This rank wants to stop. May be called by any thread, and again."""
        if self._reason is None:
            self._reason = reason

    def poll(self, step: int) -> Verdict:
        """Returns what to do after a step. Waits, for `patience` at most, only where a stop was proposed."""
        if self._ranks <= 1:
            if self._reason is None:
                return "go"
            self.reason = self._reason
            return "stop"
        now = self._clock()
        if self._target is None:
            if self._reason is None and now - self._looked < self._gap:
                return "go"
            self._measure(now, step)
            self._looked = now
            is_found = self._find_proposal(step)
            self._gap = min(_LOOK_SECS, _LOOK_SHARE * (self._clock() - now))
            if not is_found and self._reason is not None:
                if self._unable_since is None:
                    self._unable_since = now
                return "leave" if now - self._unable_since >= self._patience else "go"
            self._unable_since = None
        if self._target is None or step < self._target:
            return "go"
        return self._conclude(step)

    def _measure(self, now: float, step: int) -> None:
        if self._last is not None and step > self._last[1]:
            self._step_secs = (now - self._last[0]) / (step - self._last[1])
        self._last = (now, step)

    def _find_proposal(self, step: int) -> bool:
        """Takes the proposal that is there, or makes one, and acknowledges it; returns whether there is one."""
        if self._directory is None:
            return False
        name = f"proposal-{self._attempt}.json"
        found = self._read(name)
        if found is None and self._reason is not None and self._step_secs is not None:
            lead = max(_LEAST_LEAD, math.ceil(_LEAD_SECS / max(self._step_secs, 1e-6)))
            lead *= _FARTHER ** (self._attempt - 1)
            proposal = {"step": step + lead, "rank": self._rank, "reason": self._reason}
            self._write(name, proposal, is_new=True)
            found = self._read(name)  # another rank may have been first
        if found is None or found.get("wall_time", 0.0) < self._began - _OLD_SECS:
            return False
        self._target = int(found["step"])
        self.proposer, self.reason = int(found["rank"]), str(found["reason"])
        self._write(f"ack-{self._attempt}-{self._rank}.json", {"step": step})
        return True

    def _conclude(self, step: int) -> Verdict:
        """Waits for all acknowledgements at the proposed step."""
        assert self._target is not None
        target = self._target

        def look() -> Verdict | None:
            acks = [self._read(f"ack-{self._attempt}-{rank}.json") for rank in range(self._ranks)]
            steps = [ack["step"] for ack in acks if ack is not None]
            if max([step, *steps]) > target:
                return "go"  # one of us was past it already
            return "stop" if len(steps) == self._ranks else None

        verdict = wait_for(look, _POLL_SECS, self._patience, clock=self._clock, sleep=self._sleep)
        if verdict == "stop":
            return "stop"
        if verdict is None:
            self._timeouts += 1
            if self._reason is not None and self._timeouts >= _MAX_TIMEOUTS:
                return "leave"
        self._attempt += 1
        self._target = None
        return "leave" if self._reason is not None and self._attempt > _MAX_PROPOSALS else "go"

    def _read(self, name: str) -> dict[str, Any] | None:
        assert self._directory is not None
        try:
            content = json.loads((self._directory / name).read_text(encoding="utf-8"))
        except (OSError, *NOT_JSON):
            return None
        return content if isinstance(content, dict) else None

    def _write(self, name: str, content: dict[str, Any], *, is_new: bool = False) -> None:
        """Writes a file that is whole as soon as it is there; a new one never replaces another's."""
        assert self._directory is not None
        data = json.dumps({**content, "wall_time": self._wall_clock()}).encode()
        with contextlib.suppress(OSError):
            self._directory.mkdir(exist_ok=True)
            (create_file if is_new else replace_file)(str(self._directory / name), data)
