"""The loops of a kernel and what it reads in them: axes merged, operands addressed, numbers loaded and stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from topos.backend.native.arithmetic import Arithmetic, arithmetic
from topos.backend.native.groups import Lowering
from topos.backend.native.kernel import Kernel
from topos.backend.native.program import Pointer
from topos.backend.native.reads import Place, Read, dense_read, inside, one_hot
from topos.backend.native.registers import INT64, POINTER, Integer, Operand, Type, absent, listed
from topos.backend.native.target import Target
from topos.backend.native.text import Function
from topos.backend.native.views import View, merged
from topos.backend.native.vocabulary import Lanes, NativeReading
from topos.element import Element
from topos.tensor.memory import whole_lines

WORK = 100_000
"""Elements of plain arithmetic that are worth a thread: ten microseconds, beside which a wake-up is little."""
MOST_TILES = 64
SHORT = 1 << 11
"""Places of an axis that masked vectors walk to its end: one loop compiles in half the time of a loop and a rest."""
STACK_BYTES = 1 << 16
"""What a kernel keeps on the stack at most; more of it is scratch memory, a part for each tile."""


class Frame:
    """A kernel in the making: the pointers of its operands, its loops and its memory."""

    def __init__(self, lowering: Lowering, target: Target, lanes: int, function: Function | None = None) -> None:
        self.lowering = lowering
        self.spec = lowering.spec
        self.target = target
        self.lanes = lanes
        self.function = Function() if function is None else function
        self.reading = NativeReading(self.function, lanes, target)
        self.pointers: list[Pointer] = []
        self.reads: dict[int, Read] = {}
        self._arithmetics: dict[tuple[Element, int], Arithmetic] = {}
        self._stack_bytes = 0
        self._shared_bytes = 0
        self._own_bytes = 0
        self._scratch: list[str] = []
        self.streamed: Sequence[Operand] = ()

    # operands
    def add(self, view: View, item_bytes: int) -> Operand:
        """The pointer to a view's first number, as the kernel's next argument."""
        self.pointers.append(Pointer(view.row, view.offset * item_bytes))
        return self.function.argument(len(self.pointers) - 1)

    def read(self, row: int, view: View | None = None) -> Read:
        """Makes a row in memory readable, through another view of it where one is given; ids as their one-hot."""
        view = self.lowering.view(row) if view is None else view
        if self.spec.is_selection(view.row):
            vocab = self.spec.rows[view.row].shape[1]
            hot = one_hot(view, vocab)
            read = Read(self.add(hot.ids, 8), hot.maps, None, hot.column, vocab)
        else:
            element = self.element(row)
            read = dense_read(view, element, self.add(view, element.dtype.itemsize))
        self.reads[row] = read
        return read

    def lay(self, shape: Sequence[int], others: Sequence[Sequence[int]] = ()) -> tuple[list[int], list[list[int]]]:
        """Merges the axes of a shape over every readable row and other strides; answers extents and others' steps."""
        reads = list(self.reads.values())
        maps = [map for read in reads for map in read.maps]
        extents, steps = merged(shape, [*maps, *others])
        rest = iter(steps)
        for read in reads:
            read.maps = [next(rest) for _ in read.maps]
        return extents, list(rest)

    # numbers
    def element(self, row: int) -> Element:
        """The element of a row's numbers."""
        return self.spec.element_of(row)

    def arithmetic(self, element: Element, reading: NativeReading | None = None) -> Arithmetic:
        """The arithmetic of an element over a reading's lanes, or this frame's."""
        reading = self.reading if reading is None else reading
        found = self._arithmetics.get((element, reading.lanes))
        if found is None:
            found = self._arithmetics[element, reading.lanes] = arithmetic(element, reading)
        return found

    def value(self, row: int, place: Place, wanted: Element, reading: NativeReading | None = None) -> Lanes:
        """A row's numbers at a place: a constant's, or loaded; of ids, their one-hot in the element wanted."""
        constant = self.lowering.constants.get(row)
        if constant is not None:
            return self.arithmetic(self.element(row), reading).constant(constant.scalar())
        read = self.reads[row]
        if read.element is None:
            return read.hot(self.function, self.arithmetic(wanted, reading), place)
        m = self.arithmetic(read.element, reading)
        return self._guarded(read, m, place) if read.guards else self.load(m, read.pointer, read.maps[0], place)

    def _guarded(self, read: Read, m: Arithmetic, place: Place) -> Lanes:
        """A guarded operand: loaded where all its guards hold, the fill of the innermost that does not elsewhere."""
        masks = inside(read, self.function, m, place)
        every: Operand = masks[0]
        for mask in masks[1:]:
            every = self.function.let(mask.type, f"and {every}, {mask.text}")
        if place.lanes is not None:
            every = self.function.let(
                every.type, f"and {every}, {self.function.prefix(m.reading.lanes, place.lanes).text}"
            )
        value = self._load_where(m, read, place, every)
        for mask, guard in zip(masks, read.guards, strict=True):
            fill = m.constant(m.element.round(np.array(guard.fill)).item())
            value = m.reading.select(mask, value, fill)
        return value

    def load(self, m: Arithmetic, pointer: Operand, steps: Sequence[int], place: Place) -> Lanes:
        """Lanes of a buffer whose strides per axis of the nest are `steps`."""
        step, first = steps[-1], m.offset(pointer, self.offset(steps, place))
        if m.reading.lanes == 1:
            return m.load(first)
        if step == 0:
            return m.load_one(first)
        if step == 1:
            return m.load(first, place.lanes)
        places = self._apart(m, first, step)
        return self.gathered(m, places, self._present(m, place.lanes))

    def value_where(self, row: int, place: Place, wanted: Element, mask: Operand) -> Lanes:
        """A row's numbers at the lanes where a mask holds; the memory of the others is not touched."""
        read = self.reads.get(row)
        if read is None:
            return self.value(row, place, wanted)
        if read.element is None:
            return read.hot(self.function, self.arithmetic(wanted), place, mask)
        return self._load_where(self.arithmetic(read.element), read, place, mask)

    def _load_where(self, m: Arithmetic, read: Read, place: Place, mask: Operand) -> Lanes:
        steps, type = read.maps[0], m.reading.type(m.stored)
        first = m.offset(read.pointer, self.offset(steps, place))
        if steps[-1] == 1 or type.lanes == 1:
            return m.opened(self.function.load_masked(type, first, mask, m.bytes))
        return self.gathered(m, self._apart(m, first, steps[-1]), mask)

    def gathered(self, m: Arithmetic, places: Operand, mask: Operand) -> Lanes:
        """What lies at the lanes' own addresses, where the mask holds."""
        type = m.reading.type(m.stored)
        name = f"masked.gather.{type.suffix}.{places.type.suffix}"
        return m.opened(self.function.call(type, name, places, mask, absent(type)))

    def store(self, m: Arithmetic, value: Lanes, pointer: Operand, steps: Sequence[int], place: Place) -> None:
        """Puts lanes at a place of a buffer whose strides per axis of the nest are `steps`."""
        first = m.offset(pointer, self.offset(steps, place))
        if pointer in self.streamed:
            stored = m.closed(value)
            self.function.write(f"store {stored}, ptr {first.text}, align {stored.type.align}, !nontemporal !{{i32 1}}")
            return
        if steps[-1] == 1 or place.lanes == 1 or m.reading.lanes == 1:
            m.store(value, first, place.lanes)
            return
        places, mask = self._apart(m, first, steps[-1]), self._present(m, place.lanes)
        stored = m.closed(value)
        name = f"masked.scatter.{stored.type.suffix}.{places.type.suffix}"
        self.function.run(name, stored, places, mask)

    def offset(self, steps: Sequence[int], place: Place) -> Integer:
        """How many numbers after the start of a buffer a place lies."""
        offset: Integer = 0
        for index, step in zip(place.outer, steps, strict=False):
            offset = self.function.add(offset, self.function.multiply(index, step))
        return self.function.add(offset, self.function.multiply(place.inner, steps[-1]))

    def _apart(self, m: Arithmetic, pointer: Operand, step: int) -> Operand:
        """The addresses of lanes that lie `step` numbers apart, as an argument."""
        index = m.reading.type("i64")
        places = listed(index, tuple(step * lane for lane in range(index.lanes)))
        base = f"getelementptr inbounds {m.reading.type(m.stored).of_one().text}, ptr {pointer.text}, {places}"
        pointers = self.function.let(m.reading.type("ptr"), base)
        return Operand(pointers.type, f"align {m.bytes} {pointers.text}")

    def _present(self, m: Arithmetic, count: Integer | None) -> Operand:
        """The mask of the lanes that exist."""
        return self.function.prefix(m.reading.lanes, m.reading.lanes if count is None else count)

    # memory
    def room(self, item: Type, count: int) -> Operand:
        """Memory for `count` items, of this tile alone."""
        size = item.bytes * count
        if self._stack_bytes + size <= STACK_BYTES:
            self._stack_bytes += size
            return self.function.room(item, count)
        self._own_bytes, start = self._own_bytes + whole_lines(size), self._own_bytes
        return self._region("%scratch_own", start)

    def shared(self, size: int) -> Operand:
        """Memory that all tiles and the kernels after this one see."""
        self._shared_bytes, start = self._shared_bytes + whole_lines(size), self._shared_bytes
        return self._region("%scratch", start)

    def _region(self, base: str, start: int) -> Operand:
        name = f"%scratch_{len(self._scratch)}"
        self._scratch.append(f"  {name} = getelementptr i8, ptr {base}, i64 {start}")
        return Operand(POINTER, name)

    def kernel(self, stem: str, tiles: int) -> Kernel:
        """The finished kernel."""
        if self._scratch:
            self.function.begin_with(
                f"  %scratch_slot = getelementptr ptr, ptr %arguments, i64 {len(self.pointers)}",
                "  %scratch = load ptr, ptr %scratch_slot, align 8",
                f"  %scratch_skipped = mul i64 %worker, {self._own_bytes}",
                f"  %scratch_after = getelementptr i8, ptr %scratch, i64 {self._shared_bytes}",
                "  %scratch_own = getelementptr i8, ptr %scratch_after, i64 %scratch_skipped",
                *self._scratch,
            )
        return self.function.kernel(stem, tiles, self._shared_bytes + tiles * self._own_bytes)

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

        Tiles share out the first axis that is long enough, or the longest: whole vectors of it where it is the last.
        Answers how many tiles there are; `work` is the whole nest's, in elements of plain arithmetic.
        """
        if not prod(extents):
            return 1
        steps = [*[1] * (len(extents) - 1), self.lanes]
        rounds = [-(-extent // step) for extent, step in zip(extents, steps, strict=True)]
        wanted = max(1, min(work // WORK, MOST_TILES))
        axis = next((at for at, count in enumerate(rounds) if count >= wanted), rounds.index(max(rounds)))
        share = -(-rounds[axis] // min(wanted, rounds[axis])) * steps[axis]
        tiles = -(-extents[axis] // share)
        begin: Integer = 0
        end: Integer = extents[axis]
        if tiles > 1:
            begin = self.function.multiply(Operand(INT64, "%tile"), share)
            end = self.function.least(self.function.add(begin, share), extents[axis])

        def inside(at: int, indices: tuple[Integer, ...]) -> None:
            first, last = (begin, end) if at == axis else (0, extents[at])
            if at == len(extents) - 1:
                body(indices, first, last)
            else:
                self.function.loop(first, last, 1, lambda index: inside(at + 1, (*indices, index)))

        inside(0, ())
        return tiles

    def _left(self, index: Integer, extent: int) -> Integer:
        return self.function.add(extent, self.function.multiply(index, -1))

    def vectors(
        self,
        begin: Integer,
        end: Integer,
        extent: int,
        body: Callable[[Integer, Integer | None], None],
        is_one_loop: bool = True,
    ) -> None:
        """Runs `body(index, count)` over `begin .. end` of an axis, whole vectors first and then what is left.

        `begin` is a multiple of the lanes; only the last share of the axis has a rest. A short axis `is_one_loop`, all
        of whose vectors are masked, unless its whole vectors are to be without.
        """
        whole = extent // self.lanes * self.lanes
        if is_one_loop and self.lanes < extent <= SHORT and whole < extent:
            self.function.loop(begin, end, self.lanes, lambda index: body(index, self._left(index, extent)))
            return
        self.function.loop(begin, self.function.least(end, whole), self.lanes, lambda index: body(index, None))
        self.rest(end, extent, body)

    def rest(self, end: Integer, extent: int, body: Callable[[Integer, Integer | None], None]) -> None:
        """Runs the body for what is left of an axis after its whole vectors, where `end` reaches so far."""
        whole = extent // self.lanes * self.lanes
        rest = extent - whole
        if rest and isinstance(end, int):
            body(whole, rest)
        elif rest:
            self.function.when(self.function.below(whole, end), lambda: body(whole, rest))
