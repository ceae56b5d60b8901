"""The watchdog beside real processes that hang, recover, end and are killed. No mindspore is needed for that."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.monitor import Monitor
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.watchdog.heartbeat import HeartbeatReader
from ms_summary_bridge.monitor.watchdog.process_state import read_state
from ms_summary_bridge.monitor.watchdog.watchdog_link import WatchdogLink
from ms_summary_bridge.training.distributed import ProcessRank
from ms_summary_bridge.training.faults import Faults
from tests.bridge_scripts.runs import wait_until
from tests.conftest import ROOT, TESTS
from tests.monitor_run import strict_lines

SCRIPT = TESTS / "monitor_scripts" / "hanging_loop.py"


class Training:
    """A process that trains.

    Args:
        directory: Where its files go.
        kind: How it hangs, as hanging_loop.py knows it.
        watchdog: Keys of the configuration's `watchdog`.
        environment: More variables.
        options: Of Popen.
    """

    def __init__(
        self,
        directory: Path,
        kind: str,
        watchdog: dict[str, Any],
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        self.directory = directory
        os.mkfifo(directory / "release")
        self.process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(directory), kind, json.dumps(watchdog)],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            **options,
        )

    def release(self) -> None:
        """Lets it go on."""
        with (self.directory / "release").open("wb") as pipe:
            pipe.write(b"x")

    def notes(self, run: str = "run") -> list[dict[str, Any]]:
        """What the watchdog has written for programs; every line must be strict JSON."""
        path = self.directory / "default" / run / "rank_0" / "hang.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_note(self, run: str = "run") -> dict[str, Any]:
        """Returns the first one, once it is there."""
        wait_until(lambda: self.notes(run))
        return self.notes(run)[0]

    @property
    def watchdog(self) -> int:
        """Process of the watchdog."""
        path = self.directory / "watchdog"
        wait_until(path.exists)
        return int(path.read_text())

    @property
    def output(self) -> str:
        """What it and the watchdog said."""
        return (self.directory / "output.txt").read_text()


@contextlib.contextmanager
def training(
    directory: Path, kind: str, *, environment: dict[str, str] | None = None, **watchdog: Any
) -> Iterator[Training]:
    """Starts a training whose output goes to a file, and kills it at the end."""
    with (directory / "output.txt").open("wb") as output:
        running = Training(directory, kind, watchdog, environment, stdout=output, stderr=output)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()


class Listener:
    """A server on this machine that takes what is sent to it."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    def __enter__(self) -> Listener:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def has_gone(pid: int) -> bool:
    state = read_state(pid)
    return state is None or state.has_ended


# ------------------------------------------------------------------ a hang is reported


@pytest.mark.parametrize(
    ("kind", "phase", "function"),
    [
        ("python", "compute", "wait_in_python"),
        ("c", "compute", "wait_in_c"),
        ("thread", "compute", "wait_in_c"),
        ("evaluation", "evaluation", "wait_in_python"),
    ],
)
def test_a_hang_is_reported_once_with_stacks(tmp_path: Path, kind: str, phase: str, function: str) -> None:
    with training(tmp_path, kind, evaluation_limit=3) as running:
        note = running.wait_for_note()
        assert (note["kind"], note["rule"], note["severity"], note["rank"]) == ("hang", "hang", "critical", 0)
        assert note["step"] == 3 if kind != "thread" else note["step"] >= 3
        assert (note["fields"]["phase"], note["fields"]["pid"]) == (phase, running.process.pid)
        assert note["value"] > note["bound"] == (3.0 if phase == "evaluation" else 2.0)
        assert function in note["found"]["stacks"][str(running.process.pid)]
        assert "writer.py" in note["found"]["stacks"][str(running.process.pid)], "of all threads"
        # Who waits for the GIL looks for it every 5 ms.
        assert note["found"]["process"]["state"] in ("sleeping", "running" if kind == "thread" else "sleeping")
        (report,) = (tmp_path / "default" / "run" / "rank_0").glob("hang-*.txt")
        text = report.read_text()
        assert text.splitlines()[0].startswith(f"CRITICAL hang: step {note['step']}, rank 0: no sign of life for ")
        assert text.count(function) == (1 if kind == "thread" else 2), "of the training thread, and of all"
        wait_until(lambda: f"all stacks: {report}" in running.output)
        assert "stack of the training thread, most recent call first:" in running.output
        watchdog = running.watchdog
        running.release()
        assert running.process.wait(60) == 0
        wait_until(lambda: has_gone(watchdog))
        assert [line["kind"] for line in running.notes()] == ["hang", "recovered"]
        assert running.notes()[1]["severity"] == "info"
        assert "the training went on after" in running.output
        assert running.output.count("CRITICAL") == 1
        steps = strict_lines(tmp_path / "default" / "run" / "rank_0")
        assert [line["values"]["loss"] for line in steps if line["kind"] == "sample"][-1] == 0.25, "not torn"


def test_the_first_step_has_a_limit_of_its_own(tmp_path: Path) -> None:
    with training(tmp_path, "first step of another", floor=600) as running:
        note = running.wait_for_note("other")
        assert (note["fields"]["phase"], note["step"], note["bound"]) == ("compile", 0, 1.0)
        running.release()
        assert running.process.wait(60) == 0
        assert running.notes() == []


def test_a_healthy_training_is_not_spoken_of(tmp_path: Path) -> None:
    with training(tmp_path, "healthy", floor=600) as running:
        assert running.process.wait(60) == 0
        wait_until(lambda: has_gone(running.watchdog))
        assert running.notes() == []
        assert "done" in running.output
        assert "hang" not in running.output
    assert not [path.name for path in tmp_path.rglob("*") if "hang" in path.name]


def test_each_rank_has_its_own(tmp_path: Path) -> None:
    environment = {"RANK_ID": "1", "RANK_SIZE": "2"}
    with training(tmp_path, "python", environment=environment) as running:
        path = tmp_path / "default" / "run" / "rank_1" / "hang.jsonl"
        wait_until(path.exists)
        wait_until(lambda: path.read_text().endswith("\n"))
        assert json.loads(path.read_text())["rank"] == 1
        wait_until(lambda: "CRITICAL hang: step 3, rank 1: " in running.output)


def test_every_training_has_one_where_nothing_is_said_of_it(tmp_path: Path) -> None:
    monitor = Monitor({"backend": ["local"], "save_dir": str(tmp_path), "auto_print": False})
    seen = []
    for _ in range(2):
        with monitor:
            assert monitor._watchdog.pid is not None
            seen.append(monitor._watchdog.pid)
            state = read_state(seen[-1])
            assert state is not None
            assert state.parent == os.getpid()
        wait_until(lambda: has_gone(seen[-1]))
    assert seen[0] != seen[1]


def test_a_training_that_begins_anew_is_watched_anew(tmp_path: Path) -> None:
    """Its first step compiles again, and has the limit of a first step again."""
    faults = Faults("test")
    link = WatchdogLink(load_config({"watchdog": {"floor": 600}}), faults)
    link.begin(ProcessRank(), 0)
    first = link.pid
    assert first is not None
    link.begin(ProcessRank(), 0)
    assert link.pid not in (None, first)
    wait_until(lambda: has_gone(first))
    link.beat("compile")
    beat = HeartbeatReader(link.heartbeat.descriptor).read()
    assert (beat.phase, beat.calls) == ("compile", 0)
    link.end()
    link.end()
    link.beat("data")
    with link.during("evaluation"):
        assert link.pid is None


def test_on_ascend_a_warning_comes_before_the_hang_and_the_hang_before_the_collective_ends(tmp_path: Path) -> None:
    with training(tmp_path, "evaluation on Ascend", environment={"HCCL_EXEC_TIMEOUT": "12"}) as running:

        def told() -> list[dict[str, Any]]:  # who is to blame is another test
            return [line for line in running.notes() if line["kind"] in ("near", "hang", "recovered")]

        wait_until(lambda: len(told()) == 2)  # the second of them is the hang
        running.release()
        assert running.process.wait(60) == 0
        wait_until(lambda: len(told()) == 3)
        near, hang, _ = told()
        assert [line["kind"] for line in told()] == ["near", "hang", "recovered"]
        assert (near["severity"], hang["severity"]) == ("warning", "critical")
        assert 9.0 < near["value"] < 10.8 < hang["value"] < 12.0
        assert "WARNING hang: step 3, rank 0: evaluating for " in running.output
        lines = strict_lines(tmp_path / "default" / "run" / "rank_0")
        assert [line["severity"] for line in lines if line["kind"] == "alert"][:2] == ["warning", "critical"]


# ------------------------------------------------------------------ others are told


def test_others_are_told_while_the_training_can_do_nothing(tmp_path: Path) -> None:
    """A command, with the environment of the training, and a webhook; one that fails holds nothing up."""
    code = "import os; print(os.environ['ALERT_JSON'], os.environ['PYTHONPATH'], sep='|', flush=True)"
    told = tmp_path / "told.txt"
    with Listener() as listener:
        actions = [
            {"command": ["/bin/sh", "-c", f'"$0" -c "{code}" >> {told}', sys.executable]},
            {"webhook": f"http://127.0.0.1:{listener.port}/hook-0123456789"},
            {"webhook": {"url": "http://127.0.0.1:9/hook-9876543210", "attempts": 1, "timeout": 5}},
            "log",
        ]
        with training(tmp_path, "c", actions=actions) as running:
            wait_until(lambda: listener.bodies and told.exists() and "|" in told.read_text())
            (sent,) = [body["alert"] for body in listener.bodies]
            shown = Path(f"/proc/{running.watchdog}/cmdline").read_bytes()
            assert b"watchdog" in shown
            assert b"hook-" not in shown, "everybody on the machine sees it"
            assert (sent["rule"], sent["severity"], sent["step"]) == ("hang", "critical", 3)
            assert str(tmp_path / "default" / "run") in json.dumps(listener.bodies[0]), "which run it is"
            alert, path = told.read_text().strip().split("|")
            assert json.loads(alert)["fields"]["pid"] == running.process.pid
            assert path == str(ROOT)
            wait_until(lambda: sum(note["kind"] == "action" for note in running.notes()) == 3)
            running.release()
            assert running.process.wait(60) == 0
            wait_until(lambda: len(listener.bodies) == 2)
            assert listener.bodies[1]["alert"]["severity"] == "info"
            wait_until(lambda: has_gone(running.watchdog))
            failed = [note for note in running.notes() if note.get("problem")]
            assert failed
            assert all(note["action"] == "webhook json 127.0.0.1 (2)" for note in failed), "not the first one"
            said = running.output + json.dumps(running.notes())
            assert "hook-0123456789" not in said
            assert "hook-9876543210" not in said
            lines = strict_lines(tmp_path / "default" / "run" / "rank_0")
            told_of = [(line["action"], bool(line["problem"])) for line in lines if line["kind"] == "action"]
            names = ("command /bin/sh", "webhook json 127.0.0.1", "webhook json 127.0.0.1 (2)")
            assert sorted(told_of) == sorted((name, name.endswith(")")) for name in names for _ in range(2))


# ------------------------------------------------------------------ and what becomes of the processes


@pytest.mark.parametrize("kind", ["c", "python"])
def test_a_killed_training_leaves_no_watchdog_and_no_open_pipe(tmp_path: Path, kind: str) -> None:
    running = Training(tmp_path, kind, {}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        running.wait_for_note()
        watchdog = running.watchdog
        running.process.kill()
        _, errors = running.process.communicate(timeout=60)  # would wait for a watchdog that holds the pipe
        assert b"CRITICAL hang: step 3" in errors
        wait_until(lambda: has_gone(watchdog))
    finally:
        running.process.kill()
        running.process.wait()


def test_an_output_that_nobody_reads_holds_nothing_up(tmp_path: Path) -> None:
    """The pipe is full, as when a launcher has died; the files tell all the same."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    with (tmp_path / "output.txt").open("wb") as output:
        running = Training(tmp_path, "python", {}, stdout=output, stderr=writing)
    try:
        assert "wait_in_python" in json.dumps(running.wait_for_note())
        running.release()
        assert running.process.wait(60) == 0
    finally:
        running.process.kill()
        running.process.wait()
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(("kind", "code"), [("c", -signal.SIGTERM), ("stubborn", -signal.SIGKILL)])
def test_kill_on_request(tmp_path: Path, kind: str, code: int) -> None:
    with training(tmp_path, kind, action="kill", grace=0.5) as running:
        watchdog = running.watchdog
        assert running.process.wait(60) == code
        wait_until(lambda: has_gone(watchdog))
        assert "wait_in_c" in json.dumps(running.notes()[0]), "first the report"
        assert "is ended (watchdog action: kill)" in running.output


def test_a_watchdog_that_is_killed_costs_one_warning(tmp_path: Path) -> None:
    with training(tmp_path, "python", floor=600) as running:
        os.kill(running.watchdog, signal.SIGKILL)
        wait_until(lambda: has_gone(running.watchdog))
        running.release()
        assert running.process.wait(60) == 0
        assert running.output.count("the watchdog ended before the training, with -9") == 1


def test_a_watchdog_that_cannot_be_started_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("ms_summary_bridge.monitor.watchdog.watchdog_link.subprocess.Popen", refuse)
    section = {"interval": 0, "backend": ["local"], "save_dir": str(tmp_path), "run_id": "run", "metrics": ["loss"]}
    with Monitor(section) as monitor:
        monitor.step(loss=0.5)
        with monitor.timing("evaluation"):
            monitor.step(loss=0.25)
    assert sum("a hang will not be noticed: " in record.message for record in caplog.records) == 1
    assert (
        len([line for line in strict_lines(tmp_path / "default" / "run" / "rank_0") if line["kind"] == "sample"]) == 2
    )


def test_no_watchdog_where_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a process was started")

    monkeypatch.setattr(WatchdogLink, "_start", refuse)
    section = {"backend": ["local"], "save_dir": str(tmp_path), "run_id": "run", "watchdog": False}
    with Monitor(section) as monitor:
        monitor.step(loss=0.5)
        assert monitor._watchdog.pid is None


def test_a_training_that_becomes_another_program_is_not_watched_any_more(tmp_path: Path) -> None:
    with training(tmp_path, "another program") as running:
        watchdog = running.watchdog
        wait_until(lambda: "another program runs" in running.output)
        wait_until(lambda: has_gone(watchdog))
        assert running.process.poll() is None
        assert running.notes() == []
