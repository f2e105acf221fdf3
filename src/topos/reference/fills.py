"""Arrays of one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from topos.element.element import Array, Element


def zeros(element: Element, shape: Sequence[int]) -> Array:
    """An array of the element's positive zero, writable."""
    array = np.empty(tuple(shape), element.dtype)
    array[...] = element.zero
    return array
