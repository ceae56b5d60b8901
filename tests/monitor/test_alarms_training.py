"""Alarms in real MindSpore trainings: a loss that is poisoned stops the training, with a report and an exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.events import Summary
from tests.bridge_scripts.runs import boards, events, msrun, output_of, script, series, summaries
from tests.conftest import ROOT, TESTS
from tests.monitor_run import strict_lines

pytestmark = pytest.mark.mindspore


class Trainings:
    """What came out of tests/monitor_scripts/alarms.py."""

    def __init__(self, base: Path, code: int) -> None:
        self.base = base
        self.code = code
        self.results: dict[str, dict[str, Any]] = json.loads((base / "result.json").read_text())
        self.output = (base / "output.txt").read_text(errors="replace")

    def rank(self, name: str) -> Path:
        return self.base / name / "run" / "rank_0"

    def lines(self, name: str, kind: str) -> list[dict[str, Any]]:
        return [line for line in strict_lines(self.rank(name)) if line["kind"] == kind]

    def report(self, name: str) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.rank(name) / "stop_report.json").read_text())
        return report


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    base = tmp_path_factory.mktemp("alarms")
    script = TESTS / "monitor_scripts" / "alarms.py"
    with (base / "output.txt").open("ab") as output:
        done = subprocess.run(
            [sys.executable, str(script), str(base), str(base / "result.json")],
            cwd=base,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            timeout=250,
        )
    return Trainings(base, done.returncode)


def test_a_healthy_training_raises_no_alarm(trainings: Trainings) -> None:
    assert trainings.results["healthy"] == {"trained": 300, "code": None, "ends": 1}
    assert trainings.lines("healthy", "alert") == []
    assert trainings.lines("healthy", "end")[0]["alarms"] == {}


def test_a_nan_in_tuple_outputs_stops_within_two_steps(trainings: Trainings) -> None:
    """B20."""
    result = trainings.results["tuples"]
    assert result["trained"] in (11, 12)
    assert (result["code"], result["ends"]) == (17, 1)
    (alert,) = trainings.lines("tuples", "alert")
    assert (alert["rule"], alert["step"], alert["nonfinite"]) == ("nonfinite", 11, {"value": "nan"})
    assert "ALARM: nonfinite" in trainings.output
    assert "step 11, epoch 1: loss is NaN" in trainings.output


def test_the_report_says_what_where_since_when_and_where_to_go_back_to(trainings: Trainings) -> None:
    report = trainings.report("tuples")
    assert (report["alert"]["metric"], report["alert"]["value"], report["since_step"]) == ("loss", "nan", 11)
    assert (report["project"], report["run"], report["rank"], report["exit_code"]) == ("tuples", "run", 0, 17)
    assert report["last_good_checkpoint"]["step"] == 8
    assert Path(report["last_good_checkpoint"]["path"]).name == "net-1_8.ckpt"
    assert Path(report["last_good_checkpoint"]["path"]).is_file()
    text = (trainings.rank("tuples") / "stop_report.txt").read_text()
    assert "the last checkpoint from before it is of step 8" in text


def test_stacks_and_a_checkpoint_of_that_moment(trainings: Trainings) -> None:
    rank = trainings.rank("tuples")
    assert "Thread 0x" in (rank / "stacks-nonfinite-step_11.txt").read_text()
    (checkpoint,) = (rank / "checkpoints").iterdir()
    assert checkpoint.name == "alarm-nonfinite-step_12.ckpt"
    assert checkpoint.stat().st_size > 100


def test_both_viewers_have_the_alarm(trainings: Trainings) -> None:
    directory = trainings.base / "tuples" / "run" / "summary"
    for files in (boards(directory), summaries(directory)):
        assert series(files, "monitor/alarms/nonfinite") == ([11], [1.0])
    (text,) = [
        event
        for path in boards(directory)
        for event in events(path)
        if isinstance(event.content, Summary) and event.content.values[0].tag == "monitor/alert"
    ]
    assert text.step == 11
    assert any(b"ALARM: nonfinite" in path.read_bytes() for path in boards(directory))


def test_a_nan_in_the_last_step_of_an_epoch_stops_before_the_next(trainings: Trainings) -> None:
    assert trainings.results["epochs"] == {"trained": 6, "code": None, "ends": 1}
    assert trainings.report("epochs")["since_step"] == 6


def test_steps_that_are_skipped_are_counted_and_stop_nothing(trainings: Trainings) -> None:
    """B26."""
    assert trainings.results["skipped"] == {"trained": 60, "code": None, "ends": 1}
    (alert,) = trainings.lines("skipped", "alert")
    assert (alert["rule"], alert["step"], alert["since_step"]) == ("overflow_streak", 20, 1)


def test_the_process_ends_with_the_code_of_choice(trainings: Trainings) -> None:
    assert trainings.code == 42, trainings.output
    assert "this is never said" not in trainings.output
    assert trainings.report("last")["since_step"] == 5
    assert "Traceback" not in trainings.output


# ------------------------------------------------------------------ ranks


@pytest.mark.slow
def test_two_ranks_stop_after_the_same_step_for_a_nan_on_one(tmp_path: Path) -> None:
    """B26: the other one is not left in a collective."""
    ranks_script, program = TESTS / "monitor_scripts" / "alarm_ranks.py", msrun(8139, tmp_path / "logs")
    with script(str(ranks_script), str(tmp_path / "out"), cwd=tmp_path, program=program) as process:
        assert process.wait(250) == 0, output_of(tmp_path)
    ranks = [strict_lines(tmp_path / "out" / "default" / "run" / f"rank_{rank}") for rank in (0, 1)]
    stops = [[line for line in lines if line["kind"] == "stop"] for lines in ranks]
    assert [len(stop) for stop in stops] == [1, 1]
    assert stops[0][0]["step"] == stops[1][0]["step"]
    assert 50 < stops[0][0]["step"] < 20_000
    assert stops[0][0]["text"].endswith("nonfinite: loss is NaN (on rank 1)")
    report = tmp_path / "out" / "default" / "run" / "rank_1" / "stop_report.txt"
    assert stops[1][0]["text"].endswith(f"nonfinite: loss is NaN; report: {report}")
    assert report.exists()
    alerts = [[line["step"] for line in lines if line["kind"] == "alert"] for lines in ranks]
    assert alerts == [[], [50]]
    assert [lines[-1]["kind"] for lines in ranks] == ["end", "end"]


# ------------------------------------------------------------------ config check --try

TOKEN = "b7c0ffee5ec4e7"


class _Service(BaseHTTPRequestHandler):
    """Takes every message, and keeps it."""

    taken: ClassVar[list[dict[str, Any]]] = []

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def test_a_trial_sends_a_test_alarm_through_every_action(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Service) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        hook = f"http://127.0.0.1:{server.server_address[1]}/hook/{TOKEN}"
        section = {
            "backend": "local",
            "exit_code": 9,
            "alert_actions": [
                "log",
                "dump_stacks",
                {"webhook": hook},
                {"command": [sys.executable, "-c", "print('not this one'); raise SystemExit(4)"]},
            ],
            "alerts": [{"rule": "nonfinite", "actions": ["stop", "save_checkpoint"]}],
            "watchdog": {"actions": [{"webhook": {"url": hook, "dialect": "slack"}}, {"command": ["false"]}]},
        }
        path = tmp_path / "section.json"
        path.write_text(json.dumps(section))
        assert main(["config", "check", str(path), "--try"]) == 1
        server.shutdown()
    said = capsys.readouterr()
    assert TOKEN not in said.out + said.err
    webhooks = ("webhook json 127.0.0.1", "webhook slack 127.0.0.1")
    for title in ("log", "dump_stacks", *webhooks, "stop", "save_checkpoint"):
        assert f"alarm through {title}: done\n" in said.out
    failed = f"alarms through command {sys.executable}: ended with 4: not this one"
    assert f"missing: {failed}\n" in said.out
    assert "missing: alarms through command false: ended with 1" in said.out
    assert len(_Service.taken) == len(webhooks)
    assert all("nothing is wrong" in message["text"] for message in _Service.taken)
    (alert,) = (message["alert"] for message in _Service.taken if "alert" in message)
    assert alert["rule"] == "test"


def test_a_configuration_is_shown_without_its_secrets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hook = {"url": f"https://open.feishu.cn/open-apis/bot/v2/hook/{TOKEN}", "secret": f"SEC{TOKEN}"}
    path = tmp_path / "section.json"
    path.write_text(json.dumps({"alerts": [{"rule": "spike", "actions": [{"webhook": hook}]}]}))
    for options in ([], ["--json"]):
        assert main(["config", "check", str(path), *options]) == 0
        shown = capsys.readouterr().out
        assert "feishu" in shown
        assert TOKEN not in shown
