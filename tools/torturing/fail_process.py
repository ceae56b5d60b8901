"""The command as a process of its own, whose system calls fail by strace: also those that no Python function makes."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from tests.log_samples import MINDSPORE_LOGS
from torturing.report import Row

__all__ = ["try_process", "try_training"]

_ROOT = Path(__file__).resolve().parents[2]
_CALLS = ("fsync", "rename", "write", "writev", "unlink", "mkdir", "ftruncate", "flock")
"""Of those that Python makes at its start there are too many."""
_ERRORS = ("ENOSPC", "EIO", "EACCES", "EMFILE", "EINTR")
_OF_A_TRAINING = (
    ("memfd_create", "EMFILE", "1+"),
    ("memfd_create", "ENOSPC", "2"),
    ("pipe2", "EMFILE", "1+"),
    ("pipe2", "EMFILE", "3"),
    ("fsync", "EIO", "1+"),
    ("fsync", "ENOSPC", "2"),
    ("writev", "ENOSPC", "1+"),
    ("ftruncate", "ENOSPC", "1+"),
    ("flock", "EIO", "1+"),
)
"""Calls that MindSpore itself hardly makes; `1+` is the first and all after it."""
_LONGEST_SECS = 300


def try_process(base: Path, *, seconds: float = float("inf")) -> Row:
    """Lets each call of `ms-summary-bridge convert` fail once; nothing is tried where strace may not trace."""
    row = Row("convert, as a command under strace")
    deadline = time.monotonic() + seconds
    source, out, log = base / "source", base / "out", base / "strace.txt"
    shutil.rmtree(base, ignore_errors=True)
    MINDSPORE_LOGS["every kind under one tag"](source)
    if shutil.which("strace") is None or _convert(source, out, log, [f"trace={','.join(_CALLS)}"])[0]:
        return row
    counts = {call: len(re.findall(rf"(?m)^\d+ +{call}\(", log.read_text())) for call in _CALLS}
    failures = [(call, number, error) for error in _ERRORS for call in _CALLS for number in range(1, counts[call] + 1)]
    for call, number, error in failures:
        if time.monotonic() > deadline:
            row.left += 1
            continue
        row.tried += 1
        shutil.rmtree(out, ignore_errors=True)
        what = f"{call} {number}: {error}"
        filters = [f"trace={call}", f"inject={call}:error={error}:when={number}"]
        try:
            code, said = _convert(source, out, log, filters)
        except subprocess.TimeoutExpired:
            row.fault(f"{what}: hangs")
            continue
        row.counted += code != 0
        if "Traceback" in said or code not in (0, 1):
            row.fault(f"{what}: exit code {code}: {said[-400:]}")
        if code == 0 and not verify_logdirs(str(source), str(out)).is_equal:
            row.fault(f"{what}: exit code 0, and not all is there", lost=1)
        report = convert_logdir(str(source), str(out))
        if report.failures or report.failed or not verify_logdirs(str(source), str(out)).is_equal:
            row.fault(f"{what}: the next conversion does not make it good: {report.failed}", lost=1)
    return row


def try_training(base: Path, *, seconds: float = float("inf")) -> Row:
    """Lets calls fail for a whole training with both callbacks; nothing is tried without MindSpore or strace."""
    row = Row("a training of MindSpore with both callbacks, under strace")
    deadline = time.monotonic() + seconds
    if shutil.which("strace") is None or importlib.util.find_spec("mindspore") is None:
        return row
    for call, error, when in _OF_A_TRAINING:
        if time.monotonic() > deadline:
            row.left += 1
            continue
        shutil.rmtree(base, ignore_errors=True)
        base.mkdir(parents=True)
        filters = [f"trace={call}", f"inject={call}:error={error}:when={when}"]
        command = [sys.executable, str(Path(__file__).with_name("train_and_tell.py")), str(base / "out")]
        what = f"{call} {when}: {error}"
        try:
            code, said = _trace(command, base / "strace.txt", filters)
        except subprocess.TimeoutExpired:
            row.fault(f"{what}: hangs")
            continue
        if "(INJECTED)" not in (base / "strace.txt").read_text():  # also where strace may not trace
            continue
        row.tried += 1
        row.counted += "SummaryBridge: " in said or "monitor: " in said
        if code or "Traceback" in said or "trained 24 steps" not in said:
            row.fault(f"{what}: exit code {code}: {said[-600:]}")
    shutil.rmtree(base, ignore_errors=True)
    return row


def _convert(source: Path, out: Path, log: Path, filters: list[str]) -> tuple[int, str]:
    command = [sys.executable, "-B", "-m", "ms_summary_bridge", "convert", str(source), str(out), "--to", "tensorboard"]
    return _trace(command, log, filters)


def _trace(command: list[str], log: Path, filters: list[str]) -> tuple[int, str]:
    expressions = [word for text in filters for word in ("-e", text)]
    done = subprocess.run(
        ["strace", "-f", "-o", str(log), *expressions, *command],
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LONGEST_SECS,
    )
    return done.returncode, done.stdout + done.stderr
