"""What a person sees: pages of both viewers, drawn by a headless Chromium and kept in test-artifacts/."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image as Pillow

from ms_summary_bridge.convert import convert_logdir
from tests.conftest import MindInsightServer, TensorBoardServer
from tests.test_mindinsight_shows import write_showcase

ARTIFACTS = Path(__file__).resolve().parent.parent / "test-artifacts"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="NO PAGE IS LOOKED AT: Chromium is not installed (apt-get install chromium, as root)"
)

Photograph = Callable[[str, str], Path]


@pytest.fixture
def photograph(tmp_path: Path) -> Photograph:
    """Draws a page and returns the path of the picture: `photograph(url, "name")`."""

    def photograph(url: str, name: str) -> Path:
        ARTIFACTS.mkdir(exist_ok=True)
        path = ARTIFACTS / f"{name}.png"
        path.unlink(missing_ok=True)
        command = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        command += ["--hide-scrollbars", "--window-size=1400,1000", f"--user-data-dir={tmp_path / 'profile'}"]
        command += ["--virtual-time-budget=20000", f"--screenshot={path}", url]
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
