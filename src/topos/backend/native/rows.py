"""Walking an axis: sums and maxima of all its terms, in the stated order of accumulation.

Two layouts share one interface. Along: the axis is the last, its terms fill the lanes, and what is gathered is one
number. Across: the lanes are neighbouring rows, each with its own term and its own result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from topos.backend.native.arithmetic import Arithmetic
from topos.backend.native.nest import Frame
from topos.backend.native.registers import INT64, Integer, Operand, listed, vector, written
from topos.backend.native.text import Function
from topos.backend.native.vocabulary import Lanes
from topos.records import NamedTuple
from topos.reference.sums import BLOCK, LANES

Body = Callable[[Integer, Integer | None], list[Lanes]]
"""What a pass does at an index, with how many terms exist from there on; answers a term for each accumulator."""


class Accumulator(NamedTuple):
    """The sum or the largest of the terms, in the accumulator's arithmetic."""

    m: Arithmetic
    is_sum: bool

    def neutral(self) -> Lanes:
        """What no term changes; a sum never holds -0.0, so the `+0.0` of an absent term changes nothing either."""
        return self.m.constant(0.0 if self.is_sum else float("-inf"))

    def combine(self, left: Lanes, right: Lanes) -> Lanes:
        """Two parts of the terms."""
        return left + right if self.is_sum else self.m.maximum(left, right)


class Walk(Protocol):
    """An axis of one row, or of one register's worth of rows."""

    def walk(self, wanted: Sequence[Accumulator], body: Body) -> list[Lanes]:
        """Runs a pass; answers what each accumulator gathered."""


class Along:
    """The terms of one row in the lanes: 32, or fewer where the row is shorter. Results are scalars.

    `reach` is how many of them are walked, known at run time, whole registers; the others count for nothing.
    """

    def __init__(self, frame: Frame, extent: int, reach: Operand | None = None) -> None:
        self.frame = frame
        self.extent = extent
        self.lanes = frame.lanes
        self.reach = reach

    def walk(self, wanted: Sequence[Accumulator], body: Body) -> list[Lanes]:
        """One loop, or one per block of 512 terms where there are sums of more."""
        start = [each.neutral() for each in wanted]
        if self.extent <= BLOCK or not any(each.is_sum for each in wanted):
            held = self.steps(0, self.extent if self.reach is None else self.reach, wanted, body, start)
            return [self.folded(each, part) for each, part in zip(wanted, held, strict=True)]
        blocks = -(-self.extent // BLOCK)
        totals = [self.frame.room(each.m.type.of_one(), blocks) if each.is_sum else None for each in wanted]

        def block(at: Integer, terms: Integer, largest: Sequence[Operand]) -> list[Operand]:
            carried = iter(largest)
            begin = [each.neutral() if each.is_sum else self._lanes(next(carried)) for each in wanted]
            held = self.steps(self.frame.function.multiply(at, BLOCK), terms, wanted, body, begin)
            for each, part, place in zip(wanted, held, totals, strict=True):
                if place is not None:
                    self.put(self.folded(each, part), place, at)
            return [part for each, part in zip(wanted, held, strict=True) if not each.is_sum]

        whole, rest = divmod(self.extent, BLOCK)
        largest: Sequence[Operand] = [each.neutral() for each in wanted if not each.is_sum]
        if self.reach is not None:
            largest = self._reached(blocks, wanted, totals, block, largest)
        else:
            largest = self.frame.function.loop(0, whole, 1, lambda at, *held: block(at, BLOCK, held), largest)
            if rest:
                largest = block(whole, rest, largest)
        found = iter(largest)
        return [
            self.folded(each, self._lanes(next(found))) if place is None else self.sum(each, blocks, place)
            for each, place in zip(wanted, totals, strict=True)
        ]

    def _reached(
        self,
        blocks: int,
        wanted: Sequence[Accumulator],
        totals: Sequence[Operand | None],
        block: Callable[[Integer, Integer, Sequence[Operand]], list[Operand]],
        largest: Sequence[Operand],
    ) -> Sequence[Operand]:
        """The blocks that are walked; the totals of the others are zeros."""
        function, reach = self.frame.function, self.reach
        assert reach is not None
        for each, place in zip(wanted, totals, strict=True):
            for at in range(blocks if place is not None else 0):
                assert place is not None
                self.put(self.folded(each, each.neutral()), place, at)

        def one(at: Integer, *held: Operand) -> list[Operand]:
            left = function.add(reach, function.multiply(at, -BLOCK))
            return block(at, function.least(left, BLOCK), held)

        count = function.let(INT64, f"udiv i64 {written(function.add(reach, BLOCK - 1))}, {BLOCK}")
        return function.loop(0, count, 1, one, largest)

    def sum(self, wanted: Accumulator, terms: int, place: Operand) -> Lanes:
        """`S` of numbers that lie next to one another."""
        walk = Along(self.frame, terms)
        (result,) = walk.walk([wanted], lambda index, count: [self._held(wanted.m, place, index, count)])
        return result

    def steps(
        self, first: Integer, terms: Integer, wanted: Sequence[Accumulator], body: Body, start: Sequence[Lanes]
    ) -> list[Lanes]:
        """The accumulators after the terms from `first` on, a register of them at a time."""
        function, lanes = self.frame.function, self.lanes
        whole = terms // lanes * lanes if isinstance(terms, int) else terms

        def step(index: Integer, count: Integer | None, held: Sequence[Operand]) -> list[Lanes]:
            terms = body(function.add(first, index), count)
            return [
                each.combine(self._lanes(part), self._or(term, count, each.neutral()))
                for each, part, term in zip(wanted, held, terms, strict=True)
            ]

        held: Sequence[Operand] = function.loop(0, whole, lanes, lambda at, *held: step(at, None, held), start)
        if isinstance(terms, int) and terms % lanes:
            held = step(whole, terms % lanes, held)
        return [self._lanes(part) for part in held]

    def folded(self, wanted: Accumulator, held: Lanes) -> Lanes:
        """The lanes in halves, as a scalar; a maximum takes `+0.0`."""
        function, half = self.frame.function, held.type.lanes // 2
        while half:
            type = vector(held.type.item, half)
            parts = []
            for start in (0, half):
                if half == 1:
                    parts.append(self._lanes(function.let(type, f"extractelement {held}, i64 {start}")))
                    continue
                order = listed(vector("i32", half), tuple(range(start, start + half)))
                text = f"shufflevector {held}, {held.type.text} poison, {order}"
                parts.append(self._lanes(function.let(type, text)))
            held = wanted.combine(*parts)
            half //= 2
        return held if wanted.is_sum else held + 0.0

    def put(self, value: Lanes, place: Operand, at: Integer) -> None:
        """Stores a scalar as number `at` from a place on."""
        function = self.frame.function
        function.store(value, function.offset(place, value.type, at), value.type.bytes)

    def _held(self, m: Arithmetic, place: Operand, index: Integer, count: Integer | None) -> Lanes:
        function, item = self.frame.function, m.type.of_one()
        pointer = function.offset(place, item, index)
        return self._lanes(function.load_first(m.type, pointer, m.type.lanes if count is None else count, item.bytes))

    def _or(self, value: Lanes, count: Integer | None, other: Lanes) -> Lanes:
        if count is None or count == self.lanes:
            return value
        mask = self._lanes(self.frame.function.prefix(self.lanes, count))
        return self.frame.reading.select(mask, value, other)  # type: ignore[no-any-return]

    def _lanes(self, operand: Operand) -> Lanes:
        return self.frame.reading.lanes_of(operand)


class Across:
    """One term of each of neighbouring rows in the lanes."""

    def __init__(self, frame: Frame, extent: int) -> None:
        self.frame = frame
        self.extent = extent

    def walk(self, wanted: Sequence[Accumulator], body: Body) -> list[Lanes]:
        """One loop, or one per block of 512 terms where there are sums of more."""
        function = self.frame.function
        sums = [each for each in wanted if each.is_sum]
        largest: Sequence[Operand] = [each.neutral() for each in wanted if not each.is_sum]
        rooms = [self.frame.room(each.m.type, min(self.extent, LANES)) for each in sums]
        if self.extent <= BLOCK or not sums:
            totals, largest = self._block(0, self.extent, wanted, body, rooms, largest)
            return self._results(wanted, totals, largest)
        blocks = -(-self.extent // BLOCK)
        places = [self.frame.room(each.m.type, blocks) for each in sums]

        def block(at: Integer, terms: int, held: Sequence[Operand]) -> Sequence[Operand]:
            totals, after = self._block(function.multiply(at, BLOCK), terms, wanted, body, rooms, held)
            for total, place in zip(totals, places, strict=True):
                function.store(total, function.offset(place, total.type, at), total.type.bytes)
            return after

        whole, rest = divmod(self.extent, BLOCK)
        largest = function.loop(0, whole, 1, lambda at, *held: block(at, BLOCK, held), largest)
        if rest:
            largest = block(whole, rest, largest)
        totals = [self._sum(each, blocks, place) for each, place in zip(sums, places, strict=True)]
        return self._results(wanted, totals, largest)

    def _sum(self, wanted: Accumulator, terms: int, place: Operand) -> Lanes:
        walk = Across(self.frame, terms)
        (result,) = walk.walk([wanted], lambda index, count: [self._at(wanted.m, place, index)])
        return result

    def _results(self, wanted: Sequence[Accumulator], sums: list[Lanes], largest: Sequence[Operand]) -> list[Lanes]:
        totals, found = iter(sums), iter(largest)
        return [next(totals) if each.is_sum else self._lanes(next(found)) + 0.0 for each in wanted]

    def _block(
        self,
        first: Integer,
        terms: int,
        wanted: Sequence[Accumulator],
        body: Body,
        rooms: Sequence[Operand],
        largest: Sequence[Operand],
    ) -> tuple[list[Lanes], Sequence[Operand]]:
        """At most 512 terms: the 32 lanes of a sum are registers in memory, one per `i mod 32`, folded in halves."""
        function = self.frame.function
        sums = [each for each in wanted if each.is_sum]

        def clear(lane: Integer) -> None:
            for each, room in zip(sums, rooms, strict=True):
                self._put(each.neutral(), room, lane)

        def at(index: Integer, *held: Operand) -> list[Operand]:
            lane = lane_of(function, index, terms)
            places, before = iter(rooms), iter(held)
            after: list[Operand] = []
            for each, term in zip(wanted, body(function.add(first, index), None), strict=True):
                if each.is_sum:
                    room = next(places)
                    # A lane's first term is added to +0.0, as the rule says: -0.0 becomes +0.0.
                    self._put(self._at(each.m, room, lane) + term if terms > LANES else term + 0.0, room, lane)
                else:
                    after.append(each.combine(self._lanes(next(before)), term))
            return after

        if terms > LANES and sums:
            function.loop(0, LANES, 1, clear)
        largest = function.loop(0, terms, 1, at, largest)
        reached = range(min(terms, LANES))
        return [
            self.folded(each, [self._at(each.m, room, lane) for lane in reached])
            for each, room in zip(sums, rooms, strict=True)
        ], largest

    def folded(self, wanted: Accumulator, held: list[Lanes]) -> Lanes:
        """The lanes in halves; one that no term reached would add `+0.0` to what is never -0.0: nothing."""
        if not held:
            return wanted.neutral()
        half = LANES // 2
        while half:
            held = [
                held[lane] + held[lane + half] if lane + half < len(held) else held[lane]
                for lane in range(min(half, len(held)))
            ]
            half //= 2
        return held[0]

    def _put(self, value: Lanes, place: Operand, index: Integer) -> None:
        function = self.frame.function
        function.store(value, function.offset(place, value.type, index), value.type.align)

    def _at(self, m: Arithmetic, place: Operand, index: Integer) -> Lanes:
        function, type = self.frame.function, m.type
        return self._lanes(function.load(type, function.offset(place, type, index), type.align))

    def _lanes(self, operand: Operand) -> Lanes:
        return self.frame.reading.lanes_of(operand)


def lane_of(function: Function, index: Integer, terms: int) -> Integer:
    """The lane of a sum to which one of so many terms goes."""
    if terms <= LANES:
        return index
    return index % LANES if isinstance(index, int) else function.let(INT64, f"and i64 {index.text}, {LANES - 1}")


def finite_or_zero(m: Arithmetic, x: Lanes) -> Lanes:
    """`x` where it is finite, else zero."""
    reading = m.reading
    return reading.select(reading.absolute(x) < float("inf"), x, 0.0)  # type: ignore[no-any-return]
