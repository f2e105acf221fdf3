"""The contract by which a user's element joins native plans: its operations written once, in the scalar vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from topos.element.functions import F32_BODIES, F64_BODIES
from topos.element.numpy_reading import evaluate
from topos.element.vocabulary import Body, Value, Vocabulary

if TYPE_CHECKING:
    from topos.element.element import Array

WIDTHS = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "float": 4, "double": 8}
"""Bytes of what may lie in memory."""
_PATTERNS: dict[str, np.dtype[Any]] = {"float": np.dtype(np.int32), "double": np.dtype(np.int64)}
_FLOATS: dict[str, np.dtype[Any]] = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}


@dataclass(frozen=True, eq=False)
class Native:
    """What an element's numbers are in registers and in memory, and what its operations do there.

    Set as `native` on an `Element`: its operations then need no NumPy of their own, and its plans run natively with the
    same bits, since both read the same bodies (`body(m, *operands)`; `topos.element.vocabulary` says what one may do).

    `registers` is `"float"` (binary32) or `"double"`. Without `bodies` an operation is the one of `f32` or `f64`, whose
    result `rounded(m, x)` then makes a number of the element; an entry of `bodies`, under the name of the element's
    method (`"mul"`, `"exp"`), stands instead of both. In memory a number is `stored`: as in registers, or as an integer
    `"i8" .. "i64"` no wider than those, which `opened(m, pattern)` turns into the number and `closed(m, number)` back;
    a pattern is an integer as wide as the registers, of which memory holds the lower bits.

    Casts, products and maxima along an axis are left to the interpreter, and so are sums, where the `accumulator` is
    not the built-in element of these registers.
    """

    registers: str
    rounded: Body | None = None
    bodies: Mapping[str, Body] = field(default_factory=dict)
    stored: str = ""
    opened: Body | None = None
    closed: Body | None = None

    def __post_init__(self) -> None:
        if self.registers not in _PATTERNS:
            raise ValueError(f"native: registers are 'float' or 'double', got {self.registers!r}")
        stored = self.stored or self.registers
        codes = stored.startswith("i") and WIDTHS.get(stored, 9) <= WIDTHS[self.registers]
        if stored != self.registers and not codes:
            raise ValueError(f"native: {self.registers} numbers cannot be stored as {stored!r}")
        if codes != (self.opened is not None) or codes != (self.closed is not None):
            raise ValueError("native: numbers stored as integers want opened and closed, others neither")
        for name in self.bodies:
            if name not in OPERATIONS:
                raise ValueError(f"native: no operation is called {name!r}")
        object.__setattr__(self, "stored", stored)

    @property
    def as_codes(self) -> bool:
        """Whether memory holds integers that stand for the numbers."""
        return self.opened is not None

    def operation(self, name: str) -> Body:
        """An operation over numbers in registers."""
        if name in self.bodies:
            return self.bodies[name]
        body, rounded = _BODIES[self.registers][name], self.rounded
        if rounded is None or name in _EXACT:
            return body
        return lambda m, *operands: rounded(m, body(m, *operands))

    def to_element(self, m: Vocabulary, value: Value) -> Value:
        """A result of the registers' arithmetic as a number of the element."""
        return value if self.rounded is None else self.rounded(m, value)

    # the NumPy reading
    def computed(self, name: str, dtype: np.dtype[Any], *arrays: Array) -> Array:
        """An operation over arrays of the element's dtype that broadcast: an array of it."""
        return self._ran(self.operation(name), dtype, *arrays)

    def widened(self, array: Array) -> Array:
        """Numbers as they lie in memory, as the floats that they are in registers."""
        if not self.as_codes:
            return array
        opened = self.opened
        assert opened is not None
        pattern = evaluate(lambda m, code: m.bits(opened(m, code)), self._codes(array))
        return pattern.view(_FLOATS[self.registers])

    def narrowed(self, array: Array, dtype: np.dtype[Any]) -> Array:
        """Floats of the registers, each made a number of the element, as they lie in memory."""
        closed = self.closed
        if closed is None:
            return evaluate(self.to_element, array)
        pattern = evaluate(lambda m, x: closed(m, self.to_element(m, m.real(x))), array.view(_PATTERNS[self.registers]))
        return self._as_stored(pattern, dtype)

    def _ran(self, body: Body, dtype: np.dtype[Any], *arrays: Array) -> Array:
        if not self.as_codes:
            return evaluate(body, *arrays)
        opened, closed = self.opened, self.closed
        assert opened is not None and closed is not None
        whole: Body = lambda m, *codes: closed(m, body(m, *(opened(m, code) for code in codes)))  # noqa: E731
        return self._as_stored(evaluate(whole, *map(self._codes, arrays)), dtype)

    def _codes(self, array: Array) -> Array:
        """What lies in memory as patterns: zeros come in above."""
        unsigned = np.dtype(f"u{WIDTHS[self.stored]}")
        return np.ascontiguousarray(array).reshape(array.shape).view(unsigned).astype(_PATTERNS[self.registers])

    def _as_stored(self, pattern: Array, dtype: np.dtype[Any]) -> Array:
        return pattern.astype(np.dtype(f"u{WIDTHS[self.stored]}")).view(dtype)


def _maximum(m: Vocabulary, left: Value, right: Value) -> Value:
    return m.select((left >= right) | (left != left), left, right)


def _step(one: int) -> Body:
    """One where `x >= threshold`, else zero; its bits are given, since a body has constants beside values alone."""
    return lambda m, x, threshold: m.select(x >= threshold, m.real((m.bits(x) & 0) | one), 0.0)


_PLAIN: dict[str, Body] = {
    "add": lambda m, left, right: left + right,
    "sub": lambda m, left, right: left - right,
    "mul": lambda m, left, right: left * right,
    "div": lambda m, left, right: left / right,
    "neg": lambda m, x: -x,
    "maximum": _maximum,
    "select": lambda m, mask, chosen, other: m.select(mask != 0.0, chosen, other),
}
_BODIES: dict[str, Mapping[str, Body]] = {
    "float": {**F32_BODIES, **_PLAIN, "step": _step(0x3F800000)},
    "double": {**F64_BODIES, **_PLAIN, "step": _step(0x3FF0000000000000)},
}
OPERATIONS = frozenset(_BODIES["float"])
"""The names of an element's operations."""
_EXACT = frozenset({"maximum", "select", "step"})
"""What only moves numbers, or answers zero or one."""
