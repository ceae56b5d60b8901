"""What a look at very many ranks reads: tails at first, and later what is new alone."""

from __future__ import annotations

import json
import time
from pathlib import Path

from ms_summary_bridge.states.watcher import RunWatcher
from tests.mindspore_run import START, event, histogram, scalar, summary_bytes, summary_name
from tests.scripted import build_record, scalar_payload

RUNS, RANKS = 200, 64
TAIL = 8192


def write_tree(directory: Path) -> None:
    """Writes a summary file and a journal for each rank; the file has large records before its tail."""
    wide = histogram(range(300))
    summary = summary_bytes(
        event(step, ("loss", scalar(1 / step)), *([("w", wide)] if step == 1 else [])) for step in range(1, 200)
    )
    assert len(summary) > TAIL
    header = {"kind": "header", "wall_time": START, "ranks": RANKS, "host": "elsewhere", "pid": 7}
    lines = [header, *({"kind": "sample", "step": step, "wall_time": START + step} for step in range(1, 200))]
    journal = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    for run in range(RUNS):
        job = directory / f"job_{run}"
        for rank in range(RANKS):
            (job / f"rank_{rank}").mkdir(parents=True)
            (job / f"rank_{rank}" / "metrics.jsonl").write_bytes(journal)
            (job / f"rank_{rank}" / summary_name(rank=rank)).write_bytes(summary)


def test_two_hundred_runs_of_sixty_four_ranks(tmp_path: Path) -> None:
    write_tree(tmp_path)
    watcher = RunWatcher(str(tmp_path), host="here")
    now = time.time() + 10  # nothing was made just now: a listing is worth keeping
    first = watcher.look(now)
    assert (len(first), sum(len(run.ranks) for run in first)) == (RUNS, RUNS * RANKS)
    assert watcher.reading.files == 2 * RUNS * RANKS
    assert watcher.reading.bytes <= (TAIL + 16384) * RUNS * RANKS
    again = watcher.look(now + 1)
    assert (watcher.reading.files, watcher.reading.bytes, watcher.reading.listed) == (0, 0, 0)
    assert [run.step for run in again] == [199] * RUNS
    record = build_record(scalar_payload("mindspore", 200))
    for rank in range(RANKS):
        with (tmp_path / "job_7" / f"rank_{rank}" / summary_name(rank=rank)).open("ab") as file:
            file.write(record)
    grown = watcher.look(now + 2)
    assert (watcher.reading.files, watcher.reading.bytes, watcher.reading.listed) == (RANKS, RANKS * len(record), 0)
    assert {run.name: run.step for run in grown if run.step != 199} == {"job_7": 200}
    assert (
        sum(one is not other for one, other in zip(again, grown, strict=True)) <= 2 + RUNS
    )  # others may be judged anew
