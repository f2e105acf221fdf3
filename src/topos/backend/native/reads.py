"""How a kernel reads an operand: numbers as they lie in memory, or the one-hot rows that ids stand for.

A selection is never written out for a reader: a place `(row, column)` of it is one where `ids[row] == column`.
"""

from __future__ import annotations

from collections.abc import Sequence

from topos.backend.native.arithmetic import Arithmetic
from topos.backend.native.registers import INT64, Integer, Operand, listed, zeros
from topos.backend.native.text import Function
from topos.backend.native.views import Guard, View
from topos.backend.native.vocabulary import Lanes
from topos.element import Element
from topos.records import NamedTuple


class Place(NamedTuple):
    """Where a nest stands.

    An index per outer axis, the first index on the last axis, and how many lanes exist (`None` for all).
    """

    outer: tuple[Integer, ...]
    inner: Integer
    lanes: Integer | None


class Read:
    """An operand in memory: its first number, its strides per axis of a nest, and its element.

    Of ids, whose element is `None`, there are two maps: from places to ids, and to columns after `column`; or one map,
    to places of the one-hot rows after `column`, where neither is affine.
    `is_still` says that a kernel reads it once per row. A guarded operand has a further map per guard: to its index.
    """

    def __init__(
        self, pointer: Operand, maps: list[list[int]], element: Element | None, column: int = 0, vocab: int = 0
    ) -> None:
        self.pointer = pointer
        self.maps = maps
        self.element = element
        self.column = column
        self.vocab = vocab
        self.is_still = False
        self.guards: tuple[Guard, ...] = ()

    def hot(self, function: Function, m: Arithmetic, place: Place, mask: Operand | None = None) -> Lanes:
        """The one-hot at a place, as numbers of `m`; only of the lanes where a mask holds."""
        columns = _Lines(function, m, place, mask)
        if len(self.maps) == 2:
            chosen = columns.ids(self.pointer, columns.counted(self.maps[0], 0), self.maps[0][-1] == 0 and mask is None)
            found = chosen == columns.counted(self.maps[1], self.column)
        else:
            places, type = columns.counted(self.maps[0], self.column), columns.type
            vocab = m.reading.constant_text(type, self.vocab)
            row, column = (
                m.reading.lanes_of(function.let(type, f"{operation} {places}, {vocab}"))
                for operation in ("udiv", "urem")
            )
            found = columns.ids(self.pointer, row, False) == column
        return m.reading.select(found, m.constant(1.0), 0.0)  # type: ignore[no-any-return]


class _Lines:
    """The integers of the lanes at a place."""

    def __init__(self, function: Function, m: Arithmetic, place: Place, mask: Operand | None) -> None:
        self.function = function
        self.reading = m.reading
        self.place = place
        self.type = m.reading.type("i64")
        self.mask = mask

    def counted(self, map: Sequence[int], first: int) -> Lanes:
        """`first` and the strides times the indices, of every lane."""
        function, place = self.function, self.place
        offset: Integer = first
        for index, step in zip((*place.outer, place.inner), (*map[: len(place.outer)], map[-1]), strict=True):
            offset = function.add(offset, function.multiply(index, step))
        spread = self.reading.constant("i64", offset) if isinstance(offset, int) else function.spread(self.type, offset)
        if not map[-1] or self.reading.lanes == 1:
            return self.reading.lanes_of(spread)
        return self.reading.lanes_of(spread) + self.reading.lanes_of(
            listed(self.type, tuple(map[-1] * lane for lane in range(self.reading.lanes)))
        )

    def ids(self, pointer: Operand, rows: Lanes, one: bool) -> Lanes:
        """The ids of rows; `one` where all lanes have the same."""
        function, lanes, type = self.function, self.reading.lanes, self.type
        if one or (lanes == 1 and self.mask is None):
            text = rows.text
            if lanes > 1:
                text = function.let_text(f"extractelement {rows}, i64 0")
            place = function.offset(pointer, INT64, Operand(INT64, text))
            return self.reading.lanes_of(function.spread(type, function.load(INT64, place, 8)))
        pointers = function.let(self.reading.type("ptr"), f"getelementptr inbounds i64, ptr {pointer.text}, {rows}")
        mask = self.mask
        if mask is None:
            mask = function.prefix(lanes, lanes if self.place.lanes is None else self.place.lanes)
        if lanes == 1:
            return self.reading.lanes_of(function.load_masked(type, pointers, mask, 8))
        name = f"masked.gather.{type.suffix}.{pointers.type.suffix}"
        places = Operand(pointers.type, f"align 8 {pointers.text}")
        return self.reading.lanes_of(function.call(type, name, places, mask, zeros(type)))


def dense_read(view: View, element: Element, pointer: Operand) -> Read:
    """Numbers where a view says."""
    read = Read(pointer, [list(view.strides)], element)
    read.guards = view.guards
    read.maps += [[int(axis == guard.axis) for axis in view.shape.axes] for guard in view.guards]
    return read


def inside(read: Read, function: Function, m: Arithmetic, place: Place) -> list[Lanes]:
    """Per guard, whether the lanes at a place lie inside."""
    lines = _Lines(function, m, place, None)
    masks = []
    for map, guard in zip(read.maps[1:], read.guards, strict=True):
        index = lines.counted(map, -guard.start)
        limit = m.reading.constant_text(lines.type, guard.extent)
        masks.append(m.reading.lanes_of(function.let(lines.type.of("i1"), f"icmp ult {index}, {limit}")))
    return masks


class OneHot(NamedTuple):
    """Where ids are read for the rows that they stand for: a view of their buffer; `maps` and `column` as of `Read`."""

    ids: View
    maps: list[list[int]]
    column: int


def one_hot(view: View, vocab: int) -> OneHot:
    """A view of the rows that ids stand for: `view` counts places of the dense rows."""
    row, column = divmod(view.offset, max(vocab, 1))
    rows = [stride // vocab if _is_rows(extent, stride, vocab) else 0 for extent, stride in _axes(view)]
    columns = [0 if _is_rows(extent, stride, vocab) else stride for extent, stride in _axes(view)]
    reach = column + sum(step * max(extent - 1, 0) for step, extent in zip(columns, view.shape, strict=True))
    if reach < vocab:
        return OneHot(view._replace(offset=row), [rows, columns], column)
    return OneHot(view._replace(offset=0), [list(view.strides)], view.offset)


def _axes(view: View) -> list[tuple[int, int]]:
    return [(extent, stride if extent > 1 else 0) for extent, stride in zip(view.shape, view.strides, strict=True)]


def _is_rows(extent: int, stride: int, vocab: int) -> bool:
    return extent > 1 and stride != 0 and vocab > 0 and stride % vocab == 0
