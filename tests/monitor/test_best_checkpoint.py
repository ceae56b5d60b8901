"""SaveBestCheckpoint in real trainings: when it saves, what it calls the best, and how a training goes on from it.

All trainings are in one process, tests/train_checkpoints.py, because importing mindspore takes longer than any of them.
What a kill leaves is in tests/monitor/test_checkpoint_files.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.bridge_scripts.runs import milestones, output_of, script
from tests.conftest import TESTS
from tests.monitor_run import strict_lines

pytestmark = pytest.mark.mindspore

STATE = "checkpoints.json"
LOCK = ".in_use"


def files(*steps: int) -> list[str]:
    return sorted([*{f"checkpoint_step_{step}.ckpt" for step in steps}, STATE, LOCK])


def mean(losses: list[float]) -> Any:
    return pytest.approx(float(np.mean(losses)), rel=1e-6)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("checkpoints")
    with script(str(TESTS / "train_checkpoints.py"), str(base), cwd=base) as process:
        code = process.wait(280)
    assert code == 0, output_of(base)
    return base


@pytest.fixture(scope="module")
def result(base: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((base / "result.json").read_text())
    return answer


def test_the_mean_loss_since_the_last_checkpoint_decides(result: dict[str, Any]) -> None:
    answer = result["steps_and_restart"]
    losses, first = answer["losses"], answer["first"]
    means = {step: float(np.mean(losses[step - 3 : step])) for step in (3, 6, 9, 12)}
    best = min(means, key=means.__getitem__)
    assert first["best"][0] == best
    assert first["best"][2] == mean(losses[best - 3 : best])
    assert first["last"] == [12, 2, mean(losses[9:12])]
    assert first["files"] == files(9, 12)
    assert answer["log"] == []


def test_a_checkpoint_holds_the_weights_and_the_optimizers_state(result: dict[str, Any]) -> None:
    answer = result["steps_and_restart"]
    assert (answer["loaded step"], answer["best step"]) == (12, 12)
    after = answer["weights"]["12"]
    # Two moments, the rate, the powers and the count of steps: all that Adam has, and the weights, in any order.
    assert sorted(answer["loaded"]) == pytest.approx(sorted(after), rel=1e-6)
    assert set(np.float32(answer["best weight"])) < set(np.float32(after))
    # So that the same data gives another loss than at the beginning; the training has gone on.
    assert answer["second losses"][0] < answer["losses"][0]


def test_a_training_that_begins_again_goes_on_counting_and_comparing(result: dict[str, Any]) -> None:
    answer = result["steps_and_restart"]
    losses, second = answer["second losses"], answer["second"]
    first_best = answer["first"]["best"]
    means = {12: first_best[2], 15: np.mean(losses[:3]), 18: np.mean(losses[3:6])}
    best = min(means, key=means.__getitem__)
    assert second["best"][0] == best
    assert second["best"][2] == pytest.approx(float(means[best]), rel=1e-6)
    assert second["last"] == [20, 1, None]  # the end of the training: too few steps to compare
    assert second["files"] == files(best, 18, 20)


def test_a_metric_of_an_evaluation_decides(result: dict[str, Any], base: Path) -> None:
    answer = result["fit"]
    accuracies, inside, after = answer["accuracies"], answer["inside"], answer["after"]
    *of_epochs, behind = accuracies
    best = int(np.argmax(of_epochs))
    assert inside["best"] == [*((8, 1), (40, 5))[best], accuracies[best]]
    # The first evaluation is the best so far, epochs 2 and 4 are those of save_epochs, and at 40 the training ends.
    assert inside["files"] == files(8, 16, 32, 40)
    assert behind > max(of_epochs)  # else this would prove nothing
    assert after["best"] == [40, 5, behind]
    assert answer["is same"]  # the weights were saved already
    assert after["files"] == inside["files"]
    told = [(step, text) for step, tag, text in milestones(base / "fit_summary") if tag == "milestones/best"]
    assert (8, f"best eval/accuracy so far {accuracies[0]:.6g}, at step 8") in told
    saved = [text for _, tag, text in milestones(base / "fit_summary") if tag == "milestones/checkpoint"]
    assert f"checkpoint saved: {base / 'fit' / 'checkpoint_step_8.ckpt'}" in saved


def test_a_loss_that_is_no_number_is_never_the_best_and_never_saved(result: dict[str, Any]) -> None:
    answer = result["no_number"]
    assert answer["best"][0] == answer["last"][0] == 4  # step 2 has a NaN before it, 6 and 8 are none themselves
    assert answer["files"] == files(2, 4)
    assert answer["log"] == ["SaveBestCheckpoint: the loss is inf at step 6: nothing is saved while that lasts"]


def test_a_full_disk_is_said_once_and_costs_only_what_it_must(result: dict[str, Any]) -> None:
    answer = result["full_disk"]
    assert answer["losses"] == 8
    assert answer["last"][0] == 8
    assert answer["files"] == files(answer["best"][0], 8)
    (line,) = answer["log"]
    assert line.startswith(
        "SaveBestCheckpoint: no checkpoint could be saved at step 3, those before are kept: WriteError("
    )


def test_a_directory_that_cannot_be_made_is_said_once_and_the_training_goes_on(result: dict[str, Any]) -> None:
    answer = result["no_directory"]
    assert (answer["losses"], answer["last"], answer["saved"]) == (8, None, None)
    (line,) = answer["log"]
    assert line.startswith("SaveBestCheckpoint: no checkpoint is saved: BASE/no_directory/inside cannot be used: ")


def test_each_rank_has_a_directory(result: dict[str, Any], base: Path) -> None:
    answer = result["of_a_rank"]
    assert sorted(os.listdir(base / "of_a_rank")) == [LOCK, "rank_1"]
    assert [LOCK, *sorted(os.listdir(base / "of_a_rank" / "rank_1"))] == files(8)
    assert answer["loaded step"] == 8


def test_a_metric_that_is_not_there_is_said_with_those_that_are(result: dict[str, Any]) -> None:
    answer = result["unknown_metric"]
    assert (answer["best"], answer["last"]) == (None, [16, 2, None])
    assert answer["log"] == [
        "SaveBestCheckpoint: the evaluation has no metric 'f1' (it has accuracy, eval_loss): no best is chosen"
    ]


def test_of_a_metric_for_each_class_one_class_decides_and_never_their_mean(result: dict[str, Any]) -> None:
    answer = result["per_class"]
    one = answer["eval/recall/1"]
    recalls = [each[1] for each in one["recalls"]]
    assert one["best"] == [*((8, 1), (16, 2))[int(np.argmax(recalls))], max(recalls)]
    assert all(recall != np.mean(each) for recall, each in zip(recalls, one["recalls"], strict=True))
    assert answer["eval/recall"]["best"] is answer["eval/matrix"]["best"] is None
    there = "(it has eval_loss, recall/0, recall/1): no best is chosen"
    assert answer["log"] == [
        f"SaveBestCheckpoint: the metric 'recall' has a number for each class: give `eval/recall/<class>` {there}",
        f"SaveBestCheckpoint: the metric 'matrix' is not a number {there}",
    ]


def test_true_alone_keeps_the_best(result: dict[str, Any], base: Path) -> None:
    assert result["configured"]["classes"] == ["SummaryBridge", "SaveBestCheckpoint", "MindSporeTransformersMonitor"]
    (run,) = (path for path in (base / "configured" / "monitor_output" / "default").iterdir() if path.is_dir())
    assert sorted(os.listdir(run / "checkpoints")) == files(8, 16)
    lines = [line for line in strict_lines(run / "rank_0") if line["kind"] == "milestone" and "checkpoint" in line]
    assert [line["step"] for line in lines] == [8, 16]
    assert [line["is_best"] for line in lines] == [True, True]
    assert lines[1]["checkpoint"] == str(run / "checkpoints" / "checkpoint_step_16.ckpt")
    assert lines[1]["text"].startswith("checkpoint saved: ")


def test_the_keys_of_the_section_choose_when(result: dict[str, Any], base: Path) -> None:
    assert result["configured_keys"]["classes"] == ["SaveBestCheckpoint", "MindSporeTransformersMonitor"]
    directory = base / "configured_keys" / "default" / "run" / "checkpoints"
    assert sorted(os.listdir(directory)) == files(6, 8)  # of 3, 6 and 8; no best without save_best_ckpt


def test_what_has_no_meaning_or_is_not_there_is_said(result: dict[str, Any]) -> None:
    answer = result["refused"]
    assert answer["count"] == "SaveBestCheckpoint: keep_checkpoint_max is a positive number, got 0"
    assert answer["monitor"] == "SaveBestCheckpoint: monitor is `loss` or `eval/<metric>`, got 'accuracy'"
    assert answer["nothing"] == "BASE/nothing: no best checkpoint is saved there"
    assert "ckpt does not fit Dense: " in answer["other shape"]
    assert answer["other shape"].endswith(
        "Dense: weight is (2, 3) there and (5, 5) here, bias is (2,) there and (5,) here"
    )
    assert answer["other names"].endswith("SequentialCell: it has none of its 2 parameters: 0.weight, 0.bias")
    assert answer["one more"].endswith("Deeper: it does not have extra.weight, extra.bias")


def test_a_rerun_from_scratch_gets_a_best_of_its_own_and_says_what_stands_there(
    result: dict[str, Any], base: Path
) -> None:
    answer = result["rerun"]
    first, second, third = answer["first"], answer["second"], answer["third"]
    assert second["best"][2] > first["best"][2]  # worse settings
    assert answer["best"] == second["best"][2]
    assert second["last"][0] == 8  # steps count from 1 again
    assert answer["earlier"] == [first["best"][0], first["last"][0]]
    kept = {file for file in first["files"] if f"_{first['best'][0]}." in file or f"_{first['last'][0]}." in file}
    assert kept < set(second["files"])
    assert third["best"][0] <= 8
    assert {"checkpoints.earlier-1.json", "checkpoints.earlier-2.json", *kept} < set(third["files"])
    one, two = answer["log"]
    assert one.startswith("SaveBestCheckpoint: BASE/rerun has checkpoints of an earlier training (best: ")
    assert f"checkpoint_step_{first['best'][0]}.ckpt of 20" in one
    assert f"loss {first['best'][2]:.6g}; last: checkpoint_step_{first['last'][0]}.ckpt of 20" in one
    assert one.endswith("load_best and load_last take BASE/rerun/checkpoints.earlier-1.json")
    assert two.endswith("load_best and load_last take BASE/rerun/checkpoints.earlier-2.json")


@pytest.mark.parametrize(
    ("name", "begins_at"),
    [("ours", 8), ("weights alone", 4), ("initial epoch", 8), ("called twice", 8), ("another callback", 16)],
)
def test_a_training_that_goes_on_is_told_from_a_rerun(result: dict[str, Any], name: str, begins_at: int) -> None:
    answer = result["resumes"]
    steps = {"ours": 16, "weights alone": 16}.get(name, 8)
    assert answer[name]["last"][0] == begins_at + steps
    assert not any("earlier" in file for file in answer[name]["files"])
    assert answer["log"] == []


def test_two_models_trained_in_turn_get_a_directory_each(result: dict[str, Any], base: Path) -> None:
    answer = result["in_turn"]
    assert sorted(answer["directories"]) == [str(base / "in_turn"), str(base / "in_turn_2")]
    assert [each["last"][0] for each in answer["files"]] == [16, 24]
