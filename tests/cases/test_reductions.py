"""Long sums: by the fixed shape that the terms' order gives, never by a running sum or by the number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from topos import Tape, Tensor, detach
from topos.testing import assert_same_bits

Array = np.ndarray[Any, np.dtype[Any]]


def f(number: Any) -> Array:
    return np.array(number, np.float32)


def fixed_sum(terms: Array) -> Array:
    """The stated shape of a sum, written out again: 32 lanes over blocks of 512, folded in halves, then over totals."""
    while True:
        terms = np.concatenate([terms, np.zeros(-terms.size % 512, terms.dtype)])  # +0.0 changes no lane
        lanes = np.zeros((terms.size // 512, 32), terms.dtype)
        for step in range(16):
            lanes = lanes + terms.reshape(-1, 16, 32)[:, step]
        while lanes.shape[1] > 1:
            half = lanes.shape[1] // 2
            lanes = lanes[:, :half] + lanes[:, half:]
        if len(lanes) == 1:
            return lanes[0, 0, ...]
        terms = lanes[:, 0]


def test_c30_long_sums_of_one_value(values, ulps, hexed):
    """One running f32 accumulator stops growing: it gives 206132.78, 7711.5 and 16777216."""
    tenths = Tensor.filled([2097152], 0.1)
    total = values(lambda x: x.sum(), tenths)
    assert ulps(total, f(209715.203125)) <= 8
    assert hexed(f(209715.203125)) == "0x484ccccd"
    assert_same_bits(total, values(lambda x: x.sum(), tenths.numpy().copy()))
    assert_same_bits(total, fixed_sum(tenths.numpy()))
    assert_same_bits(values(lambda x: x.mean(), Tensor.filled([1048576], 7777)), f(7777))
    assert_same_bits(values(lambda x: x.sum(), Tensor.filled([2**24 + 2], 1)), f(16777218))


def test_c31_large_terms_that_cancel(values):
    """Partial sums per thread give 0, 131072 or -131072 here: the shape of the sum follows the terms alone.

    The accumulator is f32, so the total is the bits that the stated shape gives, by every route and from any thread.
    """
    n = 4194304
    terms = np.arange(n, dtype=np.float32) - np.float32((n - 1) / 2)
    expected = fixed_sum(terms)
    assert_same_bits(values(lambda x: x.sum(), terms), expected)
    assert_same_bits(values(lambda x: x.sum(), terms.reshape(2048, 2048)), expected)
    assert_same_bits(values(lambda x: x.sum_along(1), terms.reshape(1, n)), expected.reshape(1))
    assert_same_bits(values(lambda x: x.sum_along(0), terms.reshape(n, 1)), expected.reshape(1))

    tape = Tape()
    x = tape.input(shape=[n])
    name, total = detach(x, x.sum())
    network = tape.into_network()
    plan, parameters = network.entry([total]).lower(), network.parameters()
    for threads in (1, 2, 3, 4, 6, 8):
        with ThreadPoolExecutor(threads) as pool:
            answers = pool.map(lambda _: plan.forward(parameters, {name: terms}).of(total), range(threads))
            for answer in answers:
                assert_same_bits(answer, expected)


def test_c32_tall_arrays(values, ulps):
    """A reduction over another axis than the innermost keeps the shape of its sum (NumPy's mean gives 298.6369)."""
    tall = np.full((4194304, 2), 300.1, np.float32)
    assert ulps(values(lambda x: x.mean_along(0), tall), f([300.1, 300.1])) <= 4


def test_c32_broadcast_views(values, ulps):
    """A view without strides gives the bits of its dense copy, in row-major order."""
    view = np.broadcast_to(np.float32(1.3), (2048, 2048))
    total = values(lambda x: x.sum(), view)
    assert ulps(total, f(5452595)) <= 4
    assert_same_bits(values(lambda x: x.sum(), view.copy()), total)
    assert_same_bits(values(lambda x: x.broadcast([2048, 2048]).sum(), f(1.3)), total)


@pytest.mark.parametrize("length", [*range(0, 70), 511, 512, 513, 1024, 1025, 5000])
def test_c32_any_length_and_layout(values, length):
    """The terms' logical order decides, whatever the strides: forwards, backwards, every second, transposed."""
    terms = np.random.default_rng(length).standard_normal(length).astype(np.float32)
    expected = fixed_sum(terms) if length else f(0)
    spaced = np.zeros(2 * length, np.float32)
    spaced[::2] = terms
    backwards = terms[::-1].copy()[::-1]
    for laid_out in (terms, spaced[::2], backwards):
        assert_same_bits(values(lambda x: x.sum(), laid_out), expected)
    two = np.stack([terms, terms])
    assert_same_bits(values(lambda x: x.sum_along(1), two), f([expected, expected]))
    assert_same_bits(values(lambda x: x.sum_along(0), np.asfortranarray(two.T)), f([expected, expected]))
