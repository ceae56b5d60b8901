"""MindSpore's graph files (`*.pb`): tells them from others of that name, and reads one as an event.

Source: `ModelProto` in `proto/mindspore/graph.proto`; MindSpore writes its fields in the order of their numbers: two
small numbers and a word, then the graph. TensorFlow uses the same file name for graphs (which begin with a node) and
saved models (whose field 2 is a whole graph), so what stands at the beginning tells them apart.
"""

from __future__ import annotations

import os
from typing import Final

from ms_summary_bridge.errors import EventDecodeError, LogdirError, counted
from ms_summary_bridge.events import Event
from ms_summary_bridge.files.event_file import open_source, read_errors
from ms_summary_bridge.files.records import MAX_RECORD_BYTES, too_large
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.mindspore import MindSporeDecoder

__all__ = ["find_fault", "read_graph_file"]

_GRAPH: Final = 0x22  # field 4, here and in an event
_BEFORE_GRAPH: Final = {0x08: wire.VARINT, 0x12: wire.LENGTH_DELIMITED, 0x18: wire.VARINT}
_HEAD_BYTES: Final = 4096


def find_fault(path: str) -> tuple[int, str]:
    """Looks at the beginning of a file.

    Returns:
        Its size, and why it is not a graph file of MindSpore's; empty when it is one.

    Raises:
        LogdirError: It cannot be read.
    """
    head, size = _read(path, _HEAD_BYTES)
    if size > MAX_RECORD_BYTES:  # as an event with it would be
        return size, too_large(size, MAX_RECORD_BYTES)
    position = 0
    try:
        while position < len(head):
            key = head[position]
            number, position = wire.read_varint(head, position + 1, len(head))
            if key == _GRAPH:
                missing = position + number - size
                return (
                    size,
                    f"a MindSpore graph file that ends {counted(missing, 'byte')} too early" if missing > 0 else "",
                )
            if key not in _BEFORE_GRAPH:
                break
            if _BEFORE_GRAPH[key] == wire.LENGTH_DELIMITED:
                position += number
    except EventDecodeError:
        pass
    return size, "not a graph file of MindSpore" if size else "zero bytes"


def read_graph_file(path: str) -> Event:
    """Returns the graph of a file as MindSpore's event; the file says no time and no step, so both are 0.

    Raises:
        LogdirError: It cannot be read.
    """
    data, _ = _read(path, -1)
    try:
        parts = [data[a:b] for key, a, b in wire.fields(data, 0, len(data)) if key == _GRAPH]
    except EventDecodeError as error:
        raise LogdirError(f"{path}: a damaged graph file: {error.message}") from error
    graph = wire.length_delimited(b"\x22", b"".join(parts))  # protobuf merges a message that is given in parts
    return MindSporeDecoder().decode(wire.fixed64(b"\x09", 0.0) + graph)


def _read(path: str, count: int) -> tuple[bytes, int]:
    """Returns the first bytes of a file, or all of them, and its size."""
    with open_source(path) as file, read_errors(path):
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        data = b""
        while chunk := file.read((size if count < 0 else count) - len(data)):
            data += chunk
        return data, size
