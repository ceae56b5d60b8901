"""Each example runs, and leaves what its first lines promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from tools.quickstart_check import read_series
from tools.tensorboard_api import stop_process

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run_example(name: str, directory: Path, *arguments: str) -> str:
    """Runs an example to its end in an empty directory, and returns what it printed."""
    directory.mkdir()
    # To files and not to pipes: MindSpore's writer processes inherit them, and would hold a pipe open.
    with (directory / "out.txt").open("wb") as out, (directory / "err.txt").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, str(EXAMPLES / name), *arguments],
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=240)
        finally:
            stop_process(process)
    assert code == 0, (directory / "err.txt").read_text(errors="replace")[-4000:]
    return (directory / "out.txt").read_text()


@pytest.mark.mindspore
@pytest.mark.slow
@pytest.mark.parametrize("callback", ["collector", "bridge"])
def test_train_with_summary_collector(tmp_path: Path, callback: str) -> None:
    summary_dir = tmp_path / "summary"
    said = run_example(
        "train_with_summary_collector.py", tmp_path / "work", str(summary_dir), "--epochs", "1", "--callback", callback
    )

    assert "recognises" in said
    (run,) = inspect_logdir(str(summary_dir)).runs
    found = {(tag.kind, tag.tag) for tag in run.tags}
    assert found >= {
        ("scalar", "loss/auto"),
        ("scalar", "accuracy"),
        ("histogram", "features"),
        ("histogram", "layers.0.weight/auto"),
        ("image", "input_data/auto"),
        ("tensor", "logits"),
        *(
            (kind, "")
            for kind in ("graph", "dataset_graph", "train_lineage", "evaluation_lineage", "user_defined_info")
        ),
    }
    loss = [value.value for value in read_series(summary_dir)["scalar", "loss/auto"].values()]
    assert sum(loss[-5:]) < 0.7 * sum(loss[:5]), "it does not learn"
    more = {("scalar", tag) for tag in ("lr", "train_info/epoch", "step_time", "samples_per_second", "eval/accuracy")}
    assert found & more == (more if callback == "bridge" else set())
    if callback == "bridge":
        assert verify_logdirs(str(summary_dir), str(summary_dir)).is_equal  # MindSpore's files with the live one


def test_every_example_is_tested() -> None:
    # tests/callback/test_bridge.py runs the one with SummaryBridge, and asks both viewers for it.
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert [path.name for path in EXAMPLES.glob("*.py") if f'{path.name}"' not in text] == []
