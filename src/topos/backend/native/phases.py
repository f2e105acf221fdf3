"""Passes across few long columns, each by all threads: blocks of 512 terms are shared out instead of columns.

A pass is a kernel of its own, whose tiles are blocks of terms; it leaves the total of every block. What needs a whole
column first takes those totals again at its own start, in the stated order: so no tile waits for another, and the bits
are those of one walk.
"""

from __future__ import annotations

from math import prod

from topos.backend.native.costs import weight
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import Kernel
from topos.backend.native.nest import WORK
from topos.backend.native.passes import Gathered
from topos.backend.native.program import Call
from topos.backend.native.reductions import Rows
from topos.backend.native.registers import INT64, Integer, Operand, Type
from topos.backend.native.rows import Across
from topos.backend.native.target import Target
from topos.backend.native.vocabulary import Lanes
from topos.reference.sums import BLOCK

FEW = 8
"""Shares of the columns from which on there is enough to do without blocks."""


def suits_phases(rows: Rows) -> bool:
    """Whether the columns of a group are too few to be shared out, and long enough to be cut into blocks."""
    if rows.is_along or rows.extent <= BLOCK:
        return False
    shares = max([*rows.before, *rows.after[:-1], -(-rows.after[-1] // rows.frame.lanes)])
    return shares < min(_pass_work(rows) // WORK, FEW, -(-rows.extent // BLOCK))


def _pass_work(rows: Rows) -> int:
    return rows.group.shape.volume * weight(rows.lowering.spec, rows.group.rows) // rows.passes.count


def phases(lowering: Lowering, group: Group, target: Target) -> Call:
    """A kernel for each pass, and one that writes what there is once per column."""
    first = _Phase(lowering, group, target)
    kernels = [first.kernel(0)]
    kernels += [_Phase(lowering, group, target).kernel(index) for index in range(1, first.passes.count)]
    if any(lowering.is_across(row) for row in group.writes):
        kernels.append(_Phase(lowering, group, target).last())
    return Call(tuple(kernels), first.frame.pointers)


class _Phase(Rows):
    """One pass of a group; between the kernels the totals of blocks, and what is kept, lie in scratch memory."""

    def __init__(self, lowering: Lowering, group: Group, target: Target) -> None:
        super().__init__(lowering, group, target)
        self.blocks = -(-self.extent // BLOCK)
        self.totals = {
            what: self._shared(self._accumulated(what.row).type, self.blocks)
            for gathered in self.passes.gathered
            for what in gathered
        }
        self.is_last = False

    def kernel(self, index: int) -> Kernel:
        """A pass: each tile does some blocks, once it has learned what the passes before have gathered."""
        frame, function, depth = self.frame, self.frame.function, len(self.before)
        whole, rest = divmod(self.extent, BLOCK)

        def columns(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
            at, others = outer[depth], (*outer[:depth], *outer[depth + 1 :])
            frame.vectors(begin, end, self.after[-1], lambda inner, count: block(at, others, inner, count))

        def block(at: Integer, outer: tuple[Integer, ...], inner: Integer, count: Integer | None) -> None:
            self._learn(outer, inner, count, index)
            if not rest:
                self._block(index, at, BLOCK)
                return
            function.when(function.below(at, whole), lambda: self._block(index, at, BLOCK))
            function.when(function.below(whole - 1, at), lambda: self._block(index, whole, rest))

        return frame.kernel("phase", frame.tiled([*self.before, self.blocks, *self.after], _pass_work(self), columns))

    def last(self) -> Kernel:
        """What there is once per column: written when no other kernel of the group can read what it replaces."""
        self.is_last = True
        frame = self.frame

        def columns(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
            frame.vectors(
                begin, end, self.after[-1], lambda inner, count: self._learn(outer, inner, count, self.passes.count)
            )

        return frame.kernel("columns", frame.tiled([*self.before, *self.after], 0, columns))

    def _learn(self, outer: tuple[Integer, ...], inner: Integer, count: Integer | None, passes: int) -> None:
        """Stands at a column, and takes the totals of its first passes."""
        self.begin(outer, inner, count)
        for index in range(passes):
            for what in self.passes.gathered[index]:
                self.gather(what, self._summed(what))
            self.known(index + 1)

    def _summed(self, what: Gathered) -> Lanes:
        each, place = self.accumulator(what), self.totals[what]
        (total,) = Across(self.frame, self.blocks).walk([each], lambda at, _: [self._at(place, each.m.type, at)])
        return total

    def _block(self, index: int, at: Integer, terms: int) -> None:
        gathered, function = self.passes.gathered[index], self.frame.function
        first = function.multiply(at, BLOCK)
        held = Across(self.frame, terms).walk(
            [self.accumulator(what) for what in gathered],
            lambda term, present: self.body(index, function.add(first, term), present),
        )
        for what, total in zip(gathered, held, strict=True):
            function.store(total, self._place(self.totals[what], total.type, self.blocks, at), total.type.align)

    def _set(self, row: int, value: Lanes) -> None:
        self._know(row, value)
        if self.is_last:
            self._put(row, value)

    # scratch memory, with a place for each register of columns
    def _room(self, row: int) -> Operand:
        return self._shared(self.frame.arithmetic(self.frame.element(row)).type, self.extent)

    def _kept_at(self, row: int, at: Integer) -> Operand:
        return self._place(self.rooms[row], self.frame.arithmetic(self.frame.element(row)).type, self.extent, at)

    def _shared(self, type: Type, count: int) -> Operand:
        registers = prod([*self.before, *self.after[:-1]]) * -(-self.after[-1] // self.frame.lanes)
        return self.frame.shared(type.bytes * count * registers)

    def _at(self, base: Operand, type: Type, at: Integer) -> Lanes:
        place = self._place(base, type, self.blocks, at)
        return self.frame.reading.lanes_of(self.frame.function.load(type, place, type.align))

    def _place(self, base: Operand, type: Type, count: int, at: Integer) -> Operand:
        """Number `at` of the `count` that the register of columns has from a base on."""
        function, lanes = self.frame.function, self.frame.lanes
        column: Integer = 0
        for index, extent in zip(self.outer, [*self.before, *self.after[:-1]], strict=True):
            column = function.add(function.multiply(column, extent), index)
        register: Integer
        if isinstance(self.inner, int):
            register = self.inner // lanes
        else:
            register = function.let(INT64, f"udiv i64 {self.inner.text}, {lanes}")
        column = function.add(function.multiply(column, -(-self.after[-1] // lanes)), register)
        return function.offset(base, type, function.add(function.multiply(column, count), at))
