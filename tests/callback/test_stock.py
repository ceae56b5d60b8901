"""What docs/callback.md says of MindSpore's SummaryCollector is what the installed MindSpore does."""

from __future__ import annotations

import pytest

from ms_summary_bridge.events import Summary
from ms_summary_bridge.values import Histogram
from tests.bridge_scripts.runs import Scenarios, boards, events, run_scenarios, series, summaries

pytestmark = pytest.mark.mindspore


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    return run_scenarios(
        tmp_path_factory.mktemp("stock"), ["default", "full_file", "sink", "parameters", "idle"], of="stock.py"
    )


def test_a_default_training_has_no_file_for_tensorboard_and_19_checkpoints(stock: Scenarios) -> None:
    directory = stock.directory("default")
    assert boards(directory) == []
    assert len(list((directory / "ckpt_dir").glob("*.ckpt"))) == 19


def test_a_full_file_ends_the_recording(stock: Scenarios) -> None:
    (path,) = summaries(stock.directory("full_file"))
    assert path.stat().st_size <= 3000
    steps = series([path], "loss/auto").steps
    assert steps == [*range(1, len(steps) + 1)]
    assert 1 < len(steps) < 60


def test_in_data_sink_mode_the_frequency_counts_epochs(stock: Scenarios) -> None:
    # Ten epochs of five steps: of every third epoch, and not of every third step.
    assert series(summaries(stock.directory("sink")), "loss/auto").steps == [5, 15, 30, 45]


def test_the_first_five_parameters_are_collected(stock: Scenarios) -> None:
    tags = {}
    for name in ("stock", "bridge"):
        (path,) = summaries(stock.directory("parameters") / name)
        values = (event.content.values for event in events(path) if isinstance(event.content, Summary))
        tags[name] = {tagged.tag for each in values for tagged in each if isinstance(tagged.value, Histogram)}
    assert tags["bridge"] == tags["stock"]
    assert len(tags["bridge"]) == 5


def test_writing_takes_many_processes_that_never_rest_and_here_one_that_does(stock: Scenarios) -> None:
    told = stock.returned("idle")
    assert told["stock"]["processes"] == 1 + min(told["cores"], 32)
    assert told["bridge"]["processes"] == 1
    assert told["bridge"]["secs"] < 0.03 < 0.1 < told["stock"]["secs"], "of one second in which nothing comes"
