"""The site of docs/ is built without a warning, in both languages, and its reference is what the code says now."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ms_summary_bridge import __dir__ as public_names
from ms_summary_bridge.monitor.config.fields import PARAMS, SECTION
from ms_summary_bridge.monitor.model.metric_names import METRICS
from ms_summary_bridge.monitor.model.rule_keys import RULE_KEYS
from tests.project.test_docs import PAGES, ROOT, group

pytest.importorskip("mkdocs")
pytest.importorskip("mkdocs_static_i18n")
pytest.importorskip("mkdocstrings")

LIMIT = 60.0  # seconds of processor time


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    before = os.times()
    done = build(ROOT / "mkdocs.yml", directory)
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    assert after.children_user - before.children_user < LIMIT
    return directory


def page_text(path: Path) -> str:
    """Returns the words of a page, without its tags."""
    return html.unescape(re.sub(r"<[^>]+>", "", path.read_text(encoding="utf-8")))


def test_every_page_is_there_in_both_languages(site: Path) -> None:
    names = [page.removeprefix("docs/").removesuffix(".md") for page in PAGES]
    places = ["" if name == "index" else f"{name}/" for name in names]
    built = [site / language / place / "index.html" for place in places for language in ("", "zh")]
    assert [path for path in built if not path.is_file()] == []
    for path in built:
        language = "zh" if path.is_relative_to(site / "zh") else "en"
        assert f'<html lang="{language}"' in path.read_text(encoding="utf-8"), path
    titles = [(ROOT / page.replace(".md", ".zh.md")).read_text(encoding="utf-8").splitlines()[0] for page in PAGES]
    for place, title in zip(places, titles, strict=True):
        assert title.removeprefix("# ") in page_text(site / "zh" / place / "index.html")


@pytest.mark.parametrize("language", ["", "zh"])
def test_the_reference_is_made_from_the_code(site: Path, language: str) -> None:
    text = page_text(site / language / "reference" / "commands" / "index.html")
    commands = {**group().commands, **{f"config {k}": v for k, v in group().commands["config"].commands.items()}}
    wanted = [f"ms-summary-bridge {name}" for name in commands]
    wanted += [
        option
        for command in commands.values()
        for parameter in command.params
        if parameter.param_type_name == "option"
        for option in parameter.opts
    ]
    assert [word for word in wanted if word not in text] == []
    assert "from the code" not in text

    text = page_text(site / language / "reference" / "config" / "index.html")
    fields = [(name, field.meaning) for name, field in {**SECTION, **PARAMS}.items()]
    wanted = [word for pair in fields for word in pair] + [*METRICS, *RULE_KEYS]
    wanted += [name for keys in RULE_KEYS.values() for name in keys]
    assert [word for word in wanted if word not in text] == []

    text = page_text(site / language / "reference" / "api" / "index.html")
    names = [name for name in public_names() if not name.startswith("_")]
    assert len(names) > 30
    assert [name for name in names if not re.search(rf"\b{name}(_logdir)?\b", text)] == []


def test_a_link_to_nothing_and_a_page_that_nobody_finds_are_warnings(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# A\n\n[gone](gone.md) [no such heading](index.md#nothing)\n")
    (tmp_path / "docs" / "lost.md").write_text("# B\n")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    (validation,) = re.findall(r"^validation:\n(?:  .*\n)+", settings, re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(f"site_name: x\nnav: [index.md]\n{validation}")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode == 1
    assert done.stderr.count("WARNING") == 3, done.stderr
