"""The n-th failure: each open, write, fsync, rename, mmap and fork fails in turn, with each error it can have."""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

from torturing.calls import Call, Interposed
from torturing.crash import memory_directory
from torturing.fail_process import try_process, try_training
from torturing.fail_targets import TARGETS, Target
from torturing.report import Row
from torturing.scenario import small_buffers
from torturing.sharing import run_shared

NAME = "fail"

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EMFILE, errno.EINTR)
_LASTING = (errno.ENOSPC, errno.EIO, errno.EMFILE)
"""A disk stays full or broken, and a process without descriptors."""
_LONGEST_SECS = 40
"""After so long a trial hangs."""
_JOBS = 2
_PROCESS, _TRAINING = "under strace", "training"
_WEIGHTS = {
    "monitor with both viewers and the watchdog": 30.0,
    "convert by two processes": 18.0,
    _PROCESS: 10.0,
    _TRAINING: 10.0,
    "view: the mirror for MindInsight": 8.0,
    "view: the mirror for TensorBoard": 4.0,
    "convert to TensorBoard": 2.0,
    "callback: a writer process that is killed": 2.0,
}
"""What these need of the time, which the others do not."""


@dataclass(frozen=True)
class Failure:
    """The n-th call of a kind fails; with `lasts` each one after it too."""

    kind: str
    number: int
    error: int
    lasts: bool

    def is_of(self, kind: str, number: int) -> bool:
        """Whether it befalls a call."""
        return kind == self.kind and (number == self.number or (self.lasts and number > self.number))

    def __str__(self) -> str:
        name = errno.errorcode[self.error]
        return f"{self.kind} {self.number}{' and all after it' if self.lasts else ''}: {name}"


class Failing:
    """A hook of `Interposed` that counts calls by their kind, and lets one fail, or it and all after it."""

    def __init__(self, failure: Failure | None = None) -> None:
        self._failure = failure
        self.counts: Counter[str] = Counter()
        self.is_over = False
        """Nothing fails any more."""
        self._lock = threading.Lock()

    def __call__(self, call: Call, do: Callable[[], Any]) -> Any:
        with self._lock:
            self.counts[call.kind] += 1
            number = self.counts[call.kind]
        failure = self._failure
        if failure is not None and not self.is_over and failure.is_of(call.kind, number):
            raise OSError(failure.error, os.strerror(failure.error), call.path or None)
        return do()


class Hung(BaseException):
    """A trial takes too long."""


def run(budget_seconds: float, out: Path) -> list[Row]:
    """Lets every call of every target fail, in processes of their own: many of them wait more than they compute."""
    names = [*TARGETS, _PROCESS, _TRAINING]

    with ProcessPoolExecutor(_JOBS, get_context("spawn")) as pool:

        def do(name: str, share: float) -> Row:
            row = pool.submit(_try_target, name, memory_directory(out) / f"{names.index(name)}", share).result()
            told = f"{row.tried} tried, {row.counted} told, {row.faults} faults, {row.left} left"
            print(f"fail: {row.what}: {told}", file=sys.stderr, flush=True)
            return row

        rows = run_shared(names, do, seconds=budget_seconds, jobs=_JOBS, weights=_WEIGHTS)
    return [*rows.values()]


def _try_target(name: str, base: Path, seconds: float) -> Row:
    if name == _PROCESS:
        return try_process(base, seconds=seconds)
    if name == _TRAINING:
        return try_training(base, seconds=seconds)
    return try_failures(name, TARGETS[name], base, seconds=seconds)


def try_failures(
    name: str,
    make: Callable[[Path], Target],
    base: Path,
    *,
    seconds: float = float("inf"),
    chosen: Callable[[int], bool] = lambda number: True,
) -> Row:
    """Counts a target's calls, and lets each that is `chosen` by its number fail once, and for good."""
    row = Row(name)
    deadline = time.monotonic() + seconds
    told: list[str] = []
    with _watching(told), small_buffers():
        counting = Failing()
        _, problems = _try(make, base, counting, told)
        for text in problems:
            row.fault(f"without a failure: {text}")
        failures = [
            Failure(kind, number, error, lasts)
            for kind, count in sorted(counting.counts.items())
            for number in range(1, count + 1)
            for error in ERRORS
            for lasts in ((False, True) if error in _LASTING else (False,))
        ]
        for number, failure in _spread(failures):
            if not chosen(number):
                continue
            if time.monotonic() > deadline:
                row.left += 1
                continue
            row.tried += 1
            is_told, problems = _try(make, base, Failing(failure), told)
            row.counted += is_told
            for text in problems:
                row.fault(f"{failure}: {text}")
    shutil.rmtree(base, ignore_errors=True)
    with contextlib.suppress(OSError):
        base.parent.rmdir()
    return row


def try_one(make: Callable[[Path], Target], base: Path, failure: Failure) -> list[str]:
    """Lets one call fail; returns what is wrong."""
    told: list[str] = []
    with _watching(told), small_buffers():
        return _try(make, base, Failing(failure), told)[1]


def _spread(failures: list[Failure]) -> Iterator[tuple[int, Failure]]:
    """Yields all in an order in which any first part of them is spread over all."""
    step = next(step for step in (7919, 104_729, 1) if len(failures) % step or step == 1)
    for number in range(len(failures)):
        yield number, failures[number * step % len(failures)]


def _try(make: Callable[[Path], Target], base: Path, failing: Failing, told: list[str]) -> tuple[bool, list[str]]:
    """Runs a target once; returns whether it told of a loss or an error, and what is wrong."""
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir(parents=True)
    told.clear()
    problems: list[str] = []
    before = _descriptors()
    target = make(base)  # its source is there before anything fails
    signal.alarm(_LONGEST_SECS)
    try:
        with Interposed(str(base), failing):
            problems += target.run()
        failing.is_over = True
        problems += target.settle()
    except Hung:
        problems.append("hangs:\n" + "".join(traceback.format_exc(limit=-6)))
    except Exception:
        problems.append("".join(traceback.format_exc(limit=-6)))
    finally:
        signal.alarm(0)
    problems += [text for text in told if text.startswith("Traceback")]
    if _descriptors() - before:
        gc.collect()
    waited_until = time.monotonic() + 2  # for threads that are not waited for
    while (left := _descriptors() - before) and not target.keeps_open and time.monotonic() < waited_until:
        time.sleep(0.02)
    if left and not target.keeps_open:
        problems.append(f"{len(left)} descriptors stay open: {[_path(number) for number in sorted(left)]}")
    if not target.uses_processes:
        for descriptor in _descriptors() - before:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    return bool(target.told or told), problems


def _descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


def _path(descriptor: int) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{descriptor}")
    return "closed by now"


class _Warnings(logging.Handler):
    def __init__(self, told: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._told = told

    def emit(self, record: logging.LogRecord) -> None:
        self._told.append(record.getMessage())
        if record.exc_info:
            self._told.append("Traceback in the log: " + record.getMessage())


@contextlib.contextmanager
def _watching(told: list[str]) -> Iterator[None]:
    """Takes note of all that is said, by the log or by Python itself, and of what hangs."""

    def hang(number: int, frame: FrameType | None) -> None:
        raise Hung

    def of_thread(given: threading.ExceptHookArgs) -> None:
        told.append("Traceback of a thread: " + "".join(traceback.format_exception(given.exc_value, limit=-4)))

    def unraisable(given: sys.UnraisableHookArgs) -> None:
        told.append(f"Traceback that nobody took: {given.err_msg} {given.exc_value!r} {given.object!r}")

    log = logging.getLogger("ms_summary_bridge")
    handler, propagates, disabled = _Warnings(told), log.propagate, logging.root.manager.disable
    logging.disable(logging.NOTSET)
    log.addHandler(handler)
    log.propagate = False
    hooks = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = of_thread, unraisable
    before = signal.signal(signal.SIGALRM, hang)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, before)
        threading.excepthook, sys.unraisablehook = hooks
        log.removeHandler(handler)
        log.propagate = propagates
        logging.disable(disabled)
