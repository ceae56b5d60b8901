"""The manual has a page for each task, reached from its menu, and names the error texts that people look for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TASKS = {
    "first-run": ("pip install", "SummaryBridge"),
    "old-runs": ("MindInsight", "convert"),
    "to-mindinsight": ("TensorBoard", "--to mindinsight"),
    "mindformers": ("MindFormers", "MindSporeTransformersMonitor"),
    "many-ranks": ("rank", "aggregate"),
    "alarms": ("feishu", "dingtalk", "wecom", "slack"),
    "own-loop": ("Monitor(", "monitor.step("),
    "hang": ("hang.jsonl",),
    "numbers": ("pandas", "read_scalars", "parquet"),
    "notebooks": ("Jupyter", "VS Code", "ipykernel"),
    "clouds": ("ModelArts", "OBS", "Slurm"),
    "troubleshooting": ("ms-summary-bridge doctor",),
    "compatibility": ("<!-- from the code: matrix -->",),
    "reference/commands": ("<!-- from the code:",),
    "reference/api": ("<!-- from the code:",),
}
TEXTS = (
    "'aimv2' is already used by a Transformers config, pick another name",
    "Descriptors cannot be created directly",
    "No scalar data was found",
    "No dashboards are active for the current data set",
    "No module named 'pkg_resources'",
    "SummaryCollector.__init__() got an unexpected keyword argument 'collect_graph'",
    "The config 'monitor_config' gets an unexpected key",
    "No matching distribution found for mindspore",
)


def read(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("language", ["", ".zh"])
@pytest.mark.parametrize("page", TASKS)
def test_each_task_has_its_page_in_both_languages(page: str, language: str) -> None:
    text = read(f"{page}{language}.md")
    assert [words for words in TASKS[page] if words not in text] == []
    is_chinese = bool(re.search("[\u4e00-\u9fff]", text.partition("\n")[0] + text[-500:]))
    assert is_chinese == bool(language)
    assert re.search(rf"^ +- (?:[^\n]+: )?{page}\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("language", ["", ".zh"])
def test_the_error_texts_that_people_look_for_are_there_with_their_mend(language: str) -> None:
    rows = [line for line in read(f"troubleshooting{language}.md").splitlines() if line.startswith("| `")]
    for text in TEXTS:
        found = [row.strip("| ").split(" | ") for row in rows if text in row]
        assert len(found) == 1, text
        assert len(found[0]) == 4, text
        assert all(cell.strip() for cell in found[0]), text
