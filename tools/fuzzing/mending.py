"""Makes a changed message agree with itself again: what it says of how many elements it holds, and of which type."""

from __future__ import annotations

import random
from typing import Any

from ms_summary_bridge.formats.protos import PARSE_ERRORS, ms_pb, tb_pb

_ELEMENTS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_LISTS = {
    1: "float_val", 2: "double_val", 3: "int_val", 4: "int_val", 5: "int_val", 6: "int_val", 8: "scomplex_val",
    9: "int64_val", 10: "bool_val", 14: "half_val", 17: "int_val", 18: "dcomplex_val", 19: "half_val", 22: "uint32_val",
    23: "uint64_val",
}  # fmt: skip
_SIZES = {1: 4, 2: 8, 3: 4, 4: 1, 5: 2, 6: 1, 8: 8, 9: 8, 10: 1, 14: 2, 17: 2, 18: 16, 19: 2, 22: 4, 23: 8}


def mend_tensor(head: bytes, data: bytes, rng: random.Random) -> bytes:
    """Gives a tensor the shape of its elements: one of MindSpore's below 0x80, else one of TensorBoard's."""
    message: Any = ms_pb.TensorProto() if head < b"\x80" else tb_pb.TensorProto()
    try:
        message.MergeFromString(data)
    except PARSE_ERRORS:
        return data
    if head < b"\x80":
        filled = [name for name in _ELEMENTS if len(getattr(message, name))]
        for name in filled[1:]:
            message.ClearField(name)
        message.dims[:] = _shape(len(getattr(message, filled[0])) if filled else 0, rng)
        return bytes(message.SerializeToString())
    if message.dtype not in _LISTS and message.dtype != 7:
        message.dtype = rng.choice([*_LISTS])
    if message.dtype == 7:
        return bytes(message.SerializeToString())
    size = _SIZES[message.dtype]
    if message.tensor_content:
        message.tensor_content = message.tensor_content[: len(message.tensor_content) // size * size]
    if message.tensor_content:
        count = len(message.tensor_content) // size
    else:
        found = getattr(message, _LISTS[message.dtype])
        if not found:
            found.extend([1, 0, 1, 0])
        count = len(found) // (2 if message.dtype in (8, 18) else 1) * rng.choice((1, 1, 1, 2))
    message.ClearField("tensor_shape")
    for number in _shape(count, rng):
        message.tensor_shape.dim.add(size=number)
    return bytes(message.SerializeToString())


def _shape(count: int, rng: random.Random) -> list[int]:
    """Returns a shape with so many elements."""
    if count == 0:
        return rng.choice(([0], [0, 3], [4, 0]))
    shape = []
    for divisor in (2, 3, 1):
        while count % divisor == 0 and not rng.randrange(3):
            shape.append(divisor)
            count //= divisor
    return [*shape, count] if shape or count > 1 or rng.randrange(2) else []


def mend_histogram(head: bytes, data: bytes, rng: random.Random) -> bytes:
    """Gives an older histogram of TensorBoard as many edges as counts."""
    if head[0] % 4 != 1:
        return data
    message: Any = tb_pb.HistogramProto()
    try:
        message.MergeFromString(data)
    except PARSE_ERRORS:
        return data
    count = min(len(message.bucket), len(message.bucket_limit))
    del message.bucket[count:], message.bucket_limit[count:]
    if rng.randrange(2):
        message.bucket_limit.sort()
    return bytes(message.SerializeToString())
