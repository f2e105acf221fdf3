"""Kernels of folds that work out what they fold, each number in the register of the place that it is added to.

The lanes are neighbours along the last axis. Where that is folded, each of its offsets is a line of numbers with its
own lanes; what the lines read is loaded once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from topos.backend.native.costs import lanes_up_to, weight
from topos.backend.native.evaluator import Evaluator
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.loops import lanes_for
from topos.backend.native.near import MOST_NEAR, UNROLLED, counted, counted_shortly, taken
from topos.backend.native.nest import Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import Place
from topos.backend.native.registers import INT64, TRUTH, Integer, Operand, listed, written
from topos.backend.native.target import Target
from topos.backend.native.vocabulary import Lanes
from topos.element import Element
from topos.op import Fold
from topos.op.movement import window_count
from topos.records import NamedTuple


class _Line(NamedTuple):
    """Lanes: where each lies on its axis, `None` for those that read nothing, and an offset for every other axis.

    Both are counted from where the lines begin. `exists` has the lanes that may be read, where not all may.
    """

    offsets: tuple[int, ...]
    lanes: tuple[int | None, ...]
    exists: Operand | None


class _Lines(NamedTuple):
    """Lines that begin at one place; `axis` is that of the lanes, -1 of a single one, whose index is a multiple."""

    begin: tuple[Integer, ...]
    axis: int
    multiple: int
    lines: list[_Line]


def fold_lines(lowering: Lowering, group: Group, target: Target) -> Call:
    """A fold and the rows that make what it folds."""
    row, shape = group.rows[-1], group.shape
    axis = max((at for at, extent in enumerate(shape) if extent > 1), default=len(shape) - 1)
    lanes = lanes_up_to(lanes_for(lowering, group, target), shape[axis])
    step = _step(lowering, group, axis)
    active = lanes // step * step
    if not active:
        lanes = active = 1
    frame = Frame(lowering, target, lanes)
    for operand in group.reads:
        frame.read(operand)
    numbered = tuple(lane if lane < active else None for lane in range(lanes))
    own, stored = frame.arithmetic(frame.element(row)), lowering.views[row]
    result = frame.add(stored, own.bytes)
    work = _Work(frame, group)

    def body(outer: tuple[Integer, ...], _begin: Integer, _end: Integer) -> None:
        *before, block = outer
        index = frame.function.multiply(block, active)
        first = (*before, index, *[0] * (len(shape) - axis - 1))
        whole = active == lanes and not shape[axis] % active
        exists = None if whole else counted_shortly(frame, index, numbered, shape[axis])
        line = _Line((0,) * len(shape), numbered, exists)
        (value,) = work.folded(row, _Lines(first, axis if lanes > 1 else -1, active, [line]))
        steps, left = stored.strides[: axis + 1], frame.function.add(shape[axis], frame.function.multiply(index, -1))
        if exists is None or isinstance(index, int) or steps[-1] != 1:
            count = None if exists is None else frame.function.least(left, active)
            frame.store(own, value, result, steps, Place(tuple(before), index, count))
        else:
            place = own.offset(result, frame.offset(steps, Place(tuple(before), index, None)))
            frame.function.store_masked(own.closed(value), place, exists, own.bytes)

    folds = [opcode for row in group.rows if isinstance(opcode := lowering.spec.rows[row].opcode, Fold)]
    size = shape.volume * prod(fold.size for fold in folds) * weight(lowering.spec, group.rows)
    tiles = frame.tiled([*shape[:axis], -(-shape[axis] // active), 1], size, body)
    return Call((frame.kernel("fold", tiles),), frame.pointers)


def _step(lowering: Lowering, group: Group, axis: int) -> int:
    """How far places lie apart whose windows are neighbours, along an axis of the result."""
    step = 1
    for row in reversed(group.rows):
        opcode = lowering.spec.rows[row].opcode
        if isinstance(opcode, Fold) and opcode.axis == axis:
            step *= opcode.step
        elif isinstance(opcode, Fold) and opcode.axis < axis:
            axis += 1
    return step


class _Work:
    """The rows of a group at lines of places: one register for each line."""

    def __init__(self, frame: Frame, group: Group) -> None:
        self.frame = frame
        self._evaluator = Evaluator(frame, group)

    def folded(self, row: int, lines: _Lines) -> list[Lanes]:
        """A fold: the sums over its offsets in ascending order."""
        opcode = self.frame.spec.rows[row].opcode
        assert isinstance(opcode, Fold)
        along = self._along if lines.axis == opcode.axis else self._across
        own = self.frame.arithmetic(self.frame.element(row))
        return [own.rounded(total) for total in along(row, opcode, lines)]

    def _along(self, row: int, opcode: Fold, lines: _Lines) -> list[Lanes]:
        """Of the axis of the lanes: all offsets are lines of their own."""
        frame, axis, step = self.frame, opcode.axis, opcode.step
        count, first = _count(opcode), lines.begin[axis]
        if step > 1:
            first = (
                first // step if isinstance(first, int) else frame.function.let(INT64, f"udiv i64 {first.text}, {step}")
            )
        begin = (*lines.begin[:axis], first, 0, *lines.begin[axis + 1 :])
        inner: list[_Line] = []
        for line in lines.lines:
            for at in range(opcode.size):
                starts = [
                    None if lane is None else lane + line.offsets[axis] - at * opcode.dilation for lane in line.lanes
                ]
                windows = tuple(None if start is None or start % step else start // step for start in starts)
                # Where there is a window, there is the place that it holds: a line need not be asked again.
                exists = counted_shortly(frame, first, windows, count)
                offsets = (*line.offsets[:axis], 0, at, *line.offsets[axis + 1 :])
                inner.append(_Line(offsets, windows, exists))
        moved = _Lines(begin, axis, lines.multiple // step, inner)
        values = self._operand(row, moved)
        totals = []
        for at in range(len(lines.lines)):
            total = self._zero(row)
            for line, value in zip(inner[at * opcode.size :], values[at * opcode.size :][: opcode.size], strict=False):
                assert line.exists is not None
                total = total + frame.reading.select(frame.reading.lanes_of(line.exists), value, 0.0)
            totals.append(total)
        return totals

    def _across(self, row: int, opcode: Fold, lines: _Lines) -> list[Lanes]:
        """Of another axis: all lanes of all lines have the same window there, or none."""
        function, axis = self.frame.function, opcode.axis
        if any(line.offsets[axis] for line in lines.lines):
            return [self._across(row, opcode, self._alone(lines, line, axis))[0] for line in lines.lines]
        inner = [line._replace(offsets=(*line.offsets[:axis], 0, *line.offsets[axis:])) for line in lines.lines]

        def add(at: Integer, *held: Operand) -> list[Operand]:
            return self._offset(row, opcode, lines._replace(lines=inner), at, held)

        totals: Sequence[Operand] = [self._zero(row) for _ in inner]
        if opcode.size > UNROLLED:
            totals = function.loop(0, opcode.size, 1, add, totals)
        else:
            for at in range(opcode.size):
                totals = add(at, *totals)
        return [self.frame.reading.lanes_of(total) for total in totals]

    def _offset(self, row: int, opcode: Fold, lines: _Lines, at: Integer, held: Sequence[Operand]) -> list[Operand]:
        """The sums with what one offset gives all lines, where a window has it there."""
        function, axis, lanes_of = self.frame.function, opcode.axis, self.frame.reading.lanes_of
        start = window = function.add(lines.begin[axis], function.multiply(at, -opcode.dilation))
        reach = (_count(opcode) - 1) * opcode.step + 1
        fits = function.let(TRUTH, f"icmp ult i64 {written(start)}, {reach}")
        if opcode.step > 1:
            window = function.let(INT64, f"udiv i64 {written(start)}, {opcode.step}")
            rest = function.let(INT64, f"urem i64 {written(start)}, {opcode.step}")
            none = function.let(TRUTH, f"icmp eq i64 {rest.text}, 0")
            fits = function.let(TRUTH, f"and i1 {fits.text}, {none.text}")
        begin = (*lines.begin[:axis], window, at, *lines.begin[axis + 1 :])
        before, ways = function.block, list[tuple[Operand, str]]()

        def one() -> None:
            values = self._operand(row, lines._replace(begin=begin, axis=lines.axis + (lines.axis > axis)))
            sums = [lanes_of(total) + value for total, value in zip(held, values, strict=True)]
            ways.extend((total, function.block) for total in sums)

        function.when(fits, one)
        return [function.join(old.type, [way, (old, before)]) for way, old in zip(ways, held, strict=True)]

    def _alone(self, lines: _Lines, line: _Line, axis: int) -> _Lines:
        """One of the lines, with its offset along an axis where it begins."""
        begin = self.frame.function.add(lines.begin[axis], line.offsets[axis])
        offsets = (*line.offsets[:axis], 0, *line.offsets[axis + 1 :])
        return lines._replace(
            begin=(*lines.begin[:axis], begin, *lines.begin[axis + 1 :]), lines=[line._replace(offsets=offsets)]
        )

    def _zero(self, row: int) -> Lanes:
        return self.frame.arithmetic(self.frame.element(row).accumulator).constant(0.0)

    def _operand(self, row: int, lines: _Lines) -> list[Lanes]:
        """What a fold folds."""
        (operand,) = self.frame.spec.rows[row].operands
        return self._values(operand, self.frame.element(row), lines, {})

    def _values(
        self, operand: int, wanted: Element, lines: _Lines, held: dict[tuple[int, str], list[Lanes]]
    ) -> list[Lanes]:
        """An operand: a row of the group, worked out, or numbers, loaded."""
        base = self._evaluator.base(operand)
        key = (operand if base is None else base), wanted.name if base is None else ""
        if key in held:
            return held[key]
        if base is None:
            held[key] = self._read(operand, wanted, lines)
        elif isinstance(self.frame.spec.rows[base].opcode, Fold):
            held[key] = self.folded(base, lines)
        else:
            held[key] = [self._applied(base, lines, at, held) for at in range(len(lines.lines))]
        return held[key]

    def _applied(self, row: int, lines: _Lines, at: int, held: dict[tuple[int, str], list[Lanes]]) -> Lanes:
        return self._evaluator.apply(
            row, self.frame.reading, lambda operand, wanted: self._values(operand, wanted, lines, held)[at]
        )

    # memory
    def _read(self, operand: int, wanted: Element, lines: _Lines) -> list[Lanes]:
        """Numbers at the lanes of each line; those of others are any."""
        frame, function = self.frame, self.frame.function
        if operand in frame.lowering.constants:
            return [frame.value(operand, Place((), 0, None), wanted)] * len(lines.lines)
        read = frame.reads[operand]
        assert read.element is not None
        m, steps = frame.arithmetic(read.element), read.maps[0]
        first: Integer = 0
        for index, step in zip(lines.begin, steps, strict=True):
            first = function.add(first, function.multiply(index, step))
        along = steps[lines.axis] if lines.axis >= 0 else 0
        places = []
        for line in lines.lines:
            start = sum(offset * step for offset, step in zip(line.offsets, steps, strict=True))
            places.append({lane: start + at * along for lane, at in enumerate(line.lanes) if at is not None})
        if along == 0:
            starts = [next(iter(each.values()), 0) for each in places]
            ones = {
                start: m.load_one(m.offset(read.pointer, function.add(first, start))) for start in dict.fromkeys(starts)
            }
            return [ones[start] for start in starts]
        return _Numbers(frame, operand, first).taken(places, lines.lines)


class _Numbers:
    """Numbers of a buffer near a place."""

    def __init__(self, frame: Frame, operand: int, first: Integer) -> None:
        self._frame, self._first = frame, first
        read, view = frame.reads[operand], frame.lowering.view(operand)
        assert read.element is not None
        self._m, self._pointer = frame.arithmetic(read.element), read.pointer
        self._before, self._volume = view.offset, frame.spec.rows[view.row].shape.volume

    def taken(self, places: Sequence[dict[int, int]], lines: Sequence[_Line]) -> list[Lanes]:
        """Those at places, for each line: loaded as they lie, taken out of a few registers, or one by one."""
        lanes = self._frame.lanes
        starts = [_start(each) for each in places]
        if None not in starts:
            shared = {start: starts.count(start) for start in starts if start is not None}
            masks = {start: line.exists for start, line in zip(starts, lines, strict=True) if start is not None}
            loaded = {at: self._line(at, masks[at], times > 1) for at, times in shared.items()}
            return [loaded[start] for start in starts if start is not None]
        every = [place for each in places for place in each.values()]
        least, chunks = min(every), range(0, max(every) - min(every) + 1, lanes)
        if len(chunks) > MOST_NEAR:
            return [self._gathered(each, line) for each, line in zip(places, lines, strict=True)]
        held = [self._line(least + chunk, None, True) for chunk in chunks]
        return [
            taken(self._frame, held, {lane: place - least for lane, place in each.items()}) if each else held[0]
            for each in places
        ]

    def _line(self, start: int, exists: Operand | None, is_shared: bool) -> Lanes:
        """Neighbouring numbers, those that exist or, for several lines, those that the buffer has."""
        m, function = self._m, self._frame.function
        first = function.add(self._first, start)
        place, type = m.offset(self._pointer, first), m.reading.type(m.stored)
        if not is_shared:
            return m.load(place) if exists is None else m.opened(function.load_masked(type, place, exists, m.bytes))
        number, lanes = function.add(first, self._before), self._frame.lanes
        if self._volume < lanes:
            exists = counted(self._frame, number, range(lanes), self._volume)
            return m.opened(function.load_masked(type, place, exists, m.bytes))
        edge, inside, after = function.label("edge"), function.label("inside"), function.label("after")
        function.branch_if(
            function.let(TRUTH, f"icmp ugt i64 {written(number)}, {self._volume - lanes}"), edge, inside, True
        )
        function.start(edge)
        exists = counted(self._frame, number, range(lanes), self._volume)
        some = function.load_masked(type, place, exists, m.bytes)
        function.branch(after)
        function.start(inside)
        every = function.load(type, place, m.bytes)
        function.branch(after)
        function.start(after)
        return m.opened(function.join(type, [(some, edge), (every, inside)]))

    def _gathered(self, places: dict[int, int], line: _Line) -> Lanes:
        frame, m = self._frame, self._m
        lanes = range(frame.lanes)
        index = m.reading.type("i64")
        offsets = listed(index, tuple(places.get(lane, 0) for lane in lanes))
        base = m.offset(self._pointer, self._first)
        item = m.reading.type(m.stored).of_one().text
        pointers = frame.function.let(
            m.reading.type("ptr"), f"getelementptr inbounds {item}, ptr {base.text}, {offsets}"
        )
        exists = line.exists
        if exists is None:
            exists = listed(m.reading.type("i1"), tuple(lane in places for lane in lanes))
        return frame.gathered(m, Operand(pointers.type, f"align {m.bytes} {pointers.text}"), exists)


def _start(places: dict[int, int]) -> int | None:
    """Where lanes lie that follow one another; `None` where they do not."""
    starts = {place - lane for lane, place in places.items()}
    return starts.pop() if len(starts) == 1 else None if starts else 0


def _count(opcode: Fold) -> int:
    return window_count("fold", opcode.extent, opcode.size, opcode.step, opcode.dilation)
