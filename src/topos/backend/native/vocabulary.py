"""The LLVM reading of the vocabulary in which the elementary functions are written: Python's operators write text.

Every operation is IEEE-754's, rounded once: no fast-math flag is written, without which LLVM neither contracts nor
reassociates, and nothing that could become a call into a mathematics library. Equal subexpressions are written again;
LLVM finds them.
"""

from __future__ import annotations

from typing import Any

from topos.backend.native.lookup import entries
from topos.backend.native.registers import Operand, Type, literal, splat, vector
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.element.vocabulary import Body, Table, Value

SPLITTER = 2.0**27 + 1.0
"""Veltkamp's constant: halves a binary64 significand."""
SIGN_BITS = {"float": -0x80000000, "double": -0x8000000000000000}
AS_INTEGER = {"float": "i32", "double": "i64"}
AS_FLOAT = {"i32": "float", "i64": "double"}


class Lanes(Operand):
    """Lanes of `float`, `double`, `i32`, `i64` or a mask (`i1`), whose operators write instructions.

    A Python number beside lanes is a constant of their type.
    """

    __slots__ = ("reading",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, reading: NativeReading, type: Type, text: str) -> None:
        self.reading = reading
        self.type = type
        self.text = text

    def _apply(self, operation: str, other: Any) -> Lanes:
        type = self.type
        text = other.text if isinstance(other, Lanes) else self.reading.constant_text(type, other)
        return Lanes(self.reading, type, self.reading.let(f"{operation} {type.text} {self.text}, {text}"))

    def _apply_swapped(self, operation: str, number: float) -> Lanes:
        type, text = self.type, self.reading.constant_text(self.type, number)
        return Lanes(self.reading, type, self.reading.let(f"{operation} {type.text} {text}, {self.text}"))

    def _compare(self, floating: str, integer: str, other: Any) -> Lanes:
        order = f"fcmp {floating}" if self.type.floating else f"icmp {integer}"
        result = self._apply(order, other)
        result.type = self.type.of("i1")
        return result

    def __add__(self, other: Any) -> Lanes:
        return self._apply("fadd" if self.type.floating else "add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Lanes:
        return self._apply("fsub" if self.type.floating else "sub", other)

    def __rsub__(self, number: float) -> Lanes:
        return self._apply_swapped("fsub" if self.type.floating else "sub", number)

    def __mul__(self, other: Any) -> Lanes:
        return self._apply("fmul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Lanes:
        return self._apply("fdiv", other)

    def __rtruediv__(self, number: float) -> Lanes:
        return self._apply_swapped("fdiv", number)

    def __neg__(self) -> Lanes:
        return Lanes(self.reading, self.type, self.reading.let(f"fneg {self.type.text} {self.text}"))

    def __and__(self, other: Any) -> Lanes:
        return self._apply("and", other)

    def __or__(self, other: Any) -> Lanes:
        return self._apply("or", other)

    def __xor__(self, other: Any) -> Lanes:
        return self._apply("xor", other)

    def __invert__(self) -> Lanes:
        return self._apply("xor", -1 if self.type.item != "i1" else True)

    def __lshift__(self, other: Any) -> Lanes:
        return self._apply("shl", other)

    def __rshift__(self, other: Any) -> Lanes:
        return self._apply("ashr", other)

    # An ordered comparison is false beside NaN; `!=` is the unordered one.
    def __lt__(self, other: Any) -> Lanes:
        return self._compare("olt", "slt", other)

    def __le__(self, other: Any) -> Lanes:
        return self._compare("ole", "sle", other)

    def __gt__(self, other: Any) -> Lanes:
        return self._compare("ogt", "sgt", other)

    def __ge__(self, other: Any) -> Lanes:
        return self._compare("oge", "sge", other)

    def __eq__(self, other: Any) -> Lanes:  # type: ignore[override]
        return self._compare("oeq", "eq", other)

    def __ne__(self, other: Any) -> Lanes:  # type: ignore[override]
        return self._compare("une", "ne", other)

    def __bool__(self) -> bool:
        raise TypeError("lanes have no truth while the text is written: use select or rare")


class NativeReading:
    """The vocabulary over `lanes` lanes of a function in the making.

    `target` decides only how exact products and lookups are spelled, never a bit.
    """

    def __init__(self, function: Function, lanes: int, target: Target) -> None:
        self.function = function
        self.lanes = lanes
        self.target = target
        self.let = function.let_text
        self._constants: dict[tuple[str, Any], str] = {}

    # values
    def type(self, item: str) -> Type:
        """This many lanes of an item."""
        return vector(item, self.lanes)

    def lanes_of(self, operand: Operand) -> Lanes:
        """A register or a constant of the function as a value of the vocabulary."""
        return Lanes(self, operand.type, operand.text)

    def constant(self, item: str, number: float) -> Lanes:
        """A Python number in every lane, rounded once."""
        type = self.type(item)
        return Lanes(self, type, self.constant_text(type, number))

    def constant_text(self, type: Type, number: float) -> str:
        """A Python number as an operand of a type."""
        # Zeros of either sign are one key, so they are spelled anew; a NaN is found by identity.
        text = self._constants.get((type.text, number)) if number else None
        if text is None:
            text = splat(type, literal(type.item, number)).text
            if number:
                self._constants[type.text, number] = text
        return text

    def _call(self, type: Type, name: str, *operands: Operand) -> Lanes:
        return self.lanes_of(self.function.call(type, f"{name}.{type.suffix}", *operands))

    def convert(self, operation: str, x: Operand, item: str) -> Lanes:
        """An instruction that turns lanes into as many of another item."""
        type = x.type.of(item)
        return Lanes(self, type, self.let(f"{operation} {x.type.text} {x.text} to {type.text}"))

    def shifted_down(self, pattern: Lanes, count: int) -> Lanes:
        """An integer shifted right, zeros coming in from above: the vocabulary's `>>` copies the sign."""
        type, text = pattern.type, self.constant_text(pattern.type, count)
        return Lanes(self, type, self.let(f"lshr {type.text} {pattern.text}, {text}"))

    def _pair(self, left: Value, right: Value) -> tuple[Lanes, Lanes]:
        """Two values of one type, of which one may be a Python number."""
        if not isinstance(left, Lanes):
            return Lanes(self, right.type, self.constant_text(right.type, left)), right
        if not isinstance(right, Lanes):
            return left, Lanes(self, left.type, self.constant_text(left.type, right))
        return left, right

    # words
    def select(self, mask: Value, chosen: Value, other: Value) -> Value:
        """`chosen` where the mask holds, else `other`."""
        chosen, other = self._pair(chosen, other)
        type = chosen.type.text
        choice = f"select {mask.type.text} {mask.text}, {type} {chosen.text}, {type} {other.text}"
        return Lanes(self, chosen.type, self.let(choice))

    def sqrt(self, x: Value) -> Value:
        """The IEEE square root."""
        return self._call(x.type, "sqrt", x)

    def widen(self, x: Value) -> Value:
        """binary32 to binary64."""
        return self.convert("fpext", x, "double")

    def narrow(self, x: Value) -> Value:
        """binary64 to binary32, rounded to nearest even."""
        return self.convert("fptrunc", x, "float")

    def bits(self, x: Value) -> Value:
        """A float's bits as an integer."""
        return self.convert("bitcast", x, AS_INTEGER[x.type.item])

    def real(self, pattern: Value) -> Value:
        """The float whose bits these are."""
        return self.convert("bitcast", pattern, AS_FLOAT[pattern.type.item])

    def absolute(self, x: Value) -> Value:
        """`x` with its sign bit cleared."""
        return self._call(x.type, "fabs", x)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        """A magnitude with the sign of `sign`: by `or`, since its own sign bit is clear or right."""
        return self.real(self.bits(magnitude) | (self.bits(sign) & SIGN_BITS[sign.type.item]))

    def two_product(self, left: Value, right: Value) -> tuple[Value, Value]:
        """The product and its rounding error: by a fused multiply-add, or Dekker's without the hardware.

        LLVM would turn the fused operation of a target that has none into a call of a library.
        """
        left, right = self._pair(left, right)
        product = left * right
        if self.target.has_fma:
            return product, self._call(product.type, "fma", left, right, -product)
        left_high, left_low = split(left)
        right_high, right_low = split(right)
        rest = ((left_high * right_high - product) + left_high * right_low) + left_low * right_high
        return product, rest + left_low * right_low

    def add_exact(self, addend: Value, left: Value, right: Value) -> Value:
        """`addend + left * right`, fused where the target can: the product is exact, so the bits are the same."""
        if not self.target.has_fma:
            return left * right + addend
        left, right = self._pair(left, right)
        addend, left = self._pair(addend, left)
        return self._call(left.type, "fma", left, right, addend)

    def add_product(self, addend: Value, left: Value, right: Value) -> Value:
        """`addend + left * right`, fused where the target can."""
        return self.add_exact(addend, left, right)

    def lookup(self, table: Table, index: Value) -> Value:
        """Entries of a constant table, the index modulo its length."""
        return self.lanes_of(entries(self.function, self.target, table, index))

    def rare(self, mask: Value, body: Body, operands: tuple[Value, ...], default: Value) -> Value:
        """The body's value where the mask holds, chosen lane by lane behind one branch on whether any lane asks."""
        function, before = self.function, self.function.block
        asked, after = function.label("rare"), function.label("after")
        function.branch_if(function.any(mask), asked, after, rarely=True)
        function.start(asked)
        chosen = self.select(mask, body(self, *operands), default)
        inside = function.block
        function.branch(after)
        function.start(after)
        return self.lanes_of(function.join(default.type, [(chosen, inside), (default, before)]))


def split(x: Value) -> tuple[Value, Value]:
    """A binary64 below 2^990 as two halves of 26 significant bits (Veltkamp)."""
    scaled = x * SPLITTER
    high = scaled - (scaled - x)
    return high, x - high
