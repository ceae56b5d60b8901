"""One process of a training: its files, what they tell, and how it is judged."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

import psutil

from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.monitor.watchdog.heartbeat import find_beat
from ms_summary_bridge.states.event_tail import EventTail
from ms_summary_bridge.states.facts import RankFacts
from ms_summary_bridge.states.journal_tail import JournalTail
from ms_summary_bridge.states.judgement import Evidence, Judgement, Process, judge
from ms_summary_bridge.states.reading import Reading
from ms_summary_bridge.states.run_state import RankState

__all__ = ["Rank"]

_QUIET_SECS: Final = 30.0
_STARTED_SECS: Final = 120.0  # a process began before the file that names it, by the clock of whoever wrote that


class Rank:
    """One process, and the files that it writes.

    Args:
        rank: Its number.

    Attributes:
        events: Its event files.
        journals: The monitor's files of it.
        facts: What is known of it.
        judgement: The last one; None before there is one, and where something new was read.
        state: What the last judgement came to.
    """

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._seen = 0  # the process that was seen alive
        self.events: list[EventTail] = []
        self.journals: list[JournalTail] = []
        self.reset()

    def reset(self) -> None:
        """Forgets what is known: a file was replaced or removed, and all are read anew."""
        self.facts = RankFacts()
        self.grew = 0.0
        self.state: RankState | None = None
        self.judgement: Judgement | None = None
        self.events = [EventTail(**{name: getattr(old, name) for name in EventTail.GIVEN}) for old in self.events]
        self.journals = [JournalTail(old.path, old.is_of_run) for old in self.journals]

    def look(self, now: float, reading: Reading) -> bool:
        """Reads what is new; returns whether there was something."""
        has_changed = False
        tails: list[EventTail | JournalTail] = [*self.events, *self.journals]
        for tail in tails:
            try:
                status = os.stat(tail.path)
            except OSError as error:
                tail.fault = f"cannot be read: {error.strerror or error}"
                continue
            if status.st_size == tail.size and status.st_ino == tail.inode and status.st_mode == tail.mode:
                continue
            if isinstance(tail, EventTail) and tail.is_replaced(status):
                self.reset()
                self.look(now, reading)
                return True
            has_grown = tail.size >= 0 and status.st_size > tail.size
            tail.mode = status.st_mode
            tail.read(status, self.facts, reading)
            if has_grown and (isinstance(tail, EventTail) or tail.is_alive):
                self.grew = now
            has_changed = True
        return has_changed

    def judge(self, now: float, stall_after: float | None, host: str, reading: Reading) -> bool:
        """Judges again where the judgement may be another; returns whether it was made."""
        if self.judgement is not None and now < self.judgement.holds_until:
            return False
        self.judgement = judge(self._evidence(now, host, reading), now, stall_after)
        self.state = self._describe(self.judgement)
        return True

    def _evidence(self, now: float, host: str, reading: Reading) -> Evidence:
        facts = self.facts
        data = [tail for tail in self.events if tail.format == MINDSPORE and not tail.is_lineage and tail.has_record]
        newest = max(data, key=lambda tail: tail.created, default=None)
        grows = [tail.created for tail in data if tail.is_closed is False]
        is_quiet = now - facts.last_time > _QUIET_SECS
        if facts.has_journal and not facts.pid and facts.end is None and is_quiet:
            for journal in self.journals:
                journal.find_header(facts, reading)
        is_closed = newest.is_closed if newest is not None else None
        if is_closed is not None or any(tail.is_lineage or tail.is_live for tail in self.events):
            facts.records_end = True
        process = self._find_process(host) if facts.end is None or facts.began > facts.end.wall_time else None
        return facts.evidence(
            seen=max(self.grew, 0.0 if facts.last_time else self._modified),
            opened=float(max(grows, default=0)),
            is_closed=is_closed,
            process=process,
            beat=_find_beat(process.pid) if process is not None and process.is_alive and is_quiet else None,
        )

    @property
    def _modified(self) -> float:
        return max((tail.modified for tail in self.events), default=0.0)

    def _find_process(self, host: str) -> Process | None:
        facts = self.facts
        if facts.pid:
            named = (facts.pid, facts.began, True) if facts.host == host else None
        else:
            files = [tail for tail in self.events if tail.pid and tail.host == host]
            newest = max(files, key=lambda tail: tail.created, default=None)
            named = None if newest is None else (newest.pid, float(newest.created), newest.is_live)
        if named is None:
            return None
        pid, since, records_end = named
        is_alive = _is_alive(pid, since)
        self._seen = pid if is_alive else self._seen
        return Process(pid, is_alive, records_end, self._seen == pid)

    def _describe(self, judgement: Judgement) -> RankState:
        facts = self.facts
        main, rate = facts.loss, facts.rate
        memory = facts.numbers.get("memory")
        return RankState(
            rank=self.rank,
            state=judgement.state,
            life=judgement.life,
            evidence=judgement.evidence,
            step=facts.last_step,
            loss=main.values[-1] if main is not None else None,
            loss_tag=main.tag if main is not None else "",
            loss_step=main.steps[-1] if main is not None else None,
            losses=tuple(main.values) if main is not None else (),
            lr=facts.numbers.get("lr"),
            rate=rate[0] if rate is not None else None,
            rate_unit=rate[1] if rate is not None else "",
            memory=memory if memory is not None else facts.numbers.get("host memory"),
            last_time=max(facts.last_time, self.grew) or self._modified,
            host=facts.host or next((tail.host for tail in self.events if tail.host), ""),
        )

    def paths(self) -> list[str]:
        """Returns the paths of its files."""
        return [tail.path for tail in self.events] + [tail.path for tail in self.journals]

    def problems(self) -> Iterator[tuple[str, bool]]:
        """Yields what is wrong with a file, and whether that is damage."""
        tails: list[EventTail | JournalTail] = [*self.events, *self.journals]
        for tail in tails:
            if tail.problem:
                yield f"{tail.path}: {tail.problem}", tail.is_damaged


def _find_beat(pid: int) -> tuple[str, float] | None:
    beat = find_beat(pid)
    return None if beat is None else (beat.phase, max(0.0, time.monotonic() - beat.monotonic))


def _is_alive(pid: int, since: float) -> bool:
    """Whether a process is there that is the one of that time; its number may be another's by now."""
    try:
        process = psutil.Process(pid)
        return process.create_time() <= since + _STARTED_SECS and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
