"""What the built-in elements share: plain real numbers in a binary format, admitted and cast by rounding once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from topos.element.element import Array, Element
from topos.errors import ElementError


def integer_float(count: int) -> float:
    """A Python integer as binary64: exact up to 53 bits, beyond them rounded to odd.

    Rounding to odd (the last bit is set where anything was lost) makes a later rounding to 51 bits or fewer the one
    correct rounding of the integer (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    magnitude = abs(count)
    excess = magnitude.bit_length() - 53
    if excess > 971:
        value = math.inf
    elif excess > 0:
        head = magnitude >> excess
        value = math.ldexp(head | (head << excess != magnitude), excess)
    else:
        value = float(magnitude)
    return -value if count < 0 else value


def inexact_integer(array: Array, precision: int) -> int | None:
    """The first entry of an integer array that needs more than `precision` bits; None where there is none."""
    if array.dtype.kind not in "iu" or not array.size:
        return None
    if -(1 << precision) <= int(array.min()) and int(array.max()) <= 1 << precision:
        return None
    flat = array.reshape(-1)
    pattern = flat.astype(np.uint64)
    magnitude = np.where(flat < 0, np.uint64(0) - pattern, pattern)
    lowest = magnitude & (np.uint64(0) - magnitude)
    bad = magnitude // np.maximum(lowest, np.uint64(1)) >= np.uint64(1 << precision)
    return int(flat[bad.argmax()]) if bad.any() else None


class Real(Element):
    """A binary floating format of `precision` bits; any two of them cast into one another."""

    def __init__(self, name: str, dtype: Any, precision: int) -> None:
        self.name = name
        self.dtype = np.dtype(dtype)
        self.precision = precision
        self._zero, self._one = np.zeros((), self.dtype), np.ones((), self.dtype)
        self._zero.setflags(write=False)
        self._one.setflags(write=False)

    @property
    def zero(self) -> Array:
        """Positive zero, rank 0, read-only."""
        return self._zero

    @property
    def one(self) -> Array:
        """One, rank 0, read-only."""
        return self._one

    def from_count(self, count: int) -> Array:
        """The number nearest to an integer of any size (ties to even), rank 0; infinity past the range."""
        if self.precision <= 51:
            with np.errstate(over="ignore"):
                return self.round(np.array(integer_float(count)))
        try:
            return np.array(float(count), self.dtype)
        except OverflowError:
            return np.array(-math.inf if count < 0 else math.inf, self.dtype)

    def admit(self, array: Array) -> Array:
        """An array a caller hands in, as `dtype`, rounded once; bool is 0 and 1.

        Raises `ElementError` for a dtype that holds no such numbers, and for an integer that would not be exact.
        """
        if array.dtype == self.dtype:
            return array
        if array.dtype.kind not in "biuf" and array.dtype.name != "bfloat16":
            raise ElementError(f"{self.name}: cannot hold values of dtype {array.dtype}")
        lost = inexact_integer(array, self.precision)
        if lost is not None:
            raise ElementError(
                f"{self.name}: cannot hold the integer {lost} exactly; {self.name} has {self.precision} bits"
            )
        return self.round(array)

    def cast(self, array: Array, source: Element) -> Array:
        """An array of another real element as this one's, rounded once."""
        if source is self:
            return array
        if not isinstance(source, Real):
            return super().cast(array, source)
        return self.round(array)
