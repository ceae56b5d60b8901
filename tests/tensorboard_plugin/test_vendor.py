"""What the page ships of others is what was published, and all that the page is made of is in the package."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ms_summary_bridge.tensorboard_plugin.page_files import content_type_of, page_files

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "ms_summary_bridge" / "tensorboard_plugin" / "static"


def check(root: Path) -> tuple[int, str]:
    command = [sys.executable, str(root / "tools" / "vendor"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for directory in (STATIC / "vendor", Path(__file__).with_name("vendor")):
        shutil.copytree(directory, tmp_path / directory.relative_to(ROOT))
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "vendor", tmp_path / "tools")
    return tmp_path


def test_vendored_files_are_those_that_were_published() -> None:
    assert check(ROOT) == (0, "uplot, axe-core: as they were fetched\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda vendor: (vendor / "uplot.js").write_bytes(b"//"), "not the files of uplot"),
        (lambda vendor: (vendor / "uplot.LICENSE").unlink(), "uplot.LICENSE: is missing"),
        (lambda vendor: (vendor / "more.js").touch(), "more.js: is not of uplot"),
        (lambda vendor: (vendor / "vendor.json").write_text("{}"), "not the files of uplot"),
    ],
    ids=["changed", "missing", "more", "record"],
)
def test_what_is_not_as_it_was_published_is_named(copied: Path, change: object, said: str) -> None:
    assert callable(change)
    assert check(copied)[0] == 0
    change(copied / (STATIC / "vendor").relative_to(ROOT))
    code, output = check(copied)
    assert code == 1
    assert said in output


def test_every_module_that_is_imported_is_served_and_shipped() -> None:
    served = page_files()
    assert {
        "/index.js",
        "/style.css",
        "/vendor/uplot.js",
        "/vendor/uplot.css",
        "/vendor/uplot.LICENSE",
    } <= served.keys()
    assert not [name for name in served if name.endswith(".d.ts")], "types are for us alone"
    for path in STATIC.glob("*.js"):
        for name in re.findall(r'(?:from |import\()"\./([^"]+\.js)"', path.read_text(encoding="utf-8")):
            assert f"/{name}" in served, f"{path.name} imports {name}"
    modules = {name for name in served if name.endswith(".js")} - {"/index.js"}
    listed = re.search(r"const MODULES = \[(.*?)\]", (STATIC / "index.js").read_text(encoding="utf-8"), re.DOTALL)
    assert listed is not None
    assert {f"/{name}.js" for name in re.findall(r'"([^"]+)"', listed[1])} == modules, "each is asked for at once"
    assert {content_type_of(path) for path in served.values()} == {"text/javascript", "text/css", "text/plain"}
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    for pattern in ("static/*.js", "static/*.css", "static/vendor/*"):
        assert f'"tensorboard_plugin/{pattern}"' in setup


def test_nothing_of_the_page_comes_from_elsewhere() -> None:
    for path in STATIC.glob("*.[jc]s*"):
        text = path.read_text(encoding="utf-8")
        addresses = {address for address in re.findall(r"https?://[^\s\"'`)]+", text) if "www.w3.org" not in address}
        assert addresses == set(), path
        assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(", text), path
        assert len(text.splitlines()) <= 320, f"{path.name}: a file has one job"
