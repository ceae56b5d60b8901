"""No input makes a look fail: every kind of log, and files with bytes that are others."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.cli.watch_page import render_page
from ms_summary_bridge.cli.watch_view import WatchView
from ms_summary_bridge.states.run_state import RunState
from ms_summary_bridge.states.watcher import RunWatcher
from tests.log_samples import MINDSPORE_LOGS, TENSORBOARD_LOGS
from tests.scripted import put

LOGS = {**MINDSPORE_LOGS, **TENSORBOARD_LOGS}
KEYS = ("kind", "step", "wall_time", "rank", "values", "nonfinite", "severity", "message", "pid", "host", "reason")
KINDS = ("header", "sample", "alert", "milestone", "end", "hang", "recovered", "death")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.sampled_from(KINDS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, "loss"]), inner, max_size=4),
    max_leaves=9,
)


def look(directory: Path) -> list[RunState]:
    runs = RunWatcher(str(directory)).look(time.time())
    for run in runs:
        json.dumps(run.plain(), allow_nan=False)
        for view in (WatchView(opened=run.name), WatchView(sort="loss")):
            render_page(runs, view, (120, 40), time.time(), source="x")
    return runs


@pytest.mark.parametrize("name", LOGS)
def test_every_kind_of_log(tmp_path: Path, name: str) -> None:
    LOGS[name](tmp_path)
    runs = look(tmp_path)
    assert runs
    assert [problem for run in runs for problem in run.problems if "hold no whole record" in problem] == []


@given(data=st.data(), name=st.sampled_from(sorted(LOGS)))
def test_logs_with_other_bytes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str) -> None:
    directory = tmp_path_factory.mktemp("log")
    LOGS[name](directory)
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(paths))
    content = bytearray(path.read_bytes())
    for place in data.draw(st.lists(st.integers(0, max(0, len(content) - 1)), max_size=4)):
        content[place : place + 1] = data.draw(st.binary(max_size=3))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    look(directory)


@given(
    lines=st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=8), max_size=6), torn=st.binary(max_size=20)
)
def test_journals_with_anything(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]], torn: bytes
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    for name in ("metrics.jsonl", "hang.jsonl"):
        put(directory / "rank_0" / name, data + torn)
    put(directory / "metrics.jsonl", data)
    look(directory)
