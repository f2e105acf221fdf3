"""In which order of its places a row is computed: that of memory, where what it reads is a movement of one buffer.

An elementwise row of a permuted, reshaped value is the same movement of an elementwise row; a reduction along one axis
likewise. So a value goes on in the order in which it was computed first (channels last, after a product over windows),
and stays in the registers of the loop that made it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from topos.backend.native.views import View, dense_strides
from topos.op import Movement
from topos.op.movement import Permute, Reshape
from topos.records import NamedTuple
from topos.shape import Shape


class Arrangement(NamedTuple):
    """A value of `shape` that is a buffer of `parts`, dense, with its axes in another order.

    Axis `i` of the value, once its axes are split into parts, is part `order[i]`.
    """

    parts: tuple[int, ...]
    order: tuple[int, ...]
    shape: Shape

    def there(self, buffer: Shape) -> list[Movement]:
        """From a buffer of the parts, merged to a shape, to the value."""
        return _changing(buffer, [Reshape(self.parts), Permute(self.order), Reshape(self.shape)])

    def back(self, buffer: Shape) -> list[Movement]:
        """From a value of the shape to the order of the buffer."""
        inverse = [self.order.index(part) for part in range(len(self.order))]
        return _changing(
            self.shape, [Reshape([self.parts[part] for part in self.order]), Permute(inverse), Reshape(buffer)]
        )

    def part(self, axis: int) -> int | None:
        """The part that an axis of the value is; `None` where it is none or several."""
        start = 0
        for extent in self.shape[:axis]:
            start += _count([self.parts[part] for part in self.order[start:]], extent)
        if self.shape[axis] == 1 or self.parts[self.order[start]] != self.shape[axis]:
            return None
        return self.order[start]

    def without(self, axis: int, part: int) -> Arrangement:
        """The arrangement without an axis that is a part."""
        order = [other - (other > part) for other in self.order if other != part]
        return Arrangement((*self.parts[:part], *self.parts[part + 1 :]), tuple(order), self.shape.without_axis(axis))

    def extended(self, axis: int, part: int, extent: int) -> Arrangement:
        """The arrangement with another extent of an axis that is a part."""
        shape = Shape((*self.shape[:axis], extent, *self.shape[axis + 1 :]))
        return Arrangement((*self.parts[:part], extent, *self.parts[part + 1 :]), self.order, shape)


def arrangement(view: View, buffer: Shape) -> Arrangement | None:
    """How a view arranges the whole of a buffer; `None` where it is something else, or the buffer as it is."""
    if view.offset or view.guards or view.shape.volume != buffer.volume or view.shape.volume < 2:
        return None
    axes = [axis for axis, extent in enumerate(view.shape) if extent > 1]
    axes.sort(key=lambda axis: -view.strides[axis])
    if tuple(view.strides[axis] for axis in axes) != dense_strides([view.shape[axis] for axis in axes]):
        return None
    if view.shape == buffer and axes == sorted(axes):
        return None
    cuts = {*(view.strides[axis] for axis in axes), *dense_strides(buffer)}
    chain = sorted(cuts - {buffer.volume}, reverse=True)
    bounds = [buffer.volume, *chain]
    if any(outer % inner for outer, inner in zip(bounds, chain, strict=False)):
        return None
    parts = tuple(outer // inner for outer, inner in zip(bounds, chain, strict=False))
    order = [
        part
        for axis, extent in enumerate(view.shape)
        if extent > 1
        for part, stride in enumerate(chain)
        if view.strides[axis] <= stride < view.strides[axis] * extent
    ]
    return Arrangement(parts, tuple(order), view.shape)


def _count(parts: Sequence[int], extent: int) -> int:
    """How many of the first parts make an extent."""
    count = 0
    while prod(parts[:count]) < extent:
        count += 1
    return count


def _changing(shape: Shape, movements: Sequence[Movement]) -> list[Movement]:
    """The movements that change something, one after another from a value of a shape."""
    changing = []
    for movement in movements:
        if isinstance(movement, Permute):
            changes = tuple(movement.order) != tuple(range(len(movement.order)))
        else:
            changes = movement.result_shape([shape]) != shape
        if changes:
            changing.append(movement)
            shape = movement.result_shape([shape])
    return changing
