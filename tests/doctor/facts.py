"""Facts that a doctor's tests have in common: a good environment, and journals."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ms_summary_bridge.doctor.packages import PackageFacts

NOW = time.time()
_GOOD = {
    "python": "3.11.7",
    "mindspore": "2.10.0",
    "protobuf": "7.36.2",
    "numpy": "1.26.4",
    "tensorboard": "2.21.0",
    "tensorboard-data-server": "0.7.2",
    "ms_summary_bridge": "0.1.0",
}
_PROGRAMS = {"tensorboard": "/env/bin/tensorboard", "gunicorn": "/env/bin/gunicorn"}


def environment(*, has_plugin: bool = True, programs: dict[str, str] | None = None, **versions: str) -> PackageFacts:
    """Returns a good environment with other versions of some packages; an empty one leaves a package out."""
    merged = {name: version for name, version in {**_GOOD, **versions}.items() if version}
    return PackageFacts(merged, has_plugin, _PROGRAMS if programs is None else programs, "/env/bin")


PACKAGES = environment()


def write_journal(
    directory: Path,
    *,
    steps: Sequence[int],
    rank: int = 0,
    ranks: int = 1,
    pid: int = 0,
    has_end: bool = False,
    reason: str | None = None,
) -> Path:
    """Writes a journal as the monitor does; without a process it is one of another machine."""
    moment = {"wall_time": NOW - 3600, "rank": rank}
    host = platform.node() if pid else "elsewhere"
    lines: list[dict[str, Any]] = [{"kind": "header", "format": 1, **moment, "ranks": ranks, "host": host, "pid": pid}]
    lines += [{"kind": "sample", "step": step, **moment, "values": {"loss": 1.0}} for step in steps]
    lines += [{"kind": "end", "step": max(steps, default=0), **moment, "text": "", "reason": reason}] if has_end else []
    directory.mkdir(parents=True)
    path = directory / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
