"""The small vocabulary in which every elementary function is written once.

A body is a function `body(m, x, ...)` over opaque values. Arithmetic, comparison, masks and integer work are Python's
operators on the values; everything else is a word of `m`. A reading (NumPy arrays, native vectors) supplies both. In
a body

- a value is binary32, binary64, or the signed integer of that width (from `bits`), or a mask (from a comparison);
- `+ - * /` and unary `-` on floats are the IEEE operations, one rounding each, never contracted;
- `< <= > >= ==` are false and `!=` is true where an operand is NaN; masks combine by `& | ~`;
- on integers `+ - & | ^ <<` wrap, and `>>` copies the sign bit;
- a Python number beside a value is a constant of the value's type;
- nothing branches on a value: `select` and `rare` do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

Value: TypeAlias = Any
"""What a reading computes with: it answers Python's operators, and only the reading knows its type."""

Body: TypeAlias = Callable[..., Value]
"""`body(m, *operands) -> result`."""


class Table:
    """A constant array of binary64 that `lookup` indexes, its values made on first use.

    Its length is a power of two: an index is taken modulo it, so a lane that is computed and then discarded stays
    inside.
    """

    __slots__ = ("_make", "_values", "name")

    def __init__(self, name: str, make: Callable[[], tuple[float, ...]]) -> None:
        self.name = name
        self._make = make
        self._values: tuple[float, ...] | None = None

    @property
    def values(self) -> tuple[float, ...]:
        """The entries."""
        if self._values is None:
            self._values = self._make()
        return self._values


class Vocabulary(Protocol):
    """The words beside the operators."""

    def select(self, mask: Value, chosen: Value, other: Value) -> Value:
        """`chosen` where the mask holds, else `other`; one of the two may be a Python number."""

    def sqrt(self, x: Value) -> Value:
        """The IEEE square root."""

    def widen(self, x: Value) -> Value:
        """binary32 to binary64, exactly."""

    def narrow(self, x: Value) -> Value:
        """binary64 to binary32, rounded to nearest even; subnormals kept."""

    def bits(self, x: Value) -> Value:
        """The bits of a float as the signed integer of its width."""

    def real(self, pattern: Value) -> Value:
        """The float whose bits these are."""

    def absolute(self, x: Value) -> Value:
        """`x` with its sign bit cleared."""

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        """A `magnitude`, whose sign bit is clear or already right, with the sign bit of `sign`."""

    def two_product(self, left: Value, right: Value) -> tuple[Value, Value]:
        """binary64 `left * right` rounded, and the exact rest (exact while nothing over- or underflows).

        One of the two may be a Python number.
        """

    def add_exact(self, addend: Value, left: Value, right: Value) -> Value:
        """binary64 `addend + left * right` where the product is exact, so that fused or not is one rounding.

        One of the first two may be a Python number, and the last.
        """

    def add_product(self, addend: Value, left: Value, right: Value) -> Value:
        """binary64 `addend + left * right` in two roundings, or in one where that is cheaper.

        For steps of a body of one binary32 operand alone, whose result has been found to be the same either way for
        each of the 2^32: what a rounding less changes is 2^-29 of the last one's unit.
        """

    def lookup(self, table: Table, index: Value) -> Value:
        """The entry of a table at a 64-bit index, modulo its length."""

    def rare(self, mask: Value, body: Body, operands: tuple[Value, ...], default: Value) -> Value:
        """`body(m, *operands)` where the mask holds, else `default`; the body need not run where no lane asks."""
