"""The NumPy reading of the scalar vocabulary, and the evaluator that runs a body over arrays of any shape.

Only `+ - * /`, square roots, comparisons, selections and integer operations reach NumPy: each of these is exact or
rounded once, so a value has the same bits wherever its element stands in an array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from topos.element.element import Array
from topos.element.fma import two_product
from topos.element.vocabulary import Body, Table, Value

BLOCK = 8192
"""Elements per run of a body: a binary64 temporary is 64 KiB, so the handful that live at once stay in the L2 cache."""

_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)
_SIGN = {_FLOAT32: -0x80000000, _FLOAT64: -0x8000000000000000}
_REST = {_FLOAT32: 0x7FFFFFFF, _FLOAT64: 0x7FFFFFFFFFFFFFFF}


class NumpyReading:
    """Values are one-dimensional arrays of native byte order."""

    def __init__(self) -> None:
        self._tables: dict[Table, Array] = {}

    def select(self, mask: Value, chosen: Value, other: Value) -> Value:
        """`chosen` where the mask holds, else `other`."""
        return np.where(mask, chosen, other)

    def sqrt(self, x: Value) -> Value:
        """The IEEE square root."""
        return np.sqrt(x)

    def widen(self, x: Value) -> Value:
        """binary32 to binary64."""
        return x.astype(_FLOAT64)

    def narrow(self, x: Value) -> Value:
        """binary64 to binary32."""
        return x.astype(_FLOAT32)

    def bits(self, x: Value) -> Value:
        """A float's bits as a signed integer."""
        return x.view(_INT32 if x.dtype == _FLOAT32 else _INT64)

    def real(self, pattern: Value) -> Value:
        """The float whose bits these are."""
        return pattern.view(_FLOAT32 if pattern.dtype == _INT32 else _FLOAT64)

    def absolute(self, x: Value) -> Value:
        """`x` with its sign bit cleared."""
        return self.real(self.bits(x) & _REST[x.dtype])

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        """A non-negative magnitude with the sign of `sign`."""
        return self.real(self.bits(magnitude) | (self.bits(sign) & _SIGN[sign.dtype]))

    def two_product(self, left: Value, right: Value) -> tuple[Value, Value]:
        """The product and its rounding error."""
        return two_product(np.asarray(left), np.asarray(right))

    def add_exact(self, addend: Value, left: Value, right: Value) -> Value:
        """`addend + left * right`, whose product is exact."""
        return addend + left * right

    def add_product(self, addend: Value, left: Value, right: Value) -> Value:
        """`addend + left * right`, rounded twice."""
        return addend + left * right

    def lookup(self, table: Table, index: Value) -> Value:
        """Entries of a table, the index modulo its length."""
        entries = self._tables.get(table)
        if entries is None:
            entries = self._tables[table] = np.array(table.values, _FLOAT64)
        return entries[index & (entries.size - 1)]

    def rare(self, mask: Value, body: Body, operands: tuple[Value, ...], default: Value) -> Value:
        """The body over the elements that ask for it, the default elsewhere."""
        if not mask.any():
            return default
        result = default.copy()
        result[mask] = body(self, *(operand[mask] for operand in operands))
        return result


NUMPY = NumpyReading()


def evaluate(body: Body, *operands: Array) -> Array:
    """A body over arrays of one dtype that broadcast against one another: a new array in row-major order.

    The body runs over flat blocks of `BLOCK` elements. Callers silence NumPy's floating-point warnings: bodies compute
    lanes that they discard.
    """
    first = operands[0]
    if len(operands) > 1 and any(operand.shape != first.shape for operand in operands):
        operands = np.broadcast_arrays(*operands)
        first = operands[0]
    flat: list[Any] = [operand.reshape(-1) for operand in operands]
    size = first.size
    if size <= BLOCK:
        small: Array = body(NUMPY, *flat)
        return small.reshape(first.shape)
    result = np.empty(size, first.dtype)
    for start in range(0, size, BLOCK):
        block = slice(start, start + BLOCK)
        result[block] = body(NUMPY, *(operand[block] for operand in flat))
    return result.reshape(first.shape)
