"""Keys of the monitor that stand in MindFormers' own monitor_config are moved, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.errors import ConfigError
from ms_summary_bridge.monitor.config.file import load_config
from ms_summary_bridge.monitor.config.mindformers_fix import move_misplaced

TYPE = "MindSporeTransformersMonitor"
HEAD = "# mine\nseed: 0\nrunner_config:\n  epochs: 1   # one\n"
THEIRS = "monitor_config:\n  monitor_on: True  # theirs\n"
OURS = "  interval: 30\n  metrics:\n  - loss\n  - lr\n  callback:\n    params: {warn_on_value: {loss: 5.0e+1}}\n"
LIST = "callbacks:\n  - type: MFLossMonitor   # keep\n  - type: CheckpointMonitor\n    keep: {a: 1}\n"
ENTRY = {"type": TYPE, "interval": 30, "metrics": ["loss", "lr"], "warn_on_value": {"loss": 50.0}}

FILES = {
    "list_behind": HEAD + THEIRS + OURS + "\n# the list\n" + LIST,
    "list_before": HEAD + LIST + "\n# and now\n" + THEIRS + OURS,
    "theirs_behind": HEAD + LIST + "monitor_config:\n" + OURS + "\n  # theirs\n  step_interval: 2\nlast: 1\n",
    "nothing_left": HEAD + "monitor_config:\n" + OURS + LIST,
    "no_list": HEAD + THEIRS + OURS,
    "no_end_of_line": HEAD + LIST + THEIRS + OURS.rstrip("\n"),
    "list_without_indent": HEAD + THEIRS + OURS + "callbacks:\n- type: MFLossMonitor\nlast: 1\n",
    "many_lines": HEAD + LIST + THEIRS + OURS + '  project: >-\n    a\n    b\n  tags: {"x": "# no comment"}\nlast: 1\n',
}


@pytest.mark.parametrize("name", FILES)
def test_lines_are_moved_and_all_others_stay(name: str) -> None:
    text = FILES[name]
    fixed = move_misplaced(text, "train.yaml")
    assert fixed is not None
    assert fixed.keeps_comments
    before, after = yaml.safe_load(text), yaml.safe_load(fixed.text)
    entry = after["callbacks"].pop()
    assert {key: entry[key] for key in ENTRY} == ENTRY
    assert after["callbacks"] == before.pop("callbacks", [])
    del after["callbacks"]
    theirs = {
        key: value for key, value in before.pop("monitor_config").items() if key in ("monitor_on", "step_interval")
    }
    assert after.pop("monitor_config", {}) == theirs
    assert after == before
    comments = [line.partition("#")[2] for line in text.splitlines() if "# " in line and '"# ' not in line]
    assert all(comment in fixed.text for comment in comments)
    assert move_misplaced(fixed.text, "train.yaml") is None


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "monitor_config: {interval: 30, monitor_on: true}\n",
        HEAD + THEIRS + OURS + "callbacks: [{type: MFLossMonitor}]\n",
        HEAD + "monitor_config:\n  interval: &n 30\nother: *n\n",
        HEAD + THEIRS + OURS + "callbacks:\n",
        '{runner_config: {}, "monitor_config": {interval: 30}}\n',
    ],
    ids=["section_in_a_line", "list_in_a_line", "anchor", "no_list", "all_in_a_line"],
)
def test_what_shares_lines_is_written_anew(text: str) -> None:
    fixed = move_misplaced(text, "train.yaml")
    assert fixed is not None
    assert not fixed.keeps_comments
    before, after = yaml.safe_load(text), yaml.safe_load(fixed.text)
    assert after["callbacks"][-1]["interval"] == 30
    assert "interval" not in (after.get("monitor_config") or {})
    for key in before.keys() - {"callbacks", "monitor_config"}:
        assert after[key] == before[key]


@pytest.mark.parametrize(
    "text", ["monitor_config:\n  interval: 30\n", "", "- 1\n", HEAD + THEIRS, HEAD + "monitor_config: true\n"]
)
def test_where_nothing_is_misplaced_nothing_is_moved(text: str) -> None:
    assert move_misplaced(text, "train.yaml") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + THEIRS + OURS + f"callbacks:\n- type: {TYPE}\n", "has an entry MindSporeTransformersMonitor already"),
        (HEAD + THEIRS + OURS + "callbacks: 3\n", "must be a list"),
        (HEAD + THEIRS + OURS + "  interval: 3\n", "is given twice"),
        (HEAD + THEIRS + "  interval: [\n", "train.yaml, line"),
    ],
)
def test_what_a_person_must_decide_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        move_misplaced(text, "train.yaml")


def test_the_command_writes_a_new_file_and_checks_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, fixed = tmp_path / "train.yaml", tmp_path / "train.fixed.yaml"
    path.write_text(FILES["list_behind"])
    assert main(["config", "check", str(path)]) == 2
    assert "`config check --fix`" in capsys.readouterr().err
    assert main(["config", "check", "--fix", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"{fixed}: written, with the keys moved\n" in said
    assert f"{fixed}: right" in said
    assert path.read_text() == FILES["list_behind"]
    assert load_config(fixed).interval == 30.0
    assert main(["config", "check", "--fix", str(path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main(["config", "check", "--fix", str(fixed)]) == 0
    assert "nothing to move" in capsys.readouterr().out
    fixed.unlink()
    assert main(["config", "check", "--fix", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(fixed)


def test_what_is_wrong_beside_is_told_of_the_new_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(HEAD + THEIRS + "  interval: often\n")
    assert main(["config", "check", "--fix", str(path)]) == 2
    said = capsys.readouterr()
    assert "train.fixed.yaml: written" in said.out
    assert "$.callbacks[0].interval" in said.err
