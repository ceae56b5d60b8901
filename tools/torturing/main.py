"""The command line of tools/torture."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torturing
from torturing import report
from torturing.sharing import run_shared

_JOBS = 2
_WEIGHTS = {"fail": 5.0, "crash": 1.5, "size": 1.2}
"""What these need of the time before nothing is left to try; all others can go on for ever."""
_SHARE = 0.9
"""Of its time, that a part may plan for; the rest is for what it began last."""


def part_names() -> list[str]:
    """Returns the modules of all parts: those in which a line begins with `NAME = `."""
    here = Path(torturing.__file__).parent
    names = [module.name for module in pkgutil.iter_modules([str(here)])]
    return [name for name in names if "\nNAME = " in (here / f"{name}.py").read_text(encoding="utf-8")]


def load(name: str) -> ModuleType:
    return importlib.import_module(f"torturing.{name}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs parts; returns the exit code: 0 without a fault, 1 with some, 2 where a part could not run."""
    names = part_names()
    listed = "\n".join(f"  {name:8} {_first_line(name)}" for name in names)
    parser = argparse.ArgumentParser(
        prog="torture",
        description=f"Tries every fault that can be enumerated, and counts what was lost.\n\nparts:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="what to try; all by default")
    parser.add_argument("--minutes", type=float, default=27.0, help="that all parts may take together (%(default)g)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results here, beside those of other parts")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="kept", help="show what was kept; try nothing")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/reliability.md")
    parser.add_argument("--hunts", type=Path, metavar="DIR", help="add up the hunts of fuzz that are kept here")
    parser.add_argument("--in-process", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.parts if name not in names]
    if unknown or arguments.minutes <= 0:
        parser.error(f"no part is called {', '.join(unknown)}" if unknown else "--minutes must be above 0")
    if arguments.kept is not None:
        kept = report.read(arguments.kept)
    else:
        with tempfile.TemporaryDirectory(prefix="torture.") as scratch:
            path = arguments.json or Path(scratch) / "kept.json"
            wanted = arguments.parts or names
            if arguments.in_process:
                _run_here(wanted[0], arguments.minutes * 60, path)
                return 0
            if arguments.hunts:
                report.keep(path, "fuzz", *load("fuzz").add_up(arguments.hunts))
                wanted = ["fuzz"]
            failed = [] if arguments.hunts else _run_all(wanted, arguments.minutes * 60, path, Path(scratch))
            if failed:
                print(f"torture: could not run to its end: {', '.join(failed)}", file=sys.stderr)
                return 2
            kept = report.read(path)
            kept["parts"] = {name: part for name, part in kept["parts"].items() if name in wanted}
    print(report.markdown(kept))
    for name, part in kept["parts"].items() if not arguments.markdown else ():
        for row in part["rows"]:
            for text in row["details"]:
                print(f"{name}: {row['what']}: {text}")
    return 1 if report.faults_of(kept) else 0


def _first_line(name: str) -> str:
    """Returns the first line of a part's docstring without loading the part."""
    text = (Path(torturing.__file__).parent / f"{name}.py").read_text(encoding="utf-8")
    return text.partition('"""')[2].partition("\n")[0].removesuffix('"""')


def _run_here(name: str, seconds: float, path: Path) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"torture.{name}.") as out:
        rows = load(name).run(seconds, Path(out))
    report.keep(path, name, time.monotonic() - began, rows)


def _run_all(wanted: Sequence[str], seconds: float, path: Path, scratch: Path) -> list[str]:
    """Runs each part in a process of its own, two at a time; returns those that failed."""

    def run(name: str, share: float) -> bool:
        own = scratch / f"{name}.json"
        program = Path(__file__).resolve().parent.parent / "torture"
        minutes = max(share / 60, 0.01)
        words = [sys.executable, program, name, "--in-process", "--minutes", minutes, "--json", own]
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=sys.stderr)
        return done.returncode == 0 and own.exists()

    results = run_shared(wanted, run, seconds=seconds * _SHARE, jobs=_JOBS, weights=_WEIGHTS)
    for name, is_done in results.items():
        if is_done:
            part = report.read(scratch / f"{name}.json")["parts"][name]
            report.keep(path, name, part["seconds"], [report.Row(**row) for row in part["rows"]])
    return [name for name, is_done in results.items() if not is_done]
