"""Tensors whose message says more than it holds: bounded by what it holds, whatever shape it claims."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from ms_summary_bridge.errors import InvalidValueError
from ms_summary_bridge.formats.protos import ms_pb, tb_pb
from ms_summary_bridge.formats.tensor import (
    decode_mindspore_tensor,
    decode_tensorboard_tensor,
    statistics_table,
    value_histogram,
)
from ms_summary_bridge.formats.wire import length_delimited
from ms_summary_bridge.values import Tensor

LARGE = 1 << 20


def tensorboard_tensor(dtype: int, *shape: int, **fields: Any) -> bytes:
    message = tb_pb.TensorProto(dtype=dtype, **fields)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return bytes(message.SerializeToString())


def decode(data: bytes) -> Any:
    return decode_tensorboard_tensor(data, 0, len(data))


def test_a_few_elements_that_are_left_out_are_filled_in() -> None:
    assert decode(tensorboard_tensor(1, 2, 3, float_val=[5.0])).tolist() == [[5.0] * 3] * 2
    assert decode(tensorboard_tensor(2, 8)).tolist() == [0.0] * 8


@pytest.mark.parametrize("shape", [(2, 1 << 20), (1 << 24,), (4096,)])
def test_many_elements_are_not_made_of_a_shape_alone(shape: tuple[int, ...]) -> None:
    data = tensorboard_tensor(23, *shape, uint64_val=[1, 2])
    tracemalloc.start()
    try:
        with pytest.raises(InvalidValueError, match="do not fill the shape"):
            decode(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dtype", [4, 10, 19])
@pytest.mark.parametrize("shape", [(0, 1 << 62), (1 << 31, 0, 1 << 31)])
def test_no_elements_in_a_shape_beyond_what_numpy_counts(dtype: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidValueError, match="too large"):
        decode(tensorboard_tensor(dtype, *shape))


def test_what_is_empty_and_large_can_be_shown() -> None:
    array = decode(tensorboard_tensor(4, 0, 1 << 40))
    assert "0" in statistics_table(Tensor(array, "uint8"))
    assert not value_histogram(Tensor(array, "uint8")).size


@pytest.mark.parametrize("is_packed", [False, True])
def test_numbers_of_a_megabyte_take_no_multiple_of_it(is_packed: bool) -> None:
    """Each number of two bytes, or of one where they are packed."""
    ours = b"\x52" + b"" if is_packed else b"\x50\x07"
    theirs = b"\x28\x07"
    if is_packed:
        ours, theirs = length_delimited(b"\x52", b"\x07" * LARGE), length_delimited(b"\x2a", b"\x07" * LARGE)
        count = LARGE
    else:
        count = LARGE // 2
        ours, theirs = ours * count, theirs * count
    tracemalloc.start()
    try:
        array = decode(ours + tensorboard_tensor(9, count))
        assert array.shape == (count,)
        assert (array == 7).all()
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
        tracemalloc.reset_peak()
        message = theirs + ms_pb.TensorProto(dims=[count], data_type=5).SerializeToString()
        tensor, is_exact = decode_mindspore_tensor(message, 0, len(message))
        assert np.array_equal(tensor.array, array)
        assert not is_exact
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_numbers_alone_and_packed_come_in_their_order() -> None:
    data = b"\x50\x01\x50\x02" + length_delimited(b"\x52", b"\x03\x04") + b"\x50\x05" + tensorboard_tensor(9, 5)
    assert decode(data).tolist() == [1, 2, 3, 4, 5]
    data = b"\x28\x01" + length_delimited(b"\x2a", b"\x02\x03") + b"\x28\x04"
    data += ms_pb.TensorProto(dims=[4], data_type=5).SerializeToString()
    assert decode_mindspore_tensor(data, 0, len(data))[0].array.tolist() == [1, 2, 3, 4]
