"""Keeps inputs: `python -m tools.fuzzing.keep TARGET DIRECTORY ...` chooses of those that hunts found.

Small ones come first, and one is kept if it reaches a line of the package that none before it reached, until the
archive of the target is full. What is kept already is chosen from anew.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import ms_summary_bridge
from tools.fuzzing.corpus import read_corpus, write_corpus
from tools.fuzzing.measure import Counts, try_input
from tools.fuzzing.target import Target
from tools.fuzzing.targets import TARGETS

_PACKAGE = str(Path(ms_summary_bridge.__file__).parent)
_MOST_BYTES = 7 << 10
"""Of all inputs of a target, compressed: together they stay below 200 KiB."""
_MOST_INPUT = 2 << 10


class Tracer:
    """Takes note of the lines of the package that are executed."""

    def __init__(self) -> None:
        self.lines: set[tuple[CodeType, int]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_PACKAGE):
            return None
        self.lines.add((frame.f_code, frame.f_lineno))
        return self


def choose(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """Returns the inputs to keep."""
    seen: set[tuple[CodeType, int]] = set()
    kept: list[bytes] = []
    size = 0
    for data in [*target.seeds(), *sorted({*inputs}, key=lambda data: (len(data), data))]:
        if len(data) > _MOST_INPUT:
            continue
        tracer = Tracer()
        sys.settrace(tracer)
        try:
            try_input(target, data, Counts())
        except AssertionError:
            continue  # too slow while it is traced; a fault is kept by a test of its own
        finally:
            sys.settrace(None)
        packed = len(zlib.compress(data)) + 100
        if tracer.lines <= seen or size + packed > _MOST_BYTES:
            continue
        seen |= tracer.lines
        if data not in kept:
            kept.append(data)
            size += packed
    return kept


def main() -> None:
    """Chooses for one target."""
    target = TARGETS[sys.argv[1]]
    found = [path.read_bytes() for name in sys.argv[2:] for path in sorted(Path(name).iterdir()) if path.is_file()]
    seeds = {*target.seeds()}
    kept = [data for data in choose(target, [*read_corpus(target.name), *found]) if data not in seeds]
    path = write_corpus(target.name, kept)
    print(f"{path}: {len(kept)} of {len(found)} inputs, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
