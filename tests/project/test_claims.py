"""What the documents claim is tested: claims.txt names the tests of each sentence.

claims.txt has a section for each page, `== PAGE`. In it a line gives the first words of a sentence or of a row of a
table, and the lines below, set in, name the tests that fail when it is untrue: a file below tests/ and names without
`test_`. A line set in that begins with `-` says why none can. The heading of a table stands for all of its rows that
are not listed. `== PAGE: FILE` is a page that the tests of a file compare as a whole. A sentence that moves to another
page takes its lines along.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = ROOT / "tests" / "project" / "claims.txt"


class Claim(NamedTuple):
    """A sentence, or a row of a table with its heading."""

    text: str
    heading: str = ""


def blocks(page: str) -> list[str]:
    """Returns the paragraphs, items of lists and rows of tables of a page, with the dashes behind a table's heading."""
    text = re.sub(r"^```.*?^```$", "\n", page, flags=re.MULTILINE | re.DOTALL)
    found = (block.strip() for block in re.split(r"\n\s*\n|\n(?=[-*] )|(?<=\|)\n", text))
    return [block for block in found if block and not block.startswith(("#", "![", "<!--"))]


def split_claims(page: str) -> list[Claim]:
    claims: list[Claim] = []
    heading = ""
    for block, after in pairwise([*blocks(page), ""]):
        if not block.startswith("|"):
            text = " ".join(block.removeprefix("- ").split())
            claims += [Claim(sentence) for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`\[])", text)]
        elif is_rule(after):
            heading = block
        elif not is_rule(block):
            claims.append(Claim(block, heading))
    return claims


def is_rule(row: str) -> bool:
    return row.startswith("|") and not set(row) - set("|-: ")


def read_sections(text: str) -> tuple[dict[str, dict[str, list[str]]], dict[str, list[str]]]:
    """Returns for each page the lines below each entry, and the tests of pages that are compared as a whole."""
    sections: dict[str, dict[str, list[str]]] = {}
    whole: dict[str, list[str]] = {}
    entries: dict[str, list[str]] = {}
    words = ""
    for line in filter(str.strip, text.splitlines()):
        if line.startswith("== "):
            page, _, tests = line.removeprefix("== ").partition(": ")
            if tests:
                whole[page] = [tests]
            else:
                entries = sections.setdefault(page, {})
        elif line.startswith(" "):
            entries[words].append(line.strip())
        else:
            words = line.strip()
            assert words not in entries, f"twice: {words}"
            entries[words] = []
    return sections, whole


SECTIONS, WHOLE = read_sections(CLAIMS.read_text(encoding="utf-8"))


def find_faults(claims: list[Claim], entries: dict[str, list[str]]) -> list[str]:
    """Returns the claims without an entry of their own or of their table, and the entries without a claim."""
    faults, used = [], set()
    for claim in claims:
        matches = [words for words in entries if claim.text.startswith(words)]
        if not matches and claim.heading in entries:
            matches = [claim.heading]
        if len(matches) != 1:
            faults.append(f"{len(matches)} entries: {claim.text}")
        used.update(matches, [claim.heading])
    faults += [f"stands for nothing: {words}" for words in entries.keys() - used]
    return faults + [f"neither a test nor a reason: {words}" for words, lines in entries.items() if not lines]


def named_tests(lines: list[str]) -> list[tuple[str, str]]:
    pairs = [line.split() for line in lines if not line.startswith("-")]
    return [(path, name) for path, *names in pairs for name in names or [""]]


@cache
def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    functions = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {name.removeprefix("test_") for name in functions if name.startswith("test_")}


def test_every_page_has_a_section() -> None:
    docs = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    pages = {"README.md", *(page for page in docs if not page.endswith(".zh.md"))}
    assert pages == SECTIONS.keys() | WHOLE.keys()


@pytest.mark.parametrize("page", SECTIONS)
def test_every_sentence_has_its_entry(page: str) -> None:
    claims = split_claims((ROOT / page).read_text(encoding="utf-8"))
    assert find_faults(claims, SECTIONS[page]) == [], f"see the first lines of {Path(__file__).name}"


def test_every_test_that_is_named_is_there() -> None:
    lines = [line for entries in SECTIONS.values() for lines in entries.values() for line in lines]
    named = named_tests(lines + [line for tests in WHOLE.values() for line in tests])
    assert len(named) > 200
    gone = [f"{path} {name}" for path, name in named if not (ROOT / "tests" / path).is_file()]
    assert gone == [], "no such file"
    assert [f"{path} {name}" for path, name in named if name not in names_in(path) and name] == []


# ---------------------------------------------------------------- the checks can fail

PAGE = """# One

It counts. It goes
on `at 1.5`.

| a | b |
|---|---|
| x | 1 |
| y | 2 |

- An item.
"""


def test_the_checks_can_fail() -> None:
    claims = split_claims(PAGE)
    assert [claim.text for claim in claims] == [
        "It counts.",
        "It goes on `at 1.5`.",
        "| x | 1 |",
        "| y | 2 |",
        "An item.",
    ]
    entries = {"It counts": ["a.py b"], "It goes": ["- why"], "| a | b |": ["a.py c"], "An item": ["a.py d"]}
    assert find_faults(claims, entries) == []
    assert find_faults(claims, {**entries, "| x": ["a.py e"]}) == []
    assert find_faults([*claims, Claim("New.")], entries) == ["0 entries: New."]
    assert find_faults(claims, {**entries, "Gone": ["a.py"]}) == ["stands for nothing: Gone"]
    assert find_faults(claims, {**entries, "It": ["a.py"]})[0] == "2 entries: It counts."
    assert find_faults(claims, {**entries, "An item": []}) == ["neither a test nor a reason: An item"]
    sections, whole = read_sections("== b.md: d.py\n== a.md\nIt counts\n  a.py b c\n  - why\n")
    assert sections == {"a.md": {"It counts": ["a.py b c", "- why"]}}
    assert whole == {"b.md": ["d.py"]}
    assert named_tests(["a.py b c", "- why"]) == [("a.py", "b"), ("a.py", "c")]
