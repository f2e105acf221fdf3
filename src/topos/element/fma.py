"""Error-free transformations in binary64."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
_SPLITTER = 134217729.0  # 2^27 + 1


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """`a + b` rounded, and the exact rest (Knuth, TAOCP 2, 4.2.2)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """`a * b` rounded, and the exact rest (Dekker 1971), while nothing over- or underflows."""
    product = a * b
    scaled = a * _SPLITTER
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = b * _SPLITTER
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
