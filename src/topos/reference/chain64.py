"""Chains of f64 fused multiply-adds over whole matrices: the bits of `fma64`, at the price of plain operations.

A chain takes the step that is right for all but rare lanes, remembers the lanes where it may have erred, and only those
are run again.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from topos.element.element import Array
from topos.element.fma import fma64, split
from topos.reference.ranges import moderate, significant_bits
from topos.reference.tiles import Chain, Parts, fused_chain, tiled, whole

_FRACTION = np.int64(0x000FFFFFFFFFFFFF)


def chain64(left: Array, right: Array) -> Array:
    """`[lanes, rows, terms] @ [lanes, terms, columns]` by `t = fma64(left[k], right[k], t)`, ascending, from `+0.0`.

    If every product has at most 53 significant bits it is exact, and a step is one product and one addition. Else, with
    `p + e = left * right` and `s + v = p + t` exactly, the step is `s + w`, `w = fl(v + e)`. Rounding is monotonic and
    the midpoints near `s`, less `s`, are f64 of one bit or two; so `w` falls on the wrong side of none, and the step
    errs only if `w` itself stands on one: then what is left of `w`, `w - ((s + w) - s)`, is a power of two.

    Exponents that could leave the range of these transformations take `fma64` at every step.
    """
    if not moderate(left, right):
        return fused_chain(left.transpose(2, 0, 1)[:, :, :, None], right.transpose(1, 0, 2)[:, :, None, :], fma64)
    if significant_bits(left, 52) + significant_bits(right, 52) <= 53:
        return tiled(left, right, (_begin_exact,), _lanes64, tile_size=1 << 13, parts=whole)
    ways = (partial(_begin, False), partial(_begin, True))
    return tiled(left, right, ways, _lanes64, tile_size=1 << 13, parts=_whole_and_halves)


def _begin_exact(depth: int, shape: tuple[int, ...]) -> Chain:
    """Steps of exact products."""
    total, products = np.zeros(shape), np.empty((depth, *shape))

    def run(a: Parts, b: Parts) -> None:
        for step in np.multiply(a[0], b[0], out=products[: len(a[0])]):
            np.add(total, step, out=total)

    return run, lambda: np.zeros(shape, np.bool_), total


def _begin(careful: bool, depth: int, shape: tuple[int, ...]) -> Chain:
    """Steps whose lanes are suspect where what is left of `w` was a power of two; if careful, and `w` was inexact."""
    total, shadow = np.zeros(shape), np.empty(shape)
    buffers = [np.empty((depth, *shape)) for _ in range(7)]
    masks = [np.empty((depth, *shape), np.bool_) for _ in range(2)]
    suspect = np.zeros(shape, np.bool_)

    def run(a: Parts, b: Parts) -> None:
        p, e, s, v, w, t, x = (buffer[: len(a[0])] for buffer in buffers)
        (a_all, a_high, a_low), (b_all, b_high, b_low) = a, b
        np.multiply(a_all, b_all, out=p)  # p + e = left * right
        np.multiply(a_high, b_high, out=e)
        np.subtract(e, p, out=e)
        for a_part, b_part in ((a_high, b_low), (a_low, b_high), (a_low, b_low)):
            np.multiply(a_part, b_part, out=x)
            np.add(e, x, out=e)
        before = total
        for p_step, e_step, s_step, v_step, w_step, after in zip(p, e, s, v, w, t, strict=True):
            np.add(p_step, before, out=s_step)  # s + v = p + before
            np.subtract(s_step, p_step, out=shadow)
            np.subtract(s_step, shadow, out=v_step)
            np.subtract(p_step, v_step, out=v_step)
            np.subtract(before, shadow, out=shadow)
            np.add(v_step, shadow, out=v_step)
            np.add(v_step, e_step, out=w_step)
            np.add(s_step, w_step, out=after)
            before = after
        np.copyto(total, before)
        np.subtract(t, s, out=x)
        np.subtract(w, x, out=x)  # what is left of w
        bits, (power, nonzero) = p.view(np.int64), (mask[: len(x)] for mask in masks)
        np.bitwise_and(x.view(np.int64), _FRACTION, out=bits)
        np.equal(bits, 0, out=power)
        if careful:
            np.subtract(w, v, out=s)  # the error of w = fl(v + e), as by two_sum
            np.subtract(w, s, out=t)
            np.subtract(v, t, out=t)
            np.subtract(e, s, out=s)
            np.add(t, s, out=t)
            np.not_equal(t, 0.0, out=nonzero)
            np.logical_and(power, nonzero, out=power)
        np.not_equal(x, 0.0, out=nonzero)
        np.logical_and(power, nonzero, out=power)
        for found in power:
            np.logical_or(suspect, found, out=suspect)

    return run, lambda: suspect, total


def _whole_and_halves(x: Array) -> Parts:
    return (x, *split(x))


def _lanes64(a: Array, b: Array) -> Array:
    """Chains side by side, `[terms, lanes]` to `[lanes]`, by `fma64`."""
    return fused_chain(a, b, fma64)
