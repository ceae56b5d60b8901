"""tools/branches.py: what ran is told as coverage.py tells it, of every process, however that began or ended."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools import branches

ROOT = Path(__file__).resolve().parents[2]

SHAPES = '''
"""A module."""
from __future__ import annotations

import contextlib


class Thing:
    """With no more than a docstring."""


def ends(number):
    """Takes other ways for other numbers."""
    for each in range(number):
        if each == 2:
            continue
        elif each == 5:
            break
    else:
        number += 1
    while number > 3:
        number -= 1
        if number == 7:
            return number
    if number == 1:
        number = 10
    try:
        with contextlib.suppress(KeyError):
            if number == 3:
                raise KeyError(number)
        if number == 2:
            raise OSError(number)
    except ValueError:
        number = 0
    except OSError:
        number = 5
    else:
        number += 2
    finally:
        if number:
            number -= 1
    return number


@contextlib.contextmanager
def decorated(
    word="a",
    other="b",
):
    if word == "never":
        yield other
    yield word


def matched(value):
    match value:
        case 1 | 2:
            return "few"
        case [first, *_] if first:
            text = "list"
        case {"a": _}:
            text = "mapping"
    return value


def unused(value):
    @contextlib.contextmanager
    def inner():
        yield value

    while True:
        if inner:
            class Local:
                value = 3
            return Local
'''
CALLS = """
import sys
sys.path.insert(0, sys.argv[1])
from shapes.room.shapes import decorated, ends, matched
print([ends(each) for each in (0, 1, 2, 3, 6, 9)])
with decorated():
    print([matched(each) for each in (1, [0], [3])])
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    package = tmp_path / "there" / "shapes"
    (package / "room").mkdir(parents=True)
    (package / "__init__.py").write_text('"""A package."""\n')
    (package / "room" / "__init__.py").write_text("")
    (package / "room" / "shapes.py").write_text(SHAPES)
    (package / "room" / "never.py").write_text("a = 1\nif a:\n    b = 2\n")
    return package


def call(package: Path, code: str = CALLS, *flags: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *flags, "-c", code, str(package.parent)]
    return subprocess.run(words, capture_output=True, text=True, timeout=60)


def missing(coverage: branches.Coverage, path: Path) -> tuple[list[int], dict[int, list[int]]]:
    found = coverage._analyze(str(path))
    return sorted(found.missing), {start: sorted(ends) for start, ends in found.missing_branch_arcs().items()}


def test_what_ran_is_what_coverage_py_says(package: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CALLS)
    traced = tmp_path / "traced"
    words = ["-m", "coverage", "run", "--branch", f"--data-file={traced}", str(script), str(package.parent)]
    done = subprocess.run([sys.executable, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with branches.marked(package) as run:
        marked = call(package)
    assert (marked.returncode, marked.stdout) == (0, done.stdout), marked.stderr
    theirs = branches.Coverage(str(traced))
    theirs.load()
    ours = branches.told(run, tmp_path / "marks")
    shapes = package / "room" / "shapes.py"
    assert missing(ours, shapes) == missing(theirs, shapes)
    lines, arcs = missing(ours, shapes)
    assert len(lines) > 5
    assert len(arcs) > 3
    assert missing(ours, package / "room" / "never.py") == ([1, 2, 3], {2: [-1, 3]})
    figures = branches.rooms(ours, package)
    assert [*figures] == ["(no room)", "room", "all"]
    assert figures["room"][0] < figures["room"][1] == figures["all"][1]


@pytest.mark.parametrize(
    ("end", "flags"),
    [
        ("import os; os._exit(0)", ("-S", "-E")),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ()),
        ("import os; os.fork() or matched({'a': 1}) and os._exit(0); os.wait()", ("-I",)),
        ("import threading; threading.Thread(target=matched, args=[{'a': 1}]).start()", ("-B",)),
    ],
)
def test_every_process_counts_however_it_begins_and_ends(
    package: Path, tmp_path: Path, end: str, flags: tuple[str, ...]
) -> None:
    with branches.marked(package) as run:
        call(
            package, f"import sys; sys.path.append(sys.argv[1])\nfrom shapes.room.shapes import matched\n{end}", *flags
        )
    found = dict(run.blocks())[package / "room" / "shapes.py"]
    assert len(found) == (5 if "{'a'" in end else 2)  # the module and a class; the function, its case, what follows


def test_nothing_stays_behind_and_what_was_copied_runs_on(package: Path, tmp_path: Path) -> None:
    with branches.marked(package):
        marked = package / "room" / "__pycache__" / f"shapes.{sys.implementation.cache_tag}.pyc"
        assert marked.stat().st_size > len(SHAPES)
        shutil.copytree(package.parent, tmp_path / "copy")  # with its times, as it is installed somewhere
    assert not [*package.rglob("*.pyc")]
    done = call(tmp_path / "copy" / "shapes")
    assert (done.returncode, done.stdout) == (0, call(package).stdout), done.stderr
    with pytest.raises(ZeroDivisionError), branches.marked(package):
        raise ZeroDivisionError
    assert not [*package.rglob("__pycache__/never.*")]


def test_each_branch_of_a_room_can_be_told(tmp_path: Path) -> None:
    """Where all blocks of it ran, nothing is missing."""
    modules = {
        path: branches.mark(branches.ast.parse(path.read_bytes()), 0)
        for path in ROOT.glob("ms_summary_bridge/files/*.py")
    }
    run = branches.Run(modules, [True] * sum(map(len, modules.values())))
    figures = branches.rooms(branches.told(run, tmp_path / "marks"), ROOT / "ms_summary_bridge")
    assert branches.percent(figures["files"]) == 100
    assert figures["files"][3] > 200


def test_a_room_with_too_few_is_a_failure(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(branches, "PACKAGE", package)
    command = ["--", sys.executable, "-c", CALLS, str(package.parent)]
    monkeypatch.setattr(branches, "LEAST", {"room": 60, "all": 60})
    assert branches.main(["--least", "--json", str(tmp_path / "kept.json"), "--missing", "room", *command]) == 0
    printed = capfd.readouterr().out
    assert "TOO FEW" not in printed
    assert "never.py" in printed
    kept = json.loads((tmp_path / "kept.json").read_text())
    monkeypatch.setattr(branches, "LEAST", {"room": 99})
    assert branches.main(command) == 0
    assert branches.main(["--least", *command]) == 1
    assert f"room                  {branches.percent(kept['room'])}  at least 99: TOO FEW\n" in capfd.readouterr().out
    assert branches.main(["--", sys.executable, "-c", "raise SystemExit(7)"]) == 7
    assert branches.percent([9495, 10000, 0, 0]) == 94.9


@pytest.mark.parametrize("page", ["docs/reliability.md", "docs/reliability.zh.md"])
def test_the_pages_have_the_figures(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    kept = ROOT / "docs" / "images" / "coverage.json"
    assert branches.main(["--from", str(kept)]) == 0
    drawn = capsys.readouterr().out.partition("\n")[2]
    assert f"\n{drawn}\n" in (ROOT / page).read_text(encoding="utf-8") + "\n"
    figures = json.loads(kept.read_text(encoding="utf-8"))
    assert [room for room, least in branches.LEAST.items() if branches.percent(figures[room]) < least] == []
    rooms = {path.parent.name for path in (ROOT / "ms_summary_bridge").glob("*/__init__.py")}
    assert figures.keys() == {*rooms, "(no room)", "all"}


ORDERED = """
import pytest

class TestOne:
    @pytest.mark.parametrize("number", range(4))
    def test_a(self, number): pass
    def test_b(self): pass

class TestTwo:
    def test_c(self): pass
    def test_d(self): pass

@pytest.mark.parametrize("number", range(9))
def test_e(number): pass
"""


def test_the_tests_have_an_order_of_their_own_for_each_seed(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"test_{number}.py").write_text(ORDERED)

    def collect(seed: str, *selected: str) -> list[str]:
        words = [
            "-m",
            "pytest",
            "-q",
            "--collect-only",
            "-p",
            "tests.conftest",
            "-c",
            "/dev/null",
            f"--rootdir={tmp_path}",
        ]
        done = subprocess.run(
            [sys.executable, *words, str(tmp_path), *selected],
            cwd=ROOT,
            env={**os.environ, "MSB_TEST_ORDER": seed},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return [line for line in done.stdout.splitlines() if "::" in line]

    plain, one, other = collect(""), collect("one"), collect("other")
    assert len(plain) == 5 * 16
    assert plain[0].endswith("test_0.py::TestOne::test_a[0]")
    assert sorted(plain) == sorted(one) == sorted(other)
    assert len({tuple(order) for order in (plain, one, other)}) == 3
    for of_name in (lambda name: name.split("::")[0], lambda name: name.rpartition("::")[0] if "Test" in name else ""):
        groups = [key for key, _ in itertools.groupby(map(of_name, one)) if key]
        assert len(groups) == len({*groups}), "a file's tests, and those of a class, stay together"
    part = collect("one", "-k", "test_e")
    assert part == [name for name in one if "test_e" in name], "whatever else is selected"
    assert part != sorted(part)
