"""Windows added back onto their axis.

Every place collects what it is given, offset after offset, in a register: nothing is cleared, and each place is stored
once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from topos.backend.native.costs import lanes_up_to
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.loops import lanes_for
from topos.backend.native.nest import Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import Place
from topos.backend.native.registers import INT64, TRUTH, Integer, Operand, listed, vector, written
from topos.backend.native.target import Target
from topos.backend.native.views import dense, dense_strides, merged
from topos.backend.native.vocabulary import Lanes
from topos.op import Fold
from topos.op.movement import window_count

UNROLLED = 16
"""Offsets that are written one by one."""


def fold(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """The lanes are neighbours after the axis, or along it where nothing comes after and windows are a step apart."""
    (row,) = group.rows
    opcode = lowering.spec.rows[row].opcode
    assert isinstance(opcode, Fold)
    is_along = prod(group.shape[opcode.axis + 1 :]) == 1 and opcode.step == 1
    lanes = lanes_for(lowering, group, target)
    if is_along:
        lanes = lanes_up_to(lanes, opcode.extent)
    work = _Windows(Frame(lowering, target, lanes), row, opcode, group)
    frame = work.frame

    def along(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        frame.vectors(begin, end, opcode.extent, lambda index, count: work.along(outer, index, count))

    def across(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        frame.vectors(begin, end, work.after[-1], lambda index, count: work.across(outer, index, count))

    size = prod(group.shape) * opcode.size
    if is_along:
        tiles = frame.tiled([*work.before, opcode.extent], size, along)
    else:
        tiles = frame.tiled([*work.before, opcode.extent, *work.after], size, across)
    return Call((frame.kernel("fold", tiles),), frame.pointers)


class _Windows:
    """The operand and the result of a fold, laid out: axes before, window and offset (or place), axes after."""

    def __init__(self, frame: Frame, row: int, opcode: Fold, group: Group) -> None:
        self.frame = frame
        self.opcode = opcode
        self.count = window_count("fold", opcode.extent, opcode.size, opcode.step, opcode.dilation)
        (self.operand,) = frame.spec.rows[row].operands
        self.own = frame.arithmetic(frame.element(row))
        self.m = frame.arithmetic(frame.element(row).accumulator)
        axis, own = opcode.axis, list(dense_strides(group.shape))
        read = None if self.operand in frame.lowering.constants else frame.read(self.operand)
        self.result = frame.add(dense(row, group.shape), self.own.bytes)
        maps = [] if read is None else read.maps
        self.before, first = merged(group.shape[:axis], [*[map[:axis] for map in maps], own[:axis]])
        self.after, last = merged(group.shape[axis + 1 :], [*[map[axis + 2 :] for map in maps], own[axis + 1 :]])
        self._maps = [
            (outer, map[axis], map[axis + 1], inner) for map, outer, inner in zip(maps, first, last, strict=False)
        ]
        self._first, self._last, self._step = first[-1], last[-1], own[axis]
        self._read = read

    def across(self, outer: tuple[Integer, ...], index: Integer, count: Integer | None) -> None:
        """One place of the axis, for neighbours after it."""
        if self._read is not None:
            self._read.maps = [[*o, w, f, *i] for o, w, f, i in self._maps]
        depth = len(self.before)
        head, at, tail = outer[:depth], outer[depth], outer[depth + 1 :]
        # The indices in the order of the maps: before, window, offset, after.
        value = self.m.constant(0.0)

        def add(offset: Integer, held: Operand) -> list[Operand]:
            return [self._given(head, tail, at, offset, index, count, held)]

        total = self._offsets(add, value)
        steps = [*self._first, self._step, *self._last]
        self.frame.store(self.own, self.own.rounded(total), self.result, steps, Place(outer, index, count))

    def _given(
        self,
        head: tuple[Integer, ...],
        tail: tuple[Integer, ...],
        at: Integer,
        offset: Integer,
        index: Integer,
        count: Integer | None,
        held: Operand,
    ) -> Operand:
        """The sum with what one offset gives a place, where a window has its offset there."""
        function, opcode = self.frame.function, self.opcode
        start = function.add(at, function.multiply(offset, -opcode.dilation))
        window, fits = start, self._below(start, (self.count - 1) * opcode.step + 1)
        if opcode.step > 1:
            window = function.let(INT64, f"udiv i64 {written(start)}, {opcode.step}")
            rest = function.let(INT64, f"urem i64 {written(start)}, {opcode.step}")
            none = function.let(TRUTH, f"icmp eq i64 {rest.text}, 0")
            fits = function.let(TRUTH, f"and i1 {fits.text}, {none.text}")
        before = function.block
        inside: list[tuple[Operand, str]] = []

        def one() -> None:
            place = Place((*head, window, offset, *tail), index, count)
            value = self.frame.value(self.operand, place, self.own.element)
            inside.append((self._lanes(held) + value, function.block))

        function.when(fits, one)
        return function.join(held.type, [*inside, (held, before)])

    def along(self, outer: tuple[Integer, ...], index: Integer, count: Integer | None) -> None:
        """Neighbouring places of the axis, whose windows are neighbours too."""
        if self._read is not None:
            self._read.maps = [[*o, f, w] for o, w, f, _ in self._maps]

        def add(offset: Integer, held: Operand) -> list[Operand]:
            return [self._lanes(held) + self._masked(outer, index, offset, count)]

        total = self._offsets(add, self.m.constant(0.0))
        steps = [*self._first, self._step]
        self.frame.store(self.own, self.own.rounded(total), self.result, steps, Place(outer, index, count))

    def _masked(self, outer: tuple[Integer, ...], index: Integer, offset: Integer, count: Integer | None) -> Lanes:
        """What one offset gives neighbouring places; `+0.0`, which changes no sum, where it gives nothing."""
        frame, function = self.frame, self.frame.function
        start = function.add(index, function.multiply(offset, -self.opcode.dilation))
        places = vector("i64", frame.lanes)
        first = Operand(INT64, written(start))
        windows = self._lanes(function.spread(places, first))
        if frame.lanes > 1:
            windows = windows + self._lanes(listed(places, tuple(range(frame.lanes))))
        below = function.let(places.of("i1"), f"icmp ult {windows}, {frame.reading.constant_text(places, self.count)}")
        if count is not None:
            present = function.prefix(frame.lanes, count)
            below = function.let(below.type, f"and {below}, {present.text}")
        place = Place((*outer, offset), start, None)
        value = frame.value_where(self.operand, place, self.own.element, below)
        return frame.reading.select(self._lanes(below), value, 0.0)  # type: ignore[no-any-return]

    def _offsets(self, add: Callable[[Integer, Operand], list[Operand]], start: Lanes) -> Lanes:
        """The sum over the offsets in ascending order."""
        function = self.frame.function
        if self.opcode.size > UNROLLED:
            return self._lanes(function.loop(0, self.opcode.size, 1, add, [start])[0])
        held: Operand = start
        for offset in range(self.opcode.size):
            (held,) = add(offset, held)
        return self._lanes(held)

    def _below(self, number: Integer, limit: int) -> Operand:
        """Whether `0 <= number < limit`."""
        return self.frame.function.let(TRUTH, f"icmp ult i64 {written(number)}, {limit}")

    def _lanes(self, operand: Operand) -> Lanes:
        return self.frame.reading.lanes_of(operand)
