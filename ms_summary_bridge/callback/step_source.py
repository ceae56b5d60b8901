"""Reads the text of a training cell's methods: which gradient operations a step calls, on what, and how often.

Imports mindspore.

What a step does is known before it runs from its text alone, which is also what MindSpore compiles in graph mode.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from mindspore import nn

__all__ = ["UNKNOWN", "GradientCall", "StepSource"]

UNKNOWN: Final = object()
"""Stands for a value that the text does not say."""

_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_TWICE: Final = 2


class GradientCall(NamedTuple):
    """One use of a gradient operation: attribute `name` of the cell `owner`."""

    owner: nn.Cell
    name: str
    arguments: list[Any]
    """What it is called with, where these are attributes of the cell; UNKNOWN elsewhere."""


class StepSource:
    """Follows a step through the methods that it calls, the cell's own and those of the cells inside it.

    It is handed in which attributes of a cell are gradient operations, and which cells have one.
    """

    def __init__(self, is_operation: Callable[[nn.Cell, str], bool], has_operation: Callable[[nn.Cell], bool]) -> None:
        self.calls: list[GradientCall] = []
        self.is_operation = is_operation
        self.has_operation = has_operation
        self._open: set[tuple[int, type, str]] = set()

    def count(self, owner: nn.Cell, method: str, after: type | None = None) -> int:
        """Returns how many times a method of a cell takes gradients, on the path through it that does so most often.

        It is looked for in the classes behind `after` only, as `super()` does.
        """
        kinds = type(owner).__mro__[: type(owner).__mro__.index(nn.Cell)]
        kinds = kinds if after is None else kinds[kinds.index(after) + 1 :]
        kind = next((kind for kind in kinds if method in vars(kind)), None)
        if kind is None or (id(owner), kind, method) in self._open:
            return 0
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(getattr(kind, method))))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # no text, or no function
            return 0
        if not isinstance(tree, ast.FunctionDef) or not tree.args.args:
            return 0
        self._open.add((id(owner), kind, method))
        try:
            return _Method(self, owner, kind, tree).most
        finally:
            self._open.discard((id(owner), kind, method))


class _Method:
    """The text of one method."""

    def __init__(self, source: StepSource, owner: nn.Cell, kind: type, tree: ast.FunctionDef) -> None:
        self._source = source
        self._owner = owner
        self._kind = kind
        self._self = tree.args.args[0].arg
        assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name):
                        assigned.setdefault(target.id, []).append(node.value)
        self._names = {name: values[0] for name, values in assigned.items() if len(values) == 1}
        self.most = self._block(tree.body)[1]
        """How many times it takes gradients at most."""

    def _block(self, statements: Iterable[ast.stmt]) -> tuple[int | None, int]:
        """Returns the most calls up to the end of a block, None where no path gets there, and the most on any path."""
        here = most = 0
        for statement in statements:
            if isinstance(statement, ast.If):
                here += self._expression(statement.test)
                arms = [self._block(arm) for arm in (statement.body, statement.orelse)]
                most = max(most, *(here + arm_most for _, arm_most in arms))
                ends = [here + through for through, _ in arms if through is not None]
                if not ends:
                    return None, most
                here = max(ends)
            elif isinstance(statement, _LOOPS):
                inside = self._block(statement.body)[1] + self._block(statement.orelse)[1]
                here += self._expression(getattr(statement, "iter", None)) + _TWICE * inside
            elif isinstance(statement, (ast.With, ast.Try, ast.FunctionDef)):
                here += self._block(each for each in ast.iter_child_nodes(statement) if isinstance(each, ast.stmt))[1]
            else:
                here += self._expression(statement)
                if isinstance(statement, (ast.Return, ast.Raise)):
                    return None, max(most, here)
            most = max(most, here)
        return here, most

    def _expression(self, tree: ast.AST | None) -> int:
        """Returns the calls in an expression, or in a statement without others inside."""
        if tree is None or (isinstance(tree, ast.Assign) and self._operation(tree.value) is not None):
            return 0  # a second name for an operation
        count = 0
        loops = [node for node in ast.walk(tree) if isinstance(node, _COMPREHENSIONS)]
        repeated = {id(node) for loop in loops for node in ast.walk(loop)}
        called = set()
        for node in ast.walk(tree):  # from the outside inwards: a call comes before what it calls
            calls = 0
            if isinstance(node, ast.Call):
                called.add(id(node.func))
                calls = self._call(node)
            elif isinstance(node, ast.Attribute) and id(node) not in called and self._operation(node) is not None:
                calls = self._use(self._operation(node), [UNKNOWN])  # handed on to somebody who calls it
            count += calls * (_TWICE if id(node) in repeated else 1)
        return count

    def _call(self, node: ast.Call) -> int:
        name = self._operation(node.func)
        if name is not None:
            keywords = {each.arg: each.value for each in node.keywords}
            given = [*node.args, *(keywords[key] for key in ("fn", "weights") if key in keywords)]
            return self._use(name, [self._value(each) for each in given])
        function = node.func
        if not isinstance(function, ast.Attribute):
            return 0
        base = function.value
        if isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "super":
            return self._source.count(self._owner, function.attr, self._kind)
        inner = self._value(function)
        if isinstance(inner, nn.Cell):
            return self._source.count(inner, "construct") if self._source.has_operation(inner) else 0
        return self._source.count(self._owner, function.attr) if self._is_self(base) else 0

    def _use(self, name: str | None, arguments: list[Any]) -> int:
        assert name is not None
        self._source.calls.append(GradientCall(self._owner, name, arguments))
        return 1

    def _operation(self, node: ast.AST) -> str | None:
        """Returns the name of the gradient operation that an expression is."""
        node = self._names.get(node.id, node) if isinstance(node, ast.Name) else node
        if isinstance(node, ast.Attribute) and self._is_self(node.value):
            return node.attr if self._source.is_operation(self._owner, node.attr) else None
        return None

    def _value(self, node: ast.AST) -> Any:
        """Returns what an expression is, if it is an attribute of the cell or of an attribute."""
        node = self._names.get(node.id, node) if isinstance(node, ast.Name) else node
        if isinstance(node, ast.Attribute):
            base = self._owner if self._is_self(node.value) else self._value(node.value)
            return UNKNOWN if base is UNKNOWN else getattr(base, node.attr, UNKNOWN)
        return UNKNOWN

    def _is_self(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == self._self
