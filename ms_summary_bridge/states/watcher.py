"""The watcher: looks at a tree of runs again and again, and reads only the tails of files and what is new in them."""

from __future__ import annotations

import contextlib
import platform
import re
import time
from typing import Final

from ms_summary_bridge.files.file_names import LINEAGE, MINDSPORE, TENSORBOARD
from ms_summary_bridge.files.records import FOOTER_BYTES, HEADER_BYTES
from ms_summary_bridge.states.event_tail import EventTail
from ms_summary_bridge.states.journal_tail import JournalTail
from ms_summary_bridge.states.judgement import judge_ranks
from ms_summary_bridge.states.rank import Rank
from ms_summary_bridge.states.reading import Reading, read_at
from ms_summary_bridge.states.run_state import RunState
from ms_summary_bridge.states.tree import FoundFile, FoundRun, Tree

__all__ = ["RunWatcher"]

_HEAD_BYTES: Final = 512
_LIVE: Final = b"ms_summary_bridge/live"
_CONVERT: Final = b"ms_summary_bridge/convert"
_LIVE_NAME: Final = re.compile(r"\.(\d+)\.(\d+)\.\d{4}$", re.ASCII)
_PROCESS: Final = re.compile(r"\.(\d+)\.\d+(?:\.v2)?$", re.ASCII)
_OF_RUN: Final = -1  # the rank under which the tree has what is not below `rank_<n>`


class _Run:
    """One run, and its ranks."""

    def __init__(self, found: FoundRun) -> None:
        self.found = found
        self.ranks: dict[int, Rank] = {}
        self.of_run: Rank | None = None
        self.state: RunState | None = None
        self.is_read = False
        self.is_headless = False  # a file does not say yet who writes it

    def arrange(self, found: FoundRun, reading: Reading) -> None:
        """Takes the files that it has by now; what is known of a file stays."""
        if found.files == self.found.files and (self.ranks or self.of_run) and not self.is_headless:
            self.found = found
            return
        mixed = _mixed_directories(found.files)
        if mixed != _mixed_directories(self.found.files):  # what was read may be a twin of what came
            self.ranks, self.of_run = {}, None
        known = {path for rank in self._all() for path in rank.paths()}
        there = {file.path for file in found.files}
        self.found, self.state = found, None
        self.is_headless = False
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
                self.of_run = self.of_run or Rank(_OF_RUN)
                self.of_run.journals.append(JournalTail(file.path, True))
            else:
                self._rank(number).journals.append(JournalTail(file.path))
            return
        is_lineage = file.kind == LINEAGE
        file_format = TENSORBOARD if file.kind == TENSORBOARD else MINDSPORE
        tail = EventTail(file.path, file_format, is_lineage, created=file.created, host=file.host)
        if file_format == TENSORBOARD or is_mixed:
            head = _read_head(file.path, reading)
            if is_mixed and file_format == TENSORBOARD and not _is_whole(head):
                self.is_headless = True  # it may be the same again
                return
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

    def _rank(self, number: int) -> Rank:
        return self.ranks.setdefault(number, Rank(number))

    def _all(self) -> list[Rank]:
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

    @property
    def found(self) -> list[tuple[FoundRun, bool, RunState | None]]:
        """The runs that are there, by name: whether each has been looked at, and how it was found."""
        runs = [(one, self._runs[one.directory]) for one in self._found]
        return [(one, run.is_read, run.state) for one, run in runs]

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
            if run.found is not one or not run.is_read or run.is_headless:
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


def _is_whole(head: bytes) -> bool:
    """Whether the first record, which says who writes the file, is in it; or there is something else."""
    length = int.from_bytes(head[:8], "little")
    return len(head) == _HEAD_BYTES or len(head) >= HEADER_BYTES + length + FOOTER_BYTES > HEADER_BYTES + FOOTER_BYTES


def _read_head(path: str, reading: Reading) -> bytes:
    with contextlib.suppress(OSError):
        return read_at(path, 0, _HEAD_BYTES, reading)
    return b""
