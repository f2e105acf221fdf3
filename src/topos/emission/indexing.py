"""Rows picked by ids and added back, and the product of matrices."""

from __future__ import annotations

import numpy as np

from topos.emission.movement import gathered
from topos.emission.site import Picks, Site
from topos.emission.text import Named


def gather(site: Site) -> Named:
    """Rows of a table; zeros where the selection selects nothing."""
    table, picks = site.dense(), site.picks(1)
    if not picks.vocab:
        return site.words.constant(np.broadcast_to(site.element.zero, site.shape), site.type)
    offsets = list(range(1, len(site.shape)))
    numbers = f"offset_dims = {offsets}, collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1"
    rows = gathered(site, table, picks.ids, numbers, [1, *table.shape[1:]])
    return _present(site, picks, rows) if picks.may_be_absent else rows


def _present(site: Site, picks: Picks, rows: Named) -> Named:
    words = site.words
    zero = words.constant(np.zeros(picks.ids.shape, np.int32), picks.ids.type, "first")
    hits = words.compare("GE", picks.ids, zero)
    return words.chosen(words.spread(hits, (0,), rows.shape), rows, words.number(0.0, rows, "zero"))


def scatter(site: Site) -> Named:
    """Rows added to those of a zero table; an id that selects nothing lies outside it and adds nowhere."""
    rows = site.words.convert(site.dense(), site.accumulator)
    return site.demoted(scattered(site, rows, site.picks(1).ids, list(range(1, len(rows.shape))), 0, 1))


def scattered(site: Site, rows: Named, places: Named, windows: list[int], axis: int, vector: int) -> Named:
    """Slices of `rows`, whose axes are its `windows`, added to zeros of the node's shape at places along an axis."""
    words, writer = site.words, site.words.writer
    zeros = words.spread(words.scalar(0.0, rows.type, "seed"), (), site.shape)
    result = writer.named("scatter", site.shape, rows.type)
    numbers = (
        f"update_window_dims = {windows}, inserted_window_dims = [{axis}], "
        f"scatter_dims_to_operand_dims = [{axis}], index_vector_dim = {vector}"
    )
    attributes = (
        f"indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<{numbers}>, unique_indices = false"
    )
    given = f"{zeros.name}, {places.name}, {rows.name}"
    region = words.region("add", rows.type)
    signature = writer.signature([zeros, places, rows], result)
    return writer.line(result, f'"stablehlo.scatter"({given}) <{{{attributes}}}> {region} : {signature}')


def matmul(site: Site) -> Named:
    """One product per position of the leading axes, accumulated in the accumulator's type."""
    left, right = site.dense(0), site.dense(1)
    rank = len(left.shape)
    if not left.shape[-1]:
        return site.words.constant(np.broadcast_to(site.element.zero, site.shape), site.type)
    leading = list(range(rank - 2))
    batching = f"batching_dims = {leading} x {leading}, " if leading else ""
    attributes = f", {batching}contracting_dims = [{rank - 1}] x [{rank - 2}]"
    product = site.words.writer.operation(
        "dot_general", [left, right], site.shape, site.accumulator, attributes=attributes, called="product"
    )
    return site.demoted(product)
