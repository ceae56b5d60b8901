"""Names under which the nodes of a graph are drawn.

Source: how TensorBoard reads names, in `tensorboard/plugins/graph/tf_graph_common/` at
https://github.com/tensorflow/tensorboard/tree/1025aa33334858823c488c8a938d6c0a7373b8f2 (`graph.ts` normalizeInputs,
mapStrictHierarchy, build; `hierarchy.ts` addNodes):

* `/` divides scopes, a leading `^` makes a control edge, and `:<digits>` at the end of an input is the output's index,
  so neither of the two may be part of a name.
* A name that is also a scope is not a fault: it is drawn as `scope/(name)`.
* Nodes are kept as properties of a JavaScript object, and looked up with `in`, so a node that is called `constructor`
  stops the drawing. `__root__` and what begins with `__function_library__` have a meaning of their own.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["common_scope", "legal_name", "scope_of"]

_ILLEGAL: Final = re.compile(r"[^\w.\-/]")  # letters of any script stay: TensorBoard draws them
_SLASHES: Final = re.compile(r"/{2,}")
_MAX_NAME: Final = 1000  # a name is repeated in every edge, so one without bound in a damaged graph would multiply
_OBJECT_PROPERTIES: Final = {
    *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable"),
    *("toLocaleString", "toString", "valueOf"),
}


def legal_name(name: str) -> str:
    """Returns the name with everything replaced that TensorBoard would not take for a part of it."""
    # TensorFlow's own rule: the first character is a letter, a digit or a point.
    legal = _SLASHES.sub("/", _ILLEGAL.sub("_", name)[:_MAX_NAME].lstrip("/_-")).rstrip("/") or "unnamed"
    first, slash, rest = legal.partition("/")
    return f"{first}_{slash}{rest}" if first in _OBJECT_PROPERTIES else legal


def scope_of(name: str) -> str:
    """Returns the scope a drawn name lies in; empty for the outermost."""
    return name.rpartition("/")[0]


def common_scope(one: str, other: str) -> str:
    """Returns the innermost scope that holds both."""
    if one == other:
        return one
    common = []
    for a, b in zip(one.split("/"), other.split("/"), strict=False):
        if a != b:
            break
        common.append(a)
    return "/".join(common)
