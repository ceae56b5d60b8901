"""The commands below `config`: what they write, say and return, run as users run them."""

from __future__ import annotations

import importlib.util
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
import typer
import yaml

from ms_summary_bridge.cli.app import app, main
from ms_summary_bridge.monitor import trial
from ms_summary_bridge.monitor.config.fields import PARAMS, SECTION
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.metrics import Metric, make_metric
from ms_summary_bridge.monitor.model.config import Bounds
from ms_summary_bridge.monitor.model.metric_names import METRICS
from ms_summary_bridge.monitor.suggest import EVERY_STEP, suggest_limits
from tests.cli.test_cli import run
from tests.monitor.test_monitor_config import SECTION_TEXT

ROOT = Path(__file__).resolve().parents[2]


class Done(NamedTuple):
    """What a command gave."""

    returncode: int
    stdout: str
    stderr: str


class Here(Protocol):
    """Runs a command below `config` in this process: `here("check", path)`."""

    def __call__(self, *words: str | Path) -> Done:
        """Returns what it gave."""


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    def call(*words: str | Path) -> Done:
        code = main(["config", *map(str, words)])
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def section(tmp_path: Path) -> Path:
    path = tmp_path / "train.yaml"
    path.write_text(SECTION_TEXT, encoding="utf-8")
    return path


# ---------------------------------------------------------------- check


def test_check_says_what_will_be_recorded(section: Path, here: Here) -> None:
    done = here("check", section, "--set", "interval=1", "--set", "callback.params.warn_on_value.lr={above: 1}")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{section}: right" in done.stdout
    assert "every     1 s" in done.stdout
    assert "to        local, tensorboard, below ./monitor_output/bert-large-wwm-pretrain/" in done.stdout
    assert "warns     loss above 50, tokens_per_second below 1000, lr above 1" in done.stdout
    assert "needs     tokens_per_second: give seq_length" in done.stdout
    assert (
        "\n            grad_norm (for gradient_explosion, gradient_vanishing): the training cell must " in done.stdout
    )
    assert "\n            temperature (for overload): on an NPU npu-smi must be on PATH" in done.stdout
    unlisted = here("check", section, "--set", "metrics=[loss]").stdout
    assert "memory_usage (for memory_trend): list it in metrics\n" in unlisted
    assert "memory_usage (for" not in done.stdout
    assert "note: interval: a sample every 1 s makes large files" in done.stdout


def test_check_tells_every_problem_without_a_traceback(section: Path) -> None:
    text = SECTION_TEXT.replace("interval:", "intervall:").replace("{loss: 50.0,", "{los: 50.0,")
    section.write_text(text, encoding="utf-8")
    done = run("config", "check", section)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 2
    first = "$.monitor_config.intervall: there is no key 'intervall'; did you mean 'interval'?"
    assert f"error: {first} ({section}, line 6)" in done.stderr
    assert "$.monitor_config.callback.params.warn_on_value.los: there is no metric 'los'" in done.stderr


def test_check_for_programs(section: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(section), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["is_valid"]
    assert report["config"]["interval"] == 30.0
    assert report["config"]["backends"] == ["local", "tensorboard"]
    assert report["config"]["callback"]["warn_on_value"]["loss"] == {"above": 50.0, "below": None}
    assert main(["config", "check", str(section), "--json", "--set", "interval=soon"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert (report["is_valid"], report["config"]) == (False, None)
    (problem,) = report["problems"]
    assert problem.startswith("$.monitor_config.interval: ")


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"interval": 0}, "a sample every step makes large files"),
        ({"metrics": ["update_ratio"]}, "like {name: update_ratio, from_step: 0, to_step: 1000}"),
        ({"metrics": ["mfu"]}, "mfu is left out: give peak_flops, and model_flops, or flops_per_token and seq_length"),
        ({"metrics": ["mfu"], "model_flops": 1e9}, "mfu is left out: give peak_flops\n"),
        ({"metrics": ["mfu"], "peak_flops": 1e9}, "mfu is left out: give model_flops, or flops_per_token"),
        ({"warn_on_value": {"loss": math.inf}}, "the limit of loss is infinite"),
        ({"log_level": "ERROR", "warn_on_value": {"loss": 1}}, "keeps the warnings of warn_on_value off the console"),
        ({"per_print_step": 1, "auto_print": False}, "per_print_step has no effect"),
        ({"save_dir": "/dev/null/output"}, "save_dir: /dev/null is not a directory that can be written to"),
        ({"save_dir": "train.yaml/output"}, "train.yaml is not a directory"),
        ({"save_dir": "$HOME/output"}, "save_dir: $HOME is taken as it stands; write ${HOME}"),
        ({"exit_code": 3}, "exit_code has no effect: no alarm has the action stop"),
        ({"enable": False}, "nothing will be recorded"),
    ],
)
def test_check_notes(
    section: Path,
    changes: dict[str, Any],
    note: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(section.parent)
    Path("notes.yaml").write_text(yaml.safe_dump(changes), encoding="utf-8")
    assert main(["config", "check", "notes.yaml"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("note: "))
    assert note in f"{line}\n"


def test_check_of_a_mindformers_file(tmp_path: Path, here: Here) -> None:
    """Our keys are found in MindFormers' own section; the lines that are told in their place are right."""
    path = tmp_path / "llama.yaml"
    theirs = "runner_config:\n  epochs: 1\nmonitor_config:\n  monitor_on: True\n  step_interval: 1\n"
    path.write_text(theirs + "  interval: 30\n  warn_on_value: {loss: 5}\n", encoding="utf-8")
    done = here("check", path)
    assert done.returncode == 2
    message, _, lines = done.stderr.partition("callbacks:\n")
    assert "stops the training because of the keys interval, warn_on_value; move them into an entry" in message
    path.write_text(f"{theirs}callbacks:\n{lines}", encoding="utf-8")
    done = here("check", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "warns     loss above 5" in done.stdout


@pytest.mark.parametrize(
    ("callbacks", "place"),
    [
        (
            "- type: MFLossMonitor\n- type: MindSporeTransformersMonitor\n",
            "callbacks[1], the entry that",
        ),
        ("- type: MindSporeTransformersMonitor\n  config: {interval: 5}\n", "callbacks[0].config, the entry that"),
        ("  type: MFLossMonitor\n", "an entry of callbacks, which must be a list:\n"),
    ],
)
def test_what_fix_refuses_to_move_is_to_be_moved_by_hand(
    tmp_path: Path, here: Here, callbacks: str, place: str
) -> None:
    path = tmp_path / "llama.yaml"
    path.write_text(f"monitor_config:\n  monitor_on: True\n  project: llama\ncallbacks:\n{callbacks}", encoding="utf-8")
    assert here("check", path, "--fix").returncode == 2
    done = here("check", path)
    assert done.returncode == 2
    said = re.sub(r" \([^)]*llama.yaml, line \d+\)", "", done.stderr)
    assert f"because of the key project; move it by hand into {place}" in said
    assert "--fix" not in said


@pytest.mark.mindspore
@pytest.mark.slow
def test_check_tries(section: Path, tmp_path: Path) -> None:
    """Three real steps: the console line, the files, and what both viewers would show."""
    for name in ("output", "bridge"):
        (tmp_path / name).mkdir()
    changes = [f"save_dir={tmp_path / 'output'}", f"bridge={{summary_dir: {tmp_path / 'bridge'}, collect_freq: 10}}"]
    done = run("config", "check", section, "--try", *(word for change in changes for word in ("--set", change)))
    assert done.returncode == 0, done.stderr
    for step in (1, 2, 3):
        assert re.search(rf"^  epoch 1/1 step: {step}/3, loss: [\d.]+, lr: 0.01, ", done.stdout, re.MULTILINE)
    assert re.search(r"[1-9][\d,]* bytes  bert-large-wwm-pretrain/\S+/rank_0/metrics.jsonl", done.stdout)
    assert re.search(r"^TensorBoard shows: .*\bloss\S* \(3\)", done.stdout, re.MULTILINE)
    assert "missing:" not in done.stdout
    assert not any((tmp_path / "output").iterdir()), "a trial leaves nothing behind"
    assert not any((tmp_path / "bridge").iterdir())
    # What only SummaryBridge can know is wrong is told as a mistake of the configuration.
    done = run("config", "check", section, "--try", "--set", "bridge={flush_secs: -1}")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["error: flush_secs: must be a positive number of seconds, not -1"]


def test_check_tries_only_with_mindspore(
    section: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        trial.importlib.util, "find_spec", lambda name, *rest: None if name == "mindspore" else real(name, *rest)
    )
    assert main(["config", "check", str(section), "--try"]) == 1
    assert "pip install 'ms_summary_bridge[mindspore]'" in capsys.readouterr().err
    assert main(["config", "check", str(section), "--try", "--set", "enable=false"]) == 0


def test_a_trial_tells_what_did_not_come_out(section: Path, here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(trial, "_train", lambda scratch, path: "said\n")
    done = here("check", section, "--try", "--set", "backend=[mindinsight]")
    assert done.returncode == 1
    told = [line for line in done.stdout.splitlines() if line.startswith("missing: ")]
    assert told == [
        "missing: the journal, metrics.jsonl",
        "missing: scalars for TensorBoard",
        "missing: scalars for MindInsight",
    ]
    done = here("check", section, "--try", "--json", "--set", "callback.type=my_package:MyMonitor")
    assert done.returncode == 0, "what a class of the user's writes is its own affair"
    assert json.loads(done.stdout)["trial"] == {
        "console": ["said"],
        "files": {},
        "scalars": {},
        "alarms": {},
        "missing": [],
    }


# ---------------------------------------------------------------- init


@pytest.mark.parametrize("options", [[], ["--mindformers"]])
def test_init_writes_what_check_accepts(
    tmp_path: Path, options: list[str], here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALARM_URL", "https://example.com/hook")
    path = tmp_path / "monitor.yaml"
    assert here("init", path, *options).returncode == 0
    text = path.read_text(encoding="utf-8")
    assert here("init", *options).stdout == text
    assert here("check", path).returncode == 0
    # Behind `#` stands the rest of the keys, each with a value that is right.
    path.write_text(re.sub(r"^( +)# (?=\w+: )", r"\1", text, flags=re.MULTILINE), encoding="utf-8")
    assert here("check", path).returncode == 0
    raw = load_config(path).raw
    given = raw.keys() | raw.get("callback", {}).get("params", {}).keys()
    assert given - {"callback"} == SECTION.keys() | PARAMS.keys()
    assert all(name in text for name in METRICS)


def test_init_overwrites_nothing(tmp_path: Path, here: Here) -> None:
    path = tmp_path / "monitor.yaml"
    path.write_text("mine", encoding="utf-8")
    done = here("init", path)
    assert (done.returncode, path.read_text(encoding="utf-8")) == (2, "mine")
    assert done.stderr == f"error: {path}: exists already; --force overwrites it\n"
    assert here("init", path, "--force").returncode == 0
    assert load_config(path).project == "my-model"
    for wrong in (tmp_path / "none" / "a.yaml", tmp_path):
        done = here("init", wrong, "--force")
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: {wrong}: cannot be written: ")


# ---------------------------------------------------------------- suggest


def sample(step: int, values: dict[str, float], *, is_first: bool = False, **more: Any) -> dict[str, Any]:
    spread = {name: {"min": 0.95, "mean": 1.0, "max": 1.05} for name in values}
    groups = {group: {name: values[name] * spread[name][group] for name in values} for group in ("min", "mean", "max")}
    return {"kind": "sample", "step": step, "is_first": is_first, "values": values, **groups, **more}


def healthy(count: int = 200) -> list[dict[str, Any]]:
    """A run whose loss falls from 10 to 2 at a speed that is nearly even."""
    lines: list[dict[str, Any]] = [{"kind": "header", "project": "bert", "run": "one"}]
    lines.append(sample(1, {"loss": 11.0, "tokens_per_second": 3.0, "step_time": 60.0}, is_first=True))
    for number in range(count):
        speed = 1000.0 + 20.0 * math.sin(number)
        values = {
            "loss": 2.0 + 8.0 * math.exp(-number / 10),
            "lr": 0.001,
            "tokens_per_second": speed,
            "step_time": 100 / speed,
            "memory_usage": 3000.0,
            "overflow": 0.0,
            "npu_utilization": 0.0,
        }
        lines.append(sample(10 * (number + 1), values))
    return lines


def write_journal(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_suggest_proposes_limits_that_the_run_itself_keeps(tmp_path: Path, here: Here) -> None:
    lines = healthy()
    journal = write_journal(tmp_path / "metrics.jsonl", lines)
    with journal.open("a", encoding="utf-8") as file:
        file.write('{"kind": "sample", "st')  # torn by a crash
    done = here("suggest", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "# From 200 samples of 'bert/one', up to step 2000." in done.stdout
    limits_file = tmp_path / "limits.yaml"
    limits_file.write_text(done.stdout, encoding="utf-8")
    assert here("check", limits_file).returncode == 0
    callback = load_config(limits_file).callback
    assert callback.warn_on_value.keys() == {"loss", "tokens_per_second", "step_time", "memory_usage"}
    assert callback.warn_on_value["memory_usage"] == Bounds(above=3300.0)  # a tenth above 3000
    assert callback.warn_after_steps == 200
    for line in lines:
        if line["kind"] == "sample" and line["step"] > callback.warn_after_steps:
            for name, bounds in callback.warn_on_value.items():
                group = "max" if name in EVERY_STEP else "values"
                assert bounds.above is None or line[group][name] <= bounds.above
                assert bounds.below is None or line["values"][name] >= bounds.below
    # and that are near enough to be of use
    assert callback.warn_on_value["loss"].above < 5
    assert 500 < callback.warn_on_value["tokens_per_second"].below < 800


def test_suggest_passes_over_what_stands_alone() -> None:
    lines = healthy()
    lines[100] = sample(990, {**lines[100]["values"], "loss": 900.0, "tokens_per_second": 10.0})
    lines.append({"kind": "warning", "step": 990})
    lines[120]["nonfinite"] = {"grad_norm": "nan"}
    lines[130]["values"]["loss"] = None
    calm, odd = suggest_limits(healthy()), suggest_limits(lines)
    assert [(limit.name, limit.value) for limit in odd.limits] == [(limit.name, limit.value) for limit in calm.limits]
    assert any("far from all others" in limit.reason for limit in odd.limits)
    assert odd.doubts == ["it gave 1 warning", "grad_norm was not finite at times"]


def test_suggest_looks_at_what_is_compared_with_a_limit() -> None:
    """A metric that is sampled has its own value compared; of the others, every step is."""
    built_in = {name: type(make_metric(name)) for name, known in METRICS.items() if known.bad}
    assert {name for name, metric in built_in.items() if metric.sample is Metric.sample} == EVERY_STEP
    limits = {limit.name: limit.reason for limit in suggest_limits(healthy()).limits}
    assert "lowest 980" in limits["tokens_per_second"], "of an interval"
    assert "highest 3.237" in limits["loss"], "of one step"


def test_suggest_counts_the_steps_of_the_session() -> None:
    resumed = [{**line, "step": line["step"] + 5000} if "step" in line else line for line in healthy()]
    assert suggest_limits(resumed).warn_after_steps == suggest_limits(healthy()).warn_after_steps == 200


def test_suggest_needs_a_journal_with_samples(tmp_path: Path, here: Here) -> None:
    done = here("suggest", tmp_path / "none.jsonl")
    assert done.returncode == 1
    assert "holds no journal" in done.stderr
    journal = write_journal(tmp_path / "metrics.jsonl", healthy(5))
    done = here("suggest", journal)
    assert done.returncode == 2
    assert f"error: {journal}: the journal has 5 samples after its first step, too few" in done.stderr
    odd = [[], 3, {"kind": "sample"}, {"kind": "sample", "step": 1, "values": 3}, {"kind": "sample", "step": "a"}]
    journal.write_text("\n".join(map(json.dumps, odd)) + "\n\0\xff\n", encoding="latin-1")
    assert here("suggest", journal).returncode == 2
    deep = "[" * 100_000 + "]" * 100_000
    lines = [json.dumps({**line, "values": "VALUE"}).replace('"VALUE"', deep) for line in healthy(30)[2:]]
    journal.write_text("\n".join([*lines, ""]), encoding="utf-8")
    done = here("suggest", journal)
    assert done.returncode == 2
    assert f"too few to learn from: 10 are needed; {len(lines)} lines are damaged, the first is line 1" in done.stderr


@pytest.mark.parametrize(
    ("group", "name", "value"),
    [
        ("nonfinite", "", "3"),
        ("max", "loss", "1" + "0" * 400),
        ("max", "loss", "1.7e308"),
    ],
    ids=["no list", "a whole number that no float holds", "a limit that no float holds"],
)
def test_suggest_says_of_any_line_that_it_cannot_be_learnt_from(
    tmp_path: Path, here: Here, group: str, name: str, value: str
) -> None:
    lines = healthy(30)
    for line in lines[2:]:
        place = line if not name else line[group]
        place[name or group] = "VALUE"
    journal = write_journal(tmp_path / "metrics.jsonl", lines)
    journal.write_text(journal.read_text(encoding="utf-8").replace('"VALUE"', value), encoding="utf-8")
    done = here("suggest", journal)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {journal}: holds a line that the monitor did not write (")


# ---------------------------------------------------------------- schema, help, documentation


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "schema"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert main(["config", "schema", "--section"]) == 0
    assert json.loads(capsys.readouterr().out) == whole["properties"]["monitor_config"]


def test_help_and_wrong_usage(here: Here) -> None:
    for command in ([], ["init"], ["check"], ["suggest"], ["schema"]):
        done = here(*command, "--help")
        assert done.returncode == 0
        assert f"Example: ms-summary-bridge config {' '.join(command)}" in " ".join(done.stdout.split())
    for wrong in (["check"], ["check", "a", "b"], ["nonsense"], ["check", "a", "--nonsense"]):
        done = here(*wrong)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["docs/commands.md", "docs/commands.zh.md"])
def test_every_command_and_option_is_documented(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    group: Any = typer.main.get_command(app)
    for command_name, command in group.commands["config"].commands.items():
        assert f"ms-summary-bridge config {command_name}" in text
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert all(option in text for option in parameter.opts)
