"""Each recipe of docs/recipes.md is what `config init --recipe` writes, is right, and speaks where it should."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.cli.config import Recipe
from ms_summary_bridge.errors import UsageError
from ms_summary_bridge.files.waiting import wait_for
from ms_summary_bridge.monitor.alarms.alarms import Alarms
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.config.recipes import RECIPES, write_recipe
from ms_summary_bridge.monitor.metrics.device import _SAMPLERS
from ms_summary_bridge.monitor.metrics.device_sampler import DeviceReading
from ms_summary_bridge.monitor.model.sample import Sample
from ms_summary_bridge.monitor.sinks.writer import Note
from ms_summary_bridge.training.facts import TrainingFacts
from ms_summary_bridge.training.faults import Faults
from tests.conftest import ROOT, TESTS
from tests.monitor_run import Engine, strict_lines, values_of


def section(name: str) -> dict[str, Any]:
    """Returns the keys of a recipe."""
    keys: dict[str, Any] = yaml.safe_load(write_recipe(name))["monitor_config"]
    return keys


@pytest.mark.parametrize("page", ["docs/recipes.md", "docs/recipes.zh.md"])
def test_the_page_has_each_of_them(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert shown == [write_recipe(name) for name in RECIPES]
    assert re.findall(r"config init --recipe ([a-z-]+) \1\.yaml", text) == list(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_it_is_written_and_right(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["config", "init", "--recipe", name, "monitor.yaml"]) == 0
    assert Path("monitor.yaml").read_text() == write_recipe(name)
    assert main(["config", "init", "--recipe", name, "--mindformers", "entry.yaml"]) == 0
    entry = Path("entry.yaml").read_text()
    assert yaml.safe_load(entry)["callbacks"] == [{"type": "MindSporeTransformersMonitor", **section(name)}]
    Path("train.yaml").write_text(
        f"trainer: {{type: CausalLanguageModelingTrainer}}\nrunner_config: {{epochs: 1}}\n{entry}"
    )
    for file in ("monitor.yaml", "train.yaml"):
        assert main(["config", "check", file]) == 0
    assert "left out" not in capsys.readouterr().out


def test_names_are_those_that_the_command_takes() -> None:
    assert [recipe.value for recipe in Recipe] == list(RECIPES)
    with pytest.raises(UsageError, match=r"no recipe is called 'night'; there are device-overload, memory"):
        write_recipe("night")


def test_an_overload_stops_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Sampler:
        heat = 70.0

        def latest(self) -> DeviceReading:
            return DeviceReading(temperature=self.heat)

    sampler = Sampler()
    monkeypatch.setattr(_SAMPLERS, "_users", {("npu-smi", 0): (sampler, 1)})
    engine = Engine(tmp_path, **section("device-overload")).begin()
    asked = []
    for step in range(1, 31):
        sampler.heat = 70.0 if step < 10 else 93.0
        engine.step(step, secs=5.0)
        engine.recorder.finish_step()
        engine.recorder.flush()
        asked.append(engine.recorder.stop.is_asked)
    engine.end()
    (alert,) = engine.lines("alert")
    assert (alert["rule"], alert["metric"], alert["value"]) == ("overload", "temperature", 93.0)
    assert alert["actions"] == ["log", "save_checkpoint", "stop"]
    assert 10 + 60 / 5 <= asked.index(True) + 1 <= 10 + (60 + 3 * 10) / 5, "after 60 s, seen every 10 s"
    assert load_config(section("device-overload")).exit_code == 3


def test_memory_that_climbs_is_told_hours_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ms_summary_bridge.monitor.alarms.alarms.memory_limits", lambda _: {"host_memory": 64_000.0})

    def watch(rise: float) -> list[Note]:
        notes: list[Note] = []
        alarms = Alarms(load_config(section("memory")), TrainingFacts(), notes.append, Faults("test"), lambda *_: None)
        for number in range(400):
            values = {"host_memory": 20_000.0 + rise * number}
            alarms.observe_sample(Sample(step=100 * number, monotonic=30.0 * number, values=values))
        return notes

    (first, *_) = watch(rise=40.0)
    assert (first.fields["rule"], first.fields["metric"]) == ("memory_trend", "host_memory")
    assert first.fields["fields"]["hours_left"] > 4, "at 40 MiB in 30 s, 44,000 MiB last nine hours"
    assert "save_checkpoint" in first.fields["actions"]
    assert watch(rise=0.0) == []


def test_data_that_come_slowly_are_told_while_the_loss_looks_fine(tmp_path: Path) -> None:
    engine = Engine(tmp_path, **section("data-worker")).begin(samples_per_step=64)
    for step in range(1, 601):
        engine.step(step, secs=1.0 if step < 400 else 4.0, data_secs=0.1 if step < 400 else 3.1, outputs=1 / step)
    engine.end()
    alerts = engine.lines("alert")
    assert {alert["rule"] for alert in alerts} == {"throughput_drop"}
    assert 400 < alerts[0]["step"] < 440
    assert alerts[0]["actions"] == ["log", "dump_stacks"]
    waited = values_of(engine.samples(), "data_time")
    assert (waited[min(waited)] or 0) < 0.2 < 3 < (waited[max(waited)] or 0)


def test_a_data_worker_that_hangs_is_told_while_the_loss_looks_fine(tmp_path: Path) -> None:
    text = write_recipe("data-worker").replace("floor: 300", "floor: 2").replace("interval: 30", "interval: 0")
    (tmp_path / "monitor.yaml").write_text(f"{text}  save_dir: {tmp_path}\n  run_id: run\n  backend: [local]\n")
    with (tmp_path / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, str(TESTS / "monitor_scripts" / "starving_loop.py"), str(tmp_path / "monitor.yaml")],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    rank = tmp_path / "my-model" / "run" / "rank_0"
    try:
        assert wait_for(lambda: next(rank.glob("hang-*.txt"), None), 0.05, 90), (tmp_path / "said.txt").read_text()
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    hang = json.loads((rank / "hang.jsonl").read_text().splitlines()[0])
    assert (hang["kind"], hang["fields"]["phase"], hang["step"]) == ("hang", "data", 5)
    report = next(rank.glob("hang-*.txt")).read_text()
    assert "the data set gives nothing" in report
    assert "give_batches" in report, "the stack of the worker"
    losses = values_of([line for line in strict_lines(rank) if line["kind"] == "sample"], "loss")
    assert list(losses.values()) == [1.0 / step for step in range(1, len(losses) + 1)], "it falls to the end"


def test_limits_are_silent_in_the_warm_up_where_that_is_asked_for(tmp_path: Path) -> None:
    def first_warning(**keys: Any) -> int:
        engine = Engine(tmp_path / str(len(keys)), **keys).begin(samples_per_step=64_000)
        for step in range(1, 651):
            engine.step(step, outputs=60.0)
        engine.end()
        return int(engine.lines("warning")[0]["step"])

    asked_for = section("warm-up")
    assert first_warning(**asked_for) > asked_for.pop("warn_after_steps") == 500
    assert first_warning(**asked_for) < 50


def test_mfu_is_a_number_or_the_key_that_it_lacks_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def train(*left_out: str, **more: Any) -> tuple[set[float | None], str]:
        caplog.clear()
        keys = {key: value for key, value in section("mfu").items() if key not in left_out} | more
        engine = Engine(tmp_path / "-".join([*left_out, *more, "all"]), **keys)
        engine.begin(**{key: keys.get(key) for key in ("model_flops", "peak_flops", "flops_per_token")})
        for step in range(1, 101):
            engine.step(step)
        engine.end()
        said = [text for text in caplog.messages if "mfu: " in text]
        assert len(said) < 2
        return set(values_of(engine.samples(), "mfu").values()), "".join(said)

    values, said = train()
    assert [*values] == [pytest.approx(2e13 / 3e14)]
    assert said == ""
    assert re.search(r"mfu: give peak_flops(?!,)", train("peak_flops")[1])
    assert "mfu: give model_flops, or flops_per_token and seq_length" in train("model_flops")[1]
    both = train("model_flops", "peak_flops")[1]
    assert "mfu: give peak_flops, and model_flops, or flops_per_token and seq_length" in both
    tokens = train("model_flops", flops_per_token=1e9)
    assert tokens[0] == set()
    assert "mfu: give seq_length, which flops_per_token is multiplied by, or model_flops" in tokens[1]
