"""The watchdog: a process beside the training that notices when the training hangs or dies, and says where.

Imports neither mindspore nor numpy while the training lives.

It is no part of the training's process, so that nothing that stops that one, a C call that holds the GIL for ever
among it, stops the watchdog. It looks a few times in a minute, sends nothing that would touch the training, and ends
with the training, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ms_summary_bridge.files.waiting import wait_for
from ms_summary_bridge.monitor.alarms.actions import Origin, name_action, outcome_note
from ms_summary_bridge.monitor.alarms.actions.runner import ActionRunner
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.config import WatchdogConfig
from ms_summary_bridge.monitor.model.sample import Note
from ms_summary_bridge.monitor.watchdog.death import Ending, describe_death, find_lost_peers, read_ending
from ms_summary_bridge.monitor.watchdog.hang_limits import Hang, HangDetector, Recovery
from ms_summary_bridge.monitor.watchdog.hang_report import (
    HANG_LOG,
    Console,
    Findings,
    HangFiles,
    describe_hang,
    describe_recovery,
    report_text,
)
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat, HeartbeatReader
from ms_summary_bridge.monitor.watchdog.memory_words import MemoryWitness
from ms_summary_bridge.monitor.watchdog.process_state import (
    ProcessState,
    find_descendants,
    is_same_program,
    read_state,
)
from ms_summary_bridge.monitor.watchdog.stacks import Offer, StackReader

__all__ = ["Assignment", "Begun", "Watchdog", "main", "poll_secs"]

_POLLS_PER_LIMIT: Final = 20
_LEAST_POLL_SECS: Final = 0.05
_MOST_POLL_SECS: Final = 5.0
_CLOSE_SECS: Final = 60.0
_GONE_SECS: Final = 10.0  # between the end of a process's files and its own, where it dies
_WRITE_SECS: Final = 30.0
_PEER_SECS: Final = 5.0  # in which the watchdog of another rank tells of its death
_SESSION_SECS: Final = 120.0  # how far apart the ranks of one training may start


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What is known once a training begins.

    Attributes:
        rank: Global rank.
        ranks: How many processes train together.
        host: Name of the host.
        thread_ident: The thread that trains, as `threading.get_ident()`.
        thread: The same, as `threading.get_native_id()`.
    """

    rank: int
    ranks: int
    host: str
    thread_ident: int
    thread: int


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """What a watchdog is to watch.

    Attributes:
        pid: The training's process, which has started the watchdog.
        heartbeat: Descriptor of the heartbeat.
        offer: How to ask for stacks; None if they cannot be had.
        console: Descriptor of the training's standard error if that is a regular file, else -1.
        config: The limits.
        actions: Commands and webhooks that are told of a hang, of its end, and of a death.
        project: As configured.
        project_directory: Where a run is made for what happens before the training has one.
        has_viewer: Whether there are files for the viewers.
        place: What the training says when it begins; until then what is known already.
    """

    pid: int
    heartbeat: int
    offer: Offer | None
    console: int
    config: WatchdogConfig
    actions: tuple[ActionConfig, ...]
    project: str
    project_directory: str
    has_viewer: bool
    place: Begun


def poll_secs(config: WatchdogConfig) -> float:
    """Returns how long the watchdog waits between two looks: a small part of the shortest limit."""
    limits = (
        config.floor,
        config.compile_limit,
        config.evaluation_limit,
        config.checkpoint_limit,
        config.callback_limit,
    )
    return min(max(min(limits) / _POLLS_PER_LIMIT, _LEAST_POLL_SECS), _MOST_POLL_SECS)


class Watchdog:
    """Watches one training.

    Args:
        assignment: What to watch.
        messages: Descriptor on which the training tells where files go, and that it ends.
        answers: Descriptor on which it is told what to record.
    """

    def __init__(self, assignment: Assignment, messages: int, answers: int) -> None:
        self._assignment = assignment
        self._place = assignment.place
        self._messages = messages
        self._answers = answers
        self._heard = b""
        self._is_told_to_end = self._is_deaf = False
        self._poll_secs = poll_secs(assignment.config)
        self._detector = HangDetector(assignment.config, self._poll_secs)
        self._heartbeat = HeartbeatReader(assignment.heartbeat)
        self._stacks = None if assignment.offer is None else StackReader(assignment.offer)
        self._console = Console(assignment.pid, assignment.console)
        self._run_directory = ""
        self._directory = ""  # of the rank
        self._summary: str | None = None  # where the training has its files for the viewers
        self._is_recording = False  # the training writes its journal
        self._sent: list[tuple[Alert, Sequence[str]]] = []  # given to the training to record
        self._checkpoint: tuple[int, str] | None = None
        self._runner: ActionRunner | None = None
        self._since = time.time()
        self._writing = threading.Lock()
        self._has_killed = False
        self._poll = select.poll()
        self._poll.register(messages, select.POLLIN)
        self._process = -1
        with contextlib.suppress(OSError, AttributeError):  # before Linux 5.3 there is none, and it ends a poll later
            self._process = os.pidfd_open(assignment.pid)
            self._poll.register(self._process, select.POLLIN)
        state = read_state(assignment.pid)
        # The training is the parent; where it is not any more, its number may be another's.
        self._started = state.started if state is not None and os.getppid() == assignment.pid else None
        self._memory = MemoryWitness(assignment.pid)
        self._beat: Beat | None = None  # the last one
        self._cpu = (0.0, 0.0)  # when it was first seen, and the processor seconds by then

    def run(self) -> None:
        """Watches until the training ends or says that it does, and until all who are to be told have been."""
        while True:
            process = self._find_process()
            if process is None:
                self._tell_death()
                break
            self._look(process)  # also at the end: what hung may have gone on just now
            if self._is_told_to_end:
                break
            if not self._is_deaf:
                self._wait(self._poll_secs)
            elif not self._wait_for_end(_GONE_SECS):
                break  # it has become another program, of which there is nothing to watch
        if self._runner is not None:
            self._runner.close(_CLOSE_SECS)

    def _find_process(self) -> ProcessState | None:
        process = read_state(self._assignment.pid)
        if process is None or process.started != self._started or process.has_ended:
            return None
        return process

    def _wait(self, secs: float) -> None:
        for descriptor, _ in self._poll.poll(secs * 1000):
            if descriptor == self._messages:
                self._listen()

    def _listen(self) -> None:
        data = os.read(self._messages, 1 << 16)
        if not data:
            self._poll.unregister(self._messages)
            self._is_deaf = True
            return
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            message = msgspec.json.decode(line)
            if "place" in message:
                self._place = msgspec.convert(message["place"], Begun)
            if "run" in message:  # it is known where files will go
                self._set_run(message["run"])
            if "directory" in message:  # and here they do
                self._directory, self._summary = message["directory"], message["summary"]
                self._run_directory = os.path.dirname(self._directory)
                self._is_recording = True
            if "checkpoint" in message:
                step, path = message["checkpoint"]
                self._checkpoint = (step, path)
            if "end" in message:
                self._is_told_to_end, self._is_recording = True, False

    def _set_run(self, run_directory: str) -> None:
        self._run_directory = run_directory
        self._directory = os.path.join(run_directory, f"rank_{self._place.rank}")

    @property
    def _files(self) -> HangFiles:
        """The files of the rank; a run is made for them where the training has none yet, and it is told of that."""
        if not self._directory:
            from ms_summary_bridge.monitor.sinks.run_record import make_run_directory

            self._set_run(make_run_directory(self._assignment.project_directory))
            self._answer({"run": self._run_directory})  # rank 0 goes on there
        return HangFiles(self._directory)

    def _look(self, process: ProcessState) -> None:
        now, beat = time.monotonic(), self._heartbeat.read()
        self._memory.look()
        if beat != self._beat:
            self._beat, self._cpu = beat, (now, process.cpu_secs)
        event = self._detector.observe(now, beat, is_stopped=process.is_stopped)
        if isinstance(event, Hang):
            try:
                self._report(event)
            finally:
                if self._assignment.config.action == "kill":
                    self._kill()
        elif isinstance(event, Recovery):
            alert = describe_recovery(event, self._place.rank, self._assignment.pid)
            self._console.write(f"{alert.headline()}\n")
            self._files.write({"kind": "recovered", **alert.plain()})
            self._record(alert)
            self._act(alert)

    # ------------------------------------------------------------------ a hang

    def _report(self, hang: Hang) -> None:
        place = self._place
        alert = describe_hang(hang, place.rank, self._assignment.pid)
        findings = self._investigate()
        files = self._files
        path = files.report_path(alert)
        brief = report_text(alert, findings, place.thread_ident, is_whole=False)
        self._console.write(f"{brief}  all stacks: {path}\n")
        whole = report_text(alert, findings, place.thread_ident, is_whole=True)
        files.write({"kind": "hang", **alert.plain(), "found": _plain(findings)}, whole, path)
        self._record(alert)
        self._act(alert)

    def _act(self, alert: Alert) -> None:
        """Tells those who are to be told; nobody waits for them."""
        if self._runner is None and self._assignment.actions:
            origin = Origin(
                project=self._assignment.project,
                run=os.path.basename(self._run_directory),
                run_directory=self._run_directory,
                host=self._place.host,
                ranks=self._place.ranks,
            )
            self._runner = ActionRunner(origin, self._take_outcome)
        for action in self._assignment.actions:
            assert self._runner is not None
            self._runner.put(action, alert)

    def _take_outcome(self, action: ActionConfig, alert: Alert, problem: str) -> None:
        note = outcome_note(name_action(action, self._assignment.actions), alert, problem)
        if problem:
            self._console.write(f"rank {alert.rank}: {note.text}\n")
        self._files.write({"kind": "action", **note.fields, "wall_time": note.wall_time})
        self._record(note)

    def _record(self, item: Alert | Note) -> None:
        """Has something written into the journal and for the viewers: by the training while it records."""
        titles = [action.title for action in self._assignment.actions]
        if not self._is_recording:
            self._write_after([item if isinstance(item, Note) else (item, titles)])
        elif isinstance(item, Note):
            self._answer({"note": item})
        else:
            self._sent.append((item, titles))
            self._answer({"alert": item, "titles": titles})

    def _answer(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # nobody reads, or it has ended; then it is written afterwards
            os.write(self._answers, msgspec.json.encode(message) + b"\n")

    def _write_after(self, items: Sequence[tuple[Alert, Sequence[str]] | Note]) -> None:
        place, summary = self._place, self._summary
        if summary is None and self._assignment.has_viewer:
            summary = os.path.join(self._run_directory, "summary", f"rank_{place.rank}" if place.ranks > 1 else "")

        def write() -> None:
            try:
                # Here: it is numpy and the formats, of which a watchdog that has nothing to write needs nothing.
                from ms_summary_bridge.monitor.watchdog.after import write_after

                with self._writing:
                    problems = write_after(
                        items,
                        directory=self._directory,
                        summary=summary or "",
                        rank=place.rank,
                        ranks=place.ranks,
                        host=place.host,
                    )
            except Exception as error:  # whoever is to be told will be all the same
                problems = [repr(error)]
            for problem in problems:
                self._console.write(f"rank {place.rank}: {problem}\n")

        thread = threading.Thread(target=write, daemon=True)  # a disk that hangs holds up nothing else
        thread.start()
        thread.join(_WRITE_SECS)

    def _investigate(self) -> Findings:
        pid = self._assignment.pid
        process = read_state(pid)
        children = [child for child in find_descendants(pid) if child.pid != os.getpid()]
        since, cpu = self._cpu
        secs = time.monotonic() - since
        return Findings(
            process=process,
            thread=read_state(self._place.thread),
            children=children,
            cpu_share=(process.cpu_secs - cpu) / secs if process is not None and secs > 0 else 0.0,
            stacks={} if self._stacks is None else self._stacks.read(children),
        )

    # ------------------------------------------------------------------ an end

    def _tell_death(self) -> None:
        """The process has gone. Says so, where it has not said itself that it ends."""
        while not self._is_deaf and self._messages in dict(self._poll.poll(0)):
            self._listen()  # what it said at last
        if self._is_told_to_end:
            return
        place, pid = self._place, self._assignment.pid
        ending, beat = read_ending(pid, self._process), self._heartbeat.read()
        is_asked_for = ending.is_asked_for or self._has_killed
        if is_asked_for and self._summary is None:
            return  # no training had begun
        files = self._files
        peers = self._find_peers(ending, is_asked_for)
        items: list[tuple[Alert, Sequence[str]] | Note] = list(self._sent)
        self._is_recording = False
        if peers or not is_asked_for:
            memory, was_oom = self._memory.describe(pid)
            alert = describe_death(
                ending,
                beat,
                rank=place.rank,
                pid=pid,
                memory=memory,
                was_oom=was_oom,
                checkpoint=self._checkpoint,
                peers=peers,
            )
            self._console.write(f"{alert.headline()}\n  {alert.advice}\n")
            files.write({"kind": "death", **alert.plain()})
            items.append((alert, [action.title for action in self._assignment.actions]))
            self._act(alert)
        text = f"training ended by {ending.title} at step {beat.step}; the watchdog says so, the training could not"
        fields = {"reason": "" if ending.code == 0 else ending.title + (" of the watchdog" if self._has_killed else "")}
        items.append(Note(kind="end", step=beat.step, wall_time=time.time(), text=text, fields=fields))
        self._write_after(items)

    def _find_peers(self, ending: Ending, is_asked_for: bool) -> list[dict[str, Any]]:
        """Returns the ranks that were lost before: where one is killed, the launcher ends the others."""
        if self._place.ranks <= 1 or ending.code == 0 or ending.signum == signal.SIGINT:
            return []
        since, rank = self._since - _SESSION_SECS, self._place.rank
        patience = _PEER_SECS if is_asked_for else 0.0
        found = wait_for(lambda: find_lost_peers(self._run_directory, rank, since, HANG_LOG) or None, 0.1, patience)
        return found or []

    def _kill(self) -> None:
        """Ends the training, and the forks of it, which may not notice that it has gone."""
        self._has_killed = True
        pid = self._assignment.pid
        forks = [child for child in find_descendants(pid) if is_same_program(pid, child.pid)]
        self._console.write(f"rank {self._place.rank}: process {pid} is ended (watchdog action: kill)\n")
        for signum, secs in ((signal.SIGTERM, self._assignment.config.grace), (signal.SIGKILL, self._poll_secs)):
            if self._find_process() is None:
                break
            with contextlib.suppress(OSError):
                os.kill(pid, signum)
            self._wait_for_end(secs)
        for fork in forks:
            there = read_state(fork.pid)
            if there is not None and there.started == fork.started:
                with contextlib.suppress(OSError):
                    os.kill(fork.pid, signal.SIGKILL)

    def _wait_for_end(self, secs: float) -> bool:
        """Returns whether the process has ended, which is waited for."""
        deadline = time.monotonic() + secs
        while self._find_process() is not None:
            if time.monotonic() >= deadline:
                return False
            self._wait(min(self._poll_secs, max(0.0, deadline - time.monotonic())))
        return True


def _plain(findings: Findings) -> dict[str, Any]:
    """Returns findings for a line of JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(findings, str_keys=True)
    return plain


def main() -> int:
    """Runs the process: the first line of standard input is the assignment, others are messages.

    Standard output is for what the training is to record.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the training; this ends with it
    head = b""
    while not head.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            return 0
        head += byte
    os.set_blocking(1, False)
    watchdog = Watchdog(msgspec.json.decode(head, type=Assignment), 0, 1)
    watchdog.run()
    return 0
