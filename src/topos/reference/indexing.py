"""Rows by their ids: copied out of a table, added into one, or written as a dense selection.

An id of -1 selects nothing: a row of zeros.
"""

from __future__ import annotations

import numpy as np

from topos.element.element import Array, Element
from topos.reference.fills import zeros


def gather(element: Element, table: Array, ids: Array) -> Array:
    """`result[..., :] = table[ids[...], :]`, bits copied.

    Shapes: `table` is `[vocab, *row]`, `ids` `[*selection]`; the result `[*selection, *row]`.
    """
    if len(table) == 0:
        return zeros(element, (*ids.shape, *table.shape[1:]))
    rows = np.asarray(table[ids])
    absent = ids < 0
    if absent.any():
        rows[absent] = element.zero
    return rows


def scatter(element: Element, rows: Array, ids: Array, vocab: int) -> Array:
    """`result[v, :] = sum of rows[..., :] over all places where ids is v`.

    Shapes: `rows` is `[*selection, *row]`, `ids` `[*selection]`; the result `[vocab, *row]`.

    Order: each row of the result adds its contributions in selection order (row-major), from `+0.0`, in the
    accumulator, demoted once. A row that nothing selects is `+0.0`.
    """
    accumulator = element.accumulator
    row = rows.shape[ids.ndim :]
    total = zeros(accumulator, (vocab, *row))
    flat_ids, flat_rows = ids.reshape(-1), rows.reshape(ids.size, *row)
    # Stably sorted, the selections of one id stand together in their order.
    order = np.argsort(flat_ids, kind="stable")
    order = order[np.count_nonzero(flat_ids < 0) :]
    distinct, starts, counts = np.unique(flat_ids[order], return_index=True, return_counts=True)
    # With the most selected id first, those selected more than k times are the first few.
    by_count = np.argsort(-counts, kind="stable")
    starts, ascending = starts[by_count], np.sort(counts)
    sums = zeros(accumulator, (len(distinct), *row))
    for k in range(int(counts.max(initial=0))):
        active = len(counts) - int(np.searchsorted(ascending, k, side="right"))
        contribution = element.promote(flat_rows[order[starts[:active] + k]])
        sums[:active] = accumulator.add(sums[:active], contribution)
    total[distinct[by_count]] = sums
    return element.demote(total)


def one_hot(element: Element, ids: Array, vocab: int) -> Array:
    """`result[..., v] = 1 where ids[...] = v, else 0`: `[*selection]` to `[*selection, vocab]`."""
    dense = zeros(element, (ids.size, vocab))
    flat = ids.reshape(-1)
    present = np.flatnonzero(flat >= 0)
    dense[present, flat[present]] = element.one
    return dense.reshape(*ids.shape, vocab)
