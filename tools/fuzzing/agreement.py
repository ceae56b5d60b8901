"""Readers of an output: TensorBoard's two loaders and its protos, tensorboardX's, and MindSpore's, must agree on it."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import os
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ms_summary_bridge.formats.protos import ms_pb, tb_pb


def check_tensorboard(payload: bytes) -> None:
    """Asserts that an event which we made for TensorBoard says the same to everybody who reads it."""
    ours = tb_pb.Event.FromString(payload)
    for cls in _event_classes():
        other = cls.FromString(payload)
        assert _same(ours.wall_time, other.wall_time), "another wall_time"
        assert ours.step == other.step, "another step"
        assert ours.WhichOneof("what") == other.WhichOneof("what"), "another content"
        if ours.WhichOneof("what") != "summary":
            continue
        assert len(ours.summary.value) == len(other.summary.value), "another number of values"
        for one, two in zip(ours.summary.value, other.summary.value, strict=True):
            assert _value(one) == _value(two), f"another value of {one.tag!r}"


def _value(value: Any) -> tuple[Any, ...]:
    kind = value.WhichOneof("value")
    content: Any = None
    if kind == "simple_value":
        content = struct.pack("<f", value.simple_value) if not math.isnan(value.simple_value) else "nan"
    elif kind == "tensor":
        tensor = value.tensor
        shape = [dim.size for dim in tensor.tensor_shape.dim]
        content = (tensor.dtype, shape, tensor.tensor_content, list(tensor.string_val), list(tensor.float_val))
    elif kind == "image":
        content = (value.image.height, value.image.width, value.image.encoded_image_string)
    return value.tag, kind, content, value.metadata.plugin_data.plugin_name, value.metadata.plugin_data.content


def _same(one: float, two: float) -> bool:
    return struct.pack("<d", one) == struct.pack("<d", two)


def check_mindspore(payload: bytes) -> None:
    """Asserts that an event which we made for MindInsight says the same to MindSpore's classes and to ours."""
    module = _mindspore_protos()
    if module is None:
        return
    ours, other = ms_pb.Event.FromString(payload), module.Event.FromString(payload)
    assert _same(ours.wall_time, other.wall_time), "another wall_time"
    assert ours.step == other.step, "another step"
    assert ours.WhichOneof("what") == other.WhichOneof("what"), "another content"
    assert ours.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True), "another message"


def check_file(path: str) -> int:
    """Asserts that the loaders of an installed TensorBoard read the same from an event file that we wrote.

    Returns:
        How many events there are.
    """
    loaders = _loaders()
    if loaders is None:
        return 0
    raw = list(loaders.RawEventFileLoader(path).Load())
    old = list(loaders.LegacyEventFileLoader(path).Load())
    new = [event for event in loaders.EventFileLoader(path).Load() if not _is_added(event)]
    assert len(raw) == len(old) == len(new), "the loaders do not read the same number of events"
    for payload, one, two in zip(raw, old, new, strict=True):
        check_tensorboard(payload)
        assert _same(one.wall_time, two.wall_time), "the loaders do not agree on a wall_time"
        assert one.step == two.step, "the loaders do not agree on a step"
        if one.WhichOneof("what") == "summary":
            _check_migrated(one, two)
    return len(raw)


def _is_added(event: Any) -> bool:
    """Whether the newer loader made this one of a graph, which it gives as it is, too."""
    return event.WhichOneof("what") == "summary" and any(value.tag == "__run_graph__" for value in event.summary.value)


def _check_migrated(one: Any, two: Any) -> None:
    """The newer loader makes tensors of older kinds: nothing may be gone."""
    assert len(one.summary.value) == len(two.summary.value), "a value is gone"
    for before, after in zip(one.summary.value, two.summary.value, strict=True):
        assert before.tag == after.tag, "another tag"
        if before.WhichOneof("value") == "simple_value":
            from tensorboard.util import tensor_util

            array = tensor_util.make_ndarray(after.tensor)
            expected = np.float32(before.simple_value)
            assert array.shape == (), "another shape"
            assert np.array_equal(array, expected, equal_nan=True), "another number"


@functools.cache
def _loaders() -> ModuleType | None:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    return importlib.import_module("tensorboard.backend.event_processing.event_file_loader")


@functools.cache
def _event_classes() -> tuple[Any, ...]:
    names = ("tensorboard.compat.proto.event_pb2", "tensorboardX.proto.event_pb2")
    return tuple(
        importlib.import_module(name).Event for name in names if importlib.util.find_spec(name.partition(".")[0])
    )


@functools.cache
def _mindspore_protos() -> Any:
    """Returns MindSpore's own classes without importing mindspore, which makes protobuf slow; None without them."""
    found = importlib.util.find_spec("mindspore")
    if found is None or found.origin is None:
        return None
    directory = Path(found.origin).parent / "train"
    package = "fuzzed_mindspore_train"
    stand_in = ModuleType(package)
    stand_in.__path__ = [os.fspath(directory)]
    sys.modules[package] = stand_in
    try:
        return importlib.import_module(f"{package}.summary_pb2")
    except (ImportError, TypeError):  # its names are declared in this process already, by mindspore itself
        return None


def check_graph_def(graph: bytes) -> None:
    """Asserts that TensorBoard's own class reads a graph that we drew, with a name for each node."""
    if importlib.util.find_spec("tensorboard") is None:
        return
    message = importlib.import_module("tensorboard.compat.proto.graph_pb2").GraphDef.FromString(graph)
    names = [node.name for node in message.node]
    assert len(names) == len({*names}), "two nodes of a drawing have one name"
    assert all(names), "a node of a drawing has no name"
