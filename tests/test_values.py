"""Values: immutable, equal by their bits, and with fingerprints that say the same."""

from __future__ import annotations

import math
import struct
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strategies
from ms_summary_bridge.errors import InvalidValueError, ValueConversionError
from ms_summary_bridge.values import KINDS, Histogram, Image, Opaque, Scalar, Tensor


def make_histogram(**changes: Any) -> Histogram:
    parts: dict[str, Any] = {
        "left": np.array([0.0, 1.0]),
        "right": np.array([1.0, 2.0]),
        "count": np.array([3, 4], np.int64),
        "min": 0.0,
        "max": 2.0,
        "sum": 9.0,
        "total": 7,
    }
    return Histogram(**{**parts, **changes})


EXAMPLES = [
    Scalar(b"\0\0\x80\x3f"),
    make_histogram(),
    Image(4, 6, 3, (b"png",)),
    Tensor(np.zeros((2, 3), np.float32), "float32"),
    Opaque("text", b"abc"),
]


@pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: type(value).__name__)
def test_no_field_can_be_set(value: Any) -> None:
    for name in type(value).__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, name, getattr(value, name))


def test_arrays_cannot_be_written() -> None:
    histogram = make_histogram(width=np.array([1.0, 1.0]))
    arrays = [histogram.left, histogram.right, histogram.count, histogram.width, Tensor(np.zeros(3), "float64").array]
    for array in arrays:
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


def test_the_kinds_are_named_apart() -> None:
    assert [kind.kind for kind in KINDS] == ["scalar", "histogram", "image", "tensor"]


# ---------------------------------------------------------------- scalars


@pytest.mark.parametrize("size", [0, 1, 3, 5, 7, 9])
def test_a_scalar_has_the_bytes_of_one_float(size: int) -> None:
    with pytest.raises(InvalidValueError, match=f"got {size}") as caught:
        Scalar(bytes(size))
    assert isinstance(caught.value, ValueConversionError)
    assert isinstance(caught.value, ValueError)


@given(st.one_of(strategies.BITS32, strategies.BITS64), st.one_of(strategies.BITS32, strategies.BITS64))
def test_scalars_are_equal_when_their_bits_are(one: bytes, two: bytes) -> None:
    assert (Scalar(one) == Scalar(two)) == (one == two)
    assert Scalar(one) == Scalar(bytes(bytearray(one)))
    assert hash(Scalar(one)) == hash(Scalar(bytes(bytearray(one))))
    assert Scalar(one).is_float32 == (len(one) == 4)


@given(st.floats(allow_nan=False))
def test_a_float_becomes_the_nearest_float32(value: float) -> None:
    with np.errstate(over="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.float32(value)
    assert Scalar.from_float32(value).bits == expected.tobytes()
    assert Scalar.from_float64(value).value == value
    assert math.copysign(1, Scalar.from_float64(value).value) == math.copysign(1, value)


def test_zero_with_a_sign_is_another_scalar() -> None:
    assert Scalar.from_float32(-0.0) != Scalar.from_float32(0.0)
    assert Scalar.from_float32(-0.0).fingerprint() != Scalar.from_float32(0.0).fingerprint()


@given(strategies.BITS32)
def test_a_float32_stays_as_it_is(bits: bytes) -> None:
    assert Scalar(bits).to_float32() == (bits, True)
    (number,) = struct.unpack("<f", bits)
    assert Scalar(bits).value == number or math.isnan(number)


@given(strategies.BITS64)
def test_narrowing_a_float64_says_whether_it_is_exact(bits: bytes) -> None:
    narrow, is_exact = Scalar(bits).to_float32()
    (number,) = struct.unpack("<d", bits)
    (as_float32,) = struct.unpack("<f", narrow)
    if math.isnan(number):
        assert math.isnan(as_float32)
        assert narrow[3] & 0x80 == bits[7] & 0x80
    else:
        assert is_exact == (as_float32 == number)
        assert math.copysign(1, as_float32) == math.copysign(1, number)


@given(st.integers(0, (1 << 22) - 1), st.booleans())
def test_a_quiet_nan_keeps_the_payload_that_fits(payload: int, is_negative: bool) -> None:
    narrow = (is_negative << 31 | 0x7FC00000 | payload).to_bytes(4, "little")
    wide = (is_negative << 63 | 0x7FF8 << 48 | payload << 29).to_bytes(8, "little")
    assert Scalar(wide).to_float32() == (narrow, True)
    assert Scalar(wide).fingerprint() == Scalar(narrow).fingerprint()
    longer = (int.from_bytes(wide, "little") | 1).to_bytes(8, "little")
    assert Scalar(longer).to_float32() == (narrow, False)
    assert Scalar(longer).fingerprint() != Scalar(wide).fingerprint()


def test_a_signalling_float64_nan_is_not_exact_in_float32() -> None:
    narrow, is_exact = Scalar((0x7FF4 << 48).to_bytes(8, "little")).to_float32()
    assert (narrow.hex(), is_exact) == ("0000e07f", False)


@given(strategies.BITS32)
def test_the_fingerprint_of_a_number_does_not_depend_on_its_width(bits: bytes) -> None:
    scalar = Scalar(bits)
    if not math.isnan(scalar.value):
        assert Scalar.from_float64(scalar.value).fingerprint() == scalar.fingerprint()


@given(strategies.scalars(), strategies.scalars())
def test_scalars_of_one_width_have_one_fingerprint_only_when_equal(one: Scalar, two: Scalar) -> None:
    if one.is_float32 == two.is_float32:
        assert (one.fingerprint() == two.fingerprint()) == (one == two)


# ---------------------------------------------------------------- the others


def test_buckets_and_their_columns_have_one_length() -> None:
    with pytest.raises(InvalidValueError, match="one length"):
        make_histogram(right=np.array([1.0]))
    with pytest.raises(InvalidValueError, match="one length"):
        make_histogram(count=np.array([1]))
    with pytest.raises(InvalidValueError, match="one length"):
        Histogram(left=np.zeros((1, 1)), right=np.zeros((1, 1)), count=np.zeros((1, 1)))
    with pytest.raises(InvalidValueError, match="width"):
        make_histogram(width=np.array([1.0]))


def test_widths_are_those_stored_or_else_computed() -> None:
    assert make_histogram().widths.tolist() == [1.0, 1.0]
    assert make_histogram(width=np.array([5.0, 6.0])).widths.tolist() == [5.0, 6.0]
    infinite = make_histogram(left=np.array([-math.inf, math.inf]), right=np.array([0.0, math.inf]))
    assert infinite.widths[0] == math.inf
    assert math.isnan(infinite.widths[1])


@pytest.mark.parametrize(
    "change",
    [
        {"left": np.array([-0.0, 1.0])},
        {"right": np.array([1.0, 2.5])},
        {"count": np.array([3, 5], np.int64)},
        {"width": np.array([1.0, 1.5])},
        {"min": -0.0},
        {"min": None},
        {"max": math.inf},
        {"max": None},
        {"sum": math.nan},
        {"sum": None},
        {"sum_squares": 0.0},
        {"total": None},
        {"total": 8},
        {"nan_count": 1},
        {"pos_inf_count": 1},
        {"neg_inf_count": 1},
    ],
    ids=str,
)
def test_each_part_of_a_histogram_counts(change: dict[str, Any]) -> None:
    assert make_histogram(**change) != make_histogram()
    assert make_histogram(**change) == make_histogram(**change)
    assert make_histogram(**change).fingerprint() != make_histogram().fingerprint()


def test_a_histogram_is_equal_however_its_counts_and_widths_are_stored() -> None:
    assert make_histogram() == make_histogram(count=np.array([3.0, 4.0]), width=np.array([1.0, 1.0]), total=7.0)


def test_nan_is_equal_to_itself() -> None:
    nan = np.array([math.nan, math.nan])
    assert make_histogram(left=nan, right=nan, min=math.nan) == make_histogram(left=nan, right=nan, min=math.nan)
    assert Tensor(nan, "float64") == Tensor(nan.copy(), "float64")


@given(st.one_of(strategies.mindspore_histograms(), strategies.histograms()), st.data())
def test_histograms_have_one_fingerprint_exactly_when_equal(one: Histogram, data: st.DataObject) -> None:
    two = data.draw(st.one_of(st.just(one), strategies.mindspore_histograms()))
    assert (one == two) == (one.fingerprint() == two.fingerprint())
    assert one == Histogram(**{name: getattr(one, name) for name in Histogram.__struct_fields__})


@given(strategies.tensors(), strategies.tensors())
def test_tensors_are_equal_by_shape_dtypes_and_bits(one: Tensor, two: Tensor) -> None:
    assert one == Tensor(one.array.copy(), one.dtype)
    is_same = (
        one.array.shape == two.array.shape
        and one.array.dtype == two.array.dtype
        and one.array.tobytes() == two.array.tobytes()
        and one.dtype == two.dtype
    )
    assert (one == two) == is_same == (one.fingerprint() == two.fingerprint())
    assert one != Tensor(one.array.copy(), "int3")
    assert one != Tensor(one.array.reshape((1, *one.array.shape)), one.dtype)


def test_the_order_of_a_tensor_in_memory_does_not_count() -> None:
    array = np.arange(6.0).reshape(2, 3)
    assert Tensor(array, "float64") == Tensor(np.asfortranarray(array), "float64")
    assert Tensor(np.arange(6.0)[::2], "float64") == Tensor(np.array([0.0, 2.0, 4.0]), "float64")


@given(strategies.images(batch=3), strategies.images(batch=3))
def test_images_have_one_fingerprint_exactly_when_equal(one: Image, two: Image) -> None:
    assert (one == two) == (one.fingerprint() == two.fingerprint())
    assert one.fingerprint() == Image(one.height, one.width, one.colorspace, one.encoded).fingerprint()


def test_where_one_image_of_a_batch_ends_counts() -> None:
    assert Image(0, 0, 0, (b"ab", b"c")).fingerprint() != Image(0, 0, 0, (b"a", b"bc")).fingerprint()


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_what_is_carried_as_it_is_has_the_fingerprint_of_its_bytes(one: bytes, two: bytes) -> None:
    assert (Opaque("a", one).fingerprint() == Opaque("a", two).fingerprint()) == (one == two)
    assert Opaque("a", one) == Opaque("a", one)
    assert Opaque("a", one) != Opaque("b", one)


def test_values_of_two_kinds_are_never_equal() -> None:
    for one in EXAMPLES:
        for two in EXAMPLES:
            assert (one == two) == (one is two)


@pytest.mark.parametrize("value", [make_histogram(), EXAMPLES[3]], ids=["histogram", "tensor"])
def test_values_with_arrays_have_no_hash(value: Any) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(value)
