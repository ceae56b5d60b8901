"""`view`: either format in the real viewers, live; its port, its environment, and an end that leaves nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.errors import BridgeError, UsageError
from ms_summary_bridge.viewers import environment, view
from ms_summary_bridge.viewers.address import choose_port, describe_tunnel, url_of
from ms_summary_bridge.viewers.program import Program
from tests.eventually import wait_for
from tests.scripted import build_file, build_record, mindspore_name, put, scalar_payload, tensorboard_name
from tools.mindinsight_api import MindInsightClient, mindinsight_environment
from tools.tensorboard_api import TensorBoardClient, stop_process

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """
import sys
from tensorboardX import SummaryWriter

with SummaryWriter(sys.argv[1], flush_secs=0.5) as writer:  # its flush() may come before what is still in its queue
    for step in range(1, int(sys.argv[2]) + 1):
        writer.add_scalar("loss", step, step)
        if step == 1:
            writer.add_text("note", "words")
        sys.stdin.readline()
"""


class Opened:
    """A `view` in a process of its own."""

    def __init__(self, directory: Path, source: Path, *options: str, **variables: str) -> None:
        self._out, self._err = directory / "out.txt", directory / "err.txt"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "ms_summary_bridge", "view", str(source), *options],
                env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(directory / "cache"), **variables},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        return self._err.read_text()

    def wait_url(self) -> str:
        def answer() -> str:
            assert self.process.poll() is None, self.said
            return self._out.read_text().strip()

        url: str = wait_for(answer, lambda: self.said, 300)
        return url.rstrip("/")

    def guards(self) -> list[psutil.Process]:
        return [each for each in psutil.Process(self.process.pid).children() if is_guard(each)]

    def end(self, number: int) -> int:
        """Sends a signal; returns the exit code, once no process is left of all that was started."""
        groups = [guard.pid for guard in self.guards()]
        assert groups
        self.process.send_signal(number)
        code = self.process.wait(60)
        wait_for(lambda: not [pid for pid in psutil.pids() if group_of(pid) in groups], "processes are left")
        return code


def is_guard(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return any(part.endswith("guard.py") for part in process.cmdline())
    return False


def group_of(pid: int) -> int:
    with contextlib.suppress(OSError, psutil.Error):
        if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            return os.getpgid(pid)
    return -1


def listening(viewer: Opened) -> set[tuple[str, int]]:
    """Returns the addresses and ports at which anything listens that it has started."""
    found = set()
    for process in psutil.Process(viewer.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {
                (connection.laddr.ip, connection.laddr.port)
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            }
    return found


@contextlib.contextmanager
def opened(directory: Path, source: Path, *options: str, **variables: str) -> Iterator[Opened]:
    viewer = Opened(directory, source, *options, **variables)
    try:
        yield viewer
    finally:
        stop_process(viewer.process)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port at which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        yield port


# ---------------------------------------------------------------- MindInsight


def wait_steps(client: MindInsightClient, run: str, count: int, secs: float = 60.0, start: int = 1) -> None:
    def is_there(answer: Any) -> bool:
        rows = answer.get("metadatas", []) if isinstance(answer, dict) else []
        return [row["step"] for row in rows] == list(range(start, start + count))

    client.wait_json("datavisual/scalar/metadata", is_there, timeout_secs=secs, train_id=run, tag="loss/scalar")


def test_mindinsight_shows_a_tensorboardx_training_step_by_step_and_runs_of_mindspore(
    tmp_path: Path, summary_dir: Path, taken: int
) -> None:
    mindinsight_environment()  # made by the tools, and found there
    logs = tmp_path / "logs"
    options = ("--with", "mindinsight", "--port", str(taken))
    with opened(tmp_path, logs, *options) as viewer:
        url = viewer.wait_url()
        assert f"port {taken} is taken; MindInsight gets {url.rpartition(':')[2]}" in viewer.said
        assert "no runs yet" in viewer.said
        client = MindInsightClient(url)
        training = subprocess.Popen(
            [sys.executable, "-c", TRAIN, str(logs / "team" / "first"), "4"], stdin=subprocess.PIPE
        )
        try:
            assert training.stdin is not None
            for step in (1, 2, 3, 4):  # no other step is taken before this one is shown
                wait_steps(client, "./team+first", step, 120.0 if step == 1 else 10.0)
                training.stdin.write(b"\n")
                training.stdin.flush()
            training.stdin.close()
            assert training.wait(60) == 0
        finally:
            training.kill()
            training.communicate()

        shutil.copytree(summary_dir, logs / "a" / "b" / "real")
        deep = put(logs / "a" / "b" / "c" / mindspore_name(), build_file("mindspore", range(1, 4)))
        put(logs / "never" / mindspore_name(99_999_999_999_999), build_file("mindspore", range(1, 4)))
        put(logs / mindspore_name(), build_file("mindspore", range(1, 6)))
        both = put(logs / "both" / mindspore_name(), build_file("mindspore", range(1, 8)))
        wait_steps(client, "./both", 7)
        wait_steps(client, "./a+b+c", 3)
        wait_steps(client, "./never", 3)
        wait_steps(client, "./", 5)
        with deep.open("ab") as file:
            file.write(build_record(scalar_payload("mindspore", 4)))
        wait_steps(client, "./a+b+c", 4)
        whole = both.read_bytes()
        put(logs / "both" / tensorboard_name(), build_file("tensorboard", range(1, 3)))
        wait_steps(client, "./both", 2)
        wait_steps(client, "./both+mindspore", 7)
        assert both.read_bytes() == whole
        client.wait_job("./a+b+real", lambda job: job["summary_files"] and job["lineage_files"])
        lineage = client.wait_lineages("./a+b+real")["./a+b+real"]
        assert lineage["optimizer"], lineage
        kinds = {"scalar", "histogram", "image", "tensor", "graph"}
        client.wait_json(
            "datavisual/plugins",
            lambda answer: kinds <= {kind for kind, tags in answer["plugins"].items() if tags},
            train_id="./a+b+real",
        )

        shutil.rmtree(logs / "never")
        client.wait_json(
            "datavisual/train-jobs",
            lambda answer: "./never" not in {job["train_id"] for job in answer["train_jobs"]},
            offset=0,
            limit=100,
        )
        assert "not exact in MindInsight: text: " in viewer.said
        assert "failed" not in viewer.said
        assert viewer.end(signal.SIGINT) == 0
    assert "Traceback" not in viewer.said
    assert list((tmp_path / "cache").rglob("workspace.*")) == []


# ---------------------------------------------------------------- TensorBoard


def test_tensorboard_shows_a_run_of_mindspore_at_another_port_if_need_be(tmp_path: Path, taken: int) -> None:
    pytest.importorskip("tensorboard")
    logs = tmp_path / "logs"
    path = put(logs / "a" / "ms" / mindspore_name(), build_file("mindspore", range(1, 4)))
    with opened(tmp_path, logs, "--port", str(taken), SSH_CONNECTION="10.0.0.9 50000 10.0.0.1 2222") as viewer:
        url = viewer.wait_url()
        port = url.rpartition(":")[2]
        assert f"port {taken} is taken; TensorBoard gets {port}" in viewer.said
        wait_for(lambda: f"ssh -p 2222 -N -L {port}:127.0.0.1:{port} " in viewer.said, lambda: viewer.said)
        client = TensorBoardClient(url)
        for steps in (range(1, 4), range(1, 5)):
            client.wait_json(
                "data/plugin/scalars/scalars",
                lambda rows, steps=steps: [row[1] for row in rows] == list(steps),
                run="a/ms",
                tag="loss",
                timeout_secs=60.0,
            )
            with path.open("ab") as file:
                file.write(build_record(scalar_payload("mindspore", 4)))
        assert {address for address, number in listening(viewer) if number == int(port)} == {"127.0.0.1"}
        assert {address for address, _ in listening(viewer)} <= {"127.0.0.1", "::1"}, "its data server too"
        viewer.end(signal.SIGKILL)
    assert [found for found in logs.rglob("*") if found.is_file()] == [path], "the directory is left as it is"
    mirrors = ("ms_summary_bridge.mirror", str(logs))

    def is_mirror(process: psutil.Process) -> bool:
        line = process.info["cmdline"] or []
        return all(part in line for part in mirrors)

    wait_for(lambda: not any(map(is_mirror, psutil.process_iter(["cmdline"]))), "the mirror outlives its viewer")


# ---------------------------------------------------------------- MindInsight's environment

# Stands for a Python: it makes an environment of itself, in which a pip installs nothing and a MindInsight starts a
# server that goes on when it has ended, as the real one does.
FAKE_PYTHON = f"""#!/bin/sh
case "$1 $2" in
  "-c import ensurepip"*) exit 0 ;;
  "-m venv") mkdir -p "$4/bin"; for name in python gunicorn mindinsight; do cp "$0" "$4/bin/$name"; done ;;
  "-m pip") echo "pip is given $6 $7"; echo again >>"$FAKE_LOG"; exit "$FAKE_PIP" ;;
  *settings.HOST*) [ -z "$FAKE_FAILS" ] || {{ echo "no luck today"; exit 3; }}
    "{sys.executable}" -m http.server "$6" --bind "$3" >/dev/null 2>&1 & ;;
esac
"""


@pytest.fixture
def no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without MindInsight; returns what is written to each time that something is installed."""
    fake = put(tmp_path / "fake" / "python", FAKE_PYTHON.encode())
    fake.chmod(0o755)
    log = tmp_path / "installed.txt"
    (tmp_path / "none").mkdir()
    variables = {"MSB_PYTHON": fake, "XDG_DATA_HOME": tmp_path / "data", "XDG_CACHE_HOME": tmp_path / "cache"}
    for name, value in {**variables, "FAKE_LOG": log, "FAKE_PIP": 0, "FAKE_FAILS": ""}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("MSB_VENVS", raising=False)
    monkeypatch.setattr(environment, "_CHECKOUT", str(tmp_path / "none"))
    return log


def test_nobody_to_ask_is_wrong_usage(no_environment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["view", str(tmp_path), "--with", "mindinsight"]) == 2
    said = capsys.readouterr().err
    assert "--yes" in said
    assert "100 MB" in said
    assert not no_environment.exists()
    assert not (tmp_path / "data").exists()


def test_no_is_an_answer(no_environment: Path) -> None:
    asked: list[str] = []

    def refuse(question: str) -> bool:
        asked.append(question)
        return False

    with pytest.raises(BridgeError, match="was not made"):
        environment.make_environment(is_yes=False, ask=refuse, say=asked.append)
    assert len(asked) == 1
    assert not no_environment.exists()


ASKED = """
import sys
from ms_summary_bridge.viewers import environment
environment._CHECKOUT = sys.argv.pop(1)
from ms_summary_bridge.cli.app import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("answer", "what"), [("y", "no luck today"), ("n", "was not made"), ("\4", "was not made")])
def test_a_person_is_asked(no_environment: Path, tmp_path: Path, answer: str, what: str) -> None:
    terminal, end = os.openpty()
    with (tmp_path / "out.txt").open("wb") as out:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                ASKED,
                str(tmp_path / "none"),
                "view",
                str(tmp_path / "logs"),
                "--with",
                "mindinsight",
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT), "FAKE_FAILS": "1"},
            stdin=end,
            stdout=out,
            stderr=end,
            start_new_session=True,
        )
    os.close(end)
    said = ""
    try:
        while chunk := read_terminal(terminal):
            said += chunk
            if answer and "Make it now?" in said:
                os.write(terminal, f"{answer}\n".encode() if answer.isalpha() else answer.encode())
                answer = ""
        assert process.wait(60) == 1
    finally:
        stop_process(process)
        os.close(terminal)
    assert what in said
    assert "Traceback" not in said


def read_terminal(terminal: int) -> str:
    with contextlib.suppress(OSError):  # Linux says so when the other end is closed
        return os.read(terminal, 4096).decode(errors="replace")
    return ""


def test_it_is_made_once_and_found_again(no_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    assert environment.find_environment() == ""
    made = environment.make_environment(is_yes=False, ask=lambda question: True, say=said.append)
    assert made == str(tmp_path / "data" / "ms_summary_bridge" / "mindinsight") == environment.find_environment()
    assert environment.make_environment(is_yes=True, ask=None, say=said.append) == made
    assert no_environment.read_text() == "again\n"
    other = put(tmp_path / "pins.txt", b"mindinsight==2.3.2\n")
    monkeypatch.setattr(environment, "PINS", str(other))
    assert environment.find_environment() == "", "made of other versions"


def test_an_environment_of_the_tools_is_used(
    no_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSB_VENVS", str(tmp_path / "venvs"))
    programs = tmp_path / "venvs" / "mindinsight" / "bin"
    for name in ("python", "gunicorn", "mindinsight"):
        put(programs / name, b"").chmod(0o755)
    assert environment.find_environment() == "", "it is still being made"
    put(programs.parent / ".stamp", b"")
    assert environment.find_environment() == str(programs.parent)


def test_a_pip_that_fails_is_quoted(
    no_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_PIP", "7")
    assert main(["view", str(tmp_path), "--with", "mindinsight", "--yes"]) == 1
    said = capsys.readouterr().err
    assert "ended with 7" in said
    assert f"pip is given --requirement {environment.PINS}" in said
    assert environment.find_environment() == ""


def test_without_a_python_for_it_the_error_says_which(no_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSB_PYTHON", "/no/such/python")
    with pytest.raises(BridgeError, match=r"MSB_PYTHON=/no/such/python: not a Python 3\.9 to 3\.12"):
        environment.make_environment(is_yes=True, ask=None, say=print)


def test_a_viewer_that_does_not_start_is_quoted(
    no_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "1")
    assert main(["view", str(tmp_path / "logs"), "--with", "mindinsight", "--yes", "--port", "0"]) == 1
    said = capsys.readouterr().err
    assert "installing MindInsight" in said
    assert "MindInsight did not start. Its last lines:\n  no luck today" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_however_it_ends_nothing_is_left(no_environment: Path, tmp_path: Path, number: signal.Signals) -> None:
    venvs = tmp_path / "venvs"
    made = environment.make_environment(is_yes=True, ask=None, say=print)
    shutil.copytree(made, venvs / "mindinsight")
    with opened(tmp_path, tmp_path / "logs", "--with", "mindinsight", "--port", "0", MSB_VENVS=str(venvs)) as viewer:
        with urllib.request.urlopen(viewer.wait_url(), timeout=30) as response:
            assert response.status == 200
        assert len([pid for pid in psutil.pids() if group_of(pid) == viewer.guards()[0].pid]) == 2, "guard and server"
        assert viewer.end(number) == (-number if number == signal.SIGKILL else 0)
    assert "Traceback" not in viewer.said


def test_nohup_keeps_it_when_the_terminal_is_closed(no_environment: Path, tmp_path: Path) -> None:
    venvs = tmp_path / "venvs"
    shutil.copytree(environment.make_environment(is_yes=True, ask=None, say=print), venvs / "mindinsight")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the program inherits it
    try:
        viewer = Opened(tmp_path, tmp_path / "logs", "--with", "mindinsight", "--port", "0", MSB_VENVS=str(venvs))
    finally:
        signal.signal(signal.SIGHUP, before)
    try:
        viewer.wait_url()
        viewer.process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            viewer.process.wait(1)
        assert viewer.end(signal.SIGTERM) == 0
    finally:
        stop_process(viewer.process)


def test_a_viewer_that_dies_ends_it(no_environment: Path, tmp_path: Path) -> None:
    venvs = tmp_path / "venvs"
    shutil.copytree(environment.make_environment(is_yes=True, ask=None, say=print), venvs / "mindinsight")
    with opened(tmp_path, tmp_path / "logs", "--with", "mindinsight", "--port", "0", MSB_VENVS=str(venvs)) as viewer:
        viewer.wait_url()
        (guard,) = viewer.guards()
        for pid in psutil.pids():
            if pid != guard.pid and group_of(pid) == guard.pid:
                os.kill(pid, signal.SIGKILL)
        assert viewer.process.wait(60) == 1
    assert "error: MindInsight has ended" in viewer.said


def test_another_viewer_of_the_same_directory_takes_over(no_environment: Path, tmp_path: Path) -> None:
    venvs = tmp_path / "venvs"
    shutil.copytree(environment.make_environment(is_yes=True, ask=None, say=print), venvs / "mindinsight")
    options = (tmp_path / "logs", "--with", "mindinsight", "--port", "0")
    with opened(tmp_path, *options, MSB_VENVS=str(venvs)) as first:
        first.wait_url()
        put(tmp_path / "logs" / "early" / tensorboard_name(), build_file("tensorboard", range(1, 3)))
        wait_for(lambda: converted(tmp_path, "early"), lambda: first.said)
        (tmp_path / "second").mkdir()
        with opened(
            tmp_path / "second", *options, MSB_VENVS=str(venvs), XDG_CACHE_HOME=str(tmp_path / "cache")
        ) as other:
            assert other.wait_url() != first.wait_url()
            first.end(signal.SIGKILL)
            put(tmp_path / "logs" / "late" / tensorboard_name(), build_file("tensorboard", range(1, 3)))
            wait_for(lambda: converted(tmp_path, "late"), lambda: other.said)
            assert other.end(signal.SIGINT) == 0
        assert "trying again" not in other.said


def converted(directory: Path, run: str) -> list[Path]:
    return list((directory / "cache").glob(f"*/mindinsight/*/base/{run}/*_MS"))


def test_the_pins_are_in_the_package_and_the_tools_use_the_same(tmp_path: Path) -> None:
    assert os.path.samefile(environment.PINS, ROOT / "tools" / "environments" / "mindinsight.txt")
    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    assert '"viewers/mindinsight.txt"' in text
    assert "mindinsight==2.3.1" in Path(environment.PINS).read_text(encoding="utf-8")


# ---------------------------------------------------------------- wrong usage


def test_what_cannot_be_viewed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = put(tmp_path / tensorboard_name(), build_file("tensorboard", range(1, 3)))
    assert main(["view", str(path)]) == 2
    assert "not a directory" in capsys.readouterr().err
    assert main(["view", "s3://bucket/logs"]) == 2
    assert "convert s3://bucket/logs DIR --follow" in capsys.readouterr().err
    assert main(["view", str(tmp_path), "--port", "70000"]) == 2
    monkeypatch.setattr(view, "_has_tensorboard", lambda: False)
    assert main(["view", str(tmp_path), "--with", "tensorboard"]) == 1
    assert "pip install 'tensorboard>=2.17'" in capsys.readouterr().err


def test_without_tensorboard_it_is_mindinsight(
    no_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view, "_has_tensorboard", lambda: False)
    assert main(["view", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "quicker than MindInsight is pip install 'tensorboard>=2.17'" in said
    assert "MindInsight needs an environment" in said


def test_a_port_is_chosen(taken: int) -> None:
    assert choose_port("127.0.0.1", taken) != taken
    assert choose_port("0.0.0.0", taken) != taken
    assert choose_port("127.0.0.1", 0) > 0
    with socket.create_server(("127.0.0.1", 0)) as other:
        free = other.getsockname()[1]
    assert choose_port("127.0.0.1", free) == free
    with pytest.raises(UsageError, match=os.strerror(errno.EADDRNOTAVAIL)):
        choose_port("192.0.2.1", taken)  # of a network for examples
    with pytest.raises(UsageError, match="no such address"):
        choose_port("no such host", taken)


# Ends once somebody has been answered at the address, as a viewer does that comes too late for its port.
TOO_LATE = """
import sys, urllib.request
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(sys.argv[1] + "late")
sys.exit("the port is taken")
"""


def test_the_answer_of_another_program_at_the_port_is_none() -> None:
    """Two that are started at the same moment find the same port free."""
    asked = threading.Event()

    class Another(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/late":
                asked.wait(60)
            self.send_response(200)
            self.end_headers()
            if self.path == "/":
                asked.set()

        def log_message(self, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Another) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = url_of("127.0.0.1", server.server_port)
        program = Program("Viewer", [sys.executable, "-c", TOO_LATE, url])
        try:
            with pytest.raises(BridgeError, match="the port is taken"):
                program.wait_until_it_answers(url, lambda secs: None)
        finally:
            program.stop()
            server.shutdown()


def test_addresses_are_those_a_person_can_use() -> None:
    assert url_of("0.0.0.0", 6006) == "http://127.0.0.1:6006/"
    assert url_of("::1", 6006) == "http://[::1]:6006/"
    ssh = {"SSH_CONNECTION": "10.0.0.9 50000 10.0.0.1 22", "DISPLAY": ":0"}
    assert describe_tunnel("127.0.0.1", 6006, ssh).endswith("@10.0.0.1")
    assert describe_tunnel("0.0.0.0", 6006, ssh).startswith("ssh -N -L 6006:127.0.0.1:6006 ")
    assert describe_tunnel("127.0.0.1", 6006, {"DISPLAY": ":0"}) == ""
    assert describe_tunnel("127.0.0.1", 6006, {}).endswith(f"@{socket.gethostname()}")
