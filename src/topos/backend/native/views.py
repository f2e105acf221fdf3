"""Where a value is read: movement is never computed, it is an affine map from places to a buffer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from topos.op import Movement
from topos.records import NamedTuple
from topos.shape import Shape


class Guard(NamedTuple):
    """Where a view has numbers: `extent` places of an axis from `start` on, and `fill` around them."""

    axis: int
    start: int
    extent: int
    fill: float


Axes = tuple[tuple[int, int], ...]
"""Extents and strides of what one axis steps through, the last one fastest."""


class View(NamedTuple):
    """A value of `shape` whose place `(i, j, ...)` is number `offset + i * strides[0] + ...` of the buffer of `row`.

    The buffer of a selection is counted as if its one-hot rows were written out. Where a guard, the innermost first,
    says so, it is a fill instead. A matrix on a `grid`, which products read, has the axes of its rows and of its
    columns there instead of strides.
    """

    row: int
    offset: int
    shape: Shape
    strides: tuple[int, ...]
    guards: tuple[Guard, ...] = ()
    grid: tuple[Axes, Axes] | None = None

    def is_dense(self) -> bool:
        """Whether it is the whole buffer from its start in row-major order."""
        return self.offset == 0 and not self.guards and self.grid is None and self.strides == dense_strides(self.shape)


def dense(row: int, shape: Shape) -> View:
    """A buffer as it was computed: row-major."""
    return View(row, 0, shape, dense_strides(shape))


@lru_cache(maxsize=4096)
def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, counted in numbers."""
    return _strides(tuple(shape))


def flat(view: View) -> bool:
    """Whether its numbers, in row-major order, lie one step apart all through."""
    if view.guards:
        return False
    walked = [(extent, step) for extent, step in zip(view.shape, view.strides, strict=True) if extent != 1]
    return all(outer[1] == inner[1] * inner[0] for outer, inner in zip(walked, walked[1:], strict=False))


def moved(view: View, opcode: Movement, volume: int) -> View | None:
    """The view that a movement makes of a view, or `None` where its numbers have to be copied.

    It asks the instruction itself: its `view` is taken of an array of single bytes, laid out as the buffer is, which
    holds `volume` of them and which nobody reads (pages that nobody reads cost nothing).
    """
    place = _moved(view.offset, view.shape, view.strides, opcode, volume)
    return None if place is None else View(view.row, *place)


@lru_cache(maxsize=4096)
def _moved(
    offset: int, shape: Shape, strides: tuple[int, ...], opcode: Movement, volume: int
) -> tuple[int, Shape, tuple[int, ...]] | None:
    buffer = np.empty(max(volume, 1), np.int8)
    array = np.lib.stride_tricks.as_strided(buffer[offset:], shape, strides)
    result = opcode.view(array)
    if not np.may_share_memory(result, buffer):
        return None
    start = result.__array_interface__["data"][0] - buffer.__array_interface__["data"][0]
    return start, Shape(result.shape), result.strides


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The shape with neighbouring axes made one wherever every operand steps through both as through one.

    Axes of extent 1 go. At least one axis is left. Answers the extents and, per operand, its strides.
    """
    kept = [axis for axis, extent in enumerate(shape) if extent != 1]
    extents: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in kept:
        fits = extents and all(own[-1] == given[axis] * shape[axis] for own, given in zip(steps, strides, strict=True))
        if fits:
            extents[-1] *= shape[axis]
        else:
            extents.append(shape[axis])
        for own, given in zip(steps, strides, strict=True):
            own[-1:] = [given[axis]] if fits else [*own[-1:], given[axis]]
    if not extents:
        return [1], [[0] for _ in strides]
    return extents, steps
