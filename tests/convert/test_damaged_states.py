"""States that somebody has changed: each is refused as damaged, or said nothing of what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.state import STATE_NAME, load_state
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.errors import DamagedStateError
from tests.scripted import build_file, mindspore_name, put


def convert_one(top: Path) -> dict[str, Any]:
    """Converts a small source; returns the state."""
    put(top / "source" / "run" / mindspore_name(), build_file("mindspore", range(3)))
    convert_logdir(top / "source", top / "output")
    state: dict[str, Any] = json.loads((top / "output" / STATE_NAME).read_text())
    return state


@pytest.mark.parametrize("turns", ["0<<: 117", "x", "0", " ", "0 \n1 5", "0 117 anew\nx 3"])
def test_turns_that_are_none_are_damage(tmp_path: Path, turns: str) -> None:
    state = convert_one(tmp_path)
    state["runs"]["run"]["turns"] = turns
    put(tmp_path / "output" / STATE_NAME, json.dumps(state).encode())
    with pytest.raises(DamagedStateError):
        load_state(str(tmp_path / "output"))


@pytest.mark.parametrize("where", ["source", "file", "output", "archive", "plan"])
def test_a_path_with_a_zero_is_damage(tmp_path: Path, where: str) -> None:
    state = convert_one(tmp_path)
    run = state["runs"]["run"]
    if where == "source":
        state["source"] += "\0"
    elif where == "file":
        run["files"]["a\0b"] = {}
    elif where == "output":
        run["outputs"][0]["name"] += "\0"
    elif where == "archive":
        run["archives"]["mindspore\0"] = 3
    else:
        run["plan"] = {"ends": {"a\0": 1}}
    put(tmp_path / "output" / STATE_NAME, json.dumps(state).encode())
    with pytest.raises(DamagedStateError):
        convert_logdir(tmp_path / "source", tmp_path / "output")


def test_a_source_that_is_no_absolute_path_is_not_found_to_be_the_source(tmp_path: Path) -> None:
    """As one on another drive."""
    state = convert_one(tmp_path)
    state["source"] = "9" + state["source"]
    put(tmp_path / "output" / STATE_NAME, json.dumps(state).encode())
    assert verify_logdirs(tmp_path / "source", tmp_path / "output").is_equal
