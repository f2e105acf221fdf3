"""The comparison that the other tests rely on, and what the package exports."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import topos.reference
from topos.element.element import Array, Element
from topos.reference.ieee import is_ieee


def test_one_flipped_bit_is_seen(
    element: Element, numbers: Callable[..., Array], assert_same: Callable[..., None]
) -> None:
    array = numbers((5, 7))
    bits = np.dtype(f"u{array.dtype.itemsize}")
    for bit in range(8 * array.dtype.itemsize):
        flipped = array.copy()
        flipped.view(bits)[3, 4] ^= bits.type(1 << bit)
        with pytest.raises(AssertionError):
            assert_same(flipped, array)
    assert_same(array.copy(), array)


def test_zeros_shapes_dtypes_and_scalars_are_told_apart(assert_same: Callable[..., None]) -> None:
    one = np.ones(1, np.float32)
    different = ((np.zeros(1), -np.zeros(1)), (one, one[0]), (one, one.astype(float)), (one[0], one), (one, one[None]))
    for left, right in different:
        with pytest.raises(AssertionError):
            assert_same(left, right)
    assert_same(np.array([np.nan]), np.array([-np.nan]))


def test_all_is_what_is_documented() -> None:
    for name in topos.reference.__all__:
        assert getattr(topos.reference, name).__doc__


def test_the_built_in_elements_take_the_fast_paths(single: Element, double: Element, half: Element) -> None:
    assert is_ieee(single) and is_ieee(double) and is_ieee(half.accumulator)
    assert not is_ieee(half)
