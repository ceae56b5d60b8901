"""A follower beside a real training: every value is there afterwards, and most of them before it has ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ms_summary_bridge.convert.follow import follow_logdir
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.verify import verify_logdirs
from ms_summary_bridge.runs.report import Report
from tests.conftest import stop_process
from tests.convert.test_follow_kills import runs_of
from tests.mindspore_run import scalars, summary_bytes, summary_name
from tests.scripted import put

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.mindspore
def test_a_training_in_progress_and_its_restart_are_followed(tmp_path: Path, summary_dir: Path) -> None:
    """It begins again where an earlier one has been; MindSpore writes, and the follower reads what is there."""
    source = tmp_path / "in" / "run"
    shutil.copytree(summary_dir, source)
    reports: list[Report] = []
    while_training: list[Report] = []
    stop = threading.Event()
    rounds_left = 6
    with (tmp_path / "training.log").open("w+b") as log:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "tests" / "train_small.py"), str(source), "--epochs", "4"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

        def note(report: Report) -> None:
            reports.append(report)
            if process.poll() is None:
                while_training.append(report)

        def wait(seconds: float) -> None:
            nonlocal rounds_left
            if process.poll() is None:
                try:
                    process.wait(min(seconds, 0.2))
                except subprocess.TimeoutExpired:
                    return
            rounds_left -= 1
            if rounds_left == 0:
                stop.set()

        try:
            total = follow_logdir(str(tmp_path / "in"), str(tmp_path / "out"), stop=stop, on_round=note, wait=wait)
        finally:
            stop_process(process)
        log.seek(0)
        assert process.returncode == 0, log.read().decode(errors="replace")[-4000:]
    assert total is not None
    (run,) = total.runs
    assert (run.failed, run.damaged, run.incomplete) == ("", [], [])
    assert run.restarts[0].step == 1
    assert sum(run.values.get("scalar", 0) for report in while_training[1:] for run in report.runs) > 0
    assert verify_logdirs(str(tmp_path / "in"), str(tmp_path / "out")).is_equal
    convert_logdir(str(tmp_path / "in"), str(tmp_path / "once"))
    assert runs_of(tmp_path / "out") == runs_of(tmp_path / "once")


def test_ended_by_a_signal_it_reports_all_that_it_did(tmp_path: Path) -> None:
    path = put(tmp_path / "ms" / summary_name(), summary_bytes(scalars("loss", range(3))))
    process = subprocess.Popen(
        [sys.executable, "-m", "ms_summary_bridge", "convert", str(tmp_path / "ms"), str(tmp_path / "tb"),
         "--follow", "--report", str(tmp_path / "report.json")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    assert any("1 run, 3 values converted" in line for line in lines)
    path.write_bytes(summary_bytes(scalars("loss", range(7))))
    assert any("1 run, 4 values converted" in line for line in lines)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, f"following {tmp_path / 'ms'}; Ctrl-C ends\n")
    assert out.splitlines()[-1] == "1 run, 7 values converted to tensorboard"
    report = json.loads((tmp_path / "report.json").read_bytes())
    assert [(run["run"], run["events_read"], run["values"]) for run in report["runs"]] == [(".", 8, {"scalar": 7})]


def test_it_ends_with_the_code_of_what_is_wrong_at_the_end(tmp_path: Path) -> None:
    damaged = summary_bytes(scalars("loss", range(3))) + b"\xab" * 40
    put(tmp_path / "ms" / summary_name(), damaged)
    process = subprocess.Popen(
        [sys.executable, "-m", "ms_summary_bridge", "convert", str(tmp_path / "ms"), str(tmp_path / "tb"), "--follow"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert any("1 run, 3 values converted" in line for line in iter(process.stdout.readline, ""))
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "damaged" in out
