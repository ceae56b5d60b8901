"""When a training hangs and when it is only slow, on a clock that is moved by hand; what is read of a process."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.config.schema import build_section_schema
from ms_summary_bridge.monitor.model.alert_config import ActionConfig
from ms_summary_bridge.monitor.model.config import WatchdogConfig
from ms_summary_bridge.monitor.watchdog.assignment import poll_secs
from ms_summary_bridge.monitor.watchdog.hang_limits import Hang, HangDetector, Recovery
from ms_summary_bridge.monitor.watchdog.hang_report import Findings, describe_hang, report_text
from ms_summary_bridge.monitor.watchdog.heartbeat import CALLS, EPOCH, STEP, Beat, Heartbeat, HeartbeatReader, find_beat
from ms_summary_bridge.monitor.watchdog.process_state import (
    ProcessState,
    catches,
    find_descendants,
    find_threads,
    is_free,
    is_same_program,
    read_state,
)
from ms_summary_bridge.monitor.watchdog.stacks import Offer, StackReader, offer_stacks, stack_of
from ms_summary_bridge.training.phases import PHASES, number_of
from tests.conftest import ROOT
from tests.eventually import wait_for
from tests.json_schema import is_valid

LIMITS = WatchdogConfig(
    floor=60, compile_limit=600, evaluation_limit=1000, checkpoint_limit=400, callback_limit=300, factor=10
)


class Timeline:
    """Plays a training to a detector that looks at it once a second."""

    def __init__(self, config: WatchdogConfig = LIMITS) -> None:
        self.detector = HangDetector(config, 1.0)
        self.now = 1000.0
        self.beat = Beat(0, 0, None, "start", self.now)
        self.events: list[tuple[float, Hang | Recovery]] = []
        self._look()

    def _look(self, is_stopped: bool = False) -> None:
        event = self.detector.observe(self.now, self.beat, is_stopped=is_stopped)
        if event is not None:
            self.events.append((self.now - 1000, event))

    def go(self, secs: float, *, is_stopped: bool = False) -> Timeline:
        """Lets time pass in which the training shows no sign of life."""
        whole, rest = divmod(secs, 1)
        for step in [1.0] * int(whole) + [rest] * (rest > 0):
            self.now += step
            self._look(is_stopped)
        return self

    def sleep(self, secs: float) -> Timeline:
        """Lets time pass in which the whole machine sleeps."""
        self.now += secs
        self._look()
        return self

    def phase(self, phase: str) -> Timeline:
        """The training begins a phase."""
        last = self.beat
        self.beat = Beat(last.calls, last.step, last.epoch, phase, self.now)
        return self

    def end_step(self) -> Timeline:
        """The training ends a step."""
        last = self.beat
        self.beat = Beat(last.calls + 1, last.step + 1, 1, "data", self.now)
        return self

    def steps(self, count: int, secs: float) -> Timeline:
        """Trains steps of a length."""
        for _ in range(count):
            self.phase("compute").go(secs).end_step()
        return self

    @property
    def hangs(self) -> list[tuple[float, str, int]]:
        """When, in which phase and after which step an alarm was raised."""
        found = [(at, event) for at, event in self.events if isinstance(event, Hang)]
        return [(at, event.beat.phase, event.beat.step) for at, event in found]

    @property
    def recoveries(self) -> list[float]:
        """How long each hang took that is over."""
        return [event.secs for _, event in self.events if isinstance(event, Recovery)]


# ------------------------------------------------------------------ what is no hang, and what is one


def test_a_healthy_training_raises_nothing() -> None:
    """A two-minute compile, an evaluation of an hour but a bit, a checkpoint of twenty minutes; the default limits."""
    training = Timeline(WatchdogConfig())
    training.phase("data").go(20).phase("compile").go(120).end_step().steps(100, 0.5)
    training.phase("checkpoint").go(20 * 60).phase("data").steps(100, 0.5)
    training.phase("other").phase("evaluation").go(59 * 60).phase("other").go(3).phase("data").go(200)
    training.steps(100, 0.5).phase("callbacks").go(25 * 60).phase("data").steps(3, 250)
    assert training.phase("end").go(10_000).events == []


def test_slow_first_step() -> None:
    """B27."""
    training = Timeline().phase("compile").go(400).end_step().phase("compute").go(2).end_step().phase("end").go(500)
    assert training.events == []
    assert Timeline().phase("compile").go(1000).hangs == [(601, "compile", 0)]


@pytest.mark.parametrize(
    ("phase", "healthy", "limit"), [("evaluation", 294, 1000), ("checkpoint", 194, 400), ("callbacks", 290, 300)]
)
def test_other_phases_have_limits_of_their_own(phase: str, healthy: int, limit: int) -> None:
    """B27: longer than a step may take, and never endless."""
    training = Timeline().phase("compile").go(5).end_step().go(1)
    assert training.phase(phase).go(healthy).phase("data").go(2).steps(1, 1).events == []
    begin = training.now - 1000
    training.phase(phase).go(2000)
    assert training.hangs == [(begin + max(limit, 2 * healthy) + 1, phase, 2)]


def test_real_hang_is_one_alarm() -> None:
    """B27: the last step ended at 7; the limit is 60 s."""
    training = Timeline().phase("compile").go(5).end_step().go(2).end_step().go(400)
    assert training.hangs == [(68, "data", 2)]
    assert training.recoveries == []


@pytest.mark.parametrize("begin", [["end"], ["compile", "end"]])
def test_the_end_is_no_hang(begin: list[str]) -> None:
    """B27: after_end and no_step_run."""
    training = Timeline()
    for phase in begin:
        training.phase(phase).go(1)
    assert training.go(1000).events == []


def test_slow_but_alive() -> None:
    """B27."""
    assert Timeline().phase("compile").go(55).end_step().steps(10, 55).events == []


def test_a_hang_that_is_over_is_said_and_learned_from() -> None:
    """B27, recompile: a new shape takes 90 s; the next such pause is none."""
    training = Timeline().phase("compile").go(5).end_step().steps(1, 5).steps(1, 90)
    training.go(1)
    assert training.hangs == [(71, "compute", 2)]
    assert training.recoveries == pytest.approx([90], abs=1.01)
    training.steps(5, 90)
    assert len(training.hangs) == 1
    training.phase("compute").go(1000)
    assert len(training.hangs) == 2


def test_limits_follow_the_steps() -> None:
    training = Timeline().phase("compile").go(30).end_step().steps(20, 50)
    begin = training.now - 1000
    training.phase("compute").go(1000)
    assert training.hangs == [(begin + 501, "compute", 21)], "ten times the median"
    quick = Timeline().phase("compile").go(30).end_step().steps(200, 0.25)
    begin = quick.now - 1000
    assert quick.phase("compute").go(100).hangs == [(begin + 61, "compute", 201)], "the floor"


def test_one_slow_step_does_not_change_the_median() -> None:
    training = Timeline().phase("compile").go(1).end_step().steps(50, 8).steps(1, 79).steps(50, 8)
    begin = training.now - 1000
    training.phase("compute").go(1000)
    assert training.hangs == [(begin + 2 * 79 + 1, "compute", 102)], "but what lasted and went well may last again"


def test_sinks_of_many_steps() -> None:
    """One call of the network for each 500 steps, as in data sink mode."""
    training = Timeline().phase("compile").go(550).end_step().steps(10, 500)
    assert training.events == []


def test_a_machine_that_slept_is_no_hang() -> None:
    training = Timeline().phase("compile").go(5).end_step().steps(5, 2)
    training.phase("compute").go(50).sleep(8 * 3600).go(55).end_step()
    assert training.go(3).events == []
    begin = training.now - 1000
    training.phase("compute").go(30).sleep(600).go(200)
    limit = 2 * 55  # one that lasted 55 s after the sleep went well
    assert training.hangs == [(begin + 30 + 600 + limit + 1, "compute", 7)], "the whole limit begins anew"
    training.sleep(8 * 3600).go(1000)
    assert len(training.hangs) == 1
    assert training.end_step().go(1) is training
    assert len(training.recoveries) == 1


def test_a_training_that_is_stopped_is_no_hang() -> None:
    training = Timeline().phase("compile").go(5).end_step().phase("compute").go(30).go(5000, is_stopped=True).go(50)
    assert training.events == []
    assert training.go(20).hangs == [(5000 + 5 + 30 + 61, "compute", 1)]


def test_sleep_teaches_nothing() -> None:
    training = Timeline().phase("compile").go(5).end_step()
    for _ in range(20):
        training.phase("compute").sleep(3600).go(1).end_step()
    begin = training.now - 1000
    assert training.go(500).hangs == [(begin + 61, "data", 21)]


# ------------------------------------------------------------------ the heartbeat


def test_heartbeat() -> None:
    heartbeat = Heartbeat(40)
    reader = HeartbeatReader(heartbeat.descriptor)
    first = reader.read()
    assert (first.calls, first.step, first.epoch, first.phase) == (0, 40, None, "start")
    for phase in PHASES:
        heartbeat.beat(phase)
        assert reader.read() == Beat(0, 40, None, phase, reader.read().monotonic)
    assert reader.read().monotonic >= first.monotonic
    assert heartbeat.turn(number_of("evaluation"), reader.read().monotonic + 1) == number_of("end")
    heartbeat.places[STEP], heartbeat.places[EPOCH], heartbeat.places[CALLS] = 41, 2, 1
    assert heartbeat.turn(number_of("data"), reader.read().monotonic + 1) == number_of("evaluation")
    assert reader.read() == Beat(1, 41, 2, "data", reader.read().monotonic)
    heartbeat.close()
    heartbeat.turn(number_of("end"), reader.read().monotonic + 1)  # one that is late does no harm
    assert reader.read().phase == "end"


def test_of_several_trainings_in_a_process_the_newest_beat_is_found() -> None:
    trainings = [Heartbeat(step) for step in (10, 20, 30)]
    try:
        for training in (*trainings, trainings[1]):
            training.beat("data")
            found = find_beat(os.getpid())
            assert found is not None
            assert found.step == training.places[STEP]
    finally:
        for training in trainings:
            training.close()


def test_nobody_reads_half_a_beat() -> None:
    """Two numbers of which no part is alike, written by another process as fast as it can."""
    heartbeat = Heartbeat()
    reader = HeartbeatReader(heartbeat.descriptor)
    data = number_of("data")
    first, second = (struct.unpack("<d", bytes([byte]) * 8)[0] for byte in (0x42, 0x43))
    child = os.fork()
    if not child:
        while True:
            heartbeat.turn(data, first)
            heartbeat.turn(data, second)
    try:
        while reader.read().monotonic < first:  # the child has not begun
            pass
        found = {reader.read().monotonic for _ in range(50_000)}
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        heartbeat.close()  # else this process would seem to beat, ages ahead, to all tests that come after
    assert found == {first, second}


# ------------------------------------------------------------------ processes


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that answers to be asked for its stacks, in which a thread waits in a pipe, and a fork of it."""
    code = """
import os, sys, threading, time
from ms_summary_bridge.monitor.watchdog.stacks import offer_stacks
offer = offer_stacks()
reading, writing = os.pipe()
def wait_in_thread():
    os.read(reading, 1)
threading.Thread(target=wait_in_thread, daemon=True).start()
if os.fork() == 0:
    def wait_in_fork():
        time.sleep(600)
    wait_in_fork()
    os._exit(0)
print(offer.signum, offer.descriptor, threading.get_ident(), flush=True)
time.sleep(600)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


def test_stacks_of_another_process(child: subprocess.Popen[bytes]) -> None:
    assert child.stdout is not None
    signum, descriptor, ident = map(int, child.stdout.readline().split())
    shared = os.open(f"/proc/{child.pid}/fd/{descriptor}", os.O_RDWR | os.O_APPEND)
    try:
        reader = StackReader(Offer(child.pid, signum, shared))
        (fork,) = find_descendants(child.pid)
        assert is_same_program(child.pid, fork.pid)
        text = wait_for(lambda: "wait_in_thread" in (said := reader.ask(child.pid)) and said)
        assert stack_of(text, ident).strip().endswith("in <module>"), text
        (answering,) = re.findall(r"Current thread 0x([0-9a-f]+)", text)
        assert "_wait_for_ever" in stack_of(text, int(answering, 16)), "nobody else gets the signal"
        assert wait_for(lambda: "wait_in_fork" in reader.ask(fork.pid)), "a fork answers by itself"
        assert "wait_in_thread" not in reader.ask(fork.pid)
        assert child.poll() is None
    finally:
        os.close(shared)


def test_an_offer_can_be_taken_at_once_however_slow_its_thread_is_to_start() -> None:
    code = """
import os, time
from pathlib import Path
from ms_summary_bridge.monitor.watchdog import stacks
def path_at_last(path):
    time.sleep(0.3)
    return Path(path)
stacks.Path = path_at_last
offer = stacks.offer_stacks()
print("path_at_last" not in (text := stacks.StackReader(offer).ask(os.getpid())) and "_wait_for_ever" in text)
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert said.stdout.split() == ["True"], said


C_CALLS = """
import ctypes, errno, os, sys, time
from ms_summary_bridge.monitor.watchdog.stacks import offer_stacks
offer = offer_stacks()
libc = (ctypes.PyDLL if sys.argv[2] == "held" else ctypes.CDLL)(None, use_errno=True)
reading, writing = os.pipe()
class Wait(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]
calls = {
    "usleep": lambda: libc.usleep(4_000_000),
    "poll": lambda: libc.poll(ctypes.byref(Wait(reading, 1, 0)), 1, 4000),
    "pause": lambda: libc.ppoll(None, 0, ctypes.byref((ctypes.c_long * 2)(4, 0)), None),
}
time.sleep(0.2)
print(offer.signum, offer.descriptor, flush=True)
result = calls[sys.argv[1]]()
print(result, ctypes.get_errno() == errno.EINTR, flush=True)
"""


@pytest.mark.parametrize("call", ["usleep", "poll", "pause"])
@pytest.mark.parametrize("gil", ["held", "free"])
def test_no_system_call_is_ended_by_asking(call: str, gil: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", C_CALLS, call, gil], stdout=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    try:
        signum, descriptor = map(int, process.stdout.readline().split())
        time.sleep(0.5)
        shared = os.open(f"/proc/{process.pid}/fd/{descriptor}", os.O_RDWR | os.O_APPEND)
        reader = StackReader(Offer(process.pid, signum, shared))
        found = reader.read([])
        os.close(shared)
        assert "in <lambda>" in found[process.pid]
        assert process.stdout.read().split() == [b"0", b"False"]
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_process_that_would_not_survive_the_question_is_not_asked() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        offer = offer_stacks()
        assert offer is not None
        reader = StackReader(Offer(process.pid, offer.signum, offer.descriptor))
        assert reader.read([]) == {}
        assert process.poll() is None
        process.kill()


def test_a_signal_that_somebody_uses_is_left_alone() -> None:
    offer = offer_stacks()
    assert offer is not None
    assert offer_stacks() is offer, "once for a process"
    assert not is_free(offer.signum)
    other = signal.SIGRTMAX - 2
    assert is_free(other)
    before = signal.signal(other, lambda *_: None)
    try:
        assert not is_free(other)
        assert catches(os.getpid(), other)
        signal.signal(other, signal.SIG_IGN)
        assert not is_free(other)
    finally:
        signal.signal(other, before)
    assert is_free(other)
    signal.pthread_sigmask(signal.SIG_BLOCK, [offer.signum])
    try:
        assert not catches(os.getpid(), offer.signum, thread=threading.get_native_id())
        assert catches(os.getpid(), offer.signum)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [offer.signum])


def test_what_is_read_of_a_process() -> None:
    found = ProcessState(7, "a b) (c", "disk-sleep", 3, 12, 4.0, 98765.0, "devdrv_wait")
    assert found.describe() == "7 (a b) (c): in an uninterruptible wait (driver or disk) in devdrv_wait, 12 threads"
    assert read_state(1 << 30) is None
    assert find_threads(1 << 30) == find_descendants(1 << 30) == []


def test_what_is_read_of_this_process() -> None:
    found = read_state(os.getpid())
    assert found is not None
    assert (found.state, found.parent, found.is_stopped, found.has_ended) == ("running", os.getppid(), False, False)
    assert threading.get_native_id() in find_threads(os.getpid())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.pid in [child.pid for child in find_descendants(os.getpid())]
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        stopped = read_state(process.pid)
        assert stopped is not None
        assert stopped.is_stopped
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ended = read_state(process.pid)
        assert ended is not None
        assert ended.has_ended


# ------------------------------------------------------------------ report and configuration


def test_a_report_without_stacks_says_so() -> None:
    alert = describe_hang(Hang(Beat(4, 4, 1, "evaluation", 0.0), 70.2, 60.0), rank=3, pid=7)
    process = ProcessState(7, "python", "D", 1, 2, 0.0, 0, "devdrv_wait")
    found = Findings(process=process, thread=None, children=[], stacks={}, cpu_share=0.5)
    text = report_text(alert, found, 1, is_whole=False)
    head = "CRITICAL hang: step 4, epoch 1, rank 3: no sign of life for 70 s, evaluating (limit 60 s)"
    assert text.splitlines()[0] == head
    assert "devdrv_wait, 2 threads, 50 % of a processor since then" in text
    assert "no stacks: the process did not answer" in text
    for phase in PHASES:
        said = describe_hang(Hang(Beat(1, 1, None, phase, 0.0), 1.0, 1.0), 0, 1)
        assert said.advice
        assert said.fields["phase"] == phase


@pytest.mark.parametrize(
    ("given", "right"),
    [
        (True, WatchdogConfig()),
        (False, WatchdogConfig(enable=False)),
        (None, WatchdogConfig()),
        ({}, WatchdogConfig()),
        ({"floor": 5, "factor": None, "action": "KILL"}, WatchdogConfig(floor=5.0, action="kill")),
        ({"enable": False, "grace": 0}, WatchdogConfig(enable=False, grace=0.0)),
        ({"actions": ["log"]}, WatchdogConfig(actions=(ActionConfig(kind="log"),))),
    ],
)
def test_configuration(given: Any, right: WatchdogConfig) -> None:
    assert load_config({"watchdog": given}).watchdog == right
    assert load_config({"callback": {"params": {}}, "watchdog": given}).watchdog == right
    if given is not None and given != {"floor": 5, "factor": None, "action": "KILL"}:
        assert is_valid({"watchdog": given}, build_section_schema())


def test_all_problems_of_a_configuration() -> None:
    wrong = {"flor": 5, "factor": 0.5, "floor": 0, "action": "kil", "compile_limit": "1:00", "enable": "no"}
    with pytest.raises(ConfigError) as raised:
        load_config({"watchdog": wrong})
    said = "\n".join(raised.value.problems)
    assert len(raised.value.problems) == len(wrong)
    assert "$.watchdog.flor: there is no key 'flor' here; did you mean 'floor'?" in said
    assert "$.watchdog.factor: must be 1 or more" in said
    assert "did you mean 'kill'?" in said
    with pytest.raises(ConfigError, match=r"must be a mapping, like \{floor: 600\}, or true or false"):
        load_config({"watchdog": 3})
    assert not is_valid({"watchdog": {"flor": 5}}, build_section_schema())
    assert not is_valid({"watchdog": 3}, build_section_schema())


def test_true_alone_includes_the_watchdog() -> None:
    assert load_config(True).watchdog.enable


def test_how_often_it_looks() -> None:
    assert poll_secs(WatchdogConfig()) == 5.0
    assert poll_secs(WatchdogConfig(floor=10)) == 0.5
    assert poll_secs(WatchdogConfig(grace=0, callback_limit=0.001)) == 0.05
