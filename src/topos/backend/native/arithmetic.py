"""The arithmetic of `f32`, `f64` and `bf16` over lanes: the `m` of an elementwise instruction's body, and its memory.

The bodies of the elementary functions are the ones that the NumPy elements run, so the bits are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topos.backend.native.registers import Integer, Operand
from topos.backend.native.vocabulary import Lanes, NativeReading
from topos.element import Element, bf16, f32, f64
from topos.element.functions import F32_BODIES, F64_BODIES
from topos.element.vocabulary import Body
from topos.errors import ElementError


class Arithmetic:
    """IEEE lanes: a binary32 or binary64 in memory and in registers.

    `stored` is the item in memory, `item` the one in registers, where they differ.
    """

    element: Element
    item: str
    stored: str
    bytes: int
    bodies: Mapping[str, Body]

    def __init__(self, reading: NativeReading) -> None:
        self.reading = reading
        self.type = reading.type(self.item)

    # memory
    def load(self, pointer: Operand, count: Integer | None = None) -> Lanes:
        """Neighbouring numbers from an address on; of the first `count` lanes where given (see `absent`)."""
        function, type = self.reading.function, self.reading.type(self.stored)
        if count is None:
            return self.opened(function.load(type, pointer, self.bytes))
        return self.opened(function.load_first(type, pointer, count, self.bytes))

    def load_one(self, pointer: Operand) -> Lanes:
        """The number at an address, in every lane."""
        function, type = self.reading.function, self.reading.type(self.stored)
        return self.opened(function.spread(type, function.load(type.of_one(), pointer, self.bytes)))

    def store(self, value: Lanes, pointer: Operand, count: Integer | None = None) -> None:
        """Puts lanes next to one another from an address on; the first `count` of them where given."""
        function, stored = self.reading.function, self.closed(value)
        if count is None:
            function.store(stored, pointer, self.bytes)
        else:
            function.store_first(stored, pointer, count, self.bytes)

    def offset(self, pointer: Operand, index: Integer) -> Operand:
        """The address `index` numbers after `pointer`."""
        return self.reading.function.offset(pointer, self.reading.type(self.stored).of_one(), index)

    def opened(self, stored: Operand) -> Lanes:
        """What lay in memory as a value."""
        return self.reading.lanes_of(stored)

    def closed(self, value: Lanes) -> Operand:
        """A value as it lies in memory."""
        return value

    def constant(self, number: Any) -> Lanes:
        """One number of the element (a payload of rank 0, or a Python number that it holds) in every lane."""
        return self.reading.constant(self.item, float(number))

    def cast(self, value: Lanes, source: Arithmetic) -> Lanes:
        """Lanes of another element as this one's, rounded once: the `Cast` instruction."""
        if source.item == self.item:
            return value
        return lanes(self.reading.widen(value) if self.item == "double" else self.reading.narrow(value))

    # arithmetic
    def rounded(self, value: Lanes) -> Lanes:
        """A result of the registers' arithmetic as a number of the element."""
        return value

    def add(self, left: Lanes, right: Lanes) -> Lanes:
        """`left + right`."""
        return self.rounded(left + right)

    def sub(self, left: Lanes, right: Lanes) -> Lanes:
        """`left - right`."""
        return self.rounded(left - right)

    def mul(self, left: Lanes, right: Lanes) -> Lanes:
        """`left * right`."""
        return self.rounded(left * right)

    def div(self, left: Lanes, right: Lanes) -> Lanes:
        """`left / right`."""
        return self.rounded(left / right)

    def neg(self, x: Lanes) -> Lanes:
        """`-x`: the sign bit flipped."""
        return -x

    def maximum(self, left: Lanes, right: Lanes) -> Lanes:
        """`left` where it is NaN or `left >= right`, else `right`.

        As `right` where that is greater or NaN: between two NaN it makes no difference which, and processors have an
        instruction for the first half.
        """
        select = self.reading.select
        greater = select(right > left, right, left)
        return lanes(select(right != right, right, greater))

    def step(self, x: Lanes, threshold: Lanes) -> Lanes:
        """One where `x >= threshold`, else zero; zero beside NaN."""
        one = self.reading.constant(self.item, 1.0)
        return lanes(self.reading.select(x >= threshold, one, 0.0))

    def select(self, mask: Lanes, chosen: Lanes, other: Lanes) -> Lanes:
        """`chosen` where the mask is nonzero (NaN is), else `other`."""
        return lanes(self.reading.select(mask != 0.0, chosen, other))

    # maps
    def _map(self, function: str, *operands: Lanes) -> Lanes:
        return self.rounded(self.bodies[function](self.reading, *operands))

    def powf(self, base: Lanes, exponent: Lanes) -> Lanes:
        """`base` to the power `exponent`, by the special cases of IEEE `pow`."""
        return self._map("powf", base, exponent)

    def exp(self, x: Lanes) -> Lanes:
        """The exponential."""
        return self._map("exp", x)

    def ln(self, x: Lanes) -> Lanes:
        """The natural logarithm."""
        return self._map("ln", x)

    def sqrt(self, x: Lanes) -> Lanes:
        """The square root."""
        return self._map("sqrt", x)

    def tanh(self, x: Lanes) -> Lanes:
        """The hyperbolic tangent."""
        return self._map("tanh", x)

    def sin(self, x: Lanes) -> Lanes:
        """The sine of `x` radians."""
        return self._map("sin", x)

    def cos(self, x: Lanes) -> Lanes:
        """The cosine of `x` radians."""
        return self._map("cos", x)

    def log1p(self, x: Lanes) -> Lanes:
        """`ln(1 + x)`."""
        return self._map("log1p", x)

    def expm1(self, x: Lanes) -> Lanes:
        """`exp(x) - 1`."""
        return self._map("expm1", x)

    def erf(self, x: Lanes) -> Lanes:
        """The error function."""
        return self._map("erf", x)

    def erf_derivative(self, x: Lanes) -> Lanes:
        """`2 / sqrt(pi) * exp(-x^2)`."""
        return self._map("erf_derivative", x)


class Float32(Arithmetic):
    """The arithmetic of `f32`."""

    element, item, stored, bytes, bodies = f32, "float", "float", 4, F32_BODIES


class Float64(Arithmetic):
    """The arithmetic of `f64`."""

    element, item, stored, bytes, bodies = f64, "double", "double", 8, F64_BODIES


class BFloat16(Arithmetic):
    """The arithmetic of `bf16`: lanes of binary32 whose values are bfloat16 numbers, rounded after every operation.

    Rounding works on integers: the processors' own conversion flushes subnormals. What only moves numbers or flips
    their signs needs none.
    """

    element, item, stored, bytes, bodies = bf16, "float", "i16", 2, F32_BODIES

    def opened(self, stored: Operand) -> Lanes:
        reading = self.reading
        wide = reading.convert("zext", stored, "i32")
        return lanes(reading.real(wide << 16))

    def closed(self, value: Lanes) -> Operand:
        reading = self.reading
        return reading.convert("trunc", reading.shifted_down(reading.bits(value), 16), "i16")

    def rounded(self, value: Lanes) -> Lanes:
        """binary32 rounded to nearest even, in place; NaN becomes the quiet NaN, whose payload does not end below."""
        reading = self.reading
        pattern = reading.bits(value)
        odd = reading.shifted_down(pattern, 16) & 1
        nearest = reading.real((pattern + (odd + 0x7FFF)) & -0x10000)
        return lanes(reading.select(value != value, float("nan"), nearest))

    def cast(self, value: Lanes, source: Arithmetic) -> Lanes:
        """Lanes of another element, rounded once: a binary64 goes through a binary32 rounded to odd."""
        if isinstance(source, BFloat16):
            return value
        return self.rounded(value if source.item == "float" else rounded_to_odd(self.reading, value))


def rounded_to_odd(reading: NativeReading, value: Lanes) -> Lanes:
    """binary64 as binary32, towards zero, the last bit set where anything was lost (see `topos.element.bfloat16`)."""
    nearest = reading.narrow(value)
    back = reading.widen(nearest)
    pattern = reading.bits(nearest)
    outward = reading.absolute(back) > reading.absolute(value)
    odd = reading.real(reading.select(outward, pattern - 1, pattern) | 1)
    lost = (back < value) | (back > value)
    return lanes(reading.select(lost, odd, nearest))


def lanes(value: Any) -> Lanes:
    """A value of the vocabulary, which is open there, by its type here."""
    assert isinstance(value, Lanes)
    return value


_ARITHMETICS: dict[Element, type[Arithmetic]] = {f32: Float32, f64: Float64, bf16: BFloat16}


def arithmetic(element: Element, reading: NativeReading) -> Arithmetic:
    """The arithmetic of an element over the lanes of a reading.

    Raises `ElementError` for an element without a native reading.
    """
    found = _ARITHMETICS.get(element)
    if found is not None:
        return found(reading)
    if element.native is None:
        raise ElementError(f"native: element {element.name} has no native arithmetic")
    from topos.backend.native.bodies import ByBodies

    return ByBodies(reading, element, element.native)
