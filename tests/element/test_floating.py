"""Payloads into `f32` and `f64`, casts, counts and the plain arithmetic."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topos.element import Element, bf16, f32, f64
from topos.errors import ElementError

Array = np.ndarray[Any, np.dtype[Any]]
FORMATS = {"f32": (24, -149, 128), "f64": (53, -1074, 1024), "bf16": (8, -133, 128)}
ELEMENTS: list[Any] = [f32, f64, bf16]


def rounded(number: Fraction | int, element: str) -> float:
    """The nearest number of a format, ties to even, from exact rational arithmetic."""
    precision, least, overflow = FORMATS[element]
    exact = Fraction(number)
    if not exact:
        return 0.0
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    place = Fraction(2) ** max(exponent - precision + 1, least)
    whole = round(size / place)  # Python rounds a Fraction to nearest even
    value = whole * place
    result = float("inf") if value >= Fraction(2) ** overflow else float(value)
    return -result if exact < 0 else result


@given(st.integers() | st.integers(-(2**140), 2**140) | st.integers(0, 2**1030))
def test_counts_are_the_nearest_numbers(count: int) -> None:
    for element in ELEMENTS:
        found = element.from_count(count)
        assert found.shape == ()
        assert found.dtype == element.dtype
        assert float(found) == rounded(count, element.name)


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
@pytest.mark.parametrize("shift", [0, 5, 30, 60, 100, 900])
def test_counts_at_ties(element: Any, shift: int) -> None:
    precision = FORMATS[element.name][0]
    for head in ((1 << precision) + 1, (1 << precision) + 3):  # halfway between two numbers
        for speck in (-1, 0, 1):
            for sign in (1, -1):
                count = sign * ((head << shift) + speck)
                assert float(element.from_count(count)) == rounded(count, element.name)


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
def test_constants(element: Any) -> None:
    assert float(element.zero) == 0.0
    assert not np.signbit(element.zero)
    assert float(element.one) == 1.0
    assert float(element.lowest) == -np.inf
    for number in (element.zero, element.one, element.lowest, element.from_count(3)):
        assert type(number) is np.ndarray
        assert number.shape == ()
        assert number.dtype == element.dtype
    assert repr(element) in FORMATS
    assert float(element.from_count(0)) == 0.0
    assert float(element.from_count(-(10**400))) == -np.inf


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">i8", ">u8"])
def test_integers_round_once(element: Any, dtype: str) -> None:
    kind = np.dtype(dtype)
    low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
    numbers = {0, 1, low, high, low + 1, high - 1}
    for precision in (8, 24, 53):
        for shift in range(64):
            for head in ((1 << precision) + 1, (1 << precision) + 3, (1 << precision) - 1):
                for speck in (-1, 0, 1):
                    numbers |= {(head << shift) + speck, -(head << shift) + speck}
    chosen = sorted(n for n in numbers if low <= n <= high)
    found = element.round(np.array(chosen, kind))
    assert found.dtype == element.dtype
    assert [float(x) for x in found] == [rounded(n, element.name) for n in chosen]


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, ">f4", ">f8"])
def test_floats_round_once(element: Any, dtype: Any) -> None:
    precision = FORMATS[element.name][0]
    kind = np.dtype(dtype)
    step = np.longdouble(2) ** -precision
    near = [
        np.longdouble(1) + n * step + m for n in range(8) for m in (0, 2.0**-62, -(2.0**-62), 2.0**-40, -(2.0**-40))
    ]
    numbers = np.array([*near, 0.0, -0.0, 1e-40, 3e38, 3.4e38, 1e-45, -1e-320, 1e300], np.longdouble).astype(kind)
    found = element.round(numbers)
    for x, y in zip(numbers, found, strict=True):
        if np.isfinite(x):
            exact = Fraction(*x.as_integer_ratio())
            assert float(y) == rounded(exact, element.name)
            assert np.signbit(y) == np.signbit(x)


def test_longdouble_ties() -> None:
    if np.finfo(np.longdouble).nmant <= 52:
        pytest.skip("longdouble is binary64 here")
    just_above = np.array([np.longdouble(1) + np.longdouble(2) ** -8 + np.longdouble(2) ** -62])
    assert float(bf16.round(just_above)[0]) == 1 + 2.0**-7  # through binary64 it would be a tie, and 1
    just_above = np.array([np.longdouble(1) + np.longdouble(2) ** -24 + np.longdouble(2) ** -62])
    assert float(f32.round(just_above)[0]) == 1 + 2.0**-23


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
def test_admit(element: Any) -> None:
    own = element.round(np.array([1.0, 2.0]))
    own.setflags(write=False)
    assert element.admit(own) is own
    assert element.admit(np.array([True, False])).tolist() == [1.0, 0.0]
    assert element.admit(np.array(2**40)).shape == ()
    assert float(element.admit(np.array(2**63, np.uint64))) == 2.0**63
    assert float(element.admit(np.array(-(2**63)))) == -(2.0**63)
    assert element.admit(np.zeros((0, 3), np.int64)).shape == (0, 3)
    frozen = np.array([1, 2, 3], ">i4")
    frozen.setflags(write=False)
    admitted = element.admit(frozen)
    assert admitted.dtype == element.dtype
    assert admitted.tolist() == [1.0, 2.0, 3.0]
    assert element.admit(bf16.round(np.array([0.5, -0.0]))).tolist() == [0.5, -0.0]
    assert element.admit(np.array([0.1], np.float16)).dtype == element.dtype


@pytest.mark.parametrize(
    ("element", "number"),
    [(f32, 2**24 + 1), (f64, 2**53 + 1), (bf16, 257), (f32, -(2**24) - 1), (f64, 2**63 - 1), (bf16, -(2**40) - 1)],
)
def test_admit_refuses_what_is_not_exact(element: Any, number: int) -> None:
    with pytest.raises(ElementError) as caught:
        element.admit(np.array([[4, number], [1, number]]))
    expected = f"{element.name}: cannot hold the integer {number} exactly; {element.name} has {element.precision} bits"
    assert str(caught.value) == expected


def test_admit_refuses_unsigned() -> None:
    with pytest.raises(ElementError, match="integer 18446744073709551615 exactly"):
        f64.admit(np.array([1, 2**64 - 1], np.uint64))


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
@pytest.mark.parametrize("array", [np.array([1j]), np.array([object()]), np.array(["a"]), np.array(["2020"], "M8[D]")])
def test_admit_refuses_other_kinds(element: Any, array: Array) -> None:
    with pytest.raises(ElementError) as caught:
        element.admit(array)
    assert str(caught.value) == f"{element.name}: cannot hold values of dtype {array.dtype}"


def test_casts() -> None:
    x = np.array([1 + 2.0**-24, 1e-45, -0.0, np.inf, np.nan, 1e300])
    narrow = f32.cast(x, f64)
    assert narrow.dtype == np.float32
    assert narrow.view(np.uint32).tolist()[:4] == [0x3F800000, 1, 0x80000000, 0x7F800000]
    assert f64.cast(narrow, f32).dtype == np.float64
    assert f64.cast(x, f64) is x
    assert f32.cast(np.array(1.5), f64).shape == ()
    with pytest.raises(ElementError) as caught:
        f32.cast(x, _Other())
    assert str(caught.value) == "cast: f32 cannot be made from other"


class _Other(Element):
    name = "other"
    dtype = np.dtype(np.float64)


@pytest.mark.parametrize("element", ELEMENTS, ids=repr)
def test_maximum_and_step(element: Any) -> None:
    nan, inf = np.nan, np.inf
    left = element.round(np.array([0.0, -0.0, nan, 1.0, nan, 2.0, -inf, 3.0]))
    right = element.round(np.array([-0.0, 0.0, 1.0, nan, nan, 1.0, inf, 3.0]))
    largest = element.maximum(left, right).astype(np.float64)
    wanted = np.array([0.0, -0.0, nan, nan, nan, 2.0, inf, 3.0])
    assert np.array_equal(largest, wanted, equal_nan=True)
    assert np.array_equal(np.signbit(largest[:2]), [False, True])
    assert element.step(left, right).astype(np.float64).tolist() == [1, 1, 0, 0, 0, 1, 0, 1]
    assert element.nonzero(left).tolist() == [False, False, True, True, True, True, True, True]


@pytest.mark.parametrize("element", [f32, f64], ids=repr)
def test_arithmetic(element: Any) -> None:
    x, y = element.round(np.array([1.0, -0.0, 1e-30])), element.round(np.array([3.0, 0.0, -2.0]))
    assert np.array_equal(element.add(x, y), x + y)
    assert np.array_equal(element.sub(x, y), x - y)
    assert np.array_equal(element.mul(x, y), x * y)
    assert np.array_equal(element.div(x, y), x / y, equal_nan=True)
    assert np.signbit(element.neg(np.zeros((), element.dtype)))
    assert np.array_equal(element.sqrt(np.abs(x)), np.sqrt(np.abs(x)))
    assert element.accumulator is element
    assert element.promote(x) is x
    assert element.demote(x) is x


def test_fma() -> None:
    fma = pytest.importorskip("topos.element.fma")
    if not hasattr(fma, "fma32"):
        pytest.skip("no fused arithmetic yet")
    for element, unit in ((f32, 2.0**-23), (f64, 2.0**-52)):
        x = element.round(np.array(1 + unit))
        fused = element.fma(x, x, element.neg(element.mul(x, x)))
        assert type(fused) is np.ndarray
        assert fused.dtype == element.dtype
        assert float(fused) == unit * unit
