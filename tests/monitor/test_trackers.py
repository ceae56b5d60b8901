"""The backends swanlab, mlflow and trackio: what each one's own package has of a loop, and clients that misbehave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.errors import BridgeError, MissingDependencyError
from ms_summary_bridge.monitor import build_monitor_callbacks, load_config
from ms_summary_bridge.monitor.config.advice import find_advice
from ms_summary_bridge.monitor.model.sample import Note, Sample
from ms_summary_bridge.monitor.sinks.tracker_clients import _Names
from ms_summary_bridge.monitor.sinks.tracker_sink import MlflowSink, SwanlabSink, TrackerSink, TrackioSink
from ms_summary_bridge.training.facts import TrainingFacts
from tests.conftest import ROOT, TESTS
from tests.monitor_run import Engine, strict_lines

LOOP = TESTS / "monitor_scripts" / "tracker_loop.py"
TRACKERS = ("swanlab", "mlflow", "trackio")
VALUES = {
    "1": {"loss": "2.5", "lr": "0.1", "accuracy": "0.25"},
    "2": {"loss": "3.5", "lr": "0.05", "accuracy": "0.5"},
    "3": {"loss": "nan", "lr": "0.025", "accuracy": "0.75"},
    "4": {"loss": "1.5", "lr": "0.0125", "accuracy": "1"},
}


# ------------------------------------------------------------------ the packages themselves


def run_loop(
    python: Path, tmp_path: Path, package: str, *how: str, code: int = 0, **more: str
) -> tuple[list[dict[str, Any]], str]:
    """Returns what the loop's runs recorded, and what was said."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SWANLAB", "MLFLOW", "TRACKIO"))}
    done = subprocess.run(
        [str(python), str(LOOP), str(tmp_path / "save"), package, *how],
        cwd=tmp_path,
        env={**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == code, done.stderr[-3000:]
    if code:
        return [], done.stderr
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize("package", TRACKERS)
def test_a_loop_is_recorded_offline_beside_a_run_of_its_own(
    trackers_python: Path, tmp_path: Path, package: str
) -> None:
    """Its own run, begun before the monitor's in the same process, goes on to its end."""
    more = {"TRACKIO_DIR": str(tmp_path / "save" / "trackio")} if package == "trackio" else {}
    (tmp_path / "save").mkdir()
    runs, _ = run_loop(trackers_python, tmp_path, package, "own", **more)
    found = {run["project"]: run for run in runs if run["values"]}
    assert found.keys() == {"offline", "own"}
    assert sorted(value for values in found["own"]["values"].values() for value in values.values()) == ["1", "2"]
    ours = found["offline"]
    assert (ours["name"], ours["group"]) == ("run", "run")
    assert ours["values"] == VALUES
    assert "v3" in ours["config"]
    warning, alarm = sorted(ours["alarms"], key=lambda text: "ALARM" in text)
    assert "step 2: loss is 3.5, above 3" in warning
    assert "step 3: loss is NaN" in alarm
    assert ours.get("ended") in (None, "1", "FINISHED")
    journal = strict_lines(tmp_path / "save" / "offline" / "run" / "rank_0")
    assert [line["kind"] for line in journal].count("sample") == 4
    if package == "mlflow":
        assert "odd tag-" in ours["config"], "a name that it takes"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("package", TRACKERS)
def test_a_killed_training_ends_as_one_that_failed(trackers_python: Path, tmp_path: Path, package: str) -> None:
    """Odd names of project and run besides."""
    names = {"LOOP_PROJECT": "pröject? a%b#c", "LOOP_RUN": "run [1] ä;x"}
    run_loop(trackers_python, tmp_path, package, "killed", code=-9, **names)
    ours: dict[str, Any] = {}
    deadline = time.monotonic() + 60
    while len(ours.get("values", ())) < 3 or ours.get("ended") == "RUNNING":
        assert time.monotonic() < deadline, ours
        time.sleep(0.5)
        try:
            runs, _ = run_loop(trackers_python, tmp_path, package, "read")
        except AssertionError:  # its database is being made
            continue
        ours = next((run for run in runs if run["values"]), {})
    assert ours["values"] == {step: VALUES[step] for step in "123"}, "the fourth is read when the next begins"
    assert ours["name"] == names["LOOP_RUN"]
    fitted = {"swanlab": "pr-ject--a-b-c", "trackio": "pröjectabc"}  # of the latter the name of its file
    assert ours["project"] == fitted.get(package, names["LOOP_PROJECT"])
    if "ended" in ours:
        assert ours["ended"] in ("2", "FAILED")
    if package == "trackio":
        assert any("without a word" in text for text in ours["alarms"])


@pytest.mark.timeout(300)
def test_nobody_is_asked_to_log_in(trackers_python: Path, tmp_path: Path) -> None:
    runs, said = run_loop(trackers_python, tmp_path, "swanlab", SWANLAB_MODE="online")
    assert runs == []
    assert "no API key was provided" in said
    assert "swanlab lacks 6 values or notes" in said
    runs, said = run_loop(trackers_python, tmp_path, "swanlab", SWANLAB_MODE="disabled")
    assert runs == []
    assert "switched off (SWANLAB_MODE is disabled)" in said


# ------------------------------------------------------------------ packages that only say they are one

GOOD = """
import json, os, sys
class Settings:
    def __init__(self, **options): pass
class Run:
    def __init__(self, **options):
        self.file = open(os.path.join(os.environ["RECORD"], "record"), "a")
        self.put(["init", options["project"], options["mode"], sys.stdin.read()])
    def put(self, what): self.file.write(json.dumps(what) + "\\n"); self.file.flush()
    def log(self, values, step): self.put([step, values])
    def log_text(self, key, data, step): self.put([step, key, data])
    def finish(self, **how): self.put(["finish", how])
def init(**options): options.pop("settings"); return Run(**options)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module `swanlab` that the process of the client finds; it is to be written."""
    place = tmp_path / "packages"
    place.mkdir()
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.setenv("RECORD", str(tmp_path))
    monkeypatch.delenv("SWANLAB_MODE", raising=False)
    return place / "swanlab.py"


def record(tmp_path: Path) -> list[Any]:
    return [json.loads(line) for line in (tmp_path / "record").read_text().splitlines()]


class Warned(list[str]):
    def __call__(self, kind: str, message: str) -> None:
        self.append(message)


def make(tmp_path: Path, warned: Warned, *, rank: int = 0, ranks: int = 1, **limits: float) -> SwanlabSink:
    config = load_config({"save_dir": str(tmp_path), "backend": "swanlab", "tags": {"a": 1}})
    times = (limits.get("take", 20.0), limits.get("end", 20.0), limits.get("alone", 20.0))
    facts = TrainingFacts(rank=rank, ranks=ranks)
    return SwanlabSink(config, facts, str(tmp_path / "p" / "run"), {"command": ["secret"]}, warned, limits=times)


def sample(step: int, **values: float) -> Sample:
    return Sample(step=step, wall_time=1.0, values=values or {"loss": 1.0})


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_what_a_client_is_given(tmp_path: Path, package: Path) -> None:
    package.write_text(GOOD)
    warned = Warned()
    sink = make(tmp_path, warned)
    sink.open()
    sink.write_sample(sample(1, loss=float("inf"), **{"\udc80": 2.0}))
    sink.write_note(Note(kind="alert", step=1, wall_time=1.0, text="bad", fields={"rule": "spike"}))
    sink.write_note(Note(kind="milestone", step=1, wall_time=1.0, text="no alarm"))
    sink.write_note(Note(kind="end", step=1, wall_time=1.0, text="", fields={"reason": "boom"}))
    sink.close()
    assert record(tmp_path) == [
        ["init", "default", "offline", ""],  # and nothing to read where somebody would be asked
        [1, {"loss": float("inf"), "\\udc80": 2.0}],
        [1, "monitor/alert", "spike: bad"],
        ["finish", {"state": "crashed", "error": "boom"}],
    ]
    assert warned == ["swanlab takes no metric of the name '\\udc80': it is '\\\\udc80' there"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("raise RuntimeError('broken wheel')", "swanlab failed: RuntimeError: broken wheel"),
        ("import sys; sys.exit(3)", "swanlab failed: SystemExit: 3"),
        ("1 +", "swanlab failed: SyntaxError: invalid syntax"),
        (GOOD + "def init(**options): raise OSError(28, 'No space left on device')", "No space left on device"),
    ],
)
def test_a_package_that_cannot_begin_is_told_and_counted(tmp_path: Path, package: Path, text: str, told: str) -> None:
    package.write_text(text)
    warned = Warned()
    sink = make(tmp_path, warned)
    sink.open()
    for step in range(3):
        sink.write_sample(sample(step))
    with pytest.raises(BridgeError, match=r"swanlab lacks 3 values or notes; .*swanlab\.log"):
        sink.close()
    assert len(warned) == 1
    assert told in warned[0]


def test_a_client_that_refuses_values_loses_these_alone(tmp_path: Path, package: Path) -> None:
    refusing = (
        "\n    def log(self, values, step):\n        if step == 2: raise ValueError('no')\n        self.put([step])\n"
    )
    package.write_text(GOOD.replace("\n    def log(", refusing + "    def unused("))
    warned = Warned()
    sink = make(tmp_path, warned)
    sink.open()
    for step in range(1, 4):
        sink.write_sample(sample(step))
    with pytest.raises(BridgeError, match="swanlab lacks 1 value or note"):
        sink.close()
    assert warned == ["swanlab failed: ValueError: no"]
    assert record(tmp_path)[1:] == [[1], [3], ["finish", {}]]


def test_a_client_that_dies_is_told(tmp_path: Path, package: Path) -> None:
    package.write_text(GOOD.replace("def log(self, values, step): ", "def log(self, values, step): os._exit(9); "))
    sink = make(tmp_path, Warned())
    sink.open()
    deadline = time.monotonic() + 30
    with pytest.raises(BridgeError, match="swanlab has ended by itself"):  # noqa: PT012
        while time.monotonic() < deadline:
            sink.write_sample(sample(1))
            time.sleep(0.02)
    with pytest.raises(BridgeError, match="its process has ended before"):
        sink.write_sample(sample(2))
    sink.close()


def test_a_client_that_hangs_at_its_end_goes_on_alone_and_not_for_ever(tmp_path: Path, package: Path) -> None:
    package.write_text(
        GOOD.replace("def finish(self, **how): ", "def finish(self, **how): import time; time.sleep(99); ")
    )
    sink = make(tmp_path, Warned(), end=0.5, alone=2.0)
    sink.open()
    sink.write_sample(sample(1))
    assert sink._process is not None
    pid = sink._process.pid
    began = time.monotonic()
    with pytest.raises(BridgeError, match=r"swanlab has not ended in 0\.5 s; it goes on by itself, for 2 s at most"):
        sink.close()
    assert time.monotonic() - began < 10
    assert is_running(pid)
    deadline = time.monotonic() + 30
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_client_that_takes_nothing_is_stopped(tmp_path: Path, package: Path) -> None:
    package.write_text(
        GOOD.replace("def log(self, values, step): ", "def log(self, values, step): import time; time.sleep(99); ")
    )
    sink = make(tmp_path, Warned(), take=0.5)
    sink.open()
    assert sink._process is not None
    pid = sink._process.pid
    many = {f"metric {number}": 1.0 for number in range(2000)}
    with pytest.raises(BridgeError, match=r"swanlab has taken nothing for 0\.5 s, and was stopped"):  # noqa: PT012
        for step in range(1000):
            sink.write_sample(Sample(step=step, values=many))
    assert not is_running(pid)


def test_a_training_goes_on_while_its_client_hangs(
    tmp_path: Path, package: Path, caplog: pytest.LogCaptureFixture
) -> None:
    package.write_text("import time; time.sleep(99)")
    engine = Engine(tmp_path, backend=["local", "swanlab"], interval=0).begin()
    began = time.monotonic()
    for step in range(1, 200):
        engine.step(step)
    assert time.monotonic() - began < 60, "the client would take 99 s"
    assert engine.recorder.flush(60), "what is written here does not wait for it"
    assert len(engine.samples()) >= 198
    (log,) = tmp_path.glob("*/run/rank_0/swanlab.log")
    engine.recorder.end()
    assert "swanlab has not ended in 8 s; it goes on by itself" in caplog.text
    assert log.read_text() == ""


FORKING = """
import os, signal, sys, time
from ms_summary_bridge.monitor import Monitor
with Monitor({"interval": 0, "backend": "swanlab", "save_dir": sys.argv[1], "run_id": "run", "watchdog": False}) as m:
    m.step(loss=1.0)
    m.step(loss=2.0)
    while not os.path.exists(sys.argv[1] + "/record") or "loss" not in open(sys.argv[1] + "/record").read():
        time.sleep(0.05)
    if os.fork() == 0:
        time.sleep(3 if sys.argv[2] == "ends" else 20)
        sys.exit(0)
    if sys.argv[2] == "ends":
        os.wait()
    else:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["ends", "killed"])
def test_a_fork_of_the_training_neither_ends_the_run_nor_keeps_it(tmp_path: Path, package: Path, how: str) -> None:
    """A data worker may outlive a training that was killed, and holds all that it had open."""
    package.write_text(GOOD)
    with (tmp_path / "said").open("w") as said:  # a pipe would be held open by the fork
        done = subprocess.run(
            [sys.executable, "-c", FORKING, str(tmp_path), how],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(package.parent), str(ROOT)])},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            timeout=100,
            check=False,
        )
    assert done.returncode == (0 if how == "ends" else -9), (tmp_path / "said").read_text()
    deadline = time.monotonic() + 30
    while record(tmp_path)[-1][0] != "finish":
        assert time.monotonic() < deadline, record(tmp_path)
        time.sleep(0.1)
    ends = [line for line in record(tmp_path) if line[0] == "finish"]
    assert ends == [
        ["finish", {} if how == "ends" else {"state": "crashed", "error": "the training has ended without a word"}]
    ]
    assert record(tmp_path)[1][1]["loss"] == 1.0


def test_ranks_are_runs_of_one_group_with_places_of_their_own(tmp_path: Path) -> None:
    abouts = [make(tmp_path, Warned(), rank=rank, ranks=2)._about for rank in (0, 1)]
    assert [(about["name"], about["group"]) for about in abouts] == [("run-rank-0", "run"), ("run-rank-1", "run")]
    assert len({about["directory"] for about in abouts}) == 2
    assert all("command" not in about["monitor"] for about in abouts)


def test_a_log_that_cannot_be_made_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    sink = SwanlabSink(load_config({}), TrainingFacts(), str(tmp_path / "file" / "run"), {}, Warned())
    with pytest.raises(OSError, match="Not a directory"):
        sink.open()


@pytest.mark.parametrize("package_name", TRACKERS)
def test_it_must_be_installed(tmp_path: Path, package_name: str) -> None:
    config = load_config({"backend": package_name, "save_dir": str(tmp_path)})
    if any(Path(place, package_name).exists() for place in sys.path):
        pytest.skip(f"{package_name} is installed here")
    with pytest.raises(
        MissingDependencyError, match=f"'{package_name}' needs a package .*: pip install {package_name}"
    ):
        build_monitor_callbacks(config)
    assert f"backend: {package_name} is not installed here: pip install {package_name}" in find_advice(config)


def test_all_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    if any(Path(place, name).exists() for place in sys.path for name in ("mlflow", "trackio")):
        pytest.skip("they are installed here")
    with pytest.raises(MissingDependencyError, match="pip install mlflow trackio"):
        build_monitor_callbacks({"backend": ["mlflow", "trackio"], "save_dir": str(tmp_path)})


def test_a_name_stays_that_of_one_thing() -> None:
    said: list[str] = []
    names = _Names("metric", r"[^a-z]", 12, said.append)
    assert [names(name) for name in ("a", "a?", "a!", "a?", "", "x" * 20)] == ["a", "a-", "a--2", "a-", "-", "x" * 12]
    assert len(said) == 4


def test_each_tracker_has_a_class() -> None:
    assert {sink.package for sink in (SwanlabSink, MlflowSink, TrackioSink)} == set(TRACKERS)
    assert all(issubclass(sink, TrackerSink) for sink in (SwanlabSink, MlflowSink, TrackioSink))
