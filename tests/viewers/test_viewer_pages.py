"""What a person sees: pages of both viewers, drawn by a headless Chromium and kept in test-artifacts/."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.parse
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from PIL import Image as Pillow

from ms_summary_bridge.convert.logdir import convert_logdir
from tests.conftest import MindInsightServer, TensorBoardServer
from tests.formats.test_dataset_graph import golden, payload
from tests.formats.test_dataset_graph import write_run as write_dataset_run
from tests.formats.test_landscape import write_run as write_landscape_run
from tests.viewers.test_mindinsight_shows import write_showcase

ARTIFACTS = Path(__file__).resolve().parents[2] / "test-artifacts"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="NO PAGE IS LOOKED AT: Chromium is not installed (apt-get install chromium, as root)"
)


class Photograph(Protocol):
    """Draws a page and returns the path of the picture: `photograph(url, "name")`."""

    def __call__(self, url: str, name: str, *, has_webgl: bool = False, seconds: int = 20) -> Path:
        """Gives the page so many seconds of a clock that runs as fast as the machine can."""


@pytest.fixture
def photograph(tmp_path: Path) -> Photograph:
    def photograph(url: str, name: str, *, has_webgl: bool = False, seconds: int = 20) -> Path:
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        path.unlink(missing_ok=True)
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-quic", "--no-first-run"]
        command += ["--use-angle=swiftshader", "--enable-unsafe-swiftshader"] if has_webgl else ["--disable-gpu"]
        command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        command += ["--hide-scrollbars", "--window-size=1400,1000", f"--user-data-dir={tmp_path / 'profile'}"]
        command += [f"--virtual-time-budget={seconds * 1000}", f"--screenshot={path}", url]
        done = subprocess.run(
            command,
            env={**os.environ, "HOME": str(tmp_path)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert path.exists(), done.stderr[-2000:]
        return path

    return photograph


def assert_drawn(path: Path, *, colours: int) -> None:
    """Checks that a page is not blank, and that there is more on it than frames and text."""
    with Pillow.open(path) as picture:
        assert picture.size == (1400, 1000)
        found = picture.convert("RGB").getcolors(1 << 20)
    assert found is not None
    assert len(found) >= colours, f"{path}: {len(found)} colours"
    assert max(count for count, _ in found) < 0.97 * 1400 * 1000, f"{path} is one colour"


def count_coloured(path: Path) -> int:
    """Returns how many pixels below the head of a page are neither grey nor nearly so."""
    with Pillow.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB"), np.int16)[100:]
    return int((np.ptp(pixels, axis=2) > 60).sum())


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("pages")
    write_showcase(top / "tb" / "run")
    convert_logdir(str(top / "tb"), str(top / "ms"))
    convert_logdir(str(top / "ms"), str(top / "back"))
    return top


def test_pages_of_mindinsight(converted: Path, mindinsight_server: MindInsightServer, photograph: Photograph) -> None:
    client = mindinsight_server(converted / "ms")
    client.wait_job("./run")
    client.wait_lineages("./run")
    run = urllib.parse.urlencode({"train_id": "./run", "id": "./run"})
    for page in ("scalar", "histogram", "image", "tensor"):
        path = photograph(f"{client.url}/#/train-manage/{page}?{run}", f"mindinsight-{page}")
        assert_drawn(path, colours=2000 if page == "image" else 100)
    assert_drawn(photograph(f"{client.url}/#/model-traceback", "mindinsight-lineage"), colours=100)


@pytest.mark.tensorboard
def test_pages_of_tensorboard(converted: Path, tensorboard_server: TensorBoardServer, photograph: Photograph) -> None:
    client = tensorboard_server(converted / "back")
    client.wait_json("data/plugin/scalars/tags", lambda runs: "loss" in runs.get("run", {}))
    for page in ("scalars", "histograms", "images"):
        path = photograph(f"{client.url}/?darkMode=false#{page}", f"tensorboard-{page}")
        assert_drawn(path, colours=2000 if page == "images" else 100)


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
    landscapes: Path, tensorboard_server: TensorBoardServer, photograph: Photograph
) -> None:
    client = tensorboard_server(landscapes / "tb")
    client.wait_json("data/plugin/mesh/tags", lambda runs: len(runs.get("run", {})) == 2)
    address = f"{client.url}/?darkMode=false"
    assert count_coloured(photograph(f"{address}#mesh", "tensorboard-mesh", has_webgl=True)) > 20_000
    assert count_coloured(photograph(f"{address}#images", "tensorboard-contour")) > 50_000
    client.wait_json("data/plugin/text/tags", lambda runs: {"zip", "concat"} <= runs.keys())
    assert_drawn(photograph(f"{address}#text", "tensorboard-dataset"), colours=100)


def test_mindinsight_draws_landscape_and_data_set(
    landscapes: Path, mindinsight_server: MindInsightServer, photograph: Photograph
) -> None:
    client = mindinsight_server(landscapes / "back")
    client.wait_job("./run")
    client.wait_lineages("./zip", "./concat")
    query = {name: urllib.parse.urlencode({"train_id": f"./{name}", "id": f"./{name}"}) for name in ("run", "zip")}
    page = f"{client.url}/#/train-manage"
    surface = photograph(f"{page}/loss-analysis?{query['run']}", "mindinsight-landscape", has_webgl=True)
    assert count_coloured(surface) > 40_000
    # A worker lays the graph out in real time, while the browser's virtual time runs ahead of it on a busy machine.
    drawn = 0
    for _ in range(5):
        graph = photograph(f"{page}/data-map?{query['zip']}", "mindinsight-dataset", seconds=90)
        drawn = count_coloured(graph)
        if drawn > 20_000:  # the legend alone has a tenth of it
            break
    assert drawn > 20_000
    lineage = photograph(f"{client.url}/#/data-traceback", "mindinsight-dataset-lineage")
    assert_drawn(lineage, colours=100)
