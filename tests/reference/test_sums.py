"""Sums against the rule, term by term."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from topos.element.element import Array, Element
from topos.reference import sum, sum_along

LENGTHS = [*range(71), 127, 511, 512, 513, 1024, 1025, 1600]
Check = Callable[[Array, Array], None]
Draw = Callable[..., Array]


@pytest.mark.parametrize("special", [0.0, 0.01])
def test_every_length_along_every_axis(
    element: Element, literal: Any, numbers: Draw, assert_same: Check, special: float
) -> None:
    for length in LENGTHS:
        array = numbers((2, length, 3), special)
        expected = literal.sum_along(array, 1)
        assert_same(sum_along(element, array, 1), expected)
        assert_same(sum_along(element, np.ascontiguousarray(array.transpose(0, 2, 1)), 2), expected)
        assert_same(sum_along(element, np.ascontiguousarray(array.transpose(1, 0, 2)), -3), expected)
        assert_same(sum(element, array[0]), literal.sum(array[0]))


def test_two_levels_of_blocks(element: Element, literal: Any, numbers: Draw, assert_same: Check) -> None:
    for length in (512 * 512, 512 * 512 + 700):
        array = numbers((length,))
        assert_same(sum(element, array), literal.sum(array))
        assert_same(sum_along(element, array, 0), literal.sum(array))


def test_views_give_the_bits_of_their_copies(element: Element, numbers: Draw, assert_same: Check) -> None:
    base = numbers((6, 1030, 10))
    views = [
        base[::-1],
        base[:, ::-1, ::3],
        base[::2, 5::2, ::-2],
        base.transpose(2, 0, 1),
        base.T,
        np.broadcast_to(base[:, :1], base.shape),
        np.broadcast_to(base[0, 0, 0], (4, 600)),
        base[:, :0],
        base[:0],
        base.view(),
    ]
    for view in views:
        dense = view.copy()
        assert_same(sum(element, view), sum(element, dense))
        for axis in range(view.ndim):
            assert_same(sum_along(element, view, axis), sum_along(element, dense, axis))


def test_large_views_are_taken_up_in_pieces(single: Element, rng: np.random.Generator, assert_same: Check) -> None:
    base = rng.standard_normal((1200, 1500)).astype(np.float32)
    for view in (base.T, base[::-1, ::-1], base[:, ::3], np.broadcast_to(base[0], (1000, 1500)), base.T[:, :, None]):
        dense = view.copy()
        assert_same(sum(single, view), sum(single, dense))
        for axis in range(view.ndim):
            assert_same(sum_along(single, view, axis), sum_along(single, dense, axis))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_memory_beside_the_operand_is_bounded(single: Element, axis: int | None) -> None:
    view = np.broadcast_to(np.ones((1, 4000), np.float32), (4000, 4000)).T  # 64 MB if it were dense
    tracemalloc.start()
    sum(single, view) if axis is None else sum_along(single, view, axis)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12_000_000


def test_a_row_alone_is_the_row_in_a_batch(element: Element, numbers: Draw, assert_same: Check) -> None:
    batch = numbers((40, 700))
    rows = sum_along(element, batch, 1)
    columns = sum_along(element, batch, 0)
    for i in range(40):
        assert_same(sum(element, batch[i]), np.asarray(rows[i]))
        assert_same(sum_along(element, batch[:, i], 0), np.asarray(columns[i]))


def test_never_negative_zero_and_trailing_zeros_change_nothing(
    element: Element, numbers: Draw, assert_same: Check
) -> None:
    for count in (0, 1, 31, 32, 33, 600):
        assert_same(sum(element, np.full(count, -0.0, element.dtype)), element.zero)
    assert_same(sum(element, np.array(-0.0, element.dtype)), element.zero)
    assert_same(sum_along(element, np.zeros((3, 0), element.dtype), 1), np.zeros(3, element.dtype))
    assert_same(sum_along(element, np.zeros((0, 3), element.dtype), 1), np.zeros(0, element.dtype))
    for count in (0, 1, 31, 40, 511, 512, 600, 1023):
        array = numbers((count,))
        for zero in (0.0, -0.0):
            padded = np.concatenate([array, np.full(700, zero, element.dtype)])
            assert_same(sum(element, padded), sum(element, array))


def test_long_sums_of_one_value(single: Element) -> None:
    total = sum(single, np.broadcast_to(np.float32(0.1), (2097152,)))
    assert abs(float(total) - 209715.203125) <= 8 * 0.015625
    mean = sum(single, np.full(1048576, 7777, np.float32)) / np.float32(1048576)
    assert mean == 7777
    assert sum(single, np.broadcast_to(np.float32(1), (2**24 + 2,))) == 16777218


def test_large_terms_that_cancel(single: Element, assert_same: Check) -> None:
    count = 4194304
    array = (np.arange(count) - (count - 1) / 2).astype(np.float32)
    assert_same(sum(single, array), sum_along(single, array.reshape(count, 1), 0).reshape(()))


def test_tall_arrays_and_broadcast_views(single: Element, assert_same: Check) -> None:
    tall = np.full((4194304, 2), 300.1, np.float32)
    mean = sum_along(single, tall, 0) / np.float32(4194304)
    assert (np.abs(mean - np.float32(300.1)) <= 4 * np.spacing(np.float32(300.1))).all()
    view = np.broadcast_to(np.float32(1.3), (2048, 2048))
    total = sum(single, view)
    assert_same(total, sum(single, view.copy()))
    assert abs(float(total) - 5452595) <= 4 * 0.5


def test_a_structured_element_is_summed_by_its_own_addition(
    pair: Any, single: Element, rng: np.random.Generator, assert_same: Check
) -> None:
    first, second = (rng.standard_normal((3, 1100)).astype(np.float32) for _ in range(2))
    array = pair.join(first, second)
    assert_same(sum(pair, array[:, ::-1]), pair.join(sum(single, first[:, ::-1]), sum(single, second[:, ::-1])))
    for axis in range(2):
        expected = pair.join(sum_along(single, first, axis), sum_along(single, second, axis))
        assert_same(sum_along(pair, array, axis), expected)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    data=st.data(),
    array=arrays.arrays(np.float32, arrays.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=40)),
)
def test_any_array(single: Element, assert_same: Check, data: st.DataObject, array: Array) -> None:
    axis = data.draw(st.integers(0, array.ndim - 1))
    dense = np.ascontiguousarray(np.moveaxis(array, axis, 0))
    assert_same(sum_along(single, array, axis), sum_along(single, dense, 0))
    assert_same(sum(single, array), sum_along(single, array.reshape(-1), 0))
