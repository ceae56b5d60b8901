"""The code of articles that watch over a training, keep its best checkpoint and evaluate it, with our monitor.

The trainings are in tests/bridge_scripts/articles.py; docs/articles.md says what to write where one does not run.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.bridge_scripts.runs import Scenarios, boards, run_scenarios, series
from tests.monitor_run import strict_lines

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    names = ["best_checkpoint", "evaluation", "evaluation_by_hand", "nonfinite_evaluation"]
    return run_scenarios(tmp_path_factory.mktemp("article"), names, of="articles.py")


def test_a_keyword_that_checkpoint_config_drops_is_named_with_what_to_write(scenarios: Scenarios) -> None:
    found = scenarios.returned("best_checkpoint")
    best, typo = scenarios.log("best_checkpoint")
    assert best.startswith("CheckpointConfig(save_best_ckpt=True) in ")
    assert "articles.py, line " in best
    assert 'SaveBestCheckpoint("loss", directory="./checkpoint_dir")' in best
    assert "save_best_ckpt: true" in best
    assert typo.endswith("drops it: write save_checkpoint_steps")
    assert len(found["stock"]) == 3, "the newest ones, and no best among them"
    assert any("best" in name or name.endswith(".json") for name in found["best"])
    assert sum(name.endswith(".ckpt") for name in found["best"]) == 2
    assert found["wrong"].startswith("TypeError"), "MindSpore's own refusals come through"
    assert found["name"] == "__init__"


def evaluations(directory: Path) -> list[dict[str, object]]:
    return [line for line in strict_lines(directory) if line["kind"] == "evaluation"]


def test_metrics_of_each_epoch_are_on_the_console_and_in_the_journals(scenarios: Scenarios) -> None:
    run = scenarios.directory("evaluation") / "default" / "run"
    log = scenarios.log("evaluation")
    for directory in (run / "rank_0", run):
        found = evaluations(directory)
        assert [(line["epoch"], line["step"]) for line in found] == [(1, 4), (2, 8), (3, 12)]
        assert all(line["metrics"].keys() == {"mae", "eval_loss"} for line in found)  # type: ignore[attr-defined]
    said = [place for place, line in enumerate(log) if line.startswith("evaluation after epoch ")]
    assert [log[place] for place in said] == [line["text"] for line in found]
    assert [log[place - 1].partition(",")[0] for place in said[1:]] == ["epoch 2/3 step: 4/4", "epoch 3/3 step: 4/4"]
    assert all(line in (run / "rank_0" / "monitor.log").read_text() for line in log)


def test_an_evaluation_that_a_script_calls_is_told_where_it_is_given_the_callbacks(scenarios: Scenarios) -> None:
    base, numbers = scenarios.directory("evaluation_by_hand"), scenarios.returned("evaluation_by_hand")
    run = base / "handed" / "default" / "run"
    assert [line["metrics"] for line in evaluations(run)] == [{"mae": number} for number in numbers["handed"]]
    assert [line["step"] for line in evaluations(run)] == [4, 8]
    assert any(line.startswith("evaluation after step 4: mae: ") for line in scenarios.log("evaluation_by_hand"))
    shown = series(boards(run / "summary"), "eval/mae")
    assert (shown.steps, shown.numbers) == ([4, 8], pytest.approx(numbers["handed"]))
    assert evaluations(base / "alone" / "default" / "run") == [], "MindSpore tells nobody of that one"


def test_metrics_that_json_has_not_are_null_and_those_of_classes_have_names(scenarios: Scenarios) -> None:
    (line,) = evaluations(scenarios.directory("nonfinite_evaluation") / "default" / "run" / "rank_0")
    metrics = line["metrics"]
    assert isinstance(metrics, dict)
    assert metrics.pop("eval_loss") > 0
    assert metrics == {"nan": None, "recall/0": 0.25, "recall/1": 0.5}
    assert line["nonfinite"] == {"nan": "nan"}


def test_there_is_no_mindspore_transformers() -> None:
    assert importlib.util.find_spec("mindspore") is not None
    assert importlib.util.find_spec("mindspore.transformers") is None
