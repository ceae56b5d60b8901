"""Every link of a Markdown file to a file, a picture or a heading of this project leads there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", ".github/**/*.md")
    for path in ROOT.glob(pattern)
)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)")
ADDRESS = re.compile(r"(?:https?|mailto):\S+")


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(path: Path) -> set[str]:
    """Returns the names of the headings of a page, as GitHub and the site make them."""
    headings = re.findall(
        r"^#+ +(.+?)(?: *\{#([\w-]+)\})? *$", fenceless(path.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {given or re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title, given in headings}


def fenceless(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def lost_links(path: Path) -> Iterator[str]:
    """Yields the links of a page that lead nowhere."""
    for link in LINK.findall(without_code(path.read_text(encoding="utf-8"))):
        if ADDRESS.fullmatch(link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: no such heading"


@pytest.mark.parametrize("name", FILES)
def test_every_link_leads_somewhere(name: str) -> None:
    assert [*lost_links(ROOT / name)] == []


def test_the_check_can_fail(tmp_path: Path) -> None:
    page = tmp_path / "a.md"
    page.write_text(
        "# One\n\n## The `file`, 表格: two\n\n[a](b.md) [b](a.md#one) [c](#the-file-表格-two) ![d](no.png)\n\n"
        "[e](a.md#two) [f](https://example.org/x) `[g](no)`\n\n```\n# Code\n[h](no)\n```\n[i](#code)\n",
        encoding="utf-8",
    )
    assert [*lost_links(page)] == [
        "b.md: no such file",
        "no.png: no such file",
        "a.md#two: no such heading",
        "#code: no such heading",
    ]
    assert len(FILES) > 60
