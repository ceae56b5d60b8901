"""GradientSummary in real trainings of many cells: gradients without scale and before clipping, or a refusal by name.

All trainings are in one process, tests/train_gradient_cells.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ms_summary_bridge.events import Summary
from ms_summary_bridge.values import Histogram
from tests.bridge_scripts.runs import boards, events, output_of, script, series, summaries
from tests.conftest import TESTS

pytestmark = pytest.mark.mindspore

NORM = "gradient/global_norm"
PARAMETERS = ["hidden.weight", "hidden.bias", "out.weight", "out.bias"]
MODES = ["graph", "pynative"]
CELLS = [
    *("plain", "fixed scale", "returns gradients", "loss scale", "pre-training", "fine-tuning", "tracking"),
    *("tracking scaled", "no reducer", "branches", "ordered groups", "value_and_grad", "loss scaler", "inner"),
    *("mixed precision", "losses", "own losses", "outer"),
]
TRAINED = [f"{mode} {name}" for mode in MODES for name in CELLS]
GOES_ON = "gradients cannot be recorded, training goes on without: "

IN_FIRST_STEP = {
    "own losses": f"OwnSens.grad: {GOES_ON}there is more than one number in the sens, which need not be the same: say "
    "by what the gradients are scaled with loss_scale=, a number or the cell's parameter for it",
    "no sens": f"NoReducer.grad: {GOES_ON}the optimizer divides by 1024 what was not scaled by a sens: say by what the "
    "gradients are scaled with loss_scale=",
    "elsewhere": f"{GOES_ON}Elsewhere took them elsewhere than by Elsewhere.grad",
    "other shapes": f"Given.grad: {GOES_ON}the gradients do not have the shapes of the optimizer's parameters, in "
    "their order",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("gradient_cells")
    with script(str(TESTS / "train_gradient_cells.py"), str(base), cwd=base) as process:
        code = process.wait(500)
    assert code == 0, output_of(base)
    return base


@pytest.fixture(scope="module")
def result(base: Path) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((base / "result.json").read_text())
    assert sorted(answer["trained"]) == sorted(TRAINED)
    return answer


def histograms(path: Path) -> dict[tuple[str, int], Histogram]:
    """Returns the histograms of gradients by parameter and step."""
    return {
        (tagged.tag.removeprefix("gradient/"), event.step): tagged.value
        for event in events(path)
        for tagged in (event.content.values if isinstance(event.content, Summary) else ())
        if tagged.tag.startswith("gradient/") and isinstance(tagged.value, Histogram)
    }


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_recorded_is_the_gradient_of_the_network(base: Path, result: dict[str, Any], name: str) -> None:
    answer = result["trained"][name]
    expected = {int(step): values for step, values in answer["gradients"].items()}
    assert list(expected) == [1, 2, 3]
    for paths in (summaries(base / name), boards(base / name)):
        norms = series(paths, NORM)
        assert norms.steps == [1, 2, 3]
        assert norms.numbers == pytest.approx([expected[step]["norm"][0] for step in expected], rel=1e-6)
        found = {place: each for path in paths for place, each in histograms(path).items()}
        assert sorted(found) == sorted((parameter, step) for parameter in PARAMETERS for step in expected)
        for (parameter, step), histogram in found.items():
            assert [histogram.min, histogram.max] == pytest.approx(expected[step][parameter], rel=1e-6)
    assert answer["log"] == []


@pytest.mark.parametrize("name", TRAINED)
def test_it_trains_exactly_as_the_cell_alone(result: dict[str, Any], name: str) -> None:
    answer = result["trained"][name]
    assert len(set(answer["plain"])) == 3
    assert answer["losses"] == answer["plain"]


def test_a_cell_whose_gradients_cannot_be_known_is_refused_with_what_to_write(result: dict[str, Any]) -> None:
    refused = {name: words.removeprefix("GradientSummary: ") for name, words in result["refused"].items()}
    more = (
        "construct may take gradients more than once in a step, and none of them is the gradient of the step: "
        "take them once, of the whole batch"
    )
    scaled = (
        "takes the gradients of a function, which may scale the loss: say by what with loss_scale=, 1 where it does not"
    )
    assert refused.pop("function").endswith(
        "is not a cell: give a network that returns the loss, and an optimizer, "
        "or a cell whose construct trains one step"
    )
    assert refused == {
        "local": "Local.construct takes its gradients by none of the cell's attributes: write "
        "`self.grad = ops.GradOperation(get_by_list=True)` in __init__ and "
        "`self.grad(self.network, self.optimizer.parameters)(*inputs)` in construct",
        "loop": f"Loop.{more}",
        "twice": f"Twice.{more}",
        "method": f"Method.grad {scaled}",
        "scaler": f"Scaler.grad_fn {scaled}",
        "other order": "OtherOrder.grad takes the gradients of other parameters than the optimizer has, or in another "
        "order: give it `optimizer.parameters`",
        "names": "Names.grad_fn returns names beside its gradients: leave return_ids out",
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", IN_FIRST_STEP)
def test_what_shows_in_the_first_step_is_said_once_and_nothing_wrong_is_recorded(
    base: Path, result: dict[str, Any], mode: str, name: str
) -> None:
    assert result["in first step"][f"{mode} {name}"] == [f"GradientSummary: {IN_FIRST_STEP[name]}"]
    directory = base / f"{mode} refused {name}"
    paths = [*summaries(directory), *boards(directory)]
    tags = {
        tagged.tag
        for path in paths
        for event in events(path)
        for tagged in (event.content.values if isinstance(event.content, Summary) else ())
    }
    assert "loss/auto" in tags
    assert not any(tag.startswith("gradient/") for tag in tags)
