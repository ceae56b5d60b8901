"""The commands that look at a training, on whatever system this is: real files in, the values out again.

Needs neither MindSpore nor what only POSIX has, so that Windows and macOS run it too.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.files.system import NEW_GROUP

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"
MINDSPORE = "events.out.events.summary.1700000000.0.host_MS"
TENSORBOARD = "events.out.tfevents.1700000000.host"


def put(directory: Path, case: str, name: str) -> Path:
    directory.mkdir(parents=True)
    (directory / name).write_bytes((DATA / f"{case}.bin").read_bytes())
    return directory


def run(*command: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ms_summary_bridge", *map(str, command)], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
    return done.stdout.decode()


def test_mindspores_values_are_converted_verified_and_exported(tmp_path: Path) -> None:
    put(tmp_path / "ms" / "run", "mindspore-2.10-summary", MINDSPORE)
    put(tmp_path / "ms" / "deep" / "other", "mindspore-2.10-summary", MINDSPORE)
    run("convert", tmp_path / "ms", tmp_path / "tb", "--workers", 2)
    assert "0 values" in run("convert", tmp_path / "ms", tmp_path / "tb")
    assert "equal: 2 runs" in run("verify", tmp_path / "ms", tmp_path / "tb")
    runs = json.loads(run("inspect", tmp_path / "ms", "--json"))["runs"]
    assert sorted(run["run"] for run in runs) == ["deep/other", "run"]
    run("export", tmp_path / "ms", tmp_path / "numbers", "--format", "csv")
    with (tmp_path / "numbers" / "scalars.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["run"] for row in rows} == {"deep/other", "run"}
    if importlib.util.find_spec("pyarrow") is not None:
        run("export", tmp_path / "ms", tmp_path / "tables", "--format", "parquet")
    run("export", tmp_path / "ms", tmp_path / "pictures", "--format", "images")
    assert list((tmp_path / "pictures").rglob("*.png"))


def test_tensorboards_values_go_to_mindinsight_and_back(tmp_path: Path) -> None:
    put(tmp_path / "tb" / "run", "tensorboardx-2.6.5", TENSORBOARD)
    run("convert", tmp_path / "tb", tmp_path / "ms")
    assert "equal: 1 run" in run("verify", tmp_path / "tb", tmp_path / "ms")
    run("convert", tmp_path / "ms", tmp_path / "back")
    assert "equal: 1 run" in run("verify", tmp_path / "tb", tmp_path / "back")


def wait(ask: Callable[[], Any], secs: float = 120.0) -> Any:
    deadline = time.monotonic() + secs
    while True:
        try:
            if answer := ask():
                return answer
        except OSError:
            pass
        assert time.monotonic() < deadline, "it has not come"
        time.sleep(0.2)


def test_the_flag_of_a_new_group_is_pythons_own() -> None:
    assert getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0) == NEW_GROUP


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="TensorBoard is not installed")
def test_view_shows_mindspores_runs_and_ends(tmp_path: Path) -> None:
    put(tmp_path / "logs" / "run", "mindspore-2.10-summary", MINDSPORE)
    out = tmp_path / "out.txt"
    with out.open("wb") as stdout:
        process = subprocess.Popen(
            [sys.executable, "-m", "ms_summary_bridge", "view", str(tmp_path / "logs"), "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
        )
    try:
        url = wait(lambda: out.read_text().strip() or process.poll() is not None)
        assert process.poll() is None

        def runs() -> list[str]:
            with urllib.request.urlopen(f"{url.rstrip('/')}/data/runs", timeout=10) as answer:
                found: list[str] = json.load(answer)
            return found

        assert wait(runs) == ["run"]
    finally:
        process.terminate()  # however it ends, its children do
        process.wait(60)


def test_a_row_for_each_training_and_what_changed_between_two(tmp_path: Path) -> None:
    for name in ("one", "two"):
        put(tmp_path / "ms" / name, "mindspore-2.10-summary", MINDSPORE)
    run("export", tmp_path / "ms", tmp_path / "table", "--format", "runs", "--sort", "-run")
    with (tmp_path / "table" / "runs.csv").open(newline="", encoding="utf-8") as file:
        assert [row["run"] for row in csv.DictReader(file)] == ["two", "one"]
    assert run("diff", tmp_path / "ms" / "one", tmp_path / "ms" / "two").endswith("the same\n")
