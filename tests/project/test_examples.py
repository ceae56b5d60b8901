"""Each example runs, and leaves what its first lines promise."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.columns.inspect import inspect_logdir
from ms_summary_bridge.columns.read import read_scalars, read_texts
from ms_summary_bridge.convert.verify import verify_logdirs
from tools.quickstart_check import read_series
from tools.tensorboard_api import stop_process

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def run_example(name: str, directory: Path, *arguments: str, python: Path | None = None, **environment: str) -> str:
    """Runs an example to its end in a directory of its own, and returns what it printed."""
    directory.mkdir(exist_ok=True)
    # To files and not to pipes: MindSpore's writer processes inherit them, and would hold a pipe open.
    with (directory / "out.txt").open("wb") as out, (directory / "err.txt").open("wb") as err:
        process = subprocess.Popen(
            [str(python or sys.executable), str(EXAMPLES / name), *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
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


def journal_of(directory: Path) -> list[dict[str, Any]]:
    """Returns the lines of the one journal of rank 0 below a directory."""
    (path,) = directory.glob("**/rank_0/metrics.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_own_loop(tmp_path: Path) -> None:
    said = run_example("own_loop.py", tmp_path, "kept")
    assert "y = 3.000 x + 1.000" in said
    assert said.count(" at most\n") == 3
    samples = [line for line in journal_of(tmp_path / "kept") if line["kind"] == "sample"]
    assert len(samples) == 60
    assert samples[-1]["values"].keys() >= {"loss", "lr", "samples_per_second", "grad_norm", "slope"}
    assert read_scalars(tmp_path / "kept").series("monitor/slope")[1][-1] == pytest.approx(3, abs=1e-3)


@pytest.mark.mindspore
def test_own_loop_on_mindspore(tmp_path: Path) -> None:
    assert "weights: [[2.0, -1.0]]" in run_example("own_loop_mindspore.py", tmp_path, "kept")
    samples = [line["values"] for line in journal_of(tmp_path / "kept") if line["kind"] == "sample"]
    assert len(samples) == 40
    assert any("update_ratio" in values for values in samples)
    assert samples[-1]["loss"] < 1e-4 < samples[0]["loss"]


@pytest.mark.mindspore
def test_train_with_monitor(tmp_path: Path) -> None:
    # Of the file monitor.yaml, which stands beside it.
    said = run_example("train_with_monitor.py", tmp_path, MONITOR_DIR=str(tmp_path / "kept"))
    assert "training ended at step 40" in said
    (run,) = (tmp_path / "kept" / "bars").iterdir()
    assert len((run / "rank_0" / "metrics.csv").read_text().splitlines()) == 41
    (inspected,) = (one for one in inspect_logdir(run / "summary").runs if one.format == "mindspore")
    assert ("scalar", "loss/auto") in {(tag.kind, tag.tag) for tag in inspected.tags}


@pytest.mark.mindformers
@pytest.mark.slow
def test_train_mindformers(tmp_path: Path, mindformers_python: Path) -> None:
    # Of the file mindformers_llama.yaml, which stands beside it.
    run_example("train_mindformers.py", tmp_path, python=mindformers_python, OM_MODULES_CACHE=str(tmp_path / "cache"))
    samples = [line["values"] for line in journal_of(tmp_path / "output") if line["kind"] == "sample"]
    assert len(samples) == 4
    assert samples[-1].keys() >= {"loss", "lr", "grad_norm", "tokens_per_second"}
    (run,) = inspect_logdir(tmp_path / "output" / "summary").runs
    assert ("scalar", "loss/auto") in {(tag.kind, tag.tag) for tag in run.tags}


def test_alarms(tmp_path: Path) -> None:
    said = run_example("alarms.py", tmp_path, "kept")
    assert "the robot hears: [CRITICAL] nonfinite: loss is NaN" in said
    assert " in <module>" in said
    assert "&lt;" not in said
    assert "the loop ended after step 31" in said
    assert "loss is NaN" in next((tmp_path / "kept").glob("**/stop_report.txt")).read_text(encoding="utf-8")


@pytest.mark.mindspore
def test_best_checkpoint(tmp_path: Path) -> None:
    said = run_example("best_checkpoint.py", tmp_path, "kept")
    assert said.splitlines()[0] == "a new training"
    assert "best: checkpoint_step_30.ckpt" in said
    assert said.splitlines()[-1] == "files: checkpoint_step_20.ckpt checkpoint_step_30.ckpt"
    again = run_example("best_checkpoint.py", tmp_path, "kept")
    assert again.splitlines()[0] == "going on from: checkpoint_step_30.ckpt"
    assert "best: checkpoint_step_60.ckpt" in again


@pytest.mark.mindspore
def test_gradients(tmp_path: Path) -> None:
    run_example("gradients.py", tmp_path, "kept")
    (run,) = inspect_logdir(tmp_path / "kept").runs
    points = {(tag.kind, tag.tag): tag.points for tag in run.tags if tag.tag.startswith("gradient/")}
    assert points[("scalar", "gradient/global_norm")] >= 4
    assert {tag for kind, tag in points if kind == "histogram"} == {"gradient/0.weight", "gradient/2.weight"}


def test_convert_tree(tmp_path: Path) -> None:
    said = run_example("convert_tree.py", tmp_path, "kept")
    assert said.splitlines()[-2:] == ["for_mindinsight has all of runs: True", "and_back has all of runs: True"]
    assert said.count("MindInsight has no place for a text") == 3
    assert [text.value for text in read_texts(tmp_path / "kept" / "and_back", runs="0.3")] == ["with a rate of 0.3"]


def test_follow_training(tmp_path: Path) -> None:
    said = run_example("follow_training.py", tmp_path, "kept")
    assert said.splitlines()[-1] == "converted: steps 0 to 29, the last loss 0.0333"
    assert said.count(" in all\n") > 1, "all in one round"
    assert verify_logdirs(str(tmp_path / "kept" / "training"), str(tmp_path / "kept" / "converted")).is_equal


def test_aggregate_ranks(tmp_path: Path) -> None:
    said = run_example("aggregate_ranks.py", tmp_path, "kept")
    assert "rank 3: 15 values up to step 14, 5 missing" in said
    assert "rank 2: loss is not finite since step 18" in said
    assert "mean at step 0: 1.0150" in said


def test_read_and_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    for package in ("ipykernel", "matplotlib", "pandas"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(EXAMPLES / "read_and_plot.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without results"
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Jupyter, about its own event loops and directories
        client.execute()
    plot, best, texts = (
        cell for cell in notebook.cells if cell.cell_type == "code" and cell.id in ("plot", "best", "texts")
    )
    assert len(plot.source.split("\n\n")) == 2
    assert [len(part.splitlines()) for part in plot.source.split("\n\n")] == [1, 2], "three lines to a plot"
    assert "image/png" in plot.outputs[-1].data
    assert "49" in best.outputs[-1].data["text/plain"]
    assert "fast 0 with a rate of 0.2" in texts.outputs[0].text


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
    named = sorted(path.name for path in EXAMPLES.iterdir() if path.is_file())
    assert len(named) >= 12
    assert [name for name in named if not re.search(rf"\b{re.escape(name)}\b", text)] == []


def test_the_page_lists_every_example() -> None:
    named = sorted(path.name for path in EXAMPLES.iterdir() if path.is_file())
    for page in ("examples.md", "examples.zh.md"):
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert sorted(set(re.findall(r"examples/([\w.]+)", text))) == named, page
