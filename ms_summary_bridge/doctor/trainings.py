"""The five questions people are told to ask by hand: enabled? interval? passed? writable? which rank?

For a directory they are answered by what the training left there: journals, event files, and while it runs on this
machine its process and the heartbeat that the watchdog reads.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import psutil

from ms_summary_bridge.doctor.finding import Finding, Verdict, fault, good, named
from ms_summary_bridge.doctor.logs import WAIT_SECS, say_age
from ms_summary_bridge.doctor.look import LogFacts
from ms_summary_bridge.doctor.machine import DiskFacts
from ms_summary_bridge.doctor.processes import ProcessFacts
from ms_summary_bridge.errors import counted
from ms_summary_bridge.files.file_names import MINDSPORE, parse_name
from ms_summary_bridge.files.system import open_regular
from ms_summary_bridge.monitor.sinks.journal import JOURNAL, json_lines
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat, find_beat
from ms_summary_bridge.runs.log_files import CONVERT
from ms_summary_bridge.training.distributed import MOST_RANKS, ProcessRank, find_process_rank
from ms_summary_bridge.training.phases import START

__all__ = [
    "PASS_IT",
    "JournalFacts",
    "check_process",
    "check_rank_here",
    "check_training",
    "check_writable",
    "read_journals",
]

PASS_IT: Final = "model.train(..., callbacks=[SummaryBridge(...)]), or callbacks=build_monitor_callbacks(FILE)"
_JOURNALS: Final = 64
_HEAD_BYTES: Final = 1 << 16
_TAIL_BYTES: Final = 1 << 15
_PATIENCE_SECS: Final = 600.0  # a graph may take so long to compile
_OPEN_MODE, _CLOSED_MODE = 0o600, 0o400  # of MindSpore's writer, and of this package's
_CLOCK_SECS: Final = 5.0
_RANK_DIRECTORY: Final = re.compile(r"rank_\d+", re.ASCII)
_MOST_PID: Final = 1 << 22  # of Linux


class JournalFacts(msgspec.Struct, frozen=True):
    """The journal of one rank, by its first line and its last ones."""

    directory: str
    header: dict[str, Any] = {}
    """Of the first session; empty where the first line is not one."""
    last_step: int = -1
    """Of the last sample; -1 for none."""
    has_ended: bool = False
    ended_by: str = ""
    """What ended it; empty where it came to its end, or has not ended."""
    is_alive: bool | None = None
    """Whether its process runs; None where this machine cannot tell."""
    beat: Beat | None = None
    mtime: float = 0.0

    @property
    def pid(self) -> int:
        """Of the process that trains."""
        return _whole(self.header.get("pid"))


def _whole(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) else default


def read_journals(log: LogFacts) -> list[JournalFacts]:
    """Returns the newest journals of ranks below a path; counts what it reads."""
    times: dict[str, float] = {}
    of_runs = {os.path.dirname(place) for place in log.journals if _RANK_DIRECTORY.fullmatch(os.path.basename(place))}
    for directory in log.journals:
        if directory in of_runs:
            continue  # all ranks' numbers together
        try:
            times[directory] = os.path.getmtime(os.path.join(directory, JOURNAL))
        except OSError:
            continue
    newest = sorted(times, key=lambda directory: -times[directory])[:_JOURNALS]
    return [_read_journal(directory, times[directory], log) for directory in newest]


def _read_journal(directory: str, mtime: float, log: LogFacts) -> JournalFacts:
    try:
        with open(os.path.join(directory, JOURNAL), "rb", opener=open_regular) as file:
            head = file.read(_HEAD_BYTES)
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read(_TAIL_BYTES)
    except OSError:
        return JournalFacts(directory, mtime=mtime)
    log.bytes_read += len(head) + len(tail)
    lines = [*json_lines(tail.splitlines())]
    headers = [line for line in [*json_lines(head.splitlines()[:1]), *lines] if line.get("kind") == "header"]
    header: dict[str, Any] = headers[-1] if headers else {}
    samples = [line for line in lines if line.get("kind") == "sample"]
    ends = [place for place, line in enumerate(lines) if line.get("kind") == "end"]
    begins = [place for place, line in enumerate(lines) if line.get("kind") == "header"]
    has_ended = bool(ends) and (not begins or ends[-1] > begins[-1])
    reason = lines[ends[-1]].get("reason") if has_ended else ""
    ended_by = reason if isinstance(reason, str) else ""
    last_step = _whole(samples[-1].get("step"), -1) if samples else -1
    is_alive = _is_alive(header)
    beat = find_beat(_whole(header.get("pid"))) if is_alive and not has_ended else None
    return JournalFacts(directory, header, last_step, has_ended, ended_by, is_alive, beat, mtime)


def _is_alive(header: dict[str, Any]) -> bool | None:
    """Whether the process that wrote a header runs here; one that took over its number began later."""
    pid, began = _whole(header.get("pid")), header.get("wall_time")
    if not 0 < pid < _MOST_PID or header.get("host") != platform.node() or not isinstance(began, float):
        return None
    try:
        process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.create_time() < began + _CLOCK_SECS)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return None


def check_process(facts: ProcessFacts) -> Iterator[Finding]:
    """Yields what a process tells of its training."""
    if not facts.is_alive:
        text = f"no process {facts.pid} of this user runs here"
        mend = "give its directory instead, or its number on the machine it runs on"
        yield fault("training.running", "wrong", text, mend)
    elif not facts.logs:
        text = f"passed: pid {facts.pid} writes no event file and no journal"
        mend = f"{PASS_IT}; of several ranks it may be another's to write"
        yield fault("self.passed", "wrong", text, mend)
        yield check_rank_here(find_process_rank(facts.environment))


def check_training(log: LogFacts, journals: list[JournalFacts], disk: DiskFacts, now: float) -> Iterator[Finding]:
    """Yields the answers for a directory."""
    yield from _check_close(log, journals, now)
    yield from _check_running(journals, now)
    yield _check_enabled(log, journals)
    yield _check_interval(log, journals)
    yield _check_passed(log, journals, now)
    yield check_writable(disk, has_files=bool(log.data_files))
    yield _check_ranks(log, journals)


def _check_close(log: LogFacts, journals: list[JournalFacts], now: float) -> Iterator[Finding]:
    written = [file for file in log.data_files if file.pids]
    if written:
        pids = sorted({pid for file in written for pid in file.pids})
        yield good(
            "files.close", f"being written now: {counted(len(written), 'file')}, by pid {named([*map(str, pids)])}"
        )
    modes = [file for file in log.data_files if file.format == MINDSPORE and not file.pids]
    left = [file for file in modes if file.mode == _OPEN_MODE and now - file.mtime > WAIT_SECS]
    broken = [one for one in journals if one.ended_by]
    if left:
        text = f"not closed: {named([file.name for file in left])}: killed, or trained on another machine"
        mend = "what is in it can be seen; the last steps may be missing: end a training with SIGTERM, not SIGKILL"
        yield fault("files.close", "warning", text, mend)
    elif any(file.mode == _CLOSED_MODE for file in modes) and not written:
        if broken:
            whose = "the journal" if len(journals) == 1 else f"{len(broken)} of {len(journals)} journals"
            text = f"closed; {whose}: ended by {named(sorted({one.ended_by for one in broken}))}"
        elif any(one.header and not one.has_ended for one in journals):
            text = "closed; there is a journal without an end"
        else:
            closed = sum(file.mode == _CLOSED_MODE for file in modes)
            of_all = f": {closed} of {counted(len(modes), 'file')} of MindSpore" if closed < len(log.data_files) else ""
            text = f"closed as a training ends well{of_all}"
        yield good("files.close", text)


def _check_running(journals: list[JournalFacts], now: float) -> Iterator[Finding]:
    gone = [one for one in journals if one.header and not one.has_ended and one.is_alive is False]
    if gone:
        text = f"the journal of {named([one.directory for one in gone])} has no end, and its process is gone: killed"
        mend = "look into rank_<n>/monitor.log and the launcher's log; what was written until then can be seen"
        yield fault("training.end", "warning", text, mend)
    for one in [one for one in journals if one.beat is not None][:1]:
        assert one.beat is not None
        since = say_age(time.monotonic() - one.beat.monotonic)
        text = f"pid {one.pid} trains now: step {one.beat.step}, in {one.beat.phase} for {since}"
        yield good("training.running", text)


def _check_enabled(log: LogFacts, journals: list[JournalFacts]) -> Finding:
    if journals:
        return good("self.enabled", f"enabled: the monitor left {counted(len(journals), 'journal')}")
    if log.data_files:
        return good("self.enabled", "enabled: a callback or a writer made event files")
    mend = "make one: SummaryBridge(summary_dir), or enable: true in monitor_config"
    return Finding("self.enabled", "not known", "enabled: nothing here says that a callback was made", mend)


def _check_interval(log: LogFacts, journals: list[JournalFacts]) -> Finding:
    longest = max(log.data_files, key=lambda file: len(file.steps), default=None)
    if longest is None or not longest.steps:
        last = max((one.last_step for one in journals), default=-1)
        if last >= 0:
            return good("self.interval", f"interval: samples up to step {last}")
        return Finding("self.interval", "not known", "interval: no step is there to tell it by", "")
    steps = longest.steps
    if len(steps) == 1 and longest.format == MINDSPORE and longest.role != CONVERT:
        text = f"interval: {longest.name} has step {steps[0]} alone: longer than the training so far"
        return fault("self.interval", "warning", text, "a smaller collect_freq (10 by default; epochs in sink mode)")
    first = min(file.steps[0] for file in log.data_files if file.steps)
    last = max(file.steps[-1] for file in log.data_files if file.steps)
    shown = f"steps {first} to {last} were" if first < last else f"step {first} was"
    return good("self.interval", f"interval: {shown} recorded")


def _check_passed(log: LogFacts, journals: list[JournalFacts], now: float) -> Finding:
    seen = [one for one in journals if one.last_step >= 0 or (one.beat is not None and one.beat.calls)]
    if seen or any(file.events for file in log.data_files):
        return good("self.passed", "passed: the training called it")
    waiting = [one for one in journals if not one.has_ended and now - one.mtime < _PATIENCE_SECS]
    in_start = any(one.beat is not None and one.beat.phase == START for one in journals)
    if waiting or (in_start and journals):
        return Finding("self.passed", "not known", "passed: no step has ended yet; the first one compiles", "")
    if not journals and log.data_files and all(file.damage or file.problem for file in log.data_files):
        return Finding("self.passed", "not known", "passed: nothing in the files can be read", "")
    if journals or log.data_files:
        text = "passed: it was made and never called with a step"
        return fault("self.passed", "wrong", text, f"{PASS_IT}; in your own loop monitor.step(...)")
    return Finding("self.passed", "not known", "passed: nothing was left here by a callback", PASS_IT)


def check_writable(disk: DiskFacts, *, has_files: bool) -> Finding:
    """Returns whether a training could write to a directory; where it has written already that is less of a fault."""
    if disk.is_writable:
        return good("self.writable", f"writable: {disk.path}")
    text = f"writable: {disk.path} cannot be written to by this user"
    verdict: Verdict = "warning" if has_files else "wrong"
    return Finding("self.writable", verdict, text, "chmod u+w it, mount it for writing, or name another directory")


def _check_ranks(log: LogFacts, journals: list[JournalFacts]) -> Finding:
    named_ranks = {
        parse_name(os.path.basename(file.name), MINDSPORE)[1]
        for file in log.data_files
        if file.format == MINDSPORE and file.role != CONVERT
    }
    ranks = {rank for rank in named_ranks if rank is not None}
    ranks |= {_whole(one.header.get("rank")) for one in journals if one.header}
    newest = max(journals, key=lambda one: one.mtime, default=None)
    run = os.path.dirname(newest.directory) if newest is not None else ""
    of_run = [one for one in journals if run in (os.path.dirname(one.directory), one.directory)]
    wanted = max((_whole(one.header.get("ranks"), 1) for one in of_run), default=0)
    missing = [str(rank) for rank in range(min(wanted, MOST_RANKS)) if rank not in ranks]
    if missing:
        text = f"rank: of {wanted} ranks, {named(missing)} left nothing here"
        return fault("self.rank", "warning", text, "look on their nodes, or give all ranks a save_dir on a shared disk")
    if not ranks:
        return Finding("self.rank", "not known", "rank: the files do not say it", "")
    return good("self.rank", f"rank: {named([*map(str, sorted(ranks))])}")


def check_rank_here(place: ProcessRank) -> Finding:
    """Returns which rank a training has, or would have that is started from this shell."""
    text = f"rank: {place.rank} of {place.ranks} (from {place.source})"
    return good("self.rank", f"{text} by the environment")
