"""Constants as text that says each bit: decimals where they do, hexadecimal where none would."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from topos.element.element import Array

LISTED = 16
"""Up to so many numbers are written one by one; more are the bytes of the array."""


def dense(array: Array) -> str:
    """`dense<...>` of an array: one number where all are the same bits, a nested list, or its bytes."""
    if not array.size:
        return "dense<>"
    if _is_repeated(array):
        return f"dense<{number(array[(0,) * array.ndim])}>"
    held = np.ascontiguousarray(array)
    if held.size <= LISTED:
        return f"dense<{_listed(held)}>"
    little = held.astype(held.dtype.newbyteorder("<"), copy=False)
    return f'dense<"0x{little.tobytes().hex().upper()}">'


def number(value: Any) -> str:
    """One number of a NumPy dtype: an integer, the shortest decimal, or its bits where it is no ordinary number."""
    if value.dtype.kind in "iu":
        return str(int(value))
    plain = float(value)
    if not math.isfinite(plain) or (plain == 0 and math.copysign(1.0, plain) < 0):
        pattern = value.tobytes()[:: -1 if _is_little(value) else 1]
        return f"0x{pattern.hex().upper()}"
    return decimal(_short(value, plain) if value.dtype.itemsize == 4 else repr(plain))


def decimal(text: str) -> str:
    """The text of a float as MLIR reads it: with a point before the exponent."""
    return text if "." in text else text.replace("e", ".0e")


def _short(value: Any, plain: float) -> str:
    """The shortest decimal of a binary32, if it still is that number when it was read as binary64 first."""
    text = str(value)
    return text if np.float32(float(text)) == value else repr(plain)


def _is_repeated(array: Array) -> bool:
    """Whether every place has the same bits; one that is stored once is not read place by place."""
    if all(extent == 1 or not stride for extent, stride in zip(array.shape, array.strides, strict=True)):
        return True
    patterns = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
    return bool((patterns == patterns[(0,) * array.ndim]).all())


def _is_little(value: Any) -> bool:
    return bool(np.little_endian if value.dtype.byteorder in "=|" else value.dtype.byteorder == "<")


def _listed(array: Array) -> str:
    if not array.ndim:
        return number(array[()])
    return f"[{', '.join(map(_listed, array))}]" if array.ndim > 1 else f"[{', '.join(map(number, array))}]"
