"""The backend wandb: what Weights & Biases itself has of a loop that was recorded offline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.errors import MissingDependencyError
from ms_summary_bridge.monitor import build_monitor_callbacks, load_config
from ms_summary_bridge.monitor.backends import WandbSink
from ms_summary_bridge.monitor.facts import TrainingFacts
from tests.conftest import ROOT, TESTS
from tests.monitor_run import strict_lines

LOOP = TESTS / "monitor_scripts" / "wandb_loop.py"


def test_it_must_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install wandb"):
        build_monitor_callbacks({"backend": "wandb", "save_dir": str(tmp_path)})


@pytest.mark.timeout(600)  # the environment may have to be made first
def test_a_loop_is_recorded_offline(wandb_python: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"  # no login of whoever runs the tests, and none of their settings
    home.mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path)}
    environment["WANDB_BASE_URL"] = "http://127.0.0.1:9"  # nobody answers there
    done = subprocess.run(
        [str(wandb_python), str(LOOP), str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["run"] == {"project": "offline", "name": "run", "group": "run"}
    assert found["exit_code"] == 0
    assert (found["config"]["dataset"], found["config"]["layers"]) == ("v3", 12)
    header = strict_lines(tmp_path / "offline" / "run" / "rank_0" / "metrics.jsonl")[0]
    monitor = found["config"]["monitor"]
    assert monitor["versions"]["ms_summary_bridge"]
    assert monitor == {name: header[name] for name in monitor}, "what is stored with the run"
    assert found["history"] == [
        [1, {"loss": "2.5", "lr": "0.1", "accuracy": "0.25"}],
        [2, {"loss": "3.5", "lr": "0.05", "accuracy": "0.5"}],
        [3, {"loss": "NaN", "lr": "0.025", "accuracy": "0.75"}],
        [4, {"loss": "1.5", "lr": "0.0125", "accuracy": "1"}],
    ]
    warning, alarm = found["alerts"]  # and none for the start and the end
    assert warning == ["offline: loss", "step 2: loss is 3.5, above 3"]
    assert alarm[0] == "offline: nonfinite"
    assert "step 3: loss is NaN" in alarm[1]


def test_each_rank_is_a_run_of_one_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[tuple[str, str]] = []

    class Wandb:
        @staticmethod
        def init(*, name: str, group: str, **_: Any) -> None:
            began.append((name, group))

    monkeypatch.setitem(sys.modules, "wandb", Wandb)
    config = load_config({"save_dir": str(tmp_path)})
    for rank in (0, 1):
        WandbSink(config, TrainingFacts(rank=rank, ranks=2), str(tmp_path / "p" / "run"), {}).open()
    assert began == [("run-rank-0", "run"), ("run-rank-1", "run")]
