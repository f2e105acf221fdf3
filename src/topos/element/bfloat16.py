"""The built-in element `bf16`: the upper half of a binary32, computed in binary32 and rounded once.

Conversions work on the bits: hardware instructions for bfloat16 flush subnormals, and `ml_dtypes` rounds a binary64
twice.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from topos.element.element import Array, Element
from topos.element.emittable import Emittable
from topos.element.floating import f32
from topos.element.real import Real

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def widened(array: Array) -> Array:
    """bfloat16 as binary32, exactly: sixteen zero bits below."""
    return np.left_shift(array.view(np.uint16), 16, dtype=np.uint32, out=...).view(np.float32)


def narrowed(array: Array) -> Array:
    """binary32 as bfloat16, rounded to nearest even; NaN stays NaN with its sign.

    Adding 0x7FFF and the lowest kept bit carries into the upper half exactly where rounding goes away from zero, past
    the exponent of the largest number to infinity included.
    """
    pattern = array.view(np.uint32)
    upper = pattern >> 16
    rounded = (pattern + ((upper & 1) + 0x7FFF)) >> 16
    bits = np.where(array == array, rounded, (upper & 0x8000) | 0x7FC0)
    return bits.astype(np.uint16).view(BFLOAT16)


def rounded_to_odd(numbers: Array) -> Array:
    """Wider floats as binary32, rounded to odd: towards zero, then the last bit is set where anything was lost.

    A later rounding to nearest with two bits less or fewer is the one correct rounding of the wide number (Boldo and
    Melquiond 2008).
    """
    nearest = numbers.astype(np.float32)
    pattern = nearest.view(np.uint32)
    back = nearest.astype(numbers.dtype)
    lost = (back != numbers) & (numbers == numbers)
    outward = np.abs(back) > np.abs(numbers)
    odd = np.where(lost, (pattern - outward) | 1, pattern).astype(np.uint32)
    return odd.view(np.float32)


def integers_to_odd(integers: Array) -> Array:
    """Integers as binary64, those above 53 bits rounded to odd."""
    dropped = integers & 0x7FF
    wide = (integers >= 1 << 53) | (integers <= -(1 << 53)) if integers.dtype.kind == "i" else integers >= 1 << 53
    odd = (integers - dropped) | np.where(dropped != 0, 0x800, 0).astype(integers.dtype)
    return np.where(wide, odd, integers).astype(np.float64)


class BFloat16(Real):
    """`dtype` is `ml_dtypes.bfloat16`; operands widen to `f32`, the `f32` rule runs, the result rounds once."""

    def __init__(self) -> None:
        super().__init__("bf16", BFLOAT16, 8)
        self.emittable = Emittable(self.name)

    @property
    def accumulator(self) -> Element:
        """Sums and products run in `f32`."""
        return f32

    def round(self, numbers: Array) -> Array:
        """Plain numbers as bfloat16, each rounded once, to nearest even, whatever their width."""
        numbers = np.asarray(numbers)
        if numbers.dtype == self.dtype:
            return numbers
        if numbers.dtype.kind in "iu" and numbers.dtype.itemsize > 4:
            numbers = integers_to_odd(numbers)
        elif numbers.dtype.kind in "iu" and numbers.dtype.itemsize > 2:
            numbers = numbers.astype(np.float64)
        if numbers.dtype.kind == "f" and numbers.dtype.itemsize > 4:
            return narrowed(rounded_to_odd(numbers))
        return narrowed(numbers.astype(np.float32))

    def promote(self, array: Array) -> Array:
        """bfloat16 to binary32, exactly."""
        return widened(array)

    def demote(self, array: Array) -> Array:
        """binary32 to bfloat16, rounded once."""
        return narrowed(array)

    # arithmetic
    def add(self, left: Array, right: Array) -> Array:
        """`left + right`."""
        return self._through(f32.add, left, right)

    def sub(self, left: Array, right: Array) -> Array:
        """`left - right`."""
        return self._through(f32.sub, left, right)

    def mul(self, left: Array, right: Array) -> Array:
        """`left * right`."""
        return self._through(f32.mul, left, right)

    def div(self, left: Array, right: Array) -> Array:
        """`left / right`."""
        return self._through(f32.div, left, right)

    def neg(self, x: Array) -> Array:
        """`-x`."""
        return self._through(f32.neg, x)

    def fma(self, left: Array, right: Array, addend: Array) -> Array:
        """The fused `f32` rule, rounded once to bfloat16."""
        return self._through(f32.fma, left, right, addend)

    def maximum(self, left: Array, right: Array) -> Array:
        """`left` where it is NaN or `left >= right`, else `right`."""
        return self._through(f32.maximum, left, right)

    def step(self, x: Array, threshold: Array) -> Array:
        """One where `x >= threshold`, else zero; zero beside NaN."""
        return self._through(f32.step, x, threshold)

    # maps
    def powf(self, base: Array, exponent: Array) -> Array:
        """`base` to the power `exponent`, by the special cases of IEEE `pow`."""
        return self._through(f32.powf, base, exponent)

    def exp(self, x: Array) -> Array:
        """The exponential."""
        return self._through(f32.exp, x)

    def ln(self, x: Array) -> Array:
        """The natural logarithm."""
        return self._through(f32.ln, x)

    def sqrt(self, x: Array) -> Array:
        """The square root."""
        return self._through(f32.sqrt, x)

    def tanh(self, x: Array) -> Array:
        """The hyperbolic tangent."""
        return self._through(f32.tanh, x)

    def sin(self, x: Array) -> Array:
        """The sine of `x` radians."""
        return self._through(f32.sin, x)

    def cos(self, x: Array) -> Array:
        """The cosine of `x` radians."""
        return self._through(f32.cos, x)

    def log1p(self, x: Array) -> Array:
        """`ln(1 + x)`."""
        return self._through(f32.log1p, x)

    def expm1(self, x: Array) -> Array:
        """`exp(x) - 1`."""
        return self._through(f32.expm1, x)

    def erf(self, x: Array) -> Array:
        """The error function."""
        return self._through(f32.erf, x)

    def erf_derivative(self, x: Array) -> Array:
        """`2 / sqrt(pi) * exp(-x^2)`."""
        return self._through(f32.erf_derivative, x)

    def _through(self, rule: Callable[..., Array], *operands: Array) -> Array:
        """A rule of `f32` over widened operands, rounded once."""
        return narrowed(rule(*map(widened, operands)))


bf16 = BFloat16()
"""bfloat16: 8 bits of precision, the range of binary32; accumulates in `f32`."""
