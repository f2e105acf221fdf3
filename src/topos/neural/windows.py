"""How windows lie over signals and images: what convolutions and pools share."""

from __future__ import annotations

from collections.abc import Sequence

from topos.graph import Value
from topos.neural.options import Refuse, extents

Extents = int | tuple[int, ...]
"""One integer for every axis, or one for each."""

NAMES = {1: ["length"], 2: ["height", "width"]}
"""The axes of a signal, and of an image."""


class Steps:
    """How windows follow on one another along each axis: the options, checked."""

    def __init__(self, refuse: Refuse, axes: int, stride: Extents, padding: Extents, dilation: Extents = 1) -> None:
        self.names = NAMES[axes]
        self.stride = extents(refuse, "stride", stride, axes)
        self.padding = extents(refuse, "padding", padding, axes, 0)
        self.dilation = extents(refuse, "dilation", dilation, axes)

    def places(self, refuse: Refuse, given: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """How many windows of a size there are along each axis; refuses an axis that is shorter than one."""
        counts = []
        for at, name in enumerate(self.names):
            reach, around = self.dilation[at] * (sizes[at] - 1) + 1, 2 * self.padding[at]
            if given[at] + around < reach:
                raise refuse(f"wants a {name} of at least {reach - around} for its windows, got {given[at]}")
            counts.append((given[at] + around - reach) // self.stride[at] + 1)
        return counts

    def padded(self, x: Value, fill: float) -> Value:
        """`[batch, channels, ...]` with the fill before and after."""
        for axis, padding in enumerate(self.padding, 2):
            if padding:
                x = x.pad(axis, padding, x.shape[axis] + 2 * padding, fill)
        return x
