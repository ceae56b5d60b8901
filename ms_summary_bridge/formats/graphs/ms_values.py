"""Types and values in a graph: TensorFlow's attributes to MindSpore's messages that MindInsight shows.

Bytes of one format's messages to bytes of the other's.

Source, in `mindinsight/datavisual/data_transform/graph/` of MindInsight 2.3.1 (`msgraph.py`, `graph.py`):

* A node's `output_type` labels its edges with shapes; of a tuple each element is one output. Dimensions are numbers, -1
  and -2 make the node one of dynamic shape.
* A constant shows the text of its `ValueProto`, and the shape only of a tensor.
* A value of more than 1024 bytes is dropped (`MAX_NODE_ATTRIBUTE_VALUE_BYTES`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ms_summary_bridge.errors import EventDecodeError, InvalidValueError
from ms_summary_bridge.formats.graphs.tb_values import TENSORFLOW_TYPES
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tensor import decode_tensorboard_tensor

__all__ = ["AnfValueEncoder"]

_TYPES: Final = {number: own for own, number in TENSORFLOW_TYPES.items()}
_REFERENCE: Final = 100  # TensorFlow's number for a reference to a type is that of the type and this
_TENSOR, _TUPLE, _LIST, _NONE, _TYPE, _STRING, _INT64, _FLOAT32, _BOOL = 14, 31, 32, 34, 39, 13, 5, 11, 1
_UNKNOWN_RANK: Final = -2  # MindSpore's single dimension for it
_MAX_BYTES: Final = 800
_MAX_ITEMS: Final = 32
_MAX_ELEMENTS: Final = 16
_MAX_TENSOR_BYTES: Final = 4096
_LONG_NUMBER: Final = re.compile(r"[0-9]{19}")  # of our words every number has fewer digits, and fits an int64
_TYPE_PIECE: Final = re.compile(r"([a-z0-9_]+)(?:\[[-0-9, ]*\])?|[()]")
_FIELDS: Final = {"f": "float_data", "d": "double_data", "i": "int64_data", "b": "int32_data", "u": "uint64_data"}
"""Kind of a numpy dtype to the list that holds its elements."""


class AnfValueEncoder:
    """Encodes types and values, each distinct one once; raises what protobuf does (`protos.PARSE_ERRORS`)."""

    def __init__(self) -> None:
        self.value: Callable[[bytes], bytes] = functools.cache(_encode_value)
        """Encodes an `AttrValue` as a `ValueProto`."""
        self._type = functools.cache(_encode_type)

    def type(self, dtype: bytes, shapes: bytes, words: bytes = b"") -> bytes:
        """Encodes what a node says of its outputs as a `TypeProto`, which is empty where nothing is said.

        Args:
            dtype: `AttrValue` with the type of the elements, or empty.
            shapes: `AttrValue` with a list of shapes or one shape, or empty.
            words: `AttrValue` with the types of a tuple as this package writes them, or empty.
        """
        return self._type(dtype, shapes, words)

    def constant(self, attributes: dict[str, bytes]) -> bytes:
        """Encodes the value of a constant, from the attributes of its node; a tensor keeps its shape."""
        source = tb_pb.AttrValue.FromString(attributes.get("value", b""))
        if source.WhichOneof("value") is None:  # tensorboardX puts what it knows of a node into one text
            return self.value(attributes.get("attr", attributes.get("value", b"")))
        shapes = tb_pb.AttrValue.FromString(attributes.get("_output_shapes", b"")).list.shape
        dtype = tb_pb.AttrValue.FromString(attributes.get("dtype", b"")).type
        if source.WhichOneof("value") == "s" and "dtype" not in attributes:  # words for a tuple, a monad, ...
            words: bytes = ms_pb.ValueProto(str_val=_shorter(source.s.decode(errors="replace"))).SerializeToString()
            return words
        if source.WhichOneof("value") == "s" and len(shapes) == 1 and _type_of(dtype) not in (0, _STRING):
            value = ms_pb.ValueProto(dtype=_TENSOR)  # our words for a tensor: `float32[2, 3]`
            value.tensor_val.data_type = _type_of(dtype)
            value.tensor_val.dims.extend(_sizes(shapes[0]))
            encoded: bytes = value.SerializeToString()
            return encoded
        return self.value(attributes["value"])


def _type_of(number: int) -> int:
    return _TYPES.get(number % _REFERENCE, 0)


def _sizes(shape: Any) -> list[int]:
    return [_UNKNOWN_RANK] if shape.unknown_rank else [max(dim.size, -1) for dim in shape.dim[:_MAX_ITEMS]]


# ---------------------------------------------------------------------------------------------------- types


def _encode_type(*messages: bytes) -> bytes:
    encoded: bytes = _type_from(*map(tb_pb.AttrValue.FromString, messages)).SerializeToString()
    return encoded


def _type_from(dtype: Any, shapes: Any, words: Any) -> Any:
    output_type = ms_pb.TypeProto()
    number = _type_of(dtype.type if dtype.WhichOneof("value") == "type" else 0)
    found = list(shapes.list.shape) if shapes.WhichOneof("value") == "list" else []
    if shapes.WhichOneof("value") == "shape":
        found = [shapes.shape]
    if words.s and _read_words(output_type, words.s.decode(errors="replace"), found):
        return output_type
    if len(found) == 1:
        _set_tensor(output_type, number, found[0])
    elif found:
        output_type.data_type = _TUPLE
        for shape in found[:_MAX_ITEMS]:
            _set_tensor(output_type.sequence_type.elem_types.add(), number, shape)
    return output_type  # a type without a shape would label edges as if they carried single numbers


def _set_tensor(output_type: Any, number: int, shape: Any) -> None:
    output_type.data_type = _TENSOR
    output_type.tensor_type.elem_type = number
    output_type.tensor_type.shape.SetInParent()
    for size in _sizes(shape):
        output_type.tensor_type.shape.dim.add(size=size)


def _read_words(output_type: Any, text: str, shapes: list[Any]) -> bool:
    """Reads our words for a type, `(float32[2], (int64), none)`, whose outermost elements have the shapes.

    Returns:
        Whether they could be read; they cannot where they were cut or damaged.
    """
    if text.count("(") != text.count(")") or " ..." in text or _LONG_NUMBER.search(text):
        return False
    stack = [output_type]
    for match in _TYPE_PIECE.finditer(text):
        if match[0] == ")":
            stack.pop()
            if not stack:
                return False
            continue
        outer = stack[-1]
        target = outer
        if outer is not output_type or outer.HasField("sequence_type"):
            target = outer.sequence_type.elem_types.add()
        if match[0] == "(":
            target.data_type = _TUPLE
            target.sequence_type.SetInParent()
            stack.append(target)
            continue
        name = f"DT_{match[1].upper()}"
        number = ms_pb.DataType.Value(name) if name in ms_pb.DataType.keys() else 0  # noqa: SIM118
        index = len(output_type.sequence_type.elem_types) - 1
        shape = shapes[index] if len(stack) == 2 and 0 <= index < len(shapes) else None
        if "[" in match[0] and shape is not None:
            _set_tensor(target, number, shape)
        elif "[" in match[0]:
            target.data_type = _TENSOR
            target.tensor_type.elem_type = number
            for size in re.findall(r"-?[0-9]+", match[0].partition("[")[2]):
                target.tensor_type.shape.dim.add(size=int(size))
        elif shape is not None and shape.unknown_rank and number in TENSORFLOW_TYPES:
            target.data_type = _TENSOR  # MindSpore leaves out the shapes of the tensors in a tuple
            target.tensor_type.elem_type = number
        else:
            target.data_type = number
    return True


# ---------------------------------------------------------------------------------------------------- values


def _encode_value(message: bytes) -> bytes:
    value = ms_pb.ValueProto()
    _set_value(value, tb_pb.AttrValue.FromString(message))
    if value.ByteSize() > _MAX_BYTES:
        value = ms_pb.ValueProto(dtype=_STRING, str_val=_shorter(f"{str(value)[:_MAX_BYTES]} ..."))
    encoded: bytes = value.SerializeToString()
    return encoded


def _set_value(value: Any, source: Any) -> None:
    """Writes an `AttrValue` into a `ValueProto`: as what it is where MindSpore has such a value, else in words."""
    name = source.WhichOneof("value")
    if name is None:
        value.dtype = _NONE
    elif name == "tensor":
        _set_constant_tensor(value, source.tensor)
    elif name == "shape":
        _set_shape(value, source.shape)
    elif name == "list":
        value.dtype = _LIST
        for field, items in source.list.ListFields():
            for item in items[:_MAX_ITEMS]:
                _set_plain(value.values.add(), field.name, item)
            if len(items) > _MAX_ITEMS:
                value.values.add(dtype=_STRING, str_val=f"... {len(items)} in all")
    else:
        _set_plain(value, name, getattr(source, name))


def _set_plain(value: Any, name: str, item: Any) -> None:
    if name == "i":
        value.dtype, value.int_val = _INT64, item
    elif name == "f":
        value.dtype, value.float_val = _FLOAT32, item
    elif name == "b":
        value.dtype, value.bool_val = _BOOL, item
    elif name == "type":
        value.dtype = _TYPE
        value.type_val.data_type = _type_of(item)
    elif name == "shape":
        _set_shape(value, item)
    elif name == "tensor":
        _set_constant_tensor(value, item)
    elif name == "func":
        value.dtype, value.str_val = _STRING, _shorter(f"function {item.name}")
    else:
        value.dtype = _STRING
        value.str_val = _shorter(item.decode(errors="replace") if isinstance(item, bytes) else item)


def _set_shape(value: Any, shape: Any) -> None:
    value.dtype = _TUPLE
    for size in _sizes(shape):
        value.values.add(dtype=_INT64, int_val=size)


def _set_constant_tensor(value: Any, tensor: Any) -> None:
    """Writes a tensor with its type and shape, and with its elements if they are few."""
    sizes = _sizes(tensor.tensor_shape)
    count = 1
    for size in sizes:
        count *= max(size, 0)
    if tensor.dtype == tb_pb.DataType.DT_STRING and not sizes and len(tensor.string_val) == 1:
        value.dtype = _STRING
        value.str_val = _shorter(tensor.string_val[0].decode(errors="replace"))
        return
    value.dtype = _TENSOR
    value.tensor_val.data_type = _type_of(tensor.dtype)
    value.tensor_val.dims.extend(sizes)
    if count > _MAX_ELEMENTS or tensor.ByteSize() > _MAX_TENSOR_BYTES:
        return
    data = tensor.SerializeToString()
    try:
        array = decode_tensorboard_tensor(data, 0, len(data))
    except (InvalidValueError, EventDecodeError):  # a kind without elements: its type and shape are all there is
        return
    if isinstance(array, np.ndarray) and array.dtype.kind in _FIELDS:
        field = "float_data" if array.dtype.itemsize < 8 and array.dtype.kind == "f" else _FIELDS[array.dtype.kind]
        elements = array.ravel().astype(np.int64) if array.dtype.kind == "b" else array.ravel()
        getattr(value.tensor_val, field).extend(elements.tolist())


def _shorter(text: str) -> str:
    encoded = text.encode(errors="replace")
    return text if len(encoded) <= _MAX_BYTES else encoded[: _MAX_BYTES - 4].decode(errors="ignore") + " ..."
