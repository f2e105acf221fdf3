"""The largest along an axis."""

from __future__ import annotations

import numpy as np

from topos.element.element import Array, Element
from topos.reference.ieee import is_ieee


def max_along(element: Element, array: Array, axis: int) -> Array:
    """NaN where any number along the axis is NaN, else the largest, plus `+0.0`; of nothing, the element's lowest.

    Shape: that of `array` without the axis. Every order of evaluation gives these bits: a maximum is one of its
    operands, and the added zero makes one of the two zeros that it may be.
    """
    axis %= array.ndim
    accumulator = element.accumulator
    if is_ieee(accumulator):
        lowest = element.promote(element.lowest)
        largest = np.asarray(np.maximum.reduce(element.promote(array), axis=axis, initial=lowest[()]))
        return element.demote(accumulator.add(largest, accumulator.zero))
    largest = np.moveaxis(array, axis, 0)
    if len(largest) == 0:
        largest = np.broadcast_to(element.lowest, (1, *largest.shape[1:]))
    while len(largest) > 1:
        half, odd = divmod(len(largest), 2)
        halves = element.maximum(largest[:half], largest[half : 2 * half])
        largest = np.concatenate([halves, largest[-1:]]) if odd else halves
    return element.add(largest[0, ...], element.zero)
