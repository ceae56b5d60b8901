"""Where parameters and operators are drawn, so that each scope opens to few boxes and each of them can be named.

What MindSpore's names say: a parameter is called by the cells around it (`layer1.0.conv1.weight`), a scope by the same
cells with their classes (`layer1-SequentialCell/0-Bottleneck/conv1-Conv2d`) behind those of the cells that train, which
parameters leave out; gradients stand below `Gradients`; an optimizer's state is called `<state>.<weight>` and taken in
no scope in which the weight is not.

What TensorBoard makes of them (`hierarchy.ts`, detectSeriesUsingNumericSuffixes and groupSeries): five or more
operators of one kind in one scope become one box where their names differ by the number at the end alone, and those
numbers have no gaps. MindInsight makes one box of five or more of one kind whatever their names are.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Final

from ms_summary_bridge.formats.graphs.tb_names import common_scope, scope_of

__all__ = ["ParameterPlaces", "find_crowds"]

_CROWD: Final = 20  # parameters in one scope
_CROWD_SCOPE: Final = "parameters"
_STATE_SCOPE: Final = "state"
_GRADIENTS: Final = "Gradients"
_OPTIMIZER: Final = "optimizer"
_MOST_CELLS: Final = 12  # of a path that are compared
_MOST_ALIKE: Final = 200  # scopes that a short path may mean
_SERIES: Final = 5
_COUNTED: Final = re.compile(r"-op\d+$", re.ASCII)
_NUMBERED: Final = re.compile(r"(\D*)(\d{1,9})", re.ASCII)


def find_crowds(operators: Sequence[tuple[str, str]]) -> list[str]:
    """Returns for each operator the name of the scope that it gets with others of its kind; empty for none.

    Operators with a name of their own, which is not `<kind>-op<number>`, stay where they are.

    Args:
        operators: Wished name and kind of each.
    """
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, (name, kind) in enumerate(operators):
        if _COUNTED.search(name):
            groups[scope_of(name), kind].append(number)
    found = [""] * len(operators)
    for (_, kind), members in groups.items():
        if len(members) >= _SERIES and not _is_series([operators[number][0].rpartition("/")[2] for number in members]):
            for number in members:
                found[number] = kind
    return found


def _is_series(names: list[str]) -> bool:
    """Whether TensorBoard draws so many names as one box."""
    found = [_NUMBERED.fullmatch(name) for name in names]
    if not all(found):
        return False
    numbers = sorted(int(each[2]) for each in found if each)
    is_dense = numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return is_dense and len({each[1] for each in found if each}) == 1


class ParameterPlaces:
    """Finds a scope and a name in it for each parameter.

    Args:
        scopes: Those of all operators, as they are drawn.
        parameters: Names of all parameters.
        uses: For each of them, the scopes of what takes it, but for outputs.
        prefix: Scope of the whole graph with a slash behind it, or nothing.
    """

    def __init__(self, scopes: Iterable[str], parameters: Sequence[str], uses: Sequence[Sequence[str]], prefix: str):
        self._prefix = prefix
        self._parameters = parameters
        self._uses = uses
        self._of_name = {name: number for number, name in enumerate(parameters)}
        self._layers = self._index(scopes)

    def _index(self, scopes: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
        """Returns scopes of the forward pass by the cells that they end with, for each number of cells."""
        every: dict[str, None] = {}
        for scope in scopes:
            while scope and scope not in every:
                every[scope] = None
                scope = scope_of(scope)
        found: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for scope in every:
            if self._is_forward(scope):
                cells = [part.partition("-")[0] for part in scope.rsplit("/", _MOST_CELLS)[-_MOST_CELLS:]]
                for first in range(len(cells)):
                    found[tuple(cells[first:])].append(scope)
        return found

    def _is_forward(self, scope: str) -> bool:
        parts = scope.removeprefix(self._prefix).split("/", 3)
        return parts[0] != _GRADIENTS and not any(part.startswith(_OPTIMIZER) for part in parts[:3])

    def find(self) -> list[tuple[str, str]]:
        """Returns scope and name of each; an empty scope for one that nothing takes."""
        found = [self._find_one(number, name) for number, name in enumerate(self._parameters)]
        crowd = Counter(scope for scope, name in found if "/" not in name)
        optimizers = {scope for scope, name in found if "/" in name}
        places = []
        for (scope, name), uses in zip(found, self._uses, strict=True):
            inner, _, leaf = name.rpartition("/")
            if scope in optimizers and (inner or not self._is_forward(scope) or set(uses) == {scope}):
                inner = f"{'optimizer_' if self._is_forward(scope) else ''}{_STATE_SCOPE}/{inner}"
            elif not inner and crowd[scope] > _CROWD:
                inner = _CROWD_SCOPE
            places.append((f"{scope}/{inner}".strip("/"), leaf))
        return places

    def _find_one(self, number: int, name: str) -> tuple[str, str]:
        uses = list(dict.fromkeys(self._uses[number]))
        forward = [scope for scope in uses if self._is_forward(scope)]
        flat = name.replace("/", "_")
        if not uses:
            return "", flat
        if (state := self._split_state(name, uses)) is not None:
            return reduce(common_scope, uses), state
        if forward and (layer := self._find_layer(name.split("."), forward)) is not None:
            scope, depth = layer
            return scope, ".".join(name.split(".")[depth:]).replace("/", "_")
        return reduce(common_scope, forward or uses), flat

    def _split_state(self, name: str, uses: list[str]) -> str | None:
        """Returns the path of an optimizer's state below the optimizer: that of its weight, below its own name."""
        parts = name.split(".")
        if len(parts) > 2 * _MOST_CELLS:
            return None
        for first in range(1, len(parts)):
            weight = self._of_name.get(".".join(parts[first:]))
            if weight is not None and set(uses) <= set(self._uses[weight]):
                return "/".join(part.replace("/", "_") for part in (".".join(parts[:first]), *parts[first:]) if part)
        return None

    def _find_layer(self, parts: list[str], uses: list[str]) -> tuple[str, int] | None:
        """Returns the scope of the innermost cell that a name tells, and how many parts of the name that takes."""
        for last in range(len(parts) - 1, 0, -1):
            for first in range(max(0, last - _MOST_CELLS), last):
                scopes = self._layers.get(tuple(parts[first:last]), ())
                if not scopes or len(scopes) > _MOST_ALIKE:
                    continue
                near = max(scopes, key=lambda scope: (max(_nearness(scope, use) for use in uses), -scope.count("/")))
                if max(_nearness(near, use) for use in uses) or (first == 0 and len(scopes) == 1):
                    return near, last
        return None


def _nearness(scope: str, use: str) -> int:
    """Returns how many scopes two have in common where one holds the other; else 0."""
    outer, inner = sorted((scope, use), key=len)
    is_inside = inner == outer or inner.startswith(f"{outer}/")
    return outer.count("/") + 1 if is_inside and outer else 0
