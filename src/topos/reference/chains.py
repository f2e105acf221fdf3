"""Chains of IEEE fused multiply-adds over whole matrices: the bits of `fma32` and `fma64`, at the price of plain ops.

A chain runs over a cache-sized tile of results with preallocated buffers. It takes the step that is right for all but
rare lanes, remembers the lanes where it may have erred, and only those are run again with the full operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from topos.element.element import Array
from topos.element.fma import fma32, fma64, may_round_twice, split, two_sum

_Parts = tuple[Array, ...]
_Lanes = Callable[[Array, Array], Array]
_Chain = tuple[Callable[[_Parts, _Parts], None], Callable[[], Array], Array]
_Tile = tuple[slice, slice, slice]

_ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_LEAST = np.iinfo(np.int32).min
_LIMIT = np.float64(2.0**-125).view(np.uint64) << np.uint64(1)
_FRACTION = np.int64(0x000FFFFFFFFFFFFF)


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
    left_bits, right_bits = _significant_bits(left, 23), _significant_bits(right, 23)
    innocent = (left_bits if right_bits == 1 else right_bits if left_bits == 1 else left_bits + right_bits) <= 24
    tiny = not innocent and _least(left) * _least(right) < 2.0 ** (46 - 177)

    def begin(depth: int, shape: tuple[int, ...]) -> _Chain:
        total = np.zeros(shape)
        narrow = np.zeros(shape, np.float32)
        sums = np.empty((depth, *shape))
        scratch = np.empty((depth, *shape), np.uint64)
        suspect = np.zeros(shape, np.bool_)
        midpoint, smallest = np.zeros((*shape[:-1], 2 * shape[-1]), np.int32), np.full(shape, _ALL_ONES)
        eight, one = np.int32(8), np.uint64(1)

        def run(a: _Parts, b: _Parts) -> None:
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

    return _tiled(left, right, begin, _lanes32, tile_size=1 << 14, parts=_whole)


def chain64(left: Array, right: Array) -> Array:
    """`[lanes, rows, terms] @ [lanes, terms, columns]` by `t = fma64(left[k], right[k], t)`, ascending, from `+0.0`.

    If every product has at most 53 significant bits it is exact, and a step is one product and one addition. Else, with
    `p + e = left * right` and `s + v = p + t` exactly, the step is `s + w`, `w = fl(v + e)`. Rounding is monotonic and
    the midpoints near `s`, less `s`, are f64 of one bit or two; so `w` falls on the wrong side of none, and the step
    errs only if `w` itself stands on one: then what is left of `w`, `w - ((s + w) - s)`, is a power of two.

    Exponents that could leave the range of these transformations take `fma64` at every step.
    """
    if not _moderate(left, right):
        return _fused(left.transpose(2, 0, 1)[:, :, :, None], right.transpose(1, 0, 2)[:, :, None, :], fma64)
    exact = _significant_bits(left, 52) + _significant_bits(right, 52) <= 53

    def begin(depth: int, shape: tuple[int, ...]) -> _Chain:
        total = np.zeros(shape)
        products, errors, sums, rests, totals, scratch = (np.empty((depth, *shape)) for _ in range(6))
        powers, nonzeros = (np.empty((depth, *shape), np.bool_) for _ in range(2))
        shadow, low = np.empty(shape), np.empty(shape)
        suspect = np.zeros(shape, np.bool_)

        def run_exact(a: _Parts, b: _Parts) -> None:
            for step in np.multiply(a[0], b[0], out=products[: len(a[0])]):
                np.add(total, step, out=total)

        def run(a: _Parts, b: _Parts) -> None:
            p, e, s, w, t, x = (y[: len(a[0])] for y in (products, errors, sums, rests, totals, scratch))
            (a_all, a_high, a_low), (b_all, b_high, b_low) = a, b
            np.multiply(a_all, b_all, out=p)
            np.multiply(a_high, b_high, out=e)
            np.subtract(e, p, out=e)
            for a_part, b_part in ((a_high, b_low), (a_low, b_high), (a_low, b_low)):
                np.multiply(a_part, b_part, out=x)
                np.add(e, x, out=e)
            before = total
            for p_step, e_step, s_step, w_step, after in zip(p, e, s, w, t, strict=True):
                np.add(p_step, before, out=s_step)  # s + low = p + total
                np.subtract(s_step, p_step, out=shadow)
                np.subtract(s_step, shadow, out=low)
                np.subtract(p_step, low, out=low)
                np.subtract(before, shadow, out=shadow)
                np.add(low, shadow, out=low)
                np.add(low, e_step, out=w_step)
                np.add(s_step, w_step, out=after)
                before = after
            np.copyto(total, before)
            np.subtract(t, s, out=x)
            np.subtract(w, x, out=x)  # what is left of w
            bits, power, nonzero = e.view(np.int64), powers[: len(x)], nonzeros[: len(x)]
            np.bitwise_and(x.view(np.int64), _FRACTION, out=bits)
            np.equal(bits, 0, out=power)
            np.not_equal(x, 0.0, out=nonzero)
            np.logical_and(power, nonzero, out=power)
            for found in power:
                np.logical_or(suspect, found, out=suspect)

        return run_exact if exact else run, lambda: suspect, total

    return _tiled(left, right, begin, _lanes64, tile_size=1 << 13, parts=_whole if exact else _whole_and_halves)


def _tiled(
    left: Array,
    right: Array,
    begin: Callable[[int, tuple[int, ...]], _Chain],
    again: _Lanes,
    tile_size: int,
    parts: Callable[[Array], _Parts],
) -> Array:
    """Run a chain over tiles of `[lanes, rows, columns]`, its longest axis innermost in memory.

    `begin(depth, shape)` answers what runs up to `depth` steps, the question which lanes are suspect after the last,
    and the running total. Small tiles run many steps at a time, so that they share what calls they can.
    `parts` makes of an f64 operand what a step wants of it.
    """
    terms = left.shape[-1]
    extents = (left.shape[0], left.shape[1], right.shape[2])
    order = sorted(range(3), key=extents.__getitem__)
    # [terms, lanes, rows, columns], the axis that an operand lacks of extent 1
    a = left.transpose(2, 0, 1)[:, :, :, None].transpose(0, *(1 + axis for axis in order))
    b = right.transpose(1, 0, 2)[:, :, None, :].transpose(0, *(1 + axis for axis in order))
    result = np.empty(tuple(extents[axis] for axis in order), left.dtype)
    for tile in _tiles(result.shape, tile_size):
        a_tile, b_tile = _part(a, tile), _part(b, tile)
        depth = min(terms, max(1, tile_size // result[tile].size))
        run, suspects, total = begin(depth, result[tile].shape)
        group = max(16, tile_size // max(a_tile[0].size, b_tile[0].size))
        for start in range(0, terms, group):
            some_a, some_b = (parts(_dense64(x[start : start + group])) for x in (a_tile, b_tile))
            for first in range(0, len(some_a[0]), depth):
                steps = slice(first, first + depth)
                run(tuple(x[steps] for x in some_a), tuple(x[steps] for x in some_b))
        result[tile] = total
        wrong = np.nonzero(suspects())
        if wrong[0].size:
            result[tile][wrong] = _again(a_tile, b_tile, wrong, again)
    return result.transpose([order.index(axis) for axis in range(3)])


def _lower(least: Array, steps: Array) -> None:
    """Lower `least` to the least of the steps, elementwise."""
    np.minimum(least, steps[0] if len(steps) == 1 else np.minimum.reduce(steps, axis=0), out=least)


def _dense64(x: Array) -> Array:
    """A dense f64 copy, made in memory order first: transposing a compact copy spares the cache."""
    return np.ascontiguousarray(x.astype(np.float64, order="K"))


def _whole(x: Array) -> _Parts:
    return (x,)


def _whole_and_halves(x: Array) -> _Parts:
    return (x, *split(x))


def _tiles(shape: tuple[int, ...], tile_size: int) -> Iterator[_Tile]:
    """Tiles of at most `tile_size` results, as long as 1024 along the last axis."""
    sizes = [1, 1, min(shape[2], 1024)]
    for axis in (1, 0):
        sizes[axis] = max(1, min(shape[axis], tile_size // (sizes[0] * sizes[1] * sizes[2])))
    for i in range(0, shape[0], sizes[0]):
        for j in range(0, shape[1], sizes[1]):
            for k in range(0, shape[2], sizes[2]):
                yield slice(i, i + sizes[0]), slice(j, j + sizes[1]), slice(k, k + sizes[2])


def _part(operand: Array, tile: _Tile) -> Array:
    """A tile of `[terms, *results]`; an axis of extent 1 serves every tile."""
    within = (part if extent > 1 else slice(None) for part, extent in zip(tile, operand.shape[1:], strict=True))
    return operand[(slice(None), *within)]


def _again(a: Array, b: Array, places: tuple[Array, ...], chain: _Lanes) -> Array:
    """The chains of some results of a tile, each from its own `[terms]` factors, a bounded number at a time."""
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:])
    a, b = (np.broadcast_to(x, (len(x), *shape)) for x in (a, b))
    results = []
    for start in range(0, places[0].size, 1024):
        some = (slice(None), *(place[start : start + 1024] for place in places))
        results.append(chain(a[some], b[some]))
    return np.concatenate(results)


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
        narrow[wrong] = _fused(a[:, wrong], b[:, wrong], fma32)
    return narrow


def _lanes64(a: Array, b: Array) -> Array:
    """Chains side by side, `[terms, lanes]` to `[lanes]`, by `fma64`."""
    return _fused(a, b, fma64)


def _fused(a: Array, b: Array, fused: Callable[[Array, Array, Array], Array]) -> Array:
    total = np.zeros(np.broadcast_shapes(a.shape[1:], b.shape[1:]), a.dtype)
    for a_step, b_step in zip(a, b, strict=True):
        total = fused(a_step, b_step, total)
    return total


def _significant_bits(x: Array, fraction_bits: int) -> int:
    """A bound on the significant bits of every number in `x`, from the bits that any of the significands has set."""
    unsigned = np.uint32 if fraction_bits == 23 else np.uint64
    together = int(np.bitwise_or.reduce(x.view(unsigned), axis=None)) | (1 << fraction_bits)
    return fraction_bits + 1 - ((together & -together).bit_length() - 1)


def _least(x: Array) -> float:
    """The smallest nonzero magnitude of an f32 array, as an f64; zero if there is none."""
    # Without the sign and less one, zero becomes the largest of all integers.
    bits = ((x.view(np.uint32) << np.uint32(1)) - np.uint32(1)).min()
    return float(((bits + np.uint32(1)) >> np.uint32(1)).view(np.float32))


def _moderate(left: Array, right: Array) -> bool:
    """Whether all is finite and no product, partial product or sum of 512 leaves the range of exact transformations."""
    least, greatest = 1.0, 1.0
    for x in (left, right):
        magnitude = np.abs(x)
        top = float(magnitude.max(initial=0.0))
        if not top < 2.0**490:
            return False
        least *= float(np.min(magnitude, where=magnitude > 0, initial=2.0**490))
        greatest *= top
    return least > 2.0**-900
