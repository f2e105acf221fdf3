"""Movement: an operation of its own for each kind; windows are gathered by their places."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from topos.emission.site import Site
from topos.emission.text import Named
from topos.op import Broadcast, BroadcastAlong, Movement, Narrow, Pad, Permute, Reshape, Unfold


def broadcast(site: Site) -> Named:
    """A number at every place."""
    return site.operation("broadcast_in_dim", site.dense(), attributes=", dims = []")


def broadcast_along(site: Site) -> Named:
    """The operand along one more axis."""
    axes = [axis for axis in range(len(site.shape)) if axis != site.opcode.axis]
    return site.operation("broadcast_in_dim", site.dense(), attributes=f", dims = {axes}")


def reshape(site: Site) -> Named:
    """The same numbers in another shape."""
    return site.operation("reshape", site.dense())


def permute(site: Site) -> Named:
    """The axes in another order."""
    return site.operation("transpose", site.dense(), attributes=f", dims = {list(site.opcode.order)}")


def narrow(site: Site) -> Named:
    """A slice of one axis."""
    x, opcode = site.dense(), site.opcode
    ranges = [f"0:{extent}" for extent in x.shape]
    ranges[opcode.axis] = f"{opcode.start}:{opcode.start + opcode.length}"
    return site.operation("slice", x, attributes=f" [{', '.join(ranges)}]")


def pad(site: Site) -> Named:
    """The operand with a constant before and after it."""
    x, opcode = site.dense(), site.opcode
    fill = site.words.constant(site.element.round(np.array(opcode.fill)), site.type, "fill")
    low, high, interior = ([0] * len(x.shape) for _ in range(3))
    low[opcode.axis] = opcode.start
    high[opcode.axis] = opcode.full_extent - opcode.start - x.shape[opcode.axis]
    return site.operation("pad", x, fill, attributes=f", low = {low}, high = {high}, interior = {interior}")


def unfold(site: Site) -> Named:
    """Windows, gathered along their axis by constant places."""
    x, axis = site.dense(), site.opcode.axis
    places = window_places(site, site.shape[axis])
    others = [position for position in range(len(site.shape)) if position not in (axis, axis + 1)]
    along = f"collapsed_slice_dims = [{axis}], start_index_map = [{axis}], index_vector_dim = 2"
    sizes = [*x.shape[:axis], 1, *x.shape[axis + 1 :]]
    return gathered(site, x, places, f"offset_dims = {others}, {along}", sizes)


def window_places(site: Site, count: int) -> Named:
    """Where each place of each window lies along its axis, `[count, size]`."""
    opcode = site.opcode
    places = np.add.outer(np.arange(count) * opcode.step, np.arange(opcode.size) * opcode.dilation)
    return site.words.constant(places.astype(np.int32), "i32", "places")


def gathered(site: Site, x: Named, places: Named, numbers: str, sizes: list[int]) -> Named:
    """A gather; `numbers` are its dimension numbers, `sizes` the extents of each slice."""
    writer = site.words.writer
    result = writer.named("gather", site.shape, site.type)
    attributes = (
        f"dimension_numbers = #stablehlo.gather<{numbers}>, indices_are_sorted = false, "
        f"slice_sizes = array<i64: {', '.join(map(str, sizes))}>"
    )
    text = f'"stablehlo.gather"({x.name}, {places.name}) <{{{attributes}}}> : {writer.signature([x, places], result)}'
    return writer.line(result, text)


MOVEMENT: dict[type[Movement | Pad], Callable[[Site], Named]] = {
    Broadcast: broadcast,
    BroadcastAlong: broadcast_along,
    Reshape: reshape,
    Permute: permute,
    Narrow: narrow,
    Pad: pad,
    Unfold: unfold,
}
"""What emits each kind of movement."""
