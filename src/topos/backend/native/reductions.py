"""Rows in one pass of memory: elementwise work and reductions of one axis, as many passes over a row as it takes.

A row stays in the nearest cache between its passes. What costs little is worked out again in each; the rest is kept.
"""

from __future__ import annotations

from math import prod

from topos.backend.native.arithmetic import Arithmetic
from topos.backend.native.costs import is_dear, lanes_up_to
from topos.backend.native.drafts import WHOLE
from topos.backend.native.evaluator import Evaluator, Value
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.nest import Frame
from topos.backend.native.passes import Gathered, Passes
from topos.backend.native.reads import Place
from topos.backend.native.registers import Integer, Operand
from topos.backend.native.rows import Accumulator, Across, Along, finite_or_zero
from topos.backend.native.target import Target
from topos.backend.native.views import dense, dense_strides, flat, merged
from topos.backend.native.vocabulary import Lanes, NativeReading
from topos.op import LogSoftmax, LogSumExp
from topos.reference.sums import LANES
from topos.shape import Shape

NEAR_BYTES = 1 << 15
"""What stays in the nearest cache, in whatever order it is read."""


class Rows:
    """A kernel over the rows of a group: its operands laid out, and what is known of the row it stands at."""

    def __init__(self, lowering: Lowering, group: Group, target: Target) -> None:
        self.lowering = lowering
        self.group = group
        self.passes = Passes(lowering, group)
        assert group.axis is not None
        self.shape, self.axis = group.shape, group.axis
        if group.axis == WHOLE:
            self.shape, self.axis = Shape((group.shape.volume,)), 0
        self.extent = self.shape[self.axis]
        self.is_along = prod(self.shape[self.axis + 1 :]) == 1
        self.is_near = self._read_bytes() <= NEAR_BYTES
        self.frame = Frame(lowering, target, self._lanes(target))
        self.one = NativeReading(self.frame.function, 1, target) if self.is_along else self.frame.reading
        self.evaluator = Evaluator(self.frame, group)
        self.walk = Along(self.frame, self.extent, lowering.reach) if self.is_along else Across(self.frame, self.extent)
        self.is_single = self.extent <= (self.frame.lanes if self.is_along else 1)
        self.outputs: dict[int, Operand] = {}
        self.steps: dict[int, list[int]] = {}
        self._operands()
        self.rooms = {} if self.is_single else {row: self._room(row) for row in sorted(self.passes.kept)}
        self.held: dict[int, Lanes] = {}
        self.across: dict[int, Lanes] = {}
        self.spread: dict[object, Lanes] = {}
        self._shift: dict[int, Lanes] = {}

    def _lanes(self, target: Target) -> int:
        if self.is_along:
            return lanes_up_to(LANES, self.extent)
        spec = self.lowering.spec
        items = [spec.element_of(row).accumulator.dtype.itemsize for row in self.group.rows]
        registers = 1 if self.is_near or any(is_dear(self.lowering.spec, row) for row in self.group.rows) else 4
        return lanes_up_to(registers * target.lanes(max(items)), prod(self.shape[self.axis + 1 :]))

    def _read_bytes(self) -> int:
        """What is read at every place of the shape."""
        spec, shape = self.lowering.spec, self.group.shape
        full = [spec.element_of(row).dtype.itemsize for row in self.group.reads if spec.rows[row].shape == shape]
        return sum(full) * shape.volume

    # operands
    def _operands(self) -> None:
        """Reads and results, each with its steps: the axes before, the axis, the axes after."""
        frame, axis = self.frame, self.axis
        reads = [frame.read(operand) for operand in self.group.reads]
        self.given = {operand: read.maps for operand, read in frame.reads.items()}
        maps = [
            self._over(self.lowering.spec.rows[operand].shape, map)
            for operand, read in zip(self.group.reads, reads, strict=True)
            for map in read.maps
        ]
        for row in self.group.writes:
            shape = self.lowering.spec.rows[row].shape
            self.outputs[row] = frame.add(dense(row, shape), frame.element(row).dtype.itemsize)
            maps.append(self._over(shape, list(dense_strides(shape))))
        self.before, before = merged(self.shape[:axis], [map[:axis] for map in maps])
        self.after, after = merged(self.shape[axis + 1 :], [map[axis + 1 :] for map in maps])
        steps = iter(
            [*first, map[axis]] if self.is_along else [*first, *last[:-1], map[axis], last[-1]]
            for map, first, last in zip(maps, before, after, strict=True)
        )
        for read in reads:
            read.maps = [next(steps) for _ in read.maps]
            read.is_still = (
                read.element is not None and not read.guards and read.maps[0][-1 if self.is_along else -2] == 0
            )
        self.steps = {row: next(steps) for row in self.group.writes}

    def _over(self, shape: Shape, map: list[int]) -> list[int]:
        """An operand's strides over the group's axes: one number per row does not move along the axis."""
        if self.group.axis != WHOLE:
            return map if shape == self.group.shape else [*map[: self.axis], 0, *map[self.axis :]]
        if shape != self.group.shape:
            return [0]
        extents, (steps,) = merged(shape, [map])
        return [steps[-1]] if len(extents) == 1 else [1]

    def _room(self, row: int) -> Operand:
        """Memory for a value of each place of a row of the group."""
        type = self.frame.arithmetic(self.frame.element(row)).type
        count = -(-self.extent // self.frame.lanes) if self.is_along else self.extent
        return self.frame.room(type, count)

    def not_flat(self) -> list[int]:
        """The operands that are not read number after number, in a group that takes all axes together."""
        full = [o for o in self.group.reads if self.lowering.spec.rows[o].shape == self.group.shape]
        return [o for o in full if self.lowering.is_one_hot(o) or not flat(self.lowering.views[o])]

    # rows
    def row(self, outer: tuple[Integer, ...], inner: Integer, count: Integer | None) -> None:
        """All passes over a row, or a register's worth of rows."""
        self.begin(outer, inner, count)
        for index in range(self.passes.count):
            gathered = self.passes.gathered[index]
            results = self.walk.walk(
                [self.accumulator(what) for what in gathered],
                lambda at, present, index=index: self.body(index, at, present),  # type: ignore[misc]
            )
            for what, result in zip(gathered, results, strict=True):
                self.gather(what, result)
            self.known(index + 1)

    def begin(self, outer: tuple[Integer, ...], inner: Integer, count: Integer | None) -> None:
        """Stands at a row; loads what is the same all along it."""
        self.outer, self.inner, self.count = outer, inner, count
        self.held, self.across, self.spread, self._shift = {}, {}, {}, {}
        self.place = Place(outer, 0, None) if self.is_along else Place((*outer, 0), inner, count)
        self._row_value = self.evaluator.values(self.place, self.across, None, self.one)
        for operand, read in self.frame.reads.items():
            if read.is_still:
                value = self._row_value(operand, self.frame.element(operand))
                if self.lowering.spec.rows[operand].shape == self.group.shape:
                    self.spread[operand] = self._everywhere(value)
        self.known(0)

    def known(self, stage: int) -> None:
        """Works out the rows of one number per row that are known before a pass."""
        for row in self.passes.across(stage):
            self._set(row, self.evaluator.apply(row, self.one, self._row_value))

    def _set(self, row: int, value: Lanes) -> None:
        self._know(row, value)
        self._put(row, value)

    def _know(self, row: int, value: Lanes) -> None:
        self.across[row] = value
        self.spread[("row", row)] = self._everywhere(value)

    def _put(self, row: int, value: Lanes) -> None:
        if row in self.outputs:
            m = self.frame.arithmetic(self.frame.element(row), self.one)
            self.frame.store(m, value, self.outputs[row], self.steps[row], self.place)

    def _everywhere(self, value: Lanes) -> Lanes:
        if not self.is_along or self.frame.lanes == 1:
            return value
        type = self.frame.reading.type(value.type.item)
        return self.frame.reading.lanes_of(self.frame.function.spread(type, value))

    # what is accumulated
    def accumulator(self, what: Gathered, reading: NativeReading | None = None) -> Accumulator:
        """The accumulator of a reduction, over a reading's lanes or the frame's."""
        return Accumulator(self._accumulated(what.row, reading), what.kind != "largest")

    def _accumulated(self, row: int, reading: NativeReading | None = None) -> Arithmetic:
        return self.frame.arithmetic(self.frame.element(row).accumulator, reading)

    def gather(self, what: Gathered, result: Lanes) -> None:
        """Takes what a pass has gathered."""
        row, opcode = what.row, self.lowering.spec.rows[what.row].opcode
        own = self.frame.arithmetic(self.frame.element(row), self.one)
        m = self._accumulated(row, self.one)
        if not isinstance(opcode, LogSumExp | LogSoftmax):
            self._set(row, own.rounded(result))
        elif what.kind == "largest":
            self._shift[row] = finite_or_zero(m, result)
            self.spread[("shift", row)] = self._everywhere(self._shift[row])
        elif isinstance(opcode, LogSumExp):
            self._set(row, own.rounded(m.add(self._shift[row], m.ln(result))))
        else:
            self.spread[("logarithm", row)] = self._everywhere(m.ln(result))

    # places
    def body(self, index: int, at: Integer, present: Integer | None) -> list[Lanes]:
        """A pass at a place of the row: what it works out and stores; answers the terms that it gathers."""
        place = Place(self.outer, at, present) if self.is_along else Place((*self.outer, at), self.inner, self.count)
        held = self.held if self.is_single else {}
        value = self.evaluator.values(place, held, self._known)
        for row in self.passes.recalled[index]:
            if row not in held:
                held[row] = self._recalled(row, place, at)
        for row in self.passes.evaluated[index]:
            if row not in held:
                held[row] = self._evaluated(row, value)
        for row in self.passes.stored[index]:
            m = self.frame.arithmetic(self.frame.element(row))
            self.frame.store(m, held[row], self.outputs[row], self.steps[row], place)
        for row in self.rooms:
            if self.passes.stage[row] == index:
                self._keep(row, at, held[row])
        return [self._term(what, value) for what in self.passes.gathered[index]]

    def _known(self, operand: int, base: int | None) -> Lanes | None:
        return self.spread.get(operand if base is None else ("row", base))

    def _evaluated(self, row: int, value: Value) -> Lanes:
        recorded = self.lowering.spec.rows[row]
        if not isinstance(recorded.opcode, LogSoftmax):
            return self.evaluator.apply(row, self.frame.reading, value)
        m, own = self._accumulated(row), self.frame.arithmetic(self.frame.element(row))
        below = m.sub(value(recorded.operands[0], own.element), self.spread[("shift", row)])
        return own.rounded(m.sub(below, self.spread[("logarithm", row)]))

    def _term(self, what: Gathered, value: Value) -> Lanes:
        operand, element = self.passes.operand(what.row), self.frame.element(what.row)
        term = value(operand, element)
        if what.kind != "exponentials":
            return term
        m = self._accumulated(what.row)
        return m.exp(m.sub(term, self.spread[("shift", what.row)]))

    # what a later pass reads back
    def _keep(self, row: int, at: Integer, value: Lanes) -> None:
        self.frame.function.store(value, self._kept_at(row, at), value.type.align)

    def _recalled(self, row: int, place: Place, at: Integer) -> Lanes:
        m = self.frame.arithmetic(self.frame.element(row))
        if row in self.outputs:
            return self.frame.load(m, self.outputs[row], self.steps[row], place)
        pointer = self._kept_at(row, at)
        return self.frame.reading.lanes_of(self.frame.function.load(m.type, pointer, m.type.align))

    def _kept_at(self, row: int, at: Integer) -> Operand:
        type = self.frame.arithmetic(self.frame.element(row)).type
        item = type.of_one() if self.is_along else type
        return self.frame.function.offset(self.rooms[row], item, at)
