"""Fuzzing: bytes that nobody expects, by each reader: a value, a loss that is told, or a BridgeError, at bounded cost.

Each target has the same share of the time, ten minutes at most: `tools/torture fuzz --minutes 5` gives each 10 seconds,
`--minutes 280` all ten minutes. With atheris, if it is installed (`pip install atheris`); else inputs are changed at
random. What is found lies in the directory that a row names, or in the row's words.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tools.fuzzing.targets import TARGETS
from torturing.report import Row

NAME = "fuzz"
_MOST_SECS = 600.0
_ROOT = Path(__file__).resolve().parents[2]


def run(budget_seconds: float, out: Path) -> list[Row]:
    """Hunts on one target after the other, each in a process of its own."""
    until = time.monotonic() + budget_seconds
    rows = []
    for number, name in enumerate(TARGETS):
        share = max(0.0, until - time.monotonic()) / (len(TARGETS) - number)
        rows.append(_hunt(name, min(share, _MOST_SECS), out / name))
    return rows


def _hunt(name: str, secs: float, out: Path) -> Row:
    """Hunts for so long, by the clock; a process that does not end then is ended, and what it had done is counted."""
    row = Row(f"inputs to {TARGETS[name].what}")
    words = [sys.executable, "-m", "tools.fuzzing.hunt", name, "--seconds", str(secs * 0.9), "--out", str(out)]
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with subprocess.Popen(
        words, cwd=_ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        try:
            _, heard = process.communicate(timeout=secs + 5.0)
        except subprocess.TimeoutExpired:
            process.terminate()
            _, heard = process.communicate()
    file = out / "result.json"
    if not file.exists():
        row.fault(f"{name}: the hunt gave no result: {heard.decode(errors='replace')[-500:]}")
        return row
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    row.tried, row.counted = result["tried"], result["refused"]
    for found, place in result["faults"].items():
        row.fault(f"{name}: {place}: input {(out / 'faults' / found).read_bytes()[:200].hex()}")
    return row
