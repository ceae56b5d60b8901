"""Names under which MindInsight draws the nodes of a graph.

Source, in `mindinsight/datavisual/data_transform/graph/` of MindInsight 2.3.1 (`graph.py`, `msgraph.py`), and measured:

* `<`, `>` and `"` in any name lose the whole graph. A backslash breaks the drawing in the browser, which is given names
  in quotation marks.
* Of two nodes with one full name one is lost. A full name that is another node's scope loses the whole graph.
* A full name that ends in `[:Scalar]`, `[:Image]`, `[:Histogram]` or `[:Tensor]` is replaced by another one.
* A parameter or constant is looked up by its name and drawn in the scope of whatever takes it, under that name: there
  it takes the place of an operator or a scope that is called the same. An input whose name has a slash is cut.
* Operators are looked up by their number, in the same table as parameters and constants by their names.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from typing import Final

from ms_summary_bridge.formats.unique_names import UniqueNames

__all__ = ["AnfNames", "drawable_name"]

_ILLEGAL: Final = re.compile(r'[<>"\\\x00-\x20\x7f]')
_SLASHES: Final = re.compile(r"/{2,}")
_PLUGIN: Final = re.compile(r"\[(:[a-z]+)\]$", re.IGNORECASE)
_MAX_NAME: Final = 1000  # a name is repeated in every edge, so one without bound in a damaged graph would multiply
_MAX_DEPTH: Final = 100
"""Scopes around one node. MindInsight adds every edge to every scope around it, and a browser opens them one by one."""


def drawable_name(name: str) -> str:
    """Returns the name with everything replaced that MindInsight does not draw, and no more than 100 scopes."""
    legal = _ILLEGAL.sub("_", name)
    legal = _SLASHES.sub("/", legal[:_MAX_NAME]).strip("/") or "unnamed"
    legal = _PLUGIN.sub(r"(\1)", legal)
    if legal.count("/") > _MAX_DEPTH:
        parts = legal.split("/")
        legal = "/".join([*parts[:_MAX_DEPTH], ".".join(parts[_MAX_DEPTH:])])
    return legal


class AnfNames:
    """Gives every operator a full name, and every parameter and constant a name that MindInsight finds it by.

    Args:
        operators: The wishes of all operators; the same in the same order give the same names.
    """

    def __init__(self, operators: Iterable[str]) -> None:
        legal = list(map(drawable_name, operators))
        scopes: set[str] = set()
        for name in legal:
            scope = name.rpartition("/")[0]
            while scope and scope not in scopes:
                scopes.add(scope)
                scope = scope.rpartition("/")[0]
        names = UniqueNames()
        self.operators = [names.take(_beside(scopes, name), scopes) for name in legal]
        """Full names, in the order of the wishes."""
        self._ids = UniqueNames()

    @functools.cached_property
    def _parts(self) -> set[str]:
        """The names of all scopes and operators, without those around them."""
        return {part for name in self.operators for part in name.split("/")}

    def take_id(self, wish: str) -> str:
        """Returns a name for a parameter or a constant: no slash, no number, nothing that stands in a scope."""
        name = drawable_name(wish).replace("/", ".")
        if name.isdecimal() or name in self._parts:
            name = f"({name})"
        return self._ids.take(name, self._parts)


def _beside(scopes: set[str], name: str) -> str:
    """Returns the name, or `scope/(name)` where it is a scope, too, as TensorBoard draws it."""
    scope, slash, base = name.rpartition("/")
    return f"{scope}{slash}({base})" if name in scopes else name
