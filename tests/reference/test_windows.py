"""Folds against a loop over windows."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos.element.element import Array, Element
from topos.reference import fold

Check = Callable[[Array, Array], None]
Draw = Callable[..., Array]


def literal_fold(literal: Any, array: Array, step: int, dilation: int, extent: int) -> Array:
    """`[before, count, size, after]` folded: each position adds what reaches it in the order of offsets."""
    wide = literal.up(array)
    before, count, size, after = array.shape
    result = np.zeros((before, extent, after), literal.scalar)
    for i, position, j in np.ndindex(result.shape):
        for offset in range(size):
            window, rest = divmod(position - offset * dilation, step)
            if rest == 0 and 0 <= window < count:
                result[i, position, j] = result[i, position, j] + wide[i, window, offset, j]
    return literal.down(result)


@pytest.mark.parametrize("special", [0.0, 0.05])
def test_against_the_rule(element: Element, literal: Any, numbers: Draw, assert_same: Check, special: float) -> None:
    for count, size, step, dilation in itertools.product((1, 4, 7), (1, 3, 4), (1, 2, 5), (1, 2)):
        least = (count - 1) * step + (size - 1) * dilation + 1
        for extent in (least, least + 3):
            array = numbers((2, count, size, 3), special)
            expected = literal_fold(literal, array, step, dilation, extent)
            assert_same(fold(element, array, 1, size, step, dilation, extent), expected)
            reversed_view = array[:, ::-1, ::-1, ::-1].copy()[:, ::-1, ::-1, ::-1]
            assert_same(fold(element, reversed_view, 1, size, step, dilation, extent), expected)
            moved = np.moveaxis(array, 0, -1)
            assert_same(fold(element, moved, 0, size, step, dilation, extent), np.moveaxis(expected, 0, -1))


def test_nothing_to_fold(element: Element, assert_same: Check) -> None:
    for count, size in ((0, 3), (3, 0), (0, 0)):
        array = np.empty((2, count, size), element.dtype)
        assert_same(fold(element, array, 1, size, 1, 1, 6), np.zeros((2, 6), element.dtype))


def test_never_negative_zero_and_zero_terms_change_nothing(element: Element, numbers: Draw, assert_same: Check) -> None:
    zeros = np.full((4, 3), -0.0, element.dtype)
    assert_same(fold(element, zeros, 0, 3, 2, 1, 11), np.zeros(11, element.dtype))
    array = numbers((4, 3))
    padded = np.concatenate([array, np.full((4, 2), -0.0, element.dtype)], axis=1)
    assert_same(fold(element, padded, 0, 5, 2, 1, 11), fold(element, array, 0, 3, 2, 1, 11))


def test_bf16_rounds_once(half: Element) -> None:
    """Position 2 takes 1, 2^-8 and 2^-9, in that order of offsets."""
    array = half.round(np.zeros((3, 3)))
    array[2, 0], array[1, 1], array[0, 2] = 1, 2.0**-8, 2.0**-9
    assert half.promote(fold(half, array, 0, 3, 1, 1, 5))[2] == 1 + 2.0**-7


def test_a_structured_element(pair: Any, single: Element, rng: np.random.Generator, assert_same: Check) -> None:
    first, second = (rng.standard_normal((4, 3)).astype(np.float32) for _ in range(2))
    parts = (fold(single, part, 0, 3, 1, 2, 9) for part in (first, second))
    assert_same(fold(pair, pair.join(first, second), 0, 3, 1, 2, 9), pair.join(*parts))
