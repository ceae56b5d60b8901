"""tools/bench runs. How fast anything is, is not judged here: the machines of the tests are shared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.internal import api_implementation

BENCH = Path(__file__).resolve().parents[2] / "tools" / "bench"


@pytest.fixture
def run_bench(tmp_path: Path):
    """Runs tools/bench with these arguments and returns what it printed; its files go to the test's directory."""
    pytest.importorskip("tensorboardX")
    pytest.importorskip("PIL")
    if api_implementation.Type() == "python":
        pytest.skip("the loop by hand is measured under protobuf's C implementation, which is not there")

    def run(*arguments: str) -> str:
        # The loop by hand is measured under upb, whatever another test may have asked for.
        env = {name: value for name, value in os.environ.items() if name != "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"}
        done = subprocess.run(
            [sys.executable, str(BENCH), *arguments],
            env={**env, "TMPDIR": str(tmp_path), "COLUMNS": "160"},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr
        assert list(tmp_path.iterdir()) == [], "files were left behind"
        return done.stdout

    return run


def test_convert_prints_the_ratios(run_bench) -> None:
    output = run_bench("convert", "--quick")
    for text in ("scalars", "histograms", "images", "ratio min / median / max"):
        assert text in output


def test_convert_gives_json(run_bench) -> None:
    results = json.loads(run_bench("convert", "--quick", "--json"))["convert"]
    assert {result["target"] for result in results} == {8.0, 0.0, 1.5, 2.0}
    for result in results:
        assert 0 < result["ratio"]["min"] <= result["ratio"]["median"] <= result["ratio"]["max"]


def test_memory_gives_json(run_bench) -> None:
    outcome = json.loads(run_bench("memory", "--small-mib", "1", "--large-mib", "2", "--json"))
    assert [result["file_mib"] for result in outcome["memory"]] == [1, 2]


def test_follow_gives_json(tmp_path: Path) -> None:
    arguments = ["follow", "--runs", "2", "--secs", "0.2", "--warm-up", "0", "--json"]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(BENCH), *arguments], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, 1), done.stderr  # it has just started, so it is not at rest
    outcome = json.loads(done.stdout)
    assert [share["what"] for share in outcome["follow"]] == ["at rest", "one run grows twice a second"]
    assert outcome["is_met"] == (done.returncode == 0)
