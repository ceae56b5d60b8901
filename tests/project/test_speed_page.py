"""docs/speed.md says what was measured: its table and its chart are made of docs/images/speed.json."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/speed.md", "docs/speed.zh.md")
MEASURED = ROOT / "docs" / "images" / "speed.json"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The table and the chart that tools/bench makes of the numbers that are kept."""
    for package in ("PIL", "tensorboardX"):
        pytest.importorskip(package)
    chart = tmp_path_factory.mktemp("chart") / "speed.svg"
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "bench", "convert", "--from", MEASURED, "--markdown", "--chart", chart],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (0, 1), done.stderr  # 1: a target is missed, and the table says so
    return done.stdout.strip(), chart.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_the_table_is_what_was_measured(page: str, drawn: tuple[str, str]) -> None:
    # The names of the cases, not the headings, are the same in both languages.
    assert drawn[0].splitlines()[2:] == re.findall(r"(?m)^\| .* \|$", read(page))[1 : len(drawn[0].splitlines()) - 1]


def test_the_chart_is_what_was_measured(drawn: tuple[str, str]) -> None:
    assert read("docs/images/speed.svg") == drawn[1]


def test_both_languages_have_the_same_numbers_and_code() -> None:
    english, chinese = map(read, PAGES)
    code = re.compile(r"```.*?```|`[^`\n]+`", re.DOTALL)
    assert sorted(code.findall(english)) == sorted(code.findall(chinese))
    assert sorted(re.findall(r"\d[\d.,]*\d|\d", english)) == sorted(re.findall(r"\d[\d.,]*\d|\d", chinese))
    assert english.count("\n#") == chinese.count("\n#")


def test_what_is_missed_is_told() -> None:
    if ", missed" in read(PAGES[0]):
        assert "## Where a target is not reached" in read(PAGES[0])
