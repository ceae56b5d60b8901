"""Windows and macOS, as far as Linux can tell: what looks at a training works without what only Linux, or POSIX, has.

The commands run in processes in which that is hidden from the package (`tests/other_system/sitecustomize.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from ms_summary_bridge.files import system
from tests.eventually import wait_for
from tests.log_samples import MINDSPORE_LOGS, TENSORBOARD_LOGS
from tests.scripted import build_file, build_record, mindspore_name, put, scalar_payload, tensorboard_name
from tools.tensorboard_api import TensorBoardClient, running_tensorboard

ROOT = Path(__file__).resolve().parents[2]
HIDING = ROOT / "tests" / "other_system"
SYSTEMS = ["win32", "darwin"]
RIGHTS = {"links": "symlink same_disk", "no links": "same_disk", "copies": ""}


def environment(name: str, rights: str = "symlink same_disk") -> dict[str, str]:
    path = os.pathsep.join([str(HIDING), str(ROOT)] if name != "linux" else [str(ROOT)])
    others = {} if name == "linux" else {"MSB_TEST_SYSTEM": name, "MSB_TEST_RIGHTS": rights}
    return {**os.environ, "PYTHONPATH": path, **others}


def run(name: str, *command: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment(name), capture_output=True, timeout=120, check=False
    )


def run_python(name: str, text: str, cwd: Path) -> str:
    done = run(name, "-c", text, cwd=cwd)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout.decode()


# ---------------------------------------------------------------- the hiding itself


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_the_system_lacks_is_hidden_from_this_package_alone(tmp_path: Path, name: str) -> None:
    text = (
        "import os, subprocess, threading\n"
        "code = compile({ours!r}, {path!r}, 'exec')\n"
        "exec(code, {{'__file__': {path!r}}})\n"
        "assert os.memfd_create and os.fork and os.name == 'posix'\n"
    )
    ours = {
        "win32": (
            "import os, signal, select, subprocess, sys\n"
            "assert (sys.platform, os.name) == ('win32', 'nt')\n"
            "for name in ('pread', 'fork', 'getuid', 'killpg', 'register_at_fork', 'O_CLOEXEC', 'nice', 'pathconf'):\n"
            "    assert not hasattr(os, name), name\n"
            "assert not hasattr(signal, 'SIGHUP') and not hasattr(select, 'poll') and hasattr(signal, 'SIGTERM')\n"
            "for name in ('fcntl', 'pwd', 'resource'):\n"
            "    try: __import__(name, globals())\n"
            "    except ModuleNotFoundError: continue\n"
            "    raise AssertionError(name)\n"
            "with open('held', 'wb'):\n"
            "    try: os.replace('held', 'other')\n"
            "    except PermissionError: pass\n"
            "    else: raise AssertionError('an open file was renamed')\n"
            "command = [sys.executable, '-c', '']\n"
            "assert subprocess.Popen(command, start_new_session=True, creationflags=0x200).wait() == 0\n"
        ),
        "darwin": (
            "import fcntl, os, signal, sys\n"
            "assert sys.platform == 'darwin' and os.pread and signal.SIGHUP\n"
            "assert not hasattr(os, 'memfd_create') and not hasattr(fcntl, 'F_SETPIPE_SZ')\n"
        ),
    }[name]
    run_python(name, text.format(ours=ours, path=str(ROOT / "ms_summary_bridge" / "hidden.py")), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SYSTEMS)
def test_the_types_of_the_other_system_have_all_that_is_used(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--platform", name, "--cache-dir", str(tmp_path), "ms_summary_bridge"],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    # Rooms that record are for Linux; of the monitor, the dashboard reads the journal, which lies beside the trackers.
    recording = ("ms_summary_bridge/live_writer/", "ms_summary_bridge/monitor/", "ms_summary_bridge/callback/")
    journal, trackers = "ms_summary_bridge/monitor/sinks/", "ms_summary_bridge/monitor/sinks/tracker_"
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert errors, "the rooms that record have such errors"
    assert [
        line
        for line in errors
        if not line.startswith((*recording, trackers)) or (line.startswith(journal) and not line.startswith(trackers))
    ] == []


def test_ci_names_the_three_systems_and_on_linux_calls_what_anybody_does() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    assert ".ci/run" in [step.get("run") for step in jobs["linux"]["steps"]]
    matrix = jobs["without-mindspore"]["strategy"]["matrix"]["os"]
    assert matrix == ["ubuntu-latest", "windows-latest", "macos-latest"]
    commands = " ".join(step.get("run", "") for step in jobs["without-mindspore"]["steps"])
    assert "pytest tests/any_system" in commands
    assert "mindspore" not in commands
    gitee = yaml.safe_load((ROOT / ".workflow" / "ci.yml").read_text())
    assert gitee["stages"][0]["steps"][0]["commands"] == [".ci/run"]


# ---------------------------------------------------------------- commands

COMMANDS = {
    "convert": ["convert", "ms", "out/tb", "--workers", "2", "--report", "out/report.json"],
    "convert again": ["convert", "ms", "out/tb"],
    "convert to MindInsight": ["convert", "tb", "out/ms"],
    "inspect": ["inspect", "ms", "--json"],
    "inspect what was made": ["inspect", "out/ms"],
    "verify": ["verify", "ms", "out/tb"],
    "verify back": ["verify", "out/ms", "tb", "--json"],
    "csv": ["export", "ms", "out/csv", "--format", "csv"],
    "jsonl": ["export", "tb", "out/jsonl", "--format", "jsonl"],
    "parquet": ["export", "ms", "out/parquet", "--format", "parquet"],
    "images": ["export", "ms", "out/images", "--format", "images"],
    "a row for each training": ["export", "tb", "out/rows", "--format", "runs"],
    "diff": ["diff", "ms/case 0", "ms/case 0"],
    "what changed": ["diff", "ms/case 0", "ms/case 3", "--json"],
    "aggregate": ["aggregate", "ranks", "out/aggregate"],
    "config init": ["config", "init", "out/monitor.yaml"],
    "config check": ["config", "check", "out/monitor.yaml"],
    "a source that is missing": ["convert", "nowhere", "out/nowhere"],
}


@pytest.mark.slow
def test_every_command_gives_the_same_bytes_as_on_linux(tmp_path: Path) -> None:
    for directory, logs in (("ms", MINDSPORE_LOGS), ("tb", TENSORBOARD_LOGS)):
        for number, make in enumerate(logs.values()):
            make(tmp_path / directory / f"case {number}")
    for rank in range(3):
        path = tmp_path / "ranks" / f"rank_{rank}" / tensorboard_name()
        put(path, build_file("tensorboard", range(5)))

    def take(name: str) -> tuple[dict[str, tuple[int, bytes, bytes]], dict[str, bytes]]:
        """Runs all of them, at one place, since outputs name their source."""
        out = tmp_path / "out"
        out.mkdir()
        (tmp_path / name).mkdir()
        done = subprocess.run(  # one process that forks, since most of what a command costs is its start
            [sys.executable, str(HIDING / "commands.py"), str(tmp_path / name)],
            cwd=tmp_path, env=environment(name), input=json.dumps(COMMANDS).encode(), capture_output=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()[-3000:]
        codes = json.loads(done.stdout)
        said = {}
        for title in COMMANDS:
            stdout, stderr = ((tmp_path / name / f"{title}.{suffix}").read_bytes() for suffix in ("out", "err"))
            assert b"Traceback" not in stderr, stderr.decode()[-3000:]
            said[title] = codes[title], stdout, stderr
        files = {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}
        shutil.rmtree(out)
        return said, files

    expected = take("linux")
    assert {title: code for title, (code, _, _) in expected[0].items() if code not in (0, 3)} == {
        "what changed": 1,
        "a source that is missing": 1,
    }
    assert len(expected[1]) > 40
    for name in SYSTEMS:
        said, files = take(name)
        assert said == expected[0]
        assert files.keys() == expected[1].keys()
        assert [path for path, data in files.items() if data != expected[1][path]] == []


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_growing_run_is_followed(tmp_path: Path, name: str) -> None:
    source = put(tmp_path / "ms" / mindspore_name(), build_file("mindspore", range(3)))
    process = subprocess.Popen(
        [sys.executable, "-m", "ms_summary_bridge", "convert", "ms", "out", "--follow"],
        cwd=tmp_path, env=environment(name), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip

    def has_steps(count: int) -> bool:
        done = run("linux", "-m", "ms_summary_bridge", "verify", "ms", "out", cwd=tmp_path)
        return done.returncode == 0 and f"{count} points".encode() in done.stdout

    try:
        wait_for(lambda: has_steps(3), "the first steps are not there")
        with source.open("ab") as file:
            file.write(build_record(scalar_payload("mindspore", 3)))
        wait_for(lambda: has_steps(4), "what was appended is not there")
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said.decode()
    assert b"Traceback" not in said


def test_names_that_windows_does_not_take_are_changed_and_come_back(tmp_path: Path) -> None:
    # Linux wrote them, and they lie in an archive, where their names have no rules.
    names = ["2026-01-01T10:00:00", "con", "end.", "plain", "aux.old"]
    for name in names:
        put(tmp_path / "tree" / name / mindspore_name(), build_file("mindspore", range(3)))
    shutil.make_archive(str(tmp_path / "tree"), "zip", tmp_path / "tree")
    source = f"zip://::{tmp_path}/tree.zip"
    done = run("win32", "-m", "ms_summary_bridge", "convert", source, "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    made = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert [name.partition("~h")[0] for name in made] == ["2026-01-01T10_00_00", "_aux.old", "_con", "end_", "plain"]
    done = run("win32", "-m", "ms_summary_bridge", "verify", source, "out", cwd=tmp_path)
    assert done.returncode == 0, done.stdout.decode()
    # Where such names may be, they are again what they were.
    done = run("linux", "-m", "ms_summary_bridge", "convert", "out", "back", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert sorted(path.name for path in (tmp_path / "back").iterdir() if path.is_dir()) == sorted(names)


@pytest.mark.parametrize("name", SYSTEMS)
def test_two_runs_whose_names_differ_in_case_alone_stay_two(tmp_path: Path, name: str) -> None:
    for number, run_name in enumerate(("Run", "run")):
        put(tmp_path / "tree" / run_name / mindspore_name(), build_file("mindspore", range(3 + number)))
    shutil.make_archive(str(tmp_path / "tree"), "zip", tmp_path / "tree")
    done = run(name, "-m", "ms_summary_bridge", "convert", f"zip://::{tmp_path}/tree.zip", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr.decode()
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == ["Run", "run_2"]


LOCKS = """
import os, subprocess, sys
from ms_summary_bridge.files.atomic import take_lock
from ms_summary_bridge.files.system import O_BINARY, try_lock

def opened():
    return os.open("lock", os.O_RDWR | os.O_CREAT)

if sys.argv[1:]:
    print(try_lock(opened()), try_lock(opened(), is_shared=True))
else:
    def ask():
        return subprocess.check_output([sys.executable, __file__, "other"], text=True).split()
    one = take_lock("lock")
    assert one is not None and take_lock("lock") is None and ask() == ["False", "False"]
    os.close(one)
    shared = [opened() for _ in range(3)]
    assert all(try_lock(each, is_shared=True) for each in shared)
    assert ask() == ["False", "True"]
    for each in shared:
        os.close(each)
    assert ask() == ["True", "False"]  # its own first one has it
    print("held")
"""


def test_locks_by_places_hold_as_locks_of_files_do(tmp_path: Path) -> None:
    script = put(tmp_path / "locks.py", LOCKS.encode())
    for name in ("linux", *SYSTEMS):
        done = run(name, str(script), cwd=tmp_path)
        assert done.stdout == b"held\n", (name, done.stderr.decode()[-2000:])


def test_what_is_read_at_a_place_leaves_the_place_to_write_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system.sys, "platform", "win32")
    descriptor = os.open(put(tmp_path / "file", b"0123456789"), os.O_RDWR)
    os.lseek(descriptor, 10, os.SEEK_SET)
    assert system.read_at(descriptor, 3, 4) == b"456"
    assert system.read_at(descriptor, 30, 8) == b"89"
    os.write(descriptor, b"x")
    os.close(descriptor)
    assert (tmp_path / "file").read_bytes() == b"0123456789x"


# ---------------------------------------------------------------- recording


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize(
    "statement",
    [
        "from ms_summary_bridge import SummaryBridge",
        "from ms_summary_bridge import GradientSummary",
        "from ms_summary_bridge import SaveBestCheckpoint",
        "from ms_summary_bridge import Monitor",
        "from ms_summary_bridge.monitor import MindSporeTransformersMonitor",
        "from ms_summary_bridge.monitor import build_monitor_callbacks",
        "from ms_summary_bridge.monitor import register_metric",
        "import ms_summary_bridge.callback.bridge",
        "import ms_summary_bridge.monitor.callback",
        "import ms_summary_bridge.monitor.loop",
    ],
)
def test_recording_is_refused_by_name(tmp_path: Path, name: str, statement: str) -> None:
    text = (
        "import ms_summary_bridge, ms_summary_bridge.errors as errors\n"
        f"try:\n    {statement}\n"
        "except errors.UnsupportedSystemError as error:\n"
        "    assert isinstance(error, (errors.MissingDependencyError, ImportError))\n"
        "    print(error)\n"
        "assert {'SummaryBridge', 'Monitor', 'build_monitor_callbacks'}.isdisjoint(dir(ms_summary_bridge))\n"
        "assert {'convert_logdir', 'view'} < {*dir(ms_summary_bridge)}\n"
        "from ms_summary_bridge import *\n"
    )
    said = run_python(name, text, tmp_path)
    assert f"needs Linux; this is {name}" in said
    assert "convert SUMMARY_DIR" in said


# ---------------------------------------------------------------- viewers


@pytest.fixture(params=["darwin", *(f"win32, {rights}" for rights in RIGHTS)])
def other(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Children of the test run on another system; on Windows, with several rights to make links."""
    name, _, rights = str(request.param).partition(", ")
    for key, value in environment(name, RIGHTS.get(rights, RIGHTS["links"])).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return str(request.param)


def wait_steps(client: TensorBoardClient, run_name: str, count: int) -> None:
    client.wait_json(
        "data/plugin/scalars/scalars",
        lambda rows: [row[1] for row in rows] == list(range(count)),
        run=run_name,
        tag="loss",
    )


@pytest.mark.tensorboard
@pytest.mark.slow
def test_tensorboard_shows_runs_of_both_formats_while_they_grow(tmp_path: Path, other: str) -> None:
    logs = tmp_path / "logs"
    mindspore = put(logs / "ms" / mindspore_name(), build_file("mindspore", range(3)))
    tensorboard = put(logs / "tb" / "deep" / tensorboard_name(), build_file("tensorboard", range(3)))
    beside = put(logs / tensorboard_name(), build_file("tensorboard", range(3)))
    with running_tensorboard(logs, tmp_path / "log.txt", load_fast=False) as client:
        client.wait_json("data/runs", lambda runs: sorted(runs) == [".", "ms", "tb/deep"])
        for path, file_format in ((mindspore, "mindspore"), (tensorboard, "tensorboard"), (beside, "tensorboard")):
            with path.open("ab") as file:
                file.write(build_record(scalar_payload(file_format, 3)))
        for name in (".", "ms", "tb/deep"):
            wait_steps(client, name, 4)
        put(logs / "later" / mindspore_name(), build_file("mindspore", range(5)))
        wait_steps(client, "later", 5)
        assert sorted(client.get_json("data/runs")) == [".", "later", "ms", "tb/deep"]
    links = [path for path in (tmp_path / "cache").rglob("*") if path.is_symlink() and not path.is_dir()]
    assert bool(links) == (other in ("darwin", "win32, links"))  # else they are second names, or copies
    log = (tmp_path / "log.txt").read_text()
    assert "Traceback" not in log
    assert "not followed" not in log


def is_alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.tensorboard
@pytest.mark.slow
@pytest.mark.parametrize("other", ["darwin", "win32, no links"], indirect=True)
def test_view_opens_tensorboard_and_leaves_no_process(tmp_path: Path, other: str) -> None:
    put(tmp_path / "logs" / "ms" / mindspore_name(), build_file("mindspore", range(3)))
    out, err = tmp_path / "out.txt", tmp_path / "err.txt"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "ms_summary_bridge", "view", str(tmp_path / "logs"), "--port", "0"],
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
        )  # fmt: skip
    try:
        wait_for(lambda: out.read_text().strip() or process.poll() is not None, err.read_text, 120)
        assert process.poll() is None, err.read_text()
        wait_steps(TensorBoardClient(out.read_text().strip().rstrip("/")), "ms", 3)
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 2  # the guard and TensorBoard
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
    assert code == 0, err.read_text()
    assert "Traceback" not in err.read_text()
    wait_for(lambda: not any(map(is_alive, started)), "some are left")


def test_mindinsight_is_refused_on_windows_alone(tmp_path: Path) -> None:
    done = run("win32", "-m", "ms_summary_bridge", "view", "logs", "--with", "mindinsight", cwd=tmp_path)
    assert done.returncode == 1
    assert b"MindInsight itself does not run on Windows" in done.stderr
    assert b"--with tensorboard" in done.stderr
