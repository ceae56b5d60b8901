"""The backend wandb: what Weights & Biases itself has of a loop that was recorded offline."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

import pytest

from ms_summary_bridge.errors import MissingDependencyError
from ms_summary_bridge.monitor import build_monitor_callbacks, load_config
from ms_summary_bridge.monitor.sinks.wandb_sink import WandbSink
from ms_summary_bridge.training.facts import TrainingFacts
from tests.conftest import ROOT, TESTS
from tests.monitor_run import Engine, strict_lines

LOOP = TESTS / "monitor_scripts" / "wandb_loop.py"


def test_it_must_be_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install wandb"):
        build_monitor_callbacks({"backend": "wandb", "save_dir": str(tmp_path)})


def environment(tmp_path: Path, **more: str) -> dict[str, str]:
    """No login of whoever runs the tests, and none of their settings."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    nobody = "http://127.0.0.1:9"  # nobody answers there
    return {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), "WANDB_BASE_URL": nobody, **more}


def run_loop(python: Path, tmp_path: Path, *arguments: str, **more: str) -> tuple[list[dict[str, Any]], str]:
    """Returns what the loop's runs recorded, and what was said."""
    done = subprocess.run(
        [str(python), str(LOOP), str(tmp_path), *arguments],
        cwd=tmp_path,
        env=environment(tmp_path, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


HISTORY = [
    [1, {"loss": "2.5", "lr": "0.1", "accuracy": "0.25"}],
    [2, {"loss": "3.5", "lr": "0.05", "accuracy": "0.5"}],
    [3, {"loss": "NaN", "lr": "0.025", "accuracy": "0.75"}],
    [4, {"loss": "1.5", "lr": "0.0125", "accuracy": "1"}],
]


@pytest.mark.timeout(600)  # the environment may have to be made first
def test_a_loop_is_recorded_offline(wandb_python: Path, tmp_path: Path) -> None:
    (found,), _ = run_loop(wandb_python, tmp_path, WANDB_MODE="offline")
    assert found["run"] == {"project": "offline", "name": "run", "group": "run"}
    assert found["exit_code"] == 0
    tags, monitor = found["config"]["tags"], found["config"]["monitor"]
    assert tags == {"dataset": "v3", "layers": 12, "monitor": "theirs"}
    header = strict_lines(tmp_path / "offline" / "run" / "rank_0" / "metrics.jsonl")[0]
    assert monitor["versions"]["ms_summary_bridge"]
    assert monitor == {name: header[name] for name in monitor}, "what is stored with the run"
    assert header["command"]
    assert header["directory"]
    assert not {"command", "directory"} & monitor.keys(), "they stay on this machine"
    assert found["history"] == HISTORY
    warning, alarm = found["alerts"]  # and none for the start and the end
    assert warning == ["offline: loss", "step 2: loss is 3.5, above 3"]
    assert alarm[0] == "offline: nonfinite"
    assert "step 3: loss is NaN" in alarm[1]


@pytest.mark.timeout(600)
def test_a_run_of_the_loops_own_goes_on(wandb_python: Path, tmp_path: Path) -> None:
    """It is kept offline by its own argument, and so is the monitor's then."""
    (monitors, own), _ = run_loop(wandb_python, tmp_path, "offline")
    assert monitors["history"] == HISTORY
    assert own["run"]["project"] == "own"
    assert [values for _, values in own["history"]] == [{"mine": "1"}, {"mine": "2"}]
    assert own["exit_code"] == 0


@pytest.mark.timeout(600)
def test_a_package_that_is_switched_off_is_said(wandb_python: Path, tmp_path: Path) -> None:
    runs, said = run_loop(wandb_python, tmp_path, WANDB_MODE="disabled")
    assert runs == []
    assert "WandbSink.open failed: Weights & Biases is switched off (mode 'disabled')" in said
    assert "WandbSink lacks 9 values or notes" in said


@pytest.mark.timeout(600)
def test_nobody_is_asked_to_log_in(wandb_python: Path, tmp_path: Path) -> None:
    """On a terminal the package would ask, and wait for an answer."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [str(wandb_python), str(LOOP), str(tmp_path)],
        cwd=tmp_path,
        env=environment(tmp_path, TERM="xterm"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        output = b""
        with contextlib.suppress(OSError):  # what a terminal's end says when nobody is left at the other
            while data := os.read(ours, 65536):
                output += data
        os.close(ours)
        assert process.wait(120) == 0
    said = output.decode(errors="replace")
    assert "WandbSink.open failed: not logged in: `wandb login`, or WANDB_MODE=offline" in said
    assert "Enter your choice" not in said
    assert [line["kind"] for line in strict_lines(tmp_path / "offline" / "run" / "rank_0")].count("sample") == 4


# ------------------------------------------------------------------ with a package that only says it is one


class FakeRun:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(mode="offline")
        self.steps: list[int] = []

    def log(self, values: dict[str, float], *, step: int) -> None:
        self.steps.append(step)

    def alert(self, *, title: str, text: str) -> None:
        pass

    def finish(self) -> None:
        pass


class FakeWandb(ModuleType):
    """The part of the package that is used; `init` waits for `gate`."""

    Settings = SimpleNamespace(model_fields={"finish_timeout": None})
    __version__ = "0.18.7"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)
        monkeypatch.setitem(sys.modules, "wandb", self)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.began: list[dict[str, Any]] = []
        self.run: FakeRun | None = None
        self.made = FakeRun()

    def setup(self) -> FakeRun:
        return self.made

    def init(self, *, reinit: Literal["finish_previous", "create_new"] = "finish_previous", **options: Any) -> FakeRun:
        self.began.append({"reinit": reinit, **options})
        self.entered.set()
        self.gate.wait()
        return self.made


class OldWandb(FakeWandb):
    """Knows of one run at a time, and its end has no limit."""

    Settings = SimpleNamespace()

    def init(self, *, reinit: bool | None = None, **options: Any) -> FakeRun:  # type: ignore[override]
        return super().init(**options)


def sink(tmp_path: Path, rank: int = 0, ranks: int = 1) -> WandbSink:
    config = load_config({"save_dir": str(tmp_path)})
    return WandbSink(config, TrainingFacts(rank=rank, ranks=ranks), str(tmp_path / "p" / "run"), {})


def test_each_rank_is_a_run_of_one_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = FakeWandb(monkeypatch)
    for rank in (0, 1):
        sink(tmp_path, rank, ranks=2).open()
    assert [(run["name"], run["group"]) for run in wandb.began] == [("run-rank-0", "run"), ("run-rank-1", "run")]


def test_the_end_of_a_run_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = FakeWandb(monkeypatch)
    sink(tmp_path).open()
    assert 0 < wandb.began[0]["settings"]["finish_timeout"] < 10


def test_a_package_too_old_for_two_runs_leaves_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = OldWandb(monkeypatch)
    sink(tmp_path).open()
    assert len(wandb.began) == 1
    wandb.run = FakeRun()
    with pytest.raises(MissingDependencyError, match=r"wandb 0\.18\.7 .* pip install -U wandb"):
        sink(tmp_path).open()
    assert len(wandb.began) == 1


def test_a_run_that_takes_long_to_begin_holds_up_no_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = FakeWandb(monkeypatch)
    wandb.gate.clear()
    section: dict[str, Any] = {"alerts": ["nonfinite"], "metrics": ["loss"], "interval": 0}
    engine = Engine(tmp_path, backend=["local", "wandb"], **section).begin()
    engine.step(1)
    engine.step(2, outputs=float("nan"))
    engine.step(3)
    assert engine.recorder.flush(60)
    assert wandb.entered.wait(60)
    assert [line["step"] for line in engine.samples()] == [1, 2]  # the third is read when the next begins
    assert [line["step"] for line in engine.lines("alert")] == [2]
    wandb.gate.set()
    engine.end()
    assert wandb.made.steps == [1, 2, 3]
