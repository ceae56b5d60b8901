"""What a graph holds and how it is drawn or restored, in numbers and in words."""

from __future__ import annotations

import msgspec

from ms_summary_bridge.errors import counted

__all__ = ["GraphCounts"]


class GraphCounts(msgspec.Struct):
    """What a graph held, the graphs or functions inside it included, and what was made of it."""

    nodes: int = 0
    """Of a TensorFlow graph, as it was read."""
    operators: int = 0
    """Of a MindSpore graph."""
    parameters: int = 0
    constants: int = 0
    outputs: int = 0
    """Of a MindSpore graph."""
    subgraphs: int = 0
    """Graphs held by constants and attributes of a MindSpore graph."""
    functions: int = 0
    """Of a TensorFlow graph."""
    arguments: int = 0
    """Of functions."""
    returns: int = 0
    """Outputs of functions."""
    edges: int = 0
    """Inputs of operators or nodes, and outputs of the graph or of functions: each is drawn once."""
    control_edges: int = 0
    """Those of the edges that are an order of execution only."""
    dangling_edges: int = 0
    """Edges from a name that nothing has; MindInsight passes them over."""
    merged_edges: int = 0
    """Edges between two nodes that another edge joins already; MindInsight draws one."""
    ambiguous: int = 0
    """Parts with a name that another one of their graph or function has; edges go to the first."""
    renamed: int = 0
    """Operators that are not drawn under their name, because it is taken, a scope, or not legal."""
    constant_copies: int = 0
    """`Const` nodes drawn: one for each constant and scope that uses it, and an `Unused` one where none does."""
    unknown: int = 0
    """`Unknown` nodes drawn: names that an input gives and nothing has."""
    drawn: int = 0
    """Nodes of TensorBoard's drawing: operators, parameters, outputs, copies of constants and unknown ones."""

    def describe(self) -> str:
        """Returns what TensorBoard's drawing, or a restored graph, has; of what may go wrong only what did."""
        text = f"{counted(self.operators, 'operator')}{self._edges_in_words()}"
        text += f"; {self._operands_in_words()}, {counted(self.outputs, 'output')}"
        text += _in_words((self.subgraphs, "graphs inside it")) + self._functions_in_words()
        if self.drawn:
            text += f"; {counted(self.drawn, 'node')} drawn"
            text += _in_words((self.constant_copies, "of them constants, one in each scope"))
        return text

    def describe_anf(self) -> str:
        """Returns what MindInsight's drawing has; of what may go wrong only what did."""
        text = f"{counted(self.nodes, 'node')}{self._edges_in_words()}{self._functions_in_words()}"
        return f"{text}; {counted(self.operators, 'operator')}, {self._operands_in_words()} drawn"

    def _operands_in_words(self) -> str:
        return f"{counted(self.parameters, 'parameter')}, {counted(self.constants, 'constant')}"

    def _edges_in_words(self) -> str:
        return f", {counted(self.edges, 'edge')}" + _in_words(
            (self.control_edges, "of them control edges"),
            (self.dangling_edges, "of them from names that nothing has"),
            (self.merged_edges, "of them shown as one with another"),
            (self.ambiguous, "names are taken twice"),
        )

    def _functions_in_words(self) -> str:
        if not self.functions:
            return ""
        ends = f"{counted(self.arguments, 'argument')} and {counted(self.returns, 'output')}"
        return f"; {counted(self.functions, 'function')} with {ends}"


def _in_words(*parts: tuple[int, str]) -> str:
    return "".join(f", {count} {words}" for count, words in parts if count)
