"""`load_config`: what people write is read as they mean it, and every mistake is told, all at once."""

from __future__ import annotations

import ast
import math
import random
import re
from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ms_summary_bridge.errors import ConfigError, UsageError
from ms_summary_bridge.monitor.config.fields import PARAMS, SECTION, say_flow
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.config.schema import build_schema, build_section_schema
from ms_summary_bridge.monitor.model.config import Bounds, MetricConfig, MonitorConfig
from ms_summary_bridge.monitor.model.keys import BridgeArgument
from ms_summary_bridge.monitor.model.metric_names import ALIASES, METRICS, MetricName, add_name
from tests.json_schema import is_valid
from tests.project.test_docs import tables

ROOT = Path(__file__).resolve().parents[2]

SECTION_TEXT = """
monitor_config:
  enable: true
  backend: local            # local | tensorboard | mindinsight | wandb, or a list
  project: bert-large-wwm-pretrain
  interval: 30              # seconds, or auto: 30 on one card, 60 and more on many
  save_dir: ./monitor_output
  tensorboard: true         # adds the tensorboard backend to whatever backend names
  metrics: [loss, lr, tokens_per_second, memory_usage, global_rank]
  tags: {dataset: v3, model: 340M}
  callback:
    type: MindSporeTransformersMonitor
    params: {log_level: INFO, warn_on_value: {loss: 50.0, tokens_per_second: 1000}}
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def problems_of(source: Any, **options: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(source, **options)
    assert caught.value.exit_code == 2
    return caught.value.problems


def problem_of(source: Any, **options: Any) -> str:
    (problem,) = problems_of(source, **options)
    return problem


def content(config: MonitorConfig) -> dict[str, Any]:
    """What was configured, without where it came from."""
    return {name: getattr(config, name) for name in config.__struct_fields__ if name not in ("source", "raw")}


# ---------------------------------------------------------------- what people write


def test_section_works_as_it_stands(tmp_path: Path) -> None:
    path = write(tmp_path / "train.yaml", SECTION_TEXT)
    config = load_config(path)
    assert config.enable
    assert config.backends == ("local", "tensorboard")
    assert config.project == "bert-large-wwm-pretrain"
    assert config.interval == 30.0
    assert config.save_dir == "./monitor_output"
    names = [metric.name for metric in config.metrics]
    assert names == ["loss", "lr", "tokens_per_second", "memory_usage", "global_rank"]
    assert config.tags == {"dataset": "v3", "model": "340M"}
    assert config.callback.type == "MindSporeTransformersMonitor"
    assert config.callback.log_level == "INFO"
    # each in its own bad way
    assert config.callback.warn_on_value == {"loss": Bounds(above=50.0), "tokens_per_second": Bounds(below=1000.0)}
    assert config.source == str(path)
    whole = yaml.safe_load(SECTION_TEXT)
    assert config.raw == whole["monitor_config"]
    for source in (str(path), whole, whole["monitor_config"], MappingProxyType(whole), OrderedDict(whole)):
        assert content(load_config(source)) == content(config)
    assert load_config(whole).source == "dict"


@pytest.mark.parametrize("source", [True, {}, {"monitor_config": True}, {"monitor_config": None}, {"enable": True}])
def test_on_alone_gives_the_whole_chain(source: Any) -> None:
    config = load_config(source)
    is_true = source in (True, {"monitor_config": True})
    assert content(config) == content(MonitorConfig(save_best_ckpt=is_true))  # which takes space: not unless asked for
    assert config.enable
    assert set(config.backends) == {"local", "tensorboard", "mindinsight"}
    assert {"loss", "lr", "samples_per_second", "memory_usage"} <= {metric.name for metric in config.metrics}


@pytest.mark.parametrize("source", [False, {"monitor_config": False}, {"enable": False}])
def test_off(source: Any) -> None:
    assert not load_config(source).enable


def test_every_key_is_taken_and_arrives() -> None:
    given = {
        "run_id": 7,
        "backend": ["wandb", "LOCAL"],
        "interval": "auto",
        "metrics": ["loss", {"name": "grad_norm", "from_step": 10}, {"update_ratio": {"to_step": 1e3}}],
        "aggregate": ["loss", "temperature"],
        "aggregate_steps": 50,
        "csv": True,
        "prometheus_dir": "/textfiles",
        "max_journal_bytes": 1 << 20,
        "quiet_loss_monitor": True,
        "save_epochs": 2,
        "bridge": {"collect_freq": 5, "collect_specified_data": {"collect_graph": False}},
        "watchdog": False,
        "alerts": False,
        "alert_actions": ["log", "stop"],
        "exit_code": 3,
        "stop_patience": 5,
        "global_batch_size": 64,
        "seq_length": 4096,
        "initial_step": 100,
        "micro_batch_num": 2,
        "micro_batch_interleave_num": 3,
        "gradient_accumulation_steps": 4,
        "calculate_per_token_loss": True,
        "flops_per_token": 6e9,
        "model_flops": 1e15,
        "peak_flops": "3.5e14",
        "per_print_step": 20,
        "callback": {
            "params": {
                "auto_print": False,
                "save_checkpoint_steps": 500,
                "keep_checkpoint_max": 3,
                "save_best_ckpt": True,
                "warn_after_steps": 50,
                "cool_down": 0,
                "log_level": "warning",
            }
        },
    }
    assert given.keys() | given["callback"]["params"].keys() | {  # type: ignore[attr-defined]
        "enable", "tensorboard", "project", "save_dir", "tags", "warn_on_value",
    } == SECTION.keys() | PARAMS.keys() | {"callback"}  # fmt: skip
    given["peak_flops"] = 3.5e14
    config = load_config(given)
    assert config.run_id == "7"
    assert config.backends == ("wandb", "local")
    assert config.metrics == (
        MetricConfig(name="loss"),
        MetricConfig(name="grad_norm", from_step=10),
        MetricConfig(name="update_ratio", to_step=1000),
    )
    assert config.aggregate == ("loss", "temperature")
    callback = config.callback
    assert (callback.warn_after_steps, callback.cool_down, callback.log_level) == (50, 0.0, "WARNING")
    assert config.save_best_ckpt
    assert not config.auto_print
    assert (config.save_checkpoint_steps, config.keep_checkpoint_max, config.per_print_step) == (500, 3, 20)
    assert not config.watchdog.enable
    assert config.alerts == ()
    assert [action.kind for action in config.alert_actions] == ["log", "stop"]
    for name in given.keys() - {
        "run_id", "backend", "metrics", "aggregate", "callback", "watchdog", "alerts", "alert_actions"
    }:  # fmt: skip
        assert getattr(config, name) == given[name], name


def test_keys_of_params_stand_in_the_section_too() -> None:
    """An entry of MindFormers' `callbacks` is flat."""
    config = load_config({"warn_on_value": {"loss": 5}, "log_level": "ERROR"})
    assert config.callback.warn_on_value == {"loss": Bounds(above=5.0)}
    assert config.callback.log_level == "ERROR"
    twice = problem_of({"csv": True, "cool_down": 1, "callback": {"params": {"cool_down": 2}}})
    assert twice.startswith("$.cool_down: is given here and in callback.params")


def test_tensorboard_adds_and_takes_away() -> None:
    assert load_config({"backend": "wandb", "tensorboard": True}).backends == ("wandb", "tensorboard")
    assert load_config({"backend": ["tensorboard", "local"], "tensorboard": True}).backends == ("tensorboard", "local")
    assert load_config({"tensorboard": False}).backends == ("local", "mindinsight")
    assert "keep one of the two" in problem_of({"backend": "tensorboard", "tensorboard": False})


def test_limits() -> None:
    def limits(given: dict[str, Any]) -> dict[str, Bounds]:
        return load_config({"warn_on_value": given}).callback.warn_on_value

    assert limits({"loss": {"above": 50}}) == {"loss": Bounds(above=50.0)}
    assert limits({"lr": {"above": 1, "below": 0}}) == {"lr": Bounds(above=1.0, below=0.0)}
    assert limits({"loss": math.inf}) == {"loss": Bounds(above=math.inf)}, "never warns"
    assert limits({"loss": None}) == {}, "the default: no limit"
    assert limits({"npu_temperature": 80}) == {"temperature": Bounds(above=80.0)}
    for name, known in METRICS.items():
        if known.bad is None:
            assert f"'{name}' may be wrong in either way: write {{above: 3}} or" in problem_of(
                {"warn_on_value": {name: 3}}
            )
        else:
            assert getattr(limits({name: 3})[name], known.bad) == 3.0
    assert "is another name of it" in problem_of({"warn_on_value": {"temperature": 1, "npu_temperature": 2}})
    assert "the wrong way round" in problem_of({"warn_on_value": {"loss": {"above": 1, "below": 2}}})
    assert "has no limit" in problem_of({"warn_on_value": {"loss": {}}})


def test_what_is_watched_is_measured() -> None:
    config = load_config({"metrics": ["loss"], "warn_on_value": {"grad_norm": 3, "loss": 1}})
    assert [metric.name for metric in config.metrics] == ["loss", "grad_norm"]


def test_a_class_of_the_users_has_parameters_of_its_own() -> None:
    params = {"anything": [1, 2], "log_level": "DEBUG"}
    for name in ("MyMonitor", "my_package.callbacks:MyMonitor"):
        config = load_config({"callback": {"type": name, "params": params}})
        assert config.callback.type == name
        assert config.callback.params == params
        assert config.callback.log_level == "DEBUG"
    for name in ("my package", "a.b", ":A", "a:", 3, ""):
        assert "$.callback.type: must be the name of a registered class" in problem_of({"callback": {"type": name}})


def test_metrics_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(METRICS, "queue_length", raising=False)
    assert "there is no metric 'queue_length'" in problem_of({"metrics": ["queue_length"]})
    monkeypatch.setitem(METRICS, "queue_length", MetricName("waiting batches", "below"))
    config = load_config({"metrics": ["queue_length"], "warn_on_value": {"queue_length": 1}})
    assert config.callback.warn_on_value == {"queue_length": Bounds(below=1.0)}
    assert is_valid({"metrics": ["queue_length"]}, build_section_schema())
    for taken in ("loss", *ALIASES):
        with pytest.raises(UsageError, match="exists already"):
            add_name(taken, MetricName(""))


def test_dicts_of_other_programs() -> None:
    config = load_config(
        {
            "interval": np.float32(2.5),
            "metrics": ("loss",),
            "save_dir": Path("out"),
            "seq_length": np.int64(3),
            "csv": np.bool_(True),
            # as PyYAML's own loader gives it
            "warn_on_value": {"loss": "1e3", "lr": {"above": "1e-5"}},
        }
    )
    assert (config.interval, config.save_dir, config.seq_length, config.csv) == (2.5, "out", 3, True)
    assert config.callback.warn_on_value == {"loss": Bounds(above=1000.0), "lr": Bounds(above=1e-5)}
    endless: dict[str, Any] = {}
    endless["tags"] = endless
    assert any("holds itself" in problem for problem in problems_of(endless))
    assert "cannot be a value of a configuration" in problem_of({"bridge": {"collect_freq": object()}})
    assert "more than 64 bits" in problem_of({"tags": {"a": 1 << 70}})
    assert "half a character" in problem_of({"tags": {"a": "\ud800"}})


def test_a_given_dict_stays_as_it_is(tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", "tags: {a: 1}")
    given = {"extends": str(base), "tags": {"b": 2}}
    assert load_config(given, overrides=["tags.c=3"]).tags == {"a": 1, "b": 2, "c": 3}
    assert given == {"extends": str(base), "tags": {"b": 2}}


def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLACE", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    write(tmp_path / "base.yaml", "csv: true")
    section = {
        "extends": "${PLACE}/base.yaml",
        "save_dir": "${PLACE}/x",
        "run_id": "job-${SLURM_JOB_ID}",
        "tags": {"job": "${SLURM_JOB_ID}"},
        "bridge": {"summary_dir": "${PLACE}/s"},
    }
    config = load_config(section)
    assert (config.save_dir, config.run_id, config.csv) == (f"{tmp_path}/x", "job-77", True)
    assert (config.tags, config.bridge) == ({"job": "77"}, {"summary_dir": f"{tmp_path}/s"})
    assert config.raw["save_dir"] == "${PLACE}/x"
    monkeypatch.delenv("PLACE")
    del section["extends"]
    assert [problem.partition(" is not set")[0] for problem in problems_of(section)] == [
        "$.save_dir: the environment variable PLACE",
        "$.bridge.summary_dir: the environment variable PLACE",
    ]
    assert "without a slash" in problem_of({"run_id": "${HOME}"})


# ---------------------------------------------------------------- YAML


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-5", 1e-5), ("1E5", 1e5), ("5e+3", 5e3), ("2.", 2.0), (".5", 0.5), ("1_000", 1e3), ("0x10", 16.0), ("7", 7.0)],
)
def test_numbers(tmp_path: Path, text: str, value: float) -> None:
    path = write(tmp_path / "c.yaml", f"interval: {text}\nwarn_on_value: {{loss: {text}}}\n")
    config = load_config(path)
    assert config.interval == value
    assert config.callback.warn_on_value["loss"] == Bounds(above=value)


@pytest.mark.parametrize(
    ("text", "is_on"), [("yes", True), ("on", True), ("TRUE", True), ("no", False), ("Off", False), ("false", False)]
)
def test_booleans(tmp_path: Path, text: str, is_on: bool) -> None:
    assert load_config(write(tmp_path / "c.yaml", f"monitor_config:\n  csv: {text}\n")).csv is is_on
    assert load_config(write(tmp_path / "c.yaml", f"monitor_config: {text}\n")).enable is is_on


@pytest.mark.parametrize("text", ["", "# a comment\n", "---\n", "{}", "monitor_config:\n", "monitor_config: ~\n"])
def test_nothing_is_all_defaults(tmp_path: Path, text: str) -> None:
    assert content(load_config(write(tmp_path / "c.yaml", text))) == content(MonitorConfig())


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("warn_on_value:\n  loss: .nan", "$.warn_on_value.loss", "every comparison with it is false"),
        ("warn_on_value:\n  loss: true", "$.warn_on_value.loss", "true, which is a boolean"),
        ("warn_on_value:\n  los: 5", "$.warn_on_value.los", "did you mean 'loss'?"),
        ("metrics:\n  - los", "$.metrics[0]", "did you mean 'loss'?"),
        ("metrics:\n  loss", "$.metrics", "must be a list"),
        ('csv:\n  "false"', "$.csv", "is text, which is never false"),
        ("csv:\n  y", "$.csv", "write true or false"),
        ("csv:\n  1", "$.csv", "must be true or false, got 1"),
        ("interval:\n  010", "$.interval", "without the leading 0"),
        ("interval:\n  1:30", "$.interval", "write 90"),
        ('interval:\n  "30"', "$.interval", "without quotes"),
        ("interval:\n  -5", "$.interval", "must be 0 or more, got -5"),
        ("interval:\n  .inf", "$.interval", "must be a finite number"),
        ("interval:\n  autom", "$.interval", "did you mean 'auto'?"),
        ("backend:\n  tensorbord", "$.backend", "did you mean 'tensorboard'?"),
        ("backend:\n  [local, Local]", "$.backend[1]", "in the list twice"),
        ("seq_length:\n  0", "$.seq_length", "must be 1 or more"),
        ("seq_length:\n  1.5", "$.seq_length", "must be a whole number"),
        ("seq_length:\n  1e300", "$.seq_length", "is too large"),
        ("max_journal_bytes:\n  10", "$.max_journal_bytes", "must be 65536 or more"),
        ("project:\n  no", "$.project", "only in quotes"),
        ("project:\n  1e5", "$.project", "put it in quotes"),
        ("project:\n  ../a", "$.project", "without a slash"),
        ('run_id:\n  ""', "$.run_id", "is empty"),
        ('save_dir:\n  "a\\0b"', "$.save_dir", "control character"),
        ("tags:\n  a: [1]", "$.tags.a", "must be a text, a number or a boolean"),
        ("tags:\n  a: .nan", "$.tags.a", "nan"),
        ("tags:\n  on: 1", "$.tags", "keys only in quotes"),
        ("tags:\n  - a", "$.tags", "must be a mapping, like {dataset: v3}"),
        ("bridge:\n  colect_freq: 1", "$.bridge.colect_freq", "did you mean 'collect_freq'?"),
        ("callback:\n  log_level: INFO", "$.callback.log_level", "belongs one level down, into params"),
        ("callback:\n  interval: 3", "$.callback.interval", "belongs one level up"),
        ("callback:\n  parms: {}", "$.callback.parms", "did you mean 'params'?"),
        ("callback:\n  params: {csv: true}", "$.callback.params.csv", "belongs two levels up"),
        ("callback:\n  MyMonitor", "$.callback", "must be a mapping"),
        ("metrics:\n  - {loss: {form_step: 1}}", "$.metrics[0].loss.form_step", "did you mean 'from_step'?"),
        ("metrics:\n  - {loss: {from_step: 5, to_step: 2}}", "$.metrics[0].loss", "would never be measured"),
        ("metrics:\n  - {from_step: 5, to_step: 2}", "$.metrics[0]", "has no name"),
        ("metrics:\n  - [loss]", "$.metrics[0]", "must be a mapping"),
        ("callback: {type: ~, params: ~}\nmetrics: [{lr: {form_step: ~}}]", "$.metrics[0].lr.form_step", "no key"),
        ("bridge: {}\nintervall:\ntags: {a: ~}", "$.intervall", "did you mean 'interval'?"),
        ("csv: true\nintervall: 5", "$.intervall", "did you mean 'interval'?"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, text: str, place: str, words: str) -> None:
    indented = "".join(f"  {line}\n" for line in text.splitlines())
    path = write(tmp_path / "c.yaml", "# a comment\nmonitor_config:\n" + indented)
    problem = problem_of(path)
    assert problem.startswith(place.replace("$", "$.monitor_config", 1) + ": ")
    assert words in problem
    # The place is that of the key, or of the item of a list.
    key = re.findall(r"[a-z_]+", place)[-1]
    lines = path.read_text(encoding="utf-8").splitlines()
    line = len(lines) if place.endswith("]") else 1 + next(n for n, text in enumerate(lines) if f"{key}:" in text)
    assert problem.endswith(f"({path}, line {line})")


def test_every_problem_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path / "c.yaml",
        "monitor_config:\n  intervall: 3\n  csv: 'no'\n  csv: 'no'\n"
        "  callback:\n    params: {warn_on_value: {los: 1}}\n",
    )
    assert [problem.partition(": ")[0] for problem in problems_of(path, overrides=["interval=soon", "x"])] == [
        f"{path}, line 4",
        "--set x",
        "$.monitor_config.intervall",
        "$.monitor_config.csv",
        "$.monitor_config.interval",
        "$.monitor_config.callback.params.warn_on_value.los",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:\n\tb: 1", "line 2: a tab"),
        ("csv: true\ncsv: false", "line 2: the key 'csv' is given twice, first in line 1"),
        ("- csv: true", "$: must be a mapping"),
        ("monitor_config: [1]", "$.monitor_config: must be a mapping"),
        ("monitor_confg: {}", "did you mean 'monitor_config'?"),
        ("model: {}", "has no monitor_config"),
        ("csv: !!python/object/apply:os.system ['true']", "plain values only"),
        ("csv: !!python/name:os.system", "plain values only"),
        ("run_id: !!timestamp 2020-01-01", "plain values only"),
        ("csv: !!bool maybe", "cannot be read as a boolean"),
        ("csv: !!int [1]", "does not fit"),
        ("csv: 'true", "line 1: found unexpected end"),
        ("csv: true\n---\ncsv: true", "found another document"),
        ("csv: *a", "undefined alias"),
        ("tags: &a {b: *a}", "holds itself"),
        ("? [1]\n: 2", "a key must be a word"),
        ("a: \x01", "cannot be read as YAML"),
        ("[" * 2000, "levels deep"),
        ("{a: " * 60 + "1" + "}" * 60, "levels deep"),
        ("seq_length: " + "9" * 5000, "cannot be read as a whole number"),
    ],
)
def test_no_yaml_or_none_of_ours(tmp_path: Path, text: str, words: str) -> None:
    assert words in problem_of(write(tmp_path / "c.yaml", text))


def test_aliases_are_followed_and_bounded(tmp_path: Path) -> None:
    shared = "x: &x {dataset: v3}\nmonitor_config:\n  tags: {<<: *x, model: 340M}\n"
    assert load_config(write(tmp_path / "merge.yaml", shared)).tags == {"dataset": "v3", "model": "340M"}
    both = "x: &x {a: 1}\nmonitor_config: {tags: *x, bridge: {collect_specified_data: *x}}\n"
    config = load_config(write(tmp_path / "shared.yaml", both), overrides=["tags.a=2"])
    assert (config.tags, config.bridge) == ({"a": 2}, {"collect_specified_data": {"a": 1}})
    lists = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    merges = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
    chain = "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 2000))
    for text, words in ((lists, "100,000 values"), (merges, "100,000 values"), (chain, "50 levels")):
        assert words in problem_of(write(tmp_path / "bomb.yaml", text))


def test_encodings(tmp_path: Path) -> None:
    text = "monitor_config:\n  project: 训练一\n"
    for number, encoding in enumerate(("utf-8", "utf-8-sig", "utf-16")):
        path = tmp_path / f"{number}.yaml"
        path.write_bytes(text.encode(encoding))
        assert load_config(path).project == "训练一"
    (tmp_path / "gbk.yaml").write_bytes(text.encode("gbk"))
    assert "gbk.yaml, line 2: byte 0xc1 is not UTF-8" in problem_of(tmp_path / "gbk.yaml")
    (tmp_path / "half.yaml").write_bytes(text.encode("utf-16")[:-1])
    assert "is not UTF-16" in problem_of(tmp_path / "half.yaml")


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "No such file" in problem_of(tmp_path / "none.yaml")
    assert "is a directory" in problem_of(tmp_path)
    assert "is a device or a pipe" in problem_of("/dev/zero")
    assert "cannot be the name of a file" in problem_of("a\0b")
    assert "cannot be the path of a file" in problem_of("monitor_config:\n  csv: true")
    assert "larger than 256 KiB" in problem_of(write(tmp_path / "large.yaml", "#" * ((256 << 10) + 1)))
    for wrong in (None, 3, ["a"], b"a.yaml"):
        assert problem_of(wrong)


# ---------------------------------------------------------------- extends and overrides


def test_extends_lays_the_file_over_its_base(tmp_path: Path) -> None:
    write(
        tmp_path / "shared" / "base.yaml",
        "monitor_config:\n  extends: ../root.yaml\n  metrics: [loss, lr]\n  tags: {a: 1, b: 2}\n"
        "  callback: {params: {warn_on_value: {loss: 5, grad_norm: 7}}}\n",
    )
    write(tmp_path / "root.yaml", "{interval: 5, csv: true, project: root}")
    path = write(
        tmp_path / "train.yaml",
        "monitor_config:\n  extends: shared/base.yaml\n  metrics: [step]\n  tags: {b: 3}\n  csv: ~\n"
        "  callback: {params: {warn_on_value: {loss: {above: 9}}}}\n",
    )
    config = load_config(path)
    assert (config.interval, config.project, config.csv) == (5.0, "root", False)
    assert config.tags == {"a": 1, "b": 3}
    assert [metric.name for metric in config.metrics] == ["step", "loss", "grad_norm"]
    assert config.callback.warn_on_value == {"loss": Bounds(above=9.0), "grad_norm": Bounds(above=7.0)}
    assert "extends" not in config.raw
    beside = write(tmp_path / "beside.yaml", "extends: train.yaml\nmonitor_config: true\nmodel: 3\n")
    assert content(load_config(beside)) == content(config)
    assert not load_config(write(tmp_path / "off.yaml", "extends: train.yaml\nmonitor_config: false\n")).enable


def test_problems_of_a_base_say_where(tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", "csv: true\ncsv: true\ntags:\n  a: [1]\n")
    path = write(tmp_path / "train.yaml", "monitor_config:\n  extends: base.yaml\n")
    assert problems_of(path) == [
        f"{base}, line 2: the key 'csv' is given twice, first in line 1",
        f"$.monitor_config.tags.a: must be a text, a number or a boolean, got [1] ({base}, line 4)",
    ]
    assert "No such file" in problem_of({"extends": "none.yaml"})
    assert "$.extends: must be text, got 3" in problem_of({"extends": 3})
    assert "control character" in problem_of({"extends": "a\0b"})
    both = problems_of({"extends": str(base), "monitor_config": {"extends": "none.yaml"}})
    assert both[0].startswith("$.extends: is given here and in monitor_config")


def test_extends_in_a_circle(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "extends: b.yaml")
    write(tmp_path / "b.yaml", "extends: ./a.yaml")
    assert "leads back to ./a.yaml" in problem_of(tmp_path / "a.yaml")
    for number in range(20):
        write(tmp_path / f"{number}.yaml", f"extends: {number + 1}.yaml")
    write(tmp_path / "20.yaml", "csv: true")
    assert "more than 16 files" in problem_of(tmp_path / "0.yaml")


def test_overrides(tmp_path: Path) -> None:
    path = write(tmp_path / "train.yaml", SECTION_TEXT)
    overrides = [
        "interval=1e-1",
        "monitor_config.metrics=[lr]",
        "tags.seed=3",
        "callback.params.warn_on_value={loss: 9}",
        "csv=yes",
        "run_id=a=b",
        "bridge.collect_specified_data.collect_graph=false",
        "project=",
    ]
    config = load_config(path, overrides=overrides)
    assert (config.interval, config.csv, config.run_id, config.project) == (0.1, True, "a=b", "default")
    assert [metric.name for metric in config.metrics] == ["lr", "loss"]
    assert config.tags == {"dataset": "v3", "model": "340M", "seed": 3}
    assert config.bridge == {"collect_specified_data": {"collect_graph": False}}
    assert config.raw["interval"] == 0.1
    assert load_config(False, overrides=["enable=true"]).enable
    assert not load_config(True, overrides=["enable=false"]).enable


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("interval", "must be a path and a value"),
        ("=3", "must be a path and a value"),
        ("a..b=3", "must be a path and a value"),
        ("interval.a=3", "$.interval is 30, which has no keys"),
        ("interval=[", "--set interval=[, line 1"),
        ("interval=soon", "(--set interval=soon)"),
        ("intervall=3", "did you mean 'interval'?"),
    ],
)
def test_wrong_overrides(override: str, words: str) -> None:
    assert words in problem_of({"interval": 30}, overrides=[override])


# ---------------------------------------------------------------- MindFormers


THEIRS = {"runner_config": {"epochs": 1}, "callbacks": [{"type": "MFLossMonitor"}]}


def test_entry_of_mindformers() -> None:
    entry = {"type": "MindSporeTransformersMonitor", "interval": 5, "warn_on_value": {"loss": "1e2"}}
    config = load_config(
        {**THEIRS, "callbacks": [{"type": "MFLossMonitor"}, entry], "monitor_config": {"invert": True}}
    )
    assert config.interval == 5.0
    assert config.callback.warn_on_value == {"loss": Bounds(above=100.0)}
    nested = {**entry, "config": {"interval": 7}}
    assert [problem.partition(":")[0] for problem in problems_of({"callbacks": [nested]})] == [
        "$.callbacks[0].interval",
        "$.callbacks[0].warn_on_value",
    ]
    assert load_config({"callbacks": [{"type": entry["type"], "config": {"interval": 7}}]}).interval == 7.0
    wrong = {"callbacks": [{**entry, "intervall": 1}, {"type": "SummaryBridgeMonitor", "colect_freq": 1}]}
    assert [problem.partition(":")[0] for problem in problems_of(wrong)] == [
        "$.callbacks[1].colect_freq",
        "$.callbacks[0].intervall",
    ]
    assert "is a second MindSporeTransformersMonitor" in problem_of({"callbacks": [entry, entry]})


def test_our_keys_in_the_closed_section_of_mindformers() -> None:
    """They would end the training there; the lines to write in their place are told, and are right."""
    ours = {"interval": 30, "metrics": ["loss", "lr"], "tags": {"名": "值"}}
    params = {"warn_on_value": {"loss": 5.0}}
    section = {"monitor_on": True, **ours, "callback": {"params": params}, "step_intervl": 2}
    typo, problem = problems_of({**THEIRS, "monitor_config": section})
    assert typo.startswith("$.monitor_config.step_intervl: neither MindFormers nor the monitor has a key")
    assert "did you mean 'step_interval'?" in typo
    first, _, lines = problem.partition("\n")
    assert first.startswith("$.monitor_config: ")
    assert "interval, metrics, tags, callback" in first
    entry = yaml.safe_load(lines)["callbacks"][0]
    assert entry == {"type": "MindSporeTransformersMonitor", **ours, **params}
    assert load_config({**THEIRS, **yaml.safe_load(lines)}).interval == 30.0
    assert "without the monitor" in problem_of(THEIRS)


# ---------------------------------------------------------------- the schema for editors


VALID: list[Any] = [
    True,
    False,
    {},
    yaml.safe_load(SECTION_TEXT)["monitor_config"],
    {"interval": 0, "backend": ["local", "wandb"], "run_id": 3, "save_dir": "a"},
    {"backend": ["prometheus", "swanlab", "mlflow", "trackio"], "prometheus_dir": "/var/lib/node_exporter"},
    {"interval": "auto", "extends": "base.yaml", "metrics": [{"name": "lr"}, {"loss": {"from_step": 1}}, "step"]},
    {"warn_on_value": {"lr": {"above": 1}, "loss": 3, "mfu": None}, "per_print_step": 1, "peak_flops": 1e15},
    {"callback": {"type": "a.b:C", "params": {"anything": 1, "log_level": "debug"}}, "csv": None},
    {"callback": None, "extends": None, "metrics": [{"name": "lr", "to_step": None}], "tags": {"a": None}},
    {"callback": {"type": None, "params": None}, "warn_on_value": {"loss": {"above": 1, "below": None}}},
    {"bridge": {"collect_freq": 3}, "tags": {"a": 1.5, "b": True, "c": "d"}},
]
INVALID: list[Any] = [
    3,
    {"intervall": 3},
    {"interval": "soon"},
    {"interval": -1},
    {"csv": "true"},
    {"backend": "tensorbord"},
    {"backend": "prometheus_client"},
    {"prometheus_dir": 3},
    {"backend": ["local", "local"]},
    {"metrics": "loss"},
    {"metrics": ["los"]},
    {"metrics": [{"name": "loss", "form_step": 1}]},
    {"metrics": [{"loss": {"from_step": -1}}]},
    {"warn_on_value": {"los": 1}},
    {"warn_on_value": {"lr": 1}},
    {"warn_on_value": {"loss": "high"}},
    {"warn_on_value": {"loss": {}}},
    {"warn_on_value": {"loss": {"abve": 1}}},
    {"seq_length": 0},
    {"seq_length": 1.5},
    {"peak_flops": 0},
    {"project": "a/b"},
    {"project": ""},
    {"tags": {"a": []}},
    {"bridge": {"collect_frq": 1}},
    {"callback": {"type": "a b"}},
    {"callback": {"params": {"csv": True}}},
    {"callback": {"type": None, "params": {"csv": True}}},
    {"intervall": None},
    {"callback": {"parms": {}}},
    {"callback": {"params": {"log_level": "LOUD"}}},
    {"extends": ""},
]


@pytest.mark.parametrize("section", VALID)
def test_schema_takes_what_the_check_takes(section: Any, tmp_path: Path) -> None:
    write(tmp_path / "base.yaml", "csv: true")
    if isinstance(section, dict) and section.get("extends"):
        load_config({**section, "extends": str(tmp_path / "base.yaml")})
    else:
        load_config(section)
    assert is_valid(section, build_section_schema())
    assert is_valid({"model": 3, "monitor_config": section}, build_schema())


@pytest.mark.parametrize("section", INVALID)
def test_schema_refuses_what_the_check_refuses(section: Any) -> None:
    assert problems_of({"monitor_config": section})
    assert not is_valid(section, build_section_schema())
    assert not is_valid({"monitor_config": section}, build_schema())


def test_schema_explains_every_key() -> None:
    section = build_section_schema()["anyOf"][1]["properties"]
    assert section.keys() == SECTION.keys() | PARAMS.keys() | {"callback", "extends"}
    assert all(schema["description"] for schema in section.values())
    defaults = {name: schema["default"] for name, schema in section.items() if "default" in schema}
    assert defaults["interval"] == "auto"
    named = tuple(msgspec.structs.replace(alert, is_default=False) for alert in MonitorConfig().alerts)
    assert content(load_config(defaults)) == content(MonitorConfig(alerts=named))


def test_a_rule_is_by_default_until_it_is_named() -> None:
    alerts = load_config({"alerts": ["overload", {"rule": "spike", "factor": 20}]}).alerts
    assert {alert.rule for alert in alerts if not alert.is_default} == {"overload", "spike"}
    assert all(alert.is_default for section in ({}, {"alerts": True}) for alert in load_config(section).alerts)
    assert any("is_default" in line for line in problems_of({"alerts": [{"rule": "spike", "is_default": True}]}))


@pytest.mark.parametrize("name", ["docs/config.md", "docs/config.zh.md"])
def test_table_of_keys_is_that_of_the_structs(name: str) -> None:
    rows = [row for table in tables((ROOT / name).read_text(encoding="utf-8")) for row in table]
    first = next(number for number, row in enumerate(rows) if row[0] == "`enable`")
    fields = {**SECTION, **PARAMS}
    wanted = []
    for key, field in fields.items():
        default = "" if field.default in (None, {}) else f"`{say_flow(field.default)}`"
        wanted.append([f"`{key}`", default, *([field.meaning] if name == "docs/config.md" else [])])
    assert [row[: len(wanted[0])] for row in rows[first : first + len(fields)]] == wanted


def test_arguments_of_the_bridge_are_its_own() -> None:
    tree = ast.parse((ROOT / "ms_summary_bridge" / "callback" / "bridge.py").read_text(encoding="utf-8"))
    (bridge,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SummaryBridge")
    (init,) = (node for node in bridge.body if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    assert tuple(argument.arg for argument in [*init.args.args[1:], *init.args.kwonlyargs]) == get_args(BridgeArgument)


# ---------------------------------------------------------------- anything at all


WORDS = st.sampled_from(
    [*SECTION, *PARAMS, "callback", "params", "type", "extends", "monitor_config", "callbacks", "above", "from_step"]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([*METRICS, "local", "auto", "1e5", "1:30", "MindSporeTransformersMonitor"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(WORDS | st.sampled_from(list(METRICS)) | st.text(max_size=4), inner, max_size=5)
        | st.dictionaries(SCALARS, inner, max_size=3)
    ),
    max_leaves=20,
)


def load_or_refuse(source: Any, overrides: list[str] | None = None) -> None:
    try:
        config = load_config(source, overrides=overrides or [])
    except ConfigError as error:
        refused = error.problems
    else:
        refused = ["nothing"]
        assert content(load_config(config.raw)) == content(config), "what is stored with a run configures the same"
    assert refused
    assert all(problem.strip() for problem in refused)


@given(st.dictionaries(WORDS, VALUES, max_size=6) | VALUES.filter(lambda value: not isinstance(value, str)))
def test_any_dict_is_taken_or_refused(source: Any) -> None:
    load_or_refuse(source)


@given(st.dictionaries(WORDS, SCALARS | VALUES, max_size=4), st.lists(st.text(max_size=20), max_size=2))
def test_any_override_is_taken_or_refused(source: Any, overrides: list[str]) -> None:
    load_or_refuse(source, overrides)


@given(data=st.binary(max_size=200) | st.text(st.characters(codec="utf-8"), max_size=200).map(str.encode))
def test_any_bytes_are_taken_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)
    load_or_refuse(path)


@given(seed=st.integers(0, 1 << 32))
def test_a_broken_file_is_taken_or_refused(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """The section with some of its characters replaced by others that mean something in YAML."""
    chance = random.Random(seed)
    text = list(SECTION_TEXT)
    for _ in range(chance.randrange(1, 6)):
        text[chance.randrange(len(text))] = chance.choice(" \t\n:-[]{},&*!|>'\"%@`#?<=.~0e\0é")
    path = tmp_path_factory.getbasetemp() / "broken.yaml"
    path.write_bytes("".join(text).encode())
    load_or_refuse(path)
