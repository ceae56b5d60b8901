"""The watchdog: a process beside the training that notices when the training hangs or dies, and says where.

Imports neither mindspore nor numpy while the training lives.

It is a process of its own, so that what stops the training, such as a C call that holds the GIL for ever, does not stop
the watchdog. It looks a few times in a minute, sends nothing that would touch the training, and ends with the training,
however that ends.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from functools import partial
from typing import Any, Final

import msgspec

from ms_summary_bridge.files.waiting import wait_for, within
from ms_summary_bridge.monitor.alarms.incidents.report import say_cann_log
from ms_summary_bridge.monitor.model.sample import Note
from ms_summary_bridge.monitor.watchdog.assignment import Assignment, Begun, poll_secs
from ms_summary_bridge.monitor.watchdog.death import describe_death, find_lost_peers, read_ending
from ms_summary_bridge.monitor.watchdog.hang_limits import Hang, HangDetector, Near
from ms_summary_bridge.monitor.watchdog.hang_report import (
    Findings,
    describe_hang,
    describe_near,
    describe_recovery,
    hang_line,
    report_text,
)
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat, HeartbeatReader
from ms_summary_bridge.monitor.watchdog.memory_words import MemoryWitness
from ms_summary_bridge.monitor.watchdog.peers import call_peers, find_blamed, has_called
from ms_summary_bridge.monitor.watchdog.process_state import ProcessState, find_descendants, is_same_program, read_state
from ms_summary_bridge.monitor.watchdog.stacks import StackReader, stack_of
from ms_summary_bridge.monitor.watchdog.telling import Telling

__all__ = ["Watchdog", "main"]

_GONE_SECS: Final = 10.0  # between the end of a process's files and its own, where it dies
_PEER_SECS: Final = 5.0  # in which the watchdog of another rank tells of its death, where a launcher ends this one
_KILLED_PEER_SECS: Final = 0.5  # the same where it may be this one that was killed first
_DISK_SECS: Final = 5.0  # that are waited for what they write
_ANSWER_SECS: Final = 10.0  # in which the watchdogs of other ranks tell where those stand
_MOST_ASKING: Final = 128  # of more ranks the first alone reads what all have told
_SESSION_SECS: Final = 120.0  # how far apart the ranks of one training may start


class Watchdog:
    """Watches one training.

    `messages` is the descriptor on which the training tells where files go and that it ends, and `answers` the one on
    which it is told what to record.
    """

    def __init__(self, assignment: Assignment, messages: int, answers: int) -> None:
        self._assignment = assignment
        self._messages = messages
        self._telling = Telling(assignment, answers)
        self._heard = b""
        self._is_told_to_end = self._is_deaf = False
        self._poll_secs = poll_secs(assignment.config)
        self._detector = HangDetector(assignment.config, self._poll_secs)
        self._heartbeat = HeartbeatReader(assignment.heartbeat)
        self._stacks = None if assignment.offer is None else StackReader(assignment.offer)
        self._checkpoint: tuple[int, str] | None = None
        self._since = time.time()
        self._has_killed = False
        self._poll = select.poll()
        self._poll.register(messages, select.POLLIN)
        self._process = -1
        with contextlib.suppress(OSError, AttributeError):  # missing before Linux 5.3: it ends a poll later
            self._process = os.pidfd_open(assignment.pid)
            self._poll.register(self._process, select.POLLIN)
        state = read_state(assignment.pid)
        # The training is the parent; where it is not any more, its number may be another's.
        self._started = state.started if state is not None and os.getppid() == assignment.pid else None
        self._memory = MemoryWitness(assignment.pid)
        self._beat: Beat | None = None  # the last one
        self._answered: Beat | None = None  # of which other ranks were told
        self._cpu = (0.0, 0.0)  # when it was first seen, and the processor seconds by then

    def run(self) -> None:
        """Watches until the training ends or says that it does, and until all who are to be told have been."""
        while True:
            process = self._find_process()
            if process is None:
                self._tell_death()
                break
            is_last = self._is_told_to_end
            self._look(process)  # also at the end: what hung may have gone on just now, or while that was told
            if is_last:
                break
            if self._is_told_to_end:
                continue
            if not self._is_deaf:
                self._wait(self._poll_secs)
            elif not self._wait_for_end(_GONE_SECS):
                break  # it has become another program, which is not watched
        self._telling.close()

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
                self._telling.place = msgspec.convert(message["place"], Begun)
            if "run" in message:
                self._telling.set_run(message["run"])
            if "directory" in message:
                self._telling.begin(message["directory"], message["summary"])
            if "checkpoint" in message:
                step, path = message["checkpoint"]
                self._checkpoint = (step, path)
            if "end" in message:
                self._is_told_to_end = True
                self._telling.end()

    def _look(self, process: ProcessState) -> None:
        now, beat = time.monotonic(), self._heartbeat.read()
        self._memory.look()
        if beat != self._beat:
            self._beat, self._cpu = beat, (now, process.cpu_secs)
        self._detector.collective_secs = self._telling.place.collective_secs or math.inf
        event = self._detector.observe(now, beat, is_stopped=process.is_stopped)
        if event is None:
            self._answer_peers(now, beat)
        if isinstance(event, Hang):
            try:
                self._report(event)
            finally:
                if self._assignment.config.action == "kill":
                    self._kill()
        elif event is not None:
            place, is_near = (self._telling.place.rank, self._assignment.pid), isinstance(event, Near)
            alert = describe_near(event, *place) if isinstance(event, Near) else describe_recovery(event, *place)
            self._telling.console.write(f"{alert.headline()}\n")
            if is_near:
                self._telling.files.write({"kind": "near", **alert.plain()})
            else:
                self._telling.files.write({"kind": "recovered", **alert.plain()})
            self._telling.record_and_act(alert)

    # ------------------------------------------------------------------ a hang

    def _report(self, hang: Hang) -> None:
        self._answered = hang.beat
        place = self._telling.place
        alert = describe_hang(hang, place.rank, self._assignment.pid, self._find_peers(time.time()))
        findings = self._investigate()
        files = self._telling.files
        path = files.report_path(alert)
        brief = report_text(alert, findings, place.thread_ident, is_whole=False)
        self._telling.console.write(f"{brief}  all stacks: {path}\n")
        whole = report_text(alert, findings, place.thread_ident, is_whole=True)
        files.write(hang_line("hang", alert, findings, place.thread_ident), whole, path)
        blamed = "" if alert.fields["lost_ranks"] else self._ask_peers(hang.beat)
        if blamed:
            self._telling.console.write(f"rank {place.rank}, of all ranks: {blamed}\n")
            files.write({"kind": "blame", "rank": place.rank, "wall_time": time.time(), "text": blamed})
            alert = msgspec.structs.replace(alert, message=f"{alert.message}; {blamed}")
        stack = stack_of(findings.stacks.get(self._assignment.pid, ""), place.thread_ident)
        self._telling.record_and_act(alert, stack=stack, checkpoint=self._checkpoint)

    def _ask_peers(self, beat: Beat) -> str:
        """Returns who is to blame, from what the watchdogs of all ranks tell; empty for nobody, and for one rank.

        `beat` is the last; what comes after it ends the question.
        """
        place, directory = self._telling.place, self._telling.run_directory
        if place.ranks <= 1 or not directory or (place.ranks > _MOST_ASKING and place.rank > 0):
            return ""
        within(_DISK_SECS, lambda: call_peers(directory))

        def look() -> bool | None:
            is_over = self._is_told_to_end or self._find_process() is None or self._heartbeat.read() != beat
            return is_over or None

        if wait_for(look, self._poll_secs, _ANSWER_SECS, sleep=self._wait):
            return ""
        return within(_DISK_SECS, lambda: find_blamed(directory, self._since - _SESSION_SECS)) or ""

    def _answer_peers(self, now: float, beat: Beat) -> None:
        """Writes where this rank stands, once, if another one hangs and this one may only be waiting longer."""
        place, age = self._telling.place, now - beat.monotonic
        is_idle = place.ranks <= 1 or not self._telling.run_directory or beat == self._answered
        if is_idle or age < self._assignment.config.floor / 2:
            return
        directory, since = self._telling.run_directory, time.time() - age - self._assignment.config.floor / 2
        if within(_DISK_SECS, lambda: has_called(directory, since)):
            self._answered = beat
            alert = describe_hang(Hang(beat, age, self._detector.limit(beat)), place.rank, self._assignment.pid)
            self._telling.files.write(hang_line("state", alert, self._investigate(), place.thread_ident))

    def _investigate(self) -> Findings:
        pid = self._assignment.pid
        process = read_state(pid)
        children = [child for child in find_descendants(pid) if child.pid != os.getpid()]
        since, cpu = self._cpu
        secs = time.monotonic() - since
        return Findings(
            process=process,
            thread=read_state(self._telling.place.thread),
            children=children,
            cpu_share=(process.cpu_secs - cpu) / secs if process is not None and secs > 0 else 0.0,
            stacks={} if self._stacks is None else self._stacks.read(children),
            cann_log=self._read_cann_log(),
        )

    def _read_cann_log(self) -> list[str]:
        return within(_DISK_SECS, lambda: say_cann_log(self._assignment.pid, self._since - _SESSION_SECS)) or []

    # ------------------------------------------------------------------ an end

    def _tell_death(self) -> None:
        """The process has gone. Says so, where it has not said itself that it ends."""
        while not self._is_deaf and self._messages in dict(self._poll.poll(0)):
            self._listen()  # what it said at last
        if self._is_told_to_end:
            return
        telling, pid, died_at = self._telling, self._assignment.pid, time.time()
        ending, beat = read_ending(pid, self._process), self._heartbeat.read()
        telling.adopt()
        is_asked_for = ending.is_asked_for or self._has_killed
        if is_asked_for and not telling.has_begun:
            return  # no training had begun
        files = telling.files
        if not is_asked_for:  # at once: the launcher kills the other ranks now, and their watchdogs ask who was first
            files.write({"kind": "gone", "rank": telling.place.rank, "wall_time": died_at, "ending": ending.title})
        patience = _PEER_SECS if is_asked_for else _KILLED_PEER_SECS if ending.signum == signal.SIGKILL else 0.0
        is_own = ending.code == 0 or ending.signum == signal.SIGINT
        peers = [] if is_own else self._find_peers(died_at, patience)
        items = telling.end()
        if peers or not is_asked_for:
            memory, was_oom = self._memory.describe(pid)
            alert = describe_death(
                ending,
                beat,
                rank=telling.place.rank,
                pid=pid,
                memory=memory,
                was_oom=was_oom,
                checkpoint=self._checkpoint,
                peers=peers,
                cann_log=self._read_cann_log(),
            )
            self._telling.console.write(f"{alert.headline()}\n  {alert.advice}\n")
            files.write({"kind": "death", **alert.plain()})
            items.append((alert, telling.titles))
            telling.act(alert, checkpoint=self._checkpoint)
        text = f"training ended by {ending.title} at step {beat.step}; the watchdog says so, the training could not"
        fields = {"reason": "" if ending.code == 0 else ending.title + (" of the watchdog" if self._has_killed else "")}
        items.append(Note(kind="end", step=beat.step, wall_time=time.time(), text=text, fields=fields))
        telling.write_after(items)

    def _find_peers(self, until: float, patience: float = 0.0) -> list[dict[str, Any]]:
        """Returns the ranks that were lost before: where one is killed, the others wait, or the launcher ends them."""
        place, since = self._telling.place, self._since - _SESSION_SECS
        look = partial(find_lost_peers, self._telling.run_directory, place.rank, since, until)
        if place.ranks <= 1 or not self._telling.run_directory:
            return []
        return within(_DISK_SECS + patience, lambda: wait_for(lambda: look() or None, 0.1, patience)) or []

    def _kill(self) -> None:
        """Ends the training, and the forks of it, which may not notice that it has gone."""
        self._has_killed = True
        pid = self._assignment.pid
        forks = [child for child in find_descendants(pid) if is_same_program(pid, child.pid)]
        self._telling.console.write(
            f"rank {self._telling.place.rank}: process {pid} is ended (watchdog action: kill)\n"
        )
        for signum, secs in ((signal.SIGTERM, self._assignment.config.grace), (signal.SIGKILL, self._poll_secs)):
            if self._find_process() is None:
                break
            with contextlib.suppress(OSError):
                os.kill(pid, signum)
            self._wait_for_end(secs)
        for fork in forks:
            state = read_state(fork.pid)
            if state is not None and state.started == fork.started:
                with contextlib.suppress(OSError):
                    os.kill(fork.pid, signal.SIGKILL)

    def _wait_for_end(self, secs: float) -> bool:
        """Returns whether the process has ended, which is waited for."""
        every = min(self._poll_secs, secs)
        return wait_for(lambda: self._find_process() is None or None, every, secs, sleep=self._wait) is not None


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
