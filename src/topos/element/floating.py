"""The built-in elements `f32` and `f64`: IEEE binary32 and binary64, round to nearest even, subnormals kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from topos.element.element import Array, Element
from topos.element.functions import F32_BODIES, F64_BODIES
from topos.element.numpy_reading import evaluate
from topos.element.vocabulary import Body
from topos.errors import ElementError


def as_array(result: Any) -> Array:
    """What an operator answered, as an array: NumPy turns rank 0 into scalars."""
    return result if type(result) is np.ndarray else np.asarray(result)


def integer_float(count: int) -> float:
    """A Python integer as binary64: exact up to 53 bits, beyond them rounded to odd.

    Rounding to odd (the last bit is set where anything was lost) makes a later rounding to fewer than 52 bits the one
    correct rounding of the integer (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    magnitude = abs(count)
    excess = magnitude.bit_length() - 53
    if excess > 0:
        head = magnitude >> excess
        magnitude = head | (head << excess != magnitude)
        value = math.ldexp(magnitude, excess) if excess <= 971 else math.inf
    else:
        value = float(magnitude)
    return -value if count < 0 else value


def inexact_integer(array: Array, precision: int) -> int | None:
    """The first entry of an integer array that needs more than `precision` bits; None where there is none."""
    if array.dtype.kind not in "iu" or 8 * array.dtype.itemsize <= precision or not array.size:
        return None
    if -(1 << precision) <= int(array.min()) and int(array.max()) <= 1 << precision:
        return None
    flat = array.reshape(-1)
    wide = flat.astype(np.uint64)
    magnitude = np.where(flat < 0, np.uint64(0) - wide, wide)
    lowest = magnitude & (np.uint64(0) - magnitude)
    bad = magnitude // np.maximum(lowest, np.uint64(1)) >= np.uint64(1 << precision)
    return int(flat[bad.argmax()]) if bad.any() else None


class Floating(Element):
    """An IEEE format that NumPy computes in: `precision` bits, elementary functions from `bodies`."""

    ieee = True

    def __init__(self, name: str, dtype: Any, precision: int, bodies: Mapping[str, Body]) -> None:
        self.name = name
        self.dtype = np.dtype(dtype)
        self.precision = precision
        self.bodies = bodies
        self._numbers = (np.zeros((), self.dtype), np.ones((), self.dtype))
        for number in self._numbers:
            number.setflags(write=False)

    @property
    def zero(self) -> Array:
        """Positive zero, rank 0, read-only."""
        return self._numbers[0]

    @property
    def one(self) -> Array:
        """One, rank 0, read-only."""
        return self._numbers[1]

    def from_count(self, count: int) -> Array:
        """The number nearest to an integer of any size (ties to even), rank 0; infinity past the range."""
        with np.errstate(over="ignore"):
            if self.precision < 52:
                return np.array(integer_float(count)).astype(self.dtype)
            try:
                return np.array(float(count), self.dtype)
            except OverflowError:
                return np.array(math.copysign(math.inf, count), self.dtype)

    # payloads in and out
    def admit(self, array: Array) -> Array:
        """An array a caller hands in, as `dtype`, rounded once; bool is 0 and 1; bf16 widens exactly.

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

    def round(self, numbers: Array) -> Array:
        """Plain numbers as `dtype`, each rounded once, to nearest even."""
        return numbers.astype(self.dtype)

    def cast(self, array: Array, source: Element) -> Array:
        """An array of an element that is, or accumulates in, f32 or f64 as this one's, rounded once."""
        if source is self:
            return array
        if not isinstance(source.accumulator, Floating):
            return super().cast(array, source)
        return self.round(source.promote(array))

    # arithmetic
    def add(self, left: Array, right: Array) -> Array:
        """`left + right`."""
        return as_array(left + right)

    def sub(self, left: Array, right: Array) -> Array:
        """`left - right`."""
        return as_array(left - right)

    def mul(self, left: Array, right: Array) -> Array:
        """`left * right`."""
        return as_array(left * right)

    def div(self, left: Array, right: Array) -> Array:
        """`left / right`."""
        return as_array(left / right)

    def neg(self, x: Array) -> Array:
        """`-x`: the sign bit flipped."""
        return as_array(-x)

    def fma(self, left: Array, right: Array, addend: Array) -> Array:
        """`left * right + addend`, rounded once."""
        from topos.element import fma

        return as_array((fma.fma32 if self.precision == 24 else fma.fma64)(left, right, addend))

    def maximum(self, left: Array, right: Array) -> Array:
        """`left` where it is NaN or `left >= right`, else `right`."""
        return np.where((left >= right) | (left != left), left, right)

    def step(self, x: Array, threshold: Array) -> Array:
        """One where `x >= threshold`, else zero; zero beside NaN."""
        return as_array((x >= threshold).astype(self.dtype))

    # maps
    def powf(self, base: Array, exponent: Array) -> Array:
        """`base` to the power `exponent`, by the special cases of IEEE `pow`."""
        return evaluate(self.bodies["powf"], base, exponent)

    def exp(self, x: Array) -> Array:
        """The exponential."""
        return evaluate(self.bodies["exp"], x)

    def ln(self, x: Array) -> Array:
        """The natural logarithm; minus infinity at zero, NaN below it."""
        return evaluate(self.bodies["ln"], x)

    def sqrt(self, x: Array) -> Array:
        """The square root, correctly rounded; NaN below zero."""
        return as_array(np.sqrt(x))

    def tanh(self, x: Array) -> Array:
        """The hyperbolic tangent."""
        return evaluate(self.bodies["tanh"], x)

    def sin(self, x: Array) -> Array:
        """The sine of `x` radians; NaN at infinity."""
        return evaluate(self.bodies["sin"], x)

    def cos(self, x: Array) -> Array:
        """The cosine of `x` radians; NaN at infinity."""
        return evaluate(self.bodies["cos"], x)

    def log1p(self, x: Array) -> Array:
        """`ln(1 + x)`; minus infinity at minus one, NaN below it."""
        return evaluate(self.bodies["log1p"], x)

    def expm1(self, x: Array) -> Array:
        """`exp(x) - 1`."""
        return evaluate(self.bodies["expm1"], x)

    def erf(self, x: Array) -> Array:
        """The error function."""
        return evaluate(self.bodies["erf"], x)

    def erf_derivative(self, x: Array) -> Array:
        """`2 / sqrt(pi) * exp(-x^2)`."""
        return evaluate(self.bodies["erf_derivative"], x)


f32 = Floating("f32", np.float32, 24, F32_BODIES)
"""IEEE binary32. Elementary functions within 0.501 ulp."""

f64 = Floating("f64", np.float64, 53, F64_BODIES)
"""IEEE binary64. Elementary functions within 1 ulp."""
