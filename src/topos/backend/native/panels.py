"""Sums across rows by panels: whole lines of memory at a time, the 32 lanes of every sum in the nearest cache.

For groups of one pass that gather nothing but sums. A panel is some registers wide; each term is added for all of
them before the next one, so that memory is walked along its lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from topos.backend.native.costs import weight
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.nest import WORK, Frame
from topos.backend.native.phases import phases, suits_phases
from topos.backend.native.program import Call
from topos.backend.native.reductions import Rows
from topos.backend.native.registers import Integer, Operand, Type
from topos.backend.native.rows import Accumulator, Across, lane_of
from topos.backend.native.target import Target
from topos.backend.native.vocabulary import Lanes, NativeReading
from topos.reference.sums import BLOCK, LANES

PANEL_BYTES = 1 << 15
"""The lanes of the sums of a panel."""
MOST_COLUMNS = 1024


def suits_panels(rows: Rows) -> bool:
    """Whether a group gathers sums alone, across rows longer than a register, and knows nothing beforehand.

    What lies in the nearest cache may be read in any order, and by less text.
    """
    passes = rows.passes
    if rows.is_along or passes.count != 1 or rows.extent < 2 or rows.after[-1] < 2 * rows.frame.lanes:
        return False
    gathered = passes.gathered[0]
    return not rows.is_near and bool(gathered) and all(what.kind == "sum" for what in gathered) and not passes.across(0)


class Panels:
    """The panels of a group's last axes."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.frame: Frame = rows.frame
        self.gathered = rows.passes.gathered[0]
        self.wanted = [rows.accumulator(what) for what in self.gathered]
        for read in self.frame.reads.values():
            read.is_still = False
        lanes, target = self.frame.lanes, self.frame.target
        items = [each.m.type.of_one().bytes for each in self.wanted]
        # Sums are folded a register at a time: for all at once it would be much text, which takes long to compile.
        self.narrow = NativeReading(self.frame.function, min(lanes, target.lanes(max(items))), target)
        self.folding = [rows.accumulator(what, self.narrow) for what in self.gathered]
        self.reached = min(rows.extent, LANES)
        size = sum(items) * self.reached
        width = rows.after[-1] // lanes * lanes
        self.columns = min(MOST_COLUMNS, width, max(1, PANEL_BYTES // size // lanes) * lanes)
        self.blocks = -(-rows.extent // BLOCK)
        self.lanes_at = [self._room(each, self.reached) for each in self.wanted]
        self.totals_at = [self._room(each, self.blocks) for each in self.wanted] if self.blocks > 1 else []

    def _room(self, wanted: Accumulator, count: int) -> Operand:
        return self.frame.room(wanted.m.type, count * (self.columns // self.frame.lanes))

    def run(self, outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        """All panels between two columns, a whole number of registers."""
        function = self.frame.function

        def panel(first: Integer) -> None:
            width = function.least(function.add(end, function.multiply(first, -1)), self.columns)
            self._panel(outer, first, width)

        function.loop(begin, end, self.columns, panel)

    def _panel(self, outer: tuple[Integer, ...], first: Integer, width: Integer) -> None:
        function, extent = self.frame.function, self.rows.extent
        whole, rest = divmod(extent, BLOCK) if self.blocks > 1 else (0, extent)
        function.loop(0, whole, 1, lambda at: self._block(outer, first, width, at, BLOCK))
        if rest:
            self._block(outer, first, width, whole, rest)
        if self.blocks > 1:
            self._fold(width, 0, self._summed)
        self._each(width, lambda column: self._finish(outer, first, column))

    def _block(self, outer: tuple[Integer, ...], first: Integer, width: Integer, at: Integer, terms: int) -> None:
        """At most 512 terms of a panel: added to their lanes, which are then folded."""
        function, rows = self.frame.function, self.rows
        if terms > LANES:
            function.loop(0, LANES, 1, lambda lane: self._each(width, lambda column: self._clear(lane, column)))
        start = function.multiply(at, BLOCK)

        def term(index: Integer) -> None:
            lane = lane_of(function, index, terms)

            def one(column: Integer) -> None:
                rows.begin(outer, function.add(first, column), None)
                terms_here = rows.body(0, function.add(start, index), None)
                for each, place, value in zip(self.wanted, self.lanes_at, terms_here, strict=True):
                    held = self._at(each, place, lane, column) if terms > LANES else each.neutral()
                    self._put(held + value, place, lane, column)

            self._each(width, one)

        function.loop(0, terms, 1, term)
        self._fold(width, at, lambda column: self._folded(min(terms, LANES), column), self.totals_at)

    def _clear(self, lane: Integer, column: Integer) -> None:
        for each, place in zip(self.wanted, self.lanes_at, strict=True):
            self._put(each.neutral(), place, lane, column)

    def _fold(
        self, width: Integer, at: Integer, total: Callable[[Integer], list[Lanes]], places: Sequence[Operand] = ()
    ) -> None:
        """The totals of all columns: those of block `at` to their places, or all to where the first lanes were."""

        def one(column: Integer) -> None:
            for value, place in zip(total(column), places or self.lanes_at, strict=True):
                self._put(value, place, at, column)

        self.frame.function.loop(0, width, self.narrow.lanes, one)

    def _folded(self, reached: int, column: Integer) -> list[Lanes]:
        fold = Across(self.frame, self.rows.extent).folded
        return [
            fold(each, [self._at(each, place, lane, column) for lane in range(reached)])
            for each, place in zip(self.folding, self.lanes_at, strict=True)
        ]

    def _summed(self, column: Integer) -> list[Lanes]:
        results = []
        for each, place in zip(self.folding, self.totals_at, strict=True):
            walk = Across(self.frame, self.blocks)
            results += walk.walk(
                [each],
                lambda at, count, each=each, place=place: [self._at(each, place, at, column)],  # type: ignore[misc]
            )
        return results

    def _finish(self, outer: tuple[Integer, ...], first: Integer, column: Integer) -> None:
        self.rows.begin(outer, self.frame.function.add(first, column), None)
        for what, each, place in zip(self.gathered, self.wanted, self.lanes_at, strict=True):
            self.rows.gather(what, self._at(each, place, 0, column))
        self.rows.known(1)

    # columns of a panel
    def _each(self, width: Integer, body: Callable[[Integer], None]) -> None:
        self.frame.function.loop(0, width, self.frame.lanes, body)

    def _place(self, type: Type, place: Operand, row: Integer, column: Integer) -> Operand:
        function = self.frame.function
        index = function.add(function.multiply(row, self.columns), column)
        return function.offset(place, type.of_one(), index)

    def _at(self, wanted: Accumulator, place: Operand, row: Integer, column: Integer) -> Lanes:
        type = wanted.m.type
        pointer = self._place(type, place, row, column)
        return self.frame.reading.lanes_of(self.frame.function.load(type, pointer, type.align))

    def _put(self, value: Lanes, place: Operand, row: Integer, column: Integer) -> None:
        pointer = self._place(value.type, place, row, column)
        self.frame.function.store(value, pointer, value.type.align)


def row_group(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """The kernel of a group that walks one axis."""
    rows = Rows(lowering, group, target)
    frame, size = rows.frame, prod(rows.shape) * weight(lowering.spec, group.rows)
    if rows.is_along:
        tiles = frame.tiled([*rows.before, 1], size, lambda outer, begin, end: rows.row(outer, 0, None))
        return Call((frame.kernel("rows", tiles),), frame.pointers)
    if suits_phases(rows):
        return phases(lowering, group, target)
    panels = Panels(rows) if suits_panels(rows) else None
    whole = rows.after[-1] // frame.lanes * frame.lanes
    if panels is not None:
        # Narrower shares than a panel would walk memory in shorter lines.
        size = min(size, WORK * max(4, prod(rows.before) * whole // panels.columns))

    def columns(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
        def row(index: Integer, count: Integer | None) -> None:
            rows.row(outer, index, count)

        if panels is None:
            frame.vectors(begin, end, rows.after[-1], row)
        else:
            panels.run(outer, begin, frame.function.least(end, whole))
            frame.rest(end, rows.after[-1], row)

    tiles = frame.tiled([*rows.before, *rows.after], size, columns)
    return Call((frame.kernel("columns", tiles),), frame.pointers)
