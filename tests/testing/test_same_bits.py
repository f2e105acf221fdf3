from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from topos.testing import assert_same_bits, same_bits

bf16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float16), bf16, np.dtype(np.float32), np.dtype(np.float64)]
EXACT = [np.dtype(name) for name in ("bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]
DUAL = np.dtype([("value", np.float32), ("tangent", np.float64, (2,))], align=True)


@dataclass
class Payload:
    """Stands for a Tensor."""

    array: Any

    def numpy(self) -> Any:
        return self.array


@dataclass
class Table:
    """Stands for a table of parameters."""

    slots: list[Any] = field(default_factory=list)

    def payloads(self) -> Any:
        return self.slots


def message(actual: object, expected: object) -> str:
    assert not same_bits(actual, expected)
    with pytest.raises(AssertionError) as caught:
        assert_same_bits(actual, expected)
    return str(caught.value)


def alike(a: object, b: object) -> None:
    assert same_bits(a, b)
    assert_same_bits(a, b)


def flipped(array: np.ndarray, bit: int) -> np.ndarray:
    """A copy with one bit of the last element's bytes flipped, counted from its first byte."""
    raw = bytearray(array.tobytes())
    raw[-array.dtype.itemsize + bit // 8] ^= 1 << bit % 8
    return np.frombuffer(bytes(raw), array.dtype).reshape(array.shape)


@pytest.mark.parametrize("dtype", [*FLOATS, *EXACT, np.dtype(">f4"), np.dtype(">i8")], ids=str)
def test_each_flipped_bit_of_a_number_is_seen(dtype: np.dtype) -> None:
    array = np.ones((2, 3), dtype)
    alike(array, array.copy())
    for bit in range(8 * dtype.itemsize):
        assert message(flipped(array, bit), array).startswith("bits: 1 of 6 differ, the first at [1, 2]\n")


@pytest.mark.parametrize("dtype", [*FLOATS, *EXACT], ids=str)
def test_a_flipped_bit_is_seen_at_rank_0_and_through_strides(dtype: np.dtype) -> None:
    scalar = np.ones((), dtype)
    assert "1 of 1 differ, the first at []" in message(flipped(scalar, 0), scalar)
    wide = np.ones((4, 6), dtype)
    other = wide.copy()
    other[2, 4] = 0
    alike(wide[:, ::-2], np.ones((4, 3), dtype))
    assert "1 of 12 differ, the first at [2, 0]" in message(other[:, -2::-2], wide[:, ::-2])
    alike(np.broadcast_to(scalar, (2, 2)), np.ones((2, 2), dtype))


def test_a_flipped_bit_of_any_field_is_seen_and_padding_is_not() -> None:
    dual = np.ones(3, DUAL)
    alike(dual, dual.copy())
    start = DUAL.fields["tangent"][1]
    assert start == 8  # the four bytes before it are padding
    for bit in range(8 * DUAL.itemsize):
        other = flipped(dual, bit)
        if 32 <= bit < 8 * start:
            alike(other, dual)
        elif bit < 32:
            assert message(other, dual).startswith("bits: 1 of 3 differ, the first at [2] in ['value']\n")
        else:
            column = (bit - 8 * start) // 64
            assert message(other, dual).startswith(f"bits: 1 of 6 differ, the first at [2, {column}] in ['tangent']\n")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_zeros_of_different_sign_differ(dtype: np.dtype) -> None:
    zero = np.zeros(2, dtype)
    assert message(-zero, zero).endswith("distance  0 ulp: zeros of different sign")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_any_nan_equals_any_nan_and_nothing_else(dtype: np.dtype) -> None:
    width = 8 * dtype.itemsize
    infinity = int(np.array(np.inf, dtype).view(f"u{dtype.itemsize}"))
    half = 1 << (width - 1)
    nans = np.array([infinity + 1, half - 1, half + infinity + 1, 2 * half - 1], f"u{dtype.itemsize}").view(dtype)
    for nan in nans:
        alike(nan, nans[0])
        for number in (0.0, 1.0, np.inf, -np.inf):
            assert message(nan, np.array(number, dtype)).endswith("distance  none: one is NaN")
    assert not same_bits(np.array(np.inf, dtype), np.array(-np.inf, dtype))


def test_the_failure_counts_and_shows_the_first_place() -> None:
    expected = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    actual = expected.copy()
    actual[0, 1], actual[1, 1] = np.nextafter(np.float32(2), np.float32(3)), 5
    assert message(actual, expected) == (
        "bits: 2 of 4 differ, the first at [0, 1]\n"
        "  actual    np.float32(2.0000002)  0x40000001\n"
        "  expected  np.float32(2.0)  0x40000000\n"
        "  distance  1 ulp"
    )
    assert message(np.int8(-1), np.int8(2)) == (
        "bits: 1 of 1 differ, the first at []\n"
        "  actual    np.int8(-1)  0xff\n"
        "  expected  np.int8(2)  0x02\n"
        "  distance  3"
    )


def test_the_distance_counts_the_numbers_in_between() -> None:
    assert message(np.float32(1e-45), np.float32(-1e-45)).endswith("distance  2 ulp")
    assert message(np.float64(np.inf), np.finfo(np.float64).max).endswith("distance  1 ulp")
    assert message(np.array(1.0, bf16), np.array(1.0078125, bf16)).endswith("distance  1 ulp")
    assert message(np.float64(np.inf), np.float64(-np.inf)).endswith(f"distance  {2 * 0x7FF0000000000000} ulp")


def test_shape_and_dtype_are_compared_first() -> None:
    assert message(np.zeros((2, 3)), np.zeros((3, 2))) == "shape\n  actual    [2, 3]\n  expected  [3, 2]"
    assert message(np.zeros(1), np.zeros(())) == "shape\n  actual    [1]\n  expected  []"
    assert message(np.zeros((0, 3)), np.zeros((3, 0))).startswith("shape\n")
    assert message(np.zeros(0, np.float32), np.zeros(0)) == "dtype\n  actual    float32\n  expected  float64"
    assert message(np.zeros(2, np.int32), np.zeros(2, np.float32)).startswith("dtype\n")
    assert message(np.zeros(2, np.uint16), np.zeros(2, bf16)).startswith("dtype\n")
    assert message(np.zeros(2, "<f4"), np.zeros(2, ">f4")).startswith("dtype\n")
    assert message(np.zeros(2, DUAL), np.zeros(2, np.dtype(DUAL.descr[:1]))).startswith("dtype\n")


@pytest.mark.parametrize("dtype", [*FLOATS, *EXACT, DUAL], ids=str)
def test_nothing_equals_nothing(dtype: np.dtype) -> None:
    alike(np.zeros((2, 0, 3), dtype), np.ones((2, 0, 3), dtype))


def test_whatever_answers_numpy_is_read() -> None:
    ones = np.ones(2, np.float32)
    alike(Payload(ones), ones)
    alike(Payload(ones), Payload(ones.copy()))
    assert message(Payload(ones), -ones).startswith("bits: 2 of 2 differ")
    alike(1.5, np.float64(1.5))
    assert message(1, 1.0).startswith("dtype\n")


def test_structures_are_compared_place_by_place() -> None:
    ones, twos = np.ones(2, np.float32), np.full(2, 2, np.float32)
    alike(Table([Payload(ones), None]), Table([ones.copy(), None]))
    alike({"a": (ones, twos), "b": []}, {"b": [], "a": [ones, twos]})
    assert message({"a": (ones, twos)}, {"a": (ones, ones)}).startswith(
        "bits: 2 of 2 differ, the first at [0] in ['a'][1]\n"
    )
    assert message({"a": ones}, {"b": ones}) == "keys\n  actual    ['a']\n  expected  ['b']"
    assert message([[ones]], [[ones, ones]]) == "length in [0]\n  actual    1\n  expected  2"
    assert message(Table([ones]), Table([None])) == "structure in [0]\n  actual    float32 [2]\n  expected  None"
    assert message([1.0, 2.0], np.array([1.0, 2.0])).startswith("structure\n  actual    list of 2\n")


@pytest.mark.parametrize("result", ["text", object(), 1j, np.longdouble(1)], ids=["text", "object", "complex", "long"])
def test_what_has_no_bits_to_compare_is_refused(result: object) -> None:
    with pytest.raises(TypeError, match="same_bits: cannot compare the bits of dtype"):
        same_bits(result, result)


@given(st.data(), st.sampled_from([np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int16)]))
def test_agrees_with_the_bytes_where_nothing_is_nan(data: st.DataObject, dtype: np.dtype) -> None:
    elements = {"allow_nan": False} if dtype.kind == "f" else {}
    shapes = hnp.array_shapes(min_dims=0, min_side=0, max_side=3)
    a = data.draw(hnp.arrays(dtype, shapes, elements=hnp.from_dtype(dtype, **elements)))
    b = data.draw(hnp.arrays(dtype, a.shape, elements=hnp.from_dtype(dtype, **elements)))
    assert same_bits(a, b) == (a.tobytes() == b.tobytes())
    alike(a, a.copy(order="F"))
