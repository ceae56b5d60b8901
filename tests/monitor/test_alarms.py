"""Alarms in the monitor's engine, driven by hand on a fake clock: when they are raised, and what is done."""

from __future__ import annotations

import json
import logging
import math
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.monitor.alarm_commands import AlarmCommands
from ms_summary_bridge.monitor.alarms.alarms import Alarms
from ms_summary_bridge.monitor.alarms.rules.bounds import Threshold
from ms_summary_bridge.monitor.alarms.stop import StopAgreement
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.loop import Monitor
from ms_summary_bridge.monitor.metrics.device import _SAMPLERS
from ms_summary_bridge.monitor.metrics.device_sampler import DeviceReading
from ms_summary_bridge.monitor.model.alert import Alert
from ms_summary_bridge.monitor.model.sample import Sample
from ms_summary_bridge.training.facts import StepFacts, TrainingFacts
from ms_summary_bridge.training.faults import Faults
from tests.monitor_run import Engine

TOKEN = "b7c0ffee5ec4e7"
STOP = {"rule": "nonfinite", "actions": ["log", "stop"]}


class Saver:
    """A callback that saves, as MindSpore's does."""

    def __init__(self) -> None:
        self.latest_ckpt_file_name = ""
        self._last_triggered_step = 0

    def save(self, path: Path, step: int) -> None:
        path.write_bytes(b"weights")
        self.latest_ckpt_file_name, self._last_triggered_step = str(path), step


def test_a_nan_in_a_tuple_stops_the_training_within_two_steps(tmp_path: Path) -> None:
    """B20: outputs of a training cell with loss scale."""
    engine = Engine(tmp_path, interval=1000, alerts=[STOP], exit_code=3).begin(epochs=2, steps_per_epoch=20)
    saver = Saver()
    commands = AlarmCommands(engine.recorder, [saver], None)
    stopped = 0
    for step in range(1, 20):
        engine.step(step, outputs=(math.nan if step >= 11 else 1.0, False, 1024.0), epoch=1)
        if step % 4 == 0:
            saver.save(tmp_path / f"{step}.ckpt", step)
        if commands.poll():
            stopped = step
            break
    assert stopped == 12
    assert commands.exit_code == 3
    lines = engine.end()
    (alert,) = engine.lines("alert")
    assert (alert["step"], alert["rule"], alert["metric"], alert["severity"]) == (11, "nonfinite", "loss", "critical")
    assert (alert["value"], alert["nonfinite"], alert["since_step"]) == (None, {"value": "nan"}, 11)
    assert alert["actions"] == ["log", "stop"]
    assert [line["kind"] for line in lines if line["kind"] in ("alert", "stop", "end")] == ["alert", "stop", "end"]
    assert lines[-1]["alarms"] == {"nonfinite": 1}
    report = json.loads((engine.directory / "rank_0" / "stop_report.json").read_text())
    assert report["alert"]["message"] == "loss is NaN"
    assert report["since_step"] == 11
    assert report["last_good_checkpoint"] == {"step": 8, "path": str(tmp_path / "8.ckpt")}
    assert report["exit_code"] == 3
    (stop,) = engine.lines("stop")
    assert stop["text"].endswith(
        f"; report: {engine.directory / 'rank_0' / 'stop_report.txt'}; the process will end with exit code 3"
    )
    text = (engine.directory / "rank_0" / "stop_report.txt").read_text()
    for part in ("loss is NaN", "step 11", "epoch 1", "run default/run", f"of step 8: {tmp_path / '8.ckpt'}"):
        assert part in text


def test_the_report_is_about_what_came_first(tmp_path: Path) -> None:
    other = {"rule": "threshold", "metric": "grad_norm", "above": 5, "actions": "stop"}
    engine = Engine(tmp_path, interval=1000, alerts=[STOP, other]).begin()
    for step, (loss, norm) in enumerate([(1.0, 1.0), (1.0, 9.0), (math.nan, 1.0)], start=1):
        engine.step(step, outputs=(loss, False, 1.0, 0.1, norm))
    engine.end()
    assert [line["rule"] for line in engine.lines("alert")] == ["threshold", "nonfinite"]
    report = json.loads((engine.directory / "rank_0" / "stop_report.json").read_text())
    assert report["alert"]["rule"] == "threshold"


def test_steps_that_overflow_stop_nothing(tmp_path: Path) -> None:
    """B26, skipped steps; and the alarm once too many are skipped in a row."""
    rules = [{**STOP, "metrics": ["loss", "grad_norm"]}, {"rule": "overflow_streak", "steps": 50}]
    engine = Engine(tmp_path, interval=1000, alerts=rules).begin()
    commands = AlarmCommands(engine.recorder, [], None)
    for step in range(1, 200):
        overflows = step < 80 or step % 3 == 0
        engine.step(
            step, outputs=(math.nan if overflows else 2.0, overflows, 1024.0, 0.1, math.inf if overflows else 1)
        )
        assert not commands.poll()
    engine.end()
    (alert,) = engine.lines("alert")
    assert (alert["rule"], alert["step"], alert["since_step"], alert["value"]) == ("overflow_streak", 50, 1, 50.0)


def test_patience(tmp_path: Path) -> None:
    """B26, true divergence."""
    engine = Engine(tmp_path, alerts=[{**STOP, "patience": 3}]).begin()
    commands = AlarmCommands(engine.recorder, [], None)
    asked = []
    for step, loss in enumerate([2.0, math.nan, math.nan, math.nan, math.nan], start=1):
        engine.step(step, outputs=(loss, False, 1024.0))
        engine.recorder.finish_step()
        asked.append(engine.recorder.stop.is_asked)
    assert asked == [False, False, False, True, True]
    assert commands.poll()
    engine.end()


def test_an_alarm_is_raised_once_and_again_after_the_cool_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ms_summary_bridge")
    rule = {"rule": "threshold", "metric": "loss", "above": 5, "cool_down": 10, "after_steps": 2}
    engine = Engine(tmp_path, alerts=[rule], auto_print=True).begin()
    for step in range(1, 26):
        engine.step(step, secs=1.0, outputs=9.0)
    lines = engine.end()
    alerts = engine.lines("alert")
    assert [(line["step"], line["silent"], line["count"]) for line in alerts] == [(3, 0, 1), (13, 9, 2), (23, 9, 3)]
    assert lines[-1]["alarms"] == {"threshold": 3}
    shown = [record for record in caplog.records if "ALARM: threshold" in record.getMessage()]
    assert [record.levelno for record in shown] == [logging.WARNING] * 3
    assert "9 more since the last alarm" in caplog.text


def test_values_of_samples_are_seen_as_well(tmp_path: Path) -> None:
    rule = {"rule": "threshold", "metric": "samples_per_second", "below": 100}
    engine = Engine(tmp_path, alerts=[rule], metrics=["loss"], interval=0).begin(samples_per_step=64)
    for step in range(1, 7):
        engine.step(step, secs=0.1 if step < 4 else 1.0)
    engine.end()
    (alert,) = engine.lines("alert")
    assert (alert["metric"], alert["step"], alert["value"]) == ("samples_per_second", 4, pytest.approx(64.0))


def test_an_overload_that_lasts_stops_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sampler:
        heat = 99.0

        def latest(self) -> DeviceReading:
            return DeviceReading(temperature=self.heat)

    sampler = Sampler()
    monkeypatch.setattr(_SAMPLERS, "_users", {("npu-smi", 0): (sampler, 1)})
    rule = {"rule": "overload", "temperature": 90, "secs": 3, "actions": ["log", "stop"]}
    engine = Engine(tmp_path, alerts=[rule], interval=0).begin()
    commands = AlarmCommands(engine.recorder, [], None)
    asked = []
    for step in range(1, 9):
        sampler.heat = 60.0 if step == 3 else 99.0
        engine.step(step)
        engine.recorder.finish_step()
        engine.recorder.flush()
        asked.append(engine.recorder.stop.is_asked)
    assert asked == [False] * 6 + [True] * 2
    assert commands.poll()
    engine.end()
    (alert,) = engine.lines("alert")
    assert (alert["rule"], alert["metric"], alert["value"], alert["bound"]) == ("overload", "temperature", 99.0, 90.0)
    assert (alert["step"], alert["since_step"], alert["actions"]) == (7, 4, ["log", "stop"])
    assert [line["kind"] for line in engine.lines() if line["kind"] in ("alert", "stop")] == ["alert", "stop"]
    report = json.loads((engine.directory / "rank_0" / "stop_report.json").read_text())
    assert report["alert"]["rule"] == "overload"


def test_a_leak_of_device_memory_is_measured_by_what_the_device_has(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sampler:
        def latest(self) -> DeviceReading:
            return DeviceReading(memory_used=1.0, memory_total=32_768.0)

    monkeypatch.setattr(_SAMPLERS, "_users", {("npu-smi", 0): (Sampler(), 1)})
    notes: list[Any] = []
    alarms = Alarms(load_config(True), TrainingFacts(device="Ascend 0"), notes.append, Faults("test"), _never())
    for number in range(1, 200):
        values = {"npu_memory": 20_000.0 + 10.0 * number}
        alarms.observe_sample(Sample(step=100 * number, monotonic=30.0 * number, values=values))
    assert notes
    assert (notes[0].fields["metric"], notes[0].fields["bound"]) == ("npu_memory", 32_768.0)
    assert notes[0].fields["fields"]["steps_left"] + notes[0].step == pytest.approx(127_680, rel=0.01)


def test_the_console_says_a_nan_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ms_summary_bridge")
    engine = Engine(tmp_path, auto_print=True, interval=1000, metrics=["loss"]).begin()
    for step in range(1, 5):
        engine.step(step, outputs=math.nan if step == 3 else 1.0)
    engine.end()
    said = [record for record in caplog.records if "loss is NaN" in record.getMessage()]
    assert [record.levelno for record in said] == [logging.CRITICAL]
    assert len(engine.lines("warning")) == len(engine.lines("alert")) == 1


def test_no_rules_no_alarms(tmp_path: Path) -> None:
    engine = Engine(tmp_path, alerts=False).begin()
    for step in range(1, 5):
        engine.step(step, outputs=math.nan)
    assert engine.end()[-1]["alarms"] == {}
    assert engine.lines("alert") == []


def test_a_rule_that_fails_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: Threshold, point: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Threshold, "observe", fail)
    rules = [{"rule": "threshold", "metric": "loss", "above": 5}, "nonfinite"]
    engine = Engine(tmp_path, alerts=rules).begin()
    for step in range(1, 10):
        engine.step(step, outputs=math.nan)
    assert engine.end()[-1]["alarms"] == {"nonfinite": 1}
    assert caplog.text.count("the rule threshold is left out") == 1


# ------------------------------------------------------------------ what is done


def test_stacks_are_dumped(tmp_path: Path) -> None:
    engine = Engine(tmp_path, alerts=[{"rule": "nonfinite", "actions": "dump_stacks"}]).begin()
    engine.step(1, outputs=math.nan)
    engine.end()
    text = (engine.directory / "rank_0" / "stacks-nonfinite-step_1.txt").read_text()
    assert "test_stacks_are_dumped" in text
    assert engine.lines("alert")[0]["actions"] == ["dump_stacks"]


def test_a_checkpoint_is_saved_between_two_steps(tmp_path: Path) -> None:
    engine = Engine(tmp_path, alerts=[{"rule": "nonfinite", "actions": ["save_checkpoint"]}], interval=0).begin()
    saved: list[str] = []

    def save(path: str) -> None:
        saved.append(path)
        Path(path).write_bytes(b"weights")

    commands = AlarmCommands(engine.recorder, [], save)
    for step in range(1, 4):
        engine.step(step, outputs=math.nan if step == 2 else 1.0)
        engine.recorder.flush()
        assert not commands.poll()
    engine.end()
    assert len(saved) == 1
    checkpoints = engine.directory / "rank_0" / "checkpoints"
    assert [path.name for path in checkpoints.iterdir()] == ["alarm-nonfinite-step_3.ckpt"]
    assert any("checkpoint saved for the alarm" in line["text"] for line in engine.lines("milestone"))


def test_what_the_last_step_of_an_epoch_calls_for_is_known_when_the_epoch_ends(tmp_path: Path) -> None:
    """In data sink mode that is the one moment at which a training can be stopped."""
    alerts = [{"rule": "threshold", "metric": "loss", "above": 5, "actions": ["stop"]}]
    engine = Engine(tmp_path, alerts=alerts, interval=3600, metrics=["loss"]).begin()
    commands = AlarmCommands(engine.recorder, [], None)
    stops = []
    for epoch, loss in ((1, 1.0), (2, 9.0)):
        engine.recorder.resume()
        engine.step(100 * epoch, outputs=loss, epoch=epoch)
        stops.append(commands.poll())
        engine.recorder.pause()
        stops.append(commands.poll())
    engine.end()
    assert stops == [False, False, False, True]


def test_an_alarm_that_lasts_does_not_fill_the_disk(tmp_path: Path) -> None:
    alerts = [{"rule": "nonfinite", "actions": ["save_checkpoint"], "cool_down": 0}]
    engine = Engine(tmp_path, alerts=alerts, interval=0, keep_checkpoint_max=2).begin()

    def save(path: str) -> None:
        Path(path).write_bytes(b"weights")

    commands = AlarmCommands(engine.recorder, [], save)
    for step in range(1, 7):
        engine.step(step, outputs=math.nan)
        engine.recorder.flush()
        commands.poll()
    engine.end()
    names = sorted(path.name for path in (engine.directory / "rank_0" / "checkpoints").iterdir())
    assert names == ["alarm-nonfinite-step_5.ckpt", "alarm-nonfinite-step_6.ckpt"]


def test_stacks_that_cannot_be_written_do_not_hold_up_what_follows(tmp_path: Path) -> None:
    told = tmp_path / "told"
    action = {"command": [sys.executable, "-c", "import sys; open(sys.argv[1], 'w')", str(told)]}
    engine = Engine(tmp_path, alerts=[{"rule": "nonfinite", "actions": ["dump_stacks", action]}]).begin()
    engine.step(1)
    engine.recorder.flush()
    shutil.rmtree(engine.directory)
    engine.directory.write_text("in the way")
    engine.step(2, outputs=math.nan)
    engine.recorder.end("")  # there is no journal to be read
    assert told.exists()


def test_a_checkpoint_that_cannot_be_saved_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(tmp_path, alerts=[{"rule": "nonfinite", "actions": ["save_checkpoint"]}]).begin()

    def save(path: str) -> None:
        raise RuntimeError("no space")

    commands = AlarmCommands(engine.recorder, [], save)
    for step in range(1, 4):
        engine.step(step, outputs=math.nan)
        engine.recorder.flush()
        assert not commands.poll()
    engine.end()
    assert caplog.text.count("cannot be saved: RuntimeError('no space')") == 1


def test_a_command_is_told_of_the_run(tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['ALERT_RULE'] + os.environ['ALERT_RUN_DIRECTORY'])"
    actions = [{"command": [sys.executable, "-c", code, str(told)]}]
    engine = Engine(tmp_path, alert_actions=actions).begin()
    engine.step(1, outputs=math.nan)
    engine.end()  # which waits for it
    assert told.read_text() == f"nonfinite{engine.directory}"


def test_each_action_has_an_outcome_and_a_warning_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two addresses of one host, and two calls of one program, have one title; the end of a training waits for all."""
    hooks = [{"webhook": {"url": f"http://127.0.0.1:9/{name}", "attempts": 1}} for name in ("one", "two")]
    commands = [{"command": [sys.executable, "-c", f"import time; time.sleep(1); exit({code})"]} for code in (0, 3)]
    engine = Engine(tmp_path, alert_actions=["log", *hooks, *commands]).begin()
    engine.step(1, outputs=math.nan)
    engine.end()
    lines = engine.lines()
    outcomes = {line["action"]: line["problem"] for line in lines if line["kind"] == "action"}
    program = f"command {sys.executable}"
    assert set(outcomes) == {"webhook json 127.0.0.1", "webhook json 127.0.0.1 (2)", program, f"{program} (2)"}
    assert (outcomes[program], outcomes[f"{program} (2)"]) == ("", "ended with 3")
    assert all(line["rule"] == "nonfinite" for line in lines if line["kind"] == "action")
    for name, problem in outcomes.items():
        assert caplog.text.count(f"{name} was not told of nonfinite: ") == bool(problem)


class _Deaf(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.send_error(404, f"unknown {self.path}")

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


def test_a_token_is_in_no_file_and_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    caplog.set_level(logging.DEBUG)
    with HTTPServer(("127.0.0.1", 0), _Deaf) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        hook = {"url": f"http://127.0.0.1:{server.server_address[1]}/hook/{TOKEN}", "headers": {"X": TOKEN}}
        secret = {**hook, "dialect": "feishu", "secret": f"SEC{TOKEN}"}
        engine = Engine(tmp_path, alert_actions=["log", {"webhook": hook}, {"webhook": secret}]).begin()
        engine.step(1, outputs=math.nan)
        engine.end()
        server.shutdown()
    assert "webhook json 127.0.0.1 was not told of nonfinite: HTTP status 404" in caplog.text
    assert "webhook feishu 127.0.0.1 was not told of nonfinite: HTTP status 404" in caplog.text
    assert TOKEN not in caplog.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "metrics.jsonl" for path in files)
    assert not [path for path in files if TOKEN.encode() in path.read_bytes()]


# ------------------------------------------------------------------ the loop of one's own


def loop_section(directory: Path, **keys: Any) -> dict[str, Any]:
    return {"backend": ["local"], "save_dir": str(directory), "alerts": [STOP], "auto_print": False, **keys}


def train(monitor: Monitor, error: type[Exception] | None = None) -> int:
    """Trains until the monitor says stop; returns the step at which it did."""
    step = 0
    with monitor:
        while not monitor.should_stop:
            step += 1
            monitor.step(loss=math.nan if step >= 10 else 1.0)
        if error is not None:
            raise error
    return step


def test_a_loop_is_told_to_stop_and_ends_with_its_code(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        train(Monitor(loop_section(tmp_path, exit_code=7)))
    assert ended.value.code == 7
    (report,) = tmp_path.rglob("stop_report.json")
    assert json.loads(report.read_text())["since_step"] == 10


def test_a_nan_of_the_very_last_step_counts_too(tmp_path: Path) -> None:
    def train_ten() -> None:
        with Monitor(loop_section(tmp_path, exit_code=7)) as monitor:
            for step in range(1, 11):
                monitor.step(loss=math.nan if step == 10 else 1.0)

    with pytest.raises(SystemExit):
        train_ten()


def test_an_exception_of_the_loops_own_goes_first(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        train(Monitor(loop_section(tmp_path, exit_code=7)), KeyError)


def test_without_an_exit_code_a_loop_goes_on_behind(tmp_path: Path) -> None:
    assert train(Monitor(loop_section(tmp_path))) == 11


# ------------------------------------------------------------------ both viewers


def test_every_sink_gets_an_alarm_with_what_it_needs() -> None:
    notes: list[Any] = []
    alarms = Alarms(load_config(True), TrainingFacts(rank=1, ranks=2), notes.append, Faults("test"), _never())
    alarms.observe_step(StepFacts(step=4, loss=math.nan), {}, 1.0, 2.0)
    (note,) = notes
    assert (note.kind, note.step, note.fields["count"], note.level) == ("alert", 4, 1, logging.CRITICAL)
    assert "rank 1" in note.text
    alarms.raise_alarm(Alert(rule="hang", step=5, wall_time=3.0, message="no step"), ())
    assert notes[1].level is None


def _never() -> StopAgreement:
    return StopAgreement(0, 1, 60.0)
