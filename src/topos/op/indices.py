"""What `x[...]` means: integers, slices without a step and one ellipsis, as narrows and a final shape."""

from __future__ import annotations

import operator
from typing import Any

from topos.errors import ShapeError
from topos.shape import Shape


def indexed(shape: Shape, index: Any) -> tuple[list[tuple[int, int, int]], Shape]:
    """The narrows `(axis, start, length)` that an index asks for, and the shape it leaves.

    Slices are clipped as Python's are. Raises `ShapeError` for an integer out of range, too many indices, a step, or
    anything else.
    """
    parts = _spread(shape, index if isinstance(index, tuple) else (index,))
    narrows: list[tuple[int, int, int]] = []
    extents: list[int] = []
    for axis, (part, extent) in enumerate(zip(parts, shape, strict=True)):
        if isinstance(part, slice):
            start, length = _range(part, extent)
            extents.append(length)
        else:
            start, length = _position(part, extent, axis, shape), 1
        if length != extent:
            narrows.append((axis, start, length))
    return narrows, Shape(extents)


def _spread(shape: Shape, parts: tuple[Any, ...]) -> list[Any]:
    """One index per axis: the ellipsis, or the end, stands for whole axes."""
    ellipses = [position for position, part in enumerate(parts) if part is Ellipsis]
    if len(ellipses) > 1:
        raise ShapeError("index: at most one ellipsis")
    given = len(parts) - len(ellipses)
    if given > shape.rank:
        raise ShapeError(f"index: {given} indices for shape {shape} of rank {shape.rank}")
    at = ellipses[0] if ellipses else len(parts)
    return [*parts[:at], *[slice(None)] * (shape.rank - given), *parts[at + 1 :]]


def _range(part: slice, extent: int) -> tuple[int, int]:
    try:
        if part.step is not None and operator.index(part.step) != 1:
            raise ShapeError(f"index: a slice takes no step, got {part.step}; see unfold")
        start, stop, _ = part.indices(extent)
    except TypeError:
        raise ShapeError(f"index: a slice's limits must be integers, got {part}") from None
    length = max(0, stop - start)
    return (start if length else 0), length


def _position(part: Any, extent: int, axis: int, shape: Shape) -> int:
    if isinstance(part, bool):
        raise ShapeError("index: a bool is no index; choose with where(mask, a, b)")
    try:
        position = operator.index(part)
    except TypeError:
        raise ShapeError(
            f"index: takes integers, slices and an ellipsis, got {type(part).__name__}; rows by ids are "
            "table.gather(selection)"
        ) from None
    if not -extent <= position < extent:
        raise ShapeError(f"index: {position} is out of range for axis {axis} of extent {extent} in {shape}")
    return position % extent
