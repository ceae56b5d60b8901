"""Checks that what is committed can be released, in a few minutes; it changes nothing, and uploads nothing.

Usage: tools/release --check [STEP...]     default: all of them

  version    it is one that pip sorts, setup.py says the same, and no tag has it yet
  changelog  the top entry has the version and a date, and says something
  tree       all is committed
  docs       the pages are whole, their links lead somewhere, their claims have tests, the protos are new; the site
             builds without a warning
  security   bandit finds nothing in the package, and pip-audit nothing in what it needs, where an index answers
  build      wheel and sdist from a clean copy of the commit: what is in them, and what a package index shows of them
  install    on each Python 3.10 to 3.13 found here, in an environment of its own: the same wheel and sdist are built,
             the wheel alone reads a log, and the tests of the sdist that need no training run from it
  sdist      more tests of the sdist run from it, with all that the tests need

The last lines tell how each ended; the exit code is 1 where one failed. `tools/test` has the tests themselves.
"""

from __future__ import annotations

import argparse
import email.parser
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "ms_summary_bridge"
MINORS = (10, 11, 12, 13)
LEFT_OUT = {".gitcode", ".github", ".workflow", ".ci"}
"""What an sdist may lack."""
DOCUMENTS = [
    "test_claims",
    "test_claimed_numbers",
    "test_links",
    "test_manual",
    "test_project",
    "test_versions",
    "test_formats_page",
    "test_site",
]
SMOKE = """
import sys
from ms_summary_bridge import *
from ms_summary_bridge import __version__, read_scalars
table = read_scalars(sys.argv[1])
assert len(table) == 5 and not table.problems, table
print(__version__)
"""


class Checked:
    """What a check found: faults, and what it could not look at."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.notes: list[str] = []

    def expect(self, is_so: bool, fault: str) -> None:
        """Notes a fault unless something is so."""
        if not is_so:
            self.faults.append(fault)


def run(*command: object, cwd: Path = ROOT, secs: float = 900, **environment: str) -> str:
    """Runs a program to its end, and returns what it said; a failure is a RuntimeError with its last lines."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=secs,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command[:6]))}: {(done.stdout + done.stderr)[-1500:]}")
    return done.stdout


# ---------------------------------------------------------------- what is looked at


def read_version(root: Path) -> str:
    """Returns the version as it is written."""
    text = (root / PACKAGE / "_version.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    return match[1] if match else ""


def check_version(root: Path, found: Checked, tags: list[str]) -> None:
    """Compares the version with setup.py's and with the tags."""
    version = read_version(root)
    found.expect(
        bool(re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version)), f"{version!r} is not like 1.2.3 or 1.2.3rc1"
    )
    said = run(sys.executable, "setup.py", "--version", cwd=root).split()[-1]
    found.expect(said == version, f"setup.py says {said}, _version.py {version}")
    found.expect(f"v{version}" not in tags, f"the tag v{version} is there already: raise the version in _version.py")


def check_changelog(root: Path, found: Checked) -> None:
    """Reads the newest entry of the changelog."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    version = read_version(root)
    entries = re.findall(r"^## \[(.+?)\](.*)\n((?:(?!## ).*\n?)*)", text, re.MULTILINE)
    name, tail, body = entries[0] if entries else ("", "", "")
    found.expect(name == version, f"the top entry is for {name or 'nothing'}, the version is {version}")
    dated = bool(re.fullmatch(r" - \d{4}-\d{2}-\d{2}", tail))
    found.expect(dated, f"the entry {name}{tail} has no date: write ## [{version}] - {time.strftime('%Y-%m-%d')}")
    found.expect("\n- " in body, f"the entry {name} says nothing")


def committed(root: Path) -> list[str]:
    """Returns the names of all files of the commit."""
    return run("git", "-c", "core.quotepath=off", "ls-tree", "-r", "--name-only", "HEAD", cwd=root).splitlines()


def export_commit(root: Path, directory: Path) -> Path:
    """Writes what is committed into a new directory, without git's own, and returns it."""
    directory.mkdir(parents=True)
    archive = directory.parent / "commit.tar"
    run("git", "archive", "--output", archive, "HEAD", cwd=root)
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    archive.unlink()
    return directory


def find_repository(root: Path) -> str:
    """Returns the address that setup.py finds for a checkout."""
    program = (
        "import runpy, setuptools; setuptools.setup = lambda **_: None; print(runpy.run_path('setup.py')['REPOSITORY'])"
    )
    return run(sys.executable, "-c", program, cwd=root).strip()


def build(tree: Path, out: Path, repository: str, python: Path = Path(sys.executable)) -> tuple[Path, Path]:
    """Makes the sdist of a tree, and the wheel of the sdist, with a Python that has what builds them; returns both."""
    command = [python, "-m", "build", "--no-isolation", "--outdir", out, tree]
    run(*command, cwd=tree, MSB_REPOSITORY=repository, PYTHONPATH="")
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def contents_of(wheel: Path) -> dict[str, bytes]:
    """Returns the files of a wheel by name, and its entry points; the rest differs by the tool that made it."""
    with zipfile.ZipFile(wheel) as file:
        names = [name for name in file.namelist() if ".dist-info/" not in name or name.endswith("/entry_points.txt")]
        return {name: file.read(name) for name in names}


def unpack(sdist: Path, directory: Path) -> Path:
    """Unpacks an sdist, and returns the directory in it."""
    with tarfile.open(sdist) as tar:
        tar.extractall(directory, filter="data")
    (tree,) = directory.iterdir()
    return tree


def metadata_of(wheel: Path) -> Message:
    """Returns the metadata of a wheel; its payload is the long description."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        return email.parser.Parser().parsestr(file.read(name).decode())


def check_wheel(wheel: Path, files: list[str], version: str, found: Checked) -> None:
    """Looks at what is in a wheel, and at what a package index shows of it."""
    with zipfile.ZipFile(wheel) as file:
        inside = {name for name in file.namelist() if ".dist-info/" not in name}
        (entry_points,) = (file.read(name).decode() for name in file.namelist() if name.endswith("entry_points.txt"))
    wanted = {name for name in files if name.startswith(f"{PACKAGE}/")}
    found.expect(
        inside == wanted, f"wheel: missing {sorted(wanted - inside)[:5]}, too much {sorted(inside - wanted)[:5]}"
    )
    found.expect(f"{PACKAGE}/py.typed" in inside, "wheel: no py.typed, so type checkers ignore it")
    for name in ("ms-summary-bridge = ", "msb = ", "mindspore = "):
        found.expect(name in entry_points, f"wheel: no entry point {name.split()[0]}")
    metadata = metadata_of(wheel)
    found.expect(metadata["Version"] == version, f"wheel: it says version {metadata['Version']}")
    found.expect(metadata["Requires-Python"] == ">=3.10", f"wheel: Requires-Python {metadata['Requires-Python']}")
    urls = metadata.get_all("Project-URL") or []
    text = metadata.get_payload()
    relative = re.findall(r"\]\((?![a-z]+:|#)([^)]*)\)", text if isinstance(text, str) else "")
    if urls:
        found.expect(not relative, f"wheel: links of the long description that lead nowhere: {relative[:3]}")
    else:
        found.notes.append(
            "no address of a repository (git remote add origin, or MSB_REPOSITORY): no project URLs, and"
        )
        found.notes.append(f"{len(relative)} links and pictures of the long description lead nowhere")


def check_sdist(sdist: Path, files: list[str], found: Checked) -> None:
    """Compares what is in an sdist with what is committed."""
    with tarfile.open(sdist) as tar:
        inside = {member.name.partition("/")[2] for member in tar.getmembers() if member.isfile()}
    lost = sorted(name for name in files if name not in inside and name.split("/")[0] not in LEFT_OUT)
    found.expect(not lost, f"sdist: {len(lost)} files are missing, such as {lost[:5]}; see MANIFEST.in")
    made = {"PKG-INFO", "setup.cfg"}
    more = sorted(name for name in inside - set(files) - made if ".egg-info/" not in name)
    found.expect(not more, f"sdist: not committed: {more[:5]}")


def find_pythons() -> dict[int, Path]:
    """Returns a Python of each minor version that can make environments, of PATH, pyenv or uv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    pythons: dict[int, Path] = {}
    for minor in MINORS:
        names = [
            shutil.which(f"python3.{minor}"),
            *pyenv.glob(f"3.{minor}.*/bin/python"),
            *uv.glob(f"*-3.{minor}.*/bin/python3"),
        ]
        for name in filter(None, names):
            test = f"import ensurepip, sys, venv; sys.exit(sys.version_info[:2] != (3, {minor}))"
            if subprocess.run([str(name), "-c", test], capture_output=True, check=False).returncode == 0:
                pythons[minor] = Path(name)
                break
    return pythons


def make_environment(python: Path, directory: Path, *packages: object) -> Path:
    """Makes an environment with packages, and returns its Python."""
    run(python, "-m", "venv", directory)
    inside = directory / "bin" / "python"
    install(inside, *packages)
    return inside


def install(inside: Path, *packages: object) -> None:
    """Installs packages into the environment of a Python."""
    command = (inside, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages)
    # Neither PYTHONPATH nor the directory may lead to this checkout: pip would find the package installed already.
    run(*command, cwd=inside.parent, PYTHONPATH="")


def check_python(python: Path, release: Release, log: Path, directory: Path) -> None:
    """Installs the wheel alone and reads a log, builds, and tests the sdist; a failure is a RuntimeError."""
    wheel = release.built[0]
    inside = make_environment(python, directory / "venv", wheel)

    def try_it(*command: object, cwd: Path = directory) -> str:
        return run(*command, cwd=cwd, PYTHONPATH="").strip()

    try_it(inside, "-m", "pip", "check")
    version = read_version(release.root)
    said = try_it(inside, "-W", "error", "-c", SMOKE, log)
    if said != version or try_it(directory / "venv" / "bin" / "msb", "--version") != version:
        raise RuntimeError(f"the installed one says {said}")
    try_it(directory / "venv" / "bin" / "ms-summary-bridge", "convert", log, directory / "converted")
    try_it(directory / "venv" / "bin" / "ms-summary-bridge", "verify", log, directory / "converted")

    more = ("build", "setuptools>=64", "wheel", "pytest>=8.0", "pytest-timeout>=2.3")
    install(inside, f"{wheel}[tensorboard,parquet]", *more)
    tree = export_commit(release.root, directory / "clean" / "tree")
    own_wheel, own_sdist = build(tree, directory / "dist", find_repository(release.root), inside)
    ours, others = contents_of(own_wheel), contents_of(wheel)
    if odd := sorted(name for name in {*ours, *others} if ours.get(name) != others.get(name)):
        raise RuntimeError(f"its wheel differs from that of Python {sys.version.split()[0]} in {odd[:5]}")
    unpacked = unpack(own_sdist, directory / "sdist")
    room = unpacked / "tests" / "any_system"
    try_it(inside, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--confcutdir={room}", room, cwd=unpacked)


# ---------------------------------------------------------------- the steps


class Release:
    """The steps; what an earlier one has made, a later one uses."""

    def __init__(self, root: Path, scratch: Path) -> None:
        self.root = root
        self.scratch = scratch
        self._built: tuple[Path, Path] | None = None

    @property
    def built(self) -> tuple[Path, Path]:
        """The wheel and the sdist of the commit."""
        if self._built is None:
            tree = export_commit(self.root, self.scratch / "tree")
            self._built = build(tree, self.scratch / "dist", find_repository(self.root))
        return self._built

    def version(self, found: Checked) -> None:
        """See the first lines of this file; so for the others."""
        check_version(self.root, found, run("git", "tag", cwd=self.root).split())

    def changelog(self, found: Checked) -> None:
        check_changelog(self.root, found)

    def tree(self, found: Checked) -> None:
        changed = run("git", "status", "--porcelain", cwd=self.root).splitlines()
        found.expect(not changed, f"not committed: {changed[:5]}")

    def docs(self, found: Checked) -> None:
        tests = [path for name in DOCUMENTS if (path := self.root / "tests" / "project" / f"{name}.py").is_file()]
        chosen = ("-m", "not slow and not mindspore and not mindformers", "-p", "no:cacheprovider")
        run(sys.executable, "-m", "pytest", "-q", "-x", *chosen, *tests, cwd=self.root, PYTHONPATH=str(self.root))
        for tool in ("build_protos", "draw_rooms.py"):
            run(sys.executable, self.root / "tools" / tool, "--check", cwd=self.root)

    def security(self, found: Checked) -> None:
        if importlib.util.find_spec("bandit") is None:
            found.notes.append("not looked at: bandit is not installed (pip install bandit)")
        else:
            run(sys.executable, "-m", "bandit", "-qq", "-c", "pyproject.toml", "-r", PACKAGE, cwd=self.root)
        audit = ("-m", "pip_audit", "--progress-spinner", "off", "--skip-editable", self.root)
        if importlib.util.find_spec("pip_audit") is None:
            found.notes.append("no audit of the packages: pip-audit is not installed")
            return
        done = subprocess.run(
            [sys.executable, *map(str, audit)], capture_output=True, text=True, timeout=300, check=False
        )
        known = re.search(r"^Found \d+ known vulnerabilit.*", done.stderr, re.MULTILINE)
        if known:
            found.faults.append(f"{known[0]}\n{done.stdout[-1500:]}")
        elif done.returncode:
            found.notes.append(
                f"no audit of the packages: {(done.stderr.strip().splitlines() or ['no answer'])[-1][:200]}"
            )

    def build(self, found: Checked) -> None:
        wheel, sdist = self.built
        files = committed(self.root)
        check_wheel(wheel, files, read_version(self.root), found)
        check_sdist(sdist, files, found)

    def install(self, found: Checked) -> None:
        log = self.scratch / "log"
        log.mkdir()
        shutil.copy(
            self.root / "tests/data/mindspore-2.10-summary.bin", log / "events.out.events.summary.1700000000.0.host_MS"
        )
        pythons = find_pythons()
        missing = [f"3.{minor}" for minor in MINORS if minor not in pythons]
        if missing:
            found.notes.append(f"not tried, since it is not here: Python {', '.join(missing)}")
        for minor, python in pythons.items():
            try:
                check_python(python, self, log, self.scratch / f"python-3.{minor}")
            except (RuntimeError, OSError) as error:
                found.faults.append(f"Python 3.{minor}: {error}")
        found.expect(bool(pythons), "there is no Python to try")

    def sdist(self, found: Checked) -> None:
        tree = unpack(self.built[1], self.scratch / "sdist")
        run(sys.executable, "-m", "pytest", "-q", "tests/files", "tests/columns",
            cwd=tree, PYTHONPATH=str(tree))  # fmt: skip


STEPS: dict[str, Callable[[Release, Checked], None]] = {
    name: getattr(Release, name)
    for name in ("version", "changelog", "tree", "docs", "security", "build", "install", "sdist")
}


def check(root: Path, steps: list[str]) -> Iterator[tuple[str, str, float, list[str]]]:
    """Yields of each step its name, how it ended, its seconds, and what it says."""
    with tempfile.TemporaryDirectory(prefix="release-") as scratch:
        release = Release(root, Path(scratch))
        for name in steps:
            found, start = Checked(), time.monotonic()
            try:
                STEPS[name](release, found)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                found.faults.append(str(error))
            yield name, "FAILED" if found.faults else "ok", time.monotonic() - start, found.faults + found.notes


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Runs the steps, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="tools/release", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", required=True, help="check; there is nothing else it does")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    chosen = parser.parse_args(arguments).steps
    unknown = [name for name in chosen if name not in STEPS]
    if unknown:
        parser.error(f"no such step: {', '.join(unknown)}; there are {', '.join(STEPS)}")
    code = 0
    for name, word, secs, lines in check(root, chosen or list(STEPS)):
        code |= word != "ok"
        print(f"{name:<10} {word:<6} {secs:4.0f} s", flush=True)
        for line in lines:
            print(f"           {line}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
