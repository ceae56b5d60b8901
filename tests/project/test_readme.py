"""Every block of the README runs where the one before left off: one directory, one environment, from pip install on."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ms_summary_bridge.columns.read import read_scalars
from tools.tensorboard_api import stop_process

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("setuptools", "tensorboard", "mkdocs", "material", "mkdocs_static_i18n", "mkdocstrings")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the blocks need, to stand in."""
    checkout = tmp_path / "checkout"
    for name in ("docs", "examples", "ms_summary_bridge", "tools"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("README.md", "LICENSE", "setup.py", "pyproject.toml", "mkdocs.yml"):
        shutil.copy2(ROOT / name, checkout / name)
    return checkout


def make_environment(directory: Path) -> dict[str, str]:
    """Makes an environment that has the packages of this one but not this project; returns the variables for it.

    So `pip install` finds what the project asks for, and fetches nothing.
    """
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True)
    (site,) = (directory / "lib").glob("python3*/site-packages")
    here = Path(sys.prefix) / "lib" / site.parent.name / "site-packages"
    (site / "packages.pth").write_text(f"{here}\n")
    return {
        "PATH": f"{directory / 'bin'}:{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}",
        "HOME": str(directory),
        "PIP_NO_BUILD_ISOLATION": "0",  # the name says the contrary of what it does: no isolation
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "NO_MKDOCS_2_WARNING": "1",
    }


@pytest.mark.mindspore
@pytest.mark.tensorboard
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not all(map(importlib.util.find_spec, NEEDED)), reason="its environment lacks a package")
def test_blocks_run_in_their_order(checkout: Path, tmp_path: Path) -> None:
    assert (checkout / "examples" / "small_model.py").is_file()
    variables = make_environment(tmp_path / "environment")
    python, driver = tmp_path / "environment" / "bin" / "python", Path(__file__).with_name("run_page.py")
    with (tmp_path / "said.txt").open("wb") as said:
        process = subprocess.Popen(
            [str(python), str(driver), "README.md"],
            cwd=checkout,
            env=variables,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout=570)
        finally:
            stop_process(process)
    text = (tmp_path / "said.txt").read_text(errors="replace")
    assert code == 0, text[-6000:]
    assert re.search(r"Successfully installed ms[-_]summary[-_]bridge", text), text
    table = read_scalars(str(checkout / "summary_dir"))
    assert {"loss/auto", "lr"} <= set(table.tags)
    assert re.search(r"^graph +1 ", text, re.MULTILINE), "the graph that its first block asks for"
    assert list((checkout / "tensorboard_dir").glob("*tfevents*"))
    assert list((checkout / "mindinsight_dir").rglob("*_MS"))
    assert list((checkout / "monitor_output" / "small-model").glob("*/rank_0/metrics.jsonl"))
    assert list((checkout / "loop_dir").rglob("metrics.jsonl"))
    assert list((checkout / "numbers").glob("*.csv"))
    assert (checkout / "over_ranks" / "aggregate.json").is_file()
    assert (checkout / "site_dir" / "zh" / "index.html").is_file()
    # The line that it shows is one that is printed.
    (shown,) = re.findall(r"^```text\n(epoch .*)\n```$", (ROOT / "README.md").read_text(), re.MULTILINE)
    number = re.compile(r"[-0-9.]+(?:e-?\d+)?")
    assert number.sub("0", shown) in {number.sub("0", line) for line in text.splitlines()}, text[-6000:]
