"""The command line of tools/mutate."""

from __future__ import annotations

import argparse
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mutating import explained, report
from mutating.mutants import Mutant, make_mutants
from mutating.parts import PACKAGE, PARTS, find_modules, part_of
from mutating.report import Row
from mutating.trial import ENOUGH_SECS, UnreadyError, try_mutants

ROOT = Path(__file__).resolve().parents[2]

_ABOUT = """Puts one small fault after the other into a module: < for <=, + for -, `and` for `or`, a number one higher,
a `not` left out, ... For each the tests that run the line are run; if all pass, the mutant has survived: either a test
is missing, or there is code that does nothing, or the mutant does the same as the module. Then sharpen a test, delete
the code, or put the two lines and the reason into tools/mutating/explained.txt."""

_EXAMPLES = """examples:
  tools/mutate                                       all parts; some take more than an hour
  tools/mutate rules                                 one part
  tools/mutate ms_summary_bridge/convert/series.py   one module, with the tests of its part
  tools/mutate ms_summary_bridge/files/lines.py --tests tests/files
  tools/mutate rules --json kept.json                keeps the counts; then, when tests were added,
  tools/mutate rules --json kept.json --again        tries what had survived, and counts it anew
  tools/mutate verify --json kept.json --again --seconds 30   the same, and asks slower tests too"""


def main(argv: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Tries mutants; returns the exit code: 0 if all are killed or explained, 1 if some survived, 2 if tests fail."""
    listed = "\n".join(f"  {name:10} {' '.join(part.modules)}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="mutate",
        description=f"{_ABOUT}\n\nparts:\n{listed}",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help="a part, or the path of a module; all parts by default"
    )
    parser.add_argument("--tests", nargs="+", metavar="PATH", help="the tests to ask, for modules of no part")
    parser.add_argument("--all", action="store_true", help="change words, arguments and what is assigned, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the counts here, beside those of other modules")
    parser.add_argument("--again", action="store_true", help="try only what had survived, as FILE says")
    parser.add_argument(
        "--seconds",
        type=float,
        default=ENOUGH_SECS,
        metavar="N",
        help="processor time of the tests that are asked about one fault (%(default)g); a slow test needs more",
    )
    parser.add_argument("--survivors", action="store_true", help="print what survived as explained.txt would have it")
    parser.add_argument("--from", type=Path, metavar="FILE", dest="kept", help="show what was kept; try nothing")
    parser.add_argument("--markdown", action="store_true", help="print no more than the table of docs/reliability.md")
    arguments = parser.parse_args(argv)
    if arguments.again and arguments.json is None:
        parser.error("--again takes what had survived from the file that --json names")
    if arguments.kept is not None:
        rows = report.read(arguments.kept)
    else:
        try:
            parts = _chosen(root, arguments.modules, arguments.tests)
        except ValueError as error:
            parser.error(str(error))
        known = explained.read()
        before = report.read(arguments.json) if arguments.again else {}
        rows = {}
        for modules, tests in parts:
            try:
                made = [mutant for path in modules for mutant in make_mutants(root, path, with_all=arguments.all)]
                new = _try_part(root, modules, tests, made, known, before, enough_secs=arguments.seconds)
            except UnreadyError as error:
                print(f"mutate: {error}", file=sys.stderr)
                return 2
            rows |= new
            if arguments.json is not None:
                report.keep(arguments.json, new)
    print(report.markdown(rows))
    if arguments.survivors:
        print(_as_explained(rows))
    elif not arguments.markdown:
        total = [
            sum(getattr(row, name) for row in rows.values()) for name in ("tried", "killed", "explained", "survived")
        ]
        print("\n{} tried, {} killed, {} explained, {} survived".format(*total))
    return int(any(row.survived for row in rows.values()))


def _chosen(root: Path, modules: Sequence[str], tests: Sequence[str] | None) -> list[tuple[list[str], list[str]]]:
    """Returns modules and the tests to ask, for each part that was named; all where none was."""
    found: dict[str, list[str]] = {}
    for name in modules or PARTS:
        path = Path(name).resolve()
        if name in PARTS:
            found[name] = find_modules(root, PARTS[name])
        elif not path.is_file() or not path.is_relative_to(root) or path.suffix != ".py":
            raise ValueError(f"{name} is neither a part nor a module of {PACKAGE}")
        else:
            relative = path.relative_to(root).as_posix()
            part = part_of(root, relative) or ""
            if not part and not tests:
                raise ValueError(f"{name} belongs to no part: name its tests with --tests")
            found[part] = [*found.get(part, ()), relative]
    return [
        (paths, list(tests) if tests else [f"tests/{name}" for name in PARTS[part].tests])
        for part, paths in found.items()
    ]


def _try_part(
    root: Path,
    modules: Sequence[str],
    tests: Sequence[str],
    mutants: Sequence[Mutant],
    known: dict[explained.Change, str],
    before: dict[str, Row],
    *,
    enough_secs: float,
) -> dict[str, Row]:
    """Tries the mutants of some modules; with rows of an earlier trial only those that survived then."""
    began = _processor_secs()
    wanted = [mutant for mutant in mutants if (mutant.path, mutant.before, mutant.after) not in known]
    if before:
        open_keys = {(path, *each) for path, row in before.items() for each in map(tuple, row.survivors)}
        wanted = [mutant for mutant in wanted if mutant.path not in before or mutant.key in open_keys]
    survived = try_mutants(root, wanted, tests, _teller(), enough_secs=enough_secs) if wanted else []
    seconds = _processor_secs() - began
    rows: dict[str, Row] = {}
    for path in modules:
        tried = sum(mutant.path == path for mutant in mutants)
        told = sum((mutant.path, mutant.before, mutant.after) in known for mutant in mutants if mutant.path == path)
        left = [mutant for mutant in survived if mutant.path == path]
        share = seconds * sum(mutant.path == path for mutant in wanted) / max(len(wanted), 1)
        row = Row(
            tried, tried - told - len(left), told, len(left), round(share, 1), [mutant.key[1:] for mutant in left]
        )
        if path in before:
            row.seconds = before[path].seconds
        rows[path] = row
    return rows


def _as_explained(rows: dict[str, Row]) -> str:
    lines = []
    for path, row in rows.items():
        lines += [f"== {path}"] * bool(row.survivors)
        for before, after in dict.fromkeys((before, after) for _, before, after in row.survivors):
            lines += [f"- {before}", f"+ {after}"]
    return "\n".join(lines)


def _processor_secs() -> float:
    """Returns the processor time of this process and of all its forks."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def _teller() -> Callable[[str], None]:
    """Returns what prints a line to where errors go, also from a fork in which nothing is to be seen."""
    descriptor = os.dup(2)

    def tell(line: str) -> None:
        os.write(descriptor, f"{line}\n".encode())

    return tell
