"""Good set-ups, real ones where that is possible: nothing is blamed. How much is read; the command and its JSON."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboardX import SummaryWriter

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.doctor.ends import HEAD_BYTES, TAIL_BYTES
from ms_summary_bridge.doctor.examine import examine
from ms_summary_bridge.doctor.finding import Finding, build_schema
from ms_summary_bridge.doctor.look import FILES
from ms_summary_bridge.doctor.packages import find_packages
from ms_summary_bridge.monitor import Monitor
from ms_summary_bridge.monitor.config.template import write_template
from tests.conftest import TrainSmall
from tests.doctor.facts import NOW, PACKAGES, environment, write_journal
from tests.eventually import wait_for
from tests.json_schema import is_valid
from tests.mindspore_run import scalars, summary_name, write_summary
from tests.scripted import build_file, put, tensorboard_name

DATA = Path(__file__).resolve().parents[1] / "data"
PAGE = DATA.parents[1] / "docs" / "troubleshooting.md"


def findings_of(target: Path | str | None) -> dict[str, Finding]:
    return {finding.id: finding for finding in examine(target, packages=PACKAGES, ports=[]).findings}


def assert_good(target: Path | None) -> dict[str, Finding]:
    """Nothing is blamed, and every question that the set-up can answer is answered."""
    assert blamed(target) == []
    return findings_of(target)


def blamed(target: Path | str | None) -> list[Finding]:
    found = examine(target, packages=PACKAGES, ports=[]).findings
    return [finding for finding in found if finding.verdict in ("wrong", "warning")]


def write_board(directory: Path, steps: int = 20) -> None:
    with SummaryWriter(str(directory)) as writer:
        for step in range(steps):
            writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_hparams({"lr": 0.1}, {"accuracy": 0.5}, name="trial")
        writer.add_text("note", "text", 0)


def test_a_directory_of_summary_collector(summary_dir: Path) -> None:
    found = assert_good(summary_dir)
    assert found["files.close"].text == "closed as a training ends well"
    assert found["self.rank"].text == "rank: 0"
    assert found["self.interval"].text == "interval: steps 1 to 16 were recorded"


@pytest.mark.parametrize(
    ("reasons", "text"),
    [
        (["", ""], "closed as a training ends well"),
        (["SIGTERM"], "closed; the journal: ended by SIGTERM"),
        (["SIGTERM", "", "SIGTERM"], "closed; 2 of 3 journals: ended by SIGTERM"),
        ([None], "closed; there is a journal without an end"),
    ],
)
def test_how_a_training_ended_is_what_its_journals_say(
    summary_dir: Path, tmp_path: Path, reasons: list[str | None], text: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(summary_dir, run / "summary")
    ranks = len(reasons)
    for rank, reason in enumerate(reasons):
        has_end = reason is not None
        write_journal(run / f"rank_{rank}", steps=[1], rank=rank, ranks=ranks, has_end=has_end, reason=reason)
    (run / "metrics.jsonl").write_bytes((run / "rank_0" / "metrics.jsonl").read_bytes())  # that of all ranks
    found = findings_of(run)
    assert (found["files.close"].text, found["files.close"].verdict) == (text, "ok")
    assert found["self.enabled"].text == f"enabled: the monitor left {ranks} journal{'s' * (ranks > 1)}"


def test_conversions_there_and_back(summary_dir: Path, tmp_path: Path) -> None:
    convert_logdir(str(summary_dir), str(tmp_path / "tb"))
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "back"), to="mindinsight")
    for name in ("tb", "back"):
        assert assert_good(tmp_path / name)["ours.state"].verdict == "ok"


def test_a_directory_of_the_bridge(tmp_path: Path, train_small: TrainSmall) -> None:
    directory = train_small(tmp_path / "summary", "--callback", "bridge", "--epochs", "1")
    found = assert_good(directory)
    assert found["tensorboard.reads"].text == "TensorBoard reads 1 directory directly"


def test_a_log_of_tensorboardx_and_its_conversion(tmp_path: Path) -> None:
    write_board(tmp_path / "log" / "run")
    write_board(tmp_path / "log" / "another" / "run")
    assert_good(tmp_path / "log")
    convert_logdir(str(tmp_path / "log"), str(tmp_path / "ms"))
    assert_good(tmp_path / "ms")


def test_of_a_tree_no_file_speaks_for_all(summary_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(summary_dir, tmp_path / "ms")
    with SummaryWriter(str(tmp_path / "torch")) as writer:
        for step, loss in ((0, math.nan), (70_000, 0.1)):
            writer.add_scalar("loss", loss, step)
    found = assert_good(tmp_path)
    assert found["files.close"].text == "closed as a training ends well: 1 of 1 file of MindSpore"
    assert found["self.interval"].text == "interval: steps 0 to 70000 were recorded"
    with SummaryWriter(str(tmp_path / "single")) as writer:
        writer.add_scalar("loss", 0.1, 7)
    assert assert_good(tmp_path / "single")["self.interval"].text == "interval: step 7 was recorded"


def test_a_single_file(tmp_path: Path) -> None:
    assert_good(write_summary(tmp_path, scalars("loss", range(5))))


def test_real_files_of_the_past(tmp_path: Path) -> None:
    shutil.copy(DATA / "mindspore-2.10-summary.bin", tmp_path / summary_name())
    shutil.copy(DATA / "tensorboardx-2.6.5.bin", tmp_path / tensorboard_name())
    assert_good(tmp_path)


def test_a_directory_for_each_rank(tmp_path: Path) -> None:
    for rank in range(4):
        write_summary(tmp_path / f"rank_{rank}", scalars("loss", range(5)), rank=rank)
    assert assert_good(tmp_path)["self.rank"].text == "rank: 0, 1, 2 and 1 more"


def test_a_training_that_was_resumed(tmp_path: Path) -> None:
    for session in range(3):
        steps = range(session * 10, session * 10 + 12)
        seconds = 1_700_000_000 + 1000 * session
        write_summary(tmp_path, scalars("loss", steps, start=seconds - session * 10), seconds=seconds)
    assert_good(tmp_path)


def test_a_file_that_is_being_copied(tmp_path: Path) -> None:
    put(tmp_path / tensorboard_name(), build_file("tensorboard", range(50))[:-5])
    assert_good(tmp_path)


def test_a_run_of_the_monitor(tmp_path: Path) -> None:
    with Monitor({"save_dir": str(tmp_path), "metrics": ["loss"], "auto_print": False}) as monitor:
        for step in range(5):
            monitor.step(loss=1.0 / (step + 1))
    found = assert_good(tmp_path)
    assert "--summary-base-dir" in found["mindinsight.depth"].text


LOOP = """
import sys
from ms_summary_bridge.monitor import Monitor
with Monitor({"save_dir": sys.argv[1], "metrics": ["loss"], "auto_print": False, "interval": 0}) as monitor:
    for step in range(5):
        monitor.step(loss=1.0 / (step + 1))
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_a_training_that_runs(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LOOP, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        # Files and journal are written by others, a little later.
        wait_for(lambda: "training.running" in findings_of(tmp_path) and not blamed(tmp_path))
        found = findings_of(tmp_path)
        assert found["training.running"].text.startswith(f"pid {process.pid} trains now: step 5, in ")
        assert found["self.passed"].verdict == "ok"
        assert blamed(str(process.pid)) == []
        assert findings_of(str(process.pid)).keys() == found.keys()
        assert found["files.close"].text.startswith("being written now: 2 files, by pid ")
    finally:
        process.communicate("", timeout=60)
    assert "training.running" not in assert_good(tmp_path)


def test_a_configuration_before_and_after_its_first_run(tmp_path: Path) -> None:
    config = put(tmp_path / "monitor.yaml", f"monitor_config:\n  save_dir: {tmp_path}/out\n".encode())
    assert assert_good(config)["self.passed"].verdict == "not known"
    write_journal(tmp_path / "out" / "default" / "run" / "rank_0", steps=[1, 20], has_end=True)
    assert "reached step 20" in assert_good(config)["self.passed"].text


@pytest.mark.parametrize("kind", ["MindSporeTransformersMonitor", "SummaryBridgeMonitor"])
def test_a_configuration_of_mindformers(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = put(Path("train.yaml"), f"runner_config:\n  epochs: 1\ncallbacks:\n- type: {kind}\n".encode())
    assert assert_good(config)["self.passed"].verdict == "ok"


@pytest.mark.parametrize("is_of_mindformers", [False, True])
def test_a_configuration_that_init_wrote(
    is_of_mindformers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_good(put(Path("train.yaml"), write_template(mindformers=is_of_mindformers).encode()))


def test_the_environment_alone() -> None:
    assert assert_good(None)["self.rank"].text.startswith("rank: ")
    own = environment(tensorboard="", mindspore="", protobuf="3.20.1", mindinsight="2.3.1", gunicorn="20.1.0")
    assert not examine(None, packages=own, ports=[]).is_wrong
    assert find_packages().versions["python"] == ".".join(map(str, sys.version_info[:3]))


# --- how much is read


def test_a_file_of_any_size_is_read_at_its_ends_alone(tmp_path: Path) -> None:
    path = put(tmp_path / tensorboard_name(), build_file("tensorboard", range(20_000)))
    size = path.stat().st_size
    assert size > 2 * (HEAD_BYTES + TAIL_BYTES)
    assert examine(tmp_path, packages=PACKAGES, ports=[]).bytes_read == HEAD_BYTES + TAIL_BYTES
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a terabyte of zeros that take no room
    examination = examine(tmp_path, packages=PACKAGES, ports=[])
    assert examination.bytes_read == HEAD_BYTES + TAIL_BYTES
    assert "files.padding" in {finding.id for finding in examination.findings}


def test_of_many_files_the_newest_are_looked_into(tmp_path: Path) -> None:
    data = build_file("tensorboard", range(20_000))
    first = put(tmp_path / "0" / tensorboard_name(), data)
    for number in range(1, FILES + 50):
        (tmp_path / str(number)).mkdir()
        os.link(first, tmp_path / str(number) / tensorboard_name())
    examination = examine(tmp_path, packages=PACKAGES, ports=[])
    assert examination.bytes_read <= FILES * (HEAD_BYTES + TAIL_BYTES)
    assert "50 older ones were not looked into" in json.dumps([finding.text for finding in examination.findings])


def test_a_large_record_is_not_taken_for_damage(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_scalar("loss", 1.0, 0)
        writer.add_text("long", "x" * (1 << 20), 1)
    assert_good(tmp_path)


def test_an_answer_takes_a_few_seconds_in_the_fullest_tree(tmp_path: Path) -> None:
    first = put(tmp_path / "0" / tensorboard_name(), build_file("tensorboard", range(20_000)))
    for number in range(1, 1500):
        (tmp_path / str(number)).mkdir()
        os.link(first, tmp_path / str(number) / tensorboard_name())
    before = time.process_time()
    assert examine(tmp_path).findings  # with the real packages and ports
    assert time.process_time() - before < 10


# --- the command


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    code = main(["doctor", *map(str, arguments)])
    return code, capsys.readouterr().out


def test_json_is_as_its_schema_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_summary(tmp_path / "good", scalars("loss", range(5)))
    code, text = run(capsys, "--schema")
    schema: dict[str, Any] = json.loads(text)
    assert (code, schema) == (0, build_schema())
    for target, is_wrong in (("good", False), ("missing", True)):
        code, text = run(capsys, tmp_path / target, "--json")
        content = json.loads(text)
        assert is_valid(content, schema)
        assert any(finding["verdict"] == "wrong" for finding in content["findings"]) >= is_wrong
        assert code == any(finding["verdict"] == "wrong" for finding in content["findings"])
        content["findings"][0]["verdict"] = "maybe"
        assert not is_valid(content, schema)


def test_the_worst_comes_first_with_its_mend(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(capsys, tmp_path / "missing")
    lines = text.splitlines()
    assert code == 1
    assert lines[0].startswith("wrong      ")
    assert lines[1].startswith("           mend: ")
    assert len(lines) < 40, "one screen"


def test_the_page_shows_what_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ms_summary_bridge.doctor.examine.find_packages", lambda: PACKAGES)
    monkeypatch.setattr("ms_summary_bridge.doctor.examine.find_ports", list)
    write_summary(Path("summary_dir"), [], seconds=int(NOW))
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    code, text = run(capsys, "./summary_dir")
    assert code == 1
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before, "it wrote something"
    (shown,) = re.findall(r"^```text\n(wrong  .*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

    def plain(lines: str) -> str:
        return re.sub(r"[0-9][0-9.,]*", "0", lines.replace(str(tmp_path), "/home/me"))

    assert plain(text) == plain(shown)


def test_a_url_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "s3://bucket/run"]) == 2
    assert "copy it there" in capsys.readouterr().err
