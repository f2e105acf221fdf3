"""How an array of any strides is handed to native code: a dense array, and movements that say where it is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from topos.element.element import Array
from topos.op import Broadcast, BroadcastAlong, Opcode, Permute
from topos.records import NamedTuple
from topos.shape import Shape

Movements = list[tuple[Opcode, Shape]]


class Layout(NamedTuple):
    """The shape of the dense array, the order of its axes in the operand, and the operand's shape.

    `order` names, for each axis of the operand that has strides, the dense array's axis. `shape` is `None` where the
    dense array is the operand.
    """

    dense: tuple[int, ...]
    order: tuple[int, ...] = ()
    repeated: tuple[int, ...] = ()
    shape: tuple[int, ...] | None = None

    def movements(self) -> Movements:
        """What makes the operand of the dense array, with the shapes on the way."""
        if self.shape is None:
            return []
        if not self.dense:
            return [(Broadcast(self.shape), Shape(self.shape))]
        found: Movements = []
        shape = [self.dense[axis] for axis in self.order]
        if self.order != tuple(range(len(self.order))):
            found.append((Permute(self.order), Shape(shape)))
        for axis in self.repeated:
            shape.insert(axis, self.shape[axis])
            found.append((BroadcastAlong(axis, self.shape[axis]), Shape(shape)))
        return found


def laid_out(array: Array) -> tuple[Array, Layout]:
    """The dense array behind an operand, copied only where no movement answers for its strides."""
    if not array.flags.aligned:
        array = array.copy()
    if array.flags.c_contiguous:
        return array, Layout(array.shape)
    strides, shape = array.strides, array.shape
    if not any(strides):
        number: Any = (*(0,) * array.ndim, ...)
        return array[number], Layout((), (), (), shape)
    repeated = tuple(axis for axis, extent in enumerate(shape) if extent > 1 and not strides[axis])
    first: Any = tuple(0 if axis in repeated else slice(None) for axis in range(array.ndim))
    base = array[(*first, ...)]
    outermost = sorted(range(base.ndim), key=lambda axis: -base.strides[axis])
    dense = base.transpose(outermost)
    if not dense.flags.c_contiguous:
        outermost, dense = list(range(base.ndim)), np.ascontiguousarray(base)
    if not repeated and outermost == list(range(base.ndim)):
        return dense, Layout(shape)
    order = tuple(outermost.index(axis) for axis in range(base.ndim))
    return dense, Layout(dense.shape, order, repeated, shape)
