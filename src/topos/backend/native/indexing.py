"""Kernels that move rows by ids, and windows back onto their axis."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.nest import Frame, Place, merged
from topos.backend.native.program import Call
from topos.backend.native.registers import INT64, Integer, Operand
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.views import dense, dense_strides
from topos.backend.native.vocabulary import Lanes
from topos.op import Fold
from topos.op.movement import window_count


def gather(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """Row `ids[i]` of the table at row `i`, a zero row where there is no id."""
    (row,) = group.rows
    table, ids = lowering.spec.rows[row].operands
    if table in lowering.constants or lowering.spec.is_selection(lowering.views[table].row):
        return None
    frame = Frame(lowering, [], target, target.lanes(max(4, _bytes(lowering, row))))
    frame.read(table)
    chosen = frame.add(dense(ids, lowering.spec.rows[ids].shape), 8)
    m = frame.arithmetic(frame.element(row))
    result = frame.add(dense(row, group.shape), m.element.dtype.itemsize)
    width = prod(group.shape[1:])
    if not width or not group.shape[0]:
        return None
    extents, (steps,) = merged(group.shape[1:], [frame.strides(table)[1:]])
    stride = frame.strides(table)[0]
    frame.address(table, [stride, *steps])
    function = frame.function
    widths = dense_strides(extents)

    def at(row_index: Integer) -> None:
        identity = function.load(INT64, function.offset(chosen, INT64, row_index), 8)
        absent = function.below(identity, 0)
        known = function.let(INT64, f"select i1 {absent.text}, i64 0, {identity}")

        def inner(outer: tuple[Integer, ...]) -> None:
            frame.vectors(0, extents[-1], extents[-1], lambda index, count: put(outer, index, count))

        def put(outer: tuple[Integer, ...], index: Integer, count: int | None) -> None:
            value = frame.load(table, Place((known, *outer), index, count), m.element)
            kept = _where_present(frame, absent, value)
            offset = function.add(function.multiply(row_index, width), index)
            for position, step in zip(outer, widths, strict=False):
                offset = function.add(offset, function.multiply(position, step))
            m.store(kept, m.offset(result, offset), count)

        frame.nest(extents[:-1], inner)

    tiles = frame.tiled([group.shape[0], 1], prod(group.shape), lambda outer, begin, end: at(outer[0]))
    return Call((function.kernel("gather", tiles),), frame.pointers)


def _where_present(frame: Frame, absent: Operand, value: Lanes) -> Lanes:
    """The value, or `+0.0` in every lane."""
    text = f"select i1 {absent.text}, {value.type.text} zeroinitializer, {value}"
    return frame.reading.lanes_of(frame.function.let(value.type, text))


def scatter(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """Rows added in the selection's order onto zero rows; shared out by columns, which know nothing of one another."""
    (row,) = group.rows
    rows, ids = lowering.spec.rows[row].operands
    if rows in lowering.constants or lowering.spec.is_selection(lowering.views[rows].row):
        return None
    count_rows, width = lowering.spec.rows[ids].shape[0], prod(group.shape[1:])
    if not width or not lowering.views[rows].is_dense() or not group.shape[0]:
        return None
    frame = Frame(lowering, [], target, target.lanes(max(4, _bytes(lowering, row))))
    function = frame.function
    frame.read(rows)
    frame.address(rows, [width, 1])
    chosen = frame.add(dense(ids, lowering.spec.rows[ids].shape), 8)
    sums = _Sums(frame, row, group)

    def columns(begin: Integer, end: Integer) -> None:
        def clear(index: Integer) -> None:
            frame.vectors(begin, end, width, lambda column, count: sums.clear(index, column, count))

        def add(index: Integer) -> None:
            identity = function.load(INT64, function.offset(chosen, INT64, index), 8)
            present = function.below(-1, identity)
            function.when(present, lambda: one(index, identity))

        def one(index: Integer, identity: Operand) -> None:
            frame.vectors(
                begin,
                end,
                width,
                lambda column, count: sums.add(
                    identity, column, count, frame.load(rows, Place((index,), column, count), sums.element)
                ),
            )

        def finish(index: Integer) -> None:
            frame.vectors(begin, end, width, lambda column, count: sums.finish(index, column, count))

        function.loop(0, group.shape[0], 1, clear)
        function.loop(0, count_rows, 1, add)
        if sums.apart:
            function.loop(0, group.shape[0], 1, finish)

    tiles = frame.tiled([width], count_rows * width, lambda outer, begin, end: columns(begin, end))
    return Call((function.kernel("scatter", tiles, sums.scratch_bytes),), frame.pointers)


def fold(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """Windows added onto their axis, offset after offset, so that each place adds its contributions in that order."""
    (row,) = group.rows
    recorded = lowering.spec.rows[row]
    opcode = recorded.opcode
    assert isinstance(opcode, Fold)
    (operand,) = recorded.operands
    if operand in lowering.constants or 0 in group.shape:
        return None
    if lowering.spec.is_selection(lowering.views[operand].row):
        return None
    axis = opcode.axis
    frame = Frame(lowering, [], target, target.lanes(max(4, _bytes(lowering, row))))
    function = frame.function
    frame.read(operand)
    before, after = group.shape[:axis], group.shape[axis + 1 :]
    strides = frame.strides(operand)
    width = prod(after)
    outer_extents, (steps_before, written) = merged(before, [strides[:axis], dense_strides(group.shape)[:axis]])
    inner_extents, (steps_after,) = merged(after, [strides[axis + 2 :]])
    if len(inner_extents) != 1:
        return None
    frame.address(operand, [*steps_before, strides[axis], strides[axis + 1], steps_after[0]])
    sums = _Sums(frame, row, group, width)

    def slab(outer: tuple[Integer, ...]) -> None:
        base: Integer = 0
        for position, step in zip(outer, written, strict=False):
            base = function.add(base, function.multiply(position, step))
        _add_windows(frame, opcode, sums, operand, outer, _divided(function, base, width))

    tiles = frame.tiled([*outer_extents, 1], prod(recorded.shape), lambda outer, begin, end: slab(outer))
    return Call((function.kernel("fold", tiles, sums.scratch_bytes),), frame.pointers)


def _add_windows(
    frame: Frame, opcode: Fold, sums: _Sums, operand: int, outer: tuple[Integer, ...], first: Integer
) -> None:
    """One axis of a fold, whose sums are the rows from `first` on."""
    function = frame.function
    count = window_count("fold", opcode.extent, opcode.size, opcode.step, opcode.dilation)

    def each(body: Callable[[Integer, int | None], None]) -> None:
        frame.vectors(0, sums.width, sums.width, body)

    def add(offset: Integer, window: Integer) -> None:
        within = function.add(function.multiply(window, opcode.step), function.multiply(offset, opcode.dilation))
        row = function.add(first, within)

        def one(column: Integer, present: int | None) -> None:
            place = Place((*outer, window, offset), column, present)
            sums.add(row, column, present, frame.load(operand, place, sums.element))

        each(one)

    def over(body: Callable[[Integer, Integer, int | None], None]) -> None:
        function.loop(
            0,
            opcode.extent,
            1,
            lambda place: each(lambda column, present: body(function.add(first, place), column, present)),
        )

    over(sums.clear)
    frame.nest([opcode.size, count], lambda place: add(*place))
    if sums.apart:
        over(sums.finish)


def _divided(function: Function, base: Integer, width: int) -> Integer:
    if isinstance(base, int):
        return base // width
    return base if width == 1 else function.let(INT64, f"udiv exact i64 {base.text}, {width}")


class _Sums:
    """Rows of sums in the accumulator: the result itself, or scratch that is rounded into it at the end."""

    def __init__(self, frame: Frame, row: int, group: Group, width: int | None = None) -> None:
        self.frame = frame
        self.element = frame.element(row)
        self.own = frame.arithmetic(self.element)
        self.m = frame.arithmetic(self.element.accumulator)
        self.width = prod(group.shape[1:]) if width is None else width
        self.apart = self.element.accumulator is not self.element
        self.result = frame.add(dense(row, group.shape), self.element.dtype.itemsize)
        self.scratch_bytes = prod(group.shape) * self.element.accumulator.dtype.itemsize if self.apart else 0
        self.sums = frame.function.argument(len(frame.pointers)) if self.apart else self.result

    def _at(self, row: Integer, column: Integer) -> Operand:
        function = self.frame.function
        return self.m.offset(self.sums, function.add(function.multiply(row, self.width), column))

    def clear(self, row: Integer, column: Integer, count: int | None) -> None:
        self.m.store(self.m.constant(0.0), self._at(row, column), count)

    def add(self, row: Integer, column: Integer, count: int | None, value: Lanes) -> None:
        place = self._at(row, column)
        self.m.store(self.m.load(place, count) + value, place, count)

    def finish(self, row: Integer, column: Integer, count: int | None) -> None:
        function = self.frame.function
        value = self.m.load(self._at(row, column), count)
        offset = function.add(function.multiply(row, self.width), column)
        self.own.store(self.own.rounded(value), self.own.offset(self.result, offset), count)


def _bytes(lowering: Lowering, row: int) -> int:
    return (lowering.spec.rows[row].element or lowering.spec.element).dtype.itemsize
