"""Maxima: NaN first, then the largest, and no negative zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from topos.element.element import Array, Element
from topos.reference import max_along

Check = Callable[[Array, Array], None]
Draw = Callable[..., Array]


def test_one_nan_anywhere(element: Element, assert_same: Check) -> None:
    for length in range(1, 34):
        for place in range(length):
            array = element.round(np.arange(length) - 3.0)
            array[place] = np.nan
            assert_same(max_along(element, array, 0), np.full((), np.nan, element.dtype))


def test_against_a_scalar_loop(element: Element, numbers: Draw, assert_same: Check) -> None:
    for length in (1, 2, 3, 31, 70, 513):
        array = numbers((5, length, 3), 0.3 / length)
        expected = np.empty((5, 3), element.dtype)
        for i, j in np.ndindex(5, 3):
            values = array[i, :, j].astype(np.float64).tolist()
            expected[i, j] = np.nan if any(x != x for x in values) else max(values) + 0.0
        assert_same(max_along(element, array, 1), expected)
        assert_same(max_along(element, array.transpose(2, 1, 0)[:, ::-1], -2), expected.T)
        assert_same(max_along(element, array[1, :, 2], 0), np.asarray(expected[1, 2]))


def test_zeros_of_either_sign_in_any_order(element: Element, assert_same: Check) -> None:
    for bits in range(32):
        array = np.array([-0.0 if bits >> i & 1 else 0.0 for i in range(5)]).astype(element.dtype)
        assert_same(max_along(element, array, 0), element.zero)


def test_of_nothing(element: Element, assert_same: Check) -> None:
    lowest = np.full((3,), -np.inf, element.dtype)
    assert_same(max_along(element, np.empty((3, 0), element.dtype), 1), lowest)
    assert_same(max_along(element, np.empty((3, 0), element.dtype), 0), lowest[:0])
    assert_same(max_along(element, np.full((3, 4), -np.inf, element.dtype), 1), lowest)


def test_a_structured_element_is_asked_for_its_own_maximum(
    pair: Any, single: Element, rng: np.random.Generator, assert_same: Check
) -> None:
    first, second = (rng.standard_normal((4, 7)).astype(np.float32) for _ in range(2))
    expected = pair.join(max_along(single, first, 1), max_along(single, second, 1))
    assert_same(max_along(pair, pair.join(first, second), 1), expected)
