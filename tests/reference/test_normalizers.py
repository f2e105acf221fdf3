"""`logsumexp` and `log_softmax`, each step a rounded operation of the accumulator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from topos.element.element import Array, Element
from topos.reference import log_softmax, logsumexp

Check = Callable[[Array, Array], None]
Draw = Callable[..., Array]


def literal_row(literal: Any, row: Array) -> tuple[Any, list[Any]]:
    """Both functions of one row in the accumulator, a scalar at a time."""
    scalar, accumulator = literal.scalar, literal.accumulator
    values = [float(x) for x in row]
    largest = scalar(np.nan if any(x != x for x in values) else max(values, default=-np.inf) + 0.0)
    m = largest if np.isfinite(largest) else scalar(0)
    shifted = [scalar(x) - m for x in values]
    terms = [accumulator.exp(np.asarray(x))[()] for x in shifted]
    logarithm = accumulator.ln(np.asarray(literal.s(terms)))[()]
    return m + logarithm, [x - logarithm for x in shifted]


def check_rows(element: Element, literal: Any, array: Array, assert_same: Check) -> None:
    rows = [literal_row(literal, literal.up(row)) for row in array]
    sums = literal.down([row[0] for row in rows]).reshape(len(rows))
    soft = literal.down([row[1] for row in rows]).reshape(array.shape)
    assert_same(logsumexp(element, array, 1), sums)
    assert_same(log_softmax(element, array, -1), soft)
    assert_same(logsumexp(element, np.asfortranarray(array).T, 0), sums)
    assert_same(log_softmax(element, np.asfortranarray(array).T, 0), soft.T)


@pytest.mark.parametrize("special", [0.0, 0.02])
def test_against_the_rule(element: Element, literal: Any, numbers: Draw, assert_same: Check, special: float) -> None:
    for length in (0, 1, 2, 10, 33, 70, 513, 1025):
        check_rows(element, literal, numbers((4, length), special), assert_same)


def test_masked_and_infinite_rows(element: Element, literal: Any, assert_same: Check) -> None:
    inf = np.inf
    rows = [[1, -inf, 2], [-inf, -inf, -inf], [1, inf, 2], [inf, -inf, inf], [1, np.nan, 2], [-0.0, 0.0, -inf]]
    array = np.array(rows).astype(element.dtype)
    check_rows(element, literal, array, assert_same)
    sums = logsumexp(element, array, 1).astype(np.float64)
    soft = log_softmax(element, array, 1).astype(np.float64)
    assert sums[1:4].tolist() == [-inf, inf, inf] and np.isnan(sums[4])
    assert soft[0, 1] == -inf and np.isfinite(soft[0, ::2]).all()
    assert np.isnan(soft[1]).all() and np.isnan(soft[4]).all()
    assert soft[2, 0] == soft[2, 2] == -inf and np.isnan(soft[2, 1])


def test_large_logits_do_not_overflow(element: Element) -> None:
    array = element.round(np.array([[1024.0, 1024.0], [-1024.0, -1024.0]]))
    assert np.isfinite(logsumexp(element, array, 1).astype(np.float64)).all()
    assert np.abs(log_softmax(element, array, 1).astype(np.float64) + np.log(2)).max() < 4e-3


@pytest.mark.parametrize("length", [3, 600])
def test_near_the_true_value(element: Element, numbers: Draw, length: int) -> None:
    array = numbers((length,))
    with mpmath.workdps(60):
        true = float(mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(float(x))) for x in array)))
    unit = 2.0 ** -{"float32": 23, "float64": 52, "bfloat16": 7}[element.dtype.name]
    assert abs(float(logsumexp(element, array, 0)) - true) <= 4 * unit * max(abs(true), 1)


def test_a_row_alone_is_the_row_in_a_batch(element: Element, numbers: Draw, assert_same: Check) -> None:
    batch = numbers((9, 600))
    sums, soft = logsumexp(element, batch, 1), log_softmax(element, batch, 1)
    for i in range(9):
        assert_same(logsumexp(element, batch[i], 0), np.asarray(sums[i]))
        assert_same(log_softmax(element, batch[i : i + 1], 1), soft[i : i + 1])


def test_a_structured_element(pair: Any, rng: np.random.Generator, assert_same: Check) -> None:
    plain = pair._plain
    first, second = (rng.standard_normal((4, 7)).astype(np.float32) for _ in range(2))
    array = pair.join(first, second)
    assert_same(logsumexp(pair, array, 1), pair.join(logsumexp(plain, first, 1), logsumexp(plain, second, 1)))
    assert_same(log_softmax(pair, array, 0), pair.join(log_softmax(plain, first, 0), log_softmax(plain, second, 0)))
