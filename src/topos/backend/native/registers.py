"""Typed operands of LLVM text: the types of lanes, registers, and constants written by their bits."""

from __future__ import annotations

import struct
from functools import cache

from topos.records import NamedTuple
from topos.tensor.memory import LINE

ITEM_BITS = {"float": 32, "double": 64, "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "ptr": 64}
"""The scalar types, as LLVM spells them."""


class Type(NamedTuple):
    """`lanes` numbers of one `item` type, a scalar where that is 1. Made by `vector`, so equal types are one object.

    `text` is the type as LLVM writes it, `suffix` as the names of intrinsics do (`v16f32`); `bytes` is what it fills
    in memory.
    """

    item: str
    lanes: int
    text: str
    suffix: str
    floating: bool
    bytes: int

    @property
    def align(self) -> int:
        """What the addresses of such lanes are multiples of where they follow one another from a cache line on."""
        return min(LINE, self.bytes)

    def of(self, item: str) -> Type:
        """As many lanes of another item."""
        return vector(item, self.lanes)

    def of_one(self) -> Type:
        """The type of one lane."""
        return vector(self.item, 1)


@cache
def vector(item: str, lanes: int) -> Type:
    """The type of `lanes` items; the scalar type where `lanes` is 1."""
    bits = ITEM_BITS[item]
    floating = item in ("float", "double")
    short = f"f{bits}" if floating else "p0" if item == "ptr" else item
    text, suffix = (item, short) if lanes == 1 else (f"<{lanes} x {item}>", f"v{lanes}{short}")
    return Type(item, lanes, text, suffix, floating, bits * lanes // 8)


class Operand:
    """A typed operand: `text` names a register or spells a constant."""

    __slots__ = ("text", "type")

    def __init__(self, type: Type, text: str) -> None:
        self.type = type
        self.text = text

    def __str__(self) -> str:
        """As an argument: the type, then the operand."""
        return f"{self.type.text} {self.text}"


Integer = Operand | int
"""A 64-bit integer, known while the text is written or not."""

BYTE, INT32, INT64, POINTER, TRUTH = (vector(item, 1) for item in ("i8", "i32", "i64", "ptr", "i1"))


def written(index: Integer) -> str:
    """A 64-bit integer as an operand's text."""
    return str(index) if isinstance(index, int) else index.text


def literal(item: str, number: float) -> str:
    """A Python number as a constant of an item type, rounded once to nearest even.

    Floats are written as the hexadecimal bits of a binary64, which LLVM wants of a `float` too: a decimal would have
    to be exact.
    """
    if item == "i1":
        return "true" if number else "false"
    if item not in ("float", "double"):
        return str(int(number))
    wide = float(number)
    if item == "float":
        wide = struct.unpack("<f", struct.pack("<f", wide))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', wide))[0]:016X}"


@cache
def splat(type: Type, text: str) -> Operand:
    """The literal `text` in every lane."""
    return Operand(type, text if type.lanes == 1 else f"splat ({type.item} {text})")


def constant(type: Type, number: float) -> Operand:
    """A Python number in every lane."""
    return splat(type, literal(type.item, number))


def listed(type: Type, numbers: tuple[float, ...]) -> Operand:
    """One Python number per lane."""
    if type.lanes == 1:
        return constant(type, numbers[0])
    items = ", ".join(f"{type.item} {literal(type.item, number)}" for number in numbers)
    return Operand(type, f"<{items}>")


def zeros(type: Type) -> Operand:
    """Zero bits in every lane."""
    return Operand(type, "zeroinitializer")


def absent(type: Type) -> Operand:
    """What lanes hold that were not loaded: ones, which are also what an `i16` of a bfloat16 holds; integers zero.

    Not zeros: LLVM 22.1.0 takes `0 / 0` for zero in a lane that it knows to be zero.
    """
    if type.floating:
        return constant(type, 1.0)
    return constant(type, 0x3F80 if type.item == "i16" else 0)
