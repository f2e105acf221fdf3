"""The loops of a kernel and what it reads in them: axes merged, operands addressed, expressions in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from topos.backend.native.arithmetic import Arithmetic, arithmetic
from topos.backend.native.groups import Lowering
from topos.backend.native.program import Operand as Pointer
from topos.backend.native.registers import INT64, Integer, Operand, listed, zeros
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.views import View
from topos.backend.native.vocabulary import Lanes, NativeReading
from topos.element import Element
from topos.op import Cast, Elementwise

WORK = 20_000
"""Elements that are worth a thread's attention."""


class Place(NamedTuple):
    """Where a nest stands.

    An index per outer axis, the first index on the last axis, and how many lanes exist (`None` for all).
    """

    outer: tuple[Integer, ...]
    inner: Integer
    lanes: int | None


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """The shape with neighbouring axes made one wherever every operand steps through both as through one.

    Axes of extent 1 go. At least one axis is left. Answers the extents and, per operand, its strides.
    """
    kept = [axis for axis, extent in enumerate(shape) if extent != 1]
    extents: list[int] = []
    steps: list[list[int]] = [[] for _ in strides]
    for axis in kept:
        fits = extents and all(own[-1] == given[axis] * shape[axis] for own, given in zip(steps, strides, strict=True))
        if fits:
            extents[-1] *= shape[axis]
        else:
            extents.append(shape[axis])
        for own, given in zip(steps, strides, strict=True):
            own[-1:] = [given[axis]] if fits else [*own[-1:], given[axis]]
    if not extents:
        return [1], [[0] for _ in strides]
    return extents, steps


class Frame:
    """A kernel in the making: the pointers of its operands, and the elementwise rows that it holds in registers."""

    def __init__(self, lowering: Lowering, rows: Sequence[int], target: Target, lanes: int) -> None:
        self.lowering = lowering
        self.spec = lowering.spec
        self.rows = list(rows)
        self.target = target
        self.function = Function()
        self.reading = NativeReading(self.function, lanes, target)
        self.lanes = lanes
        self.pointers: list[Pointer] = []
        self._registers: dict[int, Operand] = {}
        self._views: dict[int, View] = {}
        self._steps: dict[int, list[int]] = {}
        self._arithmetics: dict[Element, Arithmetic] = {}

    # operands
    def add(self, view: View, item_bytes: int) -> Operand:
        """The pointer to a view's first number, as the kernel's next argument."""
        self.pointers.append(Pointer(view.row, view.offset * item_bytes))
        return self.function.argument(len(self.pointers) - 1)

    def read(self, row: int, view: View | None = None) -> None:
        """Makes a row in memory readable in the nest, through another view of it where one is given; ids too."""
        view = self.lowering.views[row] if view is None else view
        item = 8 if self.spec.is_selection(view.row) else self.element(row).dtype.itemsize
        self._registers[row] = self.add(view, item)
        self._views[row] = view

    def strides(self, row: int) -> tuple[int, ...]:
        """A readable row's strides per axis; of ids, one per row of the selection and none along its vocab."""
        if self.spec.is_selection(self._views[row].row):
            return (1, 0)
        return self._views[row].strides

    def reads(self) -> list[int]:
        """The readable rows."""
        return list(self._registers)

    def address(self, row: int, steps: list[int]) -> None:
        """A readable row's strides per axis of the merged nest."""
        self._steps[row] = steps

    # numbers
    def element(self, row: int) -> Element:
        """The element of a row's numbers."""
        return self.spec.rows[row].element or self.spec.element

    def arithmetic(self, element: Element) -> Arithmetic:
        """The arithmetic of an element over this frame's lanes."""
        found = self._arithmetics.get(element)
        if found is None:
            found = self._arithmetics[element] = arithmetic(element, self.reading)
        return found

    def load(self, row: int, place: Place, wanted: Element) -> Lanes:
        """A readable row's numbers at a place; of ids, their one-hot in the element wanted."""
        steps = self._steps[row]
        offset: Integer = 0
        for index, step in zip(place.outer, steps, strict=False):
            offset = self.function.add(offset, self.function.multiply(index, step))
        if self.spec.is_selection(self._views[row].row):
            return self._one_hot(row, offset, place, wanted)
        m = self.arithmetic(self.element(row))
        step = steps[-1]
        pointer = m.offset(self._registers[row], self.function.add(offset, self.function.multiply(place.inner, step)))
        if step == 0:
            return m.load_one(pointer)
        return m.load(pointer, place.lanes) if step == 1 else self._load_apart(m, pointer, step, place.lanes)

    def _load_apart(self, m: Arithmetic, pointer: Operand, step: int, count: int | None) -> Lanes:
        """Lanes that lie `step` numbers apart."""
        type = self.reading.type(m.stored)
        places, mask = self._apart(m, pointer, step, count)
        name = f"masked.gather.{type.suffix}.{places.type.suffix}"
        return m._opened(self.function.call(type, name, places, mask, zeros(type)))

    def _apart(self, m: Arithmetic, pointer: Operand, step: int, count: int | None) -> tuple[Operand, Operand]:
        """The addresses of lanes that lie `step` numbers apart, as an argument, and the mask of those that exist."""
        index = self.reading.type("i64")
        places = listed(index, tuple(step * lane for lane in range(self.lanes)))
        base = f"getelementptr inbounds {self.reading.type(m.stored).of_one().text}, ptr {pointer.text}, {places}"
        pointers = self.function.let(self.reading.type("ptr"), base)
        mask = self.function.prefix(self.lanes, self.lanes if count is None else count)
        return Operand(pointers.type, f"align {m.bytes} {pointers.text}"), mask

    def store(self, m: Arithmetic, value: Lanes, pointer: Operand, steps: Sequence[int], place: Place) -> None:
        """Puts lanes at a place of a buffer whose strides per axis of the nest are `steps`."""
        offset: Integer = self.function.multiply(place.inner, steps[-1])
        for index, step in zip(place.outer, steps, strict=False):
            offset = self.function.add(offset, self.function.multiply(index, step))
        first = m.offset(pointer, offset)
        if steps[-1] == 1 or place.lanes == 1:
            m.store(value, first, place.lanes)
            return
        places, mask = self._apart(m, first, steps[-1], place.lanes)
        closed = m._closed(value)
        name = f"masked.scatter.{closed.type.suffix}.{places.type.suffix}"
        self.function.run(name, closed, places, mask)

    def _one_hot(self, row: int, offset: Integer, place: Place, wanted: Element) -> Lanes:
        function, index = self.function, self.reading.type("i64")
        pointer = function.offset(self._registers[row], INT64, offset)
        chosen = self.reading.lanes_of(function.spread(index, function.load(INT64, pointer, 8)))
        first = function.add(place.inner, 0)
        spread = function.spread(index, first) if isinstance(first, Operand) else self.reading.constant("i64", first)
        columns = self.reading.lanes_of(spread) + self.reading.lanes_of(listed(index, tuple(range(self.lanes))))
        m = self.arithmetic(wanted)
        return self.reading.select(chosen == columns, m.constant(1.0), 0.0)  # type: ignore[no-any-return]

    def evaluate(self, place: Place) -> dict[int, Lanes]:
        """The numbers of every row that this frame holds in registers, at a place."""
        values: dict[int, Lanes] = {}
        loaded: dict[int, Lanes] = {}
        for row in self.rows:
            recorded = self.spec.rows[row]
            own = self.element(row)
            operands = []
            for operand in recorded.operands:
                if operand not in values and operand not in loaded:
                    loaded[operand] = self.value(operand, place, own)
                operands.append(values[operand] if operand in values else loaded[operand])
            if isinstance(recorded.opcode, Cast):
                source = self.spec.rows[recorded.operands[0]].element or own
                values[row] = self.arithmetic(own).cast(operands[0], self.arithmetic(source))
            else:
                assert isinstance(recorded.opcode, Elementwise)
                values[row] = recorded.opcode.body(self.arithmetic(own), *operands)
        return values

    def value(self, row: int, place: Place, wanted: Element) -> Lanes:
        """A row that is not in registers: a constant, or loaded."""
        constant = self.lowering.constants.get(row)
        if constant is not None:
            return self.arithmetic(self.element(row)).constant(constant.scalar())
        return self.load(row, place, wanted)

    # loops
    def nest(self, extents: Sequence[int], body: Callable[[tuple[Integer, ...]], None]) -> None:
        """Runs the body for every index of some axes, the last one fastest."""

        def inside(axis: int, indices: tuple[Integer, ...]) -> None:
            if axis == len(extents):
                body(indices)
            else:
                self.function.loop(0, extents[axis], 1, lambda index: inside(axis + 1, (*indices, index)))

        inside(0, ())

    def tiled(
        self, extents: Sequence[int], work: int, body: Callable[[tuple[Integer, ...], Integer, Integer], None]
    ) -> int:
        """Runs `body(outer indices, begin, end)` over this tile's share of a nest whose last axis the body walks.

        The first axis is what tiles share out: whole vectors of it where it is also the last. Answers how many tiles
        there are; `work` is the whole nest's, in elements of plain arithmetic.
        """
        step = self.lanes if len(extents) == 1 else 1
        tiles = max(1, min(-(-extents[0] // step), work // WORK, 64))
        share = -(-extents[0] // tiles // step) * step
        tiles = max(1, -(-extents[0] // share)) if share else 1
        begin: Integer = 0
        end: Integer = extents[0]
        if tiles > 1:
            begin = self.function.multiply(Operand(INT64, "%tile"), share)
            end = self.function.least(self.function.add(begin, share), extents[0])
        if len(extents) == 1:
            body((), begin, end)
        else:
            last = extents[-1]

            def row(index: Integer) -> None:
                self.nest(extents[1:-1], lambda inner: body((index, *inner), 0, last))

            self.function.loop(begin, end, 1, row)
        return tiles

    def vectors(self, begin: Integer, end: Integer, extent: int, body: Callable[[Integer, int | None], None]) -> None:
        """Runs `body(index, count)` over `begin .. end` of an axis, whole vectors first and then what is left.

        `begin` is a multiple of the lanes; only the last share of the axis has a rest.
        """
        whole = extent // self.lanes * self.lanes
        self.function.loop(begin, self.function.least(end, whole), self.lanes, lambda index: body(index, None))
        rest = extent - whole
        if rest and isinstance(end, int):
            body(whole, rest)
        elif rest:
            self.function.when(self.function.below(whole, end), lambda: body(whole, rest))


def weight(lowering: Lowering, rows: Sequence[int]) -> int:
    """What a chain of rows costs an element, in plain operations: an elementary function counts for many."""
    return sum(12 if lowering.spec.rows[row].opcode.name in _DEAR else 1 for row in rows) or 1


_DEAR = {"Exp", "Ln", "Tanh", "Sin", "Cos", "Log1p", "Expm1", "Erf", "ErfDerivative", "Powf"}


def total(extents: Sequence[int]) -> int:
    """How many places a nest has."""
    return prod(extents)
