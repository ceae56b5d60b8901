"""What a person sees: pages of both viewers, drawn by a headless Chromium and kept in test-artifacts/."""

from __future__ import annotations

import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ms_summary_bridge.convert.logdir import convert_logdir
from tests.conftest import MindInsightServer, TensorBoardServer
from tests.formats.test_dataset_graph import golden, payload
from tests.formats.test_dataset_graph import write_run as write_dataset_run
from tests.formats.test_landscape import write_run as write_landscape_run
from tests.pages import count_coloured, count_colours, main_colour, photograph, photograph_once
from tests.viewers.test_mindinsight_shows import write_showcase

if TYPE_CHECKING:
    from playwright.sync_api import Page


def test_an_empty_page_is_no_drawn_one(page: Page) -> None:
    empty = photograph_once(page, "empty")
    assert count_colours(empty) == count_coloured(empty) == 0
    assert main_colour(empty) == (255, 255, 255)
    with pytest.raises(AssertionError, match=r"empty\.png: count_colours is 0, and should be 100"):
        photograph(page, "empty", count_colours, 100, timeout_secs=0)
    page.set_content("<body style='background: linear-gradient(red, blue)'>")
    drawn = photograph(page, "empty", count_coloured, 800_000)
    assert count_colours(drawn) > 100
    drawn.unlink()


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("pages")
    write_showcase(top / "tb" / "run")
    convert_logdir(str(top / "tb"), str(top / "ms"))
    convert_logdir(str(top / "ms"), str(top / "back"))
    return top


def test_pages_of_mindinsight(converted: Path, mindinsight_server: MindInsightServer, page: Page) -> None:
    client = mindinsight_server(converted / "ms")
    client.wait_job("./run")
    client.wait_lineages("./run")
    run = urllib.parse.urlencode({"train_id": "./run", "id": "./run"})
    for name in ("scalar", "histogram", "image", "tensor"):
        page.goto(f"{client.url}/#/train-manage/{name}?{run}")
        photograph(page, f"mindinsight-{name}", count_colours, 2000 if name == "image" else 100)
    page.goto(f"{client.url}/#/model-traceback")
    photograph(page, "mindinsight-lineage", count_colours, 100)


@pytest.mark.tensorboard
def test_pages_of_tensorboard(converted: Path, tensorboard_server: TensorBoardServer, page: Page) -> None:
    client = tensorboard_server(converted / "back")
    client.wait_json("data/plugin/scalars/tags", lambda runs: "loss" in runs.get("run", {}))
    for name in ("scalars", "histograms", "images"):
        page.goto(f"{client.url}/?darkMode=false#{name}")
        photograph(page, f"tensorboard-{name}", count_colours, 2000 if name == "images" else 100)


@pytest.fixture(scope="module")
def landscapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with a loss landscape and a data set graph, converted and back."""
    top = tmp_path_factory.mktemp("landscapes")
    write_landscape_run(top / "ms" / "run")
    for name in ("zip", "concat"):
        write_dataset_run(top / "ms" / name, payload(golden(name)))
    convert_logdir(str(top / "ms"), str(top / "tb"))
    convert_logdir(str(top / "tb"), str(top / "back"))
    return top


@pytest.mark.tensorboard
def test_tensorboard_draws_landscape_and_pipeline(
    landscapes: Path, tensorboard_server: TensorBoardServer, page: Page
) -> None:
    client = tensorboard_server(landscapes / "tb")
    client.wait_json("data/plugin/mesh/tags", lambda runs: len(runs.get("run", {})) == 2)
    address = f"{client.url}/?darkMode=false"
    page.goto(f"{address}#mesh")
    photograph(page, "tensorboard-mesh", count_coloured, 20_000)
    page.goto(f"{address}#images")
    photograph(page, "tensorboard-contour", count_coloured, 50_000)
    client.wait_json("data/plugin/text/tags", lambda runs: {"zip", "concat"} <= runs.keys())
    page.goto(f"{address}#text")
    photograph(page, "tensorboard-dataset", count_colours, 100)


def test_mindinsight_draws_landscape_and_data_set(
    landscapes: Path, mindinsight_server: MindInsightServer, page: Page
) -> None:
    client = mindinsight_server(landscapes / "back")
    client.wait_job("./run")
    client.wait_lineages("./zip", "./concat")
    query = {name: urllib.parse.urlencode({"train_id": f"./{name}", "id": f"./{name}"}) for name in ("run", "zip")}
    address = f"{client.url}/#/train-manage"
    page.goto(f"{address}/loss-analysis?{query['run']}")
    photograph(page, "mindinsight-landscape", count_coloured, 40_000)
    page.goto(f"{address}/data-map?{query['zip']}")
    photograph(page, "mindinsight-dataset", count_coloured, 20_000)  # the legend alone has a tenth of it
    page.goto(f"{client.url}/#/data-traceback")
    photograph(page, "mindinsight-dataset-lineage", count_colours, 100)
