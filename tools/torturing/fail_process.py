"""The command as a process of its own, whose system calls fail by strace: also those that no Python function makes."""

from __future__ import annotations

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

__all__ = ["try_process"]

_ROOT = Path(__file__).resolve().parents[2]
_CALLS = ("fsync", "rename", "write", "writev", "unlink", "mkdir", "ftruncate", "flock")
"""Of those that Python makes at its start there are too many."""
_ERRORS = ("ENOSPC", "EIO", "EACCES", "EMFILE", "EINTR")
_LONGEST_SECS = 120


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


def _convert(source: Path, out: Path, log: Path, filters: list[str]) -> tuple[int, str]:
    expressions = [word for text in filters for word in ("-e", text)]
    command = [sys.executable, "-B", "-m", "ms_summary_bridge", "convert", str(source), str(out), "--to", "tensorboard"]
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
