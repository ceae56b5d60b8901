"""Which lines and branches of the package run, in every process of the tests, at nearly no cost.

A tracer sees the lines of processes that start it and end in order, and doubles their time. Here the code says it
itself: each block of a module, as an arm of an `if`, the body of a loop or a handler, begins with
`if not marks[n]: marks[n] = 1`, and `marks` is memory that all processes share. Such code lies in `__pycache__` where
Python looks for what it compiled before: a process that starts without `site`, forks or is killed counts too.

What ran is told to coverage.py, which knows what there is to run, leaves out what pyproject.toml says, and makes the
reports. Its per cent is that of lines and branches together. The lines of a block count once it is entered.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import itertools
import json
import marshal
import struct
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from coverage import Coverage, CoverageData
from coverage.python import PythonFileReporter

__all__ = [
    "ELSEWHERE",
    "LEAST",
    "PACKAGE",
    "Block",
    "Run",
    "main",
    "mark",
    "markdown",
    "marked",
    "percent",
    "rooms",
    "told",
]

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = ROOT / "ms_summary_bridge"

LEAST: Final = {"files": 95, "formats": 95, "convert": 95, "monitor": 95, "all": 90}
"""Per cent of lines and branches below which a room has too few tests."""

ELSEWHERE: Final = 0
"""Where a line goes on when it takes none of its arms; coverage.py knows the line."""

_MARKS: Final = "__ms_summary_bridge_marks__"  # a builtin: every module finds it
_OPENING: Final = """
def open_marks():
    import builtins
    try:
        import mmap
        with open({path!r}, "r+b") as file:
            builtins.{marks} = mmap.mmap(file.fileno(), 0)
    except (ImportError, OSError, ValueError):  # the tests are over
        builtins.{marks} = bytearray({count})
open_marks()
del open_marks
"""
_COMPOUND: Final = (ast.If, ast.For, ast.While, ast.Match, ast.Try, ast.With)
_LEAVING: Final = (ast.Return, ast.Raise, ast.Break, ast.Continue)


@dataclass
class Block:
    """Statements that run one after another.

    Attributes:
        lines: All of their lines.
        arcs: The branches that lead here, from line to line.
    """

    arcs: set[tuple[int, int]]
    lines: set[int] = field(default_factory=set)


def mark(tree: ast.Module, first: int) -> list[Block]:
    """Puts marks into a module, and returns what they stand for; `first` is the number of its first mark."""
    blocks: list[Block] = []

    def marking(arcs: Iterable[tuple[int, int]], line: int) -> tuple[Block, ast.stmt]:
        number = first + len(blocks)
        blocks.append(Block({*arcs}))
        (statement,) = ast.parse(f"if not {_MARKS}[{number}]: {_MARKS}[{number}] = 1").body
        for node in ast.walk(statement):
            if isinstance(node, ast.stmt | ast.expr):
                node.lineno = node.end_lineno = line
        return blocks[-1], statement

    def begin(body: list[ast.stmt], *arcs: tuple[int, int]) -> list[ast.stmt]:
        """Returns a body that begins with a mark, and has those that it needs inside."""
        head = _length_of_head(body)
        block, statement = marking(arcs, body[0].lineno)
        for passed in body[:head]:
            block.lines |= _lines(passed)
        return [*body[:head], statement, *go_on(body[head:], block)]

    def go_on(body: list[ast.stmt], block: Block) -> Iterator[ast.stmt]:
        """Yields a body that goes on a block; a mark comes where what was before may have left it."""
        may_leave = False
        for node in body:
            if may_leave:
                block, statement = marking((), node.lineno)
                yield statement
            block.lines |= _lines(node)
            may_leave = isinstance(node, _COMPOUND) and any(isinstance(each, _LEAVING) for each in ast.walk(node))
            enter(node, block)
            yield node

    def enter(node: ast.stmt, block: Block) -> None:
        line = node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.body = begin(node.body)
        elif isinstance(node, ast.If | ast.For | ast.While):
            node.body = begin(node.body, (line, _line(node.body[0])))
            if node.orelse:
                node.orelse = begin(node.orelse, (line, _line(node.orelse[0])))
            else:
                node.orelse = [marking([(line, ELSEWHERE)], line)[1]]
        elif isinstance(node, ast.With):
            node.body = [*go_on(node.body, block)]
        elif isinstance(node, ast.Try):
            node.body = [*go_on(node.body, block)]
            for number, handler in enumerate(node.handlers):
                here = len(blocks)
                handler.body = begin(handler.body)
                blocks[here].lines.update(each.lineno for each in node.handlers[: number + 1])
            node.orelse = node.orelse and begin(node.orelse)
            node.finalbody = node.finalbody and begin(node.finalbody)
        elif isinstance(node, ast.Match):
            lines = [case.pattern.lineno for case in node.cases]
            tried = [*itertools.pairwise(lines)]  # from each case to the next one
            for number, case in enumerate(node.cases):
                case.body = begin(case.body, *tried[:number], (lines[number], _line(case.body[0])))
            last = node.cases[-1]
            if last.guard or not isinstance(last.pattern, ast.MatchAs) or last.pattern.pattern:
                statement = marking([*tried, (lines[-1], ELSEWHERE)], lines[-1])[1]
                node.cases.append(ast.match_case(ast.MatchAs(), None, [statement]))

    tree.body = begin(tree.body) if tree.body else []
    ast.fix_missing_locations(tree)
    return blocks


def _length_of_head(body: list[ast.stmt]) -> int:
    """Returns how many statements must stay the first: a docstring, and imports of `__future__`."""
    number = 0
    for number, node in enumerate(body):
        is_docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            return number
    return number + 1


def _line(node: ast.stmt) -> int:
    """Returns the line at which a statement begins, which is that of its first decorator."""
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])


def _lines(node: ast.stmt) -> set[int]:
    """Returns the lines of a statement, without those of statements inside it."""
    if hasattr(node, "body") or isinstance(node, ast.Match):
        return {node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))}
    return {*range(node.lineno, (node.end_lineno or node.lineno) + 1)}


@dataclass
class Run:
    """What ran of each module of a package."""

    modules: dict[Path, list[Block]]
    hits: list[bool]
    """Of each block, in the order of the modules; empty until the run is over."""

    def blocks(self) -> Iterator[tuple[Path, list[Block]]]:
        """Yields each module with those of its blocks that ran."""
        hits = iter(self.hits)
        for path, blocks in self.modules.items():
            yield path, [block for block in blocks if next(hits)]


@contextlib.contextmanager
def marked(package: Path) -> Iterator[Run]:
    """Lays marked code where Python finds it first, and takes it away at the end. What ran is known then."""
    run = Run({}, [])
    trees = {path: ast.parse(path.read_bytes()) for path in sorted(package.rglob("*.py"))}
    count = 0
    for path, tree in trees.items():
        run.modules[path] = mark(tree, count)
        count += len(run.modules[path])
    with tempfile.NamedTemporaryFile(prefix="marks.") as file:
        file.write(bytes(count))
        file.flush()
        first = trees[package / "__init__.py"].body  # imported before any other
        head = _length_of_head(first)
        first[head:head] = ast.parse(_OPENING.format(path=file.name, marks=_MARKS, count=count)).body
        compiled: list[Path] = []
        try:
            for path, tree in trees.items():
                compiled.append(_write_compiled(path, tree))
            yield run
        finally:
            for each in compiled:
                each.unlink(missing_ok=True)
        run.hits = [*map(bool, Path(file.name).read_bytes())]


def _write_compiled(path: Path, tree: ast.Module) -> Path:
    """Writes the file that Python reads instead of a module whose time and size are these."""
    status = path.stat()
    target = Path(importlib.util.cache_from_source(str(path)))
    target.parent.mkdir(exist_ok=True)
    header = struct.pack("<4sIII", importlib.util.MAGIC_NUMBER, 0, int(status.st_mtime), status.st_size)
    target.write_bytes(header + marshal.dumps(compile(tree, str(path), "exec", dont_inherit=True)))
    return target


def told(run: Run, data_file: Path) -> Coverage:
    """Returns coverage.py with what ran, in the words that it would have itself."""
    coverage = Coverage(str(data_file), config_file=str(ROOT / "pyproject.toml"))
    data = CoverageData(str(data_file))
    for path, ran in run.blocks():
        possible: dict[int, set[int]] = defaultdict(set)
        for start, end in PythonFileReporter(str(path), coverage).arcs():
            possible[start].add(end)
        arms: dict[int, set[int]] = defaultdict(set)
        for block in run.modules[path]:
            for start, end in block.arcs:
                arms[start].add(end)
        arcs = {(-1, line) for block in ran for line in block.lines}
        for start, end in {arc for block in ran for arc in block.arcs}:
            # An arm that coverage.py names otherwise is the one that is left: what follows, or the end of a function.
            names = {end} if end in possible[start] else possible[start] - arms[start]
            arcs.update((start, name) for name in names if len(names) == 1)
        data.add_arcs({str(path): arcs})
        if not arcs:
            data.touch_file(str(path))
    data.write()
    coverage.load()
    return coverage


def rooms(coverage: Coverage, package: Path) -> dict[str, list[int]]:
    """Returns of each room, and of `all`, the lines and branches that ran and those that there are.

    Returns:
        Lines that ran, lines, branches that were taken, branches.
    """
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        coverage.json_report(outfile=file.name)
        files = json.loads(Path(file.name).read_bytes())["files"]
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, each in files.items():
        parts = Path(name).resolve().relative_to(package).parts
        for room in (parts[0] if len(parts) > 1 else "(no room)", "all"):
            summary = each["summary"]
            for number, key in enumerate(("covered_lines", "num_statements", "covered_branches", "num_branches")):
                found[room][number] += summary[key]
    return {room: found[room] for room in sorted(found, key=lambda room: (room == "all", room))}


def percent(figures: Sequence[int]) -> float:
    """Returns how many of lines and branches ran, cut off behind the first place: 94.96 is not yet 95."""
    lines, all_lines, branches, all_branches = figures
    return 1000 * (lines + branches) // max(all_lines + all_branches, 1) / 10


def markdown(figures: dict[str, list[int]]) -> str:
    """Returns the table of docs/reliability.md."""
    lines = ["| room | lines run | of | branches taken | of | per cent | at least |", "|---|--:|--:|--:|--:|--:|--:|"]
    for room, counts in figures.items():
        numbers = " | ".join(f"{count:,}" for count in counts)
        lines.append(f"| {room} | {numbers} | {percent(counts):.1f} | {LEAST.get(room, '')} |".replace("|  |", "| |"))
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Runs a command, prints the figures, and returns its exit code; 1 where a room has less than it must."""
    parser = argparse.ArgumentParser(prog="tools/branches.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--least", action="store_true", help="a room with less than it must have is a failure")
    parser.add_argument("--missing", metavar="ROOMS", help="list what did not run of these: files,convert")
    parser.add_argument("--html", metavar="DIRECTORY", help="show each line there")
    parser.add_argument("--json", metavar="FILE", help="keep the figures")
    parser.add_argument("--from", dest="kept", metavar="FILE", help="print the table of kept figures, and run nothing")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND...")
    given = parser.parse_args(arguments)
    if given.kept:
        print(markdown(json.loads(Path(given.kept).read_bytes())))
        return 0
    with marked(PACKAGE) as run:
        code = subprocess.run(given.command[given.command[:1] == ["--"] :], check=False).returncode
    with tempfile.TemporaryDirectory() as directory:
        coverage = told(run, Path(directory) / "coverage")
        figures = rooms(coverage, PACKAGE)
        if given.html:
            coverage.html_report(directory=given.html)
        if given.missing:
            wanted = [f"{PACKAGE}/{room}/*" for room in given.missing.split(",")]
            coverage.report(include=wanted, show_missing=True, skip_covered=True)
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print("\n=== lines and branches that ran, in per cent")
    for room, counts in figures.items():
        words = f"at least {LEAST[room]}" if room in LEAST else ""
        if percent(counts) < LEAST.get(room, 0):
            words += ": TOO FEW"
            code = code or int(given.least)
        print(f"{room:20} {percent(counts):5.1f}  {words}".rstrip())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
