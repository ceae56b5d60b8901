"""Makes the mutants of a module: its source with one small fault each."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, WhitespaceInclusivePositionProvider
from mutmut.mutation import mutators

OPERATORS = {
    mutators.operator_swap_op,  # < and <=, == and !=, + and -, and and or, ...
    mutators.operator_number,  # one more
    mutators.operator_keywords,  # is and is not, in and not in, break, continue
    mutators.operator_remove_unary_ops,  # without `not`
    mutators.operator_name,  # True and False
    mutators.operator_if_exp,  # always the one value, or the other
    mutators.operator_augmented_assignment,  # = for +=
    mutators.operator_symmetric_string_methods_swap,
    mutators.operator_unsymmetrical_string_methods_swap,
}
"""Those that change what is decided and computed. The others (words of messages changed, an argument left out or None,
a variable None) make faults over which whatever reaches the line falls, or that only change words: `--all`."""


@dataclass(frozen=True)
class Mutant:
    """A module with one fault."""

    path: str
    """Of the module, from the root of the project."""
    function: str
    """The function or method it is in, `Class.method`; empty for what runs when the module is imported."""
    lines: tuple[int, int]
    """From the first line of the statement to the last one of what was changed, counted from 1."""
    before: str
    """The line that is another one, without its indent."""
    after: str
    source: str
    """The whole module."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What stays the same when other lines change."""
        return self.path, self.function, self.before, self.after


def make_mutants(root: Path, path: str, *, with_all: bool = False) -> list[Mutant]:
    """Returns all mutants of a module, in the order of its lines.

    Annotations, imports, docstrings and what a class says of itself (`frozen`, `gc`) are left as they are.
    """
    source = (root / path).read_text(encoding="utf-8")
    chosen = [(kind, operator) for kind, operator in mutators.mutation_operators if with_all or operator in OPERATORS]
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    visitor = _Visitor(wrapper.module, wrapper.resolve(WhitespaceInclusivePositionProvider), chosen)
    wrapper.module.visit(visitor)
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: dict[str, Mutant] = {}
    for function, line, place, old, new in visitor.found:
        first = starts[place.start.line - 1] + place.start.column
        last = starts[place.end.line - 1] + place.end.column
        if _without_indents(source[first:last]) != _without_indents(old):
            raise AssertionError(f"{path}:{place.start.line}: {source[first:last]!r} is not {old!r}")
        mutated = source[:first] + new + source[last:]
        if mutated not in found and _compiles(mutated, path):
            before, after = _other_line(source, mutated)
            found[mutated] = Mutant(path, function, (line, place.end.line), before, after, mutated)
    return sorted(found.values(), key=lambda mutant: mutant.lines)


class _Visitor(cst.CSTVisitor):
    """Collects of all that the operators change: function, line of the statement, place, code and changed code."""

    def __init__(self, module: cst.Module, places: Any, operators: list[Any]) -> None:
        self.found: list[tuple[str, int, CodeRange, str, str]] = []
        self._module = module
        self._places = places
        self._operators = operators
        self._names: list[str] = []
        self._depth = 0  # of functions
        self._statements: list[int] = []  # first line of each that is being visited

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, (cst.BaseCompoundStatement, cst.SimpleStatementLine)):
            self._statements.append(self._places[node].start.line)
        if isinstance(node, (cst.Annotation, cst.Import, cst.ImportFrom, cst.Decorator)) or _is_words(node):
            return False
        if isinstance(node, cst.ClassDef):
            self._names.append(node.name.value)
            node.body.visit(self)  # and not its keywords
            self._names.pop()
            return False
        if isinstance(node, cst.FunctionDef):
            node.params.visit(self)  # defaults are made outside of it
            if not self._depth:
                self._names.append(node.name.value)
            self._depth += 1
            node.body.visit(self)
            self._depth -= 1
            if not self._depth:
                self._names.pop()
            return False
        for kind, operator in self._operators:
            if isinstance(node, kind):
                for new in operator(node):
                    place = self._places[node]
                    function = ".".join(self._names) if self._depth else ""
                    self.found.append((function, self._statements[-1], place, self._code(node), self._code(new)))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, (cst.BaseCompoundStatement, cst.SimpleStatementLine)):
            self._statements.pop()

    def _code(self, node: cst.CSTNode) -> str:
        return self._module.code_for_node(node)


def _is_words(node: cst.CSTNode) -> bool:
    """Whether something is a docstring, `if TYPE_CHECKING` or `__all__`."""
    match node:
        case cst.Expr(value=cst.SimpleString()) | cst.If(test=cst.Name(value="TYPE_CHECKING")):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="__all__"))]):
            return True
    return False


def _compiles(source: str, path: str) -> bool:
    try:
        compile(source, path, "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _other_line(source: str, mutated: str) -> tuple[str, str]:
    """Returns the first line that is another one, before and after, without indents."""
    before, after = _without_indents(source), _without_indents(mutated)
    return next(pair for pair in zip_longest(before, after, fillvalue="") if pair[0] != pair[1])


def _without_indents(source: str) -> list[str]:
    return [line.strip() for line in source.splitlines()]
