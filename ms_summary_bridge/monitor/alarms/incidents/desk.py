"""Tells the outside of incidents, once for all ranks, on a thread of its own: no training waits for another rank.

Each process has a desk, the watchdogs too. The one that is first takes the incident, gathers the reports of the others
for a short time, and tells; the others leave it to that one, and look whether it does. Where ranks share no directory,
rank 0 tells what it knows, and what it cannot know is told once for each disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ms_summary_bridge.errors import BridgeError, counted
from ms_summary_bridge.files.waiting import within
from ms_summary_bridge.monitor.alarms.actions.message import AlertSource
from ms_summary_bridge.monitor.alarms.actions.runner import ActionRunner
from ms_summary_bridge.monitor.alarms.incidents.board import HOUR_SECS, Board, Claim
from ms_summary_bridge.monitor.alarms.incidents.report import (
    LOST,
    RECOVERED,
    Report,
    incident_key,
    merge_reports,
    reaches_all_ranks,
)
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.training.distributed import rank_directory

__all__ = ["IncidentDesk", "Patience"]

_POLL_SECS: Final = 0.2
_LOOK_SECS: Final = 2.0  # between two looks whether another rank has told
_MOST_WAITS: Final = 3  # until another rank has told, or this one does
_DISK_SECS: Final = 5.0
_TAIL_BYTES: Final = 1 << 16  # read of each journal to find who is to blame
_GROUPS: Final = 4  # of ranks that do the same, told in a message
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Patience:
    """Seconds: to gather reports, the same while the process ends, and until another takes an incident over."""

    gather_secs: float = 5.0
    end_secs: float = 2.0
    takeover_secs: float = 60.0


@dataclass(eq=False)
class _Case:
    """An incident as this process sees it.

    `claim` is None until it is known, and where no directory can be used. `due_at` is when this process tells, or when
    another one that has not told is waited for no more, and `waits` how often it was.
    """

    alert: Alert
    report: Report
    actions: list[ActionConfig]
    claim: Claim | None = None
    is_own: bool = True
    due_at: float = 0.0
    look_at: float = 0.0
    waits: int = 0


class IncidentDesk:
    """Takes alarms of one rank.

    `role` tells a training from its watchdog. `outcome` is told what became of an action, as `ActionRunner` does, and
    `left` which rank tells in the place of this one.
    """

    def __init__(
        self,
        origin: AlertSource,
        board: Board,
        *,
        rank: int,
        role: str,
        outcome: Callable[[ActionConfig, Alert, str], None],
        left: Callable[[ActionConfig, Alert, int], None],
        patience: Patience | None = None,
    ) -> None:
        self._origin = origin
        self._board = board
        self._rank = rank
        self._role = role
        self._outcome = outcome
        self._left = left
        self._patience = patience or Patience()
        self._runner = ActionRunner(origin, self._hear)
        self._incoming: queue.Queue[_Case | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._is_closing = threading.Event()
        self._has_waited = False
        self._sent: dict[int, _Case] = {}  # by the identity of the alarm that was sent
        self._turns: dict[str, deque[float]] = {}  # where the disk does not do

    def tell(self, actions: Sequence[ActionConfig], alert: Alert, report: Report) -> None:
        """Takes an alarm, at once. Called by one thread alone."""
        together = []
        for action in actions:
            if action.is_of_incident:
                together.append(action)
            else:
                self._runner.put(action, alert)
        if together or alert.rule == "hang":  # that it is over is to be known, whoever is told
            self._take(_Case(alert, report, together))

    def adopt(self, actions: Sequence[ActionConfig]) -> None:
        """The training has died: tells of what that was to tell of, and has not."""
        together = [action for action in actions if action.is_of_incident]
        if not together:
            return
        for claim in self._disk(self._board.abandoned) or []:
            reports = self._disk(lambda claim=claim: self._board.reports(claim))  # type: ignore[misc]
            if reports:
                own = next((report for report in reports if report.rank == self._rank), reports[0])
                self._take(_Case(Alert.restore(own.alert), own, together, claim, is_own=False))

    def _take(self, case: _Case) -> None:
        self._incoming.put(case)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ms_summary_bridge incidents", daemon=True)
            self._thread.start()

    def close(self, timeout_secs: float) -> bool:
        """Tells what is to be told, without waiting for others; returns False if that takes too long."""
        deadline = time.monotonic() + timeout_secs
        self._is_closing.set()
        if self._thread is not None:
            self._incoming.put(None)
            self._thread.join(timeout_secs)
        is_done = self._runner.close(max(0.0, deadline - time.monotonic()))
        return is_done and (self._thread is None or not self._thread.is_alive())

    # ------------------------------------------------------------------ on the thread

    def _run(self) -> None:
        cases: list[_Case] = []
        is_last = False
        while cases or not is_last:
            try:
                case = self._incoming.get(timeout=_POLL_SECS if cases else None)
                is_last = is_last or case is None
                if case is not None and self._begin(case):
                    cases.append(case)
            except queue.Empty:
                pass
            if self._is_closing.is_set():
                soon = time.monotonic() + self._patience.end_secs
                cases = [case for case in cases if case.is_own or case.due_at <= time.monotonic()]
                for case in cases:
                    case.due_at = min(case.due_at, soon)
            cases = [case for case in cases if not self._advance(case)]

    def _disk(self, call: Callable[[], _Found]) -> _Found | None:
        """Returns what a call to the disk returns; None where that fails, or takes too long."""

        def attempt() -> _Found | None:
            with contextlib.suppress(OSError, BridgeError):
                return call()
            return None

        return within(_DISK_SECS, attempt)

    def _begin(self, case: _Case) -> bool:
        """Finds whose an incident is; returns whether anything is left to be done."""
        now = time.monotonic()
        if case.claim is not None:  # of the training that has died
            return True
        if self._origin.ranks <= 1:
            self._send(case, [case.report])
            return False
        key = incident_key(case.alert)
        if key == RECOVERED:
            self._disk(lambda: self._board.end(LOST))
        if not case.actions:
            return False
        is_shared = self._rank == 0 or within(_DISK_SECS, self._wait_for_rank_0)
        joined = None
        if is_shared or not reaches_all_ranks(case.alert):
            joined = self._disk(lambda: self._board.join(key, stops=case.report.stops))
        if joined is None:  # each disk, or each rank, for itself
            if self._rank == 0 or not reaches_all_ranks(case.alert):
                self._send(case, [case.report])
            else:
                self._leave(case, 0)
            return False
        case.claim, case.is_own = joined
        self._disk(lambda: self._board.report(joined[0], case.report, self._role))
        if case.is_own:
            case.due_at = now + self._patience.gather_secs
        else:
            case.due_at = now + self._patience.takeover_secs
            self._leave(case, case.claim.rank)
        return True

    def _wait_for_rank_0(self) -> bool:
        """Whether rank 0 has files in this run, for which a short time is given once."""
        place = rank_directory(self._origin.run_directory, 0)
        is_late = self._has_waited or self._is_closing.is_set()
        self._has_waited = True
        until = time.monotonic() + (0.0 if is_late else self._patience.gather_secs)
        while not os.path.isdir(place) and time.monotonic() < until:
            self._is_closing.wait(_POLL_SECS)
        return os.path.isdir(place)

    def _leave(self, case: _Case, rank: int) -> None:
        for action in case.actions:
            self._left(action, case.alert, rank)

    def _advance(self, case: _Case) -> bool:
        """Returns whether a case is done with."""
        now, claim = time.monotonic(), case.claim
        assert claim is not None
        if case.is_own:
            reports = self._disk(lambda: self._board.reports(claim)) or [case.report]
            if now < case.due_at and len({report.rank for report in reports}) < self._origin.ranks:
                return False
            self._send(case, reports)
            return True
        if now < min(case.look_at, case.due_at):
            return False
        case.look_at = now + _LOOK_SECS
        if self._disk(lambda: self._board.is_marked(claim, "told")):
            return True
        if now < case.due_at:
            return False
        case.waits += 1
        case.is_own = bool(self._disk(lambda: self._board.take_over(claim, case.waits)))
        case.due_at = now if case.is_own else now + self._patience.takeover_secs
        return not case.is_own and case.waits >= _MOST_WAITS

    def _send(self, case: _Case, reports: list[Report]) -> None:
        doing, blamed = self._diagnose(case)
        for action in case.actions:
            left_out = self._take_turn(action)
            if left_out is None:
                most = action.webhook.limit if action.webhook is not None else 0
                self._outcome(
                    action, case.alert, f"left out: {counted(most, 'message was', 'messages were')} sent within an hour"
                )
                continue
            alert = merge_reports(reports, doing=doing, blamed=blamed, left_out=left_out)
            self._sent[id(alert)] = case
            self._runner.put(action, alert)

    def _diagnose(self, case: _Case) -> tuple[list[str], list[int]]:
        """Returns what groups of ranks do, and who is to blame, where ranks hang or die."""
        if incident_key(case.alert) != LOST or self._origin.ranks <= 1 or case.claim is None:
            return [], []
        from ms_summary_bridge.diagnose.diagnosis import diagnose_ranks  # here: most processes never need it
        from ms_summary_bridge.diagnose.finding import name_ranks

        found = self._disk(
            lambda: diagnose_ranks(self._origin.run_directory, since=self._board.since, tail_bytes=_TAIL_BYTES)
        )
        if found is None:
            return [], []
        lines = [f"{name_ranks(group.ranks)}: {group.doing}" for group in found.groups]
        lines = lines[:_GROUPS] + (
            [f"{counted(len(lines) - _GROUPS, 'more group')} of ranks"] if len(lines) > _GROUPS else []
        )
        return lines, found.findings[0].ranks if found.findings else []

    def _take_turn(self, action: ActionConfig) -> int | None:
        if action.webhook is None:
            return 0
        most = action.webhook.limit
        name = hashlib.blake2b(repr((action.webhook.url, action.webhook.dialect)).encode(), digest_size=6).hexdigest()
        answer: list[int | None] = self._disk(lambda: [self._board.take_turn(name, most)]) or []
        if answer:
            return answer[0]
        turns, now = self._turns.setdefault(name, deque()), time.monotonic()
        while turns and now - turns[0] > HOUR_SECS:
            turns.popleft()
        if len(turns) >= most:
            return None
        turns.append(now)
        return 0

    def _hear(self, action: ActionConfig, alert: Alert, problem: str) -> None:
        """Is told what became of an action, on its thread."""
        case = self._sent.pop(id(alert), None)
        if case is not None and case.claim is not None and not problem:
            claim = case.claim
            self._disk(lambda: self._board.mark(claim, "told"))
        self._outcome(action, alert if case is None else case.alert, problem)
