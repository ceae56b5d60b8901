"""What a run had reached before it was started again, as its journal has it."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from ms_summary_bridge.errors import NOT_JSON, LogdirError
from ms_summary_bridge.files.lines import read_lines
from ms_summary_bridge.monitor.alarms.rules.rule import Level
from ms_summary_bridge.monitor.sinks.journal import journal_files

__all__ = ["read_level"]

_STEPS: Final = 100  # of one level: the mean of fewer is noise


class _Line(msgspec.Struct):
    """What is read of a line; nothing else is decoded."""

    kind: str = ""
    step: int = 0
    interval_steps: int = 1
    mean: dict[str, Any] = {}
    values: dict[str, Any] = {}


def read_level(directory: str, metric: str, *, initial_step: int = 0) -> Level | None:
    """Returns the level with which a run began, and the best that it had reached; None for an empty journal.

    Steps past `initial_step`, the one of the checkpoint that was loaded, count no more; 0 where nobody says it.
    """
    first: float | None = None
    best: tuple[float, int] | None = None
    total, steps = 0.0, 0
    decoder = msgspec.json.Decoder(_Line)
    with contextlib.suppress(LogdirError, OSError):
        for name in journal_files(directory):
            for raw in read_lines(name):
                if b'"sample"' not in raw:
                    continue
                try:
                    line = decoder.decode(raw)
                except NOT_JSON:
                    continue  # torn, or of another make
                value = line.mean.get(metric, line.values.get(metric))
                if line.kind != "sample" or not isinstance(value, (int, float)):
                    continue
                if initial_step and line.step > initial_step:
                    continue
                total, steps = total + value * line.interval_steps, steps + line.interval_steps
                if steps < _STEPS:
                    continue
                level, total, steps = total / steps, 0.0, 0
                first = level if first is None else first
                if best is None or level < best[0]:
                    best = (level, line.step)
    if first is None or best is None:
        return None
    return Level(first=first, best=best[0], step=best[1], is_known=initial_step > 0)
