"""Events that hold a graph: each format's drawn, or turned back, for the other.

A graph that was drawn by this package is marked as such (field 1000 of the graph, see `formats.plugin_data`). It is
turned back where the original is not at hand, and never drawn a second time.
"""

from __future__ import annotations

from typing import Any, Final

from ms_summary_bridge.errors import EventDecodeError, InvalidValueError
from ms_summary_bridge.events import Encoded, Event, LostValue
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.plugin_data import decode_origin

__all__ = ["draw_in_mindinsight", "draw_in_tensorboard", "is_converted_graph"]

_GRAPH: Final = 0x22  # field 4 of both formats' events
_META_GRAPH: Final = 0x4A  # field 9 of TensorBoard's; its field 2 is the graph
_RESTORED: Final = "turned back from its drawing; values that were drawn in words stay words"


def is_converted_graph(graph: bytes) -> bool:
    """Whether a `GraphDef` or `GraphProto` was drawn by this package."""
    origin = decode_origin(graph)
    return origin is not None and origin.derived


def draw_in_tensorboard(event: Event, payload: bytes, head: bytes) -> Encoded:
    """Makes TensorBoard's event of a MindSpore graph; the graph itself goes to the archive.

    Args:
        event: Of MindSpore's format.
        payload: Its bytes.
        head: Time and step of the event to be made, encoded.
    """
    # Here, as in the other direction: it needs protobuf, which takes time to load.
    from ms_summary_bridge.formats.graphs.ms_to_tb import convert_graph_event
    from ms_summary_bridge.formats.graphs.restoration import restore_graph_def

    try:
        if event.derived:
            graph, restored = restore_graph_def(_joined(payload))
            return _restored(head, graph, restored)
        graph, counts = convert_graph_event(payload)
    except (EventDecodeError, InvalidValueError) as error:
        return Encoded(None, (LostValue("graph", "", error.message),), None if event.derived else event)
    note = f"drawn as a TensorFlow graph; {counts.describe()}"
    return Encoded(head + wire.length_delimited(b"\x22", graph), (LostValue("graph", "", note),), event)


def draw_in_mindinsight(event: Event, payload: bytes, head: bytes) -> Encoded:
    """Makes MindSpore's event of a TensorFlow graph or meta graph; the graph itself goes to the archive.

    Args:
        event: Of TensorBoard's format.
        payload: Its bytes.
        head: Time and step of the event to be made, encoded.
    """
    from ms_summary_bridge.formats.graphs.restoration import restore_graph
    from ms_summary_bridge.formats.graphs.tb_to_ms import convert_graph_def

    kind = getattr(event.content, "kind", "graph")
    try:
        graph_def = _graph_def_of(payload)
        if event.derived:
            graph, restored = restore_graph(graph_def)
            return _restored(head, graph, restored)
        graph, counts = convert_graph_def(graph_def)
    except (EventDecodeError, InvalidValueError) as error:
        return Encoded(None, (LostValue(kind, "", error.message),), None if event.derived else event)
    note = f"drawn as a MindSpore graph; {counts.describe()}"
    return Encoded(head + wire.length_delimited(b"\x22", graph), (LostValue(kind, "", note),), event)


def _restored(head: bytes, graph: bytes, counts: Any) -> Encoded:
    note = f"{_RESTORED}; {counts.describe()}"
    return Encoded(head + wire.length_delimited(b"\x22", graph), (LostValue("graph", "", note),))


def _joined(payload: bytes) -> bytes:
    """Returns the graph of a MindSpore event; protobuf merges a message that is given in parts."""
    return b"".join(payload[a:b] for key, a, b in wire.fields(payload, 0, len(payload)) if key == _GRAPH)


def _graph_def_of(payload: bytes) -> bytes:
    """Returns the graph of a TensorBoard event: a field of bytes, of which the last counts, or in a meta graph."""
    graph = b""
    for key, a, b in wire.fields(payload, 0, len(payload)):
        if key == _GRAPH:
            graph = payload[a:b]
        elif key == _META_GRAPH:
            graph = b"".join(payload[c:d] for inner, c, d in wire.fields(payload, a, b) if inner == 0x12)
    return graph
