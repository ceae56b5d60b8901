"""Wheel and sdist of these files, what tools/release finds wrong, completion, the container, and CI."""

from __future__ import annotations

import fnmatch
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import ms_summary_bridge
from tests.mindspore_run import scalars, write_summary
from tests.project.test_public_names import CALLBACKS
from tests.project.test_readme import make_environment
from tools import release
from tools.tensorboard_api import TensorBoardClient, stop_process

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY = "https://example.org/group/project"

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="these files are not of a checkout")


def git(*arguments: object, cwd: Path) -> str:
    return release.run("git", "-c", "user.name=a", "-c", "user.email=a@example.org", *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A commit of the files as they are now, in a repository of its own."""
    tree = tmp_path_factory.mktemp("clean") / "project"
    for name in release.run("git", "ls-files", "-co", "--exclude-standard", "-z", cwd=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)
    git("init", "-q", cwd=tree)
    git("add", "-A", cwd=tree)
    git("commit", "-qm", "all", cwd=tree)
    git("remote", "add", "origin", "https://somebody:s3cret@example.org/group/project.git", cwd=tree)
    return tree


@pytest.fixture(scope="module")
def built(clean: Path) -> tuple[Path, Path]:
    """The wheel and the sdist of it."""
    pytest.importorskip("build")
    tree = release.export_commit(clean, clean.parent / "tree")
    return release.build(tree, clean.parent / "dist", release.find_repository(clean))


# ---------------------------------------------------------------- wheel and sdist


def test_the_wheel_is_whole_and_its_links_lead_into_the_repository(clean: Path, built: tuple[Path, Path]) -> None:
    found = release.Checked()
    version = release.read_version(clean)
    release.check_wheel(built[0], release.committed(clean), version, found)
    assert (found.faults, found.notes) == ([], [])
    metadata = release.metadata_of(built[0])
    assert f"Source, {REPOSITORY}" in metadata.get_all("Project-URL", [])
    text = metadata.get_payload()
    assert isinstance(text, str)
    assert "s3cret" not in "".join(metadata.get_all("Project-URL", [])) + text
    pictures = re.findall(r"!\[[^\]]*\]\((.*?)\)", text)
    assert pictures
    for picture in pictures:
        prefix = f"{REPOSITORY}/raw/v{version}/"
        assert picture.startswith(prefix)
        assert (clean / picture.removeprefix(prefix)).is_file()
    for name in re.findall(rf"{REPOSITORY}/blob/v{version}/([^)#]*)", text):
        assert (clean / name).exists(), name


def test_a_wheel_that_lacks_something_is_refused(clean: Path, built: tuple[Path, Path], tmp_path: Path) -> None:
    bad = tmp_path / built[0].name
    with zipfile.ZipFile(built[0]) as whole, zipfile.ZipFile(bad, "w") as file:
        for name in whole.namelist():
            if not name.endswith("py.typed"):
                file.writestr(name, whole.read(name))
    found = release.Checked()
    release.check_wheel(bad, [*release.committed(clean), "ms_summary_bridge/more.py"], "9.9.9", found)
    assert len(found.faults) == 3
    assert "more.py" in found.faults[0]
    assert "type checkers" in found.faults[1]
    assert "version" in found.faults[2]


def test_the_sdist_has_all_files_and_its_tests_run(clean: Path, built: tuple[Path, Path], tmp_path: Path) -> None:
    found = release.Checked()
    release.check_sdist(built[1], release.committed(clean), found)
    assert found.faults == []
    release.check_sdist(built[1], [*release.committed(clean), "docs/more.md"], found)
    assert "docs/more.md" in found.faults[0]
    with tarfile.open(built[1]) as tar:
        tar.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    assert release.find_repository(tree) == REPOSITORY, "it is forgotten"
    said = release.run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/files/test_atomic.py",
        "tests/project/test_packaging.py", cwd=tree, PYTHONPATH=str(tree),
    )  # fmt: skip
    assert " passed" in said
    assert " skipped" in said


@pytest.mark.parametrize(
    ("address", "expected"),
    {
        "https://example.org/group/project.git": REPOSITORY,
        "https://example.org/group/project/": REPOSITORY,
        "https://somebody:secret@example.org/group/project.git": REPOSITORY,
        "git@example.org:group/project.git": REPOSITORY,
        "ssh://git@example.org:22/group/project.git": REPOSITORY,
        "/home/somebody/project": "",
        "../project": "",
        "": "",
    }.items(),
)
def test_the_address_of_the_repository_is_that_of_the_clone(
    address: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MSB_REPOSITORY", raising=False)
    for name in ("setup.py", "README.md", "ms_summary_bridge/_version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git("init", "-q", cwd=tmp_path)
    if address:
        git("remote", "add", "origin", address, cwd=tmp_path)
    assert release.find_repository(tmp_path) == expected
    (tmp_path / "PKG-INFO").write_text(f"Project-URL: Source, {REPOSITORY}\n")
    assert release.find_repository(tmp_path) == REPOSITORY


# ---------------------------------------------------------------- the release check


@pytest.fixture
def ready(clean: Path, tmp_path: Path) -> Path:
    """A clone that may be released."""
    tree = tmp_path / "clone"
    git("clone", "-q", clean, tree, cwd=tmp_path)
    changelog = tree / "CHANGELOG.md"
    version = release.read_version(tree)
    changelog.write_text(
        re.sub(rf"^## \[{version}\].*", f"## [{version}] - 2030-01-31", changelog.read_text(), flags=re.M)
    )
    git("commit", "-qam", "date", cwd=tree)
    return tree


FAST = ["version", "changelog", "tree"]


def change(tree: Path, name: str, old: str, new: str) -> None:
    """Commits a change of a file."""
    text = (tree / name).read_text(encoding="utf-8")
    assert old in text
    (tree / name).write_text(text.replace(old, new, 1), encoding="utf-8")
    git("commit", "-qam", "change", cwd=tree)


def plant_tag(tree: Path) -> None:
    git("tag", f"v{release.read_version(tree)}", cwd=tree)


def plant_version(tree: Path) -> None:
    change(tree, "ms_summary_bridge/_version.py", f'"{release.read_version(tree)}"', '"1.2-final"')


def plant_raised_version(tree: Path) -> None:
    change(tree, "ms_summary_bridge/_version.py", f'"{release.read_version(tree)}"', '"9.8.7"')


def plant_another_version_in_setup(tree: Path) -> None:
    change(tree, "setup.py", "version=VERSION", 'version="9.8.7"')


def plant_no_entry(tree: Path) -> None:
    change(tree, "CHANGELOG.md", f"## [{release.read_version(tree)}] - 2030-01-31", "")


def plant_undated(tree: Path) -> None:
    change(tree, "CHANGELOG.md", "2030-01-31", "Unreleased")


def plant_empty_entry(tree: Path) -> None:
    change(tree, "CHANGELOG.md", "2030-01-31\n", "2030-01-31\n\n## [0.0.1] - 2029-01-31\n")


def plant_change(tree: Path) -> None:
    (tree / "README.md").write_text("new")


def plant_file(tree: Path) -> None:
    (tree / "new.py").write_text("")


def test_a_release_that_is_ready_passes(ready: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["--check", *FAST], ready) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [[name, "ok"] for name in FAST]


PLANTS: dict[Callable[[Path], None], dict[str, str]] = {
    plant_tag: {"version": "is there already: raise the version in _version.py"},
    plant_version: {"version": "'1.2-final' is not like 1.2.3", "changelog": "the version is 1.2-final"},
    plant_raised_version: {"changelog": "the version is 9.8.7"},
    plant_another_version_in_setup: {"version": "setup.py says 9.8.7, _version.py"},
    plant_no_entry: {"changelog": "the top entry is for nothing"},
    plant_undated: {"changelog": "has no date: write ## ["},
    plant_empty_entry: {"changelog": "says nothing"},
    plant_change: {"tree": "README.md"},
    plant_file: {"tree": "new.py"},
}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_what_is_not_ready_is_named(plant: Callable[[Path], None], ready: Path) -> None:
    plant(ready)
    failed = {name: lines for name, word, _, lines in release.check(ready, FAST) if word == "FAILED"}
    assert failed.keys() == PLANTS[plant].keys()
    for name, words in PLANTS[plant].items():
        assert words in "\n".join(failed[name])


def test_a_page_with_a_lost_link_stops_a_release(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The site itself would not be built either: test_site.py plants that, which takes longer."""
    monkeypatch.setattr(release, "DOCUMENTS", ["test_links"])
    (ready / "docs" / "index.md").write_text("# Title\n\n[there](gone.md)\n", encoding="utf-8")
    ((_, word, _, lines),) = release.check(ready, ["docs"])
    assert word == "FAILED"
    assert "gone.md: no such file" in "\n".join(lines)


@pytest.mark.slow
def test_a_wheel_that_setup_makes_without_a_file_stops_a_release(ready: Path) -> None:
    pytest.importorskip("build")
    change(ready, "setup.py", '            "viewers/mindinsight.txt",\n', "")
    ((_, word, _, lines),) = release.check(ready, ["build"])
    assert word == "FAILED"
    assert "wheel: missing ['ms_summary_bridge/viewers/mindinsight.txt']" in "\n".join(lines)


def test_a_failing_program_fails_its_step_and_not_the_others(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("pip: no matching distribution")

    monkeypatch.setitem(release.STEPS, "changelog", fail)
    results = [(name, word, lines) for name, word, _, lines in release.check(ready, FAST)]
    assert results[1] == ("changelog", "FAILED", ["pip: no matching distribution"])
    assert [word for _, word, _ in results] == ["ok", "FAILED", "ok"]


@pytest.mark.slow
def test_the_wheel_is_installed_alone_and_reads_a_log(built: tuple[Path, Path], tmp_path: Path) -> None:
    """With what is installed here for its requirements, since a test does not download them."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = environment / "bin" / "python"
    options = ("-q", "--no-deps", "--no-index", "--force-reinstall")
    release.run(sys.executable, "-m", "pip", "--python", python, "install", *options, built[0])
    log = write_summary(tmp_path / "log", scalars("loss", range(5)))
    said = release.run(python, "-W", "error", "-c", release.SMOKE, log.parent, cwd=tmp_path, PYTHONPATH="")
    assert said.strip() == ms_summary_bridge.__version__
    release.run(environment / "bin" / "msb", "inspect", log, cwd=tmp_path, PYTHONPATH="")


# ---------------------------------------------------------------- types

SCRIPT = '''
"""A script that a user checks strictly; it names everything that is public."""

import threading

from ms_summary_bridge import *
from ms_summary_bridge import (
    NAMES,
)


def scalars_of(event: Event) -> list[float]:
    return [point.value.value for point in iter_points(event) if isinstance(point.value, Scalar)]


report: Report = convert_logdir("summaries", "logs", options=ConvertOptions(keep_archive=False))
runs: list[str] = [run.run for run in report.runs]
total: Report | None = follow_logdir("summaries", "logs", stop=threading.Event())
is_equal: bool = verify_logdirs("summaries", "logs").is_equal
view("logs", port=0)
with Monitor({"save_dir": "runs", "metrics": ["loss"]}) as monitor:
    monitor.step(loss=0.5)
callbacks = [SummaryBridge("summaries", collect_freq=2), *build_monitor_callbacks("monitor.yaml")]
wrong: int = discover
'''


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_strict_script_of_a_user_is_checked_by_our_types(built: tuple[Path, Path], tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    # As the wheel installs it: a package in site-packages has types for others only if it has py.typed.
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=120)
    packages = next(environment.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(built[0]) as wheel:
        wheel.extractall(packages)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    names = ",\n    ".join(sorted({*ms_summary_bridge.__all__, *CALLBACKS}))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("NAMES", names))
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", str(tmp_path / "cache")]
    command += ["--python-executable", str(environment / "bin" / "python"), str(script)]
    done = subprocess.run(
        command,
        capture_output=True, text=True, timeout=500, cwd=tmp_path, env={**os.environ, "MYPYPATH": ""}, check=False,
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    # The one wrong line of it, which proves that the types come through.
    assert len(errors) == 1, done.stdout + done.stderr
    assert "Incompatible types in assignment" in errors[0]
    assert 'variable has type "int"' in errors[0]


# ---------------------------------------------------------------- completion


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the two programs, as pip makes them."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("ms-summary-bridge", "msb"):
        path = directory / name
        path.write_text(f"#!{sys.executable}\nimport sys\nfrom ms_summary_bridge.cli import main\nsys.exit(main())\n")
        path.chmod(0o755)
    return directory


@pytest.mark.parametrize("name", ["ms-summary-bridge", "msb"])
def test_completion_is_installed_for_the_name_that_is_called(name: str, programs: Path, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    environment = {"HOME": str(tmp_path), "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    script = f"""
{name} --install-completion >/dev/null || exit 1
source ~/.bash_completions/{name}.sh
complete -p {name} >/dev/null || exit 2
function=$(complete -p {name} | sed 's/.*-F \\([^ ]*\\).*/\\1/')
try() {{ COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); COMPREPLY=(); $function "$1"; echo "${{COMPREPLY[@]}}"; }}
try {name} con
try {name} export --fo
try {name} export --format p
"""
    done = subprocess.run(
        [bash, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["convert", "config"],
        ["--format", "--force"],
        ["parquet"],
    ]


@pytest.mark.parametrize("shell", ["zsh", "fish", "pwsh"])
def test_other_shells_get_the_same_answers(shell: str, programs: Path, tmp_path: Path) -> None:
    """As the lines that --install-completion writes for them ask, whether or not the shell is installed here."""
    for typed, wanted in (("con", ["convert", "config"]), ("export --format p", ["parquet"])):
        asked = {
            "_MSB_COMPLETE": f"complete_{shell}",
            "_TYPER_COMPLETE_ARGS": f"msb {typed}",
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
            "_TYPER_COMPLETE_WORD_TO_COMPLETE": typed.split()[-1],
        }
        variables = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT), **asked}
        said = subprocess.run(
            [programs / "msb"], env=variables, capture_output=True, text=True, timeout=60, cwd=tmp_path
        )
        words = re.findall(r'(?:^|[("])([a-z]+)(?=[":\t]|$)', said.stdout, re.MULTILINE)
        assert words == wanted, said.stdout


# ---------------------------------------------------------------- the container


def instructions() -> list[tuple[str, str]]:
    """Returns the instructions of the Dockerfile with their arguments."""
    text = re.sub(r"\\\n", " ", (ROOT / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines]


def test_the_dockerfile_is_sound(tmp_path: Path) -> None:
    found = instructions()
    assert {name for name, _ in found} <= {"FROM", "COPY", "RUN", "USER", "EXPOSE", "ENTRYPOINT", "CMD"}
    stages = [arguments.split()[-1] for name, arguments in found if name == "FROM" and " AS " in arguments]
    copied = [shlex.split(arguments) for name, arguments in found if name == "COPY"]
    assert copied[0] == [".", "/src"]
    assert copied[1][0] == f"--from={stages[0]}"
    minor = int(re.search(r"FROM python:3\.(\d+)", (ROOT / "Dockerfile").read_text())[1])  # type: ignore[index]
    assert minor in release.MINORS
    for name, arguments in found:
        if name == "RUN":
            subprocess.run(["sh", "-n", "-c", arguments], check=True, timeout=10)
    names = [name for name, _ in found]
    assert names.index("USER") < names.index("CMD"), "it runs as root"
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", ".venvs"} <= set(ignored)


def ignored_by_docker(name: str) -> bool:
    """Whether .dockerignore keeps a file out of what is copied; it has names, `**/` and `*` alone."""
    patterns = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    parts = name.split("/")
    return any(
        fnmatch.fnmatchcase(part, pattern.removeprefix("**/"))
        for pattern in patterns
        for part in (parts if pattern.startswith("**/") else parts[:1])
    )


@pytest.fixture(scope="module")
def container(clean: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the instructions of the Dockerfile make, below a directory instead of `/`; returns the variables for it.

    The requirements are those installed here, since a test downloads nothing, and no user is added.
    """
    root = tmp_path_factory.mktemp("container")
    variables = {**os.environ, "PYTHONPATH": "", **make_environment(root / "environment")}
    programs = root / "programs"
    programs.mkdir()
    (programs / "useradd").write_text(f'#!/bin/sh\necho "$@" >{root}/users\n')
    (programs / "useradd").chmod(0o755)
    variables["PATH"] = f"{programs}:{variables['PATH']}"
    for name, arguments in instructions():
        if name == "COPY" and not arguments.startswith("--from"):
            for path in release.committed(clean):
                if not ignored_by_docker(path):
                    (root / "src" / path).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(clean / path, root / "src" / path)
        elif name == "RUN":
            line = re.sub(r"(?<![\w.*])/(?=src|wheels)", f"{root}/", arguments)
            subprocess.run(["sh", "-ec", line], env=variables, check=True, timeout=240, cwd=root, capture_output=True)
        elif name == "USER":
            assert (root / "users").read_text().split()[-1] == arguments
    return variables


@pytest.mark.tensorboard
@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="setuptools is not installed")
def test_what_the_container_runs_shows_a_summary_directory(container: dict[str, str], tmp_path: Path) -> None:
    write_summary(tmp_path / "logs" / "run", scalars("loss", range(5)))
    found = dict(instructions())
    command = [*json.loads(found["ENTRYPOINT"]), *json.loads(found["CMD"])]
    assert command[2] == "/logs"
    assert command[-1] == found["EXPOSE"]
    command[2], command[-1] = str(tmp_path / "logs"), "0"
    command[0] = str(shutil.which(command[0], path=container["PATH"]))
    assert Path(command[0]).is_relative_to(container["HOME"]), "another one than it has installed"
    with (tmp_path / "said.txt").open("w") as said:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            env={**container, "XDG_CACHE_HOME": str(tmp_path)},
            cwd=tmp_path,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address.startswith("http://"), (tmp_path / "said.txt").read_text()
            client = TensorBoardClient(f"http://127.0.0.1:{address.rstrip('/').rsplit(':', 1)[1]}")
            points = client.wait_json(
                "data/plugin/scalars/scalars", lambda found: len(found) == 5, run="run", tag="loss"
            )
            assert [step for _, step, _ in points] == [0, 1, 2, 3, 4]
        finally:
            stop_process(process)
            process.communicate()


# ---------------------------------------------------------------- CI


def test_each_host_runs_what_everybody_runs() -> None:
    github, gitcode, gitee = (
        yaml.safe_load((ROOT / name / "ci.yml").read_text(encoding="utf-8"))
        for name in (".github/workflows", ".gitcode/workflows", ".workflow")
    )
    for host in (github, gitcode):
        steps = host["jobs"]["linux"]["steps"]
        assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
        assert [step["uses"].partition("@")[0].rpartition("/")[2] for step in steps[:2]] == ["checkout", "setup-python"]
        assert {*host[True]} == {"push", "pull_request"}  # YAML takes the word `on` for true
    assert [step["commands"] for stage in gitee["stages"] for step in stage["steps"]] == [[".ci/run"]]
    versions = [
        steps[1]["with"]["python-version"] for steps in (h["jobs"]["linux"]["steps"] for h in (github, gitcode))
    ]
    versions += [step["pythonVersion"] for stage in gitee["stages"] for step in stage["steps"]]
    assert len(set(versions)) == 1
    assert int(versions[0].removeprefix("3.")) in release.MINORS
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "exec ./tools/test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
