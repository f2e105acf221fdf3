"""Whether an element's arithmetic is NumPy's."""

from __future__ import annotations

import numpy as np

from topos.element.element import Element

_FORMATS = (np.dtype(np.float32), np.dtype(np.float64))


def is_ieee(element: Element) -> bool:
    """Whether an element vouches, by a true attribute `ieee`, that its operations are those of binary32 or binary64.

    Then kernels may put NumPy's own operations and the emulated fused multiply-add in place of the element's.
    """
    return element.dtype in _FORMATS and bool(getattr(element, "ieee", False))
