"""Pools: the largest or the average of each window of a signal or an image, or of all of it."""

from __future__ import annotations

from math import prod

from topos.graph import Value
from topos.neural.options import Refuse, extents, operand, refusing
from topos.neural.windows import Extents, Steps


def max_pool(x: Value, size: Extents, *, stride: Extents | None = None, padding: Extents = 0) -> Value:
    """The largest of each window of `[batch, channels, height, width]` or `[batch, channels, length]`; NaN if any is.

    Windows of `size` lie `stride` apart, by default side by side; `padding` is less than `size` and of `-inf`, before
    and after. What is left over at the end is in no window. Ties share the cotangent evenly. Raises `ShapeError`.
    """
    windows = _windows(refusing("max_pool"), x, size, stride, padding, float("-inf"))
    for axis in reversed(range(3, windows.shape.rank, 2)):
        windows = windows.max_along(axis)
    return windows


def average_pool(x: Value, size: Extents, *, stride: Extents | None = None, padding: Extents = 0) -> Value:
    """The average of each window, as `max_pool`; `padding` is of zeros, which count among the terms.

    Each row of a window is summed, then their sums are, and the total is divided by the number of places.
    """
    windows = _windows(refusing("average_pool"), x, size, stride, padding, 0.0)
    sizes = windows.shape[3::2]
    for axis in reversed(range(3, windows.shape.rank, 2)):
        windows = windows.sum_along(axis)
    return windows / prod(sizes)


def global_max_pool(x: Value) -> Value:
    """The largest of each channel: `[batch, channels, ...]`, of one axis or two, to `[batch, channels]`."""
    return _channels(refusing("global_max_pool"), x).max_along(2)


def global_average_pool(x: Value) -> Value:
    """The mean of each channel, summed in row-major order: `[batch, channels, ...]` to `[batch, channels]`."""
    return _channels(refusing("global_average_pool"), x).mean_along(2)


def _windows(refuse: Refuse, x: Value, size: Extents, stride: Extents | None, padding: Extents, fill: float) -> Value:
    """`[batch, channels, places, size, ...]`."""
    axes = _axes(refuse, x)
    sizes = extents(refuse, "size", size, axes)
    steps = Steps(refuse, axes, sizes if stride is None else stride, padding)
    for own, before in zip(sizes, steps.padding, strict=True):
        if before >= own:
            raise refuse(f"wants a padding of less than its windows of {own}, got {before}")
    steps.places(refuse, x.shape[2:], sizes)
    windows = steps.padded(x, fill)
    for axis in reversed(range(axes)):
        windows = windows.unfold(axis + 2, sizes[axis], steps.stride[axis])
    return windows


def _axes(refuse: Refuse, x: Value) -> int:
    operand(refuse, x)
    if x.shape.rank not in (3, 4):
        raise refuse(f"wants [batch, channels, length] or [batch, channels, height, width], got {x.shape}")
    return x.shape.rank - 2


def _channels(refuse: Refuse, x: Value) -> Value:
    """`[batch, channels, places]`."""
    _axes(refuse, x)
    batch, channels, *places = x.shape
    return x if len(places) == 1 else x.reshape([batch, channels, prod(places)])
