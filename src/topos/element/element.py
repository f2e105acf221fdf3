"""The open seam of the number: what fills a tensor, as an object with arithmetic over NumPy arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from topos.errors import ElementError

if TYPE_CHECKING:
    from topos.element.emittable import Emittable
    from topos.element.native import Native
    from topos.element.sample import Sample

Array = np.ndarray[Any, np.dtype[Any]]


class Element:
    """The number that fills a tensor, and its arithmetic over arrays of `dtype`.

    A built-in element or a user's: subclass, set `name` and `dtype`, and define the operations that your programs use;
    the rest raise `ElementError` when they are reached. Operations take arrays of `dtype` that broadcast against one
    another (rank 0 included) and answer an array of `dtype`; each rounds once. Elements are compared by identity: make
    one object and use it everywhere.

    `zero` and `one` are rank-0 arrays. Sums and products run in `accumulator`: `promote` widens exactly, `demote`
    rounds once; both are the identity where an element accumulates in itself.
    """

    name: str
    dtype: np.dtype[Any]
    native: Native | None = None
    """The optional contract by which plans over the element run natively; it defines the operations too."""
    emittable: Emittable | None = None
    """The optional contract by which plans over the element are emitted as text."""
    sample: Sample | None = None
    """The optional contract by which initialisers make numbers of it: what it makes of real draws."""
    ieee: bool = False
    """Whether every operation is IEEE-754's for `dtype`: it licenses kernels of equal bits that use NumPy's own."""

    @property
    def accumulator(self) -> Element:
        """The element in which sums, products, folds and scatters accumulate."""
        return self

    @property
    def zero(self) -> Array:
        """Positive zero, rank 0."""
        return np.zeros((), self.dtype)

    @property
    def one(self) -> Array:
        """One, rank 0."""
        return self.from_count(1)

    @property
    def lowest(self) -> Array:
        """What every maximum starts from: minus infinity, or the least number there is; rank 0."""
        return self.round(np.array(-np.inf))

    def from_count(self, count: int) -> Array:
        """The number nearest to an integer of any size (ties to even), rank 0."""
        return self.round(np.array(float(count)))

    # payloads in and out
    def admit(self, array: Array) -> Array:
        """An array a caller hands in, as `dtype`, rounded once.

        Raises `ElementError` for a dtype that holds no numbers of this kind, and for an integer that would not be
        exact.
        """
        if array.dtype == self.dtype:
            return array
        if array.dtype.kind not in "biuf":
            raise ElementError(f"{self.name}: cannot hold values of dtype {array.dtype}")
        return self.round(array)

    def round(self, numbers: Array) -> Array:
        """Plain real numbers (a NumPy integer, bool or float dtype) as `dtype`, each rounded once."""
        raise self._missing("round")

    def cast(self, array: Array, source: Element) -> Array:
        """An array of `source`'s dtype as this element's, rounded once: what the `Cast` instruction computes."""
        if source is self:
            return array
        raise ElementError(f"cast: {self.name} cannot be made from {source.name}")

    def promote(self, array: Array) -> Array:
        """`dtype` to the accumulator's dtype, exactly."""
        return array if self.native is None or self.accumulator is self else self.native.widened(array)

    def demote(self, array: Array) -> Array:
        """The accumulator's dtype to `dtype`, rounded once."""
        return array if self.native is None or self.accumulator is self else self.native.narrowed(array, self.dtype)

    # arithmetic
    def add(self, left: Array, right: Array) -> Array:
        """`left + right`."""
        return self._computed("add", left, right)

    def sub(self, left: Array, right: Array) -> Array:
        """`left - right`."""
        return self._computed("sub", left, right)

    def mul(self, left: Array, right: Array) -> Array:
        """`left * right`."""
        return self._computed("mul", left, right)

    def div(self, left: Array, right: Array) -> Array:
        """`left / right`."""
        return self._computed("div", left, right)

    def neg(self, x: Array) -> Array:
        """`-x`."""
        return self._computed("neg", x)

    def fma(self, left: Array, right: Array, addend: Array) -> Array:
        """`left * right + addend`: one rounding for the built-in elements, two unless a user's element says better."""
        return self.add(self.mul(left, right), addend)

    def maximum(self, left: Array, right: Array) -> Array:
        """`left` where it is NaN or `left >= right`, else `right`."""
        return self._computed("maximum", left, right)

    def step(self, x: Array, threshold: Array) -> Array:
        """One where `x >= threshold`, else zero."""
        return self._computed("step", x, threshold)

    def nonzero(self, mask: Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Where a mask selects: NaN is nonzero, both zeros are zero."""
        return np.asarray(mask != self.zero)

    def select(self, mask: Array, chosen: Array, other: Array) -> Array:
        """`chosen` where the mask is nonzero, else `other`."""
        if self.native is not None:
            return self._computed("select", mask, chosen, other)
        return np.where(self.nonzero(mask), chosen, other)

    def powf(self, base: Array, exponent: Array) -> Array:
        """`base` to the power `exponent`."""
        return self._computed("powf", base, exponent)

    # maps
    def exp(self, x: Array) -> Array:
        """The exponential."""
        return self._computed("exp", x)

    def ln(self, x: Array) -> Array:
        """The natural logarithm."""
        return self._computed("ln", x)

    def sqrt(self, x: Array) -> Array:
        """The square root."""
        return self._computed("sqrt", x)

    def tanh(self, x: Array) -> Array:
        """The hyperbolic tangent."""
        return self._computed("tanh", x)

    def sin(self, x: Array) -> Array:
        """The sine of `x` radians."""
        return self._computed("sin", x)

    def cos(self, x: Array) -> Array:
        """The cosine of `x` radians."""
        return self._computed("cos", x)

    def log1p(self, x: Array) -> Array:
        """`ln(1 + x)`."""
        return self._computed("log1p", x)

    def expm1(self, x: Array) -> Array:
        """`exp(x) - 1`."""
        return self._computed("expm1", x)

    def erf(self, x: Array) -> Array:
        """The error function."""
        return self._computed("erf", x)

    def erf_derivative(self, x: Array) -> Array:
        """`2 / sqrt(pi) * exp(-x * x)`."""
        return self._computed("erf_derivative", x)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickled by its global name, so that it stays one object; it must be a module's variable called `name`."""
        return self.name

    def _computed(self, operation: str, *operands: Array) -> Array:
        """What the native contract says of an operation that nobody overrides."""
        if self.native is None:
            raise self._missing(operation)
        return self.native.computed(operation, self.dtype, *operands)

    def _missing(self, operation: str) -> ElementError:
        return ElementError(f"{operation}: element {self.name} does not define it")
