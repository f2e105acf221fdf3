"""Matrix products against the rule, and the fast chains against the operation that they stand for."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from topos.element.element import Array, Element
from topos.element.fma import fma32, fma64
from topos.reference import matmul

Check = Callable[[Array, Array], None]
Draw = Callable[..., Array]


def chained(left: Array, right: Array) -> Array:
    """The rule over whole matrices, by the fused multiply-add itself."""
    fused = fma32 if left.dtype == np.float32 else fma64
    terms = left.shape[-1]
    total = np.zeros((*left.shape[:-1], right.shape[-1]), left.dtype)
    for start in range(0, terms, 512):
        chain = np.zeros_like(total)
        for k in range(start, min(start + 512, terms)):
            chain = fused(left[..., :, k, None], right[..., k, None, :], chain)
        total = total + chain
    return total


@pytest.mark.parametrize("special", [0.0, 0.03])
def test_small_products_by_rational_arithmetic(
    element: Element, literal: Any, numbers: Draw, assert_same: Check, special: float
) -> None:
    for rows, terms, columns in itertools.product((0, 1, 3), (0, 1, 2, 7, 33), (0, 1, 4)):
        left, right = numbers((rows, terms), special), numbers((terms, columns), special)
        assert_same(matmul(element, left, right), literal.matmul(left, right))


@pytest.mark.parametrize("terms", [511, 512, 513, 1025, 2100])
def test_blocks_by_rational_arithmetic(
    element: Element, literal: Any, numbers: Draw, assert_same: Check, terms: int
) -> None:
    left, right = numbers((2, terms)), numbers((terms, 1))
    assert_same(matmul(element, left, right), literal.matmul(left, right))


@pytest.mark.parametrize(
    ("batch", "rows", "terms", "columns"),
    [
        ((), 40, 70, 50),
        ((), 1, 1500, 40),
        ((), 300, 600, 1),
        ((), 3, 5000, 2),
        ((3, 2), 20, 30, 5),
        ((200,), 4, 9, 3),
        ((3000,), 4, 5, 3),
        ((2,), 3, 1100, 2100),
        ((0,), 3, 4, 5),
        ((2,), 0, 4, 5),
        ((2,), 3, 0, 5),
    ],
)
def test_every_shape_takes_the_same_chain(
    element: Element, numbers: Draw, assert_same: Check, batch: tuple[int, ...], rows: int, terms: int, columns: int
) -> None:
    left, right = numbers((*batch, rows, terms), 0.001), numbers((*batch, terms, columns), 0.001)
    expected = element.demote(chained(element.promote(left), element.promote(right)))
    assert_same(matmul(element, left, right), expected)


def few_bits(rng: np.random.Generator, shape: tuple[int, ...], bits: int) -> Array:
    """Numbers of at most so many significant bits, over a range of exponents."""
    significand = rng.integers(-(2**bits) + 1, 2**bits, shape).astype(np.float64)
    return np.ldexp(significand, rng.integers(-40, -20, shape))


@pytest.mark.parametrize(
    ("left_bits", "right_bits"), [(8, 8), (12, 12), (13, 12), (24, 1), (24, 3), (20, 16), (24, 24)]
)
def test_f32_products_of_few_bits(
    single: Element, rng: np.random.Generator, assert_same: Check, left_bits: int, right_bits: int
) -> None:
    """Sums that stand on f32 midpoints by the thousand, many of them exactly."""
    left = few_bits(rng, (20, 200), left_bits).astype(np.float32)
    right = few_bits(rng, (200, 30), right_bits).astype(np.float32)
    assert_same(matmul(single, left, right), chained(left, right))


@pytest.mark.parametrize(
    ("left_bits", "right_bits"), [(24, 24), (27, 26), (27, 27), (53, 1), (53, 3), (40, 40), (53, 53)]
)
def test_f64_products_of_few_bits(
    double: Element, rng: np.random.Generator, assert_same: Check, left_bits: int, right_bits: int
) -> None:
    left, right = few_bits(rng, (20, 200), left_bits), few_bits(rng, (200, 30), right_bits)
    assert_same(matmul(double, left, right), chained(left, right))


def ties(dtype: Any) -> tuple[Array, Array]:
    """One column of left factors and rows of right factors whose chains meet ties that a speck decides, both ways."""
    one, other, speck = 1 + 2.0**-12, 1 + 2.0**-12, 2.0**-70
    if dtype == np.float64:
        one, other, speck = 1 + 2.0**-26, 1 + 2.0**-27, 2.0**-160  # one * other = 1 + 2^-26 + 2^-27 + 2^-53
    factors = np.array([one, -one, other, 1.0, speck, -speck, one * 2, other / 2], dtype)
    left = np.array(list(itertools.product(factors, repeat=3)), dtype)
    return left, np.concatenate([left.T, -left.T[::-1]], axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ties_decided_by_a_speck(single: Element, double: Element, assert_same: Check, dtype: Any) -> None:
    left, right = ties(dtype)
    assert_same(matmul(single if dtype == np.float32 else double, left, right), chained(left, right))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("low", [-1080, -1000, -540, -150, -130, -75, 60, 120, 500, 1000])
def test_extreme_exponents(
    single: Element, double: Element, rng: np.random.Generator, assert_same: Check, dtype: Any, low: int
) -> None:
    """Subnormal operands, subnormal sums of normal operands, and overflow that comes and goes."""

    def spread(shape: tuple[int, int]) -> Array:
        array = np.ldexp(rng.standard_normal(shape), rng.integers(low, low + 60, shape))
        return np.where(rng.random(shape) < 0.2, 0.0, array).astype(dtype)

    element = single if dtype == np.float32 else double
    left, right = spread((12, 40)), spread((40, 17))
    for other in (right, np.sign(right), np.ldexp(right, -low).astype(dtype)):
        assert_same(matmul(element, left, other), chained(left, other))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_tie_among_many_results(
    single: Element, double: Element, rng: np.random.Generator, assert_same: Check, dtype: Any
) -> None:
    """Too few suspects for a dearer way: the one wrong result is found and computed again."""
    left, right = rng.standard_normal((40, 2)).astype(dtype), rng.standard_normal((2, 50)).astype(dtype)
    left[7] = 2.0**-60, 1 + 2.0 ** (-12 if dtype == np.float32 else -26)
    right[:, 9] = 2.0**-60, 1 + 2.0 ** (-12 if dtype == np.float32 else -27)
    product = matmul(single if dtype == np.float32 else double, left, right)
    assert_same(product, chained(left, right))
    exact = Fraction(float(left[7, 1])) * Fraction(float(right[1, 9]))
    assert Fraction(float(product[7, 9])) > exact, "the speck decides the tie upwards"


def test_a_subnormal_midpoint_decided_by_a_speck(single: Element) -> None:
    """2^-127 + 2^-149, odd, plus a product just below 2^-150: rounded twice, the sum would go up."""
    left = np.array([[1 + 2.0**-22, 1 + 2.0**-20]]) * np.array([2.0**-63, 2.0**-75])
    right = np.array([[1.0], [1 - 2.0**-20]]) * np.array([[2.0**-64], [2.0**-75]])
    assert matmul(single, left.astype(np.float32), right.astype(np.float32)) == 2.0**-127 + 2.0**-149
    assert matmul(single, -left.astype(np.float32), right.astype(np.float32)) == -(2.0**-127) - 2.0**-149


def test_f32_subnormal_midpoints(single: Element, rng: np.random.Generator, assert_same: Check) -> None:
    """Products near odd multiples of 2^-150, with specks far below, beside subnormal totals."""
    left = np.ldexp(rng.integers(1, 64, (400, 3)) + 2.0**-17 * rng.integers(0, 2, (400, 3)), -75).astype(np.float32)
    right = np.ldexp(rng.integers(-64, 64, (3, 60)) + 2.0**-17 * rng.integers(0, 2, (3, 60)), -75).astype(np.float32)
    assert_same(matmul(single, left, right), chained(left, right))


def test_views_give_the_bits_of_their_copies(element: Element, numbers: Draw, assert_same: Check) -> None:
    square, wide, batch = numbers((30, 30)), numbers((30, 90)), numbers((4, 30, 30))
    pairs = [
        (square.T, wide),
        (square[::-1, ::-1], wide[:, ::-3]),
        (wide[:, ::3], square.T),
        (wide.T, square),
        (batch.swapaxes(1, 2), batch[::-1]),
        (batch.T, np.broadcast_to(square, (30, 30, 30))[:, :, :4].swapaxes(1, 2)),
        (np.broadcast_to(square[0], (5, 30)), np.broadcast_to(square[:, :1], (30, 7))),
        (np.asfortranarray(square), np.asfortranarray(wide)),
    ]
    for left, right in pairs:
        if left.shape[-1] == right.shape[-2]:
            assert_same(matmul(element, left, right), matmul(element, left.copy(), right.copy()))


def test_products_on_small_views(single: Element) -> None:
    a = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    eye = np.eye(3, dtype=np.float32)
    assert matmul(single, a.T, eye[:2, :2]).tolist() == [[1, 4], [2, 5], [3, 6]]
    assert matmul(single, a[:, ::2], np.ones((2, 1), np.float32)).tolist() == [[4], [10]]
    assert matmul(single, np.asfortranarray(a), eye).tolist() == a.tolist()
    batch = np.arange(12, dtype=np.float32).reshape(2, 2, 3).swapaxes(1, 2)
    sums = matmul(single, batch, np.ones((2, 2, 2), np.float32))
    assert sums.tolist() == [[[3, 3], [5, 5], [7, 7]], [[15, 15], [17, 17], [19, 19]]]


def test_a_row_alone_is_the_row_in_a_batch(single: Element, assert_same: Check) -> None:
    x = np.random.default_rng(0).standard_normal((64, 512)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((512, 256)).astype(np.float32)
    together = matmul(single, x, w)
    for count in (1, 2, 3, 7, 8, 33, 64):
        assert_same(matmul(single, x[:count], w), together[:count])
    assert_same(matmul(single, x, w[:, 100:101]), together[:, 100:101])
    stacked = matmul(single, np.stack([x[:5]] * 3), np.stack([w] * 3))
    assert_same(stacked[2], together[:5])


def test_nothing_is_contracted_but_the_chain(single: Element) -> None:
    """`4097 * 4097` as a product of its own is rounded, as the last link of a chain it is not."""
    a = np.full((1, 1), 4097, np.float32)
    assert matmul(single, a, a) == 16785408
    pair = matmul(single, np.array([[4097, 4097]], np.float32), np.array([[-4097], [4097]], np.float32))
    assert pair == 1


def test_never_negative_zero_and_zero_terms_change_nothing(element: Element, numbers: Draw, assert_same: Check) -> None:
    zero, one = np.full((3, 4), -0.0, element.dtype), np.ones((4, 2), element.dtype)
    assert_same(matmul(element, zero, one), np.zeros((3, 2), element.dtype))
    assert_same(matmul(element, zero[:, :0], one[:0]), np.zeros((3, 2), element.dtype))
    for terms in (1, 100, 511, 512, 700):
        left, right = numbers((3, terms)), numbers((terms, 4))
        tail = numbers((600, 4))
        padded = np.concatenate([left, np.full((3, 600), -0.0, element.dtype)], axis=1)
        assert_same(matmul(element, padded, np.concatenate([right, tail])), matmul(element, left, right))


def test_bf16_rounds_once(half: Element) -> None:
    """1 + 2^-8 + 2^-9 as three products: each partial sum would round back to 1 in bf16."""
    left = half.round(np.array([[1, 2.0**-8, 2.0**-9]]))
    right = half.round(np.ones((3, 1)))
    assert half.promote(matmul(half, left, right)) == 1 + 2.0**-7


def test_a_structured_element_multiplies_by_its_own_operations(
    pair: Any, single: Element, rng: np.random.Generator, assert_same: Check
) -> None:
    left, right = (rng.standard_normal((2, *shape)).astype(np.float32) for shape in ((5, 600), (600, 4)))
    product = matmul(pair, pair.join(*left), pair.join(*right))
    assert_same(product, pair.join(matmul(single, left[0], right[0]), matmul(single, left[1], right[1])))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data(), shape=st.tuples(*[st.integers(0, 5)] * 3), wide=st.booleans())
def test_any_product(
    single: Element, double: Element, assert_same: Check, data: st.DataObject, shape: tuple[int, int, int], wide: bool
) -> None:
    rows, terms, columns = shape
    factors = st.floats(width=64 if wide else 32)
    count = (rows + columns) * terms
    drawn = np.array(data.draw(st.lists(factors, min_size=count, max_size=count)), np.float64 if wide else np.float32)
    left, right = drawn[: rows * terms].reshape(rows, terms), drawn[rows * terms :].reshape(terms, columns)
    with np.errstate(all="ignore"):
        assert_same(matmul(double if wide else single, left, right), chained(left, right))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(300, 1500, 400), (1, 3000, 5000), (5000, 700, 2), (64, 64, 64)])
def test_large_products(
    single: Element, double: Element, rng: np.random.Generator, assert_same: Check, dtype: Any, shape: tuple[int, ...]
) -> None:
    rows, terms, columns = shape
    left = rng.standard_normal((rows, terms)).astype(dtype)
    right = rng.standard_normal((terms, columns)).astype(dtype)
    assert_same(matmul(single if dtype == np.float32 else double, left, right), chained(left, right))
