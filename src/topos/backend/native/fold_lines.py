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
from topos.backend.native.near import UNROLLED, Numbers, along_lanes, counted_shortly, lanes_axis
from topos.backend.native.nest import Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import Place
from topos.backend.native.registers import INT64, TRUTH, Integer, Operand, written
from topos.backend.native.target import Target
from topos.backend.native.views import merged
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
    """Lines that begin at one place; `axis` is that of their lanes, -1 where they have one."""

    begin: tuple[Integer, ...]
    axis: int
    lines: list[_Line]


def fold_lines(lowering: Lowering, group: Group, target: Target) -> Call:
    """A fold and the rows that make what it folds."""
    row, stored = group.rows[-1], lowering.views[group.rows[-1]]
    folds = [each for each in group.rows if isinstance(lowering.spec.rows[each].opcode, Fold)]
    shape, (steps, *maps) = _merged(lowering, group, folds)
    axis = lanes_axis(shape)
    lanes = lanes_up_to(lanes_for(lowering, group, target), shape[axis])
    step = _step(lowering, folds, axis)
    active = lanes // step * step
    if not active:
        lanes = active = 1
    numbered = tuple(lane if lane < active else None for lane in range(lanes))
    frame = Frame(lowering, target, lanes)
    for operand, map in zip(group.reads, maps, strict=True):
        frame.read(operand).maps = [map]
    own = frame.arithmetic(frame.element(row))
    result, work = frame.add(stored, own.bytes), _Work(frame, group)

    def body(outer: tuple[Integer, ...], _begin: Integer, _end: Integer) -> None:
        *before, block = outer
        index = frame.function.multiply(block, active)
        is_whole = active == lanes and not shape[axis] % active
        exists = None if is_whole else counted_shortly(frame, index, numbered, shape[axis])
        first = (*before, index, *[0] * (len(shape) - axis - 1))
        line = _Line((0,) * len(shape), numbered, exists)
        (value,) = work.folded(row, _Lines(first, axis if lanes > 1 else -1, [line]))
        if exists is None or isinstance(index, int) or steps[axis] != 1:
            left = frame.function.add(shape[axis], frame.function.multiply(index, -1))
            count = None if exists is None else frame.function.least(left, active)
            frame.store(own, value, result, steps[: axis + 1], Place(tuple(before), index, count))
        else:
            place = own.offset(result, frame.offset(steps[: axis + 1], Place(tuple(before), index, None)))
            frame.function.store_masked(own.closed(value), place, exists, own.bytes)

    offsets = prod(_opcode(lowering, fold).size for fold in folds)
    size = group.shape.volume * offsets * weight(lowering.spec, group.rows)
    tiles = frame.tiled([*shape[:axis], -(-shape[axis] // active), 1], size, body)
    return Call((frame.kernel("fold", tiles),), frame.pointers)


def _merged(lowering: Lowering, group: Group, folds: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """The shape with the axes after all that are folded made as few as they can be; the steps of result and reads."""
    ranks = {fold: lowering.spec.rows[fold].shape.rank for fold in folds}
    after = min(rank - 1 - _opcode(lowering, fold).axis for fold, rank in ranks.items())
    strides = [lowering.view(row).strides for row in (group.rows[-1], *group.reads)]
    extents, steps = merged(group.shape[len(group.shape) - after :], [own[len(own) - after :] for own in strides])
    if not after:
        return [*group.shape], [[*own] for own in strides]
    return [*group.shape[:-after], *extents], [[*own[:-after], *new] for own, new in zip(strides, steps, strict=True)]


def _step(lowering: Lowering, folds: Sequence[int], axis: int) -> int:
    """How far places lie apart whose windows are neighbours, along an axis of the result."""
    opcodes = (_opcode(lowering, fold) for fold in reversed(folds))
    return prod(opcode.step for opcode, is_along in along_lanes(opcodes, axis) if is_along)


def _opcode(lowering: Lowering, fold: int) -> Fold:
    opcode = lowering.spec.rows[fold].opcode
    assert isinstance(opcode, Fold)
    return opcode


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
        moved = _Lines(begin, axis, inner)
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
        return Numbers(frame, operand, first).taken(places, [line.exists for line in lines.lines])


def _count(opcode: Fold) -> int:
    return window_count("fold", opcode.extent, opcode.size, opcode.step, opcode.dilation)
