"""MindInsight's own loader on what crashes leave of MindSpore's files, in a sample: where it has its environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ms_summary_bridge.events import Event, Summary
from ms_summary_bridge.files.event_file import EventFileReader
from ms_summary_bridge.files.file_names import MINDSPORE
from ms_summary_bridge.runs.archive import make_decoder
from ms_summary_bridge.values import Scalar
from ms_summary_bridge.viewers.environment import find_environment
from torturing.calls import Interposed
from torturing.crash_training import LiveFiles, SyncedLiveFiles
from torturing.disk import Recorder, crashes
from torturing.reading import files_below
from torturing.report import Row
from torturing.scenario import small_buffers

__all__ = ["try_mindinsight"]

_READER = Path(__file__).with_name("read_mindinsight.py")
_LONGEST_SECS = 600


def try_mindinsight(base: Path, *, every: int = 2) -> Row:
    """Lets MindInsight read every so many of the states; nothing is tried where it has no environment."""
    row = Row("live files, read by MindInsight's loader")
    environment = find_environment()
    if not environment:
        return row
    shutil.rmtree(base, ignore_errors=True)
    left: list[tuple[Path, int, str, Any]] = []
    for kind in (LiveFiles, SyncedLiveFiles):
        place = base / kind.__name__
        (place / "root").mkdir(parents=True)
        scenario, recorder = kind(place), Recorder()
        with small_buffers(), Interposed(str(place / "root"), recorder):
            scenario.write(recorder.mark)
        for number, crash in enumerate(crashes(recorder.ops, str(place / "root"))):
            if number % every == 0:
                crash.image.write(str(place / "root"))
                kept = base / f"{kind.__name__}.{number}"
                shutil.copytree(scenario.directory, kept) if scenario.directory.is_dir() else kept.mkdir()
                promised = max(crash.promised, default=-1) if kind.fsync or not crash.is_power else -1
                left.append((kept, promised, f"crash {number}, {crash.how}", _our_scalars(kept)))
    program = [os.path.join(environment, "bin", "python"), str(_READER)]
    done = subprocess.run(
        program,
        input="".join(f"{path}\n" for path, *_ in left),
        env={**os.environ, "HOME": str(base)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        timeout=_LONGEST_SECS,
    )
    answers = done.stdout.splitlines()
    if len(answers) != len(left):
        row.fault(f"MindInsight's loader ended after {len(answers)} of {len(left)} directories")
    for (_, promised, what, ours), answer in zip(left, answers, strict=False):
        row.tried += 1
        seen = json.loads(answer)
        if isinstance(seen, str):
            row.fault(f"{what}: MindInsight's loader fails: {seen}")
            continue
        for number in range(3):
            points = dict(seen.get(f"loss{number}/scalar", []))
            if lost := [step for step in range(promised + 1) if points.get(step) != step + number / 8]:
                row.fault(f"{what}: MindInsight lacks the steps {lost} of loss{number}", lost=len(lost))
            if more := points.items() - ours.get(f"loss{number}", {}).items():
                row.fault(f"{what}: MindInsight reads what our reader does not: {more}")
    shutil.rmtree(base, ignore_errors=True)
    return row


def _our_scalars(directory: Path) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    for _, path in files_below(str(directory), MINDSPORE):
        with EventFileReader(path, make_decoder(MINDSPORE)) as reader:
            for event in reader:
                if isinstance(event, Event) and isinstance(event.content, Summary):
                    for value in event.content.values:
                        if isinstance(value.value, Scalar):
                            found.setdefault(value.tag, {})[event.step] = value.value.value
    return found
