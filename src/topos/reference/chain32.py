"""Chains of f32 fused multiply-adds over whole matrices: the bits of `fma32`, at the price of plain operations.

A chain takes the step that is right for all but rare lanes, remembers the lanes where it may have erred, and only those
are run again.
"""

from __future__ import annotations

import numpy as np

from topos.element.element import Array
from topos.element.fma import fma32, may_round_twice, two_sum
from topos.reference.ranges import least_magnitude, significant_bits
from topos.reference.tiles import Chain, Parts, fused_chain, tiled, whole

_ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_LEAST = np.iinfo(np.int32).min
_LIMIT = np.float64(2.0**-125).view(np.uint64) << np.uint64(1)


def chain32(left: Array, right: Array) -> Array:
    """`[lanes, rows, terms] @ [lanes, terms, columns]` by `t = fma32(left[k], right[k], t)`, ascending, from `+0.0`.

    A step is the exact f64 product, one f64 addition and the rounding to f32. As in `fma32`, it can err only where the
    f64 sum is inexact and stands on an f32 midpoint, or where the f32 is subnormal.

    - If every product has at most 24 significant bits, never. Let the sum have exponent `e`. It is inexact only if one
      term has a bit below `2^(e-53)`, and that term is then below `2^(e-29)`; the other term is a multiple of
      `2^(e-24)` within `2^(e-28)` of the sum, so a midpoint (an odd multiple of `2^(e-24)`) would be that term itself,
      which has one bit too few to be one. Subnormal midpoints are odd multiples of `2^-150`: likewise.
    - If no product has a bit below `2^-177`, then an f64 sum below `2^-125` is exact, and so is the one rounding after.
    """
    left_bits, right_bits = significant_bits(left, 23), significant_bits(right, 23)
    innocent = (left_bits if right_bits == 1 else right_bits if left_bits == 1 else left_bits + right_bits) <= 24
    tiny = not innocent and least_magnitude(left) * least_magnitude(right) < 2.0 ** (46 - 177)

    def begin(depth: int, shape: tuple[int, ...]) -> Chain:
        total = np.zeros(shape)
        narrow = np.zeros(shape, np.float32)
        sums = np.empty((depth, *shape))
        scratch = np.empty((depth, *shape), np.uint64)
        suspect = np.zeros(shape, np.bool_)
        midpoint, smallest = np.zeros((*shape[:-1], 2 * shape[-1]), np.int32), np.full(shape, _ALL_ONES)
        eight, one = np.int32(8), np.uint64(1)

        def run(a: Parts, b: Parts) -> None:
            wide, bits = sums[: len(a[0])], scratch[: len(a[0])]
            np.multiply(a[0], b[0], out=wide)
            for step in wide:
                np.add(step, total, out=step)
                np.copyto(narrow, step, casting="same_kind")
                np.copyto(total, narrow)
            if not innocent:
                # An f64 stands on an f32 midpoint where its lower 32 bits, shifted left by 3, are the least int32. The
                # upper halves take part because they lie between; at a few powers of two they raise a false alarm.
                halves = bits.view(np.int32)
                np.multiply(wide.view(np.int32), eight, out=halves)
                _lower(midpoint, halves)
            if tiny:
                # Magnitudes as integers, less one, so that zero is the largest.
                np.left_shift(wide.view(np.uint64), one, out=bits)
                np.subtract(bits, one, out=bits)
                _lower(smallest, bits)

        def suspects() -> Array:
            np.logical_or.reduce((midpoint == _LEAST).reshape(*shape, 2), axis=-1, out=suspect)
            return suspect | (smallest < _LIMIT) if tiny else suspect

        return run, suspects, narrow

    return tiled(left, right, begin, _lanes32, tile_size=1 << 14, parts=whole)


def _lower(least: Array, steps: Array) -> None:
    """Lower `least` to the least of the steps, elementwise."""
    np.minimum(least, steps[0] if len(steps) == 1 else np.minimum.reduce(steps, axis=0), out=least)


def _lanes32(a: Array, b: Array) -> Array:
    """Chains side by side, `[terms, lanes]` to `[lanes]`: plain steps, and `fma32` for those that turn out wrong.

    Most midpoints are met exactly, and then rounding to even twice is right.
    """
    terms, lanes = a.shape
    products = a.astype(np.float64) * b
    sums, totals = np.empty_like(products), np.zeros((terms + 1, lanes))
    narrow = np.zeros(lanes, np.float32)
    for k in range(terms):
        np.add(products[k], totals[k], out=sums[k])
        np.copyto(narrow, sums[k], casting="same_kind")
        np.copyto(totals[k + 1], narrow)
    wrong = (may_round_twice(sums) & (two_sum(products, totals[:-1])[1] != 0)).any(0)
    if wrong.any():
        narrow[wrong] = fused_chain(a[:, wrong], b[:, wrong], fma32)
    return narrow
