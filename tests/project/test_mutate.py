"""tools/mutate: that it sees which tests are missing for a small module, and what is kept of the package."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

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
from mutating.trial import try_mutants
root = Path(sys.argv[1])
mutants = make_mutants(root, "small.py", with_all=sys.argv[3:] == ["all"])
survived = try_mutants(root, mutants, ["test_small.py"], lambda line: None)
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
    return subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=120)


def test_a_missing_test_is_told_and_a_fault_that_hangs_is_seen(project: Path) -> None:
    pytest.importorskip("mutmut")
    tried = try_small(project)
    assert tried.returncode == 0, tried.stderr
    count, survived = json.loads(tried.stdout)
    assert count == 15
    # A loop that does not end is noticed; what does the same as the module cannot be.
    assert survived == [["Box.put", "count += 1", after] for after in ("count = 1", "count += 2")]


def test_tests_that_fail_by_themselves_say_nothing(project: Path) -> None:
    pytest.importorskip("mutmut")
    (project / "test_small.py").write_text(TESTED.replace("[1, 2, False]", "[1, 2, True]"), encoding="utf-8")
    tried = try_small(project)
    assert tried.returncode == 1
    assert "these tests fail without a fault: test_small.py::test_put" in tried.stderr
