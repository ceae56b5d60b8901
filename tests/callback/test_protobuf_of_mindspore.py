"""A training on the protobuf that pip takes for MindSpore: up to 2.9 it cannot write two parts of the lineage.

tools/matrix runs this on every MindSpore, with the protobuf it was made for and with pip's choice.
"""

from __future__ import annotations

from importlib.metadata import version

import pytest

from ms_summary_bridge.convert.verify import verify_logdirs
from tests.bridge_scripts.runs import Scenarios, boards, events, run_scenarios, series, summaries

pytestmark = pytest.mark.mindspore


def is_too_new() -> bool:
    """Whether this MindSpore meets a protobuf that it was not made for."""
    mindspore = tuple(int(part) for part in version("mindspore").split(".")[:2])
    return mindspore < (2, 10) and int(version("protobuf").split(".")[0]) > 3


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    return run_scenarios(tmp_path_factory.mktemp("protobuf"), ["same", "stock"])


def test_all_but_two_parts_of_the_lineage_is_written_and_the_warnings_say_what_to_install(
    scenarios: Scenarios,
) -> None:
    directory = scenarios.directory("same")
    for part in (summaries(directory), boards(directory)):
        assert series(part, "loss/auto").steps == [1, 2, 4, 6, 8, 10]
    (lineage,) = directory.glob("*_lineage")
    kinds = {event.content.kind for event in events(lineage)} - {"file_version"}
    assert kinds == {"train_lineage"} | (set() if is_too_new() else {"dataset_graph", "user_defined_info"})
    said = [line for line in scenarios.log("same") if "cannot be collected" in line]
    assert [line.partition(" cannot")[0].rpartition(" ")[2] for line in said] == (
        ["dataset_graph", "custom_lineage_data"] if is_too_new() else []
    )
    cure = f"needs protobuf 3.20.3, and {version('protobuf')} is installed: pip install 'protobuf==3.20.3'"
    assert all(cure in line for line in said)
    assert verify_logdirs(str(directory), str(directory)).is_equal


def test_mindspores_own_collector_ends_the_training_there(scenarios: Scenarios) -> None:
    failed = scenarios.answers["stock"]["failed"]
    assert bool(failed) == is_too_new()
    assert ("object does not support item assignment" in (failed or "")) == is_too_new()
