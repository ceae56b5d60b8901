"""docs/backends.md: its names are those of the code, and both languages have the same code, tables and headings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from ms_summary_bridge.monitor import load_config
from ms_summary_bridge.monitor.model.config import Backend
from ms_summary_bridge.monitor.model.metric_names import METRICS
from ms_summary_bridge.monitor.sinks.prometheus_file import MEASURED
from tests.project.test_docs import tables

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("backends.md", "backends.zh.md")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def code_in(text: str) -> list[str]:
    return re.findall(r"^```\w*\n.*?^```$", text, flags=re.MULTILINE | re.DOTALL)


def words_in(text: str) -> list[list[str]]:
    """Returns what stands between backticks in each paragraph that is no code, line by line."""
    plain = re.sub(r"^```\w*\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [sorted(re.findall(r"`[^`\n]+`", line)) for line in plain.splitlines() if line.strip()]


def test_both_languages_say_the_same() -> None:
    english, chinese = map(read, PAGES)
    assert code_in(english) == code_in(chinese)
    assert words_in(english) == words_in(chinese)
    assert [len(table) for table in tables(english)] == [len(table) for table in tables(chinese)]
    assert len(re.findall(r"^#+ ", english, re.MULTILINE)) == len(re.findall(r"^#+ ", chinese, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES)
def test_names_are_those_that_are_written(page: str) -> None:
    backends, metrics, *_ = (table[1:] for table in tables(read(page)))
    assert [name for row in backends for name in re.findall(r"`(\w+)`", row[0])] == list(get_args(Backend))
    told = {re.findall(r"`(\w+)`", row[0])[0]: re.findall(r"`(\w+)`", row[1])[0] for row in metrics}
    assert told == {name: MEASURED[name].name if name in MEASURED else "msb_step" for name in METRICS}


def test_the_example_is_right() -> None:
    section = yaml.safe_load(code_in(read(PAGES[0]))[0].strip("`").removeprefix("yaml"))
    assert load_config(section).backends == ("local", "tensorboard", "prometheus", "swanlab")
