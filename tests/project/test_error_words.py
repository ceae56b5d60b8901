"""What to do about an error is decided by its class: no code of the package looks into the words of a message."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "ms_summary_bridge"

# What holds the words of an error, wherever it is met; `.failed` and the like are such words in our reports.
WORDS = {"args", "strerror", "message", "failed", "reason", "__cause__", "__context__"}
TESTS = {"startswith", "endswith", "find", "index", "count", "search", "match", "fullmatch", "findall", "__contains__"}

# `callback.bridge` asks for the class of the cause of a TypeError that MindSpore makes of an OSError.
ALLOWED = {("callback/bridge.py", "error.__cause__")}


def caught_names(tree: ast.AST) -> set[str]:
    """Returns the names of all errors: those caught, and arguments annotated as one."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            annotation = ast.unparse(node.annotation)
            if "Error" in annotation or "Exception" in annotation:
                names.add(node.arg)
    return names


def words_in(node: ast.AST, errors: set[str]) -> Iterator[str]:
    """Yields the expressions in a node that are the words of an error: `str(error)`, `f"{error}"`, `error.args`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id in {"str", "repr"}:
            if any(isinstance(item, ast.Name) and item.id in errors for item in part.args):
                yield ast.unparse(part)
        elif isinstance(part, ast.FormattedValue):
            if isinstance(part.value, ast.Name) and part.value.id in errors:
                yield ast.unparse(part.value)
        elif isinstance(part, ast.Attribute) and part.attr in WORDS:
            is_of_error = isinstance(part.value, ast.Name) and part.value.id in errors
            if is_of_error or part.attr in {"failed", "__cause__", "__context__"}:
                yield ast.unparse(part)


def find_decisions(text: str) -> list[str]:
    """Returns the expressions that ask what is in the words of an error."""
    tree = ast.parse(text)
    errors = caught_names(tree)
    for node in ast.walk(tree):  # a variable that holds them: text = str(error)
        if isinstance(node, ast.Assign) and [*words_in(node.value, errors)]:
            errors |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    found = []
    for node in ast.walk(tree):
        asked: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
            is_search = any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops)
            if is_search and any(isinstance(item, ast.Name) and item.id in errors for item in asked):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TESTS:
            asked = [node.func.value, *node.args]
            if isinstance(node.func.value, ast.Name) and node.func.value.id in errors:
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            asked = [*node.args[:1]]
        found += [word for item in asked for word in words_in(item, errors)]
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_words_decide(path: Path) -> None:
    name = str(path.relative_to(SOURCE))
    found = [what for what in find_decisions(path.read_text(encoding="utf-8")) if (name, what) not in ALLOWED]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "if 'cannot be ' in str(error): raise",
        "if error.strerror == 'No space left on device': raise",
        "if error.args[0].startswith('cannot'): raise",
        "if f'{error}'.endswith('busy'): raise",
        "if re.search('busy', str(error)): raise",
        "if isinstance(error.__cause__, FileNotFoundError): raise",
        "text = str(error)\n    if 'busy' in text: raise",
        "any('cannot' in run.failed for run in report.failures)",
        "report.failures[0].failed.startswith('x')",
    ],
)
def test_the_check_can_fail(line: str) -> None:
    assert find_decisions(f"try:\n    pass\nexcept OSError as error:\n    {line}\n")


@pytest.mark.parametrize(
    "line",
    ["raise ReadError(str(error)) from error", "if error.errno == 28: raise", "if run.failed: pass", "say(str(error))"],
)
def test_the_check_can_pass(line: str) -> None:
    assert not find_decisions(f"try:\n    pass\nexcept OSError as error:\n    {line}\n")
