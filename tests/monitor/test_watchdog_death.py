"""What is told of processes that die without a word, and of what happens before a training begins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.monitor.watchdog.death import Ending, describe_death, find_lost_peers, read_ending
from ms_summary_bridge.monitor.watchdog.heartbeat import Beat
from ms_summary_bridge.monitor.watchdog.memory_words import MemoryWitness
from ms_summary_bridge.runs.logdir import discover
from ms_summary_bridge.runs.reading import RunReading, read_points
from tests.bridge_scripts.runs import msrun, script, wait_until
from tests.conftest import ROOT, TESTS
from tests.monitor_run import strict_lines

SCRIPTS = TESTS / "monitor_scripts"


def run(name: str, directory: Path, *arguments: str, code: int | None = None, **environment: str) -> str:
    """Runs a training to its end; returns what it and its watchdog said."""
    path = directory / "output.txt"
    with path.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPTS / name), str(directory), *arguments],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            assert process.wait(270) == code, path.read_text()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return path.read_text()


def ended(rank: Path) -> list[dict[str, Any]]:
    """Returns the lines of a journal, once there is its end."""
    wait_until(lambda: (rank / "metrics.jsonl").exists() and any(line["kind"] == "end" for line in strict_lines(rank)))
    return strict_lines(rank)


def shown(directory: Path) -> dict[str, list[tuple[int, str]]]:
    """Returns steps and kinds by tag of what TensorBoard is shown, once the writers are done."""
    found: dict[str, list[tuple[int, str]]] = {}
    runs = discover(str(directory))
    for run in [*runs.runs, *runs.twins]:
        if run.format == "tensorboard":
            for point in read_points(run, RunReading()):
                found.setdefault(point.tag, []).append((point.step, point.kind))
    return found


@pytest.mark.parametrize(
    ("kind", "code", "ending"),
    [
        ("sigkill", -signal.SIGKILL, "SIGKILL"),
        ("segfault", -signal.SIGSEGV, "SIGSEGV"),
        ("abort", -signal.SIGABRT, "SIGABRT"),
        ("os._exit(4)", 4, "exit code 4"),
    ],
)
def test_a_death_without_a_word_is_told(tmp_path: Path, kind: str, code: int, ending: str) -> None:
    told = tmp_path / "told.json"
    program = "import os; open(os.environ['TOLD'], 'w').write(os.environ['ALERT_JSON'])"
    section = {"alert_actions": ["log", {"command": [sys.executable, "-c", program]}]}
    run("dying_loop.py", tmp_path, kind, json.dumps(section), code=code, TOLD=str(told))
    lines = ended(tmp_path / "default" / "run" / "rank_0")
    (alert,) = [line for line in lines if line["kind"] == "alert"]
    assert (alert["rule"], alert["severity"], alert["step"], alert["count"]) == ("death", "critical", 3, 1)
    assert alert["fields"]["ending"] == ending
    assert "no checkpoint is known" in alert["message"]
    assert any("MiB resident" in line for line in alert["fields"]["memory"])
    (end,) = [line for line in lines if line["kind"] == "end"]
    assert end["reason"] == ending
    assert [line["kind"] for line in lines].count("header") == 1, "it is the same session"
    assert [line["step"] for line in lines if line["kind"] == "sample"][:2] == [1, 2], "nothing before it is lost"
    wait_until(told.exists)
    wait_until(lambda: any(line["kind"] == "action" for line in strict_lines(tmp_path / "default" / "run" / "rank_0")))
    assert json.loads(told.read_text())["rule"] == "death"
    assert "CRITICAL death: step 3, rank 0: " in (tmp_path / "output.txt").read_text()
    assert [line["rule"] for line in strict_lines(tmp_path / "default" / "run") if line["kind"] == "alert"] == ["death"]
    wait_until(lambda: "monitor/alarms/death" in shown(tmp_path / "default" / "run"))
    assert shown(tmp_path / "default" / "run")["monitor/alarms/death"] == [(3, "scalar")]


@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [
        ("well", 0, ""),
        ("os._exit(0)", 0, ""),
        ("sys.exit(3)", 3, "SystemExit"),
        ("exception", 1, "ZeroDivisionError"),
        ("ctrl-c", -signal.SIGINT, "KeyboardInterrupt"),
        ("sigterm", -signal.SIGTERM, "SIGTERM"),
    ],
)
def test_other_ends_are_no_death(tmp_path: Path, kind: str, code: int, reason: str) -> None:
    run("dying_loop.py", tmp_path, kind, code=code)
    lines = ended(tmp_path / "default" / "run" / "rank_0")
    assert [line["reason"] for line in lines if line["kind"] == "end"] == [reason]
    assert not [line for line in lines if line["kind"] == "alert"]
    assert not (tmp_path / "default" / "run" / "rank_0" / "hang.jsonl").exists()


def test_a_death_before_the_beginning(tmp_path: Path) -> None:
    run("dying_loop.py", tmp_path, "sigkill before", code=-signal.SIGKILL)
    lines = ended(tmp_path / "default" / "run" / "rank_0")
    assert [line["rule"] for line in lines if line["kind"] == "alert"] == ["death"]


def test_what_ends_before_the_beginning_leaves_nothing(tmp_path: Path) -> None:
    code = "from ms_summary_bridge.monitor import Monitor; m = Monitor({'save_dir': 'd'}); import os; os._exit(0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0
    assert not (tmp_path / "d").exists()


def test_a_rank_that_ends_for_another_names_it(tmp_path: Path) -> None:
    """The launcher ends the others with SIGTERM once one is lost."""
    section = json.dumps({"run_id": "run"})
    for rank, kind, code in ((1, "sigkill", -signal.SIGKILL), (0, "sigterm", -signal.SIGTERM)):
        run("dying_loop.py", tmp_path, kind, section, code=code, RANK_ID=str(rank), RANK_SIZE="2")
        lines = ended(tmp_path / "default" / "run" / f"rank_{rank}")
    (alert,) = [line for line in lines if line["kind"] == "alert"]
    assert alert["fields"]["lost_ranks"] == [1]
    assert "rank 1 was lost before it (SIGKILL)" in alert["message"]


def test_a_rank_that_waits_for_a_lost_one_names_it(tmp_path: Path) -> None:
    """Without a launcher that ends it."""
    section = json.dumps({"run_id": "run", "watchdog": {"floor": 1}})
    for rank, kind, code in ((1, "sigkill", -signal.SIGKILL), (0, "hang", 0)):
        run("dying_loop.py", tmp_path, kind, section, code=code, RANK_ID=str(rank), RANK_SIZE="2")
        lines = ended(tmp_path / "default" / "run" / f"rank_{rank}")
    (alert,) = [line for line in lines if line["kind"] == "alert"]
    assert (alert["rule"], alert["step"], alert["fields"]["lost_ranks"]) == ("hang", 3, [1])
    assert alert["message"].endswith("; rank 1 was lost before it (SIGKILL)")
    assert alert["advice"].startswith("look at the rank that was lost first")


def test_a_hang_before_the_beginning_is_recorded_where_the_training_goes_on(tmp_path: Path) -> None:
    section = {"run_id": None, "watchdog": {"compile_limit": 1}}
    run("dying_loop.py", tmp_path, "hang before", json.dumps(section), code=0)
    (directory,) = (tmp_path / "default").iterdir()
    lines = ended(directory / "rank_0")
    kinds = [line["kind"] for line in lines]
    (alert,) = [line for line in lines if line["kind"] == "alert"]
    assert (alert["rule"], alert["fields"]["phase"], alert["step"]) == ("hang", "start", 0)
    assert kinds.index("alert") < kinds.index("header") < kinds.index("sample"), "at once, and not at the beginning"
    assert any(line["kind"] == "milestone" and "went on after" in line["text"] for line in lines)


# ------------------------------------------------------------------ real trainings


@pytest.mark.mindspore
def test_a_generator_that_hangs_before_the_training_begins(tmp_path: Path) -> None:
    output = run("dying_training.py", tmp_path, "hang", code=0)
    assert "CRITICAL hang: step 0, rank 0: no sign of life for " in output
    (directory,) = (tmp_path / "default").iterdir()
    lines = ended(directory / "rank_0")
    alerts = [line for line in lines if line["kind"] == "alert"]
    # MindSpore asks twice: for the length, before the training begins, and for the rows.
    assert [(line["rule"], line["fields"]["phase"]) for line in alerts] == [("hang", "start"), ("hang", "data")]
    assert [line["count"] for line in alerts] == [1, 1], "the second by the training itself"
    report = min((directory / "rank_0").glob("hang-*.txt")).read_text()
    assert "in slow_rows" in report, "the stack names it"
    assert lines[-1]["alarms"] == {"hang": 1}
    assert [line["step"] for line in lines if line["kind"] == "sample"][-1] == 6
    assert shown(directory)["monitor/alarms/hang"] == [(0, "scalar")] * 2


@pytest.mark.mindspore
def test_a_training_that_is_killed_tells_its_last_checkpoint(tmp_path: Path) -> None:
    run("dying_training.py", tmp_path, "kill", code=-signal.SIGKILL)
    lines = ended(tmp_path / "default" / "run" / "rank_0")
    (alert,) = [line for line in lines if line["kind"] == "alert"]
    assert (alert["rule"], alert["step"], alert["fields"]["signal"]) == ("death", 5, signal.SIGKILL)
    saved = alert["fields"]["checkpoint"]
    assert saved["step"] == 4
    assert Path(saved["path"]).name == "net-1_4.ckpt"
    assert "last checkpoint: step 4, " in alert["message"]
    wait_until(lambda: "monitor/alarms/death" in shown(tmp_path / "default" / "run"))


@pytest.mark.slow
@pytest.mark.mindspore
def test_a_rank_that_is_killed_is_told_by_every_rank(tmp_path: Path) -> None:
    """msrun kills the ranks that are left once one is lost: they name it, and each its own last checkpoint."""
    (tmp_path / "told").mkdir()
    ranks = [tmp_path / "out" / "default" / "run" / f"rank_{rank}" for rank in (0, 1)]
    arguments, program = (str(tmp_path / "out"), str(tmp_path / "told")), msrun(8141, tmp_path / "logs")
    # Ended once they are told: the scheduler would go on for half a minute.
    with script(str(SCRIPTS / "dying_rank.py"), *arguments, cwd=tmp_path, program=program):
        for rank in ranks:
            wait_until(lambda rank=rank: is_told(rank), timeout_secs=120)
    alerts = []
    for number, rank in enumerate(ranks):
        (alert,) = [line for line in strict_lines(rank) if line["kind"] == "alert"]
        assert (alert["rule"], alert["step"], alert["fields"]["signal"]) == ("death", 5, signal.SIGKILL)
        saved = ranks[0].parent / "checkpoints" / rank.name / "checkpoint_step_4.ckpt"
        assert alert["fields"]["checkpoint"] == {"step": 4, "path": str(saved)}
        assert f"last checkpoint: step 4, {saved}" in alert["message"]
        (told,) = map(json.loads, (tmp_path / "told" / f"{rank.name}.jsonl").read_text().splitlines())
        assert (told["rule"], told["message"]) == ("death", alert["message"])
        assert (
            f"CRITICAL death: step 5, epoch 1, rank {number}: "
            in (tmp_path / "logs" / f"worker_{number}.log").read_text()
        )
        files = ranks[0].parent / "summary" / rank.name
        wait_until(lambda files=files: "monitor/alarms/death" in shown(files))
        assert shown(files)["monitor/alarms/death"] == [(5, "scalar")]
        alerts.append(alert)
    assert [alert["fields"]["lost_ranks"] for alert in alerts] == [[1], []]
    assert "rank 1 was lost before it (SIGKILL)" in alerts[0]["message"]


def is_told(rank: Path) -> bool:
    """Whether a journal has the end, and what became of the action."""
    found = {line["kind"] for line in strict_lines(rank)} if (rank / "metrics.jsonl").exists() else set()
    return {"end", "action"} <= found


@pytest.mark.mindspore
def test_a_loss_that_stays_far_above_its_best_is_told_in_a_real_training(tmp_path: Path) -> None:
    run("dying_training.py", tmp_path, "diverge", code=0)
    lines = {kind: ended(tmp_path / kind / "default" / "run" / "rank_0") for kind in ("well", "diverge")}
    assert [line["rule"] for line in lines["well"] if line["kind"] == "alert"] == []
    (alert,) = [line for line in lines["diverge"] if line["kind"] == "alert"]
    assert alert["rule"] == "divergence"
    assert 120 + 300 < alert["step"] <= 640, "the data change after 120 steps"


# ------------------------------------------------------------------ the parts


def beat(step: int = 7) -> Beat:
    return Beat(step, step, 1, "compute", 0.0)


@pytest.mark.parametrize("is_taken", [True, False])
@pytest.mark.parametrize(
    ("code", "ending"),
    [("os.kill(os.getpid(), 9)", Ending(signum=9)), ("os._exit(3)", Ending(code=3)), ("0", Ending(code=0))],
)
def test_how_a_process_ended(code: str, ending: Ending, is_taken: bool) -> None:
    process = subprocess.Popen([sys.executable, "-c", f"import os; input(); {code}"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    pidfd = os.pidfd_open(process.pid)
    process.stdin.close() if code == "0" else process.stdin.write(b"\n")
    if code != "0":
        process.stdin.close()
    else:
        ending = Ending(code=1)  # EOFError
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if is_taken:
        process.wait()
    found = read_ending(process.pid, pidfd)
    assert found in (ending, Ending()) if is_taken else found == ending, "an older kernel says nothing afterwards"
    assert read_ending(process.pid, -1) == (Ending() if is_taken else ending)
    process.wait()
    os.close(pidfd)


def test_the_oom_killer_is_recognised(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    (group / "memory.events").write_text("low 0\nmax 3\noom 0\noom_kill 1\n")
    (group / "memory.max").write_text("1073741824\n")
    (group / "memory.peak").write_text("1073700000\n")
    log = tmp_path / "kmsg"
    log.write_text("6,1,2,-;other: nothing\n")
    witness = MemoryWitness(os.getpid(), groups=str(group), kernel_log=str(log))
    witness.look()
    lines, was_oom = witness.describe(4242)
    assert not was_oom
    assert any("limit 1024 MiB, the most that was in use 1024 MiB" in line for line in lines)
    (group / "memory.events").write_text("oom_kill 2\n")
    assert witness.describe(4242)[1]
    (group / "memory.events").write_text("oom_kill 1\n")
    log.write_text("3,9,8,-;Out of memory: Killed process 4242 (python) total-vm:9kB\n3,9,8,-;Killed process 42 (a)\n")
    lines, was_oom = witness.describe(4242)
    assert was_oom
    assert [line for line in lines if "kernel log" in line] == [
        "kernel log: Out of memory: Killed process 4242 (python) total-vm:9kB"
    ]
    (group / "memory.max").write_text("max\n")
    assert not any("limit" in line for line in witness.describe(1)[0])


def test_what_a_process_had_is_known_after_it_has_given_it_back() -> None:
    """The kernel takes the memory first: a look between that and the end finds none."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    witness = MemoryWitness(process.pid)
    witness.look()
    (before,) = [line for line in witness.describe(process.pid)[0] if "MiB resident" in line]
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    witness.look()
    assert before in witness.describe(process.pid)[0]
    process.communicate()


def test_only_deaths_of_this_session_are_those_of_peers(tmp_path: Path) -> None:
    for rank, moment in ((0, 50.0), (1, 90.0), (2, 10.0), (3, 95.0)):
        (tmp_path / f"rank_{rank}").mkdir()
        line = {"kind": "gone", "rank": rank, "wall_time": moment, "ending": "SIGKILL"}
        (tmp_path / f"rank_{rank}" / "hang.jsonl").write_text(json.dumps(line) + "\n{torn")
    assert [line["rank"] for line in find_lost_peers(str(tmp_path), 0, 40.0, 95.0)] == [1]


def test_each_ending_has_words_of_its_own() -> None:
    said = set()
    for ending in (Ending(signum=9), Ending(signum=11), Ending(code=4), Ending(), Ending(signum=70)):
        alert = describe_death(
            ending, beat(), rank=0, pid=5, memory=["m"], was_oom=False, checkpoint=(4, "/c"), peers=[]
        )
        assert alert.headline().endswith("after step 7 (compute); last checkpoint: step 4, /c")
        assert ending.title in alert.message
        said.add(alert.advice)
    assert len(said) == 4
