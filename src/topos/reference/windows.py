"""Windows added back to where they were taken from."""

from __future__ import annotations

import numpy as np

from topos.element.element import Array, Element
from topos.reference.fills import zeros


def fold(element: Element, array: Array, axis: int, size: int, step: int, dilation: int, extent: int) -> Array:
    """`result[p] = sum of array[c, o] over all c and o with p = c * step + o * dilation`, along one axis.

    Shapes: `array` has the axes `(count, size)` at `axis` and `axis + 1`; the result has `extent` at `axis` instead. No
    window reaches beyond it: `(count - 1) * step + (size - 1) * dilation < extent`.

    Order: each position adds its contributions for `o = 0 .. size - 1` ascending, from `+0.0`, in the accumulator,
    demoted once. A position under no window is `+0.0`.
    """
    accumulator = element.accumulator
    count = array.shape[axis]
    total = zeros(accumulator, (*array.shape[:axis], extent, *array.shape[axis + 2 :]))
    at: tuple[slice, ...] = (slice(None),) * axis
    for offset in range(size if count else 0):
        # Windows start `step` apart, so no two put the same offset on the same position.
        first = offset * dilation
        reached = (*at, slice(first, first + (count - 1) * step + 1, step))
        contribution = element.promote(np.take(array, offset, axis=axis + 1))
        total[reached] = accumulator.add(total[reached], contribution)
    return element.demote(total)
