"""tools/bench runs. How fast anything is, is not judged here: the machines of the tests are shared."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from google.protobuf.internal import api_implementation

BENCH = Path(__file__).resolve().parents[2] / "tools" / "bench"

PACKAGES = {"tbparse": "tbparse", "Rust data server": "tensorboard_data_server"}
CONVERT_TARGETS = {
    ("scalars, 1 an event", "loop by hand"): 40,
    ("scalars, 1 an event", "Rust data server"): 1.5,
    ("scalars, 5 an event", "loop by hand"): 60,
    ("histograms of 90 buckets", "loop by hand"): 6,
    ("images of 500 KB", "cp"): 0.7,
    ("TensorBoard to MindSpore", "EventFileLoader"): 20,
    ("TensorBoard to arrays", "EventAccumulator"): 15,
    ("TensorBoard to arrays", "tbparse"): 15,
}


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


def test_convert_measures_every_peer_and_draws_it(run_bench, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    measured = run_bench("convert", "--quick", "--json")
    results = json.loads(measured)["convert"]
    targets = {(result["case"], result["peer"]): result["target"] for result in results}
    targets.pop(("scalars, 1 an event", "parse_summary"), None)  # where MindInsight has its environment
    assert targets == {
        key: target
        for key, target in CONVERT_TARGETS.items()
        if key[1] not in PACKAGES or importlib.util.find_spec(PACKAGES[key[1]])
    }
    for result in results:
        for ratio in (result["cpu_ratio"], result["wall_ratio"]):
            assert 0 < ratio["min"] <= ratio["median"] <= ratio["max"]
    file, chart = tmp_path / "measured.json", tmp_path / "chart.svg"
    file.write_text(measured)
    done = subprocess.run(
        [sys.executable, str(BENCH), "convert", "--quick", "--from", str(file), "--chart", str(chart)],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    texts = [element.text for element in ElementTree.parse(chart).iter("{http://www.w3.org/2000/svg}text")]
    for case, peer in targets:
        assert {case, peer} <= {*texts}
        assert all(text in done.stdout for text in (case, peer))


def test_a_leg_that_fails_ends_the_measuring() -> None:
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from benchmarks.measure import measure_process\n"
        "try: measure_process([sys.executable, '-c', 'import sys; sys.exit(\"no luck\")'], os.environ)\n"
        "except ChildProcessError as error: print(error)\n"
        "print(measure_process([sys.executable, '-c', 'print(sum(range(10**6)))'], os.environ)[1])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(BENCH.parent)], capture_output=True, text=True, timeout=60)
    assert "exit code 1: no luck" in done.stdout
    assert "499999500000" in done.stdout


def test_memory_gives_json(run_bench) -> None:
    outcome = json.loads(run_bench("memory", "--small-mib", "1", "--large-mib", "2", "--only", "scalars", "--json"))
    found = [(result["kind"], result["file_mib"]) for result in outcome["memory"]]
    assert found == [("scalars", 1), ("scalars", 2), ("scalars of TensorBoard", 1), ("scalars of TensorBoard", 2)]
    assert outcome["growth_mib"].keys() == {"scalars", "scalars of TensorBoard"}


def test_scale_measures_runs_and_sizes(run_bench) -> None:
    outcome = json.loads(run_bench("scale", "--runs", "3", "--mib", "1", "--json"))["scale"]
    assert outcome["runs"]["cpu"] > 0
    assert [size["mib"] for size in outcome["sizes"]] == [1]


def test_plugin_compares_the_first_answers(run_bench) -> None:
    pytest.importorskip("tensorboard")
    outcome = json.loads(run_bench("plugin", "--scalars", "20000", "--pairs", "1", "--runs", "3", "--json"))["plugin"]
    assert outcome["cpu_ratio"]["median"] > 0
    page = outcome["page"]
    if page is None:
        pytest.skip("NO PAGE IS LOOKED AT: Chromium or playwright is not installed")
    assert (page["runs"], len(page["known"])) == (3, 1)
    assert 0 < page["idle_bytes"] < page["answer_bytes"]
    for paint in (page["first"], *page["known"]):
        assert min(paint["wall"], paint["server"], paint["browser"]) > 0


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
