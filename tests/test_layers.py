"""The layers of design.md: imports point downwards, and heavy packages stay in the rooms that need them."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = "ms_summary_bridge"
SOURCE = Path(__file__).resolve().parent.parent / PACKAGE

# A room is a module or a package directly below ms_summary_bridge. Lowest layer first; a room may import from the
# layers above its own line in this list. A new room fails test_every_room_has_a_layer until it stands here.
LAYERS: list[set[str]] = [
    {"_version", "file_names"},
    {"errors"},
    {"records", "values"},
    {"events"},
    {"formats"},
    {"archive", "event_file", "file_tree", "graph_file", "logdir", "record_writer"},
    {"report", "series"},
    {"state"},
    {"restarts", "run_points", "run_sink", "run_task"},
    {"mindspore_run", "tensorboard_run"},
    {"run_conversion"},
    {"destination", "run_workers"},
    {"aggregate", "convert", "export", "follow", "follow_scan", "inspect", "verify"},
    {"callback", "mirror", "monitor"},
    {"doctor", "mindformers", "tensorboard_plugin", "viewers", "watch"},
    {"render"},
    {"config_cli", "view_cli"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

# What may be imported from the same layer: (who, whom).
SIDEWAYS = {
    ("archive", "event_file"),
    ("monitor", "callback"),
    ("follow", "convert"),
    ("follow", "follow_scan"),
    ("archive", "record_writer"),
    ("logdir", "event_file"),
    ("logdir", "file_tree"),
    ("logdir", "graph_file"),
    ("graph_file", "event_file"),
    ("file_tree", "event_file"),
    ("record_writer", "event_file"),
}

# Which modules may import a foreign package: rooms, or modules of a room.
FOREIGN: dict[str, set[str]] = {
    "google.protobuf": {"formats"},
    "mindformers": {"mindformers"},
    "mindspore": {
        "callback",
        "mindformers",
        "monitor.best_checkpoint",
        "monitor.callback",
        "monitor.distributed",
        "monitor.neighbours",
        "monitor.metrics",
        "monitor.trial_training",
    },
    "rich": {"cli", "render"},
    "tensorboard": {"tensorboard_plugin"},
    "tensorboardX": {"callback"},
    "tensorflow": set(),
    "torch": set(),
    "typer": {"cli", "config_cli", "view_cli"},
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
            if LEVEL.get(other, len(LAYERS)) >= LEVEL.get(room, -1) and (room, other) not in SIDEWAYS:
                wrong.append(f"{importer} imports {target or PACKAGE}")
    return sorted(wrong)


def is_in(module: str, places: set[str]) -> bool:
    """Whether a module is one of the places or inside one."""
    return any(module == place or module.startswith(place + ".") for place in places)


def test_every_room_has_a_layer() -> None:
    rooms = {name.partition(".")[0] for name in MODULES} - {""}
    assert sorted(rooms - LEVEL.keys()) == [], "add the new rooms to LAYERS, as low as they can stand"


def test_imports_point_downwards() -> None:
    assert find_upward(OWN_IMPORTS) == []


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


@pytest.mark.parametrize("module", [PACKAGE, f"{PACKAGE}.convert"])
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
    assert find_upward({"records": {"errors"}, "formats.wire": {"formats.protos"}}) == []
    assert find_upward({"errors": {"records"}, "values": {"records"}, "new_room": {"errors"}}) == [
        "errors imports records",
        "new_room imports errors",
        "values imports records",
    ]
    (tmp_path / "tries.py").write_text("try:\n    import torch\nexcept ImportError:\n    pass\n")
    done = subprocess.run(
        [sys.executable, "-c", SPY, "tries"], capture_output=True, text=True, cwd=tmp_path, timeout=120, check=True
    )
    assert "torch" in done.stdout.split()
