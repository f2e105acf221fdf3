"""Matrix products whose bits depend on no tile, batch or layout."""

from __future__ import annotations

import math

import numpy as np

from topos.element.element import Array, Element
from topos.reference.chain32 import chain32
from topos.reference.chain64 import chain64
from topos.reference.fills import zeros
from topos.reference.ieee import is_ieee

BLOCK = 512
"""Terms in one chain of fused multiply-adds; the totals of the chains are added afterwards."""

_FEW = 4096  # results below this count fill a vector better with all blocks side by side


def matmul(element: Element, left: Array, right: Array) -> Array:
    """`result[..., i, j] = sum over k of left[..., i, k] * right[..., k, j]`.

    Shapes: `[*batch, rows, terms] @ [*batch, terms, columns]` give `[*batch, rows, columns]`, with
    equal leading axes.

    Order: `k` in consecutive blocks of 512. A block's total is the chain `t = fma(left[i, k], right[k, j], t)` for
    ascending `k` from `+0.0`; the totals are added left to right from `+0.0`. All in the accumulator, demoted once.
    No terms give `+0.0`. Any strides give the bits of dense copies.
    """
    accumulator = element.accumulator
    *batch, rows, terms = left.shape
    columns = right.shape[-1]
    lanes = math.prod(batch)
    wide_left = element.promote(left).reshape(lanes, rows, terms)
    wide_right = element.promote(right).reshape(lanes, terms, columns)
    total = zeros(accumulator, (lanes, rows, columns))
    if total.size:
        total = _add_blocks(accumulator, wide_left, wide_right, total)
    return element.demote(total).reshape(*batch, rows, columns)


def _add_blocks(accumulator: Element, left: Array, right: Array, total: Array) -> Array:
    """Add the total of every block of terms to `total`, left to right."""
    terms = left.shape[-1]
    start = 0
    if total.size < _FEW:
        # The blocks know nothing of one another before their totals are added: run whole ones side by side.
        count = min(terms // BLOCK, max(1, (1 << 16) // total.size))
        while count > 1 and terms - start >= count * BLOCK:
            stop = start + count * BLOCK
            for block in _blocks_at_once(accumulator, left[:, :, start:stop], right[:, start:stop]):
                total = accumulator.add(total, block)
            start = stop
    for begin in range(start, terms, BLOCK):
        block = _chain(accumulator, left[:, :, begin : begin + BLOCK], right[:, begin : begin + BLOCK])
        total = accumulator.add(total, block)
    return total


def _blocks_at_once(accumulator: Element, left: Array, right: Array) -> Array:
    """The totals of `count` whole blocks: `[lanes, rows, count * 512]` to `[count, lanes, rows, columns]`."""
    lanes, rows, terms = left.shape
    columns = right.shape[-1]
    count = terms // BLOCK
    blocks_left = left.reshape(lanes, rows, count, BLOCK).transpose(2, 0, 1, 3).reshape(-1, rows, BLOCK)
    blocks_right = right.reshape(lanes, count, BLOCK, columns).swapaxes(0, 1).reshape(-1, BLOCK, columns)
    return _chain(accumulator, blocks_left, blocks_right).reshape(count, lanes, rows, columns)


def _chain(accumulator: Element, left: Array, right: Array) -> Array:
    """One block: `[lanes, rows, terms] @ [lanes, terms, columns]` by a chain of fused multiply-adds from `+0.0`."""
    if is_ieee(accumulator):
        return (chain32 if accumulator.dtype == np.float32 else chain64)(left, right)
    total = zeros(accumulator, (left.shape[0], left.shape[1], right.shape[2]))
    for k in range(left.shape[-1]):
        total = accumulator.fma(left[:, :, k, None], right[:, k, None, :], total)
    return total
