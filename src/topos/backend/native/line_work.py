"""The rows of a kernel at lines of places, each line in a register: what is worked out once, and what is read.

Where what a row reads is folded along the axis of the lanes, each of its offsets is a line of numbers with its own
lanes; so are the terms of a reduction. What the lines read is loaded once for all of them, and what is spread along an
axis is worked out for lanes next to one another, as few as hold all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from topos.backend.native.evaluator import Evaluator
from topos.backend.native.groups import Group
from topos.backend.native.lines import Inner, Line, Lines, along, inner, packed
from topos.backend.native.near import counted_shortly, numbers_at, taken, window_from
from topos.backend.native.nest import Frame
from topos.backend.native.registers import INT64, Integer, Operand, listed, vector, written
from topos.backend.native.rows import Accumulator, Across
from topos.backend.native.vocabulary import Lanes
from topos.element import Element
from topos.op import Fold, MaxAlong, SumAlong
from topos.shape import Shape

HELD = 16
"""Registers: of more terms than these, each line's are taken together before the next one's are read."""


class Work:
    """The rows of a group. `merged` is how many last axes of all of them are how many in the steps of its reads.

    Windows of up to `unrolled` offsets across the lanes are written one by one, others are a loop.
    """

    def __init__(self, frame: Frame, group: Group, merged: tuple[int, int], unrolled: int) -> None:
        self.frame = frame
        self._evaluator = Evaluator(frame, group)
        self._merged, self._unrolled = merged, unrolled
        self._held: dict[object, Lanes] = {}
        self._counted: dict[object, Operand] = {}

    def row(self, row: int, lines: Lines) -> list[Lanes]:
        """A row of the group."""
        opcode = self.frame.spec.rows[row].opcode
        if isinstance(opcode, Fold):
            return self._each(row, lines, lambda some: self._folded(row, opcode, some))
        if isinstance(opcode, MaxAlong | SumAlong):
            return self._each(row, lines, lambda some: self._reduced(row, opcode, some))
        return self._each(row, lines, lambda some: self._applied(row, some))

    def _each(self, what: object, lines: Lines, work: Callable[[Lines], list[Lanes]]) -> list[Lanes]:
        """What is had of some lines already, and the others, worked out."""
        begin = (*map(written, lines.begin), lines.axis)
        masks = [None if exists is None else exists.text for exists in lines.exists]
        keys = [(what, begin, line, mask) for line, mask in zip(lines.lines, masks, strict=True)]
        missing = {key: at for at, key in enumerate(keys) if key not in self._held}
        if missing:
            values = work(lines.some([*missing.values()]))
            self._held.update(zip(missing, values, strict=True))
        return [self._held[key] for key in keys]

    def exists(self, first: Integer, lanes: tuple[int | None, ...], limit: int) -> Operand:
        """Which lanes lie below a limit, and not before the beginning."""
        key = written(first), lanes, limit
        if key not in self._counted:
            self._counted[key] = counted_shortly(self.frame, first, lanes, limit)
        return self._counted[key]

    def _within(self, work: Callable[[], None]) -> None:
        """Work in a block of its own, out of which nothing is had later."""
        held, counted = self._held, self._counted
        self._held, self._counted = dict(held), dict(counted)
        work()
        self._held, self._counted = held, counted

    # rows
    def _applied(self, row: int, lines: Lines) -> list[Lanes]:
        """An elementwise row."""
        values: dict[tuple[int, str], list[Lanes]] = {}

        def value(operand: int, wanted: Element, at: int) -> Lanes:
            key = operand, wanted.name
            if key not in values:
                values[key] = self._values(operand, wanted, lines)
            return values[key][at]

        reading = self.frame.reading
        return [
            self._evaluator.apply(row, reading, lambda operand, wanted, at=at: value(operand, wanted, at))  # type: ignore[misc]
            for at in range(len(lines.lines))
        ]

    def _reduced(self, row: int, opcode: MaxAlong | SumAlong, lines: Lines) -> list[Lanes]:
        """A reduction of a few terms, in the stated order."""
        frame, axis = self.frame, opcode.axis
        (operand,) = frame.spec.rows[row].operands
        extent = frame.spec.rows[operand].shape[axis]
        own = frame.arithmetic(frame.element(row))
        wanted = Accumulator(frame.arithmetic(frame.element(row).accumulator), isinstance(opcode, SumAlong))
        begin = (*lines.begin[:axis], 0, *lines.begin[axis:])
        many = len(lines.lines) if len(lines.lines) * extent <= HELD else 1
        found = []
        for at in range(0, len(lines.lines), many):
            some = lines.some(range(at, min(at + many, len(lines.lines))))
            inner = [line.with_axis(axis, term) for line in some.lines for term in range(extent)]
            exists = [mask for mask in some.exists for _ in range(extent)]
            values = self._values(
                operand, frame.element(row), Lines(begin, lines.axis + (axis <= lines.axis), inner, exists)
            )
            parts = (values[first : first + extent] for first in range(0, len(values), extent))
            found += [own.rounded(self._gathered(wanted, part)) for part in parts]
        return found

    def _gathered(self, wanted: Accumulator, values: Sequence[Lanes]) -> Lanes:
        if wanted.is_sum:
            # A lane's first term is added to +0.0, as the rule says: -0.0 becomes +0.0.
            return Across(self.frame, len(values)).folded(wanted, [value + 0.0 for value in values])
        largest = wanted.neutral()
        for value in values:
            largest = wanted.combine(largest, value)
        return largest + 0.0

    def _folded(self, row: int, opcode: Fold, lines: Lines) -> list[Lanes]:
        """A fold: the sums over its offsets in ascending order."""
        work = self._along if lines.axis == opcode.axis else self._across
        own = self.frame.arithmetic(self.frame.element(row))
        return [own.rounded(total) for total in work(row, opcode, lines)]

    def _along(self, row: int, opcode: Fold, lines: Lines) -> list[Lanes]:
        """Of the axis of the lanes: all offsets are lines of their own."""
        frame, axis, step = self.frame, opcode.axis, opcode.step
        first = lines.begin[axis]
        if step > 1:
            first = (
                first // step if isinstance(first, int) else frame.function.let(INT64, f"udiv i64 {first.text}, {step}")
            )
        begin = (*lines.begin[:axis], first, 0, *lines.begin[axis + 1 :])
        made = [along(line, opcode) for line in lines.lines]
        # Where there is a window, there is the place that it holds: a line need not be asked again.
        every = [each for some in made for each in some]
        exists = [self.exists(first, line.along(axis), opcode.count) for line in every]
        (operand,) = frame.spec.rows[row].operands
        values = self._values(operand, frame.element(row), Lines(begin, axis, every, exists))
        given = iter(zip(exists, values, strict=True))
        totals = []
        for some in made:
            total = self._zero(row)
            for mask, value in (next(given) for _ in some):
                total = total + frame.reading.select(frame.reading.lanes_of(mask), value, 0.0)
            totals.append(total)
        return totals

    def _across(self, row: int, opcode: Fold, lines: Lines) -> list[Lanes]:
        """Of another axis: all lanes of all lines have the same window there, or none."""
        function, axis = self.frame.function, opcode.axis
        parts: dict[int, dict[int, Line]] = {}
        for number, line in enumerate(lines.lines):
            for offset, part in line.by_place(axis).items():
                parts.setdefault(offset, {})[number] = part
        found: dict[int, Lanes] = {}
        for offset, some in parts.items():
            place = function.add(lines.begin[axis], offset)
            there = lines._replace(
                lines=[part.moved(axis, -offset).with_axis(axis, 0) for part in some.values()],
                exists=[self._where(part, lines, number) for number, part in some.items()],
            )
            for number, total in zip(some, self._totals(row, opcode, there, place), strict=True):
                mask = self._where(some[number], lines, number)
                before = found.get(number)
                found[number] = total if before is None or mask is None else self._chosen(mask, total, before)
        return [found[number] if number in found else self._zero(row) for number in range(len(lines.lines))]

    def _where(self, part: Line, lines: Lines, number: int) -> Operand | None:
        """Which lanes of a part of a line may be read."""
        mask = lines.exists[number]
        if part == lines.lines[number]:
            return mask
        own = listed(vector("i1", self.frame.lanes), tuple(place is not None for place in part.lanes))
        return own if mask is None else self.frame.function.let(own.type, f"and {own}, {mask.text}")

    def _chosen(self, mask: Operand, value: Lanes, other: Lanes) -> Lanes:
        reading = self.frame.reading
        return reading.select(reading.lanes_of(mask), value, other)  # type: ignore[no-any-return]

    def _totals(self, row: int, opcode: Fold, lines: Lines, place: Integer) -> list[Lanes]:
        """The sums over the windows at one place of their axis."""
        totals: Sequence[Operand] = [self._zero(row) for _ in lines.lines]
        if opcode.size > self._unrolled:
            totals = self.frame.function.loop(
                0, opcode.size, 1, lambda at, *held: self._offset(row, opcode, lines, place, at, held), totals
            )
        else:
            for at in range(opcode.size):
                totals = self._offset(row, opcode, lines, place, at, totals)
        return [self.frame.reading.lanes_of(total) for total in totals]

    def _offset(
        self, row: int, opcode: Fold, lines: Lines, place: Integer, at: Integer, held: Sequence[Operand]
    ) -> list[Operand]:
        """The sums with what one offset gives all lines, where a window has it at a place."""
        function, axis, lanes_of = self.frame.function, opcode.axis, self.frame.reading.lanes_of
        window, fits = window_from(function, function.add(place, function.multiply(at, -opcode.dilation)), opcode)
        begin = (*lines.begin[:axis], window, at, *lines.begin[axis + 1 :])
        moved = lines._replace(begin=begin, axis=lines.axis + (lines.axis > axis))
        before, ways = function.block, list[tuple[Operand, str]]()
        (operand,) = self.frame.spec.rows[row].operands

        def one() -> None:
            values = self._values(operand, self.frame.element(row), moved)
            sums = [lanes_of(total) + value for total, value in zip(held, values, strict=True)]
            ways.extend((total, function.block) for total in sums)

        self._within(lambda: function.when(fits, one))
        return [function.join(old.type, [way, (old, before)]) for way, old in zip(ways, held, strict=True)]

    def _zero(self, row: int) -> Lanes:
        return self.frame.arithmetic(self.frame.element(row).accumulator).constant(0.0)

    # operands
    def _values(self, operand: int, wanted: Element, lines: Lines) -> list[Lanes]:
        """An operand: a row of the group, worked out, or numbers, loaded."""
        base = self._evaluator.base(operand)
        if base is None:
            return self._each((operand, wanted.name), lines, lambda some: numbers_at(self.frame, operand, wanted, some))
        shape = self.frame.spec.rows[base].shape
        place = inner(self.frame.lowering.views[operand], shape)
        assert place is not None
        place = self._with_merged(place, shape, self.frame.spec.rows[operand].shape)
        moved = Lines(
            tuple(lines.begin[axis] if axis >= 0 else 0 for axis in place.axes),
            place.axis(lines.axis),
            [place.line(line) for line in lines.lines],
            lines.exists,
        )
        if moved.axis < 0:
            return self.row(base, moved)
        return self._packed(base, moved, shape)

    def _with_merged(self, place: Inner, shape: Shape, own: Shape) -> Inner:
        """The same with its last axes as they are merged."""
        own_axes, axes = self._merged
        first = own.rank - own_axes
        last = tuple(range(first, first + axes))
        rank = shape.rank - own_axes
        return Inner((*place.axes[:rank], *last), (*place.starts[:rank], *[0] * axes))

    def _packed(self, row: int, lines: Lines, shape: Shape) -> list[Lanes]:
        """A row at lines, taken out of fewer of neighbouring lanes where those hold all of it."""
        axis, gained = lines.axis, packed(lines.lines, lines.axis)
        gone = {number for numbers, _ in gained for number in numbers}
        alone = [number for number in range(len(lines.lines)) if number not in gone]
        more = [line for _, made in gained for line in made]
        some = lines.some(alone)
        masks = [self.exists(lines.begin[axis], line.along(axis), shape[axis]) for line in more]
        values = self.row(row, some._replace(lines=[*some.lines, *more], exists=[*some.exists, *masks]))
        found, rest = dict(zip(alone, values, strict=False)), iter(values[len(alone) :])
        for numbers, made in gained:
            held, first = [next(rest) for _ in made], made[0].along(axis)[0]
            assert first is not None
            for number in numbers:
                places = enumerate(lines.lines[number].along(axis))
                found[number] = taken(self.frame, held, {lane: at - first for lane, at in places if at is not None})
        return [found[number] for number in range(len(lines.lines))]
