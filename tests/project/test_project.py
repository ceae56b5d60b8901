"""The project as a whole: version, changelog, licence, and what each module says is public."""

from __future__ import annotations

import ast
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "ms_summary_bridge"
MODULES = sorted(PACKAGE.rglob("*.py"))


def read_version() -> str:
    """Returns `__version__` as setup.py reads it."""
    match = re.search(r'^__version__ = "([^"]+)"$', (PACKAGE / "_version.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None
    return match[1]


def test_newest_changelog_entry_has_the_version() -> None:
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == read_version()


def test_setup_reads_the_version() -> None:
    pytest.importorskip("setuptools")
    done = subprocess.run(
        [sys.executable, "setup.py", "--name", "--version"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split()[-2:] == ["ms_summary_bridge", read_version()], done.stderr


def test_licence_is_the_whole_standard_text() -> None:
    # Of the text at https://www.apache.org/licenses/LICENSE-2.0.txt
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == (
        "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    )


def find_public_names(tree: ast.Module, *, is_package: bool) -> set[str]:
    """Returns the names without a leading underscore that a module defines, or that a package shows of its modules."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            # A command of the command line belongs to its users, not to those who import.
            if not any(".command(" in ast.unparse(decorator) for decorator in node.decorator_list):
                names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and is_package and (node.module or "").startswith(PACKAGE.name):
            names |= {alias.asname or alias.name for alias in node.names}
    return {name for name in names if not name.startswith("_")}


def read_all(tree: ast.Module) -> list[str] | None:
    """Returns `__all__` as written, or None where there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names = ast.literal_eval(node.value)
            assert isinstance(names, list)
            return names
    return None


def sorting_key(name: str) -> tuple[int, str]:
    """CONSTANTS, then Classes, then the others: the order of ruff's RUF022."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_all_is_sorted_and_complete(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    is_package = path.name == "__init__.py"
    public = find_public_names(tree, is_package=is_package)
    shown = read_all(tree)
    if shown is None:
        assert public == set(), "has public names and no __all__"
        return
    assert shown == sorted(shown, key=sorting_key)
    assert len(shown) == len(set(shown))
    # Names made on demand are not in the text; tests of the public surface fetch each of them.
    is_lazy = "lazy_names(" in path.read_text(encoding="utf-8")
    unknown = {name for name in shown if not name.startswith("__")} - public
    assert sorted(public - set(shown)) == [], "public names that are not in __all__"
    assert sorted(unknown) == [] or (is_lazy and is_package), "names in __all__ that are not there"


TOOLS = sorted(path.name for path in (ROOT / "tools").iterdir() if path.is_file() and os.access(path, os.X_OK))


@pytest.mark.parametrize("name", [*TOOLS, "draw_rooms.py"])
def test_help_of_a_tool_says_how_it_is_used_and_does_nothing(name: str, tmp_path: Path) -> None:
    program = [sys.executable] if name.endswith(".py") else []
    done = subprocess.run(
        [*program, str(ROOT / "tools" / name), "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    first = done.stdout.strip().lower()
    assert "usage: " in first
    assert name in first or "ms-summary-bridge convert" in first
    assert len(first.splitlines()) > 3
    assert "=== " not in first, "it has begun to work"


def test_an_environment_that_is_not_known_is_refused_before_any_work() -> None:
    for name in ("matrix", "environment"):
        done = subprocess.run([str(ROOT / "tools" / name), "none"], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (2, "")
        assert "--help says which" in done.stderr
