"""The code of articles that record summaries runs with our callback, or docs/articles.md says what to write.

The trainings are in tests/bridge_scripts/articles.py.
"""

from __future__ import annotations

import pytest

from ms_summary_bridge.convert.verify import verify_logdirs
from tests.bridge_scripts.runs import Scenarios, boards, milestones, run_scenarios, series, summaries
from tests.monitor_run import strict_lines, values_of

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    return run_scenarios(tmp_path_factory.mktemp("article"), ["tutorial", "by_hand", "sink"], of="articles.py")


def test_the_tutorials_call_runs_here_and_ends_in_mindspores_own(scenarios: Scenarios) -> None:
    directory = scenarios.directory("tutorial") / "bridge"
    assert "TypeError: SummaryCollector.__init__() got an unexpected keyword" in scenarios.returned("tutorial")
    assert scenarios.log("tutorial") == []
    for part in (summaries(directory), boards(directory)):
        for tag in ("loss/auto", "lr", "dense.weight/auto", "dense.bias/auto"):
            assert series(part, tag).steps == list(range(1, 9)), tag
    assert {tag for _, tag, _ in milestones(directory)} >= {"milestones/training", "milestones/epoch"}
    assert verify_logdirs(str(directory), str(directory)).is_equal


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


def test_data_sink_mode_is_recorded(scenarios: Scenarios) -> None:
    run = scenarios.directory("sink") / "default" / "run"
    losses = values_of([line for line in strict_lines(run / "rank_0") if line["kind"] == "sample"], "loss")
    assert list(losses)[-1] == 8
    for part in (summaries(run / "summary"), boards(run / "summary")):
        assert series(part, "loss/auto").steps[-1] == 8
