"""The built-in elements `f32` and `f64`: IEEE binary32 and binary64, round to nearest even, subnormals kept.

`out=...` makes a NumPy operation answer an array at rank 0 too, where an operator would answer a scalar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from topos.element.element import Array
from topos.element.emittable import TYPES, Emittable
from topos.element.fma import fma32, fma64
from topos.element.functions import F32_BODIES, F64_BODIES
from topos.element.numpy_reading import evaluate
from topos.element.real import Real
from topos.element.vocabulary import Body


class Floating(Real):
    """An IEEE format that NumPy computes in; its elementary functions are the `bodies`."""

    ieee = True

    def __init__(self, name: str, dtype: Any, precision: int, bodies: Mapping[str, Body]) -> None:
        super().__init__(name, dtype, precision)
        self.bodies = bodies
        self.emittable = Emittable(name) if name in TYPES else None

    def round(self, numbers: Array) -> Array:
        """Plain numbers as `dtype`, each rounded once, to nearest even."""
        return numbers.astype(self.dtype)

    # arithmetic
    def add(self, left: Array, right: Array) -> Array:
        """`left + right`."""
        return np.add(left, right, out=...)

    def sub(self, left: Array, right: Array) -> Array:
        """`left - right`."""
        return np.subtract(left, right, out=...)

    def mul(self, left: Array, right: Array) -> Array:
        """`left * right`."""
        return np.multiply(left, right, out=...)

    def div(self, left: Array, right: Array) -> Array:
        """`left / right`."""
        return np.divide(left, right, out=...)

    def neg(self, x: Array) -> Array:
        """`-x`: the sign bit flipped."""
        return np.negative(x, out=...)

    def fma(self, left: Array, right: Array, addend: Array) -> Array:
        """`left * right + addend`, rounded once."""
        fused = fma32 if self.precision == 24 else fma64
        return np.asarray(fused(left, right, addend))

    def maximum(self, left: Array, right: Array) -> Array:
        """`left` where it is NaN or `left >= right`, else `right`."""
        return np.where((left >= right) | (left != left), left, right)

    def step(self, x: Array, threshold: Array) -> Array:
        """One where `x >= threshold`, else zero; zero beside NaN."""
        return np.greater_equal(x, threshold, out=...).astype(self.dtype)

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
        return np.sqrt(x, out=...)

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
