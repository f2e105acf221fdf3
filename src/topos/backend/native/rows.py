"""Kernels that take an axis together: sums, maxima and the normalizers, in the stated order of accumulation.

Two layouts share one algorithm each. Along: the axis is the last, 32 of its terms fill the lanes of one register of
terms, and what is known of a row stands in every lane. Across: the lanes are neighbouring rows, each with its own term.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from topos.backend.native.arithmetic import Arithmetic
from topos.backend.native.nest import Frame
from topos.backend.native.registers import Integer, Operand, listed, vector
from topos.backend.native.vocabulary import Lanes

LANES = 32
"""The lanes of a sum (NUMERICS: term `i` goes to lane `i mod 32`)."""
BLOCK = 512
"""Terms in one block of a sum; the totals of the blocks are the terms of another one."""

Load = Callable[[Integer, int | None], Lanes]
"""The terms from an index on, of which the first `count` exist."""


class Rows(Protocol):
    """One row (or one register's worth of rows) of `extent` terms."""

    m: Arithmetic
    """The accumulator's arithmetic."""
    extent: int

    def maximum(self, load: Load) -> Lanes:
        """The largest term, NaN if any is, plus `+0.0`."""

    def total(self, load: Load) -> Lanes:
        """`S` of the terms."""

    def each(self, body: Callable[[Integer, int | None], None]) -> None:
        """Runs a body for every register of terms."""


class Along:
    """The terms of one row in the lanes."""

    def __init__(self, frame: Frame, m: Arithmetic, extent: int) -> None:
        self.frame = frame
        self.m = m
        self.extent = extent

    def maximum(self, load: Load) -> Lanes:
        """Lane by lane, then the lanes in halves: any order has the same bits."""
        lowest = self.m.constant(float("-inf"))

        def step(index: Integer, count: int | None, held: Lanes) -> Lanes:
            return self.m.maximum(held, self._or(load(index, count), count, lowest))

        held = self._steps(0, self.extent, step, lowest)
        return self._everywhere(self._folded(held, self.m.maximum)) + 0.0

    def total(self, load: Load) -> Lanes:
        """Blocks of 512 by lanes, their totals likewise."""
        return self._everywhere(self._sum(self.extent, load))

    def each(self, body: Callable[[Integer, int | None], None]) -> None:
        """Registers of 32 terms."""

        def step(index: Integer, count: int | None, held: Lanes) -> Lanes:
            body(index, count)
            return held

        self._steps(0, self.extent, step, self.m.constant(0.0))

    def _sum(self, terms: int, load: Load) -> Operand:
        """`S` of `terms` terms, a scalar."""
        if terms <= BLOCK:
            return self._block(0, terms, load)
        function, item = self.frame.function, self.m.type.of_one()
        blocks = -(-terms // BLOCK)
        totals = function.room(item, blocks)
        whole = terms // BLOCK

        def block(at: Integer) -> None:
            function.store(
                self._block(function.multiply(at, BLOCK), BLOCK, load), function.offset(totals, item, at), item.bytes
            )

        function.loop(0, whole, 1, block)
        if terms % BLOCK:
            last = self._block(whole * BLOCK, terms % BLOCK, load)
            function.store(last, function.offset(totals, item, whole), item.bytes)
        return self._sum(blocks, lambda index, count: self._held(totals, index, count))

    def _held(self, totals: Operand, index: Integer, count: int | None) -> Lanes:
        function, type = self.frame.function, self.m.type
        pointer = function.offset(totals, type.of_one(), index)
        if count is None:
            return self.frame.reading.lanes_of(function.load(type, pointer, type.of_one().bytes))
        mask = function.prefix(LANES, count)
        return self.frame.reading.lanes_of(function.load_masked(type, pointer, mask, type.of_one().bytes))

    def _block(self, first: Integer, terms: int, load: Load) -> Operand:
        """At most 512 terms: added to 32 lanes in order, which then fold in halves.

        A lane never holds -0.0, so the `+0.0` of a term that does not exist changes nothing.
        """
        zero = self.m.constant(0.0)
        held = self._steps(first, terms, lambda i, count, held: held + self._or(load(i, count), count, zero), zero)
        return self._folded(held, lambda left, right: left + right)

    def _steps(
        self, first: Integer, terms: int, step: Callable[[Integer, int | None, Lanes], Lanes], held: Lanes
    ) -> Lanes:
        """`held = step(index, count, held)` over registers of terms from `first` on."""
        function, reading = self.frame.function, self.frame.reading
        whole = terms // LANES * LANES

        def round_at(index: Integer, carried: Operand) -> list[Operand]:
            return [step(function.add(first, index), None, reading.lanes_of(carried))]

        if whole:
            held = reading.lanes_of(function.loop(0, whole, LANES, round_at, [held])[0])
        if terms - whole:
            held = step(function.add(first, whole), terms - whole, held)
        return held

    def _or(self, value: Lanes, count: int | None, other: Lanes) -> Lanes:
        if count is None:
            return value
        mask = self.frame.reading.lanes_of(self.frame.function.prefix(LANES, count))
        return self.frame.reading.select(mask, value, other)  # type: ignore[no-any-return]

    def _folded(self, held: Lanes, combine: Callable[[Lanes, Lanes], Lanes]) -> Operand:
        function, reading = self.frame.function, self.frame.reading
        half = LANES // 2
        while half:
            type = vector(held.type.item, half)
            parts = []
            for start in (0, half):
                if half == 1:
                    parts.append(reading.lanes_of(function.let(type, f"extractelement {held}, i64 {start}")))
                    continue
                order = listed(vector("i32", half), tuple(range(start, start + half)))
                text = f"shufflevector {held}, {held.type.text} poison, {order}"
                parts.append(reading.lanes_of(function.let(type, text)))
            held = combine(*parts)
            half //= 2
        return held

    def _everywhere(self, scalar: Operand) -> Lanes:
        return self.frame.reading.lanes_of(self.frame.function.spread(self.m.type, scalar))


class Across:
    """One term of each of neighbouring rows in the lanes; `count` of them exist, where it is given."""

    def __init__(self, frame: Frame, m: Arithmetic, extent: int) -> None:
        self.frame = frame
        self.m = m
        self.extent = extent

    def maximum(self, load: Load) -> Lanes:
        """Term by term."""
        reading = self.frame.reading

        def step(index: Integer, held: Operand) -> list[Operand]:
            return [self.m.maximum(reading.lanes_of(held), load(index, None))]

        lowest = self.m.constant(float("-inf"))
        return reading.lanes_of(self.frame.function.loop(0, self.extent, 1, step, [lowest])[0]) + 0.0

    def total(self, load: Load) -> Lanes:
        """The 32 lanes of the sum are 32 registers in memory, one per `i mod 32`."""
        return self._sum(self.extent, load)

    def each(self, body: Callable[[Integer, int | None], None]) -> None:
        """One term of each row at a time."""
        self.frame.function.loop(0, self.extent, 1, lambda index: body(index, None))

    def _sum(self, terms: int, load: Load) -> Lanes:
        if terms <= BLOCK:
            return self._block(0, terms, load)
        function, type = self.frame.function, self.m.type
        blocks = -(-terms // BLOCK)
        totals = function.room(type, blocks)
        whole = terms // BLOCK

        def block(at: Integer) -> None:
            total = self._block(function.multiply(at, BLOCK), BLOCK, load)
            function.store(total, function.offset(totals, type, at), type.bytes)

        function.loop(0, whole, 1, block)
        if terms % BLOCK:
            last = self._block(whole * BLOCK, terms % BLOCK, load)
            function.store(last, function.offset(totals, type, whole), type.bytes)
        return self._sum(blocks, lambda index, count: self._at(totals, index))

    def _at(self, place: Operand, index: Integer) -> Lanes:
        function, type = self.frame.function, self.m.type
        return self.frame.reading.lanes_of(function.load(type, function.offset(place, type, index), type.bytes))

    def _block(self, first: Integer, terms: int, load: Load) -> Lanes:
        function, type = self.frame.function, self.m.type
        reached = min(terms, LANES)
        lanes = function.room(type, LANES)

        def put(lane: Integer, value: Lanes) -> None:
            function.store(value, function.offset(lanes, type, lane), type.bytes)

        # A lane's first term is added to +0.0, as the rule says: -0.0 becomes +0.0.
        function.loop(0, reached, 1, lambda lane: put(lane, load(function.add(first, lane), None) + 0.0))

        def row(start: Integer, count: int) -> None:
            index = function.add(first, start)
            function.loop(
                0, count, 1, lambda lane: put(lane, self._at(lanes, lane) + load(function.add(index, lane), None))
            )

        whole = terms // LANES * LANES
        function.loop(LANES, whole, LANES, lambda start: row(start, LANES))
        if terms > LANES and terms - whole:
            row(whole, terms - whole)
        return self._fold([self._at(lanes, lane) for lane in range(reached)])

    def _fold(self, held: list[Lanes]) -> Lanes:
        """The lanes in halves; one that no term reached would add `+0.0` to what is never -0.0: nothing."""
        if not held:
            return self.m.constant(0.0)
        half = LANES // 2
        while half:
            held = [
                held[lane] + held[lane + half] if lane + half < len(held) else held[lane]
                for lane in range(min(half, len(held)))
            ]
            half //= 2
        return held[0]


def finite_or_zero(m: Arithmetic, x: Lanes) -> Lanes:
    """`x` where it is finite, else zero."""
    reading = m.reading
    return reading.select(reading.absolute(x) < float("inf"), x, 0.0)  # type: ignore[no-any-return]


def minus(m: Arithmetic, load: Load, shift: Lanes) -> Load:
    """The terms less the shift."""
    return lambda index, count: m.sub(load(index, count), shift)
