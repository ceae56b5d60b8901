"""What came of the mutants of each module: rows, kept as JSON, shown as a table of Markdown."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

_HEADS = {
    "en": ("module", "tried", "killed", "explained", "survived"),
    "zh": ("模块", "试过", "被发现", "已说明", "未发现"),
}


@dataclass
class Row:
    """What came of the mutants of one module."""

    tried: int
    killed: int
    """A test failed, fell over or did not come to its end."""
    explained: int
    survived: int
    seconds: float
    """Processor time."""
    survivors: list[tuple[str, str, str]] = field(default_factory=list)
    """Function, line before and line after of each that survived."""


def read(path: Path) -> dict[str, Row]:
    """Returns the rows that were kept, by module; none where there is no file."""
    if not path.exists():
        return {}
    return {module: Row(**row) for module, row in json.loads(path.read_text(encoding="utf-8")).items()}


def keep(path: Path, rows: dict[str, Row]) -> None:
    """Keeps rows; those of other modules that are there stay."""
    kept = {module: asdict(row) for module, row in sorted({**read(path), **rows}.items())}
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def markdown(rows: dict[str, Row], language: str = "en") -> str:
    """Returns the table of docs/reliability.md, of docs/reliability.zh.md with `zh`."""
    lines = ["| " + " | ".join(_HEADS[language]) + " |", "|---|--:|--:|--:|--:|"]
    for module, row in rows.items():
        numbers = " | ".join(f"{number:,}" for number in (row.tried, row.killed, row.explained, row.survived))
        lines.append(f"| `{module.partition('/')[2]}` | {numbers} |")
    return "\n".join(lines)
