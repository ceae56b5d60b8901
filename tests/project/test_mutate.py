"""tools/mutate: that it sees which tests are missing for a small module, and what is kept of the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "docs" / "images" / "mutation.json"

sys.path.append(str(ROOT / "tools"))

from mutating import explained, parts, report  # noqa: E402

SMALL = '''"""A docstring, never changed < here."""
from __future__ import annotations

_MOST: int = 3


class Box:
    @property
    def is_full(self) -> bool | None:
        return len(self.things) >= _MOST

    def __init__(self) -> None:
        self.things: list[int] = []

    def put(self, thing: int, *, twice: bool = False) -> int:
        if thing < 0 and not twice:
            raise ValueError(thing)
        count = 0
        while count < 1:
            self.things += [thing]
            count += 1
        return len(self.things)
'''

TESTED = """
import pytest
from small import Box

def test_put():
    box = Box()
    assert [box.put(1), box.put(2, twice=True), box.is_full] == [1, 2, False]
    assert [box.put(0), box.is_full, box.things] == [3, True, [1, 2, 0]]
    with pytest.raises(ValueError):
        box.put(-1)
"""

TRY = """
import json, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from mutating.mutants import make_mutants
from mutating import trial
trial._LEAST_SECS = 0.2  # for each loop that does not end
root = Path(sys.argv[1])
mutants = make_mutants(root, "small.py", with_all=sys.argv[3:] == ["all"])
survived = trial.try_mutants(root, mutants, ["test_small.py"], lambda line: None)
print(json.dumps([len(mutants), [mutant.key[1:] for mutant in survived]]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of one module and one test."""
    (tmp_path / "small.py").write_text(SMALL, encoding="utf-8")
    (tmp_path / "test_small.py").write_text(TESTED, encoding="utf-8")
    return tmp_path


def try_small(project: Path) -> subprocess.CompletedProcess[str]:
    """Tries the mutants of the small module in a process that has imported nothing else."""
    command = [sys.executable, "-c", TRY, str(project), str(ROOT / "tools")]
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=280)


def test_a_missing_test_is_told_and_a_fault_that_hangs_is_seen(project: Path) -> None:
    pytest.importorskip("mutmut")
    tried = try_small(project)
    assert tried.returncode == 0, tried.stderr
    count, survived = json.loads(tried.stdout)
    assert count == 15
    # A loop that does not end is noticed; what does the same as the module cannot be.
    assert survived == [["Box.put", "count += 1", after] for after in ("count = 1", "count += 2")]


def test_a_module_of_constants_alone_is_tried_with_all_tests(project: Path) -> None:
    pytest.importorskip("mutmut")
    (project / "small.py").write_text("MOST = 3\nLEAST = 1\n", encoding="utf-8")
    (project / "test_small.py").write_text(
        "import small\n\ndef test_most():\n    assert small.MOST == 3\n", encoding="utf-8"
    )
    tried = try_small(project)
    assert tried.returncode == 0, tried.stderr
    assert json.loads(tried.stdout) == [2, [["", "LEAST = 1", "LEAST = 2"]]]


def test_tests_that_fail_by_themselves_say_nothing(project: Path) -> None:
    pytest.importorskip("mutmut")
    (project / "test_small.py").write_text(TESTED.replace("[1, 2, False]", "[1, 2, True]"), encoding="utf-8")
    tried = try_small(project)
    assert tried.returncode == 1
    assert "these tests fail without a fault: test_small.py::test_put" in tried.stderr


def test_words_and_arguments_are_changed_only_if_that_is_asked_for(project: Path) -> None:
    pytest.importorskip("mutmut")
    from mutating.mutants import make_mutants

    few, many = (make_mutants(project, "small.py", with_all=with_all) for with_all in (False, True))
    assert {mutant.key for mutant in few} < {mutant.key for mutant in many}
    assert {mutant.before for mutant in few} == {
        "_MOST: int = 3",
        "return len(self.things) >= _MOST",
        "def put(self, thing: int, *, twice: bool = False) -> int:",
        "if thing < 0 and not twice:",
        "count = 0",
        "while count < 1:",
        "self.things += [thing]",
        "count += 1",
    }
    assert "raise ValueError(None)" in {mutant.after for mutant in many}
    assert not any("docstring" in mutant.before or "None]" in mutant.before for mutant in many)


# --- what is kept


def test_what_is_explained_is_still_there() -> None:
    """Each line that is explained stands in a module of a part, and nothing is explained twice."""
    modules = {path for part in parts.PARTS.values() for path in parts.find_modules(ROOT, part)}
    lines = {path: {line.strip() for line in (ROOT / path).read_text("utf-8").splitlines()} for path in modules}
    for (path, before, after), reason in explained.read().items():
        assert before in lines[path], (path, before)
        assert after != before
        assert reason.endswith("."), reason


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n+ b\n  Reason.", "1: is out of place"),
        ("== m\n+ b", "2: is out of place"),
        ("== m\n  Reason.", "2: is out of place"),
        ("== m\n- a\n+ b\n+ b\n  Reason.", "4: is there twice"),
        ("== m\n- a\n+ b\n", "nothing says why"),
    ],
)
def test_an_explanation_in_the_wrong_place_is_told(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "explained.txt").write_text(text, encoding="utf-8")
    with pytest.raises(explained.FormError, match=said):
        explained.read(tmp_path / "explained.txt")


def test_explanations_are_of_all_the_lines_above_them(tmp_path: Path) -> None:
    text = "# About.\n\n== m\n- a\n+ b\n+ c\n- d\n+ e\n  One\n  reason.\n- f\n+ g\n  Other.\n\n== n\n- a\n+ b\n  Third."
    (tmp_path / "explained.txt").write_text(text, encoding="utf-8")
    assert explained.read(tmp_path / "explained.txt") == {
        ("m", "a", "b"): "One reason.",
        ("m", "a", "c"): "One reason.",
        ("m", "d", "e"): "One reason.",
        ("m", "f", "g"): "Other.",
        ("n", "a", "b"): "Third.",
    }


@pytest.mark.parametrize(("page", "language"), [("docs/reliability.md", "en"), ("docs/reliability.zh.md", "zh")])
def test_the_pages_have_the_table_of_what_is_kept(page: str, language: str) -> None:
    rows = report.read(KEPT)
    assert rows
    assert report.markdown(rows, language) in (ROOT / page).read_text(encoding="utf-8")
    for module, row in rows.items():
        assert parts.part_of(ROOT, module), module
        assert row.tried == row.killed + row.explained + row.survived > 0
        assert row.survived == len(row.survivors)


def test_rows_are_kept_beside_those_of_other_modules(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    report.keep(kept, {"p/b.py": report.Row(1200, 1199, 1, 0, 5.0), "p/a.py": report.Row(2, 1, 0, 1, 5.0)})
    report.keep(kept, {"p/a.py": report.Row(2, 2, 0, 0, 7.0)})
    command = [sys.executable, str(ROOT / "tools" / "mutate"), "--from", str(kept), "--markdown"]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[2:] == ["| `a.py` | 2 | 2 | 0 | 0 |", "| `b.py` | 1,200 | 1,199 | 1 | 0 |"]
