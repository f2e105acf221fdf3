"""A function in the making, as LLVM text: registers, blocks, counted loops, memory, and what it needs beside it.

Written line by line, since a plan prints hundreds of kernels. Values are never kept in memory to change them: a loop
carries them in phis, so the text needs no pass over it before it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topos.backend.native.kernel import PARAMETERS, Kernel, named
from topos.backend.native.registers import (
    INT64,
    POINTER,
    TRUTH,
    Integer,
    Operand,
    Type,
    absent,
    listed,
    vector,
    written,
)

RARELY = ', !prof !{!"branch_weights", i32 1, i32 2000}'
"""Behind a branch whose first way is hardly taken: its code is laid out of the way."""


class Function:
    """The body of one function, written in order; `block` is the label of the block being written.

    `helpers` holds the declarations and constants that the text needs, each once and by its first line.
    """

    def __init__(self, parameters: str = PARAMETERS) -> None:
        self.parameters = parameters
        self.block = "entry"
        self.helpers: dict[str, None] = {}
        self._lines: list[str] = ["entry:"]
        self._write = self._lines.append
        self._count = 0
        self._rooms: list[str] = []
        self._declared: set[str] = set()

    # lines
    def write(self, instruction: str) -> None:
        """An instruction without a result."""
        self._write(f"  {instruction}")

    def let(self, type: Type, instruction: str) -> Operand:
        """An instruction, its result in a new register of the type."""
        self._count = count = self._count + 1
        self._write(f"  %v{count} = {instruction}")
        return Operand(type, f"%v{count}")

    def let_text(self, instruction: str) -> str:
        """An instruction; answers its register's bare name."""
        self._count = count = self._count + 1
        self._write(f"  %v{count} = {instruction}")
        return f"%v{count}"

    def call(self, type: Type, intrinsic: str, *arguments: Operand) -> Operand:
        """A call of `llvm.<intrinsic>`, its suffixes included, which is declared too; a `void` one is not for this."""
        return self.let(type, self._called(type.text, intrinsic, arguments))

    def run(self, intrinsic: str, *arguments: Operand) -> None:
        """A call of a `void` `llvm.<intrinsic>`, which is declared too."""
        self.write(self._called("void", intrinsic, arguments))

    def _called(self, result: str, intrinsic: str, arguments: Sequence[Operand]) -> str:
        if intrinsic not in self._declared:
            self._declared.add(intrinsic)
            types = ", ".join(argument.type.text for argument in arguments)
            self.helpers[f"declare {result} @llvm.{intrinsic}({types})"] = None
        return f"call {result} @llvm.{intrinsic}({', '.join(map(str, arguments))})"

    def need(self, helper: str) -> None:
        """A further definition beside the function, of one line."""
        self.helpers[helper] = None

    # blocks
    def label(self, stem: str) -> str:
        """A label that is not in use."""
        self._count += 1
        return f"{stem}{self._count}"

    def start(self, label: str) -> None:
        """Ends the current block, which has branched, and starts another."""
        self._write(f"{label}:")
        self.block = label

    def branch(self, label: str) -> None:
        """Goes on at a label."""
        self._write(f"  br label %{label}")

    def branch_if(self, condition: Operand, chosen: str, other: str, rarely: bool = False) -> None:
        """Goes on at one of two labels; `rarely` says that `chosen` hardly ever is."""
        self._write(f"  br i1 {condition.text}, label %{chosen}, label %{other}{RARELY if rarely else ''}")

    def join(self, type: Type, ways: Sequence[tuple[Operand, str]]) -> Operand:
        """A phi at the start of the current block: the operand of the block that control came from."""
        incoming = ", ".join(f"[ {operand.text}, %{block} ]" for operand, block in ways)
        return self.let(type, f"phi {type.text} {incoming}")

    def when(self, condition: Operand, body: Callable[[], None], rarely: bool = False) -> None:
        """Runs the body where a scalar condition holds."""
        inside, after = self.label("when"), self.label("after")
        self.branch_if(condition, inside, after, rarely)
        self.start(inside)
        body()
        self.branch(after)
        self.start(after)

    def loop(
        self,
        begin: Integer,
        end: Integer,
        step: int,
        body: Callable[..., Sequence[Operand] | None],
        carried: Sequence[Operand] = (),
    ) -> tuple[Operand, ...]:
        """Runs `body(index, *carried) -> carried` for `begin, begin + step, ...` while below `end`.

        Bounds and steps are not negative. Answers what the last round carried, or the initial operands where there was
        no round. Bounds that are Python numbers save the test on entry; a single round then saves the loop, and its
        `index` is a Python number too.
        """
        if isinstance(begin, int) and isinstance(end, int):
            if begin >= end:
                return tuple(carried)
            if begin + step >= end:
                return tuple(body(begin, *carried) or ())
            return self._rounds(begin, end, step, body, carried)
        before, enter, after = self.block, self.label("enter"), self.label("after")
        self.branch_if(self.below(begin, end), enter, after)
        self.start(enter)
        results = self._rounds(begin, end, step, body, carried)
        inside = self.block
        self.branch(after)
        self.start(after)
        pairs = zip(results, carried, strict=True)
        return tuple(self.join(last.type, [(last, inside), (first, before)]) for last, first in pairs)

    def _rounds(
        self,
        begin: Integer,
        end: Integer,
        step: int,
        body: Callable[..., Sequence[Operand] | None],
        carried: Sequence[Operand],
    ) -> tuple[Operand, ...]:
        """The loop itself, of one round or more. The phis are written last, since they name the end of the body."""
        before, head, after = self.block, self.label("loop"), self.label("after")
        self.branch(head)
        self.start(head)
        place = len(self._lines)
        phis = [Operand(first.type, f"%{self.label('c')}") for first in carried]
        index = Operand(INT64, f"%{self.label('i')}")
        results = tuple(body(index, *phis) or ())
        following = self.let(INT64, f"add nuw nsw i64 {index.text}, {step}")
        firsts, lasts = [written(begin), *(first.text for first in carried)], [following, *results]
        self._lines[place:place] = [
            f"  {phi.text} = phi {phi.type.text} [ {first}, %{before} ], [ {last.text}, %{self.block} ]"
            for phi, first, last in zip([index, *phis], firsts, lasts, strict=True)
        ]
        self.branch_if(self.below(following, end), head, after)
        self.start(after)
        return results

    # 64-bit integers, worked out while the text is written where they are known
    def add(self, left: Integer, right: Integer) -> Integer:
        """`left + right`."""
        if isinstance(left, int) and isinstance(right, int):
            return left + right
        if left == 0 or right == 0:
            return right if left == 0 else left
        return self.let(INT64, f"add i64 {written(left)}, {written(right)}")

    def multiply(self, left: Integer, right: Integer) -> Integer:
        """`left * right`."""
        if isinstance(left, int) and isinstance(right, int):
            return left * right
        if left == 0 or right == 0:
            return 0
        if left == 1 or right == 1:
            return right if left == 1 else left
        return self.let(INT64, f"mul i64 {written(left)}, {written(right)}")

    def least(self, left: Integer, right: Integer) -> Integer:
        """The smaller of two."""
        if isinstance(left, int) and isinstance(right, int):
            return min(left, right)
        return self.call(INT64, "smin.i64", *(Operand(INT64, written(side)) for side in (left, right)))

    def below(self, left: Integer, right: Integer) -> Operand:
        """Whether `left < right`, signed."""
        return self.let(TRUTH, f"icmp slt i64 {written(left)}, {written(right)}")

    # pointers and memory
    def argument(self, position: int) -> Operand:
        """The pointer at a position of the array `%arguments`."""
        place = self.offset(Operand(POINTER, "%arguments"), POINTER, position)
        return self.let(POINTER, f"load ptr, ptr {place.text}, align 8")

    def offset(self, pointer: Operand, item: Type, index: Integer) -> Operand:
        """The address `index` items after `pointer`."""
        if index == 0:
            return pointer
        return self.let(POINTER, f"getelementptr inbounds {item.text}, ptr {pointer.text}, i64 {written(index)}")

    def room(self, item: Type, count: int) -> Operand:
        """Memory on the stack for `count` items, for as long as the function runs."""
        self._count += 1
        self._rooms.append(f"  %r{self._count} = alloca [{count} x {item.text}], align 64")
        return Operand(POINTER, f"%r{self._count}")

    def begin_with(self, *lines: str) -> None:
        """Lines for the start of the function, known late."""
        self._rooms += lines

    def load(self, type: Type, pointer: Operand, align: int) -> Operand:
        """What lies at an address; LLVM would assume a vector to be aligned to its own size."""
        return self.let(type, f"load {type.text}, ptr {pointer.text}, align {align}")

    def store(self, value: Operand, pointer: Operand, align: int) -> None:
        """Puts a value at an address."""
        self._write(f"  store {value}, ptr {pointer.text}, align {align}")

    def prefix(self, lanes: int, count: Integer) -> Operand:
        """The mask of the first `count` lanes."""
        truth = vector("i1", lanes)
        if isinstance(count, int):
            return listed(truth, tuple(lane < count for lane in range(lanes)))
        index = vector("i64", lanes)
        spread = self.spread(index, count)
        return self.let(truth, f"icmp slt {listed(index, tuple(range(lanes)))}, {spread.text}")

    def load_first(self, type: Type, pointer: Operand, count: Integer, align: int) -> Operand:
        """The first `count` lanes from an address on; the memory of the others is not touched."""
        if isinstance(count, int) and count >= type.lanes:
            return self.load(type, pointer, align)
        return self.load_masked(type, pointer, self.prefix(type.lanes, count), align)

    def store_first(self, value: Operand, pointer: Operand, count: Integer, align: int) -> None:
        """Puts the first `count` lanes at an address; the memory after them is not touched."""
        if isinstance(count, int) and count >= value.type.lanes:
            self.store(value, pointer, align)
        elif count == 1:
            # LLVM 22.1.0 makes a masked store of one lane of truncated numbers as wide as they were before.
            one = self.let(value.type.of_one(), f"extractelement {value}, i64 0")
            self.store(one, pointer, align)
        else:
            self.store_masked(value, pointer, self.prefix(value.type.lanes, count), align)

    def load_masked(self, type: Type, pointer: Operand, mask: Operand, align: int) -> Operand:
        """The lanes where the mask holds; the memory of the others is not touched."""
        if type.lanes == 1:
            return self._load_where(type, pointer, mask, align)
        name = f"masked.load.{type.suffix}.p0"
        return self.call(type, name, Operand(POINTER, f"align {align} {pointer.text}"), mask, absent(type))

    def _load_where(self, type: Type, pointer: Operand, mask: Operand, align: int) -> Operand:
        before, loaded = self.block, []
        self.when(mask, lambda: loaded.append((self.load(type, pointer, align), self.block)))
        return self.join(type, [*loaded, (absent(type), before)])

    def store_masked(self, value: Operand, pointer: Operand, mask: Operand, align: int) -> None:
        """Puts the lanes where the mask holds; the memory of the others is not touched.

        A mask written as a constant must not be of one lane alone: see `store_first`.
        """
        if value.type.lanes == 1:
            self.when(mask, lambda: self.store(value, pointer, align))
            return
        name = f"masked.store.{value.type.suffix}.p0"
        self.write(self._called("void", name, (value, Operand(POINTER, f"align {align} {pointer.text}"), mask)))

    # lanes
    def spread(self, type: Type, scalar: Operand) -> Operand:
        """A scalar in every lane of a vector type."""
        if type.lanes == 1:
            return scalar
        first = self.let(type, f"insertelement {type.text} poison, {scalar}, i64 0")
        order = f"<{type.lanes} x i32> zeroinitializer"
        return self.let(type, f"shufflevector {first}, {type.text} poison, {order}")

    def any(self, mask: Operand) -> Operand:
        """Whether a mask holds in any lane."""
        return mask if mask.type.lanes == 1 else self.call(TRUTH, f"vector.reduce.or.{mask.type.suffix}", mask)

    # the whole
    def text(self, name: str) -> str:
        """The definition of `@name`."""
        lines = "\n".join([self._lines[0], *self._rooms, *self._lines[1:]])
        return f"define void @{name}({self.parameters}) nounwind {{\n{lines}\n  ret void\n}}\n"

    def kernel(self, stem: str, tiles: int, scratch_bytes: int = 0) -> Kernel:
        """The function as a kernel, named by its own text."""
        return named(stem, self.text, tiles, scratch_bytes, tuple(self.helpers))
