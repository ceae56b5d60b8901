"""What goes together: setup.py, the environments of the tools and the READMEs' tables say the same."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.project.test_docs import read, tables
from tools.site_reference import write_matrix

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ROOT / "tools" / "environments"
PACKAGES = ("mindspore", "protobuf", "numpy", "tensorboard")
NEWEST = {"docs/compatibility.md": "newest", "docs/compatibility.zh.md": "最新"}


def requirements(text: str) -> dict[str, Requirement]:
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    found = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return {requirement.name.lower(): requirement for requirement in found}


def setup_lines(name: str) -> str:
    """Returns the requirements of a list in setup.py, one a line."""
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    (found,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return "\n".join(found)


def lower_bound(requirement: Requirement) -> str:
    (bound,) = (each.version for each in requirement.specifier if each.operator == ">=")
    return bound


def pins(environment: str) -> dict[str, Requirement]:
    return requirements((ENVIRONMENTS / f"{environment}.txt").read_text(encoding="utf-8"))


def rows_of_matrix() -> list[str]:
    text = (ROOT / "tools" / "matrix").read_text(encoding="utf-8")
    match = re.search(r"names=\((lowest .*?)\)", text, re.DOTALL)
    assert match is not None
    return match[1].split()


def test_each_lower_bound_is_the_version_that_the_matrix_tests() -> None:
    lowest = pins("lowest")
    for name, requirement in requirements("\n".join(map(setup_lines, ("CORE", "PARQUET", "DASK")))).items():
        assert f"=={lower_bound(requirement)}" == str(lowest[name].specifier), name
    extras = (ROOT / "setup.py").read_text(encoding="utf-8")
    for name, environment in (  # none is in an environment of the matrix
        ("wandb", "wandb"),
        ("mindformers", "mindformers"),
        ("swanlab", "trackers"),
        ("mlflow-skinny", "trackers"),
        ("trackio", "trackers"),
    ):
        assert f'"{name}>={str(pins(environment)[name].specifier).removeprefix("==")}"' in extras
    (tensorboard,) = requirements(setup_lines("TENSORBOARD")).values()
    tested = [str(pins(name)["tensorboard"].specifier) for name in rows_of_matrix() if name.startswith("tensorboard")]
    assert f"=={str(tensorboard.specifier).removeprefix('>=')}.*" == min(tested)


@pytest.mark.parametrize("page", NEWEST)
def test_the_table_is_what_the_environments_hold(page: str) -> None:
    (table,) = (
        table for table in tables(read(page)) if table[0][:4] == ["MindSpore", "protobuf", "NumPy", "TensorBoard"]
    )
    named: list[str] = []
    for *cells, environments in table[1:]:
        names = re.findall(r"`([\w-]+)`", environments)
        named += names
        for package, cell in zip(PACKAGES, cells, strict=True):
            versions = cell.split(", ")
            versions = versions if len(versions) == len(names) else versions * len(names)
            for name, version in zip(names, versions, strict=True):
                assert shown(package, name, NEWEST[page]) == version, (name, package)
    assert sorted(named) == sorted(["main", *rows_of_matrix()])


def test_what_the_matrix_noted_is_what_the_environments_hold() -> None:
    record = json.loads((ROOT / "docs" / "matrix.json").read_text(encoding="utf-8"))
    assert record.keys() == {*rows_of_matrix()}, "a row says: not noted yet"
    for name, run in record.items():
        for package, version in run["packages"].items():
            pin = pins(name).get(package)
            assert pin is None or pin.specifier.contains(version), (name, package)
        assert (run["result"], run["passed"] > 0) == ("ok", True), name
    table = write_matrix()
    assert all(f"| `{name}` |" in table for name in rows_of_matrix())


def shown(package: str, environment: str, newest: str) -> str:
    """Returns what the table says of a package in an environment."""
    held = pins(environment)
    pin = held.get(package)
    text = (ENVIRONMENTS / f"{environment}.txt").read_text(encoding="utf-8")
    if pin is None and package == "numpy" and "[mindspore]" in text:  # setup.py's extra says it
        pin = Requirement("numpy<2")
    if pin is None:
        return newest if package in ("protobuf", "numpy") else "-"
    specifier = str(pin.specifier)
    if specifier == "<2":
        return "1"
    if specifier.startswith("=="):
        return specifier.removeprefix("==").removesuffix(".*")
    return min(str(part).removeprefix(">=") for part in pin.specifier if str(part).startswith(">="))


@pytest.mark.mindspore
def test_mindinsight_fits_beside_no_mindspore_of_now() -> None:
    wanted = requirements("\n".join(metadata.requires("mindspore") or ()))["protobuf"].specifier
    assert not wanted.contains(str(pins("mindinsight")["protobuf"].specifier).removeprefix("=="))


def test_tools_and_their_help_name_every_environment() -> None:
    for tool in ("environment", "matrix"):
        subprocess.run(["bash", "-n", ROOT / "tools" / tool], check=True, timeout=60)
    done = subprocess.run([ROOT / "tools" / "environment"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    for name in rows_of_matrix():
        assert (ENVIRONMENTS / f"{name}.txt").is_file(), name


def test_a_test_ends_its_children_by_a_signal_that_is_ignored(tmp_path: Path) -> None:
    """As `nohup ./tools/test &` and some runners start the tests."""
    (tmp_path / "test_one.py").write_text(
        "import signal, subprocess, sys\n"
        "def test_it():\n"
        "    code = 'import signal; print(*map(signal.getsignal, (signal.SIGINT, signal.SIGHUP)))'\n"
        "    said = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout\n"
        "    assert 'default_int_handler' in said and said.endswith(('SIG_DFL\\n', ' 0\\n')), said\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-n",
        "1",
        "-c",
        "/dev/null",
        str(tmp_path),
    ]
    done = subprocess.run(
        ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run_setup(monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...]) -> dict[str, Any]:
    """Returns what setup.py tells setuptools on a Python of this version."""
    told: dict[str, Any] = {}
    monkeypatch.setattr("setuptools.setup", lambda **options: told.update(options))
    monkeypatch.setattr(sys, "version_info", version)
    exec(compile((ROOT / "setup.py").read_text(), "setup.py", "exec"), {"__file__": str(ROOT / "setup.py")})
    return told


def test_an_older_python_is_refused_with_the_line_that_makes_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit, match=r"needs Python 3\.10 or newer; this is 3\.9\.") as refused:
        run_setup(monkeypatch, (3, 9, 18))
    line = re.search(r"conda create -n mindspore python=(3\.\d+)", str(refused.value))
    assert line is not None
    told = run_setup(monkeypatch, (3, 10, 0))
    assert told["python_requires"] == ">=3.10"
    assert f"Programming Language :: Python :: {line[1]}" in told["classifiers"]
    for page in ("docs/first-run.md", "docs/first-run.zh.md"):
        assert line[0] in (ROOT / page).read_text(encoding="utf-8")
