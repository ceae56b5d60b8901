"""Sessions as both viewers show them: TensorBoard's HParams table and MindInsight's model lineage, and their pages."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.convert.task import ConvertOptions
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from tests.conftest import MindInsightServer, TensorBoardServer
from tests.convert.test_to_mindinsight import put_log
from tests.convert.test_to_mindinsight import scalars as board_scalars
from tests.formats.test_lineage import (
    END_TAG,
    START_TAG,
    hparams_record,
    put_lineage,
    train_event,
    user_event,
    write_run,
)
from tests.mindspore_run import START, event, histogram, scalar, tensor, write_summary
from tests.pages import count_colours, open_page, photograph
from tools.tensorboard_api import TensorBoardClient

if TYPE_CHECKING:
    from playwright.sync_api import Page

STATUSES = [f"STATUS_{name}" for name in ("UNKNOWN", "SUCCESS", "FAILURE", "RUNNING")]


def write_runs(top: Path) -> None:
    """Writes three trainings that differ, each in a directory of its own."""
    for number in range(3):
        write_run(top / f"trial_{number}", number)


def ask(client: TensorBoardClient, path: str) -> Any:
    request = {"startIndex": 0, "sliceSize": 100, "allowedStatuses": STATUSES, "colParams": [], "includeMetrics": True}
    return client.get_json(f"data/plugin/hparams/{path}", request=json.dumps(request))


def table(client: TensorBoardClient, rows: int) -> dict[str, dict[str, Any]]:
    """Returns the rows of the HParams table by their runs: columns of hyperparameters and metrics, and the status."""
    answer = client.wait(
        lambda: ask(client, "session_groups"), lambda found: len(found.get("sessionGroups", ())) == rows, "the table"
    )
    found = {}
    for group in answer["sessionGroups"]:
        (session,) = group["sessions"]
        metrics = {metric["name"]["tag"]: metric["value"] for metric in session["metricValues"]}
        found[group["name"]] = {**group["hparams"], **metrics, "status": session["status"]}
    return found


@pytest.mark.tensorboard
@pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
def test_tags_of_the_users_own_in_the_places_of_a_session(
    tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool
) -> None:
    values = ((START_TAG, scalar(1.5)), (END_TAG, scalar(2.5)), ("train/loss", histogram([1, 2])))
    pipeline = ms_pb.LineageEvent(wall_time=START + 0.5)
    pipeline.dataset_graph.parameter.mapStr["op_type"] = "Batch"
    write_summary(tmp_path / "ms" / "run", [event(step, *values, ("dataset_graph", tensor([1, 2]))) for step in (1, 2)])
    put_lineage(tmp_path / "ms" / "run", pipeline.SerializeToString(), train_event())
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    client = tensorboard_server(tmp_path / "tb", load_fast=load_fast)
    row = table(client, 1)["run"]
    assert (row["optimizer"], row["train/loss/metric"], row["status"]) == ("Adam", 0.125, "STATUS_SUCCESS")
    for tag, number in ((START_TAG, 1.5), (END_TAG, 2.5)):
        points = client.get_json("data/plugin/scalars/scalars", run="run", tag=f"{tag}/scalar")
        assert [point[1:] for point in points] == [[1, number], [2, number]]
    for tag, steps in (("dataset_graph", [1, 2]), ("dataset_graph/pipeline", [0])):
        texts = client.get_json("data/plugin/text/text", run="run", tag=tag)
        assert [text["step"] for text in texts] == steps


@pytest.mark.tensorboard
@pytest.mark.parametrize("load_fast", [True, False], ids=["fast", "slow"])
def test_three_trainings_are_three_rows(tmp_path: Path, tensorboard_server: TensorBoardServer, load_fast: bool) -> None:
    write_runs(tmp_path / "ms")
    put_lineage(tmp_path / "ms" / "begun", user_event({"trial": 9}))
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    client = tensorboard_server(tmp_path / "tb", load_fast=load_fast)
    rows = table(client, 4)
    assert rows.keys() == {"trial_0", "trial_1", "trial_2", "begun"}
    assert rows["begun"] == {"trial": 9.0, "status": "STATUS_UNKNOWN"}
    assert rows["trial_2"] == {
        "trial": 2.0, "kind": "c", "deep": False,
        "optimizer": "Lamb", "learning_rate": 0.01, "loss_function": "MSELoss",
        "epoch": 3.0, "batch_size": 32.0, "parallel_mode": "stand_alone", "device_num": 1.0, "network": "Net",
        "train_dataset_path": "/data/train", "train_dataset_size": 640.0, "valid_dataset_size": 64.0,
        "model_path": "/out/net.ckpt", "model_size": 123456.0,
        "eval/acc": pytest.approx(0.7), "train/loss": 2.5, "loss/auto": 5.0, "status": "STATUS_SUCCESS",
    }  # fmt: skip
    assert [rows[f"trial_{n}"]["learning_rate"] for n in range(3)] == [1.0, 0.1, 0.01]
    experiment = client.get_json("data/plugin/hparams/experiment", request=json.dumps({"includeMetrics": True}))
    types = {info["name"]: info["type"] for info in experiment["hparamInfos"]}
    assert types["optimizer"] == "DATA_TYPE_STRING"
    assert types["learning_rate"] == "DATA_TYPE_FLOAT64"
    assert types["deep"] == "DATA_TYPE_BOOL"
    metrics = {info["name"]["tag"] for info in experiment["metricInfos"]}
    assert metrics == {"eval/acc", "train/loss", "loss/auto"}


# The texts of a page one after the other; the page's parts are in shadow trees.
TEXTS = """() => {
  const inside = root => [...root.querySelectorAll('*')].flatMap(each => [
    ...(each.childElementCount || each.matches('style, script, template') ? [] : [each.textContent.trim()]),
    ...(each.shadowRoot ? inside(each.shadowRoot) : [])]);
  return inside(document).filter(Boolean);
}"""


def wait_for_texts(page: Page, texts: list[str]) -> None:
    """Waits until the page shows these texts one after the other."""
    wanted = json.dumps(texts, separators=(",", ":"))[1:-1]
    page.wait_for_function(f"wanted => JSON.stringify(({TEXTS})()).includes(wanted)", arg=wanted)


@pytest.mark.tensorboard
def test_page_of_tensorboard(tmp_path: Path, tensorboard_server: TensorBoardServer, page: Page) -> None:
    write_runs(tmp_path / "ms")
    convert_logdir(str(tmp_path / "ms"), str(tmp_path / "tb"))
    client = tensorboard_server(tmp_path / "tb")
    table(client, 3)
    columns = ["deep", "kind", "learning_rate", "optimizer", "trial", "eval/acc", "loss/auto", "train/loss"]
    differing = ["Trial ID", "Show Metrics", *columns]
    differing += ["trial_0", "false", "a", "1.0000", "SGD", "0.0000", "0.50000", "3.0000", "0.50000"]
    differing += ["trial_1", "true", "b", "0.10000", "Adam", "1.0000", "0.60000", "4.0000", "1.5000"]
    differing += ["trial_2", "false", "c", "0.010000", "Lamb", "2.0000", "0.70000", "5.0000", "2.5000"]
    page.goto(f"{client.url}/?darkMode=false#hparams")
    wait_for_texts(page, differing)
    # The batch size is the same in all of them, so TensorBoard gives it a column only when it is asked to.
    page.locator("paper-checkbox", has_text=re.compile(r"^\s*batch_size\s*$")).click()
    wait_for_texts(page, ["32.000", "32.000", "32.000", "batch_size"])  # a column that comes later is the last
    photograph(page, "tensorboard-hparams", count_colours, 50)


def write_boards(top: Path) -> None:
    """Writes TensorBoard runs with hyperparameters: three that ended, one of them badly, and one of nothing else."""

    def start(number: int) -> Any:
        def fill(data: Any) -> None:
            hparams = data.session_start_info.hparams
            hparams["lr"].number_value = 0.1**number
            hparams["optimizer"].string_value = ("sgd", "adam", "lamb")[number]
            hparams["nesterov"].bool_value = number == 1
            hparams["layers"].number_value = 2 + number

        return fill

    def end(number: int) -> Any:
        def fill(data: Any) -> None:
            name = "STATUS_FAILURE" if number == 2 else "STATUS_SUCCESS"
            data.session_end_info.status = tb_pb.hparams.Status.Value(name)

        return fill

    for number in range(3):
        records = [hparams_record(START_TAG, start(number)), *board_scalars("accuracy", [number, number + 1])]
        put_log(top / f"trial_{number}", [*records, hparams_record(END_TAG, end(number))])
    put_log(top / "bare", [hparams_record(START_TAG, start(1))])


@pytest.mark.mindinsight
def test_sessions_are_listed_by_mindinsight(
    tmp_path: Path,
    mindinsight_server: MindInsightServer,
) -> None:
    write_boards(tmp_path / "tb")
    convert_logdir(str(tmp_path / "tb"), str(tmp_path / "ms"))
    # Lineage that went to TensorBoard and came back from the table alone, beside them.
    write_runs(tmp_path / "source")
    options = ConvertOptions(keep_archive=False)
    convert_logdir(str(tmp_path / "source"), str(tmp_path / "there"), options=options)
    convert_logdir(str(tmp_path / "there"), str(tmp_path / "ms2"), options=options)
    for run in sorted((tmp_path / "ms2").glob("trial_*")):
        run.rename(tmp_path / "ms" / f"back_{run.name}")
    names = [f"./trial_{number}" for number in range(3)] + [f"./back_trial_{number}" for number in range(3)]
    client = mindinsight_server(tmp_path / "ms")
    rows = client.wait_lineages(*names, "./bare")
    assert rows["./trial_1"]["user_defined"] == {
        "lr": 0.1, "optimizer": "adam", "nesterov": "true", "layers": 3, "status": "success"
    }  # fmt: skip
    assert rows["./trial_2"]["user_defined"]["status"] == "failure"
    assert rows["./trial_2"]["metric"] == {"accuracy": 3.0}
    assert rows["./bare"]["user_defined"]["optimizer"] == "adam"
    back = rows["./back_trial_1"]
    assert back["user_defined"] == {"trial": 1, "kind": "b", "deep": "true"}
    assert back["metric"] == {"acc": 0.6}
    assert (back["optimizer"], back["loss_function"], back["epoch"], back["batch_size"]) == ("Adam", "MSELoss", 3, 32)
    assert back["learning_rate"] == pytest.approx(0.1)
    assert (back["network"], back["loss"], back["model_size"]) == ("Net", 1.5, 123456)
    assert (back["train_dataset_count"], back["test_dataset_count"]) == (640, 64)
    if sys.version_info < (3, 12):  # on 3.12 there is no pandas that this part of MindInsight works with
        targets = {target["name"]: target for target in client.post_json("optimizer/targets/search", {})["targets"]}
        assert {0.5, 0.6, 0.7} <= set(targets["[M]acc"]["data"])
    with open_page() as page:  # last, since it skips what follows where there is no browser
        page.goto(f"{client.url}/#/model-traceback")
        photograph(page, "mindinsight-sessions", count_colours, 100)
