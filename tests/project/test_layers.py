"""The rooms of the house: imports point downwards, and heavy packages stay in the rooms that need them."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = "ms_summary_bridge"
SOURCE = Path(__file__).resolve().parents[2] / PACKAGE

# A room is a module or a package directly below ms_summary_bridge. Lowest floor first; a room may import from the
# floors above its own line in this list. A new room fails test_every_room_has_a_floor until it stands here.
FLOORS: list[set[str]] = [
    {"_version", "errors", "starting", "training"},
    {"values"},
    {"events"},
    {"files", "formats"},
    {"batches", "diagnose", "runs"},
    {"columns", "convert"},
    {"export", "live_writer", "mirror"},
    {"callback", "viewers"},
    {"monitor"},
    {"aggregate", "doctor", "mindformers", "states"},
    {"cli", "tensorboard_plugin"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

# What else design.md asks of the house.
MOST_FLOORS = 12
MOST_MODULES = {"": 7, "monitor": 12}

# Which modules may import a foreign package: rooms, or modules of a room.
FOREIGN: dict[str, set[str]] = {
    "google.protobuf": {"formats"},
    "mindformers": {"mindformers"},
    "mindspore": {
        "callback",
        "mindformers",
        "monitor.callback",
        "monitor.checkpoints.best_checkpoint",
        "monitor.checkpoints.checkpoint_start",
        "monitor.checkpoints.checkpoint_weights",
        "monitor.metrics",
        "monitor.ranks.gathering",
        "monitor.steps.neighbours",
        "monitor.trial_training",
        "training",
    },
    "rich": {"cli"},
    "tensorboard": {"tensorboard_plugin"},
    "tensorboardX": {"callback"},
    "tensorflow": set(),
    "torch": set(),
    "typer": {"cli"},
}
HEAVY = {"mindformers", "mindspore", "tensorboard", "tensorflow", "torch"}


def find_modules() -> dict[str, Path]:
    """Returns every module below the package, by its name without `ms_summary_bridge.`; "" is the package itself."""
    modules = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


MODULES = find_modules()
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


@functools.cache
def find_imports(text: str) -> set[str]:
    """Returns the full dotted names that a module imports, at whatever depth; `from a import b` gives `a.b`."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def find_own_imports(text: str) -> set[str]:
    """Returns the modules of this package that a module imports, named as in MODULES."""
    own = set()
    for name in find_imports(text):
        if name.partition(".")[0] == PACKAGE:
            inner = name[len(PACKAGE) + 1 :]
            while inner not in MODULES:  # from a module import a class
                inner = inner.rpartition(".")[0]
            own.add(inner)
    return own


OWN_IMPORTS = {name: find_own_imports(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}


def find_upward(imports: dict[str, set[str]]) -> list[str]:
    """Returns a line for each import that does not point downwards."""
    wrong = []
    for importer, imported in imports.items():
        room = importer.partition(".")[0]
        for target in imported:
            other = target.partition(".")[0]
            if room in (other, ""):  # within a room; and the package itself shows everything
                continue
            if LEVEL.get(other, len(FLOORS)) >= LEVEL.get(room, -1):
                wrong.append(f"{importer} imports {target or PACKAGE}")
    return sorted(wrong)


def rooms_of(place: str, imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """Returns what lies directly in a package, each with what else there it imports; "" is the whole package.

    The `__init__` of a room shows what the room has and may name all of it.
    """
    head = f"{place}." if place else ""

    def child(module: str) -> str:
        return module[len(head) :].partition(".")[0] if module.startswith(head) else ""

    rooms: dict[str, set[str]] = {}
    for importer, imported in imports.items():
        if room := child(importer):
            others = rooms.setdefault(room, set())
            if importer not in PACKAGES:
                others |= {other for target in imported if (other := child(target)) and other != room}
    return rooms


def count_floors(rooms: dict[str, set[str]]) -> int:
    """Returns how many floors rooms need when each stands above all it imports; raises CycleError."""
    floor: dict[str, int] = {}
    for room in graphlib.TopologicalSorter(rooms).static_order():
        floor[room] = 1 + max((floor[other] for other in rooms[room]), default=-1)
    return 1 + max(floor.values(), default=-1)


def find_private(imports: dict[str, set[str]]) -> list[str]:
    """Returns a line for each module whose name begins with `_` and that another package imports."""
    wrong = []
    for importer, imported in imports.items():
        for target in imported:
            home, _, name = target.rpartition(".")
            if name.startswith("_") and target != "_version" and not is_in(importer, {home}):
                wrong.append(f"{importer} imports {target}")
    return sorted(wrong)


def is_in(module: str, places: set[str]) -> bool:
    """Whether a module is one of the places or inside one."""
    return any(module == place or module.startswith(place + ".") for place in places)


def test_every_room_has_a_floor() -> None:
    rooms = {name.partition(".")[0] for name in MODULES} - {""}
    assert sorted(rooms ^ LEVEL.keys()) == [], "add the new rooms to FLOORS, as low as they can stand"
    assert len(FLOORS) <= MOST_FLOORS


def test_imports_point_downwards() -> None:
    assert find_upward(OWN_IMPORTS) == []


@pytest.mark.parametrize("place", sorted(PACKAGES))
def test_rooms_inside_a_room_have_no_circle(place: str) -> None:
    assert count_floors(rooms_of(place, OWN_IMPORTS)) <= MOST_FLOORS  # raises CycleError, which names the rooms


@pytest.mark.parametrize("place", MOST_MODULES)
def test_few_modules_lie_flat(place: str) -> None:
    head = f"{place}." if place else ""
    flat = [name for name in MODULES.keys() - PACKAGES if name.startswith(head) and "." not in name[len(head) :]]
    assert len(flat) + 1 <= MOST_MODULES[place], sorted(flat)


def test_private_modules_stay_in_their_package() -> None:
    assert find_private(OWN_IMPORTS) == []


def test_imports_have_no_cycle() -> None:
    tuple(graphlib.TopologicalSorter(OWN_IMPORTS).static_order())  # raises CycleError, which names the modules


@pytest.mark.parametrize(("codec", "other"), [("mindspore", "tensorboard"), ("tensorboard", "mindspore")])
def test_codecs_do_not_know_each_other(codec: str, other: str) -> None:
    reached: set[str] = set()
    pending = [f"formats.{codec}"]
    while pending:
        module = pending.pop()
        if module not in reached:
            reached.add(module)
            pending += OWN_IMPORTS[module]
    assert f"formats.{other}" not in reached


@pytest.mark.parametrize("package", FOREIGN)
def test_foreign_packages_stay_in_their_rooms(package: str) -> None:
    importers = {
        module
        for module, path in MODULES.items()
        if any(is_in(name, {package}) for name in find_imports(path.read_text(encoding="utf-8")))
    }
    assert sorted(module for module in importers if not is_in(module, FOREIGN[package])) == []


# Sees every import that is tried, so that one inside `try: import torch` is found where torch is not installed.
SPY = """
import importlib, sys

tried = set()

class Spy:
    @staticmethod
    def find_spec(name, path=None, target=None):
        tried.add(name.partition(".")[0])

sys.meta_path.insert(0, Spy)
for module in sys.argv[1:]:
    importlib.import_module(module)
print(*sorted(tried))
"""


def find_loaded(*modules: str) -> set[str]:
    """Returns the top-level packages whose import is tried when modules are imported in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", SPY, *modules], capture_output=True, text=True, cwd=SOURCE.parent, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("module", [PACKAGE, f"{PACKAGE}.convert.logdir"])
def test_import_is_light(module: str) -> None:
    assert find_loaded(module) & HEAVY == set()


def test_import_of_all_that_needs_no_training_is_light() -> None:
    heavy_rooms = set().union(*(FOREIGN[package] for package in HEAVY))
    left_out = {"", "__main__"}  # the package is imported anyway, and __main__ runs the command line
    light = [f"{PACKAGE}.{name}" for name in sorted(MODULES.keys() - left_out) if not is_in(name, heavy_rooms)]
    assert find_loaded(*light) & HEAVY == set()


def test_the_checks_can_fail(tmp_path: Path) -> None:
    assert find_imports("def f():\n    from a.b import c\n    import d.e") == {"a.b.c", "d.e"}
    assert find_own_imports(f"from {PACKAGE}.errors import BridgeError\nfrom {PACKAGE}.formats import wire") == {
        "errors",
        "formats.wire",
    }
    assert find_upward({"files.records": {"errors"}, "formats.wire": {"formats.protos"}}) == []
    assert find_upward({"errors": {"values"}, "files.records": {"formats.wire"}, "new_room": {"errors"}}) == [
        "errors imports values",
        "files.records imports formats.wire",
        "new_room imports errors",
    ]
    chain = {"a.b.c": {"a.d"}, "a.d": {"a.e.f", "b"}, "a.e.f": set(), "b": set()}
    assert rooms_of("a", chain) == {"b": {"d"}, "d": {"e"}, "e": set()}
    assert count_floors(rooms_of("a", chain)) == 3
    with pytest.raises(graphlib.CycleError):
        count_floors(rooms_of("a", {**chain, "a.e.f": {"a.b.c"}}))
    assert find_private({"a.b": {"a._c", "_version"}, "b": {"a._c"}}) == ["b imports a._c"]
    (tmp_path / "tries.py").write_text("try:\n    import torch\nexcept ImportError:\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-c", SPY, "tries"], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=True
    )
    assert "torch" in done.stdout.split()
