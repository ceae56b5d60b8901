"""What docs/architecture.md and CONTRIBUTING.md say of the code is there, and is gone through in the order they say."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ms_summary_bridge.cli.app import main
from ms_summary_bridge.convert.logdir import convert_logdir
from ms_summary_bridge.files.waiting import wait_for
from tests.mindspore_run import scalars, write_summary
from tests.project.test_layers import FLOORS, MODULES, PACKAGES
from tests.scripted import build_file, put, tensorboard_name

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FORMATS = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")


def names_in(text: str) -> list[str]:
    """Returns what a text names of the package: `room.module.Class.method` in backticks, for a room there is."""
    rooms = {room for rooms in FLOORS for room in rooms}
    names = re.findall(r"`(\w+(?:\.\w+)+)`", text)
    return [name for name in names if name.partition(".")[0] in rooms and not name.endswith((".py", ".log"))]


def has_name(name: str) -> bool:
    """Whether a module, or a class, function or constant in one, has this name."""
    module = name
    while module and module not in MODULES:
        module = module.rpartition(".")[0]
    if not module:
        return False
    scope: ast.AST = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    for part in filter(None, name[len(module) :].split(".")):
        found = [node for node in ast.iter_child_nodes(scope) if defined_by(node) == part]
        if not found:
            return False
        scope = found[0]
    return True


def defined_by(node: ast.AST) -> str:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name
    target = (
        node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
    )
    return target.id if isinstance(target, ast.Name) else ""


@pytest.mark.parametrize("text", [PAGE, GUIDE, FORMATS], ids=["architecture", "contributing", "formats"])
def test_every_name_is_there(text: str) -> None:
    names = names_in(text)
    assert len(names) >= 5
    assert [name for name in names if not has_name(name)] == []


def test_rooms_and_drawings_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "tools/draw_rooms.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, f"run tools/draw_rooms.py:\n{done.stdout}{done.stderr[-2000:]}"
    table = re.findall(r"^\| (\d+) \| `([\w/]+?)(?:/|\.py)` \| (.+\.) \|$", PAGE, re.MULTILINE)
    assert {(int(floor), room) for floor, room, _ in table} == {
        (number, room) for number, rooms in enumerate(FLOORS, 1) for room in rooms
    }
    inside = re.findall(r"^\| `([\w/]+)/` \| .+\. \|$", PAGE, re.MULTILINE)
    assert {name.replace("/", ".") for name in inside} == {name for name in PACKAGES if "." in name}


# ---------------------------------------------------------------- the ways of a scalar


def section(title: str) -> str:
    """Returns the numbered steps under a heading."""
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0].partition("\n1. ")[2].partition("\n\n")[0]


def calls_of(work: Callable[[], object]) -> list[str]:
    """Returns the functions of the package that some work calls, as `module.function`, in the order of their first."""
    seen: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("ms_summary_bridge."):
            seen[f"{module.removeprefix('ms_summary_bridge.')}.{frame.f_code.co_name}"] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return list(seen)


def short(name: str) -> str:
    """Returns a name as `calls_of` has it, which knows no classes: `files.record_decoder.feed` of a `RecordDecoder`."""
    module = name
    while module not in MODULES:
        module = module.rpartition(".")[0]
    return f"{module}.{name.rpartition('.')[2]}"


@pytest.mark.parametrize("title", ["The way of one scalar from MindSpore to TensorBoard", "The way back"])
def test_a_scalar_goes_the_way_that_is_told(tmp_path: Path, title: str) -> None:
    if title == "The way back":
        put(tmp_path / "source" / tensorboard_name(), build_file("tensorboard", range(1, 4)))
    else:
        write_summary(tmp_path / "source", scalars("loss", range(1, 4)))
    calls = calls_of(lambda: convert_logdir(str(tmp_path / "source"), str(tmp_path / "destination")))
    steps = [names_in(step) for step in re.split(r"\n\d+\. ", section(title))]
    assert len(steps) >= 8
    told = [short(name) for names in steps for name in names if short(name) != "values.Scalar"]
    assert [name for name in told if name not in calls] == [], "told, and not called"
    heads = [calls.index(short(names[0])) for names in steps]
    # Discovery peeks at files and the archive's head is written before the first value comes, so what those use is
    # left out: a step that is told by its own function comes behind the one before.
    used_before = {"files.record_writer.write", "convert.state.save_state", "convert.unread.identify"}
    order = [head for head, names in zip(heads, steps, strict=True) if short(names[0]) not in used_before]
    assert order == sorted(order), [calls[head] for head in heads]


def returns_of(work: Callable[[], object]) -> tuple[set[tuple[str, ...]], set[str]]:
    """Returns the chains of calls that come back to a room which they had left, and the rooms that were entered.

    A chain is given by its rooms, the outermost first. Finding runs is left out: it may read a file's first event.
    """
    returns: set[tuple[str, ...]] = set()
    entered: set[str] = set()

    def note(frame: FrameType | None, event: str, argument: Any) -> None:
        rooms: list[str] = []
        while event == "call" and frame is not None:
            module = frame.f_globals.get("__name__", "")
            if module.startswith("ms_summary_bridge."):
                if (module, frame.f_code.co_name) == ("ms_summary_bridge.runs.logdir", "discover"):
                    return
                room = module.split(".")[1]
                if rooms[-1:] != [room]:
                    rooms.append(room)
            frame = frame.f_back
        entered.update(rooms)
        if len({*rooms}) < len(rooms):
            returns.add(tuple(reversed(rooms)))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return returns, entered


@pytest.mark.parametrize("to", ["tensorboard", "mindinsight"])
def test_a_scalar_never_returns_to_a_room_that_it_left(tmp_path: Path, to: str) -> None:
    if to == "mindinsight":
        put(tmp_path / "source" / tensorboard_name(), build_file("tensorboard", range(1, 4)))
    else:
        write_summary(tmp_path / "source", scalars("loss", range(1, 4)))
    command = ["convert", str(tmp_path / "source"), str(tmp_path / "destination"), "--to", to, "--quiet"]
    returns, entered = returns_of(lambda: main(command))
    assert returns <= {("cli", "convert", "cli")}  # where it is shown how far the conversion is
    assert entered >= {"cli", "convert", "files", "formats", "runs"}
    assert len([path for path in (tmp_path / "destination").rglob("events.*") if path.stat().st_size > 100]) == 1


# ---------------------------------------------------------------- files that are named


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/architecture.md", "docs/formats.md"])
def test_every_file_and_link_is_there(name: str) -> None:
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert [link for link in links if link and not (path.parent / link).exists()] == []
    files = re.findall(r"`((?:\./)?(?:tools|tests|docs|proto|examples)/[\w./-]*|ms_summary_bridge/[\w/]+\.\w+)`", text)
    assert [file for file in files if not (ROOT / file).exists()] == []
    assert links
    assert files


@pytest.mark.parametrize(
    ("title", "example"),
    [("Add a metric", "update_ratio"), ("Add a rule", "overload"), ("Add an action", "dump_stacks")],
)
def test_lists_of_files_to_touch_are_whole(title: str, example: str) -> None:
    text = GUIDE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    assert text.startswith(f"\nAs `{example}` has it:")
    named = re.findall(r"`(ms_summary_bridge/[\w/]+\.py)`", text)
    touched = [
        str(path.relative_to(ROOT)) for path in MODULES.values() if f'"{example}"' in path.read_text(encoding="utf-8")
    ]
    assert len(touched) >= 2
    assert sorted(path for path in touched if path not in named) == []


def test_the_checks_can_fail() -> None:
    assert has_name("files.record_decoder.RecordDecoder.feed")
    assert has_name("runs.archive.START")
    assert not has_name("files.record_decoder.RecordDecoder.gone")
    assert not has_name("files.gone")
    assert names_in("`files.records.Record`, `os.path`, `files/`, `values.Scalar`") == [
        "files.records.Record",
        "values.Scalar",
    ]
    assert calls_of(lambda: None) == []
    calls: dict[str, Any] = {"__name__": "ms_summary_bridge.runs.made_up"}
    exec("def turn(call):\n    call()", calls)
    wait = partial(wait_for, partial(calls["turn"], partial(wait_for, lambda: 1, 0.0)), 0.0, 0.0)
    assert returns_of(wait)[0] == {("files", "runs", "files")}
