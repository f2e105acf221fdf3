"""The bit patterns of numbers: which are NaN, how they print, and how many numbers lie between two of them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from topos.element.element import Array

# The pattern of +inf; every greater magnitude is a NaN.
_INFINITY = {
    np.dtype(np.float16): 0x7C00,
    np.dtype(ml_dtypes.bfloat16): 0x7F80,
    np.dtype(np.float32): 0x7F800000,
    np.dtype(np.float64): 0x7FF0000000000000,
}


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether numbers of this dtype have a NaN and a distance in ulp that this module knows."""
    return dtype in _INFINITY


def has_bits(dtype: np.dtype[Any]) -> bool:
    """Whether this module can compare numbers of this dtype: a float above, an integer or a bool."""
    return is_float(dtype) or dtype.kind in "iub"


def native(array: Array) -> Array:
    """The array in this machine's byte order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def patterns(array: Array) -> Array:
    """The bits as unsigned integers of the same width, for any strides and any rank."""
    return array.view(np.dtype(f"u{array.dtype.itemsize}"))


def is_nan(array: Array) -> Array:
    """Where the bits are a NaN's; no arithmetic, so that nothing can warn."""
    bits = patterns(array)
    if not is_float(array.dtype):
        return np.zeros(bits.shape, np.bool_)
    magnitude = bits & bits.dtype.type(np.iinfo(bits.dtype).max >> 1)
    return np.asarray(magnitude > bits.dtype.type(_INFINITY[array.dtype]))


def shown(number: Array) -> str:
    """One number (rank 0) as `repr` has it, then its pattern."""
    digits = 2 * number.dtype.itemsize
    return f"{number[()]!r}  0x{int(patterns(number)[()]):0{digits}x}"


def distance(left: Array, right: Array) -> str:
    """How far apart two numbers (rank 0) of one dtype are, in words.

    For floats in ulp: how many numbers of the dtype one has to step over. Both zeros count as the same number.
    """
    if not is_float(left.dtype):
        return f"{abs(int(left[()]) - int(right[()]))}"
    if is_nan(left)[()] or is_nan(right)[()]:
        return "none: one is NaN"
    ulp = abs(_rank(left) - _rank(right))
    return f"{ulp} ulp" if ulp else "0 ulp: zeros of different sign"


def _rank(number: Array) -> int:
    """The position of a float among all floats of its dtype, both zeros at 0."""
    bits = int(patterns(number)[()])
    half = 1 << (8 * number.dtype.itemsize - 1)
    return bits if bits < half else half - bits
