"""Sums of all elements: one row where they are few, else blocks of 512 shared out, and then the sum of their totals."""

from __future__ import annotations

from topos.backend.native.costs import weight
from topos.backend.native.drafts import SMALL
from topos.backend.native.groups import Group, Lowering
from topos.backend.native.kernel import Kernel
from topos.backend.native.panels import row_group
from topos.backend.native.passes import Gathered
from topos.backend.native.program import Call
from topos.backend.native.reads import Place, Read
from topos.backend.native.reductions import Rows
from topos.backend.native.registers import Integer, Operand
from topos.backend.native.rows import Along
from topos.backend.native.target import Target
from topos.backend.native.views import dense_strides, merged
from topos.backend.native.vocabulary import Lanes
from topos.element import Element
from topos.reference.sums import BLOCK


def whole_group(lowering: Lowering, group: Group, target: Target) -> Call | None:
    """The kernels of a group that takes all axes together."""
    first = _Blocks(lowering, group, target)
    copied = first.not_flat()
    if group.shape.volume <= SMALL and not copied:
        return row_group(lowering, group, target)
    kernels = [_Blocks(lowering, group, target).copy(operand) for operand in copied]
    last = _Blocks(lowering, group, target)
    if group.shape.volume <= SMALL:
        return Call((*kernels, last.one_row()), first.frame.pointers)
    return Call((*kernels, *first.blocks(), last.totals()), first.frame.pointers)


class _Blocks(Rows):
    """A group of one pass over all elements; its totals lie in scratch memory between the kernels."""

    def __init__(self, lowering: Lowering, group: Group, target: Target) -> None:
        super().__init__(lowering, group, target)
        volume = group.shape.volume
        self.full, self.rest = divmod(volume, BLOCK)
        self.sums: list[Gathered] = self.passes.gathered[0] if self.passes.gathered else []
        self.written: dict[int, Operand] = {}
        self._unflat = {operand: self.frame.reads[operand] for operand in self.not_flat()}
        for operand in self._unflat:
            element = self._as_summed(operand)
            place = self.frame.shared(volume * self.frame.arithmetic(element).bytes)
            self.written[operand] = place
            self.frame.reads[operand] = Read(place, [[1]], element)
        self.places = [self.frame.shared((self.full + 1) * self._accumulated(what.row).bytes) for what in self.sums]

    def _as_summed(self, operand: int) -> Element:
        """The element in which an operand is read: of a selection, that of the sum which reads it."""
        readers = [row for row in self.group.rows if operand in self.lowering.spec.rows[row].operands]
        return self.frame.element(readers[0] if self.lowering.is_one_hot(operand) else operand)

    def copy(self, operand: int) -> Kernel:
        """Writes an operand out in row-major order."""
        frame, shape = self.frame, self.group.shape
        read = self._unflat[operand]
        extents, steps = merged(shape, [*self.given[operand], dense_strides(shape)])
        *read.maps, written = steps
        m = frame.arithmetic(self._as_summed(operand))
        place = self.written[operand]
        frame.reads[operand] = read

        def body(outer: tuple[Integer, ...], begin: Integer, end: Integer) -> None:
            frame.vectors(begin, end, extents[-1], lambda index, count: at(Place(outer, index, count)))

        def at(place_at: Place) -> None:
            frame.store(m, frame.value(operand, place_at, m.element), place, written, place_at)

        return frame.kernel("copy", frame.tiled(extents, shape.volume, body))

    def one_row(self) -> Kernel:
        """All elements by one thread, in as many passes as they take."""
        self.row((0,), 0, None)
        return self.frame.kernel("rows", 1)

    def blocks(self) -> list[Kernel]:
        """The whole blocks."""
        if not self.full:
            return []
        size = self.group.shape.volume * weight(self.lowering.spec, self.group.rows)
        tiles = self.frame.tiled([self.full, 1], size, lambda outer, begin, end: self._block(outer[0], BLOCK))
        return [self.frame.kernel("blocks", tiles)]

    def totals(self) -> Kernel:
        """The elements after the last whole block, the sums of all totals, and what is made of them."""
        self.begin((0,), 0, None)
        if self.rest:
            self._block(self.full, self.rest)
        walk = Along(self.frame, self.extent)
        count = self.full + (self.rest > 0)
        for what, place in zip(self.sums, self.places, strict=True):
            self.gather(what, walk.sum(self.accumulator(what), count, place))
        self.known(1)
        return self.frame.kernel("totals", 1)

    def _block(self, at: Integer, terms: int) -> None:
        walk = Along(self.frame, self.extent)
        wanted = [self.accumulator(what) for what in self.sums]
        self.begin((0,), 0, None)
        first = self.frame.function.multiply(at, BLOCK)

        def body(index: Integer, present: Integer | None) -> list[Lanes]:
            return self.body(0, index, present)

        held = walk.steps(first, terms, wanted, body, [each.neutral() for each in wanted])
        for each, part, place in zip(wanted, held, self.places, strict=True):
            walk.put(walk.folded(each, part), place, at)
