"""Kernels that move rows by ids."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from topos.backend.native.groups import Group, Lowering
from topos.backend.native.loops import lanes_for
from topos.backend.native.nest import Frame
from topos.backend.native.program import Call
from topos.backend.native.reads import Place
from topos.backend.native.registers import INT64, Integer, Operand
from topos.backend.native.target import Target
from topos.backend.native.views import dense, dense_strides, merged
from topos.backend.native.vocabulary import Lanes


def gather(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """Row `ids[i]` of the table at row `i`, a zero row where there is no id."""
    (row,) = group.rows
    table, ids = lowering.spec.rows[row].operands
    frame = Frame(lowering, target, lanes_for(lowering, group, target))
    function = frame.function
    m = frame.arithmetic(frame.element(row))
    chosen = frame.add(dense(ids, lowering.spec.rows[ids].shape), 8)
    result = frame.add(dense(row, group.shape), m.element.dtype.itemsize)
    extents, written = inner_axes(frame, table, group)
    is_empty = lowering.spec.rows[table].shape[0] == 0

    def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        identity = function.load(INT64, function.offset(chosen, INT64, outer[0]), 8)
        absent = function.below(identity, 0)
        known = function.let(INT64, f"select i1 {absent.text}, i64 0, {identity}")

        def put(index: Integer, count: Integer | None) -> None:
            value = m.constant(0.0)
            if not is_empty:
                value = frame.value(table, Place((known, *outer[1:]), index, count), m.element)
                value = _where_present(frame, absent, value)
            frame.store(m, value, result, written, Place(outer, index, count))

        frame.vectors(begin, end, extents[-1], put)

    tiles = frame.tiled([group.shape[0], *extents], prod(group.shape), body)
    return Call((frame.kernel("gather", tiles),), frame.pointers)


def inner_axes(frame: Frame, operand: int, group: Group) -> tuple[list[int], list[int]]:
    """Lays out the axes after the first of an operand and of the result; answers extents and the result's steps."""
    read = None if operand in frame.lowering.constants else frame.read(operand)
    maps = [] if read is None else read.maps
    own = list(dense_strides(group.shape))
    extents, steps = merged(group.shape[1:], [map[1:] for map in [*maps, own]])
    if read is not None:
        read.maps = [[map[0], *inner] for map, inner in zip(maps, steps, strict=False)]
    return extents, [own[0], *steps[-1]]


def _where_present(frame: Frame, absent: Operand, value: Lanes) -> Lanes:
    """The value, or `+0.0` in every lane."""
    zero = frame.reading.constant(value.type.item, 0.0)
    text = f"select i1 {absent.text}, {zero}, {value}"
    return frame.reading.lanes_of(frame.function.let(value.type, text))


def scatter(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """Rows added in the selection's order onto zero rows; shared out by columns, which know nothing of one another."""
    (row,) = group.rows
    rows, ids = lowering.spec.rows[row].operands
    count_rows = lowering.spec.rows[ids].shape[0]
    frame = Frame(lowering, target, lanes_for(lowering, group, target))
    function = frame.function
    chosen = frame.add(dense(ids, lowering.spec.rows[ids].shape), 8)
    extents, written = inner_axes(frame, rows, group)
    sums = Sums(frame, row, written)

    def columns(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        def over(index: Integer, body: Callable[[Place], None]) -> None:
            frame.vectors(begin, end, extents[-1], lambda column, count: body(Place((index, *outer), column, count)))

        def add(index: Integer) -> None:
            identity = function.load(INT64, function.offset(chosen, INT64, index), 8)
            function.when(function.below(-1, identity), lambda: over(identity, lambda place: one(index, place)))

        def one(index: Integer, place: Place) -> None:
            source = Place((index, *place.outer[1:]), place.inner, place.lanes)
            sums.add(place, frame.value(rows, source, sums.element))

        function.loop(0, group.shape[0], 1, lambda index: over(index, sums.clear))
        function.loop(0, count_rows, 1, add)
        if sums.is_apart:
            function.loop(0, group.shape[0], 1, lambda index: over(index, sums.finish))

    tiles = frame.tiled(extents, count_rows * prod(extents), columns)
    return Call((frame.kernel("scatter", tiles),), frame.pointers)


class Sums:
    """A result of sums in the accumulator: the buffer itself, or scratch that is rounded into it at the end."""

    def __init__(self, frame: Frame, row: int, steps: list[int]) -> None:
        self.frame = frame
        self.steps = steps
        self.element = frame.element(row)
        self.own = frame.arithmetic(self.element)
        self.m = frame.arithmetic(self.element.accumulator)
        self.is_apart = self.element.accumulator is not self.element
        shape = frame.spec.rows[row].shape
        self.result = frame.add(dense(row, shape), self.element.dtype.itemsize)
        self.sums = frame.shared(shape.volume * self.m.bytes) if self.is_apart else self.result

    def clear(self, place: Place) -> None:
        """Zeros at a place."""
        self.frame.store(self.m, self.m.constant(0.0), self.sums, self.steps, place)

    def add(self, place: Place, value: Lanes) -> None:
        """One more contribution at a place."""
        held = self.frame.load(self.m, self.sums, self.steps, place)
        self.frame.store(self.m, held + value, self.sums, self.steps, place)

    def finish(self, place: Place) -> None:
        """The sums of a place, rounded."""
        value = self.frame.load(self.m, self.sums, self.steps, place)
        self.frame.store(self.own, self.own.rounded(value), self.result, self.steps, place)
