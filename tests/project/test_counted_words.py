"""A message says "1 line" and "2 lines": a count stands before its noun by way of `errors.counted` alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from ms_summary_bridge.errors import counted

SOURCE = Path(__file__).resolve().parents[2] / "ms_summary_bridge"

NOUNS = (
    *("alarms", "arguments", "attempts", "branches", "bytes", "cells", "characters", "chips", "constants", "counts"),
    *(
        "directories",
        "edges",
        "elements",
        "epochs",
        "events",
        "files",
        "functions",
        "graphs",
        "groups",
        "hosts",
        "images",
    ),
    *("journals", "lines", "logs", "messages", "minutes", "nodes", "notes", "numbers", "ones", "operators", "outputs"),
    *("parameters", "pixels", "points", "ranks", "records", "rows", "runs", "samples", "scalars", "seconds", "stages"),
    *("steps", "tags", "threads", "times", "trainings", "values", "warnings"),
)
COUNTED = re.compile(rf" (?:[a-z]+ )?(?:{'|'.join(NOUNS)})\b")
OF_A_VERB = re.compile(r" (?:is|has|was|that|and|in|of|per|need|records) ")  # `rank 3 has values`; `pid 7 records`

# What is counted there is no number, or never 1; or the text stands in files that a conversion has written already.
ALLOWED = {
    ("convert/logdir.py", "kinds"),  # the name of a format
    ("formats/dataset_graph.py", "count"),  # after `"1 stage" if count == 1 else`
    ("formats/dataset_graph.py", "len(stage.branches)"),  # what joins several
    ("formats/dataset_graph.py", "len(text)"),  # above a limit
    ("formats/graphs/tb_values.py", "len(text)"),
    ("formats/landscapes/drawing.py", "y.size"),  # axes of 3 and 1 points
    ("formats/mindinsight.py", "height"),  # 2 x 1 pixels
    ("formats/mindinsight.py", "tensor.array.size"),
    ("formats/tensor.py", "array.dtype"),
    ("formats/tensor.py", "matrix.shape[1]"),  # 2 x 1 elements
    ("live_writer/link.py", "kind"),
    ("live_writer/pack.py", "finite.dtype"),
    ("monitor/session.py", "os.getppid()"),  # `process 7 records`
    ("monitor/steps/step_reader.py", "size"),
}


def find_uncounted(text: str) -> Iterator[str]:
    """Yields the expressions that stand before a plural noun in an f-string, and are neither counted nor a constant."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part, after in pairwise([*node.values, ast.Constant("")]):
            if isinstance(part, ast.Constant):
                before = str(part.value)
            elif isinstance(part, ast.FormattedValue) and isinstance(after, ast.Constant):
                expression = ast.unparse(part.value)
                said = str(after.value)
                form = "" if part.format_spec is None else ast.unparse(part.format_spec)
                is_whole = form in ("", "f','", "f':,'") or form.endswith("0f'")
                is_limit = re.fullmatch(r"_?[A-Z_]+", expression) or before.endswith(" of ")
                is_noun = COUNTED.match(said) and not OF_A_VERB.match(said)
                if is_whole and is_noun and not is_limit and not expression.startswith("counted("):
                    yield expression


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 lines"),
        (1, "1 line"),
        (2, "2 lines"),
        (1234, "1,234 lines"),
        (0.6, "1 line"),
        (float("nan"), "nan lines"),
    ],
)
def test_a_count_and_its_noun_agree(count: float, text: str) -> None:
    assert counted(count, "line") == text


def test_a_noun_with_a_plural_of_its_own_and_a_verb_that_agrees() -> None:
    assert [counted(count, "directory is", "directories are") for count in (1, 2)] == [
        "1 directory is",
        "2 directories are",
    ]


def test_no_message_puts_a_plural_behind_a_count_that_may_be_one() -> None:
    found = {
        (path.relative_to(SOURCE).as_posix(), expression)
        for path in sorted(SOURCE.rglob("*.py"))
        if "tensorboard_plugin" not in path.parts
        for expression in find_uncounted(path.read_text(encoding="utf-8"))
    }
    assert sorted(found - ALLOWED) == [], "write counted(COUNT, 'line')"
    assert sorted(ALLOWED - found) == [], "allowed, and not there any more"


def test_the_search_can_fail() -> None:
    assert [*find_uncounted('f"{path}: {len(torn)} lines are damaged"')] == ["len(torn)"]
    assert [*find_uncounted('f"{count:,} more\\n" f"{secs:.0f} seconds"')] == ["secs"]
    assert [
        *find_uncounted('f"{counted(2, 1)} lines {MOST} lines of {n} lines, {share:.1%} values, {r} is of ranks"')
    ] == []
