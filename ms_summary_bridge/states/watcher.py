"""The watcher: looks at a tree of runs again and again, and reads only the tails of files and what is new in them."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections.abc import Iterator
from typing import Final

import psutil

from ms_summary_bridge.files.file_names import LINEAGE, MINDSPORE, TENSORBOARD
from ms_summary_bridge.states.event_tail import EventTail
from ms_summary_bridge.states.facts import RankFacts
from ms_summary_bridge.states.journal_tail import JournalTail
from ms_summary_bridge.states.judgement import Evidence, Judgement, Process, judge, judge_ranks
from ms_summary_bridge.states.reading import Reading, read_at
from ms_summary_bridge.states.run_state import RankState, RunState
from ms_summary_bridge.states.tree import FoundFile, FoundRun, Tree

__all__ = ["RunWatcher"]

_HEAD_BYTES: Final = 512
_LIVE: Final = b"ms_summary_bridge/live"
_CONVERT: Final = b"ms_summary_bridge/convert"
_LIVE_NAME: Final = re.compile(r"\.(\d+)\.(\d+)\.\d{4}$", re.ASCII)
_PROCESS: Final = re.compile(r"\.(\d+)\.\d+(?:\.v2)?$", re.ASCII)
_OF_RUN: Final = -1  # the rank under which the tree has what is not below `rank_<n>`
_QUIET_SECS: Final = 30.0
_STARTED_SECS: Final = 120.0  # a process began before the file that names it, by the clock of whoever wrote that


class _Rank:
    """One process, and the files that it writes."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.events: list[EventTail] = []
        self.journals: list[JournalTail] = []
        self.reset()

    def reset(self) -> None:
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
            if tail.size >= 0 and status.st_size > tail.size:
                self.grew = now
            tail.mode = status.st_mode
            tail.read(status, self.facts, reading)
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
        if facts.has_journal and not facts.pid and facts.end is None and now - facts.last_time > _QUIET_SECS:
            for journal in self.journals:
                journal.find_header(facts, reading)
        is_closed = newest.is_closed if newest is not None else None
        if is_closed is not None or any(tail.is_lineage or tail.is_live for tail in self.events):
            facts.records_end = True
        return facts.evidence(
            seen=max(self.grew, 0.0 if facts.last_time else self._modified),
            opened=float(max(grows, default=0)),
            is_closed=is_closed,
            process=self._find_process(host) if facts.end is None or facts.began > facts.end.wall_time else None,
        )

    @property
    def _modified(self) -> float:
        return max((tail.modified for tail in self.events), default=0.0)

    def _find_process(self, host: str) -> Process | None:
        facts = self.facts
        if facts.pid:
            if facts.host != host:
                return None
            return Process(facts.pid, _is_alive(facts.pid, facts.began), True)
        named = [tail for tail in self.events if tail.pid and tail.host == host]
        if not named:
            return None
        newest = max(named, key=lambda tail: tail.created)
        return Process(newest.pid, _is_alive(newest.pid, newest.created), newest.is_live)

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
        return [tail.path for tail in self.events] + [tail.path for tail in self.journals]

    def problems(self) -> Iterator[tuple[str, bool]]:
        """Yields what is wrong with a file, and whether that is damage."""
        tails: list[EventTail | JournalTail] = [*self.events, *self.journals]
        for tail in tails:
            if tail.problem:
                yield f"{tail.path}: {tail.problem}", tail.is_damaged


class _Run:
    """One run, and its ranks."""

    def __init__(self, found: FoundRun) -> None:
        self.found = found
        self.ranks: dict[int, _Rank] = {}
        self.of_run: _Rank | None = None
        self.state: RunState | None = None
        self.is_read = False

    def arrange(self, found: FoundRun, reading: Reading) -> None:
        """Takes the files that it has by now; what is known of a file stays."""
        if found.files == self.found.files and (self.ranks or self.of_run):
            self.found = found
            return
        known = {path for rank in self._all() for path in rank.paths()}
        there = {file.path for file in found.files}
        self.found, self.state = found, None
        mixed = _mixed_directories(found.files)
        has_rank_journals = any(file.kind == "journal" and file.rank >= 0 for file in found.files)
        for file in found.files:
            if file.path not in known:
                self._add(file, has_rank_journals, file.directory in mixed, reading)
        for number, rank in list(self.ranks.items()):
            if not there.issuperset(rank.paths()):  # something was removed
                rank.events = [tail for tail in rank.events if tail.path in there]
                rank.journals = [tail for tail in rank.journals if tail.path in there]
                rank.reset()
                if not rank.events and not rank.journals:
                    del self.ranks[number]

    def _add(self, file: FoundFile, has_rank_journals: bool, is_mixed: bool, reading: Reading) -> None:
        number = max(file.rank, 0)
        if file.kind in ("journal", "hang"):
            is_of_run = file.rank == _OF_RUN and file.kind == "journal" and has_rank_journals
            if is_of_run:
                self.of_run = self.of_run or _Rank(_OF_RUN)
                self.of_run.journals.append(JournalTail(file.path, True))
            else:
                self._rank(number).journals.append(JournalTail(file.path))
            return
        is_lineage = file.kind == LINEAGE
        file_format = TENSORBOARD if file.kind == TENSORBOARD else MINDSPORE
        tail = EventTail(file.path, file_format, is_lineage, created=file.created, host=file.host)
        if file_format == TENSORBOARD or is_mixed:
            head = _read_head(file.path, reading)
            if _CONVERT in head and is_mixed:
                return  # the same again
            if file_format == TENSORBOARD:
                tail.is_live = _LIVE in head
                tail.is_twin = tail.is_live and is_mixed
                match = (_LIVE_NAME if tail.is_live else _PROCESS).search(file.path)
                tail.pid = int(match[1]) if match is not None and _CONVERT not in head else 0
                if tail.is_live and match is not None and file.directory.find("rank_") < 0:
                    number = int(match[2])
                tail.host = file.host.removesuffix(f".{match[1]}") if match is not None else file.host
        self._rank(number).events.append(tail)

    def _rank(self, number: int) -> _Rank:
        return self.ranks.setdefault(number, _Rank(number))

    def _all(self) -> list[_Rank]:
        return [*self.ranks.values(), *([self.of_run] if self.of_run is not None else [])]

    def look(self, now: float, stall_after: float | None, host: str, reading: Reading) -> RunState | None:
        """Reads what is new, and judges again where that may change something."""
        has_changed = self.state is None
        if self.of_run is not None:
            has_changed = self.of_run.look(now, reading) or has_changed
        for rank in self.ranks.values():
            if rank.look(now, reading):
                rank.judgement = None
            has_changed = rank.judge(now, stall_after, host, reading) or has_changed
        self.is_read = True
        if has_changed:
            self.state = self._describe()
        return self.state

    def _describe(self) -> RunState | None:
        ranks = [self.ranks[number] for number in sorted(self.ranks)]
        states = [rank.state for rank in ranks if rank.state is not None]
        if not states:
            return None
        judged = judge_ranks([(r.rank, r.judgement, r.facts.last_time) for r in ranks if r.judgement is not None])
        main = next((state for state in states if state.loss is not None), states[0])
        steps = [state.step for state in states if state.step is not None]
        alarms = {key: alarm for rank in self._all() for key, alarm in rank.facts.alarms.items()}
        problems = [problem for rank in self._all() for problem in rank.problems()]
        milestones = sorted(set(self.ranks[main.rank].facts.milestones), key=lambda mark: mark[1])
        return RunState(
            name=self.found.name,
            directory=self.found.directory,
            state=judged.state,
            life=judged.life,
            evidence=judged.evidence,
            main=main,
            step=max(steps, default=None),
            last_time=max(state.last_time for state in states),
            ranks=tuple(states),
            alarms=tuple(sorted(alarms.values(), key=lambda alarm: alarm.wall_time)),
            milestones=tuple(milestones),
            problems=tuple(line for line, _ in problems),
            is_partial=any(is_damaged for _, is_damaged in problems),
        )


class RunWatcher:
    """Watches a tree of runs.

    Args:
        source: A directory with runs at any depth.
        stall_after: Seconds of silence after which a run counts as stalled; None for a limit by its own pace.
        host: Name of this host: of processes on it is known whether they live.
    """

    def __init__(self, source: str, stall_after: float | None = None, *, host: str | None = None) -> None:
        self._tree = Tree(source)
        self._stall_after = stall_after
        self._host = platform.node() if host is None else host
        self._found: list[FoundRun] = []
        self._runs: dict[str, _Run] = {}
        self.reading = Reading()
        """What the last look has cost."""

    @property
    def problems(self) -> list[str]:
        """Directories that could not be listed, and why."""
        return [f"{path}: {reason}" for path, reason in self._tree.problems.items()]

    @property
    def unread(self) -> int:
        """How many runs have not been looked at yet."""
        return sum(not run.is_read for run in self._runs.values())

    def look(self, now: float, *, budget_secs: float | None = None) -> list[RunState]:
        """Looks once; returns what is known of each run, by name.

        Args:
            now: Seconds since the epoch.
            budget_secs: After so many seconds the rest is left for the next look: `unread` says how much that is.

        Raises:
            LogdirError: The source is not there, or cannot be listed.
        """
        self.reading = Reading()
        began = time.monotonic()
        found = self._tree.find(now, self.reading)
        if found is not self._found:
            self._found = found
            self._runs = {run.directory: self._runs.get(run.directory) or _Run(run) for run in found}
        states = []
        for one in found:
            run = self._runs[one.directory]
            is_late = budget_secs is not None and time.monotonic() - began > budget_secs
            if is_late and not run.is_read:
                continue
            if run.found is not one or not run.is_read:
                run.arrange(one, self.reading)
            if (state := run.look(now, self._stall_after, self._host, self.reading)) is not None:
                states.append(state)
        return states


def _mixed_directories(files: list[FoundFile]) -> set[str]:
    """Returns directories that have files of both formats, of which one may be made of the other."""
    kinds: dict[str, set[str]] = {}
    for file in files:
        kinds.setdefault(file.directory, set()).add(file.kind)
    return {directory for directory, its in kinds.items() if TENSORBOARD in its and its & {MINDSPORE, LINEAGE}}


def _read_head(path: str, reading: Reading) -> bytes:
    with contextlib.suppress(OSError):
        return read_at(path, 0, _HEAD_BYTES, reading)
    return b""


def _is_alive(pid: int, since: float) -> bool:
    """Whether a process is there that is the one of that time; its number may be another's by now."""
    try:
        process = psutil.Process(pid)
        return process.create_time() <= since + _STARTED_SECS and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True
