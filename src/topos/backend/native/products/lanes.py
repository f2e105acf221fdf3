"""The numbers of a product in vectors: widened loads, the fused step, transposes and the store."""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.products.fused import fused
from topos.backend.native.products.task import ITEM_BYTES
from topos.backend.native.products.text import Text
from topos.backend.native.products.transpose import Units, transposed
from topos.backend.native.target import Target
from topos.records import NamedTuple

_ITEMS = {"bf16": "i16", "f32": "float", "f64": "double"}


class Results(NamedTuple):
    """A vector of finished results: its first `active` lanes, along the columns that are computed.

    They belong to one product of the batch, from (`row`, `column`) on in the form that is computed. A `mask` in a
    register says it of the lanes where only the run knows.
    """

    value: str
    product: str
    row: str
    column: str
    active: int
    mask: str = ""


class Lanes:
    """How the numbers of a product's element lie in registers of a target, and in memory, `stored` as they may be."""

    def __init__(self, element: str, target: Target, width: int = 0, stored: str = "") -> None:
        self.scalar = "double" if element == "f64" else "float"
        self.wide_bytes = 8 if element == "f64" else 4
        self.item = _ITEMS[stored or element]
        self.item_bytes = ITEM_BYTES[stored or element]
        if self.item_bytes > self.wide_bytes:
            raise ValueError(f"product: an operand stored as {stored} does not widen to {element}")
        self.width = width or target.lanes(self.wide_bytes)
        self.piece = min(self.width, 16 // self.item_bytes)
        self.has_fma = target.has_fma
        # Of fewer bytes than a word, AVX2 would mask number by number; and what it masks, it is slow to store.
        self.has_quick_masks = target.vector_bytes == 64
        self.has_masks = self.has_quick_masks or (target.vector_bytes == 32 and self.item_bytes >= 4)
        self.vector = f"<{self.width} x {self.scalar}>"

    def _mask(self, active: int) -> str:
        return "<" + ", ".join(f"i1 {int(lane < active)}" for lane in range(self.width)) + ">"

    def _widened(self, text: Text, value: str, width: int) -> str:
        """Stored numbers as accumulators; width 0 is one number that is no vector."""
        narrow, word, real, wide = (
            f"<{width} x {kind}>" if width else kind for kind in ("i16", "i32", "float", "double")
        )
        if self.item == "i16":
            raised = text.let(f"zext {narrow} {value} to {word}")
            shifted = text.let(f"shl {word} {raised}, {'splat (i32 16)' if width else '16'}")
            value = text.let(f"bitcast {word} {shifted} to {real}")
        return text.let(f"fpext {real} {value} to {wide}") if self.item != self.scalar == "double" else value

    # loads; `wide` reads what was packed, in the accumulator's type
    def number(self, text: Text, pointer: str) -> str:
        """One number."""
        loaded = text.let(f"load {self.item}, ptr {pointer}, align {self.item_bytes}")
        return self._widened(text, loaded, 0)

    def splat(self, text: Text, pointer: str, wide: bool = False) -> str:
        """One number in every lane."""
        if wide or self.item != "i16" or self.scalar == "double":
            packed = text.let(f"load {self.scalar}, ptr {pointer}, align {self.wide_bytes}") if wide else ""
            loaded = packed or self.number(text, pointer)
            first = text.let(f"insertelement {self.vector} poison, {self.scalar} {loaded}, i32 0")
            return text.let(f"shufflevector {self.vector} {first}, {self.vector} poison, {_order([0] * self.width)}")
        # Every half of every lane, then the lower halves shifted out: the number never leaves the vector registers.
        halves = f"<{2 * self.width} x i16>"
        loaded = text.let(f"load i16, ptr {pointer}, align 2")
        first = text.let(f"insertelement {halves} poison, i16 {loaded}, i32 0")
        zeros = f"<{2 * self.width} x i32> zeroinitializer"
        doubled = text.let(f"shufflevector {halves} {first}, {halves} poison, {zeros}")
        words = text.let(f"bitcast {halves} {doubled} to <{self.width} x i32>")
        shifted = text.let(f"shl <{self.width} x i32> {words}, splat (i32 16)")
        return text.let(f"bitcast <{self.width} x i32> {shifted} to {self.vector}")

    def load(self, text: Text, pointer: str, active: int, wide: bool = False, mask: str = "") -> str:
        """The first `active` lanes from consecutive numbers, or those of a mask in a register; the others zero."""
        item, size = (self.scalar, self.wide_bytes) if wide else (self.item, self.item_bytes)
        kind = f"<{self.width} x {item}>"
        if active >= self.width and not mask:
            loaded = text.let(f"load {kind}, ptr {pointer}, align {size}")
        else:
            name = self._intrinsic("load", item)
            text.need(f"declare {kind} {name}(ptr, <{self.width} x i1>, {kind})")
            mask = f"<{self.width} x i1> {mask or self._mask(active)}"
            loaded = text.let(f"call {kind} {name}(ptr align {size} {pointer}, {mask}, {kind} zeroinitializer)")
        return loaded if wide else self._widened(text, loaded, self.width)

    def gather(self, text: Text, pointer: str, stride: int, active: int) -> str:
        """The first `active` lanes from numbers `stride` apart, the others zero."""
        return self.beside(text, [text.at(pointer, lane * stride * self.item_bytes) for lane in range(active)])

    def beside(self, text: Text, places: Sequence[str]) -> str:
        """Numbers from some places in the first lanes, the other lanes zero."""
        kind = f"<{self.width} x {self.item}>"
        value = "zeroinitializer"
        for lane, place in enumerate(places):
            loaded = text.let(f"load {self.item}, ptr {place}, align {self.item_bytes}")
            value = text.let(f"insertelement {kind} {value}, {self.item} {loaded}, i32 {lane}")
        return self._widened(text, value, self.width)

    def transposed(self, text: Text, pointer: str, stride: int, active: int) -> list[str]:
        """`width` consecutive numbers of `active` lines `stride` apart: vector `k` holds number `k` of every line."""
        lines = [text.at(pointer, lane * stride * self.item_bytes) for lane in range(active)]
        return self.turned(text, lines, self.width)

    def turned(self, text: Text, lines: Sequence[str], count: int) -> list[str]:
        """The same of `count` numbers, some pieces, of lines from some places on; further lanes repeat the last."""
        lines = [lines[min(lane, len(lines) - 1)] for lane in range(self.width)]
        if self.width * self.item_bytes < 16:
            offsets = [step * self.item_bytes for step in range(count)]
            return [self.beside(text, [text.at(line, offset) for line in lines]) for offset in offsets]
        # Two bf16 change places as one word.
        unit, size = ("i32", 4) if self.item == "i16" else (self.item, self.item_bytes)
        lane = 16 // size

        def load(line: int, piece: int) -> str:
            return text.let(f"load <{lane} x {unit}>, ptr {text.at(lines[line], 16 * piece)}, align {self.item_bytes}")

        def mix(one: str, two: str, order: Sequence[int], size: int = self.width) -> str:
            kind = f"<{size} x {unit}>"
            return text.let(f"shufflevector {kind} {one}, {kind} {two}, {_order(order)}")

        units = Units(load, lambda one, two, size: mix(one, two, range(2 * size), size), mix)
        found = transposed(self.width, lane, count * self.item_bytes // 16, units)
        return [value for vector in found for value in self._opened(text, vector)]

    def _opened(self, text: Text, vector: str) -> list[str]:
        """A transposed vector as accumulators; of words, their lower and then their upper halves."""
        if self.item != "i16":
            return [self._widened(text, vector, self.width)]
        words, real = f"<{self.width} x i32>", f"<{self.width} x float>"
        halves = [
            text.let(f"shl {words} {vector}, splat (i32 16)"),
            text.let(f"and {words} {vector}, splat (i32 -65536)"),
        ]
        narrow = [text.let(f"bitcast {words} {half} to {real}") for half in halves]
        if self.scalar == "float":
            return narrow
        return [text.let(f"fpext {real} {half} to {self.vector}") for half in narrow]

    @property
    def opens_pairs(self) -> bool:
        """Whether two stored numbers in one lane are opened with fewer instructions than one of either."""
        return self.item == "i16" and self.scalar == "float" and self.width > 1

    def paired(self, text: Text, pointer: str) -> list[str]:
        """Two vectors of consecutive numbers: the even ones, and the odd ones."""
        return self._opened(text, text.let(f"load <{self.width} x i32>, ptr {pointer}, align {self.item_bytes}"))

    def unpaired(self, text: Text, even: str, odd: str) -> list[str]:
        """The numbers of two such vectors in their order."""
        order = [lane + side for lane in range(self.width) for side in (0, self.width)]
        halves = order[: self.width], order[self.width :]
        vectors = f"{self.vector} {even}, {self.vector} {odd}"
        return [text.let(f"shufflevector {vectors}, {_order(half)}") for half in halves]

    # arithmetic
    def fma(self, text: Text, a: str, b: str, c: str) -> str:
        """`a * b + c`, rounded once."""
        return fused(text, self.scalar, self.width, a, b, c, self.has_fma)

    def add(self, text: Text, left: str, right: str) -> str:
        """`left + right`."""
        return text.let(f"fadd {self.vector} {left}, {right}")

    # stores
    def keep(self, text: Text, pointer: str, value: str, active: int, item: str = "", mask: str = "") -> None:
        """The first `active` lanes, or those of a mask in a register, as consecutive numbers.

        They are of the accumulator's type unless `item` says another.
        """
        item = item or self.scalar
        size = {"i16": 2, "float": 4, "double": 8}[item]
        kind = f"<{self.width} x {item}>"
        if active >= self.width and not mask:
            text.do(f"store {kind} {value}, ptr {pointer}, align {size}")
            return
        if active == 1 and not mask:
            # Not masked: LLVM 22 stores four bytes for the first of sixteen i16 that were truncated from i32.
            one = text.let(f"extractelement {kind} {value}, i32 0")
            text.do(f"store {item} {one}, ptr {pointer}, align {size}")
            return
        name = self._intrinsic("store", item)
        text.need(f"declare void {name}({kind}, ptr, <{self.width} x i1>)")
        mask = f"<{self.width} x i1> {mask or self._mask(active)}"
        text.do(f"call void {name}({kind} {value}, ptr align {size} {pointer}, {mask})")

    def finish(self, text: Text, pointer: str, stride: int, results: Results) -> None:
        """Finished results, rounded, to their places `stride` apart."""
        value = _rounded(text, results.value, self.width) if self.item == "i16" else results.value
        if stride == 1:
            self.keep(text, pointer, value, results.active, self.item, results.mask)
            return
        for lane in range(results.active):
            one = text.let(f"extractelement <{self.width} x {self.item}> {value}, i32 {lane}")
            place = text.at(pointer, lane * stride * self.item_bytes)
            text.do(f"store {self.item} {one}, ptr {place}, align {self.item_bytes}")

    def rounded(self, text: Text, value: str) -> str:
        """Accumulators as numbers of the element, still in the accumulators' type."""
        if self.item != "i16":
            return value
        return self._widened(text, _rounded(text, value, self.width), self.width)

    def _intrinsic(self, what: str, item: str) -> str:
        return f"@llvm.masked.{what}.v{self.width}{ {'i16': 'i16', 'float': 'f32', 'double': 'f64'}[item] }.p0"


def _order(lanes: Sequence[int]) -> str:
    return f"<{len(lanes)} x i32> <" + ", ".join(f"i32 {lane}" for lane in lanes) + ">"


def prefetch(text: Text, pointer: str, write: bool, locality: int) -> None:
    """A cache line wanted soon; no address is wrong here."""
    text.need("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    text.do(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 {int(write)}, i32 {locality}, i32 1)")


def _rounded(text: Text, value: str, width: int) -> str:
    """f32 as the bits of bf16, to nearest even, in integers; NaN stays NaN with its sign."""
    real, word, narrow = (f"<{width} x {kind}>" for kind in ("float", "i32", "i16"))
    bits = text.let(f"bitcast {real} {value} to {word}")
    upper = text.let(f"lshr {word} {bits}, splat (i32 16)")
    last = text.let(f"and {word} {upper}, splat (i32 1)")
    carry = text.let(f"add {word} {last}, splat (i32 32767)")
    sum_ = text.let(f"add {word} {bits}, {carry}")
    nearest = text.let(f"lshr {word} {sum_}, splat (i32 16)")
    sign = text.let(f"and {word} {upper}, splat (i32 32768)")
    quiet = text.let(f"or {word} {sign}, splat (i32 32704)")
    is_nan = text.let(f"fcmp uno {real} {value}, zeroinitializer")
    chosen = text.let(f"select <{width} x i1> {is_nan}, {word} {quiet}, {word} {nearest}")
    return text.let(f"trunc {word} {chosen} to {narrow}")
