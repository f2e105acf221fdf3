"""Chains of steps over cache-sized tiles of a product, and a second look at the few results that need it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from topos.element.element import Array

Parts = tuple[Array, ...]
"""What a step wants of an operand, itself and perhaps its halves: `[steps, *tile]`, of extent 1 where it broadcasts."""

Chain = tuple[Callable[[Parts, Parts], None], Callable[[], Array], Array]
"""What runs some steps, the question which lanes are suspect after the last one, and the running total."""

Begin = Callable[[int, tuple[int, ...]], Chain]
"""`begin(depth, shape)` starts the chains of a tile, up to `depth` steps at a time."""

Lanes = Callable[[Array, Array], Array]
"""Whole chains side by side: `[terms, lanes]` of either factor to `[lanes]`."""

_Tile = tuple[slice, slice, slice]


def tiled(
    left: Array,
    right: Array,
    ways: tuple[Begin, ...],
    again: Lanes,
    tile_size: int,
    parts: Callable[[Array], Parts],
) -> Array:
    """Run a chain over tiles of `[lanes, rows, columns]`, its longest axis innermost in memory.

    `ways` are tried in turn: a dearer way of fewer suspects follows one that left too many, and is kept for the tiles
    to come. `parts` makes of an f64 operand what a step wants of it. `again` recomputes the suspect results.
    """
    extents = (left.shape[0], left.shape[1], right.shape[2])
    order = sorted(range(3), key=extents.__getitem__)
    # [terms, lanes, rows, columns], the axis that an operand lacks of extent 1
    a = left.transpose(2, 0, 1)[:, :, :, None].transpose(0, *(1 + axis for axis in order))
    b = right.transpose(1, 0, 2)[:, :, None, :].transpose(0, *(1 + axis for axis in order))
    result = np.empty(tuple(extents[axis] for axis in order), left.dtype)
    for tile in _tiles(result.shape, tile_size):
        a_tile, b_tile = _part(a, tile), _part(b, tile)
        suspects = _run(a_tile, b_tile, ways[0], parts, result[tile], tile_size)
        if len(ways) > 1 and np.count_nonzero(suspects) > result[tile].size // 32:
            ways = ways[1:]
            suspects = _run(a_tile, b_tile, ways[0], parts, result[tile], tile_size)
        wrong = np.nonzero(suspects)
        if wrong[0].size:
            result[tile][wrong] = _again(a_tile, b_tile, wrong, again)
    return result.transpose([order.index(axis) for axis in range(3)])


def _run(a: Array, b: Array, begin: Begin, parts: Callable[[Array], Parts], result: Array, tile_size: int) -> Array:
    """Run the chains of a tile in one way into `result`; which of them are suspect.

    Small tiles take many steps at a time, so that these share what calls they can.
    """
    depth = max(1, min(len(a), tile_size // result.size))
    run, suspects, total = begin(depth, result.shape)
    group = max(16, tile_size // max(a[0].size, b[0].size))
    for start in range(0, len(a), group):
        some_a, some_b = (parts(_dense64(x[start : start + group])) for x in (a, b))
        for first in range(0, len(some_a[0]), depth):
            steps = slice(first, first + depth)
            run(tuple(x[steps] for x in some_a), tuple(x[steps] for x in some_b))
    result[...] = total
    return suspects()


def whole(x: Array) -> Parts:
    """The operand alone."""
    return (x,)


def _dense64(x: Array) -> Array:
    """A dense f64 copy, made in memory order first: transposing a compact copy spares the cache."""
    return np.ascontiguousarray(x.astype(np.float64, order="K"))


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


def _again(a: Array, b: Array, places: tuple[Array, ...], chain: Lanes) -> Array:
    """The chains of some results of a tile, each from its own `[terms]` factors, a bounded number at a time."""
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:])
    a, b = (np.broadcast_to(x, (len(x), *shape)) for x in (a, b))
    results = []
    for start in range(0, places[0].size, 1024):
        some: tuple[Any, ...] = (slice(None), *(place[start : start + 1024] for place in places))
        results.append(chain(a[some], b[some]))
    return np.concatenate(results)


def fused_chain(a: Array, b: Array, fused: Callable[[Array, Array, Array], Array]) -> Array:
    """`t = fused(a[k], b[k], t)` for ascending `k`, from `+0.0`: `[terms, *lanes]` that broadcast to `[*lanes]`."""
    total = np.zeros(np.broadcast_shapes(a.shape[1:], b.shape[1:]), a.dtype)
    for a_step, b_step in zip(a, b, strict=True):
        total = fused(a_step, b_step, total)
    return total
