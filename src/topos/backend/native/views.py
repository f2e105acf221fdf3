"""Where a value is read: movement is never computed, it is an affine map from places to a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from topos.op import Movement
from topos.shape import Shape


class View(NamedTuple):
    """A value of `shape` whose place `(i, j, ...)` is number `offset + i * strides[0] + ...` of the buffer of `row`."""

    row: int
    offset: int
    shape: Shape
    strides: tuple[int, ...]

    def is_dense(self) -> bool:
        """Whether it is the whole buffer from its start in row-major order."""
        return self.offset == 0 and self.strides == dense_strides(self.shape)


def dense(row: int, shape: Shape) -> View:
    """A buffer as it was computed: row-major."""
    return View(row, 0, shape, dense_strides(shape))


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, counted in numbers."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def moved(view: View, opcode: Movement, volume: int) -> View | None:
    """The view that a movement makes of a view, or `None` where its numbers have to be copied.

    It asks the instruction itself: its `view` is taken of an array of single bytes, laid out as the buffer is, which
    holds `volume` of them and which nobody reads (pages that nobody reads cost nothing).
    """
    buffer = np.empty(max(volume, 1), np.int8)
    array = np.lib.stride_tricks.as_strided(buffer[view.offset :], view.shape, view.strides)
    result = opcode.view(array)
    if not np.may_share_memory(result, buffer):
        return None
    offset = result.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]
    return View(view.row, offset, Shape(result.shape), result.strides)
