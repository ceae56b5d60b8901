"""Simulated trainings of many ranks: what their monitors and watchdogs leave, in the words of the code that writes it.

The faults are those of `FAULTS`, each on one rank. Clocks of hosts differ, steps jitter, files lag behind, and the
watchdogs tell when their own limit is reached, so that a rank may not have told of its hang yet.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.journal import note_line, sample_line
from ms_summary_bridge.monitor.watchdog.hang_limits import Hang
from ms_summary_bridge.monitor.watchdog.hang_report import Findings, describe_hang, hang_line
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat

FAULTS = (
    "data",
    "callbacks",
    "checkpoint",
    "evaluation",
    "compile",
    "optimizer",
    "collective",
    "killed",
    "lost host",
    "exception",
    "slow",
    "nan",
)
THREAD = 0x7F00
_MS = "/env/site-packages/mindspore"
_MODEL = [f"{_MS}/train/model.py:1265:_train_process", f"{_MS}/train/model.py:1395:train", "/job/train.py:96:main"]
_RUN = [f"{_MS}/graph/api.py:2432:_exec_pip", f"{_MS}/nn/cell.py:1807:compile_and_run", *_MODEL]
_PYNATIVE = [f"{_MS}/common/api.py:695:compile", f"{_MS}/nn/wrap/cell_wrapper.py:447:_no_sens_impl", *_MODEL]
STACKS = {
    "compute": _RUN,
    "data": [f"{_MS}/dataset/engine/iterators.py:320:__next__", "/job/rows.py:20:__getitem__", *_MODEL],
    "callbacks": ["/job/report.py:12:on_train_step_end", *_MODEL],
    "checkpoint": [f"{_MS}/train/serialization.py:900:save_checkpoint", *_MODEL],
    "evaluation": [f"{_MS}/train/model.py:1700:_eval_process", "/job/train.py:99:main"],
    "compile": ["/job/net.py:58:choose", f"{_MS}/graph/api.py:2354:compile", *_RUN[1:]],
    "optimizer": ["/job/offload.py:31:copy", f"{_MS}/nn/optim/adam.py:900:construct", *_PYNATIVE[1:]],
    "collective": [f"{_MS}/communication/comm_func.py:400:all_reduce", *_PYNATIVE[1:]],
    "pynative": _PYNATIVE,
}


def faulthandler_text(frames: list[str]) -> str:
    parts = [frame.rsplit(":", 2) for frame in frames]
    lines = [f'  File "{path}", line {line} in {function}' for path, line, function in parts]
    other = '  File "/env/lib/python3.11/threading.py", line 331 in wait'
    return "\n".join(
        [
            "Thread 0x0000000000001234 (most recent call first):",
            other,
            "",
            f"Thread 0x{THREAD:016x} (most recent call first):",
            *lines,
        ]
    )


class Rank:
    """What one rank writes."""

    def __init__(self, training: Training, rank: int) -> None:
        self.rank = rank
        self.training = training
        self.skew = training.skews[rank // 8]
        self.journal: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []

    def header(self, moment: float, pid: int = 1) -> None:
        size = self.training.ranks
        self.journal.append(
            {"kind": "header", "format": 1, "wall_time": moment + self.skew, "rank": self.rank, "ranks": size}
            | {"pid": pid + self.rank, "host": f"host{self.rank // 8}"}
        )

    def sample(
        self, step: int, moment: float, *, loss: float, step_time: float, data_time: float, bad: int = 1
    ) -> None:
        values = {"loss": loss, "step_time": step_time, "data_time": data_time, "lr": 1e-4}
        times = {name: values[name] for name in ("step_time", "data_time")}
        sample = Sample(
            step=step, wall_time=moment + self.skew, values=values, mean=times, interval_steps=self.training.interval
        )
        if not math.isfinite(loss):
            sample.nonfinite_steps = {"loss": bad}
        self.journal.append(sample_line(sample, self.rank))

    def end(self, step: int, moment: float, reason: str) -> None:
        note = Note(kind="end", step=step, wall_time=moment + self.skew, text="", fields={"reason": reason})
        self.journal.append(note_line(note, self.rank))

    def hang(self, phase: str, step: int, since: float, limit: float, stack: str, *, kind: str = "hang") -> float:
        """Tells of a hang; returns when."""
        age = limit + self.training.rng.uniform(0.0, 5.0)
        alert = describe_hang(Hang(Beat(step, step, 1, phase, 0.0), age, limit), self.rank, 1)
        stacks = {1: faulthandler_text(STACKS[stack])} if stack else {}
        found = Findings(process=None, thread=None, children=[], stacks=stacks, cpu_share=0.02)
        self.told.append({**hang_line(kind, alert, found, THREAD), "wall_time": since + age + self.skew})
        return since + age

    def recovered(self, moment: float) -> None:
        self.told.append({"kind": "recovered", "rank": self.rank, "wall_time": moment + self.skew})

    def die(self, step: int, moment: float, ending: str, lost: list[int]) -> None:
        self.told.append({"kind": "gone", "rank": self.rank, "wall_time": moment + self.skew, "ending": ending})
        fields = {"ending": ending, "lost_ranks": lost}
        self.told.append(
            {"kind": "death", "rank": self.rank, "wall_time": moment + self.skew, "step": step, "fields": fields}
        )
        self.end(step, moment, ending)


class Training:
    """A training until it hangs, dies or ends."""

    def __init__(self, rng: random.Random, ranks: int = 64, samples: int = 60) -> None:
        self.rng = rng
        self.ranks = ranks
        self.skews = [rng.gauss(0.0, 0.3) for _ in range(ranks)]
        self.interval = rng.choice((1, 10, 20))
        self.step_secs = rng.uniform(0.2, 3.0)
        self.samples = samples
        self.began = 1.79e9
        self.members = [Rank(self, rank) for rank in range(ranks)]
        self.moment = self.began
        self.step = 0
        self.data_secs: Callable[[int, int], float] = lambda rank, number: self.step_secs * 0.02
        self.loss: Callable[[int, int], float] = lambda rank, step: 5.0 / (1 + step) + rng.gauss(0.0, 0.05)
        self.bad_from: Callable[[int], int] = lambda rank: 1 << 60

    def begin(self) -> None:
        for rank in self.members:
            rank.header(self.moment + self.rng.uniform(0.0, 20.0))
        self.moment += 60.0

    def run(self, samples: int | None = None) -> None:
        """Goes on; all ranks end each step together, as gradients are reduced."""
        for number in range(self.samples if samples is None else samples):
            self.step += self.interval
            data = [self.data_secs(rank, number) * self.rng.uniform(0.8, 1.2) for rank in range(self.ranks)]
            slowest = max(data)
            step_time = self.step_secs * self.rng.uniform(0.95, 1.1) + slowest
            if self.rng.random() < 0.01:
                step_time *= 5
            self.moment += step_time * self.interval
            for rank in self.members:
                first = self.bad_from(rank.rank)
                bad = max(0, self.step - first + 1)
                rank.sample(
                    self.step,
                    self.moment + self.rng.uniform(0.0, 0.02),
                    loss=math.nan if bad else self.loss(rank.rank, self.step),
                    step_time=step_time * self.rng.uniform(0.98, 1.02),
                    data_time=data[rank.rank],
                    bad=min(bad, self.interval),
                )

    def lag(self) -> None:
        """Some of the last lines of a running training are not in the files yet, and one is torn."""
        for rank in self.members:
            del rank.journal[max(1, len(rank.journal) - self.rng.randrange(3)) :]

    def write(self, directory: Path, *, torn: bool = False) -> None:
        for rank in self.members:
            place = directory / f"rank_{rank.rank}"
            place.mkdir(parents=True)
            text = "".join(f"{msgspec.json.encode(line).decode()}\n" for line in rank.journal)
            if torn and rank.rank % 3 == 0:
                text += '{"kind":"sample","st'
            (place / "metrics.jsonl").write_text(text)
            if rank.told:
                lines = "".join(f"{json.dumps(line)}\n" for line in rank.told)
                (place / "hang.jsonl").write_text(lines)


def plant(rng: random.Random, fault: str, *, is_late: bool, ranks: int = 64) -> tuple[Training, int, float]:
    """Returns a training in which a rank has a fault, the rank, and when somebody looks.

    With `is_late` the watchdog of the odd rank has told as well, and the launcher has done what it does.
    """
    training = Training(rng, ranks, samples=rng.randrange(15, 40))
    odd = rng.randrange(ranks)
    if fault == "slow":
        training.step_secs = 2.0
        training.interval = 20
        training.samples = 90  # an hour
        training.data_secs = lambda rank, number: 0.9 if rank == odd else 0.04
    if fault == "nan":
        first = rng.randrange(200, 300)
        training.interval, training.samples = 10, 40
        training.bad_from = lambda rank: first if rank == odd else first + 1
    training.begin()
    if fault == "compile":
        training.samples = 0
    training.run()
    since, step = training.moment, training.step
    if fault in ("slow", "nan"):
        training.lag()
        return training, odd, training.moment + 5.0
    member, others = training.members[odd], [rank for rank in training.members if rank.rank != odd]
    limit = max(300.0, 10 * training.step_secs)
    has_stacks = rng.random() < 0.8
    waiting = "pynative" if fault in ("optimizer", "collective") else "compute"
    phase = "compile" if fault == "compile" else "compute"
    if fault == "collective":
        waiting = "collective"
    if phase == "compile":
        limit = 1800.0
    if fault in ("killed", "exception") and rng.random() < 0.5:  # the launcher ends the others
        patience = 3.0
    else:
        patience = math.inf
    told = [since]
    for rank in others:
        if patience < math.inf:
            if fault == "killed":
                rank.die(step, since + patience + rng.uniform(0.0, 1.0), "SIGKILL", [odd])
            else:
                rank.end(step, since + patience + rng.uniform(0.0, 1.0), "SIGTERM")
        else:
            stack = waiting if has_stacks or fault in ("compile", "optimizer", "collective") else ""
            told.append(rank.hang(phase, step, since + rng.uniform(0.0, 0.3), limit, stack))
    now = max(told) + 30.0
    if fault == "killed":
        member.die(step, since + rng.uniform(-0.5, 0.0), rng.choice(("SIGKILL", "SIGSEGV", "exit code 3")), [])
    elif fault == "exception":
        member.end(step, since, rng.choice(("RuntimeError", "ValueError", "the end of the process")))
    elif fault in ("optimizer", "collective"):
        stack = "optimizer" if fault == "optimizer" else "pynative"
        member.hang("compute", step - (fault == "collective" and rng.random() < 0.5), since, limit, stack)
    elif fault == "compile":
        member.hang("compile", step, since, limit, "compile")
    elif fault != "lost host" and (is_late or fault == "data"):
        longer = {"data": limit, "callbacks": 1800.0, "checkpoint": 1800.0, "evaluation": 3600.0}[fault]
        now = max(now, member.hang(fault, step, since, longer, fault if has_stacks else "") + 30.0)
    elif fault != "lost host" and rng.random() < 0.5:  # asked by the others
        member.hang(fault, step, since, limit, fault, kind="state")
    return training, odd, now
