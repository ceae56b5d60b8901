"""What came of the parts: rows, kept as JSON, shown as a table of Markdown."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_SHOWN = 20
"""So many faults of a row are kept with their words; all are counted."""


@dataclass
class Row:
    """What came of one kind of thing that was tried."""

    what: str
    """What was tried, on what: a few words, as the table of docs/reliability.md has them."""
    tried: int = 0
    """How often: crash points, failures, steps, inputs, ..."""
    lost: int = 0
    """Values, or bytes, that were lost or doubled though they must not be; a loss that is counted and told is none."""
    counted: int = 0
    """Losses that were counted or told, or errors that were clear: what may happen."""
    faults: int = 0
    """How often something happened that must not: a loss, a traceback, a hang, a reader that fails."""
    left: int = 0
    """How often there was no time to try it."""
    details: list[str] = field(default_factory=list)
    """The first of these faults, in words by which they can be had again."""

    def fault(self, text: str, *, lost: int = 0) -> None:
        """Takes note of a fault."""
        self.faults += 1
        self.lost += lost
        if len(self.details) < _SHOWN:
            self.details.append(text)


def read(path: Path) -> dict[str, Any]:
    """Returns what was kept: `{"parts": {name: {"seconds": ..., "rows": [...]}}}`; nothing where there is no file."""
    if not path.exists():
        return {"parts": {}}
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return kept


def keep(path: Path, name: str, seconds: float, rows: Iterable[Row]) -> None:
    """Keeps the rows of one part; those of other parts that are there stay."""
    kept = read(path)
    kept["parts"][name] = {"seconds": round(seconds), "rows": [asdict(row) for row in rows]}
    kept["parts"] = dict(sorted(kept["parts"].items()))
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def faults_of(kept: dict[str, Any]) -> int:
    """Returns how many faults there are."""
    return sum(row["faults"] + row["lost"] for part in kept["parts"].values() for row in part["rows"])


def markdown(kept: dict[str, Any]) -> str:
    """Returns the table of docs/reliability.md."""
    lines = ["| part | tried | how often | losses told | faults | lost |", "|---|---|--:|--:|--:|--:|"]
    for name, part in kept["parts"].items():
        for row in part["rows"]:
            numbers = " | ".join(f"{row[key]:,}" for key in ("tried", "counted", "faults", "lost"))
            lines.append(f"| {name} | {row['what']} | {numbers} |")
    return "\n".join(lines)
