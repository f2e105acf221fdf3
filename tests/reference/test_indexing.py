"""Rows by their ids against a loop over the selection."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from topos.element.element import Array, Element
from topos.reference import gather, matmul, one_hot, scatter, sum_along

Check = Callable[[Array, Array], None]
Draw = Callable[..., Array]


def literal_scatter(literal: Any, rows: Array, ids: Array, vocab: int) -> Array:
    wide = literal.up(rows)
    result = np.zeros((vocab, *rows.shape[ids.ndim :]), literal.scalar)
    for place in np.ndindex(ids.shape):
        if ids[place] >= 0:
            result[ids[place]] = result[ids[place]] + wide[place]
    return literal.down(result)


@pytest.mark.parametrize("special", [0.0, 0.02])
@pytest.mark.parametrize("selection", [(), (0,), (1,), (70,), (5, 20), (600,)])
@pytest.mark.parametrize("row", [(), (3,), (2, 2)])
def test_scatter_against_the_rule(
    element: Element,
    literal: Any,
    numbers: Draw,
    rng: np.random.Generator,
    assert_same: Check,
    special: float,
    selection: tuple[int, ...],
    row: tuple[int, ...],
) -> None:
    for vocab in (1, 7, 100):
        ids = np.asarray(np.minimum(rng.integers(-1, vocab, selection), rng.integers(-1, vocab, selection)))
        rows = numbers((*selection, *row), special)
        expected = literal_scatter(literal, rows, ids, vocab)
        assert_same(scatter(element, rows, ids, vocab), expected)
        assert_same(scatter(element, np.array(rows, order="F"), ids.astype(np.int32), vocab), expected)


def test_gather_copies_bits(element: Element, numbers: Draw, assert_same: Check) -> None:
    table = numbers((9, 4), 0.4)
    ids = np.array([[0, 8, -1], [3, 3, -1]])
    expected = np.zeros((2, 3, 4), element.dtype)
    for i, j in np.ndindex(ids.shape):
        if ids[i, j] >= 0:
            expected[i, j] = table[ids[i, j]]
    assert_same(gather(element, table, ids), expected)
    assert_same(gather(element, np.asfortranarray(table)[::-1], 8 - ids[:, :2]), expected[:, :2])
    assert_same(gather(element, table[:, 1], ids), expected[..., 1])
    assert_same(gather(element, table[:, 1], np.array(3)), np.asarray(expected[1, 0, 1]))
    assert_same(gather(element, table[:, 1], np.array(-1)), element.zero)
    assert_same(gather(element, table[:0], np.array([-1, -1])), np.zeros((2, 4), element.dtype))
    assert_same(gather(element, table, ids[:0]), np.zeros((0, 3, 4), element.dtype))


def test_one_hot_is_dense(element: Element, assert_same: Check) -> None:
    ids = np.array([[0, 2], [-1, 1]])
    expected = np.array([[[1, 0, 0], [0, 0, 1]], [[0, 0, 0], [0, 1, 0]]]).astype(element.dtype)
    assert_same(one_hot(element, ids, 3), expected)
    assert_same(one_hot(element, ids.T[::-1], 3), expected.transpose(1, 0, 2)[::-1])
    assert_same(one_hot(element, np.array(2), 3), expected[0, 1])
    assert_same(one_hot(element, np.array([-1]), 0), np.empty((1, 0), element.dtype))


def test_repeated_ids(single: Element) -> None:
    upstream = np.array([0.25, 0.5, 2], np.float32)
    assert scatter(single, upstream, np.array([0, 0, 2]), 3).tolist() == [0.75, 0, 2]


def test_ten_thousand_rows_on_one_id(single: Element, rng: np.random.Generator, assert_same: Check) -> None:
    rows = rng.standard_normal((10000, 16)).astype(np.float32)
    start = time.perf_counter()
    result = scatter(single, rows, np.zeros(10000, np.int64), 2)
    assert time.perf_counter() - start < 5
    assert_same(result[0], np.add.accumulate(rows, axis=0)[-1])
    assert_same(result[1], np.zeros(16, np.float32))


def test_never_negative_zero_and_zero_rows_change_nothing(element: Element, numbers: Draw, assert_same: Check) -> None:
    ids = np.array([1, 1, 0, -1])
    assert_same(scatter(element, np.full(4, -0.0, element.dtype), ids, 3), np.zeros(3, element.dtype))
    rows = numbers((4, 5))
    padded = np.concatenate([rows, np.full((3, 5), -0.0, element.dtype)])
    assert_same(
        scatter(element, padded, np.array([*ids, 2, 1, 0]), 3),
        scatter(element, rows, ids, 3),
    )


def test_a_selection_of_distinct_ids_is_a_product_with_its_dense_form(
    element: Element, numbers: Draw, rng: np.random.Generator, assert_same: Check
) -> None:
    table, ids = numbers((40, 6)), rng.permutation(40)[:20]
    dense = one_hot(element, ids, 40)
    assert_same(gather(element, table, ids), matmul(element, dense, table))
    rows = numbers((20, 6))
    assert_same(scatter(element, rows, ids, 40), matmul(element, dense.T, rows))
    assert_same(sum_along(element, dense, 1), np.ones(20, element.dtype))


def test_a_structured_element(pair: Any, single: Element, rng: np.random.Generator, assert_same: Check) -> None:
    first, second = (rng.standard_normal((50, 3)).astype(np.float32) for _ in range(2))
    ids = rng.integers(-1, 6, 50)
    array = pair.join(first, second)
    assert_same(scatter(pair, array, ids, 6), pair.join(*(scatter(single, x, ids, 6) for x in (first, second))))
    assert_same(gather(pair, array, ids), pair.join(gather(single, first, ids), gather(single, second, ids)))
    dense = one_hot(single, ids, 6)
    assert_same(one_hot(pair, ids, 6), pair.join(dense, dense))
