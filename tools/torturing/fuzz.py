"""Fuzzing: bytes that nobody expects, by each reader: a value, a loss that is told, or a BridgeError, at bounded cost.

Each target has the same share of the time, ten minutes at most: `tools/torture fuzz --minutes 5` gives each 10 seconds,
`--minutes 280` all ten minutes. With atheris, if it is installed (`pip install atheris`); else inputs are changed at
random. What is found stands in the row's words.

Hunts of one target add up: `tools/torture fuzz --hunts DIRECTORY --json FILE` hunts for nothing, but takes what the
hunts below a directory left there (`python -m tools.fuzzing.hunt TARGET --seconds N --out DIRECTORY/NAME`), and tries
again what was a fault then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tools.fuzzing.measure import Counts, try_input
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


def add_up(directory: Path) -> tuple[float, list[Row]]:
    """Returns what the hunts in a directory did together: seconds of processor time, and a row for each target."""
    found: dict[str, list[Path]] = {name: [] for name in TARGETS}
    for file in sorted(directory.glob("*/result.json")):
        found[json.loads(file.read_text(encoding="utf-8"))["target"]].append(file)
    rows = [_add(name, files) for name, files in found.items()]
    secs = sum(json.loads(file.read_text(encoding="utf-8"))["seconds"] for files in found.values() for file in files)
    return secs, [row for row in rows if row.tried]


def _add(name: str, files: list[Path]) -> Row:
    row, secs = Row(""), 0.0
    for file in files:
        result = json.loads(file.read_text(encoding="utf-8"))
        secs += result["seconds"]
        row.tried += result["tried"]
        row.counted += result["refused"]
        for found, place in result["faults"].items():
            data = (file.parent / "faults" / found).read_bytes()
            try:
                try_input(TARGETS[name], data, Counts())
            except Exception as error:
                row.fault(f"{name}: {place}: {error}: input {data[:200].hex()}")
    row.what = _what(name, secs)
    return row


def _what(name: str, secs: float) -> str:
    return f"inputs to {TARGETS[name].what}: {secs / 60:.1f} minutes of processor time"


def _hunt(name: str, secs: float, out: Path) -> Row:
    """Hunts for so long, by the clock; a process that does not end then is ended, and what it had done is counted."""
    row = Row(_what(name, 0.0))
    words = [sys.executable, "-m", "tools.fuzzing.hunt", name, "--seconds", str(secs * 0.9), "--out", str(out)]
    path = os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    with subprocess.Popen(
        words, cwd=_ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        is_late = False
        try:
            _, heard = process.communicate(timeout=secs + 5.0)
        except subprocess.TimeoutExpired:
            is_late = True
            process.terminate()
            _, heard = process.communicate()
    file = out / "result.json"
    if is_late and not file.exists():  # on a busy machine it came to nothing
        row.left = 1
        return row
    if not file.exists():
        row.fault(f"{name}: the hunt gave no result: {heard.decode(errors='replace')[-500:]}")
        return row
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    row.what = _what(name, result["seconds"])
    row.tried, row.counted = result["tried"], result["refused"]
    for found, place in result["faults"].items():
        row.fault(f"{name}: {place}: input {(out / 'faults' / found).read_bytes()[:200].hex()}")
    return row
