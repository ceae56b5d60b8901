"""Every crash point: each prefix of each writer's system calls, with what the disk had not got yet torn or gone."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from torturing.calls import Call, Interposed
from torturing.crash_convert import CONVERSIONS
from torturing.crash_mindinsight import try_mindinsight
from torturing.crash_training import WRITERS
from torturing.disk import Crash, Recorder, crashes
from torturing.report import Row
from torturing.scenario import Scenario, small_buffers

NAME = "crash"

SCENARIOS: dict[str, Callable[[Path], Scenario]] = {**WRITERS, **CONVERSIONS}


def run(budget_seconds: float, out: Path) -> list[Row]:
    """Records each writer once, and tries every crash of it."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    logging.disable()
    deadline = time.monotonic() + budget_seconds
    rows = []
    for number, (name, make) in enumerate(SCENARIOS.items()):
        share = (deadline - time.monotonic()) / (len(SCENARIOS) - number)
        row = try_crashes(name, make, memory_directory(out) / f"{number}", seconds=share * 2)
        print(f"crash: {row.what}: {row.tried} tried, {row.faults} faults, {row.left} left", file=sys.stderr)
        rows.append(row)
    rows.append(try_mindinsight(memory_directory(out) / "mindinsight"))
    return rows


def memory_directory(out: Path) -> Path:
    """Returns a directory in memory, where there is one: a crash is a model here, and needs no disk."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK):
        return memory / f"torture.{os.getpid()}"
    return out


def try_crashes(
    name: str,
    make: Callable[[Path], Scenario],
    base: Path,
    *,
    seconds: float = float("inf"),
    chosen: Callable[[int], bool] = lambda number: True,
) -> Row:
    """Records a scenario, and checks each crash of it that is `chosen` by its number."""
    row = Row(name)
    deadline = time.monotonic() + seconds
    shutil.rmtree(base, ignore_errors=True)
    (base / "root").mkdir(parents=True)
    try:
        scenario = make(base)
        recorder = Recorder()
        with small_buffers(), Interposed(str(base / "root"), recorder):
            scenario.write(recorder.mark)
        all_crashes = crashes(recorder.ops, str(base / "root"))
        with Interposed(str(base), _without_sync):
            for number, crash in enumerate(all_crashes):
                if not chosen(number):
                    continue
                if time.monotonic() > deadline:
                    row.left += 1
                    continue
                row.tried += 1
                for text in problems_of(scenario, crash, str(base / "root")):
                    row.fault(f"crash {number}, after {crash.after} of {len(recorder.ops)} calls, {crash.how}: {text}")
    finally:
        shutil.rmtree(base, ignore_errors=True)
        with contextlib.suppress(OSError):
            base.parent.rmdir()
    return row


def problems_of(scenario: Scenario, crash: Crash, root: str) -> list[str]:
    """Makes what a crash leaves, and returns what is wrong with it and with what goes on from there."""
    before = _descriptors()
    try:
        crash.image.write(root)
        return list(scenario.check(crash))
    except Exception:
        return ["".join(traceback.format_exc(limit=-4))]
    finally:
        for descriptor in _descriptors() - before:  # locks that the end of a process would have freed
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _descriptors() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


def _without_sync(call: Call, do: Callable[[], Any]) -> Any:
    return None if call.kind == "fsync" else do()


def lacking(promised: Iterable[Any], found: Iterable[Any]) -> list[Any]:
    """Returns what was promised and was not found."""
    there = set(found)
    return [item for item in promised if item not in there]
