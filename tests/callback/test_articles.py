"""The code that people find in articles: it runs with our callbacks, or docs/articles.md says what to write.

The trainings are in tests/bridge_scripts/articles.py.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ms_summary_bridge.convert.verify import verify_logdirs
from tests.bridge_scripts.runs import Scenarios, boards, milestones, run_scenarios, series, summaries
from tests.monitor_run import strict_lines, values_of

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    return run_scenarios(tmp_path_factory.mktemp("articles"), [], of="articles.py")


def test_the_tutorials_call_runs_here_and_ends_in_mindspores_own(scenarios: Scenarios) -> None:
    directory = scenarios.directory("tutorial") / "bridge"
    assert "TypeError: SummaryCollector.__init__() got an unexpected keyword" in scenarios.returned("tutorial")
    assert scenarios.log("tutorial") == []
    for part in (summaries(directory), boards(directory)):
        for tag in ("loss/auto", "lr", "dense.weight/auto", "dense.bias/auto"):
            assert series(part, tag).steps == list(range(1, 9)), tag
    assert {tag for _, tag, _ in milestones(directory)} >= {"milestones/training", "milestones/epoch"}
    assert verify_logdirs(str(directory), str(directory)).is_equal


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


def test_a_monitor_written_by_hand_runs_beside_the_bridge(scenarios: Scenarios) -> None:
    found = scenarios.returned("by_hand")
    for name, losses in (("train", found["old"]), ("fit", found["new"])):
        assert len(losses) == 8
        directory = scenarios.directory("by_hand") / name
        for part in (summaries(directory), boards(directory)):
            assert series(part, "loss/auto").numbers == losses, "to the last bit"
    assert found["epochs"] == [[1, 2], [1, 2]]


def test_fit_refuses_the_old_names_of_hooks(scenarios: Scenarios) -> None:
    assert "Use methods prefixed with 'on_train'" in scenarios.returned("by_hand")["refused"]


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


def test_data_sink_mode_is_recorded(scenarios: Scenarios) -> None:
    run = scenarios.directory("sink") / "default" / "run"
    losses = values_of([line for line in strict_lines(run / "rank_0") if line["kind"] == "sample"], "loss")
    assert list(losses)[-1] == 8
    for part in (summaries(run / "summary"), boards(run / "summary")):
        assert series(part, "loss/auto").steps[-1] == 8


def test_there_is_no_mindspore_transformers() -> None:
    assert importlib.util.find_spec("mindspore") is not None
    assert importlib.util.find_spec("mindspore.transformers") is None
