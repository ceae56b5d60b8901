"""Events that hold a graph: each format's drawn, or turned back, for the other.

A graph that was drawn by this package is marked as such (field 1000 of the graph, see `formats.plugin_data`). It is
turned back where the original is not at hand, and never drawn a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ms_summary_bridge.errors import EventDecodeError, InvalidValueError
from ms_summary_bridge.events import Encoded, Event, LostValue
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.plugin_data import decode_origin
from ms_summary_bridge.values import Opaque

__all__ = ["draw_in_mindinsight", "draw_in_tensorboard", "is_converted_graph"]

_GRAPH: Final = 0x22  # field 4 of both formats' events
_META_GRAPH: Final = 0x4A  # field 9 of TensorBoard's; its field 2 is the graph
_RESTORED: Final = "turned back from its drawing; values that were drawn in words stay words"


def is_converted_graph(graph: bytes) -> bool:
    """Whether a `GraphDef` or `GraphProto` was drawn by this package."""
    origin = decode_origin(graph)
    return origin is not None and origin.derived


def draw_in_tensorboard(event: Event, payload: bytes, head: bytes) -> Encoded:
    """Makes TensorBoard's event, behind its time and step, of a MindSpore graph, which goes to the archive."""
    # Here, as in the other direction: it needs protobuf, which takes time to load.
    from ms_summary_bridge.formats.graphs.ms_to_tb import convert_graph_event
    from ms_summary_bridge.formats.graphs.restoration import restore_graph_def

    def draw() -> tuple[bytes, str]:
        if event.derived:  # protobuf merges a message that is given in parts
            graph, counts = restore_graph_def(b"".join(wire.all_fields(payload, _GRAPH)))
            return graph, f"{_RESTORED}; {counts.describe()}"
        graph, counts = convert_graph_event(payload)
        return graph, f"drawn as a TensorFlow graph; {counts.describe()}"

    return _encode(event, "graph", head, draw)


def draw_in_mindinsight(event: Event, content: Opaque, head: bytes) -> Encoded:
    """Makes MindSpore's event of a TensorFlow graph or meta graph, as `draw_in_tensorboard` does."""
    from ms_summary_bridge.formats.graphs.restoration import restore_graph
    from ms_summary_bridge.formats.graphs.tb_to_ms import convert_graph_def

    def draw() -> tuple[bytes, str]:
        graph_def = _graph_def_of(content.payload)
        if event.derived:
            graph, counts = restore_graph(graph_def)
            return graph, f"{_RESTORED}; {counts.describe()}"
        graph, counts = convert_graph_def(graph_def)
        return graph, f"drawn as a MindSpore graph; {counts.describe_anf()}"

    return _encode(event, content.kind, head, draw)


def _encode(event: Event, kind: str, head: bytes, draw: Callable[[], tuple[bytes, str]]) -> Encoded:
    """Makes the event of what `draw` gives: the graph, and what became of it in words."""
    archive = None if event.derived else event
    try:
        graph, note = draw()
    except (EventDecodeError, InvalidValueError) as error:
        return Encoded(None, (LostValue(kind, "", error.message),), archive)
    kind = "graph" if event.derived else kind
    return Encoded(head + wire.length_delimited(b"\x22", graph), (LostValue(kind, "", note),), archive)


def _graph_def_of(payload: bytes) -> bytes:
    """Returns the graph of a TensorBoard event: a field of bytes, of which the last counts, or in a meta graph."""
    graph = b""
    for key, a, b in wire.fields(payload, 0, len(payload)):
        if key == _GRAPH:
            graph = payload[a:b]
        elif key == _META_GRAPH:
            graph = b"".join(wire.all_fields(payload[a:b], 0x12))
    return graph
