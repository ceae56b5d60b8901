"""What is said about a training that hangs: on its console, in a report for people and in a file for programs."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ms_summary_bridge.files import file_names
from ms_summary_bridge.files.waiting import wait_for, within
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.watchdog.hang_limits import Hang, Near, Recovery
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat
from ms_summary_bridge.monitor.watchdog.process_state import ProcessState
from ms_summary_bridge.monitor.watchdog.stacks import stack_of
from ms_summary_bridge.training.phases import KINDS

__all__ = [
    "HANG_LOG",
    "PEER_ADVICE",
    "Console",
    "Findings",
    "HangFiles",
    "alert_at",
    "describe_hang",
    "describe_near",
    "describe_recovery",
    "hang_line",
    "is_regular",
    "report_text",
    "say_lost",
]

HANG_LOG: Final = file_names.HANG_LOG

_DOING: Final = {**KINDS, "start": "beginning", "end": "ending"}
_ADVICE: Final = {
    "start": "look at the stacks: what comes before the first step does not return",
    "data": "the data set gives nothing: look at the data workers, their stacks and the storage below them",
    "compute": "the step does not return: compare the reports of all ranks, since one that is missing in a "
    "collective stops the others; then the device's log",
    "compile": "the first step does not return: look for the compiler at work (processor time), then at the other "
    "ranks, which all must come so far",
    "callbacks": "a callback does not return: the stack names it",
    "checkpoint": "the checkpoint is not written: look at the storage, whether it is full, slow or gone",
    "evaluation": "the evaluation does not return: look at its data set and the stack",
    "other": "what lies between two epochs does not return: the stack names it",
}
PEER_ADVICE: Final = "look at the rank that was lost first: the others end for it, or wait for it"
_DISK_SECS: Final = 5.0
_CONSOLE_SECS: Final = 1.0


class Findings(msgspec.Struct, kw_only=True):
    """What was found at a process that hangs.

    `stacks` are of all Python threads, by pid; `cpu_share` is how many processors it has used since its last sign of
    life. `cann_log` is what CANN's logs say that is wrong.
    """

    process: ProcessState | None
    thread: ProcessState | None
    children: list[ProcessState]
    stacks: dict[int, str]
    cpu_share: float
    cann_log: list[str] = []


def alert_at(beat: Beat, rank: int, **values: Any) -> Alert:
    """Returns an alarm of a training at its last sign of life, raised now."""
    return Alert(step=beat.step, epoch=beat.epoch, rank=rank, wall_time=time.time(), **values)


def say_lost(peers: Sequence[dict[str, Any]]) -> str:
    """Returns which rank was lost first, to be added to a message; empty where all are there."""
    return f"; rank {peers[0]['rank']} was lost before it ({peers[0]['ending']})" if peers else ""


def describe_hang(hang: Hang, rank: int, pid: int, peers: Sequence[dict[str, Any]] = ()) -> Alert:
    """Returns the alarm of a hang; `peers` are from `find_lost_peers`."""
    beat = hang.beat
    message = f"no sign of life for {hang.age:.0f} s, {_DOING[beat.phase]} (limit {hang.limit:.0f} s)"
    return alert_at(
        beat,
        rank,
        rule="hang",
        value=round(hang.age, 3),
        bound=round(hang.limit, 3),
        severity="critical",
        message=message + say_lost(peers),
        advice=PEER_ADVICE if peers else _ADVICE.get(beat.phase, _ADVICE["start"]),
        fields={"phase": beat.phase, "pid": pid, "lost_ranks": [peer["rank"] for peer in peers]},
    )


def describe_near(near: Near, rank: int, pid: int) -> Alert:
    """Returns the warning that what this rank does may cost the others their collective."""
    beat, secs = near.beat, near.collective_secs
    phase = "compile" if beat.calls == 0 else beat.phase
    return alert_at(
        beat,
        rank,
        rule="hang",
        value=round(near.age, 3),
        bound=round(secs, 3),
        message=f"{_DOING[phase]} for {near.age:.0f} s: ranks that wait for this one are ended after {secs:.0f} s",
        advice="if only some ranks do this, make it shorter, or start the job again with "
        f"HCCL_EXEC_TIMEOUT={2 * secs:.0f}; if all do it at once, nobody waits",
        fields={"phase": phase, "pid": pid},
    )


def describe_recovery(recovery: Recovery, rank: int, pid: int) -> Alert:
    """Returns that a hang is over."""
    return alert_at(
        recovery.beat,
        rank,
        rule="hang",
        value=round(recovery.secs, 3),
        severity="info",
        message=f"the training went on after {recovery.secs:.0f} s",
        fields={"phase": recovery.beat.phase, "pid": pid},
    )


def hang_line(kind: str, alert: Alert, findings: Findings, training_thread: int) -> dict[str, Any]:
    """Returns the line of a hang for `hang.jsonl`; `stack` is that of the thread that trains, as in `report_text`.

    Its `kind` is `hang`, or `state` where another rank hangs and this one is only asked what it does.
    """
    stack = stack_of(findings.stacks.get(alert.fields["pid"], ""), training_thread)
    return {"kind": kind, **alert.plain(), "found": msgspec.to_builtins(findings, str_keys=True), "stack": stack}


def report_text(alert: Alert, findings: Findings, training_thread: int, *, is_whole: bool) -> str:
    """Returns a report for people.

    `training_thread` is `threading.get_ident()` of the one that trains; unless it `is_whole`, that stack alone is in
    it.
    """
    lines = [alert.headline(), f"  {alert.advice}"]
    if findings.process is not None:
        used = f", {findings.cpu_share:.0%} of a processor since then".replace("%", " %")
        lines.append(f"  process {findings.process.describe()}{used}")
    if findings.thread is not None:
        lines.append(f"  training thread {findings.thread.describe()}")
    lines += [f"  child {child.describe()}" for child in findings.children]
    lines += [f"  CANN's log: {line}" for line in findings.cann_log]
    if not findings.stacks:
        lines.append("  no stacks: the process did not answer")
    for pid, text in findings.stacks.items():
        trains = stack_of(text, training_thread) if pid == alert.fields["pid"] else ""
        if trains:
            lines += ["  stack of the training thread, most recent call first:", *trains.splitlines()]
        if is_whole or not trains:
            lines += ["", f"  stacks of process {pid}:", *(f"  {line}" for line in text.splitlines())]
    return "\n".join(lines) + "\n"


class Console:
    """The training's standard error, without keeping it open where somebody waits for its end.

    `descriptor` is inherited from it if that is a regular file, so that both write where the other has stopped. Else it
    is -1, and the pipe or the terminal is opened for each message.
    """

    def __init__(self, pid: int, descriptor: int) -> None:
        self._pid = pid
        self._descriptor = descriptor

    def write(self, text: str) -> None:
        """Writes a text; what cannot be written at once, because nobody reads, is left out."""
        data = f"\n[ms_summary_bridge] {text}".encode()
        with contextlib.suppress(OSError):
            if self._descriptor >= 0:
                os.write(self._descriptor, data)
                return
            flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY
            descriptor = os.open(f"/proc/{self._pid}/fd/2", flags)
            try:
                self._write_all(descriptor, data)
            finally:
                os.close(descriptor)

    def _write_all(self, descriptor: int, data: bytes) -> None:
        def look() -> bool | None:
            nonlocal data
            with contextlib.suppress(BlockingIOError):
                data = data[os.write(descriptor, data) :]
            return None if data else True

        wait_for(look, 0.05, _CONSOLE_SECS)


def is_regular(descriptor: int) -> bool:
    """Whether a descriptor is that of a regular file."""
    with contextlib.suppress(OSError):
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    return False


class HangFiles:
    """`hang.jsonl` and a report for each hang, in the directory of one rank.

    The journal has one writer, the training, and it may go on at any moment; so the watchdog has a file of its own.
    Storage that hangs may be why the training does: the files are written by a thread that is not waited for long.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def report_path(self, alert: Alert) -> str:
        """Returns where the report of a hang goes. The time makes it a new file: to ask for one could block."""
        moment = time.strftime("%Y%m%d-%H%M%S", time.localtime(alert.wall_time))
        return os.path.join(self._directory, f"hang-{moment}-step-{alert.step}.txt")

    def write(self, line: dict[str, Any], report: str = "", path: str = "") -> None:
        """Adds a line, and writes a report beside it."""
        within(_DISK_SECS, lambda: self._write(line, report, path))

    def _write(self, line: dict[str, Any], report: str, path: str) -> None:
        with contextlib.suppress(OSError):
            os.makedirs(self._directory, exist_ok=True)
            if path:
                with open(path, "w", encoding="utf-8", errors="replace") as file:
                    file.write(report)
            data = msgspec.json.encode(line) + b"\n"
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            descriptor = os.open(os.path.join(self._directory, HANG_LOG), flags, 0o644)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
