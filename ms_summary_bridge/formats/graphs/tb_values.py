"""Types and values in a graph: MindSpore's messages to attributes that TensorBoard shows.

Bytes of one format's messages to bytes of the other's.

Source:

* What MindSpore writes: https://github.com/mindspore-ai/mindspore/blob/02ea13be381445c24108c5c875de4f6225a9092e/mindspore/ccsrc/debug/dump_proto.cc
  (SetNodeOutputType, SetValueToProto). A scalar tensor has no `shape`, because dimensions are added one by one; the
  tensors in a tuple have none either, because they are written without looking at their shapes. A constant tensor
  has its type and dimensions but no elements. A monad has its name in `str_val` and no `dtype`.
* What TensorBoard reads: `graph.ts` (see `tb_names`), extractOutputShapes: edges are labelled from the list of shapes
  in `_output_shapes`, one for each output; an unknown rank gives no label, -1 gives `?`.
* The browser shows texts with protobuf's escapes, so they have as few quotation marks as can be.
* An attribute of more than 1024 bytes is not sent to the browser (`tensorboard/backend/process_graph.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any, Final

import msgspec
import numpy as np

from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats.protos import ms_pb, tb_pb

__all__ = ["TENSORFLOW_TYPES", "EncodedType", "EncodedValue", "ValueEncoder", "graphs_in", "to_bytes"]

TENSORFLOW_TYPES: Final = {
    1: 10,  # bool
    2: 6,  # int8
    3: 5,  # int16
    4: 3,  # int32
    5: 9,  # int64
    6: 4,  # uint8
    7: 17,  # uint16
    8: 22,  # uint32
    9: 23,  # uint64
    10: 19,  # float16
    11: 1,  # float32
    12: 2,  # float64
    13: 7,  # string
    43: 8,  # complex64
    44: 18,  # complex128
    46: 14,  # bfloat16
    48: 29,  # int4
}
"""DataType of MindSpore to DataType of TensorFlow."""
_EMPTY: Final = {31: "()", 32: "[]", 33: "{}", 34: "None"}  # tuple, list, dict, none
_UNKNOWN_RANK: Final = -2  # MindSpore's single dimension for it
_MAX_BYTES: Final = 800
_MAX_ITEMS: Final = 32
_MAX_INT64: Final = (1 << 63) - 1


class EncodedType(msgspec.Struct, frozen=True):
    """A `TypeProto` as attributes, each an encoded `AttrValue` or None."""

    type: bytes | None
    """Type of the elements of a tensor, or of a number."""
    shapes: bytes | None
    """Shapes of the outputs."""
    text: bytes | None
    """The type in words, for anything but a tensor."""
    elements: int
    """Outputs of a sequence; 0 for anything else."""

    def attributes(self, key: str) -> dict[str, bytes]:
        """Returns the attributes of a node whose type is called `key`."""
        attributes = {key: self.type, "_output_shapes": self.shapes, "output_type": self.text}
        return {name: value for name, value in attributes.items() if value is not None}


class EncodedValue(msgspec.Struct, frozen=True):
    """A `ValueProto` as an attribute."""

    value: bytes
    """An encoded `AttrValue`."""
    type: bytes | None
    """Its type and shape in the same form, for a number, string, bool or tensor."""
    shapes: bytes | None
    index: int
    """The number, for an integer; else 0."""
    graphs: tuple[bytes, ...]
    """Every `GraphProto` in it, at whatever depth but not inside one another."""
    outline: bytes
    """The `ValueProto`, of whose graphs there is but the name; empty where it holds none."""


class ValueEncoder:
    """Encodes types and values, each distinct one once; raises what protobuf does (`protos.PARSE_ERRORS`)."""

    def __init__(self) -> None:
        self.type: Callable[[bytes], EncodedType] = functools.cache(_encode_type)
        """Encodes a `TypeProto`."""
        self.value: Callable[[bytes], EncodedValue] = functools.cache(_encode_value)
        """Encodes a `ValueProto`."""


def _type_attr(number: int) -> bytes | None:
    return b"\x30" + wire.varint(number) if number else None


# ---------------------------------------------------------------------------------------------------- types


def _encode_type(message: bytes) -> EncodedType:
    output_type = ms_pb.TypeProto.FromString(message)
    shapes = tb_pb.AttrValue()
    elements = _elements_of(output_type)
    if elements is not None:
        shapes.list.SetInParent()
        for element in islice(elements, _MAX_ITEMS):
            _set_shape(shapes.list.shape.add(), element, True)
        while shapes.ByteSize() > _MAX_BYTES:
            del shapes.list.shape[-1]
        return EncodedType(None, shapes.SerializeToString(), _text_attr(output_type), len(elements))
    number = _tensorflow_type(output_type)
    if number:
        _set_shape(shapes.list.shape.add(), output_type, False)
        # A number is told from a tensor without dimensions by words.
        text = None if output_type.HasField("tensor_type") else _text_attr(output_type)
        return EncodedType(_type_attr(number), shapes.SerializeToString(), text, 0)
    text = _text_attr(output_type) if output_type.data_type else None
    if output_type.HasField("tensor_type") and output_type.tensor_type.HasField("shape"):
        _set_shape(shapes.list.shape.add(), output_type, False)
        return EncodedType(None, shapes.SerializeToString(), text, 0)
    return EncodedType(None, None, text, 0)


def _text_attr(output_type: Any) -> bytes:
    return wire.length_delimited(b"\x12", to_bytes(_type_text(output_type)))


def _elements_of(output_type: Any) -> Any:
    """Returns the types of a sequence's elements; None for anything else."""
    return output_type.sequence_type.elem_types if output_type.HasField("sequence_type") else None


def _tensorflow_type(output_type: Any) -> int:
    """Returns TensorFlow's number for the elements of a tensor or for a number; 0 where it has none."""
    if output_type.HasField("tensor_type"):
        return TENSORFLOW_TYPES.get(output_type.tensor_type.elem_type, 0)
    return TENSORFLOW_TYPES.get(output_type.data_type, 0)


def _set_shape(shape: Any, output_type: Any, is_element: bool) -> None:
    if output_type.HasField("tensor_type"):
        tensor = output_type.tensor_type
        sizes = [dim.size for dim in islice(tensor.shape.dim, _MAX_ITEMS)]
        if _UNKNOWN_RANK in sizes or (is_element and not tensor.HasField("shape")):
            shape.unknown_rank = True
        else:
            for size in sizes:
                shape.dim.add(size=max(size, -1))
    elif not _tensorflow_type(output_type):
        shape.unknown_rank = True


def _type_text(output_type: Any) -> str:
    """Returns a type in words: `float32[8, 3]`, `(bool, int64)`, `tuple` without its elements."""
    return _limited(_type_pieces(output_type))


def _type_pieces(output_type: Any) -> Iterator[str]:
    elements = _elements_of(output_type)
    if elements is not None:
        yield from _joined("(", elements, ")", _type_pieces)
    elif output_type.HasField("tensor_type"):
        tensor = output_type.tensor_type
        yield _type_name(tensor.elem_type)
        if tensor.HasField("shape"):
            yield str([dim.size for dim in islice(tensor.shape.dim, _MAX_ITEMS)])
    else:
        yield _type_name(output_type.data_type)


def _type_name(number: int) -> str:
    name: str = ms_pb.DataType.Name(number)
    return name.removeprefix("DT_").lower()


# ---------------------------------------------------------------------------------------------------- values


def _encode_value(message: bytes) -> EncodedValue:
    value = ms_pb.ValueProto.FromString(message)
    attr = tb_pb.AttrValue()
    _set_value(attr, value)
    graphs = tuple(graph.SerializeToString() for graph in graphs_in(value))
    if value.HasField("tensor_val"):
        number, sizes = value.tensor_val.data_type, list(islice(value.tensor_val.dims, _MAX_ITEMS))
    else:
        number, sizes = value.dtype, []
    shapes: bytes | None = None
    if number in TENSORFLOW_TYPES:
        shape = {"dim": [{"size": max(size, -1)} for size in sizes]}
        shapes = tb_pb.AttrValue(list={"shape": [shape]}).SerializeToString()
    type_ = _type_attr(TENSORFLOW_TYPES.get(number, 0))
    index = value.int_val
    return EncodedValue(attr.SerializeToString(), type_, shapes, index, graphs, _outline(value) if graphs else b"")


def _outline(value: Any) -> bytes:
    """Encodes a value without what its graphs hold; the value itself loses that."""
    for graph in graphs_in(value):
        for field, _ in graph.ListFields():
            if field.name != "name":
                graph.ClearField(field.name)
    outline: bytes = value.SerializeToString()
    return outline


def _set_value(attr: Any, value: Any) -> None:
    """Writes a `ValueProto` into an `AttrValue`: as what it is where TensorFlow has such a value, else in words."""
    fields = [(field.name, content) for field, content in value.ListFields() if field.name != "dtype"]
    name: str = fields[0][0] if len(fields) == 1 else ""
    content: Any = fields[0][1] if name else None
    if name == "bool_val":
        attr.b = content
    elif name in ("int_val", "uint_val") and content <= _MAX_INT64:
        attr.i = content
    elif name == "float_val" or (name == "double_val" and _fits_float32(content)):
        attr.f = content
    elif name == "str_val":
        attr.s = to_bytes(_checked(content))
    elif name == "type_val" and _tensorflow_type(content):
        attr.type = _tensorflow_type(content)
    elif name in _LISTS and len(content) <= _MAX_ITEMS:
        getattr(attr.list, _LISTS[name]).extend(content)
    else:
        attr.s = to_bytes(_limited(_pieces(value)))  # `(3, 3)`, `[x, w]`, `int32[1]`


_LISTS: Final = {"bool_vals": "b", "int_vals": "i", "float_vals": "f"}


def _fits_float32(number: float) -> bool:
    """Whether a float64 reads the same in a float32."""
    with np.errstate(over="ignore"):
        narrow = np.float32(number)
    return number != number or float(narrow) == number or str(narrow) == repr(number)


def to_bytes(text: str) -> bytes:
    """Encodes a text for an attribute, cut to what TensorBoard sends to the browser."""
    encoded = text.encode()
    if len(encoded) <= _MAX_BYTES:
        return encoded
    return encoded[:_MAX_BYTES].decode("utf-8", "ignore").encode() + b" ..."


def _limited(pieces: Iterator[str]) -> str:
    """Joins pieces until there are more than an attribute holds; the rest is never made."""
    taken = []
    size = 0
    for piece in pieces:
        taken.append(piece)
        size += len(piece)
        if size > _MAX_BYTES:
            break
    return "".join(taken)


def _pieces(value: Any) -> Iterator[str]:
    is_empty = True
    for field, content in value.ListFields():
        if field.name == "dtype":
            continue
        if not is_empty:
            yield ", "
        is_empty = False
        if field.name == "values":
            yield from _joined("[" if value.dtype == 32 else "(", content, "]" if value.dtype == 32 else ")", _pieces)
        elif field.name == "dict_val":
            yield from _joined(
                "{", content, "}", lambda entry: chain((f"{_shorter(entry.key)}: ",), _pieces(entry.value))
            )
        elif field.name in _TEXTS:
            yield _TEXTS[field.name](content)
        else:  # the list of one type is called like the type, with an s
            one = _TEXTS[field.name[:-1]]
            yield from _joined("[", content, "]", lambda item, one=one: iter((one(item),)))
    if is_empty:
        yield _EMPTY.get(value.dtype) or f"({_type_name(value.dtype)})"


def _joined(before: str, items: Any, after: str, pieces: Any) -> Iterator[str]:
    yield before
    for index, item in enumerate(islice(items, _MAX_ITEMS)):
        if index:
            yield ", "
        yield from pieces(item)
    if len(items) > _MAX_ITEMS:
        yield f", ... {len(items)} in all"
    yield after


def _tensor_text(tensor: Any) -> str:
    shape = str(list(islice(tensor.dims, _MAX_ITEMS)))
    for name in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
        data = getattr(tensor, name)
        if len(data):
            text = _float_text if name == "float_data" else repr
            items = ", ".join(text(item) for item in islice(data, 8))
            return f"{_type_name(tensor.data_type)}{shape} = {items}{', ...' if len(data) > 8 else ''}"
    return f"{_type_name(tensor.data_type)}{shape}"


def _float_text(number: float) -> str:
    return str(np.float32(number))


def _checked(text: str | bytes) -> str:
    """Returns the text; protobuf in C gives bytes for one that is not UTF-8, which raises here as it does in Python."""
    return text.decode() if isinstance(text, bytes) else text


def _shorter(text: str | bytes) -> str:
    text = _checked(text)
    return text if len(text) <= 100 else f"{text[:100]}... {len(text)} characters"


_TEXTS: Final[dict[str, Any]] = {
    "bool_val": repr,
    "int_val": repr,
    "uint_val": repr,
    "float_val": _float_text,
    "double_val": repr,
    "str_val": _shorter,
    "tensor_val": _tensor_text,
    "type_val": _type_text,
    "graph": lambda graph: f"graph {_shorter(graph.name)} of {len(graph.node)} operators",
}
"""Field of a `ValueProto` to its text; the lists `bool_vals`, ... `graphs` hold the same."""


def graphs_in(value: Any) -> Iterator[Any]:
    """Yields the graphs of a `ValueProto`, always in the same order."""
    if value.HasField("graph"):
        yield value.graph
    yield from value.graphs
    for inner in value.values:
        yield from graphs_in(inner)
    for entry in value.dict_val:
        yield from graphs_in(entry.value)
