"""Arrays in both formats' tensor messages, and a tensor as a person reads it.

Source: field numbers and element layouts from the message definitions in `proto/`; which of MindSpore's fields its
own writer fills was measured: always `float_data`, whatever the dtype.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ms_summary_bridge.errors import InvalidValueError, counted
from ms_summary_bridge.formats import wire
from ms_summary_bridge.formats._elements import Elements
from ms_summary_bridge.values import Tensor

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "DT_DOUBLE",
    "DT_FLOAT",
    "decode_mindspore_tensor",
    "decode_tensorboard_tensor",
    "encode_mindspore_tensor",
    "encode_tensorboard_tensor",
    "statistics_table",
    "value_histogram",
]

_MINDSPORE_DTYPES: Final = {
    1: "bool", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
    10: "float16", 11: "float32", 12: "float64", 43: "complex64", 44: "complex128", 46: "bfloat16", 48: "int4",
}  # fmt: skip
_MINDSPORE_NUMBERS: Final = {name: number for number, name in _MINDSPORE_DTYPES.items()}

# number -> (name, dtype of tensor_content, field of the typed list)
_TENSORBOARD_DTYPES: Final[dict[int, tuple[str, str, int]]] = {
    1: ("float32", "<f4", 5), 2: ("float64", "<f8", 6), 3: ("int32", "<i4", 7), 4: ("uint8", "u1", 7),
    5: ("int16", "<i2", 7), 6: ("int8", "i1", 7), 8: ("complex64", "<c8", 9), 9: ("int64", "<i8", 10),
    10: ("bool", "?", 11), 14: ("bfloat16", "<u2", 13), 17: ("uint16", "<u2", 7), 18: ("complex128", "<c16", 12),
    19: ("float16", "<f2", 13), 22: ("uint32", "<u4", 16), 23: ("uint64", "<u8", 17),
}  # fmt: skip
_TENSORBOARD_STRING: Final = 7
DT_FLOAT: Final = 1
DT_DOUBLE: Final = 2

_MOST_FILLED: Final = 32  # bytes of elements for a byte of a message that leaves them out
_MOST_COUNTED: Final = (1 << 63) // 16 - 1  # elements of complex128, the widest
_MAX_DIMS: Final = 254  # TensorFlow's own bound; keeps a damaged message from building a huge shape


def _reshape(array: npt.NDArray[Any], dims: list[int]) -> npt.NDArray[Any]:
    is_filled = all(size >= 0 for size in dims) and len(dims) <= 32 and math.prod(dims) == array.size
    # No elements, yet sizes whose product numpy cannot count, in this type or in a wider one that is made of it.
    is_large = math.prod(size or 1 for size in dims) > _MOST_COUNTED
    if not is_filled or is_large:
        filling = f"{counted(array.size, 'element does', 'elements do')} not fill the shape {dims}"
        raise InvalidValueError(f"{filling}, which is too large" if is_filled else filling)
    return array.reshape(dims)


# ---------------------------------------------------------------- MindSpore: TensorProto of anf_ir


def decode_mindspore_tensor(data: bytes, start: int, end: int) -> tuple[Tensor, bool]:
    """Decodes a MindSpore `TensorProto`.

    Returns:
        The tensor, and whether `encode_mindspore_tensor` gives an equal message for it.

    Raises:
        InvalidValueError: The elements do not fill the shape.
        EventDecodeError: The message is malformed.
    """
    dims: list[int] = []
    data_type: int | None = None
    parts = Elements()
    stored: set[int] = set()
    is_exact = True
    for key, a, b in wire.fields(data, start, end):
        if key == 8:
            dims.append(wire.signed(a))
        elif key == 10:
            while a < b:
                size, a = wire.read_varint(data, a, b)
                dims.append(wire.signed(size))
        elif key == 16:
            is_exact = is_exact and data_type is None
            data_type = a
        elif key >> 3 in _MINDSPORE_DATA and key & 7 in (wire.LENGTH_DELIMITED, _MINDSPORE_DATA[key >> 3][1]):
            number = key >> 3
            stored.add(number)
            dtype, unpacked = _MINDSPORE_DATA[number]
            if key & 7 == wire.VARINT:
                parts.add_number(a)
            elif unpacked == wire.VARINT:
                parts.add_packed(data, a, b)
            elif (b - a) % np.dtype(dtype).itemsize:
                raise InvalidValueError(
                    f"{counted(b - a, 'byte does', 'bytes do')} not hold a whole number of {dtype} elements"
                )
            else:
                parts.add(np.frombuffer(data, dtype, (b - a) // np.dtype(dtype).itemsize, a))
        else:
            is_exact = False
    if len(stored) > 1:
        raise InvalidValueError("elements are spread over several fields")
    joined = parts.join()
    array = np.empty(0, np.float32) if joined is None else joined.astype(dtype, copy=False)
    # An absent float_data and an empty one are the same message, so an empty tensor is exact too.
    is_exact = is_exact and data_type in _MINDSPORE_DTYPES and stored <= {3}
    return Tensor(_reshape(array, dims).copy(), _MINDSPORE_DTYPES.get(data_type or 0, "undefined")), is_exact


# field -> (dtype, wire type of one element when the list is not packed)
_MINDSPORE_DATA: Final[dict[int, tuple[str, int]]] = {
    3: ("<f4", wire.FIXED32), 4: ("<i4", wire.VARINT), 5: ("<i8", wire.VARINT),
    6: ("<f8", wire.FIXED64), 7: ("<u8", wire.VARINT),
}  # fmt: skip


def encode_mindspore_tensor(tensor: Tensor) -> tuple[bytes, str]:
    """Encodes a MindSpore `TensorProto` as MindSpore's writer does: elements in `float_data`, row by row.

    Before it stands the key of a summary value's field.

    Returns:
        The message, and what it does not hold: empty when float32 holds every element.
    """
    array = tensor.array
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = np.asarray(array.real if array.dtype.kind == "c" else array, "<f4", order="C")
        is_exact = array.dtype == np.dtype("<f4") or bool(
            np.array_equal(narrow.astype(array.dtype), array, equal_nan=array.dtype.kind in "fc")
        )
    out = b"".join(b"\x08" + wire.varint(size) for size in array.shape)
    out += b"\x10" + wire.varint(_MINDSPORE_NUMBERS.get(tensor.dtype, 0))
    if array.size:
        out += wire.length_delimited(b"\x1a", narrow.tobytes())
    how = "written as the float32 of their real parts" if array.dtype.kind == "c" else "rounded to float32"
    loss = "" if is_exact else f"{array.dtype} elements {how}"
    return wire.length_delimited(b"\x42", out), loss


# ---------------------------------------------------------------- TensorBoard: TensorProto


def decode_tensorboard_tensor(data: bytes, start: int, end: int) -> npt.NDArray[Any] | list[bytes]:
    """Decodes a TensorFlow `TensorProto` in any of its layouts: packed bytes, or a typed list, packed or not.

    A typed list shorter than the shape is filled up with its last element, an empty one with zeros, as TensorFlow reads
    it; but not where that makes more than 32 bytes of one, which no writer of summaries leaves to a reader.

    Returns:
        The array in its own dtype (bfloat16 as float32), or for DT_STRING the flat list of byte strings.

    Raises:
        InvalidValueError: An unknown dtype, or elements that do not fill the shape.
        EventDecodeError: The message is malformed.
    """
    number = 0
    dims: list[int] = []
    content = b""
    strings: list[bytes] = []
    for key, a, b in wire.fields(data, start, end):
        if key == 8:
            number = a
        elif key == 18:
            dims += _tensorboard_shape(data, a, b)
        elif key == 34:
            content = data[a:b]
        elif key == 66:
            strings.append(data[a:b])
    if number == _TENSORBOARD_STRING:
        return strings
    if number not in _TENSORBOARD_DTYPES:
        raise InvalidValueError(f"the data type {number} of a tensor is not known")
    name, dtype, field = _TENSORBOARD_DTYPES[number]
    count = math.prod(dims)
    if content:  # an empty one is none: proto3 writes no default
        if len(content) % np.dtype(dtype).itemsize:
            raise InvalidValueError(
                f"{counted(len(content), 'byte does', 'bytes do')} not hold a whole number of {name} elements"
            )
        array = np.frombuffer(content, dtype)
    else:
        array = _typed_list(data, start, end, field, dtype)
        # A shape alone must not make us allocate without bound, nor must many of them in one event.
        if array.size < count and count * array.itemsize <= _MOST_FILLED * (end - start):
            last = array[-1:] if array.size else np.zeros(1, dtype)
            array = np.concatenate([array, np.repeat(last, count - array.size)])
    if name == "bfloat16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return _reshape(array, dims)


def _tensorboard_shape(data: bytes, start: int, end: int) -> list[int]:
    dims: list[int] = []
    for key, a, b in wire.fields(data, start, end):
        if key == 18:
            size = 0
            for inner, value, _ in wire.fields(data, a, b):
                if inner == 8:
                    size = wire.signed(value)
            dims.append(size)
            if len(dims) > _MAX_DIMS:
                raise InvalidValueError("a tensor has too many dimensions")
        elif key == 24 and a:
            raise InvalidValueError("a tensor of unknown rank")
    return dims


def _typed_list(data: bytes, start: int, end: int, field: int, dtype: str) -> npt.NDArray[Any]:
    """Reads the elements in one field, each by itself or many packed together."""
    kind = np.dtype(dtype)
    element = np.dtype(f"<f{kind.itemsize // 2}") if kind.kind == "c" else kind if kind.kind == "f" else None
    parts = Elements()
    unpacked = wire.VARINT
    if element is not None and kind != np.dtype("<f2"):
        unpacked = wire.FIXED32 if element.itemsize == 4 else wire.FIXED64
    for key, a, b in wire.fields(data, start, end):
        if key >> 3 != field or key & 7 not in (unpacked, wire.LENGTH_DELIMITED):
            continue  # another field of the same number, as protobuf sees it
        if key & 7 == wire.VARINT:
            parts.add_number(a)
        elif element is None or kind == np.dtype("<f2"):  # half_val holds the bits of each half as an integer
            parts.add_packed(data, a, b)
        elif (b - a) % element.itemsize:
            raise InvalidValueError(
                f"{counted(b - a, 'byte does', 'bytes do')} not hold a whole number of {element} elements"
            )
        else:
            parts.add(np.frombuffer(data, element, (b - a) // element.itemsize, a))
    joined = parts.join()
    if joined is None:
        return np.empty(0, kind)
    if kind == np.dtype("<f2"):
        joined = joined.astype(np.uint16).view("<f2")
    elif kind.kind == "c":
        if joined.size % 2:
            numbers = counted(joined.size, "number does", "numbers do")
            raise InvalidValueError(f"{numbers} not hold a whole number of {kind} elements")
        joined = joined.view(kind)
    return joined.astype(kind, copy=False)


def encode_tensorboard_tensor(array: npt.NDArray[Any], data_type: int) -> bytes:
    """Encodes an array as a TensorFlow `TensorProto` with its elements in `tensor_content`.

    `data_type` is TensorFlow's number of the array's dtype.
    """
    out = _tensorboard_head(data_type, array.shape)
    return out + wire.length_delimited(b"\x22", array.tobytes()) if array.size else out


@functools.lru_cache(maxsize=256)
def _tensorboard_head(data_type: int, shape: tuple[int, ...]) -> bytes:
    """Encodes data type and shape, of which a run has a few."""
    dims = b"".join(wire.length_delimited(b"\x12", b"\x08" + wire.varint(size)) for size in shape)
    return b"\x08" + wire.varint(data_type) + wire.length_delimited(b"\x12", dims)


# ---------------------------------------------------------------- for people

_TABLE_ROWS: Final = 8
_TABLE_COLUMNS: Final = 8
_HISTOGRAM_BINS: Final = 30


def statistics_table(tensor: Tensor) -> str:
    """Returns markdown that shows a tensor: shape, dtype, statistics of its finite elements, and its first rows.

    At most 8 x 8 elements of the first matrix (the last two axes at index 0 of all others) are shown.
    """
    array = tensor.array
    numbers = _to_float64(array)
    finite = numbers[np.isfinite(numbers)]
    rows = [("shape", " x ".join(map(str, array.shape)) or "scalar"), ("dtype", tensor.dtype), ("elements", array.size)]
    if finite.size:
        with np.errstate(over="ignore", invalid="ignore"):
            mean, std = float(finite.mean()), float(finite.std())
        rows += [("min", f"{float(finite.min()):.6g}"), ("max", f"{float(finite.max()):.6g}")]
        rows += [("mean", f"{mean:.6g}"), ("std", f"{std:.6g}")]
    if finite.size < numbers.size:
        rows += [("nan", int(np.isnan(numbers).sum())), ("+inf", int((numbers == np.inf).sum()))]
        rows += [("-inf", int((numbers == -np.inf).sum()))]
    lines = ["| statistic | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    if array.size:
        matrix = array[(0,) * (array.ndim - 2)] if array.ndim > 2 else np.atleast_2d(array)
        part = matrix[:_TABLE_ROWS, :_TABLE_COLUMNS]
        place = f" at {[0] * (array.ndim - 2)}" if array.ndim > 2 else ""
        lines += [
            "",
            f"First {part.shape[0]} x {part.shape[1]} of {matrix.shape[0]} x {matrix.shape[1]} elements{place}:",
            "",
        ]
        lines += ["| | " + " | ".join(map(str, range(part.shape[1]))) + " |", "|---" * (part.shape[1] + 1) + "|"]
        lines += [f"| **{index}** | " + " | ".join(map(_short, row.tolist())) + " |" for index, row in enumerate(part)]
    return "\n".join(lines) + "\n"


def _to_float64(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Returns the elements as float64, complex ones by their magnitude."""
    with np.errstate(over="ignore", invalid="ignore"):  # a signalling NaN becomes a quiet one
        real = np.abs(array) if array.dtype.kind == "c" else array
        return real.astype(np.float64)


def _short(element: Any) -> str:
    return f"{element:.6g}" if isinstance(element, float) else str(element)


def value_histogram(tensor: Tensor) -> npt.NDArray[np.float64]:
    """Returns `[k, 3]` float64 rows (left, right, count) over the finite elements: 30 even bins, or none at all."""
    values = _to_float64(tensor.array).ravel()
    values = values[np.isfinite(values)]
    if not values.size:
        return np.empty((0, 3))
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / _HISTOGRAM_BINS
    if not math.isfinite(width) or width < 4 * np.spacing(max(abs(low), abs(high))):
        # Wider than float64, or not wide enough for edges that differ: the bins cannot be even.
        return np.array([[low, high, values.size]])
    counts, edges = np.histogram(values, bins=_HISTOGRAM_BINS, range=(low, high))
    return np.stack([edges[:-1], edges[1:], counts.astype(np.float64)], axis=1)
