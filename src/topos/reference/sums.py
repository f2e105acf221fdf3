"""Sums of fixed shape: `S` of the terms in their logical order, whatever the strides.

`S(t_0 .. t_{n-1})`, each step an addition of the accumulator:

- `n <= 512`: term `i` goes to lane `i mod 32`; a lane starts at `+0.0` and adds its terms in order. The lanes fold in
  halves: lane `j` takes lane `j + 16`, then `j + 8`, `j + 4`, `j + 2`, `j + 1`. The total is lane 0.
- `n > 512`: consecutive blocks of 512 terms (the last may be shorter) are summed so, and their totals are the terms of
  another `S`.

No terms give `+0.0`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from topos.element.element import Array, Element
from topos.reference.fills import zeros

LANES = 32
"""Of a sum: its term `i` goes to lane `i mod 32`."""
BLOCK = 512
"""Terms in one block of a sum; the totals of the blocks are the terms of another one."""

_PIECE = 1 << 19  # numbers taken up at a time: bounds the memory beside the operand, and fits a cache
_SMALL = 1 << 12  # below it, to look for the best order of axes costs more than it saves
_LONG = 512  # numbers in a row that amortise what it costs to start an inner loop

_Promote = Callable[[Array], Array]


def sum(element: Element, array: Array) -> Array:
    """`S` of all numbers of an array of any shape in row-major order, demoted once: rank 0."""
    accumulator = element.accumulator
    if array.size == 0:
        return element.demote(accumulator.zero)
    if array.size <= BLOCK:
        return element.demote(_sum_lanes(accumulator, element.promote(array).reshape(1, -1, 1))[0, 0, ...])
    if array.flags.c_contiguous:
        return element.demote(_sum_along(accumulator, element.promote, array.reshape(1, -1), 1)[0, ...])
    totals = []
    for piece in _pieces(array):
        totals.append(_block_totals(accumulator, element.promote, piece[None], 1))
    return element.demote(_sum_along(accumulator, _as_it_is, np.concatenate(totals, axis=1), 1)[0, ...])


def sum_along(element: Element, array: Array, axis: int) -> Array:
    """`S` along one axis in index order, demoted once: the shape without that axis."""
    axis %= array.ndim
    return element.demote(_sum_along(element.accumulator, element.promote, array, axis))


def _as_it_is(array: Array) -> Array:
    return array


def _sum_along(accumulator: Element, promote: _Promote, array: Array, axis: int) -> Array:
    """`S` along an axis, in the accumulator; `promote` is applied to a bounded piece at a time."""
    while array.shape[axis] > BLOCK:
        array, promote = _block_totals(accumulator, promote, array, axis), _as_it_is
    return _sum_block(accumulator, promote, array, axis)


def _block_totals(accumulator: Element, promote: _Promote, array: Array, axis: int) -> Array:
    """The totals of the consecutive blocks of 512 along an axis, at that axis."""
    whole, rest = divmod(array.shape[axis], BLOCK)
    before, after = array.shape[:axis], array.shape[axis + 1 :]
    at = (slice(None),) * axis
    # Splitting an axis is a view for any strides.
    blocks = array[(*at, slice(whole * BLOCK))].reshape(*before, whole, BLOCK, *after)
    totals = _sum_block(accumulator, promote, blocks, axis + 1)
    if rest:
        last = _sum_block(accumulator, promote, array[(*at, slice(whole * BLOCK, None))], axis)
        totals = np.concatenate([totals, np.expand_dims(last, axis)], axis=axis)
    return totals


def _sum_block(accumulator: Element, promote: _Promote, array: Array, axis: int) -> Array:
    """`S` along an axis of at most 512 terms, over pieces of the other axes."""
    if 0 < array.size <= _SMALL:
        before, after = array.shape[:axis], array.shape[axis + 1 :]
        piece = promote(array).reshape(math.prod(before), array.shape[axis], math.prod(after))
        return _sum_lanes(accumulator, piece).reshape((*before, *after))
    others = [other for other in range(array.ndim) if other != axis]
    total = zeros(accumulator, [array.shape[other] for other in others])
    if array.size == 0:
        return total
    # In the order of memory the pieces are contiguous whenever the array is, in whatever order its axes stand.
    order = sorted(range(array.ndim), key=lambda other: -abs(array.strides[other]))
    arranged = total.transpose([others.index(other) for other in order if other != axis])
    _fill(accumulator, promote, array.transpose(order), order.index(axis), arranged)
    return total


def _fill(accumulator: Element, promote: _Promote, array: Array, axis: int, total: Array) -> None:
    """Write the sums along an axis of at most 512 terms to `total`, a piece of the outer axes at a time."""
    terms = array.shape[axis]
    outermost = next((other for other, extent in enumerate(array.shape) if other != axis and extent > 1), None)
    if array.size <= _PIECE or outermost is None:
        outer = math.prod(array.shape[:axis])
        piece = promote(array.reshape(outer, terms, -1))  # [outer, terms, inner], copied only if it must be
        total[...] = _sum_lanes(accumulator, piece).reshape(total.shape)
        return
    extent = array.shape[outermost]
    group = max(1, _PIECE * extent // array.size)
    before = (slice(None),) * outermost
    before_total = (slice(None),) * (outermost - (outermost > axis))
    for start in range(0, extent, group):
        part = slice(start, start + group)
        _fill(accumulator, promote, array[(*before, part)], axis, total[(*before_total, part)])


def _sum_lanes(accumulator: Element, terms: Array) -> Array:
    """`[outer, terms, inner]` to `[outer, inner]`, with at most 512 terms, by lanes and folds."""
    outer, count, inner = terms.shape
    if count <= LANES:
        lanes = accumulator.add(accumulator.zero, terms.swapaxes(0, 1))  # [lanes, outer, inner]
    else:
        lanes = _add_steps(accumulator, terms).swapaxes(0, 1)
    if inner < _LONG:
        lanes = np.ascontiguousarray(lanes)
    half = LANES // 2
    while half:
        # A lane that no term reached would add +0.0 to one that is not -0.0: nothing.
        reached = len(lanes) - half
        if reached > 0:
            folded = accumulator.add(lanes[:reached], lanes[half:])
            lanes = folded if reached == half else np.concatenate([folded, lanes[reached:half]])
        half //= 2
    return np.asarray(lanes[0])


def _add_steps(accumulator: Element, terms: Array) -> Array:
    """The 32 lanes of `[outer, terms, inner]`, more than 32 terms: `[outer, 32, inner]`."""
    outer, count, inner = terms.shape
    steps, rest = divmod(count, LANES)
    in_order = terms[:, : steps * LANES].reshape(outer, steps, LANES, inner).swapaxes(0, 1)
    if outer > 1 and LANES * inner < _LONG:
        in_order = np.ascontiguousarray(in_order)  # the copy costs less than short inner loops
    lanes = np.broadcast_to(accumulator.zero, (outer, LANES, inner))
    for step in in_order:
        lanes = accumulator.add(lanes, step)
    if rest:
        lanes[:, :rest] = accumulator.add(lanes[:, :rest], terms[:, steps * LANES :])
    return lanes


def _pieces(array: Array) -> Iterator[Array]:
    """The numbers of an array in row-major order: flat dense pieces of a whole number of blocks, but for the last."""
    held = np.empty(_PIECE, array.dtype)
    count = 0
    for run in _runs(array):
        taken = 0
        while taken < run.size:
            length = min(run.size - taken, _PIECE - count)
            held[count : count + length] = run[taken : taken + length]
            taken, count = taken + length, count + length
            if count == _PIECE:
                yield held
                count = 0
    if count:
        yield held[:count]


def _runs(array: Array) -> Iterator[Array]:
    """The numbers of an array in row-major order: flat runs of bounded length."""
    if array.size <= _PIECE:
        yield _flat(array)
        return
    group = _PIECE * array.shape[0] // array.size
    if not group:
        for part in array:
            yield from _runs(part)
        return
    for start in range(0, array.shape[0], group):
        yield _flat(array[start : start + group])


def _flat(array: Array) -> Array:
    """A piece in row-major order; a transposed one is copied in memory order first, which spares the cache."""
    return (array if array.flags.c_contiguous or 0 in array.strides else array.copy(order="K")).reshape(-1)
