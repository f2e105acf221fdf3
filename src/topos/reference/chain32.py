"""Chains of f32 fused multiply-adds over whole matrices: the bits of `fma32`, at the price of plain operations.

A chain takes the step that is right for all but rare lanes, remembers the lanes where it may have erred, and only those
are run again.
"""

from __future__ import annotations

import numpy as np

from topos.element.element import Array
from topos.element.fma import fma32, may_round_twice, two_sum
from topos.reference.ranges import least_magnitude, significant_bits
from topos.reference.tiles import Begin, Chain, Parts, fused_chain, tiled, whole

_LEAST = np.iinfo(np.int32).min


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
    if _product_bits(left, right) <= 24:
        ways: tuple[Begin, ...] = (_begin_innocent,)
    elif least_magnitude(left) * least_magnitude(right) >= 2.0 ** (46 - 177):
        ways = (_begin, _begin_careful)
    else:
        ways = (_begin_careful,)
    return tiled(left, right, ways, _lanes32, tile_size=1 << 14, parts=whole)


def _product_bits(left: Array, right: Array) -> int:
    """A bound on the significant bits of any product; a factor of one bit adds none."""
    bits = sorted((significant_bits(left, 23), significant_bits(right, 23)))
    return bits[1] if bits[0] == 1 else bits[0] + bits[1]


def _begin_innocent(depth: int, shape: tuple[int, ...]) -> Chain:
    """Steps that cannot err."""
    total, narrow, sums = np.zeros(shape), np.zeros(shape, np.float32), np.empty((depth, *shape))

    def run(a: Parts, b: Parts) -> None:
        for step in np.multiply(a[0], b[0], out=sums[: len(a[0])]):
            np.add(step, total, out=step)
            np.copyto(narrow, step, casting="same_kind")
            np.copyto(total, narrow)

    return run, lambda: np.zeros(shape, np.bool_), narrow


def _begin(depth: int, shape: tuple[int, ...]) -> Chain:
    """Steps whose lanes are suspect once they have stood on a midpoint, exactly or not."""
    total, narrow = np.zeros(shape), np.zeros(shape, np.float32)
    sums, scratch = np.empty((depth, *shape)), np.empty((depth, *shape[:-1], 2 * shape[-1]), np.int32)
    midpoint = np.zeros(scratch.shape[1:], np.int32)
    eight = np.int32(8)

    def run(a: Parts, b: Parts) -> None:
        wide, halves = sums[: len(a[0])], scratch[: len(a[0])]
        np.multiply(a[0], b[0], out=wide)
        for step in wide:
            np.add(step, total, out=step)
            np.copyto(narrow, step, casting="same_kind")
            np.copyto(total, narrow)
        # An f64 stands on an f32 midpoint where its lower 32 bits, shifted left by 3, are the least int32. The upper
        # halves take part because they lie between; at a few powers of two they raise a false alarm.
        np.multiply(wide.view(np.int32), eight, out=halves)
        least = halves[0] if len(halves) == 1 else np.minimum.reduce(halves, axis=0)
        np.minimum(midpoint, least, out=midpoint)

    return run, lambda: np.asarray((midpoint == _LEAST).reshape(*shape, 2).any(-1)), narrow


def _begin_careful(depth: int, shape: tuple[int, ...]) -> Chain:
    """Steps whose lanes are suspect only where a sum that may round twice was inexact, subnormal results included."""
    narrow = np.zeros(shape, np.float32)
    totals = np.zeros((depth + 1, *shape))
    products, sums, errors, scratch = (np.empty((depth, *shape)) for _ in range(4))
    suspect = np.zeros(shape, np.bool_)

    def run(a: Parts, b: Parts) -> None:
        steps = len(a[0])
        p, s, e, x = (y[:steps] for y in (products, sums, errors, scratch))
        np.multiply(a[0], b[0], out=p)
        for k in range(steps):
            np.add(p[k], totals[k], out=s[k])
            np.copyto(narrow, s[k], casting="same_kind")
            np.copyto(totals[k + 1], narrow)
        np.subtract(s, p, out=x)  # the error of each sum, as by two_sum
        np.subtract(s, x, out=e)
        np.subtract(p, e, out=e)
        np.subtract(totals[:steps], x, out=x)
        np.add(e, x, out=e)
        np.copyto(totals[0], totals[steps])
        for wrong in may_round_twice(s) & (e != 0):
            np.logical_or(suspect, wrong, out=suspect)

    return run, lambda: suspect, narrow


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
